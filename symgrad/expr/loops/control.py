"""Loops and choices as users write them: their bodies and sides are traced once, as regions."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar, overload

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives.sweep import copied
from symgrad.expr.graph.arrays import EMPTIES, PUTS, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import INPUT, WORD, Graph, Whole
from symgrad.expr.graph.place import OnePlace, describe
from symgrad.expr.graph.region import choice_op, close, pick
from symgrad.expr.loops.open_loop import (
    HANDLES,
    OF_TYPE,
    LoopBounds,
    Nest,
    OpenLoop,
    condition,
    flattened,
    graph_among,
    is_memory,
    is_whole,
    nan_where,
    require_functions,
    require_lengths,
)
from symgrad.expr.tracers.array import TracedArray, array, in_memory
from symgrad.expr.tracers.counter import bound, word
from symgrad.expr.tracers.expression import WRAP
from symgrad.expr.tracers.memory import Array, View, body_of
from symgrad.expr.tracers.tree import Tree, apart, flatten


class _Dataclass(Protocol):
    """An instance of a dataclass, which a loop gives back as one of the same class."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Record = TypeVar("Record", bound=_Dataclass)
"""A carry that is a dataclass; of others, expressions take the place of numbers."""

UNKNOWN_ITERATIONS: Final = 2**32 - 1
"""The bound of a loop whose number of iterations has none."""


@overload
def fori_loop(
    lo: Any,
    hi: Any,
    body: Callable[[Any, Record], Record],
    init: Record,
    max_steps: int | None = None,
) -> Record: ...
@overload
def fori_loop(
    lo: Any, hi: Any, body: Callable[[Any, Any], Any], init: Any, max_steps: int | None = None
) -> Any: ...
def fori_loop(
    lo: Any, hi: Any, body: Callable[[Any, Any], Any], init: Any, max_steps: int | None = None
) -> Any:
    """``for k in range(lo, hi): carry = body(k, carry)``, which begins with ``carry = init``.

    The loop is one operation of the kernel, however long it is: ``body`` is called once, with
    expressions, where Python's own ``for`` would write out every iteration; twice, if it
    writes to an array that it carries at an index that is an expression, so that the array is kept
    in memory. Of numbers alone, outside of a traced function, it is Python's.

    Args:
        lo: The first k: a whole number, or an expression.
        hi: Where k ends: it is done for k = lo, lo + 1, ... as long as k < hi; an expression
            that is NaN says that there is none.
        body: Gives the next carry, nested as the last one. ``k`` is a number like any other. It may
            use all that is known around it, but what it computes leaves it in the carry only.
        init: The first carry: a number, an array of numbers, a condition, or a dict, list, tuple or
            dataclass of such, nested.
        max_steps: The most iterations there can be, where ``lo`` or ``hi`` is an expression and
            that is not seen from it: derivatives in reverse mode need to know. If there are more,
            results are NaN.

    Returns:
        The last carry, nested as ``init``; ``init`` itself where there is no iteration.

    Raises:
        InputError: for a bound that is no whole number, and for ``max_steps`` < 0.
        TraceError: if the body gives another kind of carry than it gets, or anything but numbers.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> power = sg.fori_loop(0, 3, lambda k, y: y * x, x)
        >>> sg.evaluate(power, {x: 2.0})
        16.0
    """
    most = _checked(max_steps)
    require_functions(body)
    if is_whole(lo, hi, init):
        return Whole.functions["fori_loop"](lo, hi, body, init, most)
    graph = graph_among(lo, hi, init)
    start, end = bound(graph, lo, "the start"), bound(graph, hi, "the end")
    if graph is None:
        return counted(range(int(start), int(end)), body, init, most)
    iterations = LoopBounds.between(graph, start, end, most)
    if iterations.most == 0:
        inits, nest = flattened(graph, init, "the first carry")
        return nest.wrap(graph, iterations.ended(graph, inits))

    def iteration(loop: OpenLoop, carry: Any) -> tuple[Any, None]:
        return body(loop.counter, carry), None

    traced = _traced_loop(graph, iterations, body, init, iteration)
    return traced.nest.wrap(graph, traced.loop.closed(traced.yields))


@overload
def while_loop(
    cond: Callable[[Record], Any],
    body: Callable[[Record], Record],
    init: Record,
    max_steps: int | None = None,
) -> Record: ...
@overload
def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, max_steps: int | None = None
) -> Any: ...
def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, max_steps: int | None = None
) -> Any:
    """``while cond(carry): carry = body(carry)``, which begins with ``carry = init``.

    Each point has its own number of iterations. Derivatives in reverse mode, and some devices, need
    to know how many there are at most. See `fori_loop` for carries and errors.

    Args:
        cond: Whether there is another iteration: a condition of the carry.
        body: Gives the next carry, nested as the last one.
        init: The first carry.
        max_steps: The most iterations there may be. Where ``cond`` still holds after so many, the
            numbers of the result are NaN, and their derivatives too.

    Returns:
        The first carry for which ``cond`` does not hold, nested as ``init``.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.while_loop(lambda y: y > 1, lambda y: y / 2, x), {x: 10.0})
        0.625
    """
    most = _checked(max_steps)
    require_functions(cond, body)
    if is_whole(init):
        return Whole.functions["while_loop"](cond, body, init, most)
    graph = graph_among(init)
    if graph is None:
        return repeated(cond, body, init, most)
    last = UNKNOWN_ITERATIONS if most is None else most
    iterations = LoopBounds(word(graph, 0), word(graph, last), most)

    def iteration(_: OpenLoop, carry: Any) -> tuple[Any, int]:
        return body(carry), condition(graph, cond(carry), describe(cond))

    traced = _traced_loop(graph, iterations, body, init, iteration)
    nest, ends = traced.nest, traced.loop.closed(traced.yields, traced.more)
    if most is not None:
        again = condition(graph, cond(nest.wrap(graph, ends)), describe(cond))
        ends = nan_where(graph, again, ends)
    return nest.wrap(graph, ends)


@overload
def scan(
    step: Callable[[Record, Any], tuple[Record, Any]],
    init: Record,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Record, Any]: ...
@overload
def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]: ...
def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``carry, y = step(carry, x)`` for each x in turn: the last carry, and all y, stacked.

    Args:
        step: Gives the next carry, nested as the last one, and a y: numbers and arrays, nested, or
            None.
        init: The first carry: see `fori_loop`.
        xs: Arrays whose first axes are of the same length, nested; x are their elements, or rows,
            in the same nest. None gives None to each of ``length`` steps.
        length: The number of steps, if ``xs`` does not say it.
        reverse: Whether to begin with the last x. The y of each stands where its x does.

    Returns:
        The last carry, and the y, nested as they are, each with another axis before its own: in
        memory, so that an index may be an expression.

    Raises:
        InputError: if ``length`` is missing, or another than that of ``xs``, or theirs differ.
        TraceError: if the step gives another kind of carry than it gets, or no pair.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> total, sums = sg.scan(lambda s, y: (s + y, s), x, [1.0, 2.0, 3.0])
        >>> sg.evaluate(total + sums[1], {x: 0.0})
        7.0
    """
    require_functions(step)
    if is_whole(init, xs):
        return Whole.functions["scan"](step, init, xs, _checked(length), reverse)
    rows = ScanInputs.of(xs, _checked(length))
    graph = graph_among(init, *rows.arrays)
    if graph is None:
        return scanned(step, init, rows, reverse)
    rows_in_memory = rows.in_memory(graph)
    if not rows.count:
        _, y = paired(step(init, rows_in_memory.blank()), step)
        return init, rows.stacked([], y)
    iterations = LoopBounds.between(graph, 0, rows.count, None)

    def iteration(loop: OpenLoop, carry: Any) -> tuple[Any, Any]:
        return paired(step(carry, rows_in_memory[loop.counter]), step)

    traced = _traced_loop(graph, iterations, step, init, iteration, ("k", *_names(step)[:1]))
    stacks = ScanOutputs(graph, rows.count, traced.more, f"the y that {describe(step)} returns")
    puts = stacks.written(traced.loop)
    ends = traced.loop.closed([*traced.yields, *puts], down=reverse)
    n = len(traced.yields)
    return traced.nest.wrap(graph, ends[:n]), stacks.wrap(ends[n:])


@dataclass(frozen=True)
class _Traced:
    """A loop whose body has been traced: its next carries, and what the body gives besides."""

    loop: OpenLoop
    nest: Nest
    yields: list[int]
    more: Any


def _traced_loop(
    graph: Graph,
    iterations: LoopBounds,
    body: Callable[..., Any],
    init: Any,
    iteration: Callable[[OpenLoop, Any], tuple[Any, Any]],
    names: Sequence[str] | None = None,
) -> _Traced:
    """A loop that carries arrays in memory where its body makes such of them.

    Whether it does is seen when the body has been traced: then it is traced again.
    """
    inits, nest = flattened(graph, init, "the first carry")
    what = f"what {describe(body)} returns"
    while True:
        loop = OpenLoop(graph, iterations, names or _names(body))
        with body_of(graph):
            result, more = iteration(loop, nest.wrap(graph, loop.carries(inits, nest)))
        returned = nest.in_memory(flattened(graph, result, what)[1])
        if returned == nest:
            return _Traced(loop, nest, nest.ids(graph, result, what), more)
        inits, nest = returned.ids(graph, init, "the first carry"), returned


def _names(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a body's arguments: the counter and the carry."""
    try:
        names = tuple(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        names = ()
    return names[:2] if len(names) >= 2 else ("k", *(names or ("carry",)))


def _checked(most: Any) -> int | None:
    """A number of iterations."""
    if most is None:
        return None
    if isinstance(most, (bool, np.bool_)) or not isinstance(most, numbers.Integral) or most < 0:
        raise InputError(located(f"max_steps is a whole number of at least 0, not {most!r}"))
    if int(most) >= 2**31:
        raise InputError(located(f"a loop takes fewer than 2**31 iterations, not {most:,}"))
    return int(most)


# --- choices --------------------------------------------------------------------------------------


def cond(pred: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """``then(*operands) if pred else otherwise(*operands)``, of which one side is computed.

    Unlike ``sg.where``, which computes both, the side not taken may divide by 0 or take long. Both
    give numbers nested in the same way. Where points part, a device computes both sides for those
    that share its registers; what is short is quicker with ``sg.where``.

    Raises:
        TraceError: if the sides give different kinds of results, or anything but numbers.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> y = sg.cond(x > 0, lambda: 1 / x, lambda: x)
        >>> sg.evaluate(y, {x: 0.0})
        0.0
    """
    require_functions(then, otherwise)
    names = [f"what {describe(side)} returns" for side in (then, otherwise)]
    return _chosen(pred, [lambda: then(*operands), lambda: otherwise(*operands)], names)


def _chosen(pred: Any, sides: Sequence[Callable[[], Any]], whats: Sequence[str]) -> Any:
    """The result of the first of two sides where a condition holds, and of the second elsewhere."""
    graph = graph_among(pred)
    if isinstance(pred, Whole):
        return Whole.functions["cond"](pred, *sides)
    if graph is None or is_whole(pred):
        return sides[0 if pred else 1]()
    chosen = condition(graph, pred, "a choice")
    mark = len(graph)
    results_of_sides = [side() for side in sides]
    nests = [flattened(graph, g, what)[1] for g, what in zip(results_of_sides, whats, strict=True)]
    nest = nests[0].joined(nests[1])
    first, second = [
        nest.ids(graph, g, what) for g, what in zip(results_of_sides, whats, strict=True)
    ]
    require_lengths(graph, first, second, "the sides of a choice")
    with OnePlace(graph):
        region, captured = close(
            graph, [], [*first, *second], capture=lambda i: i < mark or graph.nodes[i][0] is INPUT
        )  # inputs of rows are made when they are first read, which may be in a branch
        choice = graph.add(choice_op(region, len(first)), chosen, *captured)
        results = [pick(graph, choice, j, graph.type(y)) for j, y in enumerate(first)]
    return nest.wrap(graph, results)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """``branches[index](*operands)``, of which one is computed.

    ``index`` is the nearest whole number of an expression, or an integer; below 0 it is the first
    branch, and past the end the last one. See `cond`.

    Raises:
        InputError: if there is no branch.
        TraceError: if the branches give different kinds of results, or anything but numbers.

    Example:
        >>> import symgrad as sg
        >>> x, k = sg.symbols("x k")
        >>> y = sg.switch(k, [lambda x: x, lambda x: x * x, sg.exp], x)
        >>> sg.evaluate(y, {x: 3.0, k: [0.0, 1.0, -5.0]})
        array([3., 9., 3.])
    """
    require_functions(*branches)
    if not branches:
        raise InputError(located("sg.switch needs at least one branch"))
    whole = isinstance(index, Whole)
    at: Any = index if whole else bound(graph_among(index), index, "the index")
    if isinstance(at, int):
        return branches[min(max(at, 0), len(branches) - 1)](*operands)

    def among(first: int, end: int) -> Any:
        if end - first == 1:
            return branches[first](*operands)
        middle = (first + end) // 2
        sides = [lambda: among(middle, end), lambda: among(first, middle)]
        whats = [f"what branch {n} returns" for n in (middle, first)]
        return _chosen(at >= middle - 0.5, sides, whats)

    return among(0, len(branches))


# --- loops on numbers alone, which are Python's own -----------------------------------------------


def counted(
    iterations: range, body: Callable[[Any, Any], Any], carry: Any, most: int | None = None
) -> Any:
    """The last carry of a loop that counts; NaN where it counts further than ``most``."""
    for k in iterations[:most]:
        carry = body(k, carry)
    return carry if most is None or len(iterations) <= most else _all_nan(carry)


def repeated(
    going: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, most: int | None = None
) -> Any:
    """The last carry of a loop with a test; NaN if the test holds after ``most`` iterations."""
    taken = 0
    while going(carry):
        if taken == most:
            return _all_nan(carry)
        carry, taken = body(carry), taken + 1
    return carry


def scanned(step: Callable[[Any, Any], Any], carry: Any, rows: ScanInputs, reverse: bool) -> Any:
    """The last carry of a scan, and what its steps give, stacked."""
    order: Iterable[int] = range(rows.count)
    ys: list[Any] = []
    for k in reversed(range(rows.count)) if reverse else order:
        carry, y = paired(step(carry, rows[k]), step)
        ys.append(y)
    like = ys[0] if ys else paired(step(carry, rows.blank()), step)[1]
    return carry, rows.stacked(ys[::-1] if reverse else ys, like)


def _all_nan(carry: Any) -> Any:
    """NaN in the place of all numbers of a nest."""
    leaves, tree = flatten(carry, lambda x: ([x], Tree()) if apart(x) is None else None)
    return tree.nest(
        (math.nan if np.ndim(x) == 0 else np.full(np.shape(x), math.nan) for x in leaves), None
    )


# --- what a scan goes through and gives -----------------------------------------------------------


@dataclass(frozen=True)
class ScanInputs:
    """Arrays in a nest, whose first axes are of one length, ``count``."""

    arrays: tuple[Any, ...]
    tree: Tree | None
    count: int

    @classmethod
    def of(cls, xs: Any, count: int | None) -> ScanInputs:
        """The arrays that a scan goes through; none has the rows None.

        Raises:
            InputError: if they differ in length, or nothing says how many rows there are.
        """
        arrays, tree = flatten(xs, _array) if xs is not None else ([], None)
        counts = {len(a) for a in arrays} | ({count} if count is not None else set[int]())
        if len(counts) != 1:
            lengths = " and ".join(map(str, sorted(counts)))
            wrong = f"lengths {lengths} differ" if counts else "the number of steps is unknown"
            raise InputError(located(f"scan: {wrong}: give arrays xs of one length, or length="))
        return cls(tuple(arrays), tree, counts.pop())

    def in_memory(self, graph: Graph) -> ScanInputs:
        """These arrays in memory, so that an expression may be the index of a row."""
        if not self.count:
            return self
        kinds = TracedArray, Array
        arrays = (a if isinstance(a, kinds) else in_memory(graph, a) for a in self.arrays)
        return ScanInputs(tuple(arrays), self.tree, self.count)

    def __getitem__(self, k: Any) -> Any:
        """The rows of this number, nested as the arrays are."""
        return self._nested(a[k] for a in self.arrays)

    def blank(self) -> Any:
        """Rows of zeros, nested as the arrays are."""
        return self._nested(array(np.zeros(a.shape[1:]))[()] for a in self.arrays)

    def _nested(self, rows: Iterator[Any]) -> Any:
        return None if self.tree is None else self.tree.nest(rows, None)

    def stacked(self, ys: Sequence[Any], like: Any) -> Any:
        """The results of all steps, nested as ``like``, numbers as arrays with another axis."""
        shapes, tree = flatten(like, _shape)
        columns = (
            zip(*[flatten(y, _number)[0] for y in ys], strict=True) if ys else [()] * len(shapes)
        )
        pairs = zip(columns, shapes, strict=True)
        return tree.nest((array_like([*c], (self.count, *s)) for c, s in pairs), None)


def array_like(values: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The values as one array, of expressions if there are any among them."""
    stacked = np.asarray(values).reshape(shape)
    return array(stacked) if stacked.dtype == object else stacked


def paired(result: Any, step: Callable[..., Any]) -> tuple[Any, Any]:
    """The result of a step: a carry and a y."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TraceError(
            located(f"{describe(step)} must return the next carry and a y, not {result!r}")
        )
    return result


def _array(value: Any) -> tuple[list[Any], Tree] | None:
    """An array with a first axis, or a list of numbers; None of other containers."""
    if isinstance(value, (TracedArray, Array)) or (isinstance(value, np.ndarray) and value.ndim):
        return [value], Tree()
    outer = apart(value)
    if outer is None:
        raise InputError(located(f"a scan goes through arrays, and {value!r} is not one"))
    listed = isinstance(value, list) and all(apart(v) is None or type(v) is list for v in value)
    return ([array(value)], Tree()) if listed else None


def _number(value: Any) -> tuple[list[Any], Tree] | None:
    return ([value], Tree()) if value is None or apart(value) is None else None


def _shape(value: Any) -> tuple[list[Any], Tree] | None:
    if value is None:
        return [], Tree(tuple)
    return ([np.shape(value)], Tree()) if apart(value) is None else None


class ScanOutputs:
    """The results of iterations besides the carry: an array in memory for each number."""

    def __init__(self, graph: Graph, count: int, y: Any, what: str) -> None:
        self._graph, self._count = graph, count
        self._nothing = y is None
        self._arrays: list[type[Array]] = []
        self._ids, self._nest = flattened(graph, () if y is None else y, what)

    def written(self, loop: OpenLoop) -> list[int]:
        """Where each iteration leaves them: arrays that the loop carries, with its numbers."""
        graph, ids, puts = self._graph, iter(self._ids), list[int]()
        for block, kind in zip(self._nest.tree.blocks, self._nest.kinds, strict=True):
            memory = next(ids) if is_memory(kind) else None
            size = block.size if memory is None else length(graph, memory)
            stacked = OF_TYPE.get(kind[:1], Array) if len({*kind}) < 2 else Array
            self._arrays.append(stacked)
            blank = graph.intern((EMPTIES[stacked.type], self._count * size))
            home = loop.carry(blank, f"{block.name.replace('.', '_')}_all")
            start = graph.add(ops.word_mul, loop.index, graph.intern((WORD, size)))
            if memory is not None:
                zero = graph.intern((WORD, 0))
                puts.append(copied(graph, (home, start), (memory, zero), size))
                continue
            for j in range(size):
                at = graph.add(ops.word_add, start, graph.intern((WORD, j)))
                value = HANDLES[kind[j]](graph, next(ids))
                home = PUTS[stacked.type](stacked(graph, home), WRAP["u"](graph, at), value).id
            puts.append(home)
        return puts

    def wrap(self, ids: Sequence[int]) -> Any:
        """The nest of these arrays."""
        if self._nothing:
            return None
        pairs = zip(self._arrays, ids, strict=True)
        arrays = (stacked(self._graph, i) for stacked, i in pairs)
        blocks = zip(self._nest.tree.blocks, arrays, strict=True)
        return self._nest.tree.nest(
            (TracedArray(View.whole(a, (self._count, *block.shape))) for block, a in blocks), None
        )
