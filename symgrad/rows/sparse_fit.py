"""Levenberg and Marquardt's method for least squares whose JᵀJ is in blocks.

Variances of parameters are the diagonal of the inverse of that matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from symgrad.errors import InputError
from symgrad.optimize.point import Box
from symgrad.optimize.result import ENDED_BY_USER
from symgrad.report.progress import Report
from symgrad.rows.schur import MOST_DENSE_PARAMETERS, System, linalg, rows_of, solve
from symgrad.rows.sparse_normal import Normal
from symgrad.rows.sparse_rows import RowSystem

LEAST_INDEPENDENT_PART: Final = 1e-12
"""The square of a column's part that is independent of others, below which it is rounding."""

NUMBERS_AT_A_TIME: Final = 2**22
"""Numbers of the eliminated entries' couplings that are solved for at a time."""


def variances(normal: Normal) -> np.ndarray | None:
    """The diagonal (n,) of (JᵀJ)⁻¹, infinite for parameters that no row depends on.

    None if JᵀJ is singular beside these, as along a gauge freedom.

    Raises:
        InputError: if too many parameters are left for a dense matrix.
    """
    idle = normal.squares == 0.0
    try:
        system = System.of(normal, idle.astype(float))
        if len(system.kept) > MOST_DENSE_PARAMETERS:
            raise InputError(
                f"errors=True inverts a matrix of {len(system.kept):,} parameters, those that no "
                f"single index column looks up: it takes up to {MOST_DENSE_PARAMETERS:,}"
            )
        factor = np.linalg.cholesky(system.matrix())
    except np.linalg.LinAlgError:
        return None
    if _is_singular(normal, system, factor):
        return None
    diagonal = np.full(len(idle), np.inf)
    inverse = linalg().solve_triangular(factor, np.eye(len(factor)), lower=True)
    diagonal[system.kept] = np.sum(inverse * inverse, axis=0)
    if system.family is not None:
        diagonal[system.family.places] = _eliminated(system, factor)
    return np.where(idle, np.inf, diagonal)


def _is_singular(normal: Normal, system: System, factor: np.ndarray) -> bool:
    """Whether a pivot is but rounding of the square of its column."""
    squares = np.where(normal.squares > 0.0, normal.squares, 1.0)
    pivots = np.diagonal(factor) ** 2 / squares[system.kept]
    if system.family is not None:
        entries = np.einsum("lww->lw", system.inverse) ** -2 / squares[system.family.places]
        pivots = np.concatenate([pivots, entries.ravel()])
    return bool((pivots < LEAST_INDEPENDENT_PART).any())


def _eliminated(system: System, factor: np.ndarray) -> np.ndarray:
    """The variances (entries, w) of the eliminated family: L⁻ᵀ (1 + T S⁻¹ Tᵀ) L⁻¹, with links T."""
    entries, w, _ = system.inverse.shape
    diagonals, size = np.empty((entries, w)), max(1, NUMBERS_AT_A_TIME // (w * max(1, len(factor))))
    for a in range(0, entries, size):
        inverse = system.inverse[a : a + size]
        count = len(inverse)
        links = np.zeros((count * w, len(factor)))
        for link in system.links:
            part = rows_of(link.matrix, a, min(a + count, link.matrix.shape[0] // w))
            columns = system.place[system.rest.places(link)[1]]
            links[: part.shape[0], columns] += part.toarray()
        solved = linalg().solve_triangular(factor, links.T, lower=True) if len(factor) else links.T
        solved = solved.reshape(-1, count, w)
        middle = np.eye(w) + np.einsum("rcv,rcw->cvw", solved, solved)
        diagonals[a : a + count] = np.einsum("cvj,cvw,cwj->cj", inverse, middle, inverse)
    return diagonals


LEAST_DAMPING: Final = 1e-14
"""Below it rounding alone makes the damped matrix singular, as along a gauge freedom."""

LEAST_PROMISED_ROUNDINGS: Final = 4.0
"""How many rounding errors of the loss a step must promise for the loss to tell of it."""

MOST_KEPT_PROMISE: Final = 0.9
"""The part of what the last step promised from which steps improve no more."""

MOST_DAMPING: Final = 1e16
"""A step damped so much is next to nothing."""


@dataclass(frozen=True)
class Limits:
    """When a fit ends: tolerances in SciPy's words, and the most steps that are tried."""

    ftol: float = 1e-8
    xtol: float = 1e-8
    gtol: float = 1e-8
    steps: int = 500


@dataclass(frozen=True, eq=False)
class State:
    """Parameters, their normal equations of ``count`` residuals, and what comes next.

    ``scales`` are the largest squares of J's columns met so far; ``growth`` is by how much a step
    that fails raises the damping; ``promised`` is what the step that led here did.
    """

    x: np.ndarray
    normal: Normal
    box: Box
    scales: np.ndarray
    count: int
    damping: float = 1e-3
    growth: float = 2.0
    promised: float = np.inf

    @classmethod
    def at(cls, system: RowSystem, x: np.ndarray, box: Box) -> State:
        """The first state."""
        normal = system.at(x)
        return cls(x, normal, box, normal.squares, system.count)

    @property
    def free(self) -> np.ndarray:
        """Which parameters no bound holds (n,)."""
        gradient = self.normal.gradient
        low = (self.x <= self.box.low) & (gradient > 0)
        high = (self.x >= self.box.high) & (gradient < 0)
        return ~(low | high)

    def step(self) -> tuple[np.ndarray, float]:
        """The damped step within bounds, and by how much the model says that it lowers the loss.

        Where rounding leaves none it promises nothing.
        """
        normal = self.normal
        if self.box.bounded:
            normal = normal.fixed(self.free)
        scales = np.where(self.scales > 0.0, self.scales, 1.0)
        try:
            h = solve(normal, self.damping * scales)
        except np.linalg.LinAlgError:
            return np.zeros(len(self.x)), 0.0
        h = self.box.clip(self.x + h) - self.x
        return h, -float(h @ self.normal.gradient) - 0.5 * self.normal.square(h)

    def moved(self, x: np.ndarray, normal: Normal, fall: float, promised: float) -> State:
        """After a step that lowered the loss: Nielsen's rule for the damping."""
        iteration = 2.0 * min(fall / promised, 1.0) - 1.0
        damping = max(self.damping * max(0.1, 1.0 - iteration**3), LEAST_DAMPING)
        scales = np.maximum(self.scales, normal.squares)
        return replace(
            self, x=x, normal=normal, scales=scales, damping=damping, growth=2.0, promised=promised
        )

    def damped(self) -> State:
        """After a step that failed."""
        return replace(self, damping=self.damping * self.growth, growth=2.0 * self.growth)

    # where it ends -------------------------------------------------------------------------------

    def is_orthogonal(self, tolerance: float) -> bool:
        """Whether no free column of J has a cosine with the residuals above a tolerance."""
        return self._within(2.0 * self.normal.cost * tolerance**2)

    def is_slight(self, tolerance: float, eps: float) -> bool:
        """Whether no free parameter, by its column alone, could lower the loss by such a part.

        Rounding of the parameters alone moves the residuals by some |J| eps |x|.
        """
        noise = (LEAST_PROMISED_ROUNDINGS * eps) ** 2 * self.size
        return self._within(max(2.0 * self.normal.cost * tolerance, noise))

    def _within(self, square: float) -> bool:
        normal, free = self.normal, self.free
        slopes, squares = normal.gradient[free], normal.squares[free]
        return bool((slopes * slopes <= square * squares).all())

    def is_hidden(self, change: float, eps: float) -> bool:
        """Whether a change of the loss is no more than what rounding makes of it."""
        scaled, cost = change / eps, self.normal.cost
        return scaled <= LEAST_PROMISED_ROUNDINGS * cost or scaled * scaled < 2.0 * cost * self.size

    @property
    def size(self) -> float:
        """The mean square of what parameters add to a residual, which rounding goes with.

        Rounding errors of residuals are independent: of many, most cancel in sums.
        """
        return float(self.normal.squares @ (self.x * self.x)) / self.count

    def is_flat(self, eps: float) -> bool:
        """Whether the model has all but ceased to depend on some parameter: see `least_squares`."""
        squares, most = self.normal.squares, eps * eps
        shrunk = squares < most * self.scales
        return bool((shrunk & (squares * self.x**2 < 2.0 * most * self.normal.cost)).any())

    def is_short(self, h: np.ndarray, tolerance: float) -> bool:
        """Whether a step is within a tolerance, relative to the parameters, by their scales."""
        units = np.sqrt(self.scales)
        return float(np.linalg.norm(units * h)) <= tolerance * float(np.linalg.norm(units * self.x))


@dataclass(frozen=True, eq=False)
class Ending:
    """Where a fit ended: ``status`` as in `result.MESSAGES`, the steps tried, and evaluations."""

    state: State
    status: int
    steps: int
    evaluations: int


def descend(
    system: RowSystem, x: np.ndarray, box: Box, limits: Limits, eps: float, report: Report
) -> Ending:
    """The minimum that Levenberg and Marquardt's method leads to from parameters x (n,).

    ``eps`` is the rounding error of what rows give. Steps are reported, where StopIteration ends
    the fit.
    """
    with np.errstate(all="ignore"):
        state, evaluations = State.at(system, x, box), 1
        status = 0 if state.normal.is_finite else -2
        for step in range(limits.steps):
            if not status and state.is_orthogonal(limits.gtol):
                status = 1
            if status:
                flat = status not in (-2, ENDED_BY_USER) and state.is_flat(eps)
                return Ending(state, -3 if flat else status, step, evaluations)
            h, promised = state.step()
            if promised > 0.0:
                trial, evaluations = system.at(state.x + h), evaluations + 1
                state, status = _judged(state, h, promised, trial, limits, eps)
            else:
                state = state.damped()
            if state.damping > MOST_DAMPING:
                status = -1
            status = status or _reported(report, step + 1, state.normal.cost)
        return Ending(state, status, limits.steps, evaluations)


def _reported(report: Report, steps: int, cost: float) -> int:
    """The status with which the user ends a fit after so many steps, or 0."""
    try:
        report(steps, lambda: cost)
    except StopIteration:
        return ENDED_BY_USER
    return 0


def _judged(
    state: State, h: np.ndarray, promised: float, trial: Normal, limits: Limits, eps: float
) -> tuple[State, int]:
    """The state after a step, and the status if it is the last one."""
    cost, hidden = state.normal.cost, state.is_hidden(promised, eps)
    fall = cost - trial.cost
    if hidden and state.is_hidden(abs(fall), eps):  # slopes have more digits: the trapezoidal rule
        fall = -0.5 * float(h @ (state.normal.gradient + trial.gradient))
    lower = trial.is_finite and fall > 0.0
    after = state.moved(state.x + h, trial, fall, promised) if lower else state.damped()
    level = max(limits.ftol, LEAST_PROMISED_ROUNDINGS * eps)
    slight = after.is_slight(level, eps)
    worn = not lower or promised >= MOST_KEPT_PROMISE * state.promised or after.is_flat(eps)
    if hidden and (slight or worn):
        return after, 2 if slight else -1
    if lower and fall > 0.25 * promised and max(fall, promised) <= level * cost and slight:
        return after, 2
    return after, 3 if slight and state.is_short(h, limits.xtol) else 0
