"""Passes that work on one graph at a time, done within the regions of a graph as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.graph.reach import inputs_of
from symgrad.expr.graph.rebuild import continued, rebuild
from symgrad.expr.graph.region import (
    Choice,
    Loop,
    Region,
    Regional,
    choice_op,
    from_regions_on,
    loop_op,
)

Pass = Callable[[Graph, Sequence[int]], tuple[Graph, list[int]]]
"""``(graph, roots) -> (graph, roots)``, which keeps all inputs, in order."""


def in_regions(graph: Graph, roots: Sequence[int], transform: Pass) -> tuple[Graph, list[int]]:
    """The graph with each region that the roots need as ``transform`` makes it.

    The regions within regions are left to ``transform``; so is the graph itself.
    """
    order = from_regions_on(graph, roots)
    regional = {i: graph.nodes[i][0] for i in order if isinstance(graph.nodes[i][0], Regional)}
    new = {op: _transformed(op, transform) for op in set(regional.values())}
    if all(op is other for op, other in new.items()):
        return graph, list(roots)
    start = min(regional)
    copy, later = continued(graph, start), (i for i in order if i >= start)

    def make(op: Op, *args: int) -> int:
        return copy.graph.add(new[op], *args)

    return rebuild(graph, later, copy, changed=dict.fromkeys(regional, make)).of(roots)


def _transformed(op: Loop | Choice, transform: Pass) -> Loop | Choice:
    body = op.body
    graph, yields = transform(body.graph, body.yields)
    if graph is body.graph and tuple(yields) == body.yields:
        return op
    region = Region(graph, tuple(inputs_of(graph)), tuple(yields))
    if isinstance(op, Loop):
        return loop_op(region, op.carries, op.test, op.down, op.most)
    return choice_op(region, op.results)
