"""Levenberg and Marquardt's method, traced: JᵀJ and Jᵀr in, the next point out.

Every operation of the update is done in every step of every problem: one that many problems can do
without is left out.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Protocol

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Condition
from symgrad.expr.tracing.trace import variables
from symgrad.kernel.shapes import Call
from symgrad.optimize.arguments import number
from symgrad.optimize.method import (
    Evaluation,
    Memory,
    Method,
    Move,
    Tolerances,
    choose,
    where_free,
)
from symgrad.optimize.newton import restricted, solve_positive
from symgrad.values.arrays import smallest_of

# The matrix of the normal equations, JᵀJ, as a method sees it: unrolled, or kept by the kernel.
#
# Unrolled, every element is an expression, and the linear system becomes straight-line code:
# nothing is faster where variables are few. Its length grows with their cube, though, and with it
# what compilers take. A matrix that the kernel keeps in an array has a name for its diagonal only;
# what is done with all of it are calls that back ends write as loops.

Active = list[Condition | None]


class Normal(Protocol):
    """A symmetric matrix whose lower half, row by row, is a part of a method's memory."""

    half: Any

    def diagonal(self) -> Any:
        """The diagonal (n,)."""
        ...

    def __matmul__(self, v: Any) -> Any:
        """The product with a vector (n,)."""
        ...

    def solve(self, right: Any, added: Any, active: Active, floors: Any) -> Any:
        """The solution of the system with ``added`` on the diagonal, 0 where a bound is active."""
        ...


def kept(condition: Any, new: Any, half: Any) -> Normal:
    """The matrix that is new where a condition holds, and elsewhere has this lower half."""
    if isinstance(new, Stored):
        return new.kept(condition, half)
    return Unrolled(choose(condition, packed(new), half))


class Unrolled:
    """A matrix of expressions."""

    def __init__(self, half: Any) -> None:
        self.half, self._matrix = half, unpacked(half)

    def diagonal(self) -> Any:
        """The diagonal (n,)."""
        return self._matrix.diagonal()

    def __matmul__(self, v: Any) -> Any:
        return self._matrix @ v

    def solve(self, right: Any, added: Any, active: Active, floors: Any) -> Any:
        """See `Normal`."""
        matrix = np.array(restricted(self._matrix, active))
        for k in range(len(floors)):
            matrix[k, k] = matrix[k, k] + added[k]
        return solve_positive(matrix, where_free(right, active), floors)


class Calls:
    """The operations on a matrix that a trace asks of a kernel: see `plan.Call`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.made: list[Call] = []
        self.arguments: list[list[Any]] = []

    def call(self, kind: Literal["keep", "product", "solve"], results: int, *arguments: Any) -> Any:
        """Record a call: its results, as inputs of the graph."""
        graph, first = self._graph, len(self._graph.names)
        names = [f"{kind}{len(self.made)}_{k}" for k in range(results)]
        inputs = variables(graph, [graph.input(name) for name in names])
        self.made.append(Call(kind, range(first, first + results)))
        self.arguments.append([v for part in arguments for v in part])
        return inputs


class Stored:
    """A matrix that the kernel keeps: that of the sums, or the one in the state."""

    def __init__(self, calls: Calls, half: Any, diagonal: Any = None) -> None:
        self.half, self._calls = half, calls
        self._diagonal = _ends(half) if diagonal is None else diagonal

    def diagonal(self) -> Any:
        """The diagonal (n,)."""
        return self._diagonal

    def trace(self) -> Any:
        """The sum of the diagonal."""
        return np.sum(self._diagonal)

    def kept(self, condition: Any, half: Any) -> Stored:
        """This one where the condition holds, else the one in the state: it is that from now on."""
        self._calls.call("keep", 0, [functions.where(condition, 1.0, 0.0)])
        return Stored(self._calls, half, choose(condition, self._diagonal, _ends(half)))

    def __matmul__(self, v: Any) -> Any:
        return self._calls.call("product", len(self._diagonal), v)

    def solve(self, right: Any, added: Any, active: Active, floors: Any) -> Any:
        """See `Normal`."""
        where, pairs = functions.where, [*zip(self._diagonal, active, strict=True)]
        diagonal = [d if h is None else where(h, 1.0, d) for d, h in pairs]
        diagonal = [d + a for d, a in zip(diagonal, added, strict=True)]
        masks = [0.0 if h is None else where(h, 1.0, 0.0) for h in active]
        some = [masks] if any(h is not None for h in active) else []
        right = where_free(right, active)
        return self._calls.call("solve", len(floors), right, diagonal, floors, *some)


def packed(matrix: Any) -> Any:
    """The lower half of a symmetric matrix, row by row, (n*(n+1)/2,)."""
    return array([matrix[i][j] for i in range(len(matrix)) for j in range(i + 1)])


def unpacked(half: Any) -> Any:
    """The symmetric matrix of a lower half."""
    n = int((2 * len(half)) ** 0.5)
    index = np.zeros((n, n), int)
    index[np.tril_indices(n)] = np.arange(len(half))
    return half[np.maximum(index, index.T)]


def _ends(half: Any) -> Any:
    """The diagonal of a lower half: the last number of each row."""
    n = int((2 * len(half)) ** 0.5)
    return half[np.arange(1, n + 1).cumsum() - 1]


GRADIENT_ROUNDINGS: Final = 1.0
"""How many rounding errors of the variables and of the model a gradient may stem from."""

PROMISED_ROUNDINGS: Final = 2.0
"""How many rounding errors of the sum of squares a step must promise for it to tell of the step."""

DECREASE_ROUNDINGS: Final = 8.0
"""How many rounding errors of the loss a decrease may be that tells of its end."""

TERM_ROUNDINGS: Final = 4.0
"""How many rounding errors of its terms a promise must be to be known."""

RESIDUAL_ROUNDINGS: Final = 8.0
"""How many rounding errors of the variables residuals may be that are nothing but those."""

LEAST_TOLERANCE: Final = 1e-30
"""The least tolerance that float32 can divide by."""


@dataclass(frozen=True)
class LevenbergMarquardt(Method):
    """Damped Gauss-Newton steps for sums of squares: ``(JᵀJ + damping * D) step = -Jᵀr``.

    D is the largest diagonal of JᵀJ met so far (Moré, 1978, "The Levenberg-Marquardt algorithm:
    implementation and theory"), so that units of parameters do not matter. The damping follows how
    well the quadratic model predicted the loss (Nielsen, 1999, "Damping parameter in Marquardt's
    method"), and falls to a tenth at best. The Jacobian is never stored. ``damping`` is the first
    one.

    Near the minimum rounding hides what a step does to the loss. There it is told from the slopes
    at both ends of the step, which have more digits, and the last step is taken without another
    evaluation. So the parameters have more digits than the loss alone could tell, in float32 five
    or six for problems that are not ill-conditioned.

    A decrease of the loss, or a step, within its tolerance ends a fit where no column of the
    Jacobian could lower the loss by more than that tolerance, relative to it, or where the gradient
    is not above what the rounding of the variables makes of it. Where steps improve no more the
    undamped one must promise no more than that either; if columns are so nearly the same that
    rounding of JᵀJ hides what it promises, the status is -1. Where the model has become flat, as an
    exponential that underflows, every gradient is small: that is no success, but status -3.
    Residuals that are no more than what rounding of the variables makes of them end a fit too.
    None of this depends on the unit of the residuals, nor on how far away a fit has started, where
    the dtype has their squares, and these times eps: in float32 residuals from 1e-14 to 1e17
    (from 1e-9 on GPUs that take subnormal numbers for 0).

    Example:
        >>> import symgrad as sg
        >>> residuals = lambda v: [1 - v[0], 10 * (v[1] - v[0]**2)]
        >>> result = sg.minimize_from(residuals, 2, [[-1.2, 1.0]], sg.LevenbergMarquardt(), 50)
        >>> result.x.round(4), result.success
        (array([[1., 1.]], dtype=float32), array([ True]))
    """

    damping: float = 1e-3
    needs: ClassVar[str] = "squares"
    pure: ClassVar[bool] = True
    stored: ClassVar[int | None] = 3

    def __post_init__(self) -> None:
        if not number(self.damping, "LevenbergMarquardt(damping)") > 0:
            raise InputError(f"LevenbergMarquardt(damping={self.damping}): it must be positive")

    def start(self, n: int) -> Memory:
        """The point, loss, gradient, JᵀJ (lower half), scales, damping, growth, and three sizes.

        These are the promise, by how much the quadratic model says that the step lowers the loss;
        the sum of squares of the columns of J times their variables, which rounding goes with; and
        the loss at the start.
        """
        half = np.zeros(n * (n + 1) // 2)
        sizes = 0.0, 0.0, 0.0
        return np.zeros(n), 0.0, np.zeros(n), half, np.zeros(n), self.damping, 2.0, *sizes

    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move: from the trial if the loss there is lower, else a shorter one."""
        assert at.hessian is not None, "least squares are given JᵀJ"
        point, loss, gradient, half, scales, damping, growth, *_, begun = memory
        seen = _judged(at, memory)
        took = seen.lower | seen.first
        damping, growth = _damping(seen.first, took, seen.quality, damping, growth, at.eps)
        point, gradient = choose(took, at.x, point), choose(took, at.gradient, gradient)
        matrix, loss = kept(took, at.hessian, half), functions.where(took, at.loss, loss)
        diagonal = matrix.diagonal()
        safe = _larger(diagonal, [_least_scale(at.eps)] * len(scales))
        scales, floors = _larger(scales, safe), list(at.eps * safe)
        added = _added(damping, scales, floors, at.eps)
        trial, promised, spread, cut = self._step(at, point, gradient, matrix, added, floors)
        known = TERM_ROUNDINGS * at.eps * spread <= promised
        damped = functools.reduce(operator.or_, [a > d for a, d in zip(added, safe, strict=True)])
        # no end is a short step after a good one that was seen, or by a damping that will fall
        whole = ~((seen.quality > 0.5) & (damped | ~seen.blind))
        if cut is not None:  # a step that bounds cut off may promise nothing: one damped more does
            whole = whole & ~cut
            promised = functions.where(cut & (promised <= 2.0 * at.eps * loss), -loss, promised)
        begun = functions.where(seen.first, at.loss, begun)
        size = point @ (diagonal * point)
        state = _State(
            point, loss, gradient, diagonal, scales, damping, promised, size, begun, known
        )
        memory = point, loss, gradient, matrix.half, scales, damping, growth, promised, size, begun
        return _move(at, seen, state, Move(trial, memory, point, loss, whole=whole))

    def _step(
        self,
        at: Evaluation,
        point: Any,
        gradient: Any,
        matrix: Normal,
        added: Any,
        floors: list[Any],
    ) -> tuple[Any, Any, Any, Any]:
        """The trial that the damped step of the free variables leads to, and its promise.

        ``added`` is the damping, times D; pivots below their ``floors`` are rounding errors of JᵀJ.
        The third result is the size of the terms of the promise: what each variable's part of the
        step would do to the squares alone. Where the step leaves the bounds it goes to them, and
        the others are solved for again; the last result says where that is, None without bounds.
        """
        diagonal = matrix.diagonal()
        active = at.bounds.active(point, gradient)
        back = matrix.solve(gradient, added, active, floors)
        if not at.bounds.finite:  # back solves (JᵀJ + damping D) back = gradient
            promised = 0.5 * (back @ (added * back + gradient))
            return point - back, promised, back @ (diagonal * back), None
        over, ahead = at.bounds.crossed(point - back), at.bounds.project(point - back)
        edge = where_free(ahead - point, [_not(c) for c in over])
        pulled = gradient + matrix @ edge
        both = [_either(a, b) for a, b in zip(active, over, strict=True)]
        inside = point - matrix.solve(pulled, added, both, floors)
        ends = zip(inside, ahead, over, strict=True)  # exactly there: point + edge may be rounded
        trial = [p if c is None else functions.where(c, e, p) for p, e, c in ends]
        trial = at.bounds.project(trial)
        step = trial - point
        promised = -(gradient @ step) - 0.5 * (step @ (matrix @ step))
        cut = functools.reduce(operator.or_, [c for c in over if c is not None])
        return trial, promised, step @ (diagonal * step), cut

    def tolerances(self, eps: float) -> Tolerances:
        """The tolerances of a loss that is a sum: it has few more digits than its terms."""
        return Tolerances(
            gradient=_least_cosine(eps),
            loss=DECREASE_ROUNDINGS * eps,
            step=DECREASE_ROUNDINGS * eps,
        )


@dataclass(frozen=True)
class _Judged:
    """A judgement of the step to an evaluation: how good that was, and what rounding hides.

    ``lower`` is whether the loss is; ``hidden`` whether a change of it is rounding, and ``blind``
    whether the one that was promised is.
    """

    first: Any
    sound: Any
    inverse: Any
    hidden: Callable[[Any], Any]
    blind: Any
    lower: Any
    quality: Any


def _judged(at: Evaluation, memory: Memory) -> _Judged:
    assert at.hessian is not None, "least squares are given JᵀJ"
    point, loss, gradient, *_, promised, size, _ = memory
    first = at.step == 0.0
    slope, trace = np.sum(at.gradient), at.hessian.trace()
    sound = functions.isfinite(slope + trace) & ((trace > 0.0) | (slope == 0.0))  # no underflow
    inverse = 1.0 / functions.where(promised > 0.0, promised, 1.0)
    hidden = _hidden(size, loss, at.eps)
    blind, ahead = hidden(promised), sound & (promised > 0.0)
    along = -0.5 * ((gradient + at.gradient) @ (at.x - point))  # the trapezoidal rule
    level = blind & hidden(0.5 * (at.loss - loss))
    fall = functions.where(level, along, loss - at.loss)
    lower, still = ahead & (fall >= 0.0), blind & (fall == 0.0)
    quality = functions.where(still, 1.0, fall * inverse)  # too short a step refutes no model
    return _Judged(first, sound, inverse, hidden, blind, lower, quality)


@dataclass(frozen=True)
class _State:
    """Where a problem is after a step, and what the next one promises.

    ``known`` is whether that is no rounding error of its terms.
    """

    point: Any
    loss: Any
    gradient: Any
    diagonal: Any
    scales: Any
    damping: Any
    promised: Any
    size: Any
    begun: Any
    known: Any


def _move(at: Evaluation, seen: _Judged, state: _State, move: Move) -> Move:
    """The move, with what tells of its end."""
    eps, loss, promised = at.eps, state.loss, state.promised
    active = at.bounds.active(state.point, state.gradient)
    left = [abs(g) for g in where_free(state.gradient, active)]
    lengths = np.sqrt(state.diagonal)
    gone = _gone(state, eps)
    ratio = promised * seen.inverse
    good = seen.blind | (seen.lower & (seen.quality > 0.25))
    still = (ratio >= 0.9) & (state.damping <= 2.0 * _least_damping(eps))
    worn = seen.blind & ~seen.first & still
    near = promised <= functions.maximum(DECREASE_ROUNDINGS * eps * loss, eps**2 * state.size)
    lost = worn & ~near & ~state.known
    told = functions.isfinite(np.sum(array(left))) & ~lost
    return replace(
        move,
        measure=_orthogonal(left, lengths, loss, promised),
        settled=_close(promised, ratio, loss, good),
        finite=seen.sound | ~seen.first,
        slight=_slight(left, lengths, loss, state.size, eps, told),
        solved=lambda _: gone,
        stuck=lost | (state.damping > 1.0 / eps**2),
        worn=worn & near,
        flat=_flat(state, lengths, active, eps),
        onward=(promised > 0.0) & seen.hidden(promised) & state.known,
    )


def _gone(state: _State, eps: float) -> Any:
    """Whether the residuals are no more than what rounding of the variables makes of them.

    Or the columns of the Jacobian vanish with the residuals, as those of ``a**2`` do at 0: where
    the residuals are small beside J x and nothing beside those at the start, and rounding of JᵀJ
    hides what a step promises.
    """
    loss = state.loss
    unit = RESIDUAL_ROUNDINGS * eps
    rounding = loss * (1.0 / unit) <= unit * state.size
    vanishing = (loss <= eps * state.size) & (loss * (1.0 / eps) <= eps * state.begun)
    return rounding | (vanishing & ~state.known)


def _least_damping(eps: float) -> float:
    """Less than what rounding does to JᵀJ, as scales may be larger than its diagonal has become."""
    return eps**1.5


def _added(damping: Any, scales: Any, rounding: Sequence[Any], eps: float) -> Any:
    """The addition to the diagonal of JᵀJ: the damping times the scales.

    The least damping is to be none: where scales are far larger than the diagonal has become, no
    more is added than its ``rounding``.
    """
    added = damping * scales
    none = [functions.minimum(a, r) for a, r in zip(added, rounding, strict=True)]
    return choose(damping <= _least_damping(eps), array(none), added)


def _least_scale(eps: float) -> float:
    """The scale where J has only zeros: times eps it still has an inverse."""
    return 4.0 * smallest_of(eps) / eps


def _larger(a: Any, b: Any) -> Any:
    return array([functions.maximum(v, w) for v, w in zip(a, b, strict=True)])


def _not(condition: Any) -> Any:
    """Where a condition fails; ``~None``, for one that never holds, is always."""
    return True if condition is None else ~condition


def _either(a: Any, b: Any) -> Any:
    """Where one of two conditions holds, of which None never does."""
    return a | b if a is not None and b is not None else b if a is None else a


def _damping(
    first: Any, took: Any, quality: Any, damping: Any, growth: Any, eps: float
) -> tuple[Any, Any]:
    """Nielsen's rule: less after a good step, more and more after bad ones."""
    iteration = 2.0 * functions.clip(quality, 0.0, 1.0) - 1.0
    less = damping * functions.maximum(0.1, 1.0 - iteration * iteration * iteration)
    damping = functions.where(first, damping, functions.where(took, less, damping * growth))
    growth = functions.where(took, 2.0, 2.0 * growth)
    return functions.maximum(damping, _least_damping(eps)), growth


def _hidden(size: Any, loss: Any, eps: float) -> Callable[[Any], Any]:
    """Whether a change of the loss is no more than what the rounding of the model makes of it.

    Values of the model are about as long as J x, and r are the residuals: rounding changes the loss
    by up to eps |J x| |r|.
    """
    most = np.sqrt(2.0 * loss) * np.sqrt(size)

    def within(change: Any) -> Any:
        scaled = abs(change) * (1.0 / eps)
        return (scaled <= PROMISED_ROUNDINGS * loss) | (scaled < most)

    return within


def _close(promised: Any, ratio: Any, loss: Any, good: Any) -> Callable[[float], Any]:
    """Whether a loss that changes by less than a tolerance tells of a minimum.

    It does where the step after the next has little to promise, as promises shrink by their
    ``ratio``: a promise is, relative to the loss, the square of an offset, which is as small as its
    digits let it be where the tolerance is.
    """

    def within(tolerance: float) -> Any:
        return good & (promised * ratio * (0.125 * tolerance) ** -1.5 <= loss)

    return within


def _flat(state: _State, lengths: Any, active: Sequence[Condition | None], eps: float) -> Any:
    """Whether the model has all but ceased to depend on some variable, where it cannot matter.

    Its column of the Jacobian has shrunk to the rounding of what it was, and all of the variable
    moves the residuals by less than theirs; a column that was 0 from the start tells of a variable
    that is not used. Where a bound is active, others may well be without effect: what
    a weight of 0 multiplies.
    """
    floor, most = _least_scale(eps), 2.0**0.5 * eps * np.sqrt(state.loss)
    tests = [
        (d * (1.0 / eps) < eps * (s - floor)) & (abs(v) * length <= most)
        for d, s, v, length in zip(state.diagonal, state.scales, state.point, lengths, strict=True)
    ]
    free = [~h for h in active if h is not None]
    return functools.reduce(
        operator.and_, free, functools.reduce(operator.or_, tests) & (state.loss > 0)
    )


def _orthogonal(
    left: Sequence[Any], lengths: Any, loss: Any, promised: Any
) -> Callable[[float], Any]:
    """Whether no cosine between a column of the Jacobian and the residuals is above a tolerance.

    A cosine is the gradient's component over the column's length and that of the residuals. Nor may
    that of all columns together be, by what the step promises, for columns may be nearly the same.
    """
    root = np.sqrt(2.0 * loss)

    def within(tolerance: float) -> Any:
        tests = [g <= length * (tolerance * root) for g, length in zip(left, lengths, strict=True)]
        least = max(tolerance, LEAST_TOLERANCE)
        together = promised * (1.0 / least) <= least * loss
        return functools.reduce(operator.and_, tests, together)

    return within


def _slight(
    left: Sequence[Any], lengths: Any, loss: Any, size: Any, eps: float, told: Any
) -> Callable[[float], Any]:
    """Whether a change of a single variable, by its column alone, would hardly lower the loss.

    It would by g**2 / 2d, of the gradient and the square of the column's length. Rounding of the
    variables moves the residuals by some |J| eps |x|. ``told`` is where gradients tell of it at
    all.
    """

    def within(tolerance: float) -> Any:
        part = (GRADIENT_ROUNDINGS * eps) ** 2 / tolerance
        most = np.sqrt(functions.maximum(2.0 * loss, part * size)) * tolerance**0.5
        tests = [g <= length * most for g, length in zip(left, lengths, strict=True)]
        return functools.reduce(operator.and_, tests, told)

    return within


def _least_cosine(eps: float) -> float:
    """The cosine of a column and the residuals at which a fit ends."""
    return eps**0.75
