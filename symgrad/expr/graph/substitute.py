"""Substitution: the same graph with some nodes in the place of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.reach import reachable
from symgrad.expr.graph.rebuild import Copy, rebuild


def substitute(graph: Graph, root: int, replacements: Mapping[int, int]) -> int:
    """The node that ``root`` becomes when each key's node is replaced by its value's."""
    return substituted(graph, [root], replacements)[0]


def substituted(graph: Graph, roots: Sequence[int], replacements: Mapping[int, int]) -> list[int]:
    """What each of the roots becomes when each key's node is replaced by its value's."""
    order = reachable(graph, roots, min(replacements, default=len(graph)))
    new = {a: a for i in order for a in (i, *graph.args(i))} | dict(replacements)
    rebuild(graph, [i for i in order if i not in replacements], Copy(graph, new))
    return [new.get(root, root) for root in roots]
