"""Optimisation methods, as functions on expressions from one state to the next, and evaluations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls.verbs import Jacobian, grad, hessian, jacobian
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.derivatives.differentiate import deriving
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.array import ExprArray, array
from symgrad.expr.tracers.expression import Condition, Expr, lift
from symgrad.expr.tracers.integers import Word, refuse_integer
from symgrad.expr.tracing.trace import refuse_condition

Memory = tuple[Any, ...]
"""A method's memory between steps: numbers and arrays, as expressions where it is traced."""

Rate = float | Callable[[Expr], Any]
"""A learning rate: a number, or a function of the number of steps done, as in `schedules`."""


@dataclass(frozen=True)
class Tolerances:
    """When a problem counts as solved; None leaves a test out, and saves its operations.

    ``gradient`` bounds the gradient at the point: its largest component, none counted for more
    than the distance to the bound that it pushes against; or, for least squares, the largest
    cosine between a column of the Jacobian and the residuals. ``loss`` bounds its relative
    decrease in a step that was accepted, or for `LBFGS` and `Newton` the one that their model of
    the loss still promises, relative to the loss, or to its size at the start or 1 where it falls
    to 0: a loss that is small beside 1 is to be multiplied, unless it is a sum of squares for
    `LevenbergMarquardt` or `GaussNewton`. ``step`` bounds the relative change of every variable.

    Small decreases and steps alone do not tell of a minimum. They count where the gradient is as
    small as a loss known to that tolerance lets it be (Gill, Murray and Wright, 1981, "Practical
    optimization", 8.2.3): see `slight`, `Descent`, and `LevenbergMarquardt` for least squares.

    Where a method gives no tolerances of its own all are None, and all steps are taken. A success
    of methods that know gradients alone says that the point is stationary: they do not tell a
    minimum from a saddle that they were started at, as `Newton` does.

    Example:
        >>> import symgrad as sg
        >>> bowl = sg.fused_forward_backward(1, lambda v: (v[0] - 3)**2, device="cpu")
        >>> result = bowl.minimize([[0.0]], sg.LBFGS(), tol=sg.Tolerances(gradient=1e-4))
        >>> bool(result.success[0])
        True
    """

    gradient: float | None = None
    loss: float | None = None
    step: float | None = None


@dataclass(frozen=True)
class Bounds:
    """A box: the lowest and the highest value of each variable, infinite where there is none."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def of(cls, low: Any, high: Any, n: int) -> Bounds:
        """Bounds from numbers or arrays that broadcast to (n,)."""
        sides = [np.broadcast_to(np.asarray(side, float), (n,)).tolist() for side in (low, high)]
        return cls(tuple(sides[0]), tuple(sides[1]))

    @property
    def finite(self) -> bool:
        """Whether there is any bound."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def project(self, x: Any) -> ExprArray:
        """The nearest point of the box."""
        return array([self._clip(v, k) for k, v in enumerate(x)])

    def _clip(self, v: Any, k: int) -> Any:
        if self.low[k] > -np.inf:
            v = ops.maximum(v, self.low[k])
        return ops.minimum(v, self.high[k]) if self.high[k] < np.inf else v

    def crossed(self, x: Any) -> list[Condition | None]:
        """Where a variable is beyond a bound; None where it has none."""
        conditions: list[Condition | None] = []
        for v, low, high in zip(x, self.low, self.high, strict=True):
            sides = [v < low] if low > -np.inf else []
            sides += [v > high] if high < np.inf else []
            conditions.append(
                sides[0] | sides[1] if len(sides) == 2 else sides[0] if sides else None
            )
        return conditions

    def active(self, x: Any, gradient: Any, slack: Any = 0.0) -> list[Condition | None]:
        """Where a variable is at a bound that the gradient pushes it against.

        With ``slack`` also where it is nearer to that bound than this many of its `units`.
        """
        return [
            self._active(v, g, k, slack) for k, (v, g) in enumerate(zip(x, gradient, strict=True))
        ]

    def _active(self, v: Any, g: Any, k: int, slack: Any) -> Condition | None:
        sides, margin = [], slack * self.units[k]
        if self.low[k] > -np.inf:
            sides.append((v - self.low[k] <= margin) & (g > 0.0))
        if self.high[k] < np.inf:
            sides.append((self.high[k] - v <= margin) & (g < 0.0))
        return sides[0] | sides[1] if len(sides) == 2 else sides[0] if sides else None

    @property
    def units(self) -> list[float]:
        """The unit of each variable: the width of its box, or a size of its nearest bound."""
        units = []
        for low, high in zip(self.low, self.high, strict=True):
            ends = [abs(end) for end in (low, high) if np.isfinite(end)]
            units.append(min(high - low, 1.0 + min(ends)) if ends and high > low else 1.0)
        return units

    def to_go(self, x: Any, gradient: Any) -> ExprArray:
        """Minus the step along the gradient, as far as the bounds let the variables go."""
        return array(
            [self._to_go(v, g, k) for k, (v, g) in enumerate(zip(x, gradient, strict=True))]
        )

    def _to_go(self, v: Any, g: Any, k: int) -> Any:
        if self.low[k] > -np.inf:
            g = ops.minimum(g, v - self.low[k])
        return ops.maximum(g, v - self.high[k]) if self.high[k] < np.inf else g

    def edges(self, gradient: Any) -> list[Any]:
        """The bound that the gradient pushes each variable against; 0.0 where it has none."""
        return [self._edge(g, k) for k, g in enumerate(gradient)]

    def _edge(self, g: Any, k: int) -> Any:
        low, high = self.low[k], self.high[k]
        if np.isfinite(low) and np.isfinite(high):
            return functions.where(g > 0.0, low, high)
        return low if np.isfinite(low) else high if np.isfinite(high) else 0.0


def where_free(values: Any, active: Sequence[Condition | None]) -> ExprArray:
    """The values, 0 where a bound is active."""
    pairs = zip(values, active, strict=True)
    return array([v if h is None else functions.where(h, 0.0, v) for v, h in pairs])


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a point for a method: expressions, and the numbers that it may depend on.

    ``hessian``, (n, n), is that of the loss for methods that need it, JᵀJ for those that minimise
    a sum of squares, else None; methods with a ``stored`` part may be given a `normal.Stored` one.
    ``step`` counts the steps done; ``eps`` is that of the dtype.

    Example:
        >>> import symgrad as sg
        >>> class Descent(sg.Method):
        ...     def start(self, n):
        ...         return ()
        ...     def advance(self, at, memory):
        ...         assert isinstance(at, sg.Evaluation)
        ...         return sg.Move(at.x - 0.5 * at.gradient / (1 + at.step), memory)
        >>> sg.minimize_from(lambda v: v @ v, 1, [[3.0]], Descent(), 2, device="cpu").x
        array([[0.]], dtype=float32)
    """

    x: ExprArray
    loss: Expr
    gradient: ExprArray
    hessian: Any
    step: Expr
    bounds: Bounds
    eps: float


@dataclass(frozen=True)
class Move:
    """The move of a method after an evaluation.

    ``trial`` is where to evaluate next, ``memory`` what to keep. ``point`` is the best point known
    now, with its ``loss`` and the ``measure`` of its gradient, which is compared with the
    tolerance, or a function from the tolerance to a condition; left out, they are those of the
    evaluation.

    The others tell of the end, and may all be left out:

    - ``settled``: where the change of the loss tells of convergence, or a function from the
      tolerance for that change to such a condition; False if it never does.
    - ``solved``: a function from the tolerance of the loss to a condition: whether the loss, by a
      model of it, can fall by no more.
    - ``stuck``: where no step leads further down.
    - ``finite``: where the gradient at the point is finite, for a measure that does not tell.
    - ``whole``: where the length of the step tells of convergence, as bounds have not cut it off.
    - ``slight``: a function from the tolerance of the loss or the step to a condition: whether the
      gradient is small for it; None if a method leaves that out.
    - ``worn``: where changes of the loss are rounding and steps improve no more: the problem is
      done there where the gradient is small for the tolerance of the loss.
    - ``bent``: where the loss falls along its curvature, so that no gradient tells of a minimum.
    - ``flat``: where the loss no longer depends on some variable, so that a small gradient tells of
      nothing.
    - ``onward``: where a problem that is done ends at ``trial`` and not at ``point``: after a step
      that changes the loss by less than its rounding.

    Example:
        >>> import symgrad as sg
        >>> class Cautious(sg.Method):  # from the best point, with half the step after a bad one
        ...     def start(self, n):
        ...         return (0.0, 0.0, 1.0)
        ...     def advance(self, at, memory):
        ...         x, loss, rate = memory
        ...         better = (at.step == 0) | (at.loss < loss)
        ...         x, loss = sg.where(better, at.x[0], x), sg.where(better, at.loss, loss)
        ...         rate = sg.where(better, rate, 0.5 * rate)
        ...         trial, memory = [x - rate * sg.sign(x)], (x, loss, rate)
        ...         return sg.Move(trial, memory, [x], loss, settled=False)
        >>> sg.minimize_from(lambda v: v @ v, 1, [[1.75]], Cautious(), 20, device="cpu").x
        array([[0.]], dtype=float32)
    """

    trial: Any
    memory: Memory
    point: Any = None
    loss: Any = None
    measure: Any = None
    settled: Any = True
    solved: Callable[[float], Any] | None = None
    stuck: Any = False
    finite: Any = True
    whole: Any = True
    slight: Callable[[float], Any] | None = None
    worn: Any = False
    bent: Any = False
    flat: Any = False
    onward: Any = False

    def completed(self, at: Evaluation) -> Move:
        """The move, with what it leaves out of the point it is from."""
        point, loss = at.x if self.point is None else self.point, self.loss
        measure = self.measure
        if measure is None:
            measure = largest(at.bounds.to_go(at.x, at.gradient))
        return replace(self, point=point, loss=at.loss if loss is None else loss, measure=measure)


class Method(ABC):
    """A method: what it needs of the loss, what it keeps, and how it moves.

    `Rule` is the simple form, for methods that go from gradient to gradient. A method that may
    refuse a point, as those with a line search do, says with each `Move` which point is the best
    so far and which to evaluate next; `LevenbergMarquardt` is an example. Everything that
    ``advance`` computes is traced, so choices are made by ``sg.where``.

    Example:
        >>> import symgrad as sg
        >>> class Halving(sg.Method):  # half of each step of Newton's method
        ...     needs = "hessian"
        ...     def start(self, n):
        ...         return ()
        ...     def advance(self, at, memory):
        ...         return sg.Move(at.x - 0.5 * at.gradient / at.hessian.diagonal(), memory)
        >>> bowl = lambda v: (v[0] - 1)**2 + 3 * v[1]**2
        >>> sg.minimize_from(bowl, 2, [5.0, 2.0], Halving(), 3, device="cpu").x
        array([1.5 , 0.25], dtype=float32)
    """

    needs: ClassVar[str] = "gradient"
    """"gradient", "hessian", or "squares": the loss is half the sum of squared residuals; or
    "slope", the gradient alone: the loss is computed where a tolerance or a history asks for it,
    or else at the end only, and has no value for ``advance`` before.
    """

    pure: ClassVar[bool] = False
    """Whether ``advance`` depends on its arguments and the method's fields alone: if these are
    numbers and words, it is traced once, and over data whatever the loss. Subclasses say so anew.
    """

    stored: ClassVar[int | None] = None
    """The part of the memory that is the lower half of JᵀJ, if ``advance`` does with that only what
    a `normal.Stored` matrix can; else None. Subclasses say so anew.
    """

    @abstractmethod
    def start(self, n: int) -> Memory:
        """The memory before the first step, for n variables."""

    @abstractmethod
    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move from a point that has been evaluated, as expressions."""

    def tolerances(self, eps: float) -> Tolerances:
        """The tolerances where the user gives none."""
        return Tolerances(gradient=eps**0.5, loss=eps, step=eps)


class Rule(Method):
    """A first-order method: the next point from the point, the gradient and a memory.

    Subclass it as a frozen dataclass to write one of your own. ``update`` is traced like any
    function, so it may use NumPy's functions, symgrad's and ``sg.where``.

    Example:
        >>> from dataclasses import dataclass, replace
        >>> import numpy as np
        >>> import symgrad as sg
        >>> @dataclass(frozen=True)
        ... class Lion(sg.Rule):  # Chen and others, 2023, "Symbolic discovery of optimization ..."
        ...     lr: float = 0.01
        ...     def start(self, n):
        ...         return (np.zeros(n),)
        ...     def update(self, x, gradient, memory, step):
        ...         (m,) = memory
        ...         x = x - self.lr * np.sign(0.9 * m + 0.1 * gradient)
        ...         return x, (0.99 * m + 0.01 * gradient,)
        >>> result = sg.minimize_from(lambda v: v @ v, 2, [[0.5, -0.25]], Lion(), 200, device="cpu")
        >>> bool(abs(result.x).max() < 0.1)
        True
    """

    needs: ClassVar[str] = "slope"

    def start(self, n: int) -> Memory:
        """The memory before the first step: numbers and arrays, of any shapes; none by default."""
        return ()

    @abstractmethod
    def update(self, x: Any, gradient: Any, memory: Memory, step: Any) -> tuple[Any, Memory]:
        """The next point (n,) and the next memory, of the same shapes; step is 0 at first."""

    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move to the next point, whatever the loss there."""
        result = self.update(at.x, at.gradient, memory, at.step)
        trial, memory = _checked(result, len(at.x), type(self).__name__)
        left = at.bounds.to_go(at.x, at.gradient)
        return Move(array(trial), memory, slight=slight(at.x, at.loss, left))

    def tolerances(self, eps: float) -> Tolerances:
        """None: all steps are taken."""
        return Tolerances()


def _checked(result: Any, n: int, name: str) -> tuple[Any, Memory]:
    """The result of a rule's update, if it is a point and a memory."""
    if (
        not isinstance(result, tuple | list)
        or len(result) != 2
        or not isinstance(result[1], tuple | list)
    ):
        raise TraceError(
            f"{name}.update returned {type(result).__name__}: the next point and the next memory, "
            "a tuple, are needed; return x, () where there is no memory"
        )
    if np.shape(array_of(result[0])) != (n,):
        shape = np.shape(array_of(result[0]))
        raise TraceError(f"{name}.update returned a point of shape {shape}: ({n},) is needed")
    return result[0], tuple(result[1])


def rate_at(rate: Rate, step: Any) -> Any:
    """The learning rate after so many steps."""
    return rate(step) if callable(rate) else rate


def largest(values: Any) -> Any:
    """The largest magnitude among values; NaN if one is."""
    return balanced(functions.maximum, [abs(v) for v in values])


def slight(x: Any, loss: Any, gradient: Any) -> Callable[[float], Any]:
    """Whether the loss hardly changes, relative to it, with relative changes of the variables.

    The bound is the third root of a tolerance (Dennis and Schnabel, 1983, "Numerical methods for
    unconstrained optimization and nonlinear equations", 7.2); numbers below 1 count as 1.
    """

    def within(tolerance: float) -> Any:
        changes = [g * functions.maximum(abs(v), 1.0) for g, v in zip(gradient, x, strict=True)]
        return largest(changes) <= tolerance ** (1 / 3) * functions.maximum(abs(loss), 1.0)

    return within


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """The arrays, or numbers, that a condition chooses element by element."""
    pick = np.frompyfunc(lambda a, b: ops.where(condition, a, b), 2, 1)
    if np.ndim(yes) or np.ndim(no):
        a, b = (np.asarray(array(v)) for v in (yes, no))
        return array(pick(a, b))
    return ops.where(condition, yes, no)


def array_of(value: Any) -> Any:
    """A number, an expression, or nested lists of them as an array."""
    return np.asarray(array(value))


# Evaluations of losses: the derivatives, or products of them, that a method needs.


@dataclass(frozen=True)
class Weighted:
    """A result of a row's function: its value times a weight, and that weight.

    A row of weight 0 contributes nothing, whatever its value and derivatives are, but for what is
    ``also`` to be added to the loss, or to the residuals, at every row.
    """

    value: Any
    weight: Any
    """None if every row counts."""
    also: Any = None

    @property
    def parts(self) -> dict[str, Any]:
        """All that it consists of."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def kept(self, results: Sequence[Any]) -> list[Any]:
        """The results of the value, 0 where the weight is 0."""
        if self.weight is None:
            return list(results)
        idle = self.weight == 0.0
        return [functions.where(idle, 0.0, v) for v in results]


@dataclass(frozen=True)
class Accumulation:
    """The mode that matrices of derivatives are to be made in, and those they were made in."""

    mode: Mode = "auto"
    modes: list[Mode] = field(default_factory=list[Mode], compare=False)

    def noted(self, matrix: Jacobian) -> Jacobian:
        """The matrix, whose mode is noted."""
        self.modes.append(matrix.mode)
        return matrix

    def jacobian(self, exprs: Any, x: Any) -> Jacobian:
        """The Jacobian, in this mode."""
        return self.noted(jacobian(exprs, x, self.mode))

    def hessian(self, loss: Any, x: Any) -> Jacobian:
        """The Hessian, in this mode."""
        return self.noted(hessian(loss, x, self.mode))


def evaluated(
    f: Callable[..., Any],
    x: Any,
    others: tuple[Any, ...],
    needs: str,
    by: Accumulation,
    weight: float = 1.0,
) -> list[Any]:
    """The loss, its gradient, and the lower half of its Hessian or of JᵀJ, as far as needed.

    Of a "loss" it is the loss alone, of a "slope" the gradient alone. f may return `Weighted`.
    """
    graph = x[0].graph
    outcome = f(x, *others)
    row = outcome if isinstance(outcome, Weighted) else Weighted(outcome, None)
    with deriving(graph):
        if needs == "squares":
            return _squares(*slopes_of(row, x, f, by), x, weight)
        terms = row.kept(_derivatives(_scalar(graph, row.value, f), x, needs, by, weight))
        if row.also is None:
            return terms
        more = _derivatives(lift(graph, row.also), x, needs, by, weight)
        return [a + b for a, b in zip(terms, more, strict=True)]


def _derivatives(loss: Expr, x: Any, needs: str, by: Accumulation, weight: float) -> list[Any]:
    """The loss and its derivatives, as far as needed."""
    loss = loss if weight == 1.0 else loss * weight
    if needs == "loss":
        return [loss]
    results = [loss, *grad(loss, x)]
    if needs == "slope":
        return results[1:]
    if needs == "hessian":
        second = by.hessian(loss, x).toarray()
        results += [second[i, j] for i in range(len(x)) for j in range(i + 1)]
    return results


def _squares(residuals: list[Any], rows: list[dict[int, Any]], x: Any, weight: float) -> list[Any]:
    """Half the sum of squares, Jᵀr, and the lower half of JᵀJ, without structural zeros."""
    n, pairs = len(x), [*zip(residuals, rows, strict=True)]
    terms: list[list[Any]] = [[0.5 * r * r for r in residuals]]
    terms += [[row[i] * r for r, row in pairs if i in row] for i in range(n)]
    terms += [
        [row[i] * row[j] for row in rows if i in row and j in row]
        for i in range(n)
        for j in range(i + 1)
    ]
    sums = [np.sum(array(t)) if t else lift(x[0].graph, 0.0) for t in terms]
    return sums if weight == 1.0 else [s * weight for s in sums]


def slopes_of(row: Any, x: Any, f: Any, by: Accumulation) -> tuple[list[Any], list[dict[int, Any]]]:
    """The residuals of a row, and the entries of their Jacobian that are not structurally 0."""
    row = row if isinstance(row, Weighted) else Weighted(row, None)
    residuals, rows = _kept_slopes(row, x, f, by)
    if row.also is not None:
        more, below = _kept_slopes(Weighted(row.also, None), x, f, by)
        residuals, rows = residuals + more, rows + below
    return residuals, rows


def _kept_slopes(
    row: Weighted, x: Any, f: Any, by: Accumulation
) -> tuple[list[Any], list[dict[int, Any]]]:
    """The residuals and rows of the Jacobian of the row's own value."""
    residuals = _residuals(x[0].graph, row.value, f)
    matrix = by.jacobian(residuals, x)
    rows: list[dict[int, Any]] = [{} for _ in residuals]
    entries = row.kept(matrix.entries)
    for r, c, entry in zip(matrix.rows, matrix.columns, entries, strict=True):
        rows[r][c] = entry
    return row.kept(residuals), rows


def _scalar(graph: Graph, outcome: Any, f: Any) -> Expr:
    if np.ndim(array_of(outcome)) != 0:
        raise TraceError(
            f"{describe(f)} returned {np.size(array_of(outcome))} values: this method minimises "
            "one scalar; LevenbergMarquardt and GaussNewton minimise a sum of squares"
        )
    loss = array_of(outcome)[()]
    if isinstance(loss, (Condition, bool, np.bool_)):
        refuse_condition(f)
    if isinstance(loss, Word):
        refuse_integer(loss, f"what {describe(f)} returned")
    return lift(graph, loss)


def _residuals(graph: Graph, outcome: Any, f: Any) -> list[Expr]:
    """The residuals that f returned, as a list; a TraceError if there are none."""
    values = list(np.asarray(array_of(outcome)).flat)
    if any(isinstance(v, (Condition, bool, np.bool_)) for v in values):
        refuse_condition(f)
    if not values:
        raise TraceError(f"{describe(f)} returned no residuals")
    return [lift(graph, v) for v in values]
