"""The map over points: one invocation for each, which reads its inputs and writes its results."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.node import paused_gc
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

    def column(i: int) -> int:
        number = graph.nodes[i][1]
        found = k.load(x, k.offset(point, n, number))
        k.names[found] = graph.names[number]
        return found

    values = iter(inline(k, graph, roots, {}, column))
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
