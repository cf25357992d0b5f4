"""Loops and choices as users write them: their bodies are traced once, and are regions then."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr.carry import Nest, flattened
from symgrad.expr.counter import bound, word
from symgrad.expr.expression import Expr, operand
from symgrad.expr.misuse import located
from symgrad.expr.node import HOLES, Graph, Handle, reachable
from symgrad.expr.open_loop import OpenLoop, Turns, nan_where, require_lengths
from symgrad.expr.place import OnePlace, describe, resolve_places
from symgrad.expr.region import choice_op, close, pick
from symgrad.expr.tree import apart
from symgrad.expr.versions import Array, array_of, zeros

_traced: ContextVar[Graph | None] = ContextVar("_traced", default=None)
"""The graph of the function that is being traced."""

MOST_TURNS: Final = 2**32 - 1
"""Turns of a loop of which nobody knows how many it takes."""


class Tracing:
    """A context in which a function is traced into a graph."""

    __slots__ = ("_graph", "_token")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        self._token = _traced.set(self._graph)

    def __exit__(self, *_: object) -> None:
        _traced.reset(self._token)


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
    with expressions, where Python's own ``for`` would write it out turn by turn. Of numbers alone,
    outside of a traced function, it is Python's. Provisional: this function may still change.

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
    _require_functions(body)
    graph = _graph_of(lo, hi, init)
    start, end = bound(graph, lo, "the start"), bound(graph, hi, "the end")
    if graph is None:
        return _counted(range(int(start), int(end)), body, init)
    inits, nest = flattened(graph, init, "the first carry")
    turns = Turns.between(graph, start, end, most)
    if turns.most == 0:
        return nest.wrap(graph, turns.ended(graph, inits))
    loop = OpenLoop(graph, turns, _names(body))
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
    _require_functions(going, body)
    graph = _graph_of(init)
    if graph is None:
        return _repeated(going, body, init)
    inits, nest = flattened(graph, init, "the first carry")
    last = MOST_TURNS if most is None else most
    loop = OpenLoop(graph, Turns(word(graph, 0), word(graph, last), most), ("k", *_names(body)))
    carries = loop.carries(inits, nest)
    test = _condition(graph, going(nest.wrap(graph, carries)), going)
    result = body(nest.wrap(graph, carries))
    yields = nest.ids(graph, result, f"what {describe(body)} returns")
    ends = loop.closed(yields, test)
    if most is not None:
        again = _condition(graph, going(nest.wrap(graph, ends)), going)
        ends = nan_where(graph, again, ends)
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
    _require_functions(step)
    graph = _graph_of(init, xs)
    if graph is None:
        raise TraceError(located("scan is for functions that are traced: it makes arrays of them"))
    count = len(xs) if xs is not None else _checked(length)
    if not count or length not in (None, count):
        raise InputError(located(f"scan over {count or 0} numbers, with length={length}"))
    given = xs if xs is None or isinstance(xs, Array) else array_of(graph, list(xs))
    inits, nest = flattened(graph, init, "the first carry")
    loop = OpenLoop(graph, Turns.between(graph, 0, count, None), ("k", *_names(step)))
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
    arrays = Nest(outer.tree, "F" * len(ys))
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
    _require_functions(then, otherwise)
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
    require_lengths(graph, first, second, "the sides of a choice")
    with OnePlace(graph):
        region, captured = close(graph, [], [*first, *second], capture=lambda i: i < mark)
        made = graph.add(choice_op(region, len(first)), chosen, *captured)
        results = [pick(graph, made, j, t) for j, t in enumerate(nest.types)]
    return nest.wrap(graph, results)


# --- what they are given --------------------------------------------------------------------------


def _condition(graph: Graph, value: Any, f: Any) -> int:
    """The node of what says whether to go on, or which side to take."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if not isinstance(value, (Expr, bool, int, float, np.number, np.bool_)):
        raise TraceError(located(f"{describe(f)}: a condition is needed, not {value!r}"))
    return operand(graph, value, "b")


def _require_functions(*bodies: Any) -> None:
    for body in bodies:
        if not callable(body):
            raise InputTypeError(
                located(f"what a loop or a choice does is a function, not {body!r}")
            )


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
    if int(most) >= 2**31:
        raise InputError(located(f"loops take less than 2**31 turns, which {most:,} is not"))
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
