"""Graphs as functions: what they compute of other values, written into the graph of these."""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.expr.graph.node import Graph, inputs_of, reachable
from symgrad.expr.graph.rebuild import Copy, rebuild
from symgrad.expr.tracers.expression import Expr


def replay(graph: Graph, roots: Sequence[int], values: Sequence[Expr]) -> list[Expr]:
    """What the roots of a graph are where its inputs are these expressions, all of one graph."""
    ids = {i: values[graph.nodes[i][1]].id for i in inputs_of(graph)}
    copy = Copy(values[0].graph, ids)
    rebuild(graph, reachable(graph, roots), copy)
    return [Expr(copy.graph, copy.ids[r]) for r in roots]
