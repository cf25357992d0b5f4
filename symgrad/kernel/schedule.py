"""Scheduling: which values of a straight kernel get a name, and in which shader and function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.kernel.cut import Cutter, Limits, sums
from symgrad.kernel.language import KernelIR
from symgrad.kernel.uses import Uses

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
