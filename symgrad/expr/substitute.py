"""Substitution: the same graph with some nodes in the place of others."""

from __future__ import annotations

from collections.abc import Mapping

from symgrad.expr.node import Graph, reachable


def substitute(graph: Graph, root: int, replacements: Mapping[int, int]) -> int:
    """The node that ``root`` becomes when each key's node is replaced by its value's."""
    made = dict(replacements)
    for i in reachable(graph, [root], min(made, default=len(graph))):
        node = graph.nodes[i]
        if i not in made and node[0].arity:
            made[i] = graph.add(node[0], *[made.get(a, a) for a in graph.args(i)])
    return made.get(root, root)
