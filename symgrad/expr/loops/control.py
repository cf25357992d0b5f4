"""Loops as users write them: their bodies are traced once, and are regions then."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar, overload

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.place import describe
from symgrad.expr.loops.carry import Nest, flattened
from symgrad.expr.loops.context import (
    condition,
    graph_among,
    require_functions,
)
from symgrad.expr.loops.in_python import counted, repeated, scanned
from symgrad.expr.loops.open_loop import Iterations, OpenLoop, nan_where
from symgrad.expr.loops.stacks import Kept, Rows, paired
from symgrad.expr.tracers.counter import bound, word
from symgrad.expr.tracers.sweep import body_of


class _Dataclass(Protocol):
    """An instance of a dataclass, which a loop gives back as one of the same class."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Record = TypeVar("Record", bound=_Dataclass)
"""A carry that is a dataclass; of others, expressions take the place of numbers."""

UNKNOWN_ITERATIONS: Final = 2**32 - 1
"""Iterations of a loop of which nobody knows how many it takes."""


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
    graph = graph_among(lo, hi, init)
    start, end = bound(graph, lo, "the start"), bound(graph, hi, "the end")
    if graph is None:
        return counted(range(int(start), int(end)), body, init, most)
    iterations = Iterations.between(graph, start, end, most)
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
    graph = graph_among(init)
    if graph is None:
        return repeated(cond, body, init, most)
    last = UNKNOWN_ITERATIONS if most is None else most
    iterations = Iterations(word(graph, 0), word(graph, last), most)

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
    rows = Rows.of(xs, _checked(length))
    graph = graph_among(init, *rows.arrays)
    if graph is None:
        return scanned(step, init, rows, reverse)
    given = rows.in_memory(graph)
    if not rows.count:
        _, y = paired(step(init, given.blank()), step)
        return init, rows.stacked([], y)
    iterations = Iterations.between(graph, 0, rows.count, None)

    def iteration(loop: OpenLoop, carry: Any) -> tuple[Any, Any]:
        return paired(step(carry, given[loop.counter]), step)

    traced = _traced_loop(graph, iterations, step, init, iteration, ("k", *_names(step)[:1]))
    kept = Kept(graph, rows.count, traced.more, f"the y that {describe(step)} returns")
    puts = kept.written(traced.loop)
    ends = traced.loop.closed([*traced.yields, *puts], down=reverse)
    n = len(traced.yields)
    return traced.nest.wrap(graph, ends[:n]), kept.wrap(ends[n:])


@dataclass(frozen=True)
class _Traced:
    """A loop whose body has been traced: its next carries, and what the body gives besides."""

    loop: OpenLoop
    nest: Nest
    yields: list[int]
    more: Any


def _traced_loop(
    graph: Graph,
    iterations: Iterations,
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


# --- choices --------------------------------------------------------------------------------------


# --- what they are given --------------------------------------------------------------------------


def _names(f: Callable[..., Any]) -> tuple[str, ...]:
    """What a body calls its arguments: the counter and the carry."""
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
