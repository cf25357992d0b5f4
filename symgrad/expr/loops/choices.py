"""Choices as users write them: their sides are traced once, and are regions then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symgrad.errors import InputError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import INPUT
from symgrad.expr.graph.place import OnePlace, describe
from symgrad.expr.graph.region import choice_op, close, pick
from symgrad.expr.loops.carry import flattened
from symgrad.expr.loops.context import condition, graph_among, require_functions
from symgrad.expr.loops.open_loop import require_lengths
from symgrad.expr.tracers.counter import bound


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
    """What the first of two sides gives where a condition holds, and elsewhere the second."""
    graph = graph_among(pred)
    if graph is None:
        return sides[0 if pred else 1]()
    chosen = condition(graph, pred, "a choice")
    mark = len(graph)
    given = [side() for side in sides]
    nests = [flattened(graph, g, what)[1] for g, what in zip(given, whats, strict=True)]
    nest = nests[0].joined(nests[1])
    first, second = [nest.ids(graph, g, what) for g, what in zip(given, whats, strict=True)]
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
    at = bound(graph_among(index), index, "the index")
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
