"""The graph that is traced, and what a loop or a choice may be given there."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import numpy as np

from symgrad.errors import InputTypeError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ANY_HOLE, Graph, Handle, reachable
from symgrad.expr.graph.place import resolve_places
from symgrad.expr.tracers.array import TracedArray
from symgrad.expr.tracers.expression import Expr, operand
from symgrad.expr.tracers.tree import apart

_traced: ContextVar[Graph | None] = ContextVar("_traced", default=None)
"""The graph of the function that is being traced."""


def traced_graph() -> Graph | None:
    """The graph of the function that is being traced, if there is one."""
    return _traced.get()


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
    holes = {i for i, node in enumerate(graph.nodes) if node[0] in ANY_HOLE}
    needed = reachable(graph, roots, min(holes, default=len(graph)))
    open_ones = holes.intersection(needed)
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


def condition(graph: Graph, value: Any, what: str) -> int:
    """The node of what says whether to go on, or which side to take."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if not isinstance(value, (Expr, bool, int, float, np.number, np.bool_)):
        raise TraceError(located(f"{what}: a condition is needed, not {value!r}"))
    return operand(graph, value, "b")


def require_functions(*bodies: Any) -> None:
    """Refuse what a loop or a choice cannot do."""
    for body in bodies:
        if not callable(body):
            raise InputTypeError(
                located(f"the body of a loop or a branch of a choice is a function, not {body!r}")
            )


def graph_among(*values: Any) -> Graph | None:
    """The graph that expressions in nests are of, or else of the function that is traced."""
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, (Handle, TracedArray)):
            return value.graph
        if isinstance(value, np.ndarray):
            stack += list(value.flat) if value.dtype == object else []
        else:
            outer = apart(value)
            stack += [] if outer is None else outer[1]
    return _traced.get()
