"""Which nodes of a graph others need, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from symgrad.expr.graph.node import ANY_INPUT, Graph

_STRETCH: Final = 64
"""Nodes that are looked at one by one before the next one that is needed is searched for."""


def reachable(graph: Graph, roots: Iterable[int], start: int = 0) -> list[int]:
    """The ids that the roots depend on, the roots among them, in ascending order from ``start``.

    Users stand behind their arguments: from the last root down, each node is seen once.
    """
    nodes, ends = graph.nodes, [*roots]
    needed = bytearray(max(ends, default=-1) + 1)
    for i in ends:
        needed[i] = 1
    order: list[int] = []
    end = len(needed)
    while (last := needed.rfind(1, start, end)) >= 0:
        end = max(start, last + 1 - _STRETCH)
        for i in range(last, end - 1, -1):
            if not needed[i]:
                continue
            order.append(i)
            node = nodes[i]
            arity = node[0].arity
            if arity == 2:  # as the last, but most are one of these: in half the time
                needed[node[1]] = needed[node[2]] = 1
            elif arity == 1:
                needed[node[1]] = 1
            elif arity == 3:
                needed[node[1]] = needed[node[2]] = needed[node[3]] = 1
            elif arity:
                for a in node[1:]:
                    needed[a] = 1
    order.reverse()
    return order


def inputs_of(graph: Graph) -> list[int]:
    """The input nodes, by input number."""
    numbered = {node[1]: i for i, node in enumerate(graph.nodes) if node[0] in ANY_INPUT}
    return [numbered[k] for k in sorted(numbered)]


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
    marks = bytearray(len(graph))
    for r in ranges:
        marks[r.start : r.stop] = b"\1" * len(r)
    return marks


def leaves(graph: Graph, order: Iterable[int]) -> Iterator[int]:
    """Those of these nodes that have no arguments."""
    return (i for i in order if not graph.nodes[i][0].arity)
