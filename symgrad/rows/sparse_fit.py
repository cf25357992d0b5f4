"""Levenberg and Marquardt's method for least squares whose JᵀJ is in blocks.

Variances of parameters are the diagonal of the inverse of that matrix.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, SymgradError
from symgrad.kernel.host.threads import available, share_out
from symgrad.optimize.result import ENDED_BY_USER, Box
from symgrad.report.progress import Report
from symgrad.rows.products import Family
from symgrad.rows.sparse_normal import Coupling, Normal, RowSystem, block_matrix, on_all_cores

# --- damped normal equations ----------------------------------------------------------------------
# Damped normal equations in blocks, solved by the Schur complement of a block-diagonal part.
#
# Where no row couples two entries of a family, its part of JᵀJ is block-diagonal: it is eliminated,
# and what is left of the others is solved by Cholesky's method, or, where there are many, by
# conjugate gradients that never form it (Triggs et al., 2000, "Bundle adjustment: a modern
# synthesis"; Agarwal et al., 2010, "Bundle adjustment in the large").

MOST_DENSE_PARAMETERS: Final = 8000
"""Parameters up to which what is left is solved as a dense matrix, of half a GiB."""

RELATIVE_RESIDUAL: Final = 1e-8
"""The part of the right side at which conjugate gradients end."""

MOST_ITERATIONS: Final = 500
"""The most of them."""


BLOCKS_AT_A_TIME: Final = 2**20
"""Numbers of the complement that are computed at a time, so that they stay in the cache."""


PARTS: Final = 2
"""Parts of the complement's entries; each has no more columns than its last entry needs."""


def linalg() -> Any:
    """SciPy's LAPACK."""
    try:
        return importlib.import_module("scipy.linalg")
    except ImportError as error:
        raise SymgradError("fits need SciPy: pip install 'symgrad[fit]'") from error


def solve(normal: Normal, added: np.ndarray, dense: int = MOST_DENSE_PARAMETERS) -> np.ndarray:
    """The step h (n,) of ``(JᵀJ + diag(added)) h = -Jᵀr``, with a positive ``added`` (n,).

    What is left of up to ``dense`` parameters is solved by Cholesky's method.

    Raises:
        LinAlgError: NumPy's, if rounding leaves the matrix not positive definite.
    """
    system = System.of(normal, added)
    right = system.reduced(-normal.gradient)
    if len(system.kept) > dense:
        x = conjugate_gradients(system, right)
    else:
        x = np.zeros(len(right))
        x[system.kept] = cholesky(system.matrix(), right[system.kept])
    return system.completed(x, -normal.gradient)


def cholesky(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution for a symmetric matrix, given by its lower half, which is overwritten."""
    if not len(matrix):
        return right
    lapack = linalg()
    factor = lapack.cho_factor(matrix.T, overwrite_a=True, check_finite=False)  # of its columns
    return lapack.cho_solve(factor, right, check_finite=False)


def conjugate_gradients(system: System, right: np.ndarray) -> np.ndarray:
    """The solution of what is left, nearly, from its diagonal blocks as a preconditioner."""
    inverses = system.preconditioner()

    def conditioned(r: np.ndarray) -> np.ndarray:
        z = np.zeros(len(r))
        for family, blocks in inverses:
            z[family.places] += times(blocks, r[family.places])
        return z

    x, r = np.zeros(len(right)), right.copy()
    p = z = conditioned(r)
    start = size = float(r @ z)
    for _ in range(MOST_ITERATIONS):
        if size <= RELATIVE_RESIDUAL**2 * start:
            break
        image = system @ p
        step = size / float(p @ image)
        x, r = x + step * p, r - step * image
        z = conditioned(r)
        size, before = float(r @ z), size
        p = z + (size / before) * p
    return x


def times(blocks: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Matrices (entries, w, w) times vectors (entries, w)."""
    return (blocks @ entries[:, :, None])[:, :, 0]


@dataclass(frozen=True, eq=False)
class System:
    """The rest of a damped system when the first family is eliminated, where it can be.

    ``rest`` is the system without that family. ``inverse`` (entries, w, w) are the inverses L⁻¹ of
    the Cholesky factors of its diagonal blocks, and ``links`` the couplings of its entries with
    others, multiplied by L⁻¹: the complement is ``rest - Σ linksᵀ links``.
    """

    rest: Normal
    added: np.ndarray
    family: Family | None
    inverse: np.ndarray
    links: tuple[Coupling, ...]

    @classmethod
    def of(cls, normal: Normal, added: np.ndarray) -> System:
        """The system of normal equations, with positive numbers (n,) added to the diagonal."""
        family, w = normal.families[0], normal.families[0].width
        if family.column is None:
            return cls(normal, added, None, np.empty((0, 0, 0)), ())
        blocks = normal.diagonal[0].copy()
        blocks[:, range(w), range(w)] += added[family.places]
        inverse = np.linalg.inv(np.linalg.cholesky(blocks))
        mine = [c for c in normal.couplings if c.pattern.families[0] == 0]
        others = tuple(c for c in normal.couplings if c.pattern.families[0] != 0)
        links = tuple(_linked(c, inverse) for c in mine)
        diagonal = (np.zeros_like(blocks), *normal.diagonal[1:])
        rest = replace(normal, diagonal=diagonal, couplings=others)
        return cls(rest, added, family, inverse, links)

    @property
    def others(self) -> list[int]:
        """The numbers of the families that are left."""
        return list(range(0 if self.family is None else 1, len(self.rest.families)))

    @cached_property
    def kept(self) -> np.ndarray:
        """The parameters that are left, family by family, each of them once."""
        if not self.others:
            return np.empty(0, np.intp)
        every = np.concatenate([self.rest.families[k].places.ravel() for k in self.others])
        _, first = np.unique(every, return_index=True)
        return every[np.sort(first)]

    @cached_property
    def place(self) -> np.ndarray:
        """Where each parameter (n,) is among those that are left."""
        places = np.zeros(len(self.added), np.intp)
        places[self.kept] = np.arange(len(self.kept))
        return places

    # vectors -------------------------------------------------------------------------------------

    def reduced(self, right: np.ndarray) -> np.ndarray:
        """The right side (n,) of what is left; 0 for the parameters of the eliminated family."""
        if self.family is None:
            return right
        reduced = right.copy()
        reduced[self.family.places] = 0.0
        self._subtract(times(self.inverse, right[self.family.places]), reduced)
        return reduced

    def completed(self, x: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The whole solution, from that of what is left."""
        if self.family is None:
            return x
        solution, places = x.copy(), self.family.places
        part = times(self.inverse, right[places]) - self._linked(x)
        solution[places] = times(self.inverse.transpose(0, 2, 1), part)
        return solution

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """The complement times x (n,), which is 0 where the eliminated family is."""
        product = self.rest @ x + self.added * x
        if self.family is not None:
            self._subtract(self._linked(x), product)
        return product

    def _linked(self, x: np.ndarray) -> np.ndarray:
        """The links times x, for each eliminated entry."""
        total = np.zeros(self.inverse.shape[:2])
        for link in self.links:
            product = link.matrix @ x[self.rest.places(link)[1]]
            total.reshape(-1)[: len(product)] += product
        return total

    def _subtract(self, values: np.ndarray, vector: np.ndarray) -> None:
        """Subtract what the links make of values of the eliminated entries."""
        for link in self.links:
            first, second = self.rest.places(link)
            vector[second] -= link.transposed @ values.reshape(-1)[: len(first)]

    # matrices ------------------------------------------------------------------------------------

    def matrix(self) -> np.ndarray:
        """The lower half of the complement as a matrix of the parameters that are left."""
        size, place = len(self.kept), self.place
        matrix = np.zeros((size, size))
        for rows, columns, values in self.rest.triplets(self.others):
            matrix[place[rows], place[columns]] += values
        matrix[range(size), range(size)] += self.added[self.kept]
        for k, link in enumerate(self.links):
            second = place[self.rest.places(link)[1]]
            for other in self.links[k:]:
                columns = place[self.rest.places(other)[1]]
                if other is link and second[-1] - second[0] == len(second) - 1:
                    _subtract_square(matrix, int(second[0]), link)
                    continue
                product = (link.transposed @ other.matrix).toarray()
                matrix[np.ix_(second, columns)] -= product
                if other is not link:
                    matrix[np.ix_(columns, second)] -= product.T
        return matrix

    def preconditioner(self) -> list[tuple[Family, np.ndarray]]:
        """The inverses of the complement's diagonal blocks, family by family.

        Where two slots share a family, that of its blocks before the elimination.
        """
        inverses: list[tuple[Family, np.ndarray]] = []
        for k in self.others:
            family, w = self.rest.families[k], self.rest.families[k].width
            blocks = self.rest.diagonal[k].copy()
            blocks[:, range(w), range(w)] += self.added[family.places]
            mine = [link for link in self.links if link.pattern.families[1] == k]
            if len(mine) == 1:
                _subtract_squares(blocks, mine[0])
            inverses.append((family, np.linalg.inv(blocks)))
        return inverses


def _linked(coupling: Coupling, inverse: np.ndarray) -> Coupling:
    """A coupling whose first entries are multiplied by matrices (entries, w, w)."""
    blocks = np.empty_like(coupling.blocks)

    def multiply(a: int, b: int) -> None:
        np.matmul(inverse[coupling.pattern.first[a:b]], coupling.blocks[a:b], out=blocks[a:b])

    on_all_cores(multiply, len(blocks))
    return replace(coupling, blocks=blocks)


def _subtract_squares(blocks: np.ndarray, link: Coupling) -> None:
    """Subtract the squares of a link's blocks from the blocks of its second entries."""
    order = link.pattern.transposed
    squares = np.einsum("nev,new->nvw", link.blocks, link.blocks)[order]
    entries, starts = np.unique(link.pattern.second[order], return_index=True)
    blocks[entries] -= np.add.reduceat(squares, starts, axis=0)


def _subtract_square(matrix: np.ndarray, start: int, link: Coupling) -> None:
    """Subtract ``linkᵀ link`` from the lower half of a matrix at ``start``, some on each core."""
    left, width = link.transposed, link.blocks.shape[2]
    entries = left.shape[0] // width
    end = start + entries * width
    blocks = matrix[start:end, start:end].reshape(entries, width, entries, width).swapaxes(1, 2)
    size = max(1, BLOCKS_AT_A_TIME // (width * width * entries))
    for first, last in pairwise(sorted({entries * k // PARTS for k in range(PARTS + 1)})):
        right = _before(link, last)

        def strip(a: int, b: int, right: Any = right) -> None:
            part = rows_of(left, a, b) @ right
            row = np.repeat(np.arange(a, b), np.diff(part.indptr))
            blocks[row, part.indices] -= part.data

        def strips(a: int, b: int, first: int = first, strip: Any = strip) -> None:
            for k in range(first + a, first + b, size):
                strip(k, min(k + size, first + b))

        share_out(strips, last - first, 1, available())


def _before(link: Coupling, last: int) -> Any:
    """A link's matrix without what is coupled with second entries from ``last`` on."""
    pattern, entries = link.pattern, len(link.pattern.starts[0]) - 1
    if last == len(pattern.starts[1]) - 1:
        return link.matrix
    kept = np.flatnonzero(pattern.second < last)
    starts = np.searchsorted(kept, pattern.starts[0])
    blocks = np.take(link.blocks, kept, axis=0)
    return block_matrix(blocks, pattern.second[kept], starts, (entries, last))


def rows_of(matrix: Any, first: int, end: int) -> Any:
    """Some entries of a matrix in blocks."""
    mine = slice(matrix.indptr[first], matrix.indptr[end])
    starts = matrix.indptr[first : end + 1] - matrix.indptr[first]
    counts = end - first, matrix.shape[1] // matrix.blocksize[1]
    return block_matrix(matrix.data[mine], matrix.indices[mine], starts, counts)


# --- the method -----------------------------------------------------------------------------------

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
