"""From a loss and a method to the computation that one step of it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import InputError, TraceError
from symgrad.expr.derivatives.differentiate import deriving
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.expr.tracing.roll import rolled
from symgrad.expr.tracing.trace import Trace, replay, require_feasible, trace
from symgrad.kernel.host import watch
from symgrad.kernel.shapes import Call, Computation, Iteration, Matrix, Output, Reduction
from symgrad.kernel.stage import hoisted
from symgrad.optimize.least_squares import Calls, Stored, unpacked
from symgrad.optimize.method import (
    Accumulation,
    Bounds,
    Evaluation,
    Method,
    Move,
    Rule,
    Tolerances,
    Weighted,
    array_of,
    evaluated,
    slopes_of,
)
from symgrad.pipeline import VALUES, Options, build
from symgrad.values.arrays import EPSILON

# --- the layout of a state ------------------------------------------------------------------------
# Where everything stands in the state of a problem.

COUNT, LIMIT, LOSS, STATUS, FLAG = -5, -4, -3, -2, -1


@dataclass(frozen=True)
class Layout:
    """Where everything stands in the state of a problem.

    The variables come first, then the method's memory, then the number of steps done, the limit,
    the loss, the status (see `result.MESSAGES`), and the flag: whether the problem is not done.
    `COUNT`, `LIMIT`, `LOSS`, `STATUS` and `FLAG` are places counted from the end.
    """

    n: int
    memory: tuple[Any, ...]

    @cached_property
    def kept(self) -> int:
        """The numbers in the memory."""
        return sum(np.size(part) for part in self.memory)

    @cached_property
    def size(self) -> int:
        """The numbers in a state."""
        return self.n + self.kept + 5

    def split(self, state: Any) -> tuple[Any, tuple[Any, ...], Any]:
        """The state (..., size) as variables, memory, and (count, limit, loss, status, flag)."""
        end = self.n + self.kept
        parts, at = [], self.n
        for part in self.memory:
            shape = np.shape(part)
            block = state[..., at : at + np.size(part)]
            parts.append(block.reshape(state.shape[:-1] + shape) if shape else block[..., 0][()])
            at += np.size(part)
        return state[..., : self.n], tuple(parts), state[..., end : end + 5]

    def start_of(self, part: int) -> int:
        """Where this part of the memory begins."""
        return self.n + sum(np.size(p) for p in self.memory[:part])

    def first(self, steps: int, loss: float = 0.0) -> np.ndarray:
        """The first state (size,) with so many steps to do; its variables are 0."""
        memory = [np.ravel(np.asarray(part, float)) for part in self.memory]
        return np.concatenate([np.zeros(self.n), *memory, [0.0, steps, loss, 0.0, 1.0]])


def layout_of(method: Method, n: int) -> Layout:
    """The layout of a method's states.

    Raises:
        InputError: if they are too large to be traced.
    """
    try:
        memory = method.start(n)
    except MemoryError as error:
        raise InputError(f"{method!r} keeps more for {n:,} variables than memory holds") from error
    if not isinstance(memory, tuple | list):
        raise TraceError(
            f"{type(method).__name__}.start returned {type(memory).__name__}: a tuple of numbers "
            "and arrays is needed, () for no memory"
        )
    layout = Layout(n, tuple(memory))
    require_feasible(layout.size)
    return layout


def flat(layout: Layout, memory: tuple[Any, ...]) -> list[Any]:
    """The memory as a list, its shapes checked: they stay those it began with."""
    shapes = [np.shape(part) for part in layout.memory]
    current = [np.shape(array_of(part)) for part in memory]
    if shapes != current:
        raise InputError(
            f"the method's memory began with shapes {shapes} and went on with {current}"
        )
    return [v for part in memory for v in np.asarray(array_of(part)).flat]


# --- the step -------------------------------------------------------------------------------------

LARGEST_CACHED: Final = 2**10
"""Nodes of the largest trace whose problem is cached."""


@dataclass(frozen=True)
class Problem:
    """A minimisation: ``f(x)``, or the sum over rows of ``f(x, row)``, by n variables.

    Of a row's columns the first ``shared`` are the same for all problems, ``own`` are each one's
    own. ``weight`` multiplies every row's loss. For methods that need "squares" f returns one or
    several residuals, and the loss is half their sum of squares. ``by`` is how their Jacobian, or
    the Hessian of f, is made. Of a problem that is ``given`` its runner knows the loss and its
    derivatives, and f is not called.
    """

    f: Callable[..., Any]
    n: int
    shared: int = 0
    own: int = 0
    weight: float = 1.0
    by: Accumulation = field(default_factory=Accumulation)
    given: bool = False

    def given_for(self, needs: str) -> int:
        """How many numbers the runner gives: the loss, its gradient, half of its Hessian."""
        n = self.n
        second = n * (n + 1) // 2 if needs == "hessian" else 0
        return 1 + n + second if self.given else 0

    @property
    def columns(self) -> int:
        """The numbers in a row; 0 if there are no rows."""
        return self.shared + self.own

    @property
    def mode(self) -> str | None:
        """How its derivatives were made, once they are, if they are a matrix."""
        return self.by.modes[-1] if self.by.modes else None

    @cached_property
    def _traced(self) -> tuple[Trace, bool] | None:
        """A trace of f alone, and whether its results are parts of `Weighted`; None if f raises."""
        f, weighted = self.f, False

        def loss(v: Any) -> Any:
            nonlocal weighted
            result = f(v[: self.n], v[self.n :]) if self.columns else f(v)
            weighted = isinstance(result, Weighted)
            return result.parts if isinstance(result, Weighted) else result

        try:
            with watch.stage("trace"):
                return trace(loss, self.n + self.columns), weighted
        except Exception:  # whatever f raises, it raises again where more is known
            return None

    @cached_property
    def key(self) -> Hashable:
        """The key, by a trace of f alone; None where that does not tell, or is long."""
        if self.given:
            return "given", self.n
        if self._traced is None or len(self._traced[0].graph) > LARGEST_CACHED:
            return None
        key = self._traced[0].key
        return (
            None if key is None else (key, self.n, self.shared, self.own, self.weight, self.by.mode)
        )

    def rolled(self, rounding: float) -> Problem:
        """The problem with loops in place of what Python's loops in f have written out."""
        if self.given or self._traced is None:
            return self
        traced, weighted = self._traced
        looped = rolled(traced, rounding)
        if looped is traced:
            return self

        def f(x: Any, *rows: Any) -> Any:
            values = [value for part in (x, *rows) for value in part]
            results = looped.structure.seen(array(replay(looped.graph, looped.outputs, values)))
            return Weighted(**results) if weighted else results

        return replace(self, f=f)


def needs_loss(method: Method, stop: Tolerances) -> bool:
    """Whether a method's steps depend on the loss, rather than on its gradient alone."""
    other = isinstance(method, Rule) and type(method).advance is not Rule.advance
    return other or method.needs != "slope" or stop != Tolerances()


def iteration(
    problem: Problem,
    method: Method,
    bounds: Bounds,
    stop: Tolerances,
    options: Options,
    stored: bool = False,
) -> Iteration:
    """The computation of one step, traced, differentiated and simplified.

    Where ``stored``, of methods that are, the matrix of the normal equations is the kernel's.

    Raises:
        TraceError: if f returns what the method cannot minimise, or cannot be traced.
    """
    layout, eps = layout_of(method, problem.n), EPSILON[options.dtype]
    needs = "gradient" if method.needs == "slope" else method.needs

    def step(state: Any, sums: Any, calls: Calls | None = None) -> list[Any]:
        x, memory, (count, *_) = layout.split(state)
        unpack = partial(_stored, calls) if calls else partial(_unpacked, needs=needs)
        at = Evaluation(x, *unpack(sums, problem.n), count, bounds, eps)
        move = method.advance(at, memory).completed(at)
        return _next(layout, state, move, bounds, stop, eps)

    if stored:
        return _with_matrix(_Work(problem, method, options, "stored", (bounds, stop)), step)
    return _iteration(_Work(problem, method, options, needs, (bounds, stop)), step)


def can_be_stored(method: Method) -> bool:
    """Whether a method takes a matrix that the kernel keeps: its own class says so."""
    return vars(type(method)).get("stored") is not None


def blind_iteration(
    problem: Problem, method: Method, bounds: Bounds, options: Options
) -> Iteration:
    """The step of a method that goes on until its gradient is not finite, its loss never computed.

    It leaves the loss of the state as it is: `final_iteration` computes it in the end.
    """
    layout, where = layout_of(method, problem.n), functions.where
    eps = EPSILON[options.dtype]

    def step(state: Any, gradient: Any) -> list[Any]:
        x, memory, (count, limit, loss, *_) = layout.split(state)
        at = Evaluation(x, loss, array(list(gradient)), None, count, bounds, eps)
        move = method.advance(at, memory)
        going = functions.isfinite(np.sum(at.gradient))
        trial = bounds.project(move.trial)
        x = [where(going, a, b) for a, b in zip(trial, x, strict=True)]
        flag = where(going, 1.0, 0.0)
        tail = [count + flag, limit, loss, where(going, 0.0, -2.0), flag]
        return [*x, *flat(layout, move.memory), *tail]

    return _iteration(_Work(problem, method, options, "slope", bounds), step)


def final_iteration(problem: Problem, method: Method, options: Options) -> Iteration:
    """The step that computes nothing but the loss, with the status of one that is not finite."""

    def step(state: Any, sums: Any) -> list[Any]:
        loss, status = sums[0], state[STATUS]
        status = functions.where(functions.isfinite(loss), status, -2.0)
        return [*state[:LOSS], loss, status, 0.0 * state[0]]

    return _iteration(_Work(problem, method, options, "loss"), step)


Stage = tuple[Iteration, int]
"""An iteration, and how many steps of it are to be done."""

Step = Callable[[Any, Any], list[Any]]
"""From a state, and what is computed at its variables, to the next."""


@dataclass(frozen=True)
class _Work:
    """A method's step for a problem, which ``needs`` something to be computed at the variables.

    ``more`` is what else it depends on.
    """

    problem: Problem
    method: Method
    options: Options
    needs: str
    more: Hashable = None

    @cached_property
    def layout(self) -> Layout:
        """Where everything stands in a state."""
        return layout_of(self.method, self.problem.n)

    @cached_property
    def key(self) -> Hashable:
        """A key of what the step depends on beside the problem; None if the method is not pure."""
        if not _is_pure(self.method):
            return None
        return self.method, self.needs, self.problem.n, self.options, self.more

    def once(self, make: Callable[[], Iteration]) -> Iteration:
        """An iteration, made once for equal problems if it has a key."""
        known = self.key and self.problem.key
        return _iterations.get((self.key, known), make) if known else make()


def _iteration(work: _Work, step: Step) -> Iteration:
    """A step of all problems, with the sums over rows that it needs if there are rows.

    Where it depends on the problem through sums over rows alone, it is traced once for all.
    """
    return work.once(partial(_traced_iteration, work, step))


def _is_pure(method: Method) -> bool:
    """Whether a method's steps are those of all methods that equal it."""
    fields = vars(method).values()
    return bool(vars(type(method)).get("pure")) and all(
        isinstance(value, (int, float, str, type(None))) for value in fields
    )


def _traced_iteration(work: _Work, step: Step) -> Iteration:
    problem, layout, options, needs = work.problem, work.layout, work.options, work.needs
    rows = reduction(problem, needs, options) if problem.columns else None
    given = problem.given_for(needs)
    sums = sum(len(o.nodes) for o in rows.outputs) if rows else given

    def update(v: Any) -> list[Any]:
        state = v[: layout.size]
        x = state[: problem.n]
        values = v[layout.size :] if sums else evaluated(problem.f, x, (), needs, problem.by)
        with deriving(v[0].graph):
            return step(state, values)

    names = [f"s{k}" for k in range(layout.size)] + [f"sum{k}" for k in range(sums)]
    traced = partial(_computation, update, len(names), names, options)
    computed = _stepped.get(work.key, traced) if work.key and rows else traced()
    return Iteration(computed, layout.size, rows, problem.shared, given=given, mode=problem.mode)


def _with_matrix(work: _Work, step: Callable[..., list[Any]]) -> Iteration:
    """A step over rows of a method whose matrix the kernel keeps; see `_iteration`."""
    return work.once(partial(_traced_with_matrix, work, step))


def _traced_with_matrix(work: _Work, step: Callable[..., list[Any]]) -> Iteration:
    problem, layout, options = work.problem, work.layout, work.options
    n, part = problem.n, work.method.stored
    assert part is not None, "the method cannot do with a matrix that is kept"
    half = n * (n + 1) // 2
    names = [f"s{k}" for k in range(layout.size)] + [f"sum{k}" for k in range(1 + n + half)]

    def traced() -> tuple[Computation, tuple[Call, ...]]:
        recorded: list[Calls] = []

        def update(v: Any) -> list[Any]:
            recorded.append(calls := Calls(v[0].graph))
            with deriving(v[0].graph):
                after = step(v[: layout.size], v[layout.size :], calls)
            return [*after, *(a for arguments in calls.arguments for a in arguments)]

        computation, (calls,) = _computation(update, len(names), names, options), recorded
        outputs = _cut(
            computation,
            ["state", *(c.kind for c in calls.made)],
            [layout.size, *map(len, calls.arguments)],
        )
        return replace(computation, outputs=outputs), tuple(calls.made)

    computed, calls = _recorded.get(work.key, traced) if work.key else traced()
    matrix = Matrix(n, layout.start_of(part), problem.weight, calls)
    rows = _normal_rows(problem, options)
    return Iteration(computed, layout.size, rows, problem.shared, matrix, mode=problem.mode)


def _normal_rows(problem: Problem, options: Options) -> Reduction:
    """Each residual of a row: its derivatives, and then itself."""

    def row(v: Any) -> list[Any]:
        x = v[: problem.n]
        result = problem.f(x, v[problem.n :])
        with deriving(x[0].graph):
            residuals, slopes = slopes_of(result, x, problem.f, problem.by)
            lines = [[line.get(k, 0.0) for k in range(problem.n)] for line in slopes]
        return [v for r, line in zip(residuals, lines, strict=True) for v in (*line, r)]

    computation = _row_computation(problem, row, options)
    size = problem.n + 1
    count = len(computation.outputs[0].nodes) // size
    outputs = _cut(computation, [f"residual{k}" for k in range(count)], [size] * count)
    return _hoisted.get(
        (computation, problem.n, "normal"),
        lambda: hoisted(
            Reduction(computation.name, computation.graph, outputs, problem.n, (), normal=True)
        ),
    )


def _cut(
    computation: Computation, names: Sequence[str], sizes: Sequence[int]
) -> tuple[Output, ...]:
    """The columns of a computation as several outputs."""
    columns = iter(computation.outputs[0].nodes)
    cut = zip(names, sizes, strict=True)
    return tuple(Output(name, tuple(itertools.islice(columns, size))) for name, size in cut)


def reduction(problem: Problem, needs: str, options: Options) -> Reduction:
    """The sums over rows that a step of a method needs, as `evaluated` orders them."""
    n = problem.n

    def row(v: Any) -> list[Any]:
        return evaluated(problem.f, v[:n], (v[n:],), needs, problem.by, problem.weight)

    computation = _row_computation(problem, row, options)
    return _hoisted.get(
        (computation, n),
        lambda: hoisted(Reduction(computation.name, computation.graph, computation.outputs, n, ())),
    )


def _row_computation(
    problem: Problem, row: Callable[..., list[Any]], options: Options
) -> Computation:
    names = [f"x{k}" for k in range(problem.n)] + [f"r{k}" for k in range(problem.columns)]
    return _computation(row, len(names), names, options)


_hoisted: Once[Any, Reduction] = Once(32)
_stepped: Once[Any, Computation] = Once(32)
_iterations: Once[Any, Iteration] = Once(32)
_recorded: Once[Any, tuple[Computation, tuple[Call, ...]]] = Once(32)


def _computation(
    f: Callable[..., Any], n: int, names: Sequence[str], options: Options
) -> Computation:
    """The computation of f, simplified; its iterations stay as they were written."""
    return build(f, n, VALUES, replace(options, roll=False), names).computation


def _unpacked(sums: Any, n: int, needs: str) -> tuple[Any, Any, Any]:
    """The loss, gradient (n,) and symmetric matrix (n, n) of a row of sums."""
    flat = array(list(sums))
    if needs == "gradient":
        return flat[0], flat[1 : n + 1], None
    return flat[0], flat[1 : n + 1], unpacked(flat[n + 1 :])


def _stored(calls: Calls, sums: Any, n: int) -> tuple[Any, Any, Any]:
    """The loss, gradient and matrix, where the kernel keeps the matrix."""
    flat = array(list(sums))
    return flat[0], flat[1 : n + 1], Stored(calls, flat[n + 1 :])


def _next(
    layout: Layout, state: Any, move: Move, bounds: Bounds, stop: Tolerances, eps: float
) -> list[Any]:
    """The next state: at the best point if the problem is done, else at the next trial."""
    _, _, (count, limit, loss, _, _) = layout.split(state)
    status = _status(move, loss, count, bounds, stop, eps)
    going = (status == 0.0) & (count < limit)
    trial = bounds.project(move.trial)
    ahead = going if move.onward is False else going | move.onward
    x = [functions.where(ahead, a, b) for a, b in zip(trial, move.point, strict=True)]
    memory = flat(layout, move.memory)
    count = count + functions.where(going, 1.0, 0.0)
    return [*x, *memory, count, limit, move.loss, status, functions.where(going, 1.0, 0.0)]


def _status(move: Move, loss: Any, count: Any, bounds: Bounds, stop: Tolerances, eps: float) -> Any:
    """Whether and why the problem is done: see `result.MESSAGES`."""
    where, status = functions.where, 0.0 * count
    small_for = move.slight or (lambda _: True)
    if move.stuck is not False:
        tolerance = eps if stop.step is None else stop.step
        status = where(move.stuck, where(small_for(tolerance), 3.0, -1.0), status)
    if stop.step is not None:
        trial = bounds.project(move.trial)
        small: Any = move.whole
        for a, b in zip(trial, move.point, strict=True):
            small = (abs(a - b) <= stop.step * (abs(b) + stop.step)) & small
        status = where(small, where(small_for(stop.step), 3.0, -1.0), status)
    if move.worn is not False:
        tolerance = eps if stop.loss is None else stop.loss
        status = where(move.worn & small_for(tolerance), 2.0, status)
    if stop.loss is not None and move.solved is not None:
        status = where(move.solved(stop.loss), 2.0, status)
    if stop.loss is not None and move.settled is not False:
        still = abs(loss - move.loss) <= stop.loss * abs(move.loss)
        settled = move.settled(stop.loss) if callable(move.settled) else move.settled
        met = still & (count > 0.0) & settled & small_for(stop.loss)
        status = where(met, 2.0, status)
    finite = functions.isfinite(move.loss) & move.finite
    if stop.gradient is not None and callable(move.measure):
        status = where(move.measure(stop.gradient), 1.0, status)
    elif stop.gradient is not None:
        status = where(move.measure <= stop.gradient, 1.0, status)
        finite = finite & functions.isfinite(move.measure)
    if move.bent is not False:
        status = where(move.bent, 0.0, status)
    if move.flat is not False:
        status = where(move.flat & (status != 0.0), -3.0, status)
    return where(finite, status, -2.0)
