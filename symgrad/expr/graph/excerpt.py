"""The end of a graph as a graph of its own: what is tried there costs nothing of what is before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile

from symgrad.expr.graph.node import INPUT, Graph
from symgrad.expr.graph.rebuild import Copy, rebuild


def excerpt(graph: Graph, roots: Sequence[int], start: int) -> tuple[Graph, dict[int, int]]:
    """What the roots need from the node ``start`` on, and the new ids of nodes, in order.

    Numbers that were computed before are inputs; conditions before are made of such.
    """
    order = _needed(graph, roots, start)
    given = [i for i in order if graph.nodes[i][0] is INPUT or _is_cut(graph, i, start)]
    part = Graph.of([], [], (), graph.sources)
    new = {i: part.input("") for i in given}
    rest = [i for i in order if i not in new]
    rebuild(graph, rest, Copy(part, new))
    near = takewhile(lambda r: r.stop > start, reversed(graph.derived))
    ends = [[len(given) + bisect_left(rest, i) for i in (r.start, r.stop)] for r in near]
    part.derived = [range(*pair) for pair in reversed(ends)]
    return part, new


def _is_cut(graph: Graph, i: int, start: int) -> bool:
    """Whether a node is an input of the excerpt."""
    return i < start and bool(graph.nodes[i][0].arity) and graph.type(i) == "f"


def _needed(graph: Graph, roots: Sequence[int], start: int) -> list[int]:
    """The nodes of the excerpt, in ascending order."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        i = stack.pop()
        if not _is_cut(graph, i, start):
            new = [a for a in graph.args(i) if a not in seen]
            seen.update(new)
            stack += new
    return sorted(seen)
