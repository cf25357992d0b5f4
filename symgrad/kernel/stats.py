"""How large a kernel is, and how long it took to make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr.graph.arrays import EMPTIES
from symgrad.expr.graph.node import Graph, Op, reachable
from symgrad.expr.graph.region import Loop, Pick, Regional, regions
from symgrad.kernel.shapes import Output

GUESSED_ITERATIONS: Final = 32
"""The trip count that the cost estimate takes for a loop whose own is unknown."""

BLANK: Final = frozenset(EMPTIES.values())
"""Arrays that loops write to."""


@dataclass(frozen=True)
class Derived:
    """How derivatives were made: by which mode, and in strips of how many iterations of loops."""

    mode: str | None = None
    strips: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stats:
    """The size of a kernel and what it took to make it.

    ``flops`` count each operation at its cost in additions (a division 4, an exponential 10, ...);
    ``registers`` is the most values that are alive at once; ``seconds`` are those of each stage,
    of the first kernel where several have the same trace. Over data, a point is a row. ``mode`` is
    how derivatives were made, "reverse", "forward" or "mixed"; those of a Hessian from a gradient.
    Loops count as often as they turn at most, and choices with both sides; the loops of which no
    bound is known, ``unbounded`` in number, count as if they turned once. ``shaders`` are those
    that a GPU takes; the CPU has one function.
    ``kept`` are the bytes a point of what loops keep of their iterations, for reverse mode or
    because it is used behind them, and ``strips`` the iterations of the strips that loops run in,
    by which they keep less and compute more: see ``checkpoint`` of `fused_forward_backward`.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1]**2, device="cpu")
        >>> kernel.stats.flops, kernel.stats.mode  # v[1]**2, x0 times it, 2 * x0, and that times x1
        (4, 'reverse')
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
    kept: int = 0
    strips: tuple[int, ...] = ()
    unbounded: int = 0

    def __str__(self) -> str:
        took = ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in self.seconds.items())
        mode = f"derivatives in {self.mode} mode; " if self.mode else ""
        iterations = " and ".join(map(str, self.strips))
        strips = f", in strips of {iterations} iterations" if iterations else ""
        memory = f"loops keep {self.kept:,} bytes a point{strips}; " if self.kept else ""
        times = {0: "", 1: ", with one iteration of a loop that has no bound"}
        unbounded = f", with one iteration of each of {self.unbounded} loops that have no bound"
        unbounded = times.get(self.unbounded, unbounded)
        return (
            f"{self.operations:,} operations ({self.operations_loss:,} of them for the first "
            f"result{unbounded}), {self.bytes_per_point:,} bytes a point, "
            f"{self.registers:,} values alive at most, {self.shaders} "
            f"shader{'s' * (self.shaders > 1)}; {mode}{memory}{took}"
        )


def measured(
    graph: Graph,
    outputs: Sequence[Output],
    bytes_per_point: int,
    shaders: int,
    seconds: Mapping[str, float],
    derived: Derived,
    itemsize: int,
) -> Stats:
    """The size of a graph whose outputs are a kernel's results."""
    roots = [i for o in outputs for i in o.nodes]
    return Stats(
        nodes=len(graph),
        operations_loss=operations(graph, outputs[0].nodes),
        operations=operations(graph, roots),
        flops_loss=flops(graph, outputs[0].nodes),
        flops=flops(graph, roots),
        bytes_per_point=bytes_per_point,
        registers=_most_alive(graph, roots),
        shaders=shaders,
        seconds=dict(seconds),
        mode=derived.mode,
        kept=itemsize * kept(graph, roots),
        strips=derived.strips,
        unbounded=_unbounded(graph, roots),
    )


def _unbounded(graph: Graph, roots: Sequence[int]) -> int:
    """How many loops there are of which no bound on their iterations is known."""
    parts = [(graph, roots), *[(r.graph, r.yields) for r in regions(graph, roots)]]
    operators = (g.nodes[i][0] for g, ends in parts for i in reachable(g, ends))
    return sum(isinstance(op, Loop) and op.most is None for op in operators)


def kept(graph: Graph, roots: Sequence[int]) -> int:
    """How many numbers loops keep of their iterations, those within others once."""
    parts = [(graph, roots), *[(r.graph, r.yields) for r in regions(graph, roots)]]
    blank = (
        g.nodes[a]
        for g, ends in parts
        for i in reachable(g, ends)
        for a in g.args(i)
        if g.nodes[a][0] in BLANK
    )
    return sum(node[1] for node in blank)


def operations(graph: Graph, roots: Sequence[int]) -> int:
    """How many operations the roots need."""
    return sum(_times(graph.nodes[i][0]) for i in _computed(graph, roots))


def _times(op: Op) -> int:
    """The operations that an operation stands for: its region's, times its trip count."""
    if isinstance(op, Pick):
        return 0
    if not isinstance(op, Regional):
        return 1
    iterations = op.most if isinstance(op, Loop) and op.most is not None else 1
    return iterations * operations(op.body.graph, op.body.yields)


def flops(graph: Graph, roots: Sequence[int]) -> int:
    """The cost of all that the roots need, in additions."""
    return sum(graph.nodes[i][0].cost for i in _computed(graph, roots))


def weight_of(graph: Graph) -> int:
    """The cost of a whole graph, in additions."""
    times = Counter([node[0] for node in graph.nodes])
    return sum(count * _weight(op) for op, count in times.items())


def _weight(op: Op) -> int:
    return op.cost * GUESSED_ITERATIONS if isinstance(op, Loop) and op.most is None else op.cost


def _computed(graph: Graph, roots: Sequence[int]) -> list[int]:
    """The nodes that the roots need, except leaves."""
    return [i for i in reachable(graph, roots) if graph.nodes[i][0].arity]


def _most_alive(graph: Graph, roots: Sequence[int]) -> int:
    """The most values alive at once, in the order of the arena."""
    computed = _computed(graph, roots)
    last = {a: i for i in computed for a in graph.args(i) if graph.nodes[a][0].arity}
    dying: dict[int, int] = {}
    for i in last.values():
        dying[i] = dying.get(i, 0) + 1
    alive = most = 0
    for i in computed:
        op = graph.nodes[i][0]
        if isinstance(op, Regional):
            most = max(most, alive + _most_alive(op.body.graph, op.body.yields))
        alive += 1 - dying.get(i, 0)
        most = max(most, alive)
    return most
