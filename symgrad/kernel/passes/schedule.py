"""Scheduling: which values of a straight kernel get a name, and in which shader and function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from symgrad.expr.graph.node import INPUT, Graph
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.passes.uses import Uses

# --- cuts -----------------------------------------------------------------------------------------
# Where a long kernel is cut, into shaders and into functions, so that it compiles in time.
#
# Compilers are superlinear in the length of a function and in the number of memory accesses of a
# shader; but every value that crosses a cut costs as well, as a private variable or as an access to
# scratch memory. Both were measured on llvmpipe. An n-th load or store costs about 10 us * n, so
# 256 of them take 0.7 s and 512 take 2.6 s; s statements in one function cost 0.2 ms * s + 1e-8 s *
# s**2; a value that crosses costs 2 ms. So a cut is made at the place with the fewest values alive,
# once they are few enough for the growth that it saves.

LOOK_AHEAD: Final = 4_096
"""Statements that are looked at together, at first, to find where a piece ends."""

Counts = npt.NDArray[np.int64]

Sizes = Callable[[int, int], np.ndarray]
"""``sizes(start, end)``: how full the piece that begins at ``start`` is after each statement."""


@dataclass(frozen=True)
class Limits:
    """How large a shader may grow before the graph is cut, if few values are alive there."""

    statements: int = 8_000
    transcendentals: int = 500
    accesses: int = 256
    """Loads of inputs and of values from other shaders, and stores of results."""
    crossing: int = 600
    """Values that may cross where a limit is just reached; f times as many at f times the limit."""
    function: int = 4_000
    """Statements in one function."""
    private: int = 15
    """Values that may cross between functions of this length; f**2 times as many at f times it."""


@dataclass(frozen=True)
class Reads:
    """The needs of statements, as arrays with an entry for each time that one needs something.

    Statement ``at[k]`` needs ``names[k]``, a bound node or an input; entries are in the order of
    the statements, those of statement s begin at ``starts[s]``. ``hard[s]`` counts its hard
    operations.
    """

    names: Counts
    at: Counts
    starts: Counts
    hard: Counts


def reads_of(graph: Graph, statements: Sequence[int], bound: frozenset[int]) -> Reads:
    """The needs of these bound nodes, with all that is folded into their statements."""
    nodes = graph.nodes
    names: list[int] = []
    counts: list[int] = []
    hard: list[int] = []
    for i in statements:
        op, *stack = nodes[i]
        before, difficult = len(names), int(op.transcendental)
        for a in stack:  # it grows
            if a in bound:
                names.append(a)
                continue
            inner = nodes[a]
            if inner[0].arity:
                difficult += inner[0].transcendental
                stack += inner[1:]
            elif inner[0] is INPUT:
                names.append(a)
        counts.append(len(names) - before)
        hard.append(difficult)
    at = np.repeat(np.arange(len(statements)), np.array(counts, np.int64))
    return Reads(np.array(names, np.int64), at, sums(counts), np.array(hard, np.int64))


def sums(values: Sequence[int] | np.ndarray) -> Counts:
    """0, and the sums of the first, the first two, ... values."""
    return np.concatenate([[0], np.cumsum(values, dtype=np.int64)])


class Cutter:
    """The statements of a kernel, what they read, and how many values are alive after each.

    ``maker[i]`` is the number of the statement that makes node i, -1 if none does; ``stores`` says
    how often a value is stored.
    """

    def __init__(
        self,
        graph: Graph,
        statements: Sequence[int],
        bound: frozenset[int],
        stores: Mapping[int, int],
        limits: Limits,
    ) -> None:
        self.graph, self.statements, self.limits = graph, statements, limits
        self.reads = reads_of(graph, statements, bound)
        self.maker = np.full(len(graph), -1)
        self.maker[np.array(statements, np.int64)] = np.arange(len(statements))
        self._before, last = self._met_before()
        self.alive = self._alive_after(last)
        self._hard = sums(self.reads.hard)
        self._stored = sums([stores.get(i, 0) for i in statements])

    def _met_before(self) -> tuple[Counts, Counts]:
        """For each read, the statement that had to do with its name before; -1 if none had.

        Second, the reads that are the last ones of their names.
        """
        names, at = self.reads.names, self.reads.at
        together = np.argsort(names, kind="stable")
        again = np.flatnonzero(np.diff(names[together], prepend=-1) == 0)
        before = self.maker[names]
        before[together[again]] = at[together[again - 1]]
        return before, together[np.diff(names[together], append=-1) != 0]

    def _alive_after(self, last: Counts) -> Counts:
        makers, read = self.maker[self.reads.names[last]], self.reads.at[last]
        count = len(self.statements)
        born = np.bincount(makers[makers >= 0], minlength=count)
        return np.cumsum(born - np.bincount(read[makers >= 0], minlength=count))

    def shaders(self) -> list[list[int]]:
        """The statements of each shader."""
        groups: list[list[int]] = []
        start, end = 0, len(self.statements)
        while start < end:
            stop = self._end(start, end, self._shader_sizes, self.limits.crossing, 1)
            groups.append(list(self.statements[start:stop]))
            start = stop
        return groups

    def functions(self, start: int, end: int) -> Iterator[tuple[int, ...]]:
        """The statements from ``start`` to ``end``, which are one shader, in functions."""
        while start < end:
            stop = self._end(start, end, self._function_sizes, self.limits.private, 2)
            yield tuple(self.statements[start:stop])
            start = stop

    def _end(self, start: int, end: int, sizes: Sizes, crossing: int, growth: int) -> int:
        """Where the piece that begins at ``start`` ends: at ``end``, if nowhere before.

        That is where the fewest values are alive in what it may hold, once they are few enough.
        """
        ahead = LOOK_AHEAD
        while start + ahead < end:
            cut = self._cut(start, sizes(start, start + ahead), crossing, growth)
            if cut:
                return cut
            ahead *= 2
        return self._cut(start, sizes(start, end), crossing, growth) or end

    def _cut(self, start: int, sizes: np.ndarray, crossing: int, growth: int) -> int:
        """The end of a piece that gets as full as ``sizes`` say; 0 if it goes on behind them."""
        first = int(np.searchsorted(sizes, 0.6))
        alive = self.alive[start + first : start + len(sizes)]
        sizes = sizes[first:]
        fewest = np.minimum.accumulate(alive)
        few_enough = (sizes >= 1) & (fewest <= crossing * sizes**growth)
        if not few_enough.any():
            return 0
        last = int(np.argmax(few_enough))
        return start + first + last + 1 - int(np.argmin(alive[last::-1]))

    def _shader_sizes(self, start: int, end: int) -> np.ndarray:
        """How full a shader is after each statement, in terms of its tightest limit."""
        limits, ends = self.limits, slice(start + 1, end + 1)
        starts = self.reads.starts
        new = sums(self._before[starts[start] : starts[end]] < start)
        accesses = new[starts[ends] - starts[start]] + self._stored[ends] - self._stored[start]
        statements = np.arange(1, end - start + 1) / limits.statements
        hard = (self._hard[ends] - self._hard[start]) / limits.transcendentals
        return np.maximum(statements, np.maximum(hard, accesses / limits.accesses))

    def _function_sizes(self, start: int, end: int) -> np.ndarray:
        """How full a function is after each statement."""
        return np.arange(1, end - start + 1) / self.limits.function


# --- schedules ------------------------------------------------------------------------------------

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """The value of ``node`` goes to a column of the rows that a kernel stores."""

    output: int
    column: int
    node: int


@dataclass(frozen=True)
class Piece:
    """One shader of a submit.

    ``parts`` are its functions: the nodes that each binds to a name, in order. ``fetches`` and
    ``spills`` are the scratch rows, of up to four values, that it reads and writes.
    """

    parts: tuple[tuple[int, ...], ...]
    fetches: tuple[int, ...]
    spills: tuple[int, ...]
    stores: tuple[Column, ...]


@dataclass(frozen=True)
class Plan:
    """A straight kernel in shaders: every point is computed by itself.

    Invariants:
      1. Every node in a part depends only on inputs, constants, nodes bound before it in its
         piece, nodes of the piece's fetched rows, and nodes bound nowhere, which are folded into
         the expression of their only user.
      2. Every column of every output is stored exactly once.
    """

    kernel: KernelIR
    uses: Uses = field(repr=False)
    pieces: tuple[Piece, ...]
    scratch: tuple[tuple[int, ...], ...]
    """The rows of the scratch array: the nodes that are kept in each."""

    @property
    def graph(self) -> Graph:
        """The nodes."""
        return self.kernel.graph

    @property
    def bound(self) -> frozenset[int]:
        """The nodes that get a name."""
        return self.uses.bound

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of the values that are kept in scratch memory."""
        return {self.graph.type(i) for row in self.scratch for i in row}

    def __repr__(self) -> str:
        statements = sum(len(part) for piece in self.pieces for part in piece.parts)
        return f"<Plan {self.kernel.name}: {statements} statements in {len(self.pieces)} kernels>"


def schedule(kernel: KernelIR, limits: Limits | None = None) -> Plan:
    """The plan of a map over points without loops."""
    limits, uses, graph = limits or Limits(), Uses(kernel), kernel.graph
    order = kernel.computed
    statements = [i for i in order if i in uses.bound]
    rows = enumerate(uses.stored)
    stores = [Column(o, c, i) for o, row in rows for c, i in enumerate(row.values)]
    if _fits(graph, order, statements, stores, limits):
        whole = Piece((tuple(statements),) if statements else (), (), (), tuple(stores))
        return Plan(kernel, uses, (whole,), ())
    cutter = Cutter(graph, statements, uses.bound, Counter(s.node for s in stores), limits)
    return _plan(kernel, uses, cutter, stores)


def _fits(
    graph: Graph,
    order: Sequence[int],
    statements: Sequence[int],
    stores: Sequence[Column],
    limits: Limits,
) -> bool:
    """Whether one function of one shader can hold everything."""
    return (
        len(statements) <= min(limits.statements, limits.function)
        and len(graph.names) + len(stores) <= limits.accesses
        and sum(graph.nodes[i][0].transcendental for i in order) <= limits.transcendentals
    )


def _plan(kernel: KernelIR, uses: Uses, cutter: Cutter, stores: Sequence[Column]) -> Plan:
    groups = cutter.shaders()
    home = {i: g for g, group in enumerate(groups) for i in group}
    foreign = _from_elsewhere(cutter, groups)
    rows = _scratch_rows(cutter, foreign, home)
    computed_stores = [s for s in stores if s.node in home]
    spills = _sorted_out(range(len(rows)), [home[row[0]] for row in rows], len(groups))
    stored = _sorted_out(computed_stores, [home[s.node] for s in computed_stores], len(groups))
    row_of = {i: r for r, row in enumerate(rows) for i in row}
    pieces: list[Piece] = []
    start = 0
    for g, group in enumerate(groups):
        needed = cutter.reads.names[foreign[g]].tolist()
        fetches = tuple(sorted({row_of[a] for a in needed}))
        parts = tuple(cutter.functions(start, start + len(group)))
        pieces.append(Piece(parts, fetches, tuple(spills[g]), tuple(stored[g])))
        start += len(group)
    leaf_stores = [s for s in stores if s.node not in home]
    pieces = _with_leaf_stores(pieces, leaf_stores, cutter.limits)
    return Plan(kernel, uses, tuple(pieces), tuple(rows))


def _sorted_out(things: Iterable[T], homes: Iterable[int], count: int) -> list[list[T]]:
    """Things grouped by shader, in order; ``homes`` are the numbers of their shaders."""
    by_shader: list[list[T]] = [[] for _ in range(count)]
    for thing, home in zip(things, homes, strict=True):
        by_shader[home].append(thing)
    return by_shader


def _with_leaf_stores(pieces: list[Piece], stores: Sequence[Column], limits: Limits) -> list[Piece]:
    """The shaders, with the columns that are constants or inputs, which no statement makes."""
    if pieces and len(stores) <= limits.accesses // 8:
        return [replace(pieces[0], stores=(*pieces[0].stores, *stores)), *pieces[1:]]
    size = limits.accesses
    chunks = [tuple(stores[k : k + size]) for k in range(0, len(stores), size)]
    return pieces + [Piece((), (), (), chunk) for chunk in chunks]


def _from_elsewhere(cutter: Cutter, groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each shader, its reads of values that others make."""
    makers, starts = cutter.maker[cutter.reads.names], cutter.reads.starts
    ends = sums([len(group) for group in groups])
    bounds = zip(ends[:-1], starts[ends[:-1]], starts[ends[1:]], strict=True)
    return [
        first + np.flatnonzero((makers[first:last] >= 0) & (makers[first:last] < start))
        for start, first, last in bounds
    ]


def _scratch_rows(
    cutter: Cutter, foreign: Sequence[np.ndarray], home: Mapping[int, int]
) -> list[tuple[int, ...]]:
    """The values that cross from one shader to another, four to a row.

    A row holds values of one shader that are first needed together.
    """
    reads = np.concatenate([*foreign, np.zeros(0, np.int64)])
    names, first = np.unique(cutter.reads.names[reads], return_index=True)
    by_use = np.lexsort((names, cutter.reads.at[reads[first]]))
    crossing: list[list[int]] = [[] for _ in foreign]
    for a in names[by_use].tolist():
        crossing[home[a]].append(a)
    return [tuple(mine[k : k + 4]) for mine in crossing for k in range(0, len(mine), 4)]
