"""The map over points: one invocation for each, which reads its inputs and writes its results."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.node import INPUT, paused_gc, reachable
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.lower import inline
from symgrad.kernel.plan import Computation


@paused_gc()
def map_program(computation: Computation, target: Target) -> Kernel:
    """The kernel that computes the outputs of a computation at every point.

    Its buffers are ``x`` (points, inputs), which is read, and one for each output, (points,
    columns), all in C order.
    """
    k, graph = Kernel(target, computation.name), computation.graph
    x, n = k.buffer("x", "read"), len(graph.names)
    outputs = [k.buffer(o.name, "write") for o in computation.outputs]
    roots = [i for o in computation.outputs for i in o.nodes]
    point = target.point(k)
    known = {}
    for i in reachable(graph, roots):
        if graph.nodes[i][0] is INPUT:
            number = graph.nodes[i][1]
            known[i] = k.load(x, k.offset(point, n, number))
            k.names[known[i]] = graph.names[number]
    values = iter(inline(k, graph, roots, known))
    columns = [
        (b, [next(values) for _ in o.nodes])
        for b, o in zip(outputs, computation.outputs, strict=True)
    ]

    def store() -> None:
        for buffer, found in columns:
            for c, value in enumerate(found):
                k.store(buffer, k.offset(k.cell, len(found), c), value)

    if target.whole:
        store()
    else:
        k.when(k.add(ops.word_lt, k.cell, k.count), store)
    return k
