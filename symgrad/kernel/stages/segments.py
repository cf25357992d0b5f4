"""Scatters: as reductions, as sums of a list, or on a GPU by segments of a sorted list.

What is added stands in memory, the numbers that have one place beside one another. The host sorts
the places, which are few beside what is added, and so which numbers go to a place, and in which
order, is the same at each call. An invocation adds up one element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from symgrad.arrays.program import Scatter, Tabulate
from symgrad.arrays.scalars import Array, Scalars, is_zero
from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc, reachable
from symgrad.kernel.language.index import Index, Number, Numbers, where
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.stages.panels import WIDTH, Group, by_groups
from symgrad.kernel.stages.steps import HostStep, Step, places_of

# --- reductions and lists -------------------------------------------------------------------------
# Scatters: reductions, in which an element adds up all that goes to it, or sums of a list.
#
# As a list, what is added stands in memory beside where it goes. The host goes through it once, and
# each of many elements looks for its own among all others.

LISTED: Final = 2**16
"""Terms that elements look through before a list is worth it."""

ENTRY: Final = 16
"""The cost of an entry of a list, in such terms."""


def is_list(s: Scalars, array: Scatter) -> bool:
    """Whether the host is to go through a list, rather than each element through all terms."""
    entries = prod(map(s.extent, array.counters))
    summed = prod(s.extent(c) for c in array.counters if c not in own_counters(s, array))
    return array.kind == "f" and array.size * summed > LISTED + ENTRY * entries


def listed(s: Scalars, array: Scatter) -> list[Tabulate]:
    """Where the entries of a list go, by axes, and what they are."""
    shape = tuple(map(s.extent, array.counters))
    kinds = *("i" for _ in array.index), array.kind
    return [
        Tabulate(shape=shape, kind=kind, counters=array.counters, body=root)
        for kind, root in zip(kinds, array.scalars, strict=True)
    ]


def gathered(s: Scalars, array: Scatter) -> tuple[Sequence[int], int]:
    """The counters of an element, and its sum over the counters that its index is not."""
    counters = own_counters(s, array)
    body, zero = array.body, s.graph.constant(0.0)
    for i, c in zip(array.index, counters, strict=True):
        if c not in array.counters and (s.extent(c) > 1 or s.integer(i) != 0):
            hit = s.graph.add(is_zero, s.plus((1, i), (-1, c)))
            if array.kind == "f":
                body = s.graph.add(ops.where, hit, body, zero)
    summed = [c for c in array.counters if s.extent(c) > 1 and c not in counters]
    return counters, s.reduction("add", summed, body) if summed else body


def own_counters(s: Scalars, array: Scatter) -> list[int]:
    """A counter for each axis: that which the index there is, over the same extent, or another.

    A counter that two indices are is that of the first.
    """
    own = list[int]()
    for i, n in zip(array.index, array.shape, strict=True):
        is_one = i in array.counters and i not in own and s.extent(i) == n
        own.append(i if is_one else s.counter(n))
    return own


COMPARED: Final = 2**25
"""Terms, each of which elements ask whether it is theirs, that take a GPU as long as a sort."""

AT_A_TIME: Final = 4
"""Terms of an element that are read before they are added: they are on their way together."""

MOST: Final = 2**17
"""Terms that an invocation adds up in one dispatch: some GPUs end long loops."""

DIGIT: Final = 16
"""Bits of a place that are sorted at a time: NumPy counts numbers of so many."""


@dataclass(frozen=True)
class Segments:
    """A scatter as a table of ``rows``: those of its axes that are looked up, then the others.

    ``entries`` are the counters of a list, and ``inner`` those that a number's place is made of.
    """

    scatter: Scatter
    looked_up: Sequence[int]
    inner: Sequence[int]
    """Axes of the scatter, whose index is a counter of their own."""

    @property
    def rows(self) -> int:
        """The places that numbers go to, each of as many neighbours as the inner axes have."""
        return prod(self.scatter.shape[k] for k in self.looked_up)

    @property
    def columns(self) -> int:
        """The numbers that have one place."""
        return prod(self.scatter.shape[k] for k in self.inner)

    def listed(self, s: Scalars) -> tuple[list[Tabulate], Tabulate]:
        """Where the entries of the list go, by axes that are looked up, and the numbers of each."""
        scatter = self.scatter
        inner = [scatter.index[k] for k in self.inner]
        entries = tuple(c for c in scatter.counters if c not in inner)
        shape, counters = tuple(map(s.extent, entries)), (*entries, *inner)
        places = [
            Tabulate(shape=shape, kind="i", counters=entries, body=scatter.index[k])
            for k in self.looked_up
        ]
        shape = tuple(map(s.extent, counters))
        return places, Tabulate(shape=shape, counters=counters, body=scatter.body)


def segments_of(s: Scalars, scatter: Scatter) -> Segments | None:
    """A scatter by segments, if each element would be compared with very many terms."""
    counters = own_counters(s, scatter)
    entries = [c for c in scatter.counters if c not in counters]
    if scatter.kind != "f" or scatter.size * prod(map(s.extent, entries)) <= COMPARED:
        return None
    axes = range(len(scatter.shape))
    looked_up = [k for k in axes if counters[k] not in scatter.counters]
    needed = reachable(s.graph, [scatter.index[k] for k in looked_up])
    looked_up = [k for k in axes if k in looked_up or counters[k] in needed]
    return Segments(scatter, looked_up, [k for k in axes if k not in looked_up])


class SortStep(HostStep):
    """The order of entries by their places, and where in it those of each place begin."""

    def __init__(self, segments: Segments, parts: Sequence[Tabulate]) -> None:
        scatter, count = segments.scatter, parts[0].size
        self._shape = [scatter.shape[k] for k in segments.looked_up]
        self.order = Array(shape=(count,), kind="i")
        self.starts = Array(shape=(segments.rows + 1,), kind="i")
        self.inputs, self.writes, self.title = tuple(parts), (self.order, self.starts), "sort"

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The order and the beginnings: see `HostStep`."""
        place, rows = places_of(arrays, self._shape).reshape(-1), prod(self._shape)
        order = np.argsort(place.astype(np.uint16), kind="stable")
        for bits in range(DIGIT, rows.bit_length(), DIGIT):
            digits = (place >> bits).astype(np.uint16)
            order = order[np.argsort(digits[order], kind="stable")]
        ends = np.cumsum(np.bincount(place, minlength=rows + 1)[:rows])
        return [order, np.concatenate([[0], ends])]


@dataclass(frozen=True)
class SegmentProgram:
    """The kernel of the sums of ``values``, of which ``columns`` have one place.

    Those of place p are the numbers ``order[starts[p]:starts[p + 1]]``, of which those from
    ``first`` on are added up, to what is there ``again``, `MOST` at most; there are ``size`` sums.
    """

    again: bool = False

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        group = Group(target, "segment_sums", ("size", "columns", "entries", "first"))
        k, size, columns = group.k, group.g["size"], group.g["columns"]
        order, starts = (k.buffer(name, "read", "u") for name in ("order", "starts"))
        values, sums = Numbers.of(k, "values", "read"), Numbers.of(k, "sums", "write")
        own = group.number * WIDTH + group.local
        inside = own.at_most(size - 1)
        row, column = divmod(inside, columns)
        begin, end = (Index(k, k.load(starts, i.id)) for i in (row, row + 1))
        begin = (begin + group.g["first"]).at_most(end)
        last = group.g["entries"] - 1

        def step(t: int, carried: Sequence[int]) -> list[int]:
            totals = list[int]()
            for q, total in enumerate(carried):
                at = begin + Index(k, t) * AT_A_TIME + q
                entry = Index(k, k.load(order, at.at_most(last).id))
                value = where(at.below(end), values[entry * columns + column], 0.0)
                totals.append((Number(k, total) + value).id)
            return totals

        trips = (end - begin).at_most(MOST).ceil_div(AT_A_TIME)
        zeros = [k.constant(0.0)] * AT_A_TIME
        results, _ = k.loop(k.word(0), trips.id, zeros, step, most=MOST // AT_A_TIME)
        total = sums[inside] if self.again else Number(k, k.constant(0.0))
        for part in results:
            total = total + Number(k, part)
        group.store(sums, own, total, own.below(size))
        return k


def summed(segments: Segments, values: Array, sort: SortStep, sums: Array) -> Iterator[Step]:
    """The steps of the sums of a sorted list."""
    groups, entries = -(-sums.size // WIDTH), sort.order.size
    reads = {"order": sort.order, "starts": sort.starts, "values": values}
    for first in range(0, entries, MOST):
        words = {"size": sums.size, "columns": segments.columns, "entries": entries}
        title = f"sums of {segments.rows} segments from {first} on"
        program, words["first"] = SegmentProgram(first > 0), first
        yield by_groups(program, reads, {"sums": sums}, groups, title, words)
