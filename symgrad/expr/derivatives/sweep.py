"""The reverse sweep over a graph: cotangents of numbers, and of arrays in all their versions.

The versions of an array are a chain; their cotangents are a chain the other way, each of which is
made of the one before it by a write. What loops and choices hand on is found by `Regions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from symgrad.expr import ops
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
from symgrad.expr.graph.arrays import (
    ADD_AT,
    EMPTIES,
    FRESH,
    GET,
    PUT,
    PUTS,
    READS,
    WRITES,
    ZEROS,
    length,
    size_of,
)
from symgrad.expr.graph.node import ARRAYS, INPUTS, WORD, Graph, Op, reachable
from symgrad.expr.graph.region import Choice, Loop, Pick, close, hole, loop_op, pick
from symgrad.expr.tracers.expression import WRAP

Seed = tuple[int, int]
"""A node, and a cotangent of it."""


class Regions(Protocol):
    """How loops and choices hand on cotangents, and which arrays their results are versions of."""

    def pull_loop(self, sweep: ReverseSweep, i: int, parts: dict[int, Contribution]) -> None:
        """Hand on the cotangents of the results of loop i."""
        ...

    def pull_choice(self, sweep: ReverseSweep, i: int, parts: dict[int, Contribution]) -> None:
        """Hand on the cotangents of the results of choice i."""
        ...

    def origin(self, op: Loop | Choice, index: int) -> int | None:
        """Which argument a result is a version of, if all writes in between can be undone."""
        ...


class ReverseSweep:
    """One reverse sweep; ``cotangents`` gets those of ``wrt`` that are not structurally zero."""

    runs = 1
    """How often the region that it sweeps over is run at most in all."""

    def __init__(
        self, graph: Graph, seeds: Iterable[Seed], wrt: Sequence[int], regions: Regions
    ) -> None:
        self.graph, self.regions = graph, regions
        self.wrt = set(wrt)
        self.cotangents: dict[int, int] = {}
        self.replace: dict[int, int] = {}
        """The nodes of the reverse sweep that stand for some of the forward sweep."""
        self.restored: dict[int, int] = {}
        """Versions of arrays as the reverse sweep meets them: see `RegionSweep`."""
        self.parts: dict[int, list[Contribution]] = {}
        self.bars: dict[int, int] = {}
        """The cotangents of arrays, as far as they are summed."""
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
            self.cotangents[i] = selected(graph, (mask, g))
        if node[0].__class__ is Pick:
            self._tuples.setdefault(node[1], {})[node[0].index] = (mask, g)
        elif node[0] is GET:
            if self.is_moved(node[1]):
                self._reads.setdefault(node[1], []).append((node[2], selected(graph, (mask, g))))
        else:
            for argument, part in pull_back(graph, i, g, self.active):
                self.parts.setdefault(argument, []).append(masked(graph, mask, part))

    def _visit_structure(self, i: int) -> None:
        """Hand on the cotangents of a loop, a choice, or a version of an array."""
        op: Op = self.graph.nodes[i][0]
        if isinstance(op, Loop):
            self.regions.pull_loop(self, i, self._tuples.pop(i, {}))
        elif isinstance(op, Choice):
            self.regions.pull_choice(self, i, self._tuples.pop(i, {}))
        elif self.graph.type(i) == "F" and (bar := self._array_cotangent(i)) is not None:
            self._pull_array(i, bar)

    def _array_cotangent(self, i: int) -> int | None:
        """The cotangent of a version: that of the next version, and what reads add to it."""
        graph, reads, bar = self.graph, self._reads.pop(i, []), self.bars.pop(i, None)
        if bar is None and reads:
            bar = graph.intern((ZEROS, length(graph, i)))
        for at, value in reads:
            assert bar is not None, "reads add to something"
            bar = graph.add(ADD_AT, bar, at, value)
        if bar is not None and i in self.wrt:
            self.cotangents[i] = bar
        return bar

    def _pull_array(self, i: int, bar: int) -> None:
        """Hand on the cotangent ``bar`` of a version of an array."""
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

        The cotangent of the array before is not read there, and need not be set to 0.
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
    """The sum of two arrays: the cotangents that two versions made of one hand on to it."""
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


# --- regions that run many times ------------------------------------------------------------------


def versions(graph: Graph, last: int, regions: Regions) -> Iterator[tuple[int, int]]:
    """The versions before ``last``, newest first, each with the node that overwrites it."""
    while True:
        op, *args = graph.nodes[last]
        if op in WRITES:
            writer, last = last, args[0]
        elif isinstance(op, Pick):
            writer = args[0]
            owner, *arguments = graph.nodes[writer]
            at = regions.origin(owner, op.index)
            if at is None:
                return
            last = arguments[at]
        else:
            return
        yield last, writer


class RegionSweep(ReverseSweep):
    """A reverse sweep over a region that may run many times, from the last time to the first.

    Arrays that a loop writes in place are restored: each write is undone by the number that it
    overwrote, which the forward sweep keeps. What undoing takes must not itself wait for what is
    undone: a number made of reads of versions that are restored later is kept as well.

    ``restored`` are arrays as they are behind the region. ``slot`` is the number of the run, of
    ``iterations`` at most. ``residuals`` are arrays that are kept over all runs: an open leaf for
    each, and its next version in the forward sweep. ``forward`` are nodes of the forward sweep that
    keep more than those in whose place they stand.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Sequence[Seed],
        wrt: Sequence[int],
        regions: Regions,
        restored: dict[int, int],
        slot: int,
        iterations: int,
        size: int,
    ) -> None:
        super().__init__(graph, seeds, wrt, regions)
        self.restored, self.slot, self.iterations, self._size = (
            dict(restored),
            slot,
            iterations,
            size,
        )
        self.residuals: list[tuple[int, int]] = []
        self.forward: dict[int, int] = {}
        self._kept: dict[int, int] = {}
        self._expires: list[float] = []
        self._overwritten: dict[int, float] = {}
        for last in restored:
            self._overwritten.setdefault(last, math.inf)
            self._overwritten.update(versions(graph, last, regions))
        writers = {int(w) for w in self._overwritten.values() if w < math.inf}
        self._writers = {w for w in writers if graph.type(w) == "t"}
        """Loops and choices that write what is restored: they are not run again."""
        if restored:
            self.order = reachable(graph, [*[i for i, _ in seeds], *restored])

    def visit(self, i: int) -> None:
        """Restore what node i wrote, and hand on its cotangent."""
        node = self.graph.nodes[i]
        if i in self.restored and node[0] in WRITES:
            self.settle([node[2]], i)
            kind = self.graph.type(i)
            old = self.keep(self.graph.add(READS[kind], node[1], node[2]))
            self.restored[node[1]] = self.graph.add(PUTS[kind], self.restored[i], node[2], old)
        super().visit(i)

    # --- residuals --------------------------------------------------------------------------------

    def keep(self, value: int) -> int:
        """The residual of a value of the forward sweep, as the reverse one reads it."""
        if value not in self._kept:
            kind = self.graph.type(value)
            keep = self._keep_array if kind in ARRAYS else self._keep_number
            self._kept[value] = keep(value)
        return self._kept[value]

    def _keep_number(self, value: int) -> int:
        graph, kind = self.graph, self.graph.type(value)
        array = "F" if kind == "f" else "W"
        residual = hole(graph, array, self.iterations, kept_name(graph, value))
        self.residuals.append(
            (residual, graph.add(PUTS[array], residual, self.slot, as_word(graph, value)))
        )
        return from_word(graph, graph.add(READS[array], residual, self.slot), kind)

    def _keep_array(self, value: int) -> int:
        """As `_keep_number`, for a whole array: each run has a part of the array of residuals."""
        graph, kind, n = self.graph, self.graph.type(value), length(self.graph, value)
        residual = hole(graph, kind, self.iterations * n, kept_name(graph, value))
        zero = graph.intern((WORD, 0))
        start = graph.add(ops.word_mul, self.slot, graph.intern((WORD, n)))
        self.residuals.append((residual, copied(graph, (residual, start), (value, zero), n)))
        blank = graph.intern((EMPTIES[kind], n))
        return copied(graph, (blank, zero), (residual, start), n)

    # --- how long values can be read --------------------------------------------------------------

    def settle(self, ids: Iterable[int], time: int) -> None:
        """Keep what these nodes read that is not restored yet when node ``time`` is undone."""
        graph, stack = self.graph, list(ids)
        while stack:
            i = stack.pop()
            if self._expiry(i) > time:
                continue
            self._expires[i] = math.inf
            if i < self._size and graph.type(i) != "t":
                self.replace[i] = self.keep(i)
            else:
                stack += graph.args(i)

    def _expiry(self, i: int) -> float:
        """The first node that overwrites an array of which node i reads a version to restore."""
        graph, expires = self.graph, self._expires
        for n in range(len(expires), len(graph)):
            expiry = self._overwritten.get(n)
            if expiry is None:
                over = n in self._writers or not self._writers.isdisjoint(graph.args(n))
                expiry = (
                    math.inf if over else min((expires[a] for a in graph.args(n)), default=math.inf)
                )
            expires.append(expiry)
        return expires[i]

    def take(self, roots: Iterable[int]) -> set[int]:
        """All nodes by which the reverse sweep computes these roots; it keeps their residuals."""
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                other = self.replacement(i)
                stack += self.graph.args(i) if other == i else [other]
        return seen

    def replacement(self, i: int) -> int:
        """The node of the reverse sweep that stands for node i."""
        if i in self.replace:
            return self.replace[i]
        node = self.graph.nodes[i]
        other = self.restored.get(i, i)
        if other == i and node[0].__class__ is Pick and node[1] in self._writers:
            other = self.keep(i)
        if other != i:
            self.replace[i] = other
        return other


def kept_name(graph: Graph, i: int) -> str:
    """The name of the residual of node i."""
    op, *payload = graph.nodes[i]
    return f"{graph.names[payload[0]]}_kept" if op is INPUTS.get(op.result) else "kept"


def as_word(graph: Graph, i: int) -> int:
    """A number as it is kept: conditions as words."""
    if graph.type(i) != "b":
        return i
    return graph.add(ops.word_where, i, graph.intern((WORD, 1)), graph.intern((WORD, 0)))


def from_word(graph: Graph, i: int, kind: str) -> int:
    """A residual as the number that was kept."""
    return i if kind != "b" else graph.add(ops.word_lt, graph.intern((WORD, 0)), i)


def copied(graph: Graph, to: tuple[int, int], source: tuple[int, int], n: int) -> int:
    """An array with n numbers of another: of each the array, and where they begin."""
    inner = Graph()
    inner.tracing = False
    k, target, other = (
        hole(inner, "u"),
        like(inner, to[0], "", graph),
        like(inner, source[0], "", graph),
    )
    at, start = hole(inner, "u"), hole(inner, "u")
    kind = graph.type(to[0])
    value = inner.add(READS[kind], other, inner.add(ops.word_add, start, k))
    root = inner.add(PUTS[kind], target, inner.add(ops.word_add, at, k), value)
    region, _ = close(inner, [k, target, other, at, start], [root])
    ends = graph.intern((WORD, 0)), graph.intern((WORD, n))
    loop = graph.add(loop_op(region, 1, most=n), *ends, to[0], source[0], to[1], source[1])
    return pick(graph, loop, 0, kind)
