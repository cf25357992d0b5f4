"""Loops and choices as users write them: their bodies are traced once, and are regions then."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.arrays import size_of
from symgrad.expr.carry import Nest, flattened
from symgrad.expr.counter import bound, ceiling, largest, limit, whole, word
from symgrad.expr.expression import Expr, operand
from symgrad.expr.misuse import located
from symgrad.expr.node import HOLES, WORD, Graph, Handle, reachable
from symgrad.expr.place import OnePlace, describe, resolve_places
from symgrad.expr.region import choice_op, close, hole, loop_op, pick
from symgrad.expr.tree import apart
from symgrad.expr.versions import Array, array_of, zeros

_traced: ContextVar[Graph | None] = ContextVar("_traced", default=None)
"""The graph of the function that is being traced."""

MOST_TURNS: Final = 2**32 - 1
"""Turns of a loop of which nobody knows how many it takes."""


@contextmanager
def tracing(graph: Graph) -> Generator[None]:
    """A context in which a function is traced into this graph."""
    token = _traced.set(graph)
    try:
        yield
    finally:
        _traced.reset(token)


def require_closed(graph: Graph, roots: Iterable[int]) -> None:
    """Refuse a value of a loop's body that is used outside of it.

    Raises:
        TraceError: it names the line of the value.
    """
    needed = reachable(graph, roots)
    open_ones = {i for i in needed if graph.nodes[i][0] in HOLES.values()}
    if not open_ones:
        return
    resolve_places(graph)
    users = (i for i in needed if not open_ones.isdisjoint(graph.args(i)))
    places = (graph.place_of(i) for i in (next(users, min(open_ones)), min(open_ones)))
    place = next((p for p in places if p), None)
    raise TraceError(
        "a value of a loop's body is used outside of the loop, where it has no value: return it "
        "as a part of the carry" + (f"\n  at {place}" if place else "")
    )


# --- loops ----------------------------------------------------------------------------------------


def fori_loop(
    lo: Any, hi: Any, body: Callable[[Any, Any], Any], init: Any, most: int | None = None
) -> Any:
    """``for k in range(lo, hi): carry = body(k, carry)``, which begins with ``carry = init``.

    The loop is one operation of the kernel, however many turns it takes: ``body`` is called once,
    with expressions, where Python's own ``for`` would write it out turn by turn. Provisional: this
    function may still change.

    Args:
        lo: The first k: a whole number, or an expression.
        hi: Where k ends: there are turns for k = lo, lo + 1, ... as long as k < hi; an expression
            that is NaN says that there is none.
        body: Gives the next carry, nested as the last one. ``k`` is a number like any other. It may
            use all that is known around it, but what it computes leaves it in the carry only.
        init: The first carry: a number, an array of numbers, a condition, or a dict, list, tuple or
            dataclass of such, nested.
        most: The most turns there can be, where ``lo`` or ``hi`` is an expression and that is not
            seen from it: derivatives in reverse mode need to know. If there are more, results are
            NaN.

    Returns:
        The last carry, nested as ``init``.

    Raises:
        InputError: for a bound that is no whole number, and for ``most`` < 0.
        TraceError: if the body gives another kind of carry than it gets, or anything but numbers.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> power = sg.fori_loop(0, 3, lambda k, y: y * x, x)
        >>> sg.evaluate(power, {x: 2.0})
        16.0
    """
    most = _checked(most)
    graph = _graph_of(lo, hi, init)
    start, end = bound(graph, lo, "the start"), bound(graph, hi, "the end")
    if graph is None:
        return _counted(range(int(start), int(end)), body, init)
    inits, nest = flattened(graph, init, "the first carry")
    turns = _Turns.between(graph, start, end, most)
    if turns.most == 0:
        return nest.wrap(graph, inits)
    loop = _Open(graph, turns, _names(body))
    carries = loop.carries(inits, nest)
    result = body(loop.counter, nest.wrap(graph, carries))
    yields = nest.ids(graph, result, f"what {describe(body)} returns")
    return nest.wrap(graph, loop.closed(yields))


def while_loop(
    going: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, most: int | None = None
) -> Any:
    """``while going(carry): carry = body(carry)``, which begins with ``carry = init``.

    Where it would take more turns than ``most``, if that is given, the numbers of the result are
    NaN. See `fori_loop` for carries and errors.

    Example:
        >>> import symgrad as sg
        >>> from symgrad.expr.control import while_loop
        >>> x = sg.var("x")
        >>> sg.evaluate(while_loop(lambda y: y > 1, lambda y: y / 2, x), {x: 10.0})
        0.625
    """
    most = _checked(most)
    graph = _graph_of(init)
    if graph is None:
        return _repeated(going, body, init)
    inits, nest = flattened(graph, init, "the first carry")
    last = MOST_TURNS if most is None else most
    loop = _Open(graph, _Turns(word(graph, 0), word(graph, last), most), ("k", *_names(body)))
    carries = loop.carries(inits, nest)
    test = _condition(graph, going(nest.wrap(graph, carries)), going)
    result = body(nest.wrap(graph, carries))
    yields = nest.ids(graph, result, f"what {describe(body)} returns")
    ends = loop.closed(yields, test)
    if most is not None:
        again = _condition(graph, going(nest.wrap(graph, ends)), going)
        ends = _nan_where(graph, again, ends)
    return nest.wrap(graph, ends)


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None,
    length: int | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """``carry, y = step(carry, x)`` for each x: the last carry, and all y, each number an `Array`.

    ``xs`` is an `Array`, or a sequence of numbers; None gives None to each of ``length`` steps. See
    `fori_loop` for carries and errors.

    Raises:
        InputError: if there are no steps, or ``length`` is another than that of ``xs``.

    Example:
        >>> import symgrad as sg
        >>> from symgrad.expr.control import scan
        >>> x = sg.var("x")
        >>> total, sums = scan(lambda s, y: (s + y, s), x, [1.0, 2.0, 3.0])
        >>> sg.evaluate(total + sums[1], {x: 0.0})
        7.0
    """
    graph = _graph_of(init, xs)
    if graph is None:
        raise TraceError(located("scan is for functions that are traced: it makes arrays of them"))
    count = len(xs) if xs is not None else _checked(length)
    if not count or length not in (None, count):
        raise InputError(located(f"scan over {count or 0} numbers, with length={length}"))
    given = xs if xs is None or isinstance(xs, Array) else array_of(graph, list(xs))
    inits, nest = flattened(graph, init, "the first carry")
    loop = _Open(graph, _Turns.between(graph, 0, count, None), ("k", *_names(step)))
    carries = loop.carries(inits, nest)
    x = None if given is None else given[loop.counter]
    result = step(nest.wrap(graph, carries), x)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TraceError(
            located(f"{describe(step)} returns the next carry and a y, not {result!r}")
        )
    yields = nest.ids(graph, result[0], f"the carry that {describe(step)} returns")
    ys, outer = flattened(graph, result[1], f"the y that {describe(step)} returns")
    kept = [loop.carry(zeros(graph, count).id, f"y{j}") for j in range(len(ys))]
    puts = [
        Array(graph, a).put(loop.counter, Expr(graph, y)).id for a, y in zip(kept, ys, strict=True)
    ]
    ends = loop.closed([*yields, *puts])
    arrays = Nest(outer.tree, "F" * len(ys), outer.blocks)
    return nest.wrap(graph, ends[: len(inits)]), arrays.wrap(graph, ends[len(inits) :])


def cond(
    condition: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any
) -> Any:
    """``then(*operands) if condition else otherwise(*operands)``, of which one side is computed.

    Unlike ``sg.where``, which computes both, the side not taken may divide by 0 or take long. Both
    give numbers nested in the same way.

    Raises:
        TraceError: if the sides give different kinds of results, or anything but numbers.

    Example:
        >>> import symgrad as sg
        >>> from symgrad.expr.control import cond
        >>> x = sg.var("x")
        >>> y = cond(x > 0, lambda: 1 / x, lambda: x)
        >>> sg.evaluate(y, {x: 0.0})
        0.0
    """
    graph = _graph_of(condition)
    if graph is None:
        return (then if condition else otherwise)(*operands)
    chosen = _condition(graph, condition, then)
    mark = len(graph)
    given = [side(*operands) for side in (then, otherwise)]
    whats = [f"what {describe(side)} returns" for side in (then, otherwise)]
    nests = [flattened(graph, g, what)[1] for g, what in zip(given, whats, strict=True)]
    nest = nests[0].joined(nests[1])
    first, second = [nest.ids(graph, g, what) for g, what in zip(given, whats, strict=True)]
    _require_lengths(graph, first, second, "the sides of a choice")
    with OnePlace(graph):
        region, captured = close(graph, [], [*first, *second], capture=lambda i: i < mark)
        made = graph.add(choice_op(region, len(first)), chosen, *captured)
        results = [pick(graph, made, j, t) for j, t in enumerate(nest.types)]
    return nest.wrap(graph, results)


# --- how they are traced --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Turns:
    """The bounds of a loop as words, what is added to its counter, and how many turns it takes."""

    first: int
    last: int
    most: int | None
    shift: int | Expr | None = None
    exceeded: int | None = None
    """The condition that there would be more turns than the user said."""

    @classmethod
    def between(cls, graph: Graph, start: int | Expr, end: int | Expr, most: int | None) -> _Turns:
        """The turns for k = start, start + 1, .., k < end."""
        first, last = whole(graph, start), whole(graph, end)
        shift: int | Expr | None = None
        if first is None:  # the counter begins at 0
            first, last, shift = word(graph, 0), None, start
            end = end - start
        if last is None:
            last = word(graph, max(0, end)) if isinstance(end, int) else ceiling(end)
        known = largest(graph, last)
        if known is not None and graph.nodes[first][0] is WORD:
            known = max(0, known - graph.nodes[first][1])
        if most is None or (known is not None and known <= most):
            return cls(first, last, known, shift)
        exceeded = graph.add(ops.word_lt, graph.add(ops.word_add, first, word(graph, most)), last)
        return cls(first, last, most, shift, exceeded)


class _Open:
    """A loop whose body is being traced: its parameters are holes."""

    def __init__(self, graph: Graph, turns: _Turns, names: Sequence[str]) -> None:
        self._graph, self._turns, self._name = graph, turns, names[-1]
        self._inits: list[int] = []
        self._holes: list[int] = []
        with OnePlace(graph):
            self._k = hole(graph, "u", name=names[0])
            self.counter: Any = Expr(graph, graph.add(ops.word_float, self._k))
            if turns.shift is not None:
                self.counter = self.counter + turns.shift
        limit(graph, self._k, self._largest())

    def _largest(self) -> int | None:
        """What the counter does not exceed, if that is known."""
        turns = self._turns
        first, last = (largest(self._graph, i) for i in (turns.first, turns.last))
        ends = [] if last is None else [last]
        if first is not None and turns.most is not None:
            ends.append(first + turns.most)
        return max(min(ends) - 1, 0) if ends else None

    def carry(self, init: int, name: str) -> int:
        """A hole for a carry that begins as this node."""
        graph = self._graph
        with OnePlace(graph):
            made = hole(graph, graph.type(init), size_of(graph, init), name)
        self._inits.append(init)
        self._holes.append(made)
        return made

    def carries(self, inits: Sequence[int], nest: Nest) -> list[int]:
        """Holes for all numbers of a nest."""
        return [self.carry(i, n) for i, n in zip(inits, nest.names(self._name), strict=True)]

    def closed(self, yields: Sequence[int], test: int | None = None) -> list[int]:
        """What is carried in the end, when these are the next carries."""
        graph, turns = self._graph, self._turns
        _require_lengths(graph, self._inits, yields, "an array that a loop carries")
        roots = [*yields] if test is None else [*yields, test]
        inner = self._inner(roots)
        params = [self._k, *self._holes]
        with OnePlace(graph):
            region, captured = close(graph, params, roots, capture=lambda i: i not in inner)
            op = loop_op(region, len(yields), test is not None, most=turns.most)
            made = graph.add(op, turns.first, turns.last, *self._inits, *captured)
            ends = [pick(graph, made, j, graph.type(y)) for j, y in enumerate(yields)]
        return ends if turns.exceeded is None else _nan_where(graph, turns.exceeded, ends)

    def _inner(self, roots: Sequence[int]) -> set[int]:
        """What changes from turn to turn; the rest is computed before the loop."""
        graph = self._graph
        inner = {self._k, *self._holes}
        for i in reachable(graph, roots, self._k):
            if not inner.isdisjoint(graph.args(i)):
                inner.add(i)
        return inner


def _nan_where(graph: Graph, exceeded: int, ids: Sequence[int]) -> list[int]:
    """The same nodes, but that numbers, and their slopes, are NaN where a loop has not ended."""
    with OnePlace(graph):
        factor = graph.add(ops.where, exceeded, graph.constant(math.nan), graph.constant(1.0))
        return [graph.add(ops.mul, i, factor) if graph.type(i) == "f" else i for i in ids]


def _require_lengths(graph: Graph, a: Sequence[int], b: Sequence[int], what: str) -> None:
    for i, j in zip(a, b, strict=True):
        if size_of(graph, i) != size_of(graph, j):
            sizes = f"{size_of(graph, i)} and {size_of(graph, j)}"
            raise TraceError(located(f"{what}: it has different lengths, {sizes}"))


def _condition(graph: Graph, value: Any, f: Any) -> int:
    """The node of what says whether to go on, or which side to take."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if not isinstance(value, (Expr, bool, int, float, np.number, np.bool_)):
        raise TraceError(located(f"{describe(f)}: a condition is needed, not {value!r}"))
    return operand(graph, value, "b")


def _names(f: Callable[..., Any]) -> tuple[str, ...]:
    """What a body calls its arguments: the counter and the carry."""
    try:
        names = tuple(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        names = ()
    return names[:2] if len(names) >= 2 else ("k", *(names or ("carry",)))


def _checked(most: Any) -> int | None:
    """A number of turns."""
    if most is None:
        return None
    if isinstance(most, (bool, np.bool_)) or not isinstance(most, numbers.Integral) or most < 0:
        raise InputError(located(f"the number of turns is a whole number, not {most!r}"))
    return int(most)


def _graph_of(*values: Any) -> Graph | None:
    """The graph that expressions in nests are of, or else of the function that is traced."""
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, Handle):
            return value.graph
        if isinstance(value, np.ndarray):
            stack += list(value.flat) if value.dtype == object else []
        else:
            outer = apart(value)
            stack += [] if outer is None else outer[1]
    return _traced.get()


def _counted(turns: range, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """The loop on numbers alone, which Python runs."""
    for k in turns:
        carry = body(k, carry)
    return carry


def _repeated(going: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any) -> Any:
    while going(carry):
        carry = body(carry)
    return carry
