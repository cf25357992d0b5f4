"""About what a step of an iteration costs, and a row of it, on a GPU."""

from __future__ import annotations

from symgrad.expr.graph.node import reachable
from symgrad.kernel.shapes import Computation, Iteration
from symgrad.kernel.stats import operations
from symgrad.wgsl.dispatch.iteration import (
    iterations_of,
    lanes,
)


def iterations_of_loops(iteration: Iteration) -> tuple[int, int]:
    """The iterations of loops in a step, and at each row."""
    update, rows = (
        iterations_of(part.graph, tuple(i for o in part.outputs for i in o.nodes)) if part else 0
        for part in (iteration.update, iteration.rows)
    )
    return update, rows


def weights_of(iteration: Iteration) -> tuple[int, int]:
    """About the operations of a step, and of each row."""
    rows = _weight(iteration.rows) if iteration.rows else 0
    if iteration.matrix is None:
        return _weight(iteration.update), rows
    n = iteration.matrix.n
    solves = sum(call.kind == "solve" for call in iteration.matrix.calls)
    return lanes(n) * _weight(iteration.update) + solves * n**3 // 3, rows + n * n


def _weight(computation: Computation) -> int:
    """About the operations of a computation."""
    graph = computation.graph
    roots = [i for o in computation.outputs for i in o.nodes]
    if computation.is_structured:
        return 1 + operations(graph, roots)
    return 1 + sum(graph.nodes[i][0].cost for i in reachable(graph, roots))
