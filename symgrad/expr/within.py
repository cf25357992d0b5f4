"""Passes that work on one graph at a time, done within the regions of a graph as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symgrad.expr.node import Graph, Op, reachable
from symgrad.expr.region import Choice, Loop, Region, Regional, choice_op, loop_op
from symgrad.expr.simplify import inputs_of

Pass = Callable[[Graph, Sequence[int]], tuple[Graph, list[int]]]
"""``(graph, roots) -> (graph, roots)``, which keeps all inputs, in order."""


def in_regions(graph: Graph, roots: Sequence[int], transform: Pass) -> tuple[Graph, list[int]]:
    """The graph with each region that the roots need as ``transform`` makes it.

    The regions within regions are left to ``transform``; so is the graph itself.
    """
    order = reachable(graph, roots)
    regional = {graph.nodes[i][0] for i in order if isinstance(graph.nodes[i][0], Regional)}
    new: dict[Op, Op] = {op: _transformed(op, transform) for op in regional}
    if all(op is other for op, other in new.items()):
        return graph, list(roots)
    return _with_operations(graph, roots, order, new)


def _transformed(op: Loop | Choice, transform: Pass) -> Loop | Choice:
    body = op.body
    graph, yields = transform(body.graph, body.yields)
    if graph is body.graph and tuple(yields) == body.yields:
        return op
    made = Region(graph, tuple(inputs_of(graph)), tuple(yields))
    if isinstance(op, Loop):
        return loop_op(made, op.carries, op.test, op.down, op.most)
    return choice_op(made, op.results)


def _with_operations(
    graph: Graph, roots: Sequence[int], order: Sequence[int], new: dict[Op, Op]
) -> tuple[Graph, list[int]]:
    """A copy of the nodes in ``order``, and of all inputs, with other operations for some."""
    made = Graph()
    made.tracing, made.sources = False, graph.sources
    ids = [-1] * len(graph)
    for i in inputs_of(graph):
        op, number, *length = graph.nodes[i]
        ids[i] = made.input(graph.names[number], op.result, *length)
    for i in order:
        op: Op = graph.nodes[i][0]
        made.place = graph.places[i]
        if op.arity:
            ids[i] = made.add(new.get(op, op), *[ids[a] for a in graph.args(i)])
        elif ids[i] < 0:
            ids[i] = made.intern(graph.nodes[i])
    return made, [ids[r] for r in roots]
