"""Newton's method with the symbolic Hessian, Gauss and Newton's for sums of squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Condition
from symgrad.optimize.line_search import (
    DESCENT_PARTS,
    FLOOR_FRACTION,
    Ahead,
    Descent,
    Judged,
)
from symgrad.optimize.method import Evaluation, Memory, largest, where_free
from symgrad.values.arrays import smallest_of

# --- small linear systems: Cholesky's method ------------------------------------------------------
# Small linear systems as expressions: Cholesky's method, unrolled.

LEAST_BOUND: Final = 1e-23
"""Elements below this are taken to be 0: their rounding in float32 has no inverse."""

LEAST_PIVOT: Final = 16.0
"""The least pivot, in units of the smallest normal number: its inverse is finite."""

PIVOT_ROUNDINGS: Final = 4.0
"""How many rounding errors of a diagonal element a negative pivot may stem from."""


def solve_positive(matrix: Any, right: Any, floors: Sequence[Any]) -> Any:
    """The solution (n,) of a symmetric system with a positive definite matrix (n, n).

    L D Lᵀ with one division for each variable; a pivot below its floor is rounding error, and
    becomes the floor.
    """
    n = len(right)
    columns, lower, inverses = _empty(n), _empty(n), list[Any]()
    for j in range(n):
        pivot = functions.maximum(_entry(matrix, columns, lower, j, j), floors[j])
        columns[j + 1 :, j] = [_entry(matrix, columns, lower, i, j) for i in range(j + 1, n)]
        inverses.append(1.0 / pivot)
        lower[j + 1 :, j] = [_product(c, inverses[j]) for c in columns[j + 1 :, j]]
    y = _forward(lower, right)
    return _backward(lower, [v * d for v, d in zip(y, inverses, strict=True)])


def solve_modified(
    matrix: Any, right: Any, eps: float, least: Sequence[Any] | None = None
) -> tuple[Any, Any]:
    """The solution (n,) for a symmetric matrix that is made positive definite where it is not.

    Pivots are raised as Gill, Murray and Wright do (1981, "Practical optimization", 4.4.2.2); a
    matrix that is safely positive definite stays as it is. With ``least``, a length for each
    variable, the solution goes at least that far along a direction of negative curvature: that of
    the first pivot which is negative beyond rounding (there, 4.4.2.3). The second result says where
    there is one.
    """
    n = len(right)
    sizes = [abs(matrix[i][i]) for i in range(n)]
    aside = [matrix[i][j] for i in range(n) for j in range(i)]
    wide = largest(sizes)
    spread = largest(aside) * (1.0 / max(np.sqrt(n * n - 1.0), 1.0)) if aside else wide
    bound = functions.maximum(functions.maximum(wide, spread), eps * largest(right))
    bound = functions.maximum(bound, LEAST_BOUND)
    floor, bends = eps * eps * bound, list[Any]()
    columns, lower, inverses = _empty(n), _empty(n), list[Any]()
    for j in range(n):
        column = [_entry(matrix, columns, lower, i, j) for i in range(j, n)]
        rounding = PIVOT_ROUNDINGS * eps * sizes[j]
        lowest = functions.where(rounding > 0.0, rounding, floor)
        lowest = functions.maximum(lowest, LEAST_PIVOT * smallest_of(eps))
        pivot = functions.maximum(abs(column[0]), lowest)
        if len(column) > 1:
            peak = largest(column[1:])
            pivot = functions.maximum(pivot, peak * (peak / bound))
        bends.append(column[0] + rounding < 0.0)
        inverses.append(1.0 / pivot)
        columns[j + 1 :, j] = column[1:]
        lower[j + 1 :, j] = [_product(c, inverses[j]) for c in column[1:]]
    z = [v * d for v, d in zip(_forward(lower, right), inverses, strict=True)]
    bent = False if least is None else _bent(z, bends, least)
    return _backward(lower, z), bent


def _bent(z: list[Any], bends: Sequence[Any], least: Sequence[Any]) -> Any:
    """Move the first that bends on as far as it has to go; where there is one.

    Those after it do not change it any more, so the curvature along the solution of the transposed
    system from it alone is not above its own.
    """
    bent: Any = bends[0]
    for j, bend in enumerate(bends):
        first = bend & functions.logical_not(bent) if j else bend
        far = functions.copysign(functions.maximum(abs(z[j]), least[j]), z[j])
        z[j], bent = functions.where(first, far, z[j]), bent | bend
    return bent


def _empty(n: int) -> Any:
    return np.full((n, n), None, object)


def _entry(matrix: Any, columns: Any, lower: Any, i: int, j: int) -> Any:
    """The rest of an entry after the columns before it, which are those of L times pivots."""
    c = matrix[i][j]
    for k in range(j):
        if not _is_zero(lower[i, k]) and not _is_zero(columns[j, k]):
            c = c - lower[i, k] * columns[j, k]
    return c


def _is_zero(value: Any) -> bool:
    """Whether an entry is structurally 0: such entries cost nothing."""
    return not isinstance(value, Handle) and value == 0.0


def _product(c: Any, inverse: Any) -> Any:
    return c if _is_zero(c) else c * inverse


def _forward(lower: Any, right: Any) -> list[Any]:
    """The solution of the triangular system of the factor."""
    y: list[Any] = []
    for i in range(len(right)):
        parts = [lower[i, k] * y[k] for k in range(i) if not _is_zero(lower[i, k])]
        y.append(right[i] - np.sum(array(parts)) if parts else right[i])
    return y


def _backward(lower: Any, z: Sequence[Any]) -> Any:
    """The solution of the transposed system."""
    n, x = len(z), list(z)
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            if not _is_zero(lower[k, i]):
                x[i] = x[i] - lower[k, i] * x[k]
    return array(x)


# --- the methods ----------------------------------------------------------------------------------

LEAST_HALVED: Final = 2.0
"""Steps in a row that halve what is promised, after which they are believed to go on so."""

VARIABLE_ROUNDINGS: Final = 4.0
"""How many rounding errors of the variables residuals may be that are nothing but those."""

VANISHING: Final = 0.1
"""The part of squares that vanish with their Jacobian which a step may still promise at the end."""

NOISE_FRACTION: Final = 0.5
"""The part of the noise of the loss that hides a promise: what was seen of it is its largest."""

SADDLE_STEP: Final = 0.01
"""How far a step from a saddle goes, relative to a variable or to 1."""


@dataclass(frozen=True)
class Newton(Descent):
    """Newton's method: the symbolic Hessian, made positive definite by a modified Cholesky.

    Each step is shortened until Armijo's condition holds. Where the Hessian is positive definite
    the direction is exactly Newton's, and convergence quadratic. Where it has negative curvature
    the step goes along that as well, also from a saddle or a maximum, where the gradient is 0: an
    end is a success only where the Hessian is positive semidefinite within its rounding.

    Example:
        >>> import symgrad as sg
        >>> rosenbrock = lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2
        >>> result = sg.minimize_from(rosenbrock, 2, [[-1.2, 1.0]], sg.Newton(), 100)
        >>> result.success, result.x.round(4)
        (array([ True]), array([[1., 1.]], dtype=float32))
    """

    needs: ClassVar[str] = "hessian"
    pure: ClassVar[bool] = True

    def start(self, n: int) -> Memory:
        """The line search's memory, the size of the quadratic form, and whether it is indefinite.

        The size is the sum of squares of the variables times the Hessian's diagonal: rounding of
        the variables changes the loss by its product with eps squared. Then comes how many steps in
        a row have at least halved what is promised.
        """
        return *self.begin(n), 0.0, 0.0, 0.0

    def reach(self, at: Evaluation, memory: Memory) -> Any:
        """The inverse of the Hessian's diagonal."""
        assert at.hessian is not None, "Newton's method is given a Hessian"
        sizes = [abs(at.hessian[k, k]) for k in range(len(at.x))]
        return array([1.0 / functions.where(size > 0.0, size, 1.0) for size in sizes])

    def direct(
        self, at: Evaluation, gradient: Any, active: Any, judged: Judged, memory: Memory
    ) -> Any:
        """Newton's direction among the variables that are free, with a first length of 1."""
        size, indefinite, halved = memory[DESCENT_PARTS:]
        step, bends = self._step(at, restricted(at.hessian, active), gradient)
        parts = [abs(at.hessian[k, k]) * x * x for k, x in enumerate(at.x)]
        size = functions.where(judged.accepted, np.sum(array(parts)), size)
        if bends is not False:
            bends = functions.where(bends, 1.0, 0.0)
            indefinite = functions.where(judged.accepted, bends, indefinite)
        halves = 2.0 * (step @ gradient) <= -(memory[2] @ memory[1])
        counted = functions.where(halves, halved + 1.0, 0.0)
        return -step, 1.0, (size, indefinite, functions.where(judged.accepted, counted, halved))

    def _step(self, at: Evaluation, matrix: Any, gradient: Any) -> tuple[Any, Any]:
        """Minus the step, and whether the matrix has negative curvature."""
        least = [SADDLE_STEP * functions.maximum(abs(v), 1.0) for v in at.x]
        return solve_modified(matrix, gradient, at.eps, least)

    def solved(self, ahead: Ahead, own: Memory, tolerance: float) -> Any:
        """Where the quadratic model promises no more than the tolerance."""
        size = functions.maximum(abs(ahead.loss), ahead.unit)
        level = ahead.is_level & ahead.is_near(ahead.promised)
        return (ahead.promised <= tolerance * size) | level

    def lost(self, ahead: Ahead, own: Memory) -> Any:
        """Where the promise is rounding of the loss, of its terms or of the variables, or noise.

        What the loss can fall by in all is no more than the promise only if this is halved step by
        step. In a valley that leads to infinity it hardly shrinks, and rounding hides no minimum.
        """
        hidden = (ahead.promised <= ahead.rounding) & (own[2] >= LEAST_HALVED)
        terms = FLOOR_FRACTION * (ahead.floor + ahead.eps**2 * own[0])
        slight = ahead.is_slight & ahead.is_near(ahead.promised)
        return hidden | (ahead.promised <= terms + NOISE_FRACTION * ahead.noise) | slight

    def bends(self, own: Memory) -> Any:
        """Where the Hessian has negative curvature."""
        return own[1] > 0.0


@dataclass(frozen=True)
class GaussNewton(Newton):
    """Newton's method for sums of squares, with JᵀJ in the place of the Hessian.

    It converges fast where residuals are small or nearly linear; see also `LevenbergMarquardt`.
    Where it ends does not depend on the unit of the residuals.

    Example:
        >>> import symgrad as sg
        >>> result = sg.minimize_from(
        ...     lambda v: [1 - v[0], 10 * (v[1] - v[0]**2)], 2, [[-1.2, 1.0]], sg.GaussNewton(), 50)
        >>> result.x.round(4)
        array([[1., 1.]], dtype=float32)
    """

    needs: ClassVar[str] = "squares"
    pure: ClassVar[bool] = True

    def _step(self, at: Evaluation, matrix: Any, gradient: Any) -> tuple[Any, Any]:
        """Minus the step: JᵀJ is never indefinite."""
        return solve_modified(matrix, gradient, at.eps)

    def unit(self, loss: Any) -> Any:
        """The squares at the start."""
        return loss

    def solved(self, ahead: Ahead, own: Memory, tolerance: float) -> Any:
        """Where a step promises no more than the tolerance, relative to the squares.

        Or where these, with the promise, are what rounding of the variables makes of them. If
        columns of the Jacobian vanish with the residuals, they never are: there they have to be
        small beside the squares of J x, and nothing beside those at the start.
        """
        loss, eps, size = ahead.loss, ahead.eps, own[0]
        vanishing = (loss <= eps * size) & (loss <= eps**2 * ahead.unit)
        most = functions.where(vanishing, max(VANISHING, tolerance), tolerance) * loss
        gone = functions.maximum(loss, ahead.promised) <= _rounding(ahead, own)
        return (ahead.promised <= most) | gone

    def lost(self, ahead: Ahead, own: Memory) -> Any:
        """Where the promise is rounding of the squares or of the variables, or noise."""
        hidden = (ahead.promised <= ahead.rounding) & (own[2] >= LEAST_HALVED)
        return hidden | (ahead.promised <= _rounding(ahead, own) + NOISE_FRACTION * ahead.noise)

    def bends(self, own: Memory) -> Any:
        """Nowhere."""
        return False


def _rounding(ahead: Ahead, own: Memory) -> Any:
    """The effect of rounding of the variables on the squares."""
    return (VARIABLE_ROUNDINGS * ahead.eps) ** 2 * own[0]


def restricted(matrix: Any, active: list[Condition | None]) -> Any:
    """The matrix with rows and columns at active bounds as those of the identity."""
    if not any(h is not None for h in active):
        return matrix
    rows = np.asarray([where_free(row, active) for row in matrix])
    columns = np.asarray([where_free(column, active) for column in rows.T]).T
    for k, h in enumerate(active):
        if h is not None:
            columns[k, k] = columns[k, k] + array(h)[()] * 1.0
    return array(columns)
