"""What kernels mean, by the NumPy interpreter: the reference of every back end."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.evaluate import evaluate_graph
from symgrad.expr.simplify import inputs_of
from symgrad.kernel.plan import Computation, Iteration, Output, Reduction


def compute(computation: Computation, points: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """points (B, inputs) -> all results (B, columns), the outputs side by side."""
    graph, roots = computation.graph, [i for o in computation.outputs for i in o.nodes]
    numbers = [graph.nodes[i][1] for i in inputs_of(graph)]
    columns = np.asarray(points, dtype).T
    inputs = {i: columns[k] for i, k in zip(inputs_of(graph), numbers, strict=True)}
    found = evaluate_graph(graph, roots, inputs, dtype)
    return np.stack([np.broadcast_to(v, len(points)) for v in found], axis=1)


def reduce_rows(
    reduction: Reduction, parameters: np.ndarray, rows: np.ndarray, dtype: Any = np.float64
) -> np.ndarray:
    """parameters (n,), rows (N, columns) -> sums (results,), in float64, times their factors."""
    n, graph = reduction.parameters, reduction.graph
    points = np.zeros((len(rows) + 1, len(graph.names)), dtype)  # a row more, for the factors
    points[:, :n], points[:-1, n:] = parameters, rows
    sums = compute(reduction, points[:-1], dtype).sum(axis=0, dtype=np.longdouble)
    once = Computation("factors", graph, (Output("factors", reduction.factors),))
    return np.asarray(sums * compute(once, points[-1:], dtype)[0], np.float64)


def iterate(
    iteration: Iteration, state: np.ndarray, steps: int, shared: np.ndarray | None = None,
    own: np.ndarray | None = None, dtype: Any = np.float64,
) -> np.ndarray:  # fmt: skip
    """state (S, state), shared (R, shared), own (S, R, own) -> the state after these steps."""
    state = np.array(state, dtype)
    for _ in range(steps):
        active = np.flatnonzero(state[:, -1] != 0)
        if not len(active):
            break
        known = [state[active]]
        if iteration.rows is not None:
            known.append(_sums(iteration, state, active, shared, own, dtype))
        state[active] = compute(iteration.update, np.concatenate(known, axis=1), dtype)
    return state


def _sums(
    iteration: Iteration, state: np.ndarray, active: np.ndarray, shared: np.ndarray | None,
    own: np.ndarray | None, dtype: Any,
) -> np.ndarray:  # fmt: skip
    rows = iteration.rows
    assert rows is not None, "there are no rows to sum over"
    found: list[np.ndarray] = []
    for s in active:
        parts = [a for a in (shared, None if own is None else own[s]) if a is not None]
        data = np.concatenate(parts, axis=1)
        found.append(reduce_rows(rows, state[s, : rows.parameters], data, dtype))
    return np.array(found, dtype)
