"""The map over points: one invocation for each, which reads its inputs and writes its results."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, paused_gc, reachable
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.launch import BATCH, Array, Dispatch, Launch, Size
from symgrad.kernel.lower import numbers, written
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.results import store, stretches
from symgrad.kernel.views import views

POINTS = "x"
"""The name of the buffer of points, and of the array in a launch."""


@dataclass(frozen=True)
class Map:
    """The program of a computation at every point."""

    computation: Computation

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        return map_program(self.computation, target)


def map_launch(
    computation: Computation, target: Target, columns_in: bool = False, columns_out: bool = False
) -> Launch:
    """The launch that computes the outputs of a computation at every point of a batch.

    The points are (B, inputs), and each output (B, columns), in C order; with ``columns_in`` the
    points are (inputs, B), and with ``columns_out`` the outputs (columns, B).
    """

    def shape(columns: int, by_columns: bool) -> tuple[int | Size, ...]:
        return (columns, BATCH) if by_columns else (BATCH, columns)

    inputs = (Array(POINTS, shape(len(computation.graph.names), columns_in)),)
    outputs = tuple(Array(o.name, shape(len(o.nodes), columns_out)) for o in computation.outputs)
    arrays = tuple((a.name, a.name) for a in (*inputs, *outputs))
    dispatch = Dispatch(Map(computation), target, arrays, BATCH)
    return Launch(computation.name, inputs, outputs, (), (dispatch,))


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
    x = k.buffer(POINTS, "read")
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
    x, n = k.buffer(POINTS, "read"), len(graph.names)
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
