"""How large a kernel is, and how long it took to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symgrad.expr.node import Graph, reachable
from symgrad.kernel.plan import Output


@dataclass(frozen=True)
class Stats:
    """The size of a kernel and what it took to make it.

    ``flops`` count each operation at its cost in additions (a division 4, an exponential 10, ...);
    ``registers`` is the most values that are alive at once; ``seconds`` are those of each stage,
    of the first kernel where several have the same trace. Over data, a point is a row. ``mode`` is
    how derivatives were made, "reverse", "forward" or "mixed"; those of a Hessian from a gradient.
    """

    nodes: int
    operations_loss: int
    operations: int
    flops_loss: int
    flops: int
    bytes_per_point: int
    registers: int
    shaders: int
    seconds: dict[str, float]
    mode: str | None = None

    def __str__(self) -> str:
        took = ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in self.seconds.items())
        mode = f"derivatives in {self.mode} mode; " if self.mode else ""
        return (
            f"{self.operations:,} operations ({self.operations_loss:,} of them for the first "
            f"result), {self.bytes_per_point:,} bytes a point, {self.registers:,} values alive "
            f"at most, {self.shaders} shader{'s' * (self.shaders > 1)}; {mode}{took}"
        )


def measured(
    graph: Graph, outputs: Sequence[Output], bytes_per_point: int, shaders: int,
    seconds: Mapping[str, float], mode: str | None = None,
) -> Stats:  # fmt: skip
    """The size of a graph whose outputs are a kernel's results."""
    first = operations(graph, outputs[0].nodes)
    every = operations(graph, [i for o in outputs for i in o.nodes])
    return Stats(
        nodes=len(graph),
        operations_loss=len(first),
        operations=len(every),
        flops_loss=flops(graph, outputs[0].nodes),
        flops=flops(graph, [i for o in outputs for i in o.nodes]),
        bytes_per_point=bytes_per_point,
        registers=_most_alive(graph, every),
        shaders=shaders,
        seconds=dict(seconds),
        mode=mode,
    )


def operations(graph: Graph, roots: Sequence[int]) -> list[int]:
    """The operations among the nodes that the roots need."""
    return [i for i in reachable(graph, roots) if graph.nodes[i][0].arity]


def flops(graph: Graph, roots: Sequence[int]) -> int:
    """The cost of all that the roots need, in additions."""
    return sum(graph.nodes[i][0].cost for i in operations(graph, roots))


def _most_alive(graph: Graph, operations: Sequence[int]) -> int:
    """The most values alive at once, in the order of the arena."""
    last = {a: i for i in operations for a in graph.nodes[i][1:] if graph.nodes[a][0].arity}
    dying: dict[int, int] = {}
    for i in last.values():
        dying[i] = dying.get(i, 0) + 1
    alive = most = 0
    for i in operations:
        alive += 1 - dying.get(i, 0)
        most = max(most, alive)
    return most
