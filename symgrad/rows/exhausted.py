"""How many rows of a table have loops that need more iterations than they may take."""

from __future__ import annotations

from dataclasses import replace

from symgrad.expr.graph.node import INPUT
from symgrad.expr.tracing.gather import RowTrace
from symgrad.report.exhausted import flag
from symgrad.rows.loss import Request, Traced, contributions, reduced


def flagged(request: Request, traced: Traced) -> Traced | None:
    """A trace that sums up to the number of such rows, for the same parameters; None if all end."""
    graph = traced.expressions.graph.copy()
    root = flag(graph, traced.expressions.groups[0])
    if root is None:
        return None
    ids = {node[1]: i for i, node in enumerate(graph.nodes) if node[0] is INPUT}
    inputs = iter([ids[k] for k in sorted(ids)])
    parameters = {k: next(inputs) for k in traced.read}
    columns = {k: next(inputs) for k in traced.columns.numbers}
    gathers = tuple(
        replace(g, inputs=tuple(next(inputs) for _ in g.inputs)) for g in traced.gathers
    )
    every = tuple(columns.get(k, -1) for k in range(traced.columns.count))
    trace = RowTrace(graph, parameters, every, gathers, (root,), traced.tree)
    summed = {"exhausted": contributions(request, trace, [root])}
    added = [graph.constant(0.0)] * sum(len(g.inputs) for g in gathers)
    used, reduction = reduced(request.options, trace, summed, added, traced.columns.indices)
    return replace(traced, reduction=reduction, used=used, graded=())
