"""Scheduling: which values get a name, in which order, and where a long kernel is cut.

Compile time is what cuts are for: shader compilers are superlinear in the length of a function and
in the number of memory accesses of a kernel. Both limits were measured on llvmpipe: 400 loads cost
4 ms each, 100 loads 1.6 ms each; 20,000 statements in one function 1.5 times what they cost in
functions of 500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symgrad.expr.node import INPUT, Graph, reachable
from symgrad.kernel.plan import Output, Piece, Plan, Store

MAX_FOLDED = 12
"""Operations in one statement, at most."""

MAX_DEPTH = 8
"""Nested operations in one statement, at most."""

PART = 500
"""Statements in one function."""


@dataclass(frozen=True)
class Limits:
    """How large one shader may grow before the graph is cut into several."""

    statements: int = 8_000
    transcendentals: int = 500
    accesses: int = 576
    """Loads and stores; what is beyond is cut into pieces of ``accesses_when_cut``."""
    accesses_when_cut: int = 256


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
        whole = Piece(_parts(statements), (), (), tuple(stores))
        return Plan(name, graph, tuple(outputs), bound, (whole,), ())
    reads = {i: reads_of(graph, i, bound) for i in statements}
    groups = _cut(graph, statements, reads, stores, limits)
    return _plan(name, graph, outputs, bound, groups, reads, stores)


@dataclass(frozen=True)
class Reads:
    """What a statement needs: the bound nodes and inputs it reads, and its hard operations."""

    names: tuple[int, ...]
    transcendentals: int


def bind(graph: Graph, order: Sequence[int], roots: Sequence[int]) -> frozenset[int]:
    """The nodes that get a name.

    These are outputs, values used more than once, and enough others to keep expressions short.
    """
    nodes = graph.nodes
    uses = [0] * len(nodes)
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


def reads_of(graph: Graph, i: int, bound: frozenset[int]) -> Reads:
    """The bound nodes and inputs that the statement of node i reads, each once."""
    nodes = graph.nodes
    found: dict[int, None] = {}
    hard = int(nodes[i][0].transcendental)
    stack = list(nodes[i][1:])
    while stack:
        a = stack.pop()
        if a in bound or nodes[a][0] is INPUT:
            found[a] = None
        elif nodes[a][0].arity:
            hard += nodes[a][0].transcendental
            stack.extend(nodes[a][1:])
    return Reads(tuple(found), hard)


# --- cutting --------------------------------------------------------------------------------------


def _cut(
    graph: Graph, statements: Sequence[int], reads: dict[int, Reads], stores: Sequence[Store],
    limits: Limits,
) -> list[list[int]]:  # fmt: skip
    """The statements in groups, one for each shader, cut where few values are alive."""
    alive = _alive_after(graph, statements, reads)
    stored = {s.node for s in stores}
    groups: list[list[int]] = []
    start = 0
    while start < len(statements):
        end = _end_of_group(statements, start, alive, reads, stored, limits)
        groups.append(list(statements[start:end]))
        start = end
    return groups


def _end_of_group(
    statements: Sequence[int], start: int, alive: Sequence[int], reads: dict[int, Reads],
    stored: set[int], limits: Limits,
) -> int:  # fmt: skip
    """Where the shader that begins at ``start`` should end.

    That is in the last part of what it may hold, where the fewest values are alive.
    """
    hard = accesses = 0
    seen: set[int] = set()
    best = 0
    for k in range(start, len(statements)):
        i = statements[k]
        fresh = [a for a in reads[i].names if a not in seen]
        seen.update(fresh, (i,))
        hard += reads[i].transcendentals
        accesses += len(fresh) + (i in stored)
        full = max(
            (k - start + 1) / limits.statements,
            hard / limits.transcendentals,
            accesses / limits.accesses_when_cut,
        )
        if full >= 0.6 and (not best or alive[k] <= alive[best - 1]):
            best = k + 1
        if full >= 1:
            return best
    return len(statements)


def _fits(
    graph: Graph, order: Sequence[int], statements: Sequence[int], stores: Sequence[Store],
    limits: Limits,
) -> bool:  # fmt: skip
    """Whether one shader can hold everything."""
    return (
        len(statements) <= limits.statements
        and len(graph.names) + len(stores) <= limits.accesses
        and sum(graph.nodes[i][0].transcendental for i in order) <= limits.transcendentals
    )


def _alive_after(graph: Graph, statements: Sequence[int], reads: dict[int, Reads]) -> list[int]:
    """How many bound values are alive after each statement."""
    last = {a: k for k, i in enumerate(statements) for a in reads[i].names}
    dying = [0] * len(statements)
    for a, k in last.items():
        if graph.nodes[a][0].arity:
            dying[k] += 1
    alive, count = [], 0
    for k, i in enumerate(statements):
        count += (i in last) - dying[k]
        alive.append(count)
    return alive


# --- the plan of the groups -----------------------------------------------------------------------


def _plan(
    name: str, graph: Graph, outputs: Sequence[Output], bound: frozenset[int],
    groups: Sequence[Sequence[int]], reads: dict[int, Reads], stores: Sequence[Store],
) -> Plan:  # fmt: skip
    home = {i: g for g, group in enumerate(groups) for i in group}
    rows = _scratch_rows(groups, reads, home)
    row_of = {i: r for r, row in enumerate(rows) for i in row}
    spills: list[list[int]] = [[] for _ in groups]
    for r, row in enumerate(rows):
        spills[home[row[0]]].append(r)
    stored: list[list[Store]] = [[] for _ in groups]
    for s in stores:
        stored[home.get(s.node, 0)].append(s)
    pieces = []
    for g, group in enumerate(groups):
        foreign = {a for i in group for a in reads[i].names if home.get(a, g) != g}
        fetches = tuple(sorted({row_of[a] for a in foreign}))
        pieces.append(Piece(_parts(group), fetches, tuple(spills[g]), tuple(stored[g])))
    return Plan(name, graph, tuple(outputs), bound, tuple(pieces), tuple(rows))


def _parts(group: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group[k : k + PART]) for k in range(0, len(group), PART))


def _scratch_rows(
    groups: Sequence[Sequence[int]], reads: dict[int, Reads], home: dict[int, int]
) -> list[tuple[int, ...]]:
    """The values that cross from one shader to another, four to a row.

    A row holds values of one shader that are first needed together.
    """
    first_use: dict[int, tuple[int, int]] = {}
    for g, group in enumerate(groups):
        for k, i in enumerate(group):
            for a in reads[i].names:
                if home.get(a, g) != g:
                    first_use.setdefault(a, (g, k))
    crossing: list[list[int]] = [[] for _ in groups]
    for a in sorted(first_use, key=lambda a: (first_use[a], a)):
        crossing[home[a]].append(a)
    return [tuple(mine[k : k + 4]) for mine in crossing for k in range(0, len(mine), 4)]
