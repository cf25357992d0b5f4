"""Which values get a name, and which are part of the expression of what needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symgrad.expr.graph.node import Graph

MAX_FOLDED = 12
"""Operations in one statement, at most."""

MAX_DEPTH = 8
"""Nested operations in one statement, at most."""


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
