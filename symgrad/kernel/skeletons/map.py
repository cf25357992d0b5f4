"""The map over points: one invocation for each, which reads its inputs and writes its results."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, paused_gc, reachable
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.lower import numbers, written
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.results import store, stretches
from symgrad.kernel.views import views


@paused_gc()
def map_program(computation: Computation, target: Target) -> KernelIR:
    """The kernel that computes the outputs of a computation at every point.

    Its buffers are ``x`` (points, inputs), which is read, ``constants``, if there are tables of
    them, and one for each output, (points, columns), all in C order.
    """
    make = _structured if computation.is_structured else _straight
    return make(computation, target)


def _straight(computation: Computation, target: Target) -> KernelIR:
    """The kernel of a graph without loops: its arena is the graph's, with a few words behind."""
    graph, roots = computation.graph, [i for o in computation.outputs for i in o.nodes]
    k, order = KernelIR(target, computation.name, graph), reachable(graph, roots)
    x = k.buffer("x", "read")
    outputs = [k.buffer(o.name, "write") for o in computation.outputs]
    inputs = {graph.nodes[i][1]: i for i in order if graph.nodes[i][0] is INPUT}
    if inputs:
        k.names |= {i: graph.names[number] for number, i in inputs.items()}
        k.read_row(x, target.point(k), len(graph.names), inputs)
    k.compute(order)
    for buffer, o in zip(outputs, computation.outputs, strict=True):
        k.store_row(buffer, o.nodes)
    return k


def _structured(computation: Computation, target: Target) -> KernelIR:
    """The kernel of a graph with loops, choices or arrays, which become statements."""
    k, graph = KernelIR(target, computation.name), computation.graph
    x, n = k.buffer("x", "read"), len(graph.names)
    row = k.offset(target.point(k), n, 0)

    def column(i: int) -> int:
        number = graph.nodes[i][1]
        value = k.load(x, k.shifted(row, number))
        k.names[value] = graph.names[number]
        return value

    parts = [stretches(graph, o.nodes) for o in computation.outputs]
    roots = [part.root for output_parts in parts for part in output_parts]
    row_views = views(k, graph, roots, x, row)
    outputs = [k.buffer(o.name, "write") for o in computation.outputs]
    values = iter(written(k, graph, roots, row_views, column))
    rows = [
        (buffer, len(o.nodes), output_parts, [next(values) for _ in output_parts])
        for buffer, o, output_parts in zip(outputs, computation.outputs, parts, strict=True)
    ]
    stretched = [row for row in rows if len(row[2]) < row[1]]

    def store_stretches() -> None:
        for row in stretched:
            store(k, *row)

    if stretched and not target.whole:
        k.when(k.add(ops.word_lt, k.cell, k.count), store_stretches)
    else:
        store_stretches()
    for buffer, columns, output_parts, results in rows:
        if len(output_parts) == columns:
            k.store_row(buffer, numbers(results))
    return k
