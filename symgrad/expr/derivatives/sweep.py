"""The reverse sweep over a graph: cotangents of numbers, and of arrays in all their versions.

The versions of an array are a chain; their cotangents are a chain the other way, each of which is
made of the one before it by a write. What loops and choices hand on is found by `Regions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from symgrad.expr.derivatives.cotangents import (
    STRUCTURES,
    Contribution,
    active_between,
    collected,
    differentiating,
    masked,
    pull_back,
    selected,
)
from symgrad.expr.graph.arrays import ADD_AT, FRESH, GET, PUT, ZEROS, length, size_of
from symgrad.expr.graph.node import INPUTS, WORD, Graph, Op
from symgrad.expr.graph.region import Choice, Loop, Pick, close, hole, loop_op, pick
from symgrad.expr.tracers.expression import WRAP

Seed = tuple[int, int]
"""A node, and a cotangent of it."""


class Regions(Protocol):
    """How loops and choices hand on the cotangents of their results."""

    def pull_loop(self, sweep: Sweep, i: int, parts: dict[int, Contribution]) -> None:
        """Hand on what the results of loop i have."""
        ...

    def pull_choice(self, sweep: Sweep, i: int, parts: dict[int, Contribution]) -> None:
        """Hand on what the results of choice i have."""
        ...


class Sweep:
    """One reverse sweep; ``found`` gets the cotangents of ``wrt``, those that are not zero."""

    runs = 1
    """How often what it sweeps over is run at most in all."""

    def __init__(
        self, graph: Graph, seeds: Iterable[Seed], wrt: Sequence[int], regions: Regions
    ) -> None:
        self.graph, self.regions = graph, regions
        self.wrt = set(wrt)
        self.found: dict[int, int] = {}
        self.replace: dict[int, int] = {}
        """What stands for nodes of the forward sweep in the reverse one."""
        self.restored: dict[int, int] = {}
        """Versions of arrays as the reverse sweep meets them: see `Restoring`."""
        self.parts: dict[int, list[Contribution]] = {}
        self.bars: dict[int, int] = {}
        """The cotangents of arrays, as far as they are made."""
        self._reads: dict[int, list[tuple[int, int]]] = {}
        self._tuples: dict[int, dict[int, Contribution]] = {}
        self._put_together: dict[int, bool] = {}
        seeds = list(seeds)
        self.order = active_between(graph, [i for i, _ in seeds], list(wrt))
        self.active = set(self.order)
        for i, bar in seeds:
            self.give(i, (None, bar))

    def run(self) -> None:
        """Visit all nodes, users first."""
        graph = self.graph
        with differentiating(graph):
            for i in reversed(self.order):
                graph.place = graph.places[i]
                self.visit(i)

    def is_moved(self, i: int) -> bool:
        """Whether a cotangent of node i is of use."""
        return i in self.active and self.graph.type(i) in "fF"

    def give(self, i: int, part: Contribution) -> None:
        """Add to the cotangent of node i."""
        if self.graph.type(i) == "f":
            self.parts.setdefault(i, []).append(part)
        elif i in self.bars:
            self.bars[i] = summed_arrays(self.graph, self.bars[i], selected(self.graph, part))
        else:
            self.bars[i] = selected(self.graph, part)

    def visit(self, i: int) -> None:
        """Hand on the cotangent of node i, if it has one."""
        parts = self.parts.pop(i, None)
        if parts is None:
            if self.graph.type(i) in STRUCTURES:
                self._visit_structure(i)
            return
        graph, node = self.graph, self.graph.nodes[i]
        mask, g = collected(graph, parts)
        if i in self.wrt:
            self.found[i] = selected(graph, (mask, g))
        if node[0].__class__ is Pick:
            self._tuples.setdefault(node[1], {})[node[0].index] = (mask, g)
        elif node[0] is GET:
            if self.is_moved(node[1]):
                self._reads.setdefault(node[1], []).append((node[2], selected(graph, (mask, g))))
        else:
            for argument, part in pull_back(graph, i, g, self.active):
                self.parts.setdefault(argument, []).append(masked(graph, mask, part))

    def _visit_structure(self, i: int) -> None:
        op: Op = self.graph.nodes[i][0]
        if isinstance(op, Loop):
            self.regions.pull_loop(self, i, self._tuples.pop(i, {}))
        elif isinstance(op, Choice):
            self.regions.pull_choice(self, i, self._tuples.pop(i, {}))
        elif self.graph.type(i) == "F" and (bar := self._array_cotangent(i)) is not None:
            self._pull_array(i, bar)

    def _array_cotangent(self, i: int) -> int | None:
        """The cotangent of a version: that of what was made of it, and what reads add to it."""
        graph, reads, bar = self.graph, self._reads.pop(i, []), self.bars.pop(i, None)
        if bar is None and reads:
            bar = graph.intern((ZEROS, length(graph, i)))
        for at, value in reads:
            assert bar is not None, "reads add to something"
            bar = graph.add(ADD_AT, bar, at, value)
        if bar is not None and i in self.wrt:
            self.found[i] = bar
        return bar

    def _pull_array(self, i: int, bar: int) -> None:
        graph, node = self.graph, self.graph.nodes[i]
        op = node[0]
        if op.__class__ is Pick:
            self._tuples.setdefault(node[1], {})[op.index] = (None, bar)
        elif op.vjp is not None:
            handles = [WRAP[graph.type(a)](graph, a) for a in node[1:]]
            cotangents = op.vjp(WRAP["F"](graph, bar), WRAP["F"](graph, i), *handles)
            for a, part in zip(node[1:], cotangents, strict=True):
                if part is not None and self.is_moved(a):
                    self.give(a, (None, part.id))
        elif op is PUT or op is ADD_AT:
            _, array, at, value = node
            if self.is_moved(value):
                self.give(value, (None, graph.add(GET, bar, at)))
            if self.is_moved(array):
                if op is PUT and not self._is_put_together(i):
                    bar = graph.add(PUT, bar, at, graph.constant(0.0))
                self.give(array, (None, bar))

    def _is_put_together(self, i: int) -> bool:
        """Whether an array is made of numbers at known places, each of which is written once.

        Then nobody reads what the cotangent of the array before has there.
        """
        if i not in self._put_together:
            nodes, versions, places = self.graph.nodes, list[int](), list[int]()
            while nodes[i][0] is PUT and nodes[nodes[i][2]][0] is WORD:
                versions.append(i)
                places.append(nodes[nodes[i][2]][1])
                i = nodes[i][1]
            once = nodes[i][0] in FRESH and len(set(places)) == len(places)
            inside = bool(places) and max(places) < length(self.graph, i)
            self._put_together |= dict.fromkeys([*versions, i], once and inside)
        return self._put_together[i]


def summed_arrays(graph: Graph, a: int, b: int) -> int:
    """The sum of two arrays: where a version has two that were made of it."""
    n = length(graph, a)
    inner = Graph()
    inner.tracing = False
    k, total, other = hole(inner, "u"), hole(inner, "F", n), hole(inner, "F", n)
    region, _ = close(
        inner, [k, total, other], [inner.add(ADD_AT, total, k, inner.add(GET, other, k))]
    )
    ends = graph.intern((WORD, 0)), graph.intern((WORD, n))
    return pick(graph, graph.add(loop_op(region, 1, most=n), *ends, a, b), 0, "F")


def like(graph: Graph, i: int, role: str = "", of: Graph | None = None) -> int:
    """An open leaf of the type of node i, which may be one of another graph, named after it."""
    of = of or graph
    op, *payload = of.nodes[i]
    name = of.names[payload[0]] if op is INPUTS.get(op.result) else "value"
    return hole(graph, op.result, size_of(of, i), f"{name}_{role}" if role else name)


def zero_like(graph: Graph, i: int, of: Graph | None = None) -> int:
    """The zero of the type of node i, a number or an array."""
    of = of or graph
    return graph.constant(0.0) if of.type(i) == "f" else graph.intern((ZEROS, length(of, i)))
