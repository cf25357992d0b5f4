"""Arrays that a loop writes in place, as they were: the reverse sweep of a turn undoes its writes.

Each write is undone by the number that it overwrote, which the forward sweep keeps. What undoing
takes must not itself wait for what is undone: where a number is made of reads of versions that are
restored later, it is kept as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from symgrad.expr import ops
from symgrad.expr.derivatives.sweep import Regions, Seed, Sweep, like
from symgrad.expr.graph.arrays import EMPTIES, PUTS, READS, WRITES, length
from symgrad.expr.graph.node import ARRAYS, INPUTS, WORD, Graph, reachable
from symgrad.expr.graph.region import Choice, Loop, Pick, close, hole, loop_op, pick


class Origins(Regions, Protocol):
    """Regions of which it is known what their arrays are versions of."""

    def origin(self, op: Loop | Choice, index: int) -> int | None:
        """Which argument a result is a version of, if all writes in between can be undone."""
        ...


def versions(graph: Graph, last: int, origins: Origins) -> Iterator[tuple[int, int]]:
    """The versions before ``last``, newest first, each with the node that overwrites it."""
    while True:
        op, *args = graph.nodes[last]
        if op in WRITES:
            writer, last = last, args[0]
        elif isinstance(op, Pick):
            writer = args[0]
            owner, *given = graph.nodes[writer]
            at = origins.origin(owner, op.index)
            if at is None:
                return
            last = given[at]
        else:
            return
        yield last, writer


class Restoring(Sweep):
    """A reverse sweep over a region that may run many times, from the last time to the first.

    ``restored`` are arrays as they are behind the region. ``slot`` is the number of the run, of
    ``iterations`` at most. ``homes`` are what is kept over all runs: an open leaf for it, and what
    the forward sweep makes of that. ``forward`` are nodes of the forward sweep that keep more than
    those in whose place they stand.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Sequence[Seed],
        wrt: Sequence[int],
        regions: Origins,
        restored: dict[int, int],
        slot: int,
        iterations: int,
        size: int,
    ) -> None:
        super().__init__(graph, seeds, wrt, regions)
        self.regions: Origins = regions
        self.restored, self.slot, self.iterations, self._size = (
            dict(restored),
            slot,
            iterations,
            size,
        )
        self.homes: list[tuple[int, int]] = []
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

    # --- what is kept -----------------------------------------------------------------------------

    def keep(self, value: int) -> int:
        """What stands in the reverse sweep for a value of the forward one, which keeps it."""
        if value not in self._kept:
            kind = self.graph.type(value)
            keep = self._keep_array if kind in ARRAYS else self._keep_number
            self._kept[value] = keep(value)
        return self._kept[value]

    def _keep_number(self, value: int) -> int:
        graph, kind = self.graph, self.graph.type(value)
        array = "F" if kind == "f" else "W"
        home = hole(graph, array, self.iterations, kept_name(graph, value))
        self.homes.append((home, graph.add(PUTS[array], home, self.slot, as_word(graph, value))))
        return from_word(graph, graph.add(READS[array], home, self.slot), kind)

    def _keep_array(self, value: int) -> int:
        """As `_keep_number`, for all of an array: each run has a stretch of what is kept."""
        graph, kind, n = self.graph, self.graph.type(value), length(self.graph, value)
        home = hole(graph, kind, self.iterations * n, kept_name(graph, value))
        zero = graph.intern((WORD, 0))
        start = graph.add(ops.word_mul, self.slot, graph.intern((WORD, n)))
        self.homes.append((home, copied(graph, (home, start), (value, zero), n)))
        blank = graph.intern((EMPTIES[kind], n))
        return copied(graph, (blank, zero), (home, start), n)

    # --- when things are there --------------------------------------------------------------------

    def settle(self, ids: Iterable[int], time: int) -> None:
        """Keep what these nodes are made of that is not there yet when node ``time`` is undone."""
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
        graph, known = self.graph, self._expires
        for n in range(len(known), len(graph)):
            expiry = self._overwritten.get(n)
            if expiry is None:
                over = n in self._writers or not self._writers.isdisjoint(graph.args(n))
                expiry = (
                    math.inf if over else min((known[a] for a in graph.args(n)), default=math.inf)
                )
            known.append(expiry)
        return known[i]

    def take(self, roots: Iterable[int]) -> set[int]:
        """All that the reverse sweep computes these roots with; it keeps what it needs for them."""
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                stands = self.stand(i)
                stack += self.graph.args(i) if stands == i else [stands]
        return seen

    def stand(self, i: int) -> int:
        """What stands for node i in the reverse sweep."""
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
    """The name of what is kept of node i."""
    op, *payload = graph.nodes[i]
    return f"{graph.names[payload[0]]}_kept" if op is INPUTS.get(op.result) else "kept"


def as_word(graph: Graph, i: int) -> int:
    """A number as it is kept: conditions as words."""
    if graph.type(i) != "b":
        return i
    return graph.add(ops.word_where, i, graph.intern((WORD, 1)), graph.intern((WORD, 0)))


def from_word(graph: Graph, i: int, kind: str) -> int:
    """What was kept, as it was."""
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
