"""The map over points: one invocation for each, which reads its inputs and writes its results."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.lower import written
from symgrad.kernel.plan import Computation
from symgrad.kernel.programs.results import store, stretches
from symgrad.kernel.views import views


@paused_gc()
def map_program(computation: Computation, target: Target) -> Kernel:
    """The kernel that computes the outputs of a computation at every point.

    Its buffers are ``x`` (points, inputs), which is read, ``tables``, if it has any, and one for
    each output, (points, columns), all in C order.
    """
    k, graph = Kernel(target, computation.name), computation.graph
    x, n = k.buffer("x", "read"), len(graph.names)
    row = k.offset(target.point(k), n, 0)

    def column(i: int) -> int:
        number = graph.nodes[i][1]
        found = k.load(x, k.shifted(row, number))
        k.names[found] = graph.names[number]
        return found

    parts = [stretches(graph, o.nodes) for o in computation.outputs]
    roots = [part.root for found in parts for part in found]
    known = views(k, graph, roots, x, row)
    outputs = [k.buffer(o.name, "write") for o in computation.outputs]
    values = iter(written(k, graph, roots, known, column))
    rows = [
        (buffer, len(o.nodes), found, [next(values) for _ in found])
        for buffer, o, found in zip(outputs, computation.outputs, parts, strict=True)
    ]

    def store_all() -> None:
        for row in rows:
            store(k, *row)

    if target.whole:
        store_all()
    else:
        k.when(k.add(ops.word_lt, k.cell, k.count), store_all)
    return k
