"""Loops that are being traced: the graph, and one loop with its bounds, parameters and end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputTypeError, TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives.compensate import compensated
from symgrad.expr.graph.arrays import GET, PUT, length, size_of
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ANY_HOLE, WORD, Graph, Handle, reachable
from symgrad.expr.graph.place import OnePlace, resolve_places
from symgrad.expr.graph.region import choice_op, close, hole, loop_op, pick
from symgrad.expr.loops.carry import Nest
from symgrad.expr.tracers.array import TracedArray
from symgrad.expr.tracers.counter import Counter, TracedLoops, ceiling, largest, limit, whole, word
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


# --- arguments of loops and choices ---------------------------------------------------------------


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


# --- one loop -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoopBounds:
    """The bounds of a loop as words, what is added to its counter, and its trip count."""

    first: int
    last: int
    most: int | None
    shift: int | Expr | None = None
    exceeded: int | None = None
    """The condition that there would be more iterations than the user said."""

    @classmethod
    def between(
        cls, graph: Graph, start: int | Expr, end: int | Expr, most: int | None
    ) -> LoopBounds:
        """The iterations for k = start, start + 1, .., k < end."""
        first, last = whole(graph, start), whole(graph, end)
        shift: int | Expr | None = None
        if first is None:  # the counter begins at 0
            first, last, shift = word(graph, 0), None, start
            end = end - start
        if last is None:
            last = word(graph, max(0, end)) if isinstance(end, int) else ceiling(end)
        upper = largest(graph, last)
        if upper is not None and graph.nodes[first][0] is WORD:
            upper = max(0, upper - graph.nodes[first][1])
        if most is None or (upper is not None and upper <= most):
            return cls(first, last, upper, shift)
        exceeded = graph.add(ops.word_lt, graph.add(ops.word_add, first, word(graph, most)), last)
        return cls(first, last, most, shift, exceeded)

    def ended(self, graph: Graph, ids: Sequence[int]) -> list[int]:
        """The final carry, NaN where there would be more iterations than there may be."""
        return list(ids) if self.exceeded is None else nan_where(graph, self.exceeded, ids)


class OpenLoop:
    """A loop whose body is being traced: its parameters are holes."""

    def __init__(self, graph: Graph, iterations: LoopBounds, names: Sequence[str]) -> None:
        self._graph, self._iterations, self._name = graph, iterations, names[-1]
        self._inits: list[int] = []
        self._holes: list[int] = []
        with OnePlace(graph):
            self.index = hole(graph, "u", name=names[0])
            limit(graph, self.index, self._largest(), self._least())
            self.counter: Any = Counter(graph, graph.add(ops.word_float, self.index))
            if iterations.shift is not None:
                self.counter = self.counter + iterations.shift

    def _least(self) -> int:
        """A lower bound of the counter."""
        op, first = self._graph.nodes[self._iterations.first][:2]
        return first if op is WORD else 0

    def _largest(self) -> int | None:
        """An upper bound of the counter, if one is known."""
        iterations = self._iterations
        first, last = (largest(self._graph, i) for i in (iterations.first, iterations.last))
        ends = [] if last is None else [last]
        if first is not None and iterations.most is not None:
            ends.append(first + iterations.most)
        return max(min(ends) - 1, 0) if ends else None

    def carry(self, init: int, name: str) -> int:
        """A hole for a carry that begins as this node."""
        graph = self._graph
        with OnePlace(graph):
            carry = hole(graph, graph.type(init), size_of(graph, init), name)
        runs = graph.note(TracedLoops).runs
        runs[carry] = (self._iterations.most or 1) * runs.get(init, 1)
        self._inits.append(init)
        self._holes.append(carry)
        return carry

    def carries(self, inits: Sequence[int], nest: Nest) -> list[int]:
        """Holes for all numbers of a nest."""
        return [self.carry(i, n) for i, n in zip(inits, nest.names(self._name), strict=True)]

    def closed(
        self, yields: Sequence[int], test: int | None = None, down: bool = False
    ) -> list[int]:
        """The final carries of the loop whose next carries are these."""
        graph, iterations = self._graph, self._iterations
        require_lengths(graph, self._inits, yields, "an array that a loop carries")
        roots = [*yields] if test is None else [*yields, test]
        inner = self._inner(roots)
        params = [self.index, *self._holes]
        with OnePlace(graph):
            region, captured = close(graph, params, roots, capture=lambda i: i not in inner)
            op = loop_op(region, len(yields), test is not None, down, iterations.most)
            runs = graph.note(TracedLoops).runs
            op, errors = compensated(op, max((runs.get(i, 1) for i in self._inits), default=1))
            inits = [*self._inits, *[graph.constant(0.0)] * errors]
            loop = graph.add(op, iterations.first, iterations.last, *inits, *captured)
            ends = [pick(graph, loop, j, graph.type(y)) for j, y in enumerate(yields)]
        return iterations.ended(graph, ends)

    def _inner(self, roots: Sequence[int]) -> set[int]:
        """The nodes that change with the iterations; others are computed before the loop."""
        graph = self._graph
        inner = {self.index, *self._holes}
        for i in reachable(graph, roots, self.index):
            if not inner.isdisjoint(graph.args(i)):
                inner.add(i)
        return inner


def nan_where(graph: Graph, exceeded: int, ids: Sequence[int]) -> list[int]:
    """The nodes, with numbers and their derivatives NaN where a loop has not ended."""
    with OnePlace(graph):
        factor = graph.add(ops.where, exceeded, graph.constant(math.nan), graph.constant(1.0))
        spoilt = {"f": lambda i: graph.add(ops.mul, i, factor), "F": _all_nan(graph, exceeded)}
        return [spoilt[graph.type(i)](i) if graph.type(i) in spoilt else i for i in ids]


def _all_nan(graph: Graph, exceeded: int) -> Callable[[int], int]:
    """A function that makes an array and its derivatives NaN where a condition holds."""

    def spoilt(i: int) -> int:
        n, iteration, side = length(graph, i), Graph(), Graph()
        iteration.tracing = side.tracing = False
        k, a, array = hole(iteration, "u", name="k"), hole(iteration, "F", n), hole(side, "F", n)
        nan = iteration.add(ops.mul, iteration.add(GET, a, k), iteration.constant(math.nan))
        body, _ = close(iteration, [k, a], [iteration.add(PUT, a, k, nan)])
        looped = side.add(loop_op(body, 1, most=n), word(side, 0), word(side, n), array)
        sides, _ = close(side, [array], [pick(side, looped, 0, "F"), array])
        return pick(graph, graph.add(choice_op(sides, 1), exceeded, i), 0, "F")

    return spoilt


def require_lengths(graph: Graph, a: Sequence[int], b: Sequence[int], what: str) -> None:
    """Refuse arrays of different lengths in the same place."""
    for i, j in zip(a, b, strict=True):
        if size_of(graph, i) != size_of(graph, j):
            sizes = f"{size_of(graph, i)} and {size_of(graph, j)}"
            raise TraceError(located(f"{what}: it has different lengths, {sizes}"))
