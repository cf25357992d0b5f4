"""Scheduling: which values get a name, in which order, and in which shader and function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.reach import reachable
from symgrad.kernel.cut import Cutter, Limits, sums
from symgrad.kernel.plan import Output, Piece, Plan, Store

T = TypeVar("T")

MAX_FOLDED = 12
"""Operations in one statement, at most."""

MAX_DEPTH = 8
"""Nested operations in one statement, at most."""


def schedule(
    name: str, graph: Graph, outputs: Sequence[Output], limits: Limits | None = None
) -> Plan:
    """The plan of a map kernel with these outputs."""
    limits = limits or Limits()
    roots = [i for output in outputs for i in output.nodes]
    order = [i for i in reachable(graph, roots) if graph.nodes[i][0].arity]
    bound = bind(graph, order, roots)
    statements = [i for i in order if i in bound]
    stores = [Store(o, c, i) for o, out in enumerate(outputs) for c, i in enumerate(out.nodes)]
    if _fits(graph, order, statements, stores, limits):
        whole = Piece((tuple(statements),) if statements else (), (), (), tuple(stores))
        return Plan(name, graph, tuple(outputs), bound, (whole,), ())
    cutter = Cutter(graph, statements, bound, Counter(s.node for s in stores), limits)
    return _plan(name, outputs, bound, cutter, stores)


def _fits(
    graph: Graph, order: Sequence[int], statements: Sequence[int], stores: Sequence[Store],
    limits: Limits,
) -> bool:  # fmt: skip
    """Whether one function of one shader can hold everything."""
    return (
        len(statements) <= min(limits.statements, limits.function)
        and len(graph.names) + len(stores) <= limits.accesses
        and sum(graph.nodes[i][0].transcendental for i in order) <= limits.transcendentals
    )


def bind(
    graph: Graph,
    order: Sequence[int],
    roots: Sequence[int],
    others: Mapping[int, int] | None = None,
) -> frozenset[int]:
    """The nodes that get a name.

    These are outputs, values used more than once, and enough others to keep expressions short.
    ``others`` says how often something else than the nodes in ``order`` uses a value.
    """
    nodes = graph.nodes
    uses = [0] * len(nodes)
    for i, count in (others or {}).items():
        uses[i] = count
    for i in order:
        for a in nodes[i][1:]:
            uses[a] += 1
    bound = {i for i in order if uses[i] != 1}
    bound.update(i for i in roots if nodes[i][0].arity)
    size = [0] * len(nodes)
    depth = [0] * len(nodes)
    for i in order:
        total = deepest = 0
        for a in nodes[i][1:]:
            if size[a] and a not in bound:
                total += size[a]
                deepest = max(deepest, depth[a])
        if total >= MAX_FOLDED or deepest >= MAX_DEPTH:
            total, deepest = _shorten(nodes[i][1:], size, depth, bound)
        size[i], depth[i] = total + 1, deepest + 1
    return frozenset(bound)


def _shorten(
    args: Sequence[int], size: Sequence[int], depth: Sequence[int], bound: set[int]
) -> tuple[int, int]:
    """Bind the largest arguments until the rest is short; its size and depth."""
    folded = [a for a in args if size[a] and a not in bound]
    while folded and (
        sum(size[a] for a in folded) >= MAX_FOLDED or max(depth[a] for a in folded) >= MAX_DEPTH
    ):
        largest = max(folded, key=size.__getitem__)
        bound.add(largest)
        folded = [a for a in folded if a != largest]
    return sum(size[a] for a in folded), max((depth[a] for a in folded), default=0)


def _plan(
    name: str, outputs: Sequence[Output], bound: frozenset[int], cutter: Cutter,
    stores: Sequence[Store],
) -> Plan:  # fmt: skip
    groups = cutter.shaders()
    home = {i: g for g, group in enumerate(groups) for i in group}
    foreign = _from_elsewhere(cutter, groups)
    rows = _scratch_rows(cutter, foreign, home)
    made = [s for s in stores if s.node in home]
    spills = _sorted_out(range(len(rows)), [home[row[0]] for row in rows], len(groups))
    stored = _sorted_out(made, [home[s.node] for s in made], len(groups))
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
    return Plan(name, cutter.graph, tuple(outputs), bound, tuple(pieces), tuple(rows))


def _sorted_out(things: Iterable[T], homes: Iterable[int], count: int) -> list[list[T]]:
    """The things of each shader, in their order; ``homes`` are the numbers of theirs."""
    found: list[list[T]] = [[] for _ in range(count)]
    for thing, home in zip(things, homes, strict=True):
        found[home].append(thing)
    return found


def _with_leaf_stores(pieces: list[Piece], stores: Sequence[Store], limits: Limits) -> list[Piece]:
    """The shaders, with the columns that are constants or inputs, which no statement makes."""
    if pieces and len(stores) <= limits.accesses // 8:
        return [replace(pieces[0], stores=(*pieces[0].stores, *stores)), *pieces[1:]]
    size = limits.accesses
    chunks = [tuple(stores[k : k + size]) for k in range(0, len(stores), size)]
    return pieces + [Piece((), (), (), chunk) for chunk in chunks]


def _from_elsewhere(cutter: Cutter, groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each shader, its reads of values that others make."""
    made, starts = cutter.made[cutter.reads.names], cutter.reads.starts
    ends = sums([len(group) for group in groups])
    bounds = zip(ends[:-1], starts[ends[:-1]], starts[ends[1:]], strict=True)
    return [
        first + np.flatnonzero((made[first:last] >= 0) & (made[first:last] < start))
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
