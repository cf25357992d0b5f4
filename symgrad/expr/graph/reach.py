"""Which nodes of a graph others need, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from symgrad.expr.graph.node import ANY_INPUT, Graph, Op


def reachable(graph: Graph, roots: Iterable[int], start: int = 0) -> list[int]:
    """The ids that the roots depend on, the roots among them, in ascending order from ``start``."""
    nodes = graph.nodes
    seen = {i for i in roots if i >= start}
    found = list(seen)
    for i in found:  # which grows meanwhile
        node = nodes[i]
        if node[0].arity:
            for a in node[1:]:
                if a not in seen and a >= start:
                    seen.add(a)
                    found.append(a)
    found.sort()
    return found


def inputs_of(graph: Graph) -> list[int]:
    """The input nodes, by input number."""
    numbered = {node[1]: i for i, node in enumerate(graph.nodes) if node[0] in ANY_INPUT}
    return [numbered[k] for k in sorted(numbered)]


def heads(graph: Graph) -> set[Op]:
    """The operations and leaves that occur in a graph, needed or not."""
    return {node[0] for node in graph.nodes}


def users(graph: Graph, order: Sequence[int]) -> dict[int, int]:
    """How often each of these nodes is an argument of another of them."""
    counts = dict.fromkeys(order, 0)
    nodes = graph.nodes
    for i in order:
        node = nodes[i]
        if node[0].arity:
            for a in node[1:]:
                counts[a] += 1
    return counts


def flags(graph: Graph, ranges: Iterable[range]) -> bytearray:
    """1 for the nodes in these ranges, 0 for all others."""
    found = bytearray(len(graph))
    for r in ranges:
        found[r.start : r.stop] = b"\1" * len(r)
    return found


def leaves(graph: Graph, order: Iterable[int]) -> Iterator[int]:
    """Those of these nodes that have no arguments."""
    return (i for i in order if not graph.nodes[i][0].arity)
