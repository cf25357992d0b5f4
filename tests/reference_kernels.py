"""The meaning of kernels, by the NumPy interpreter: the reference of every back end."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.graph.node import inputs_of
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.kernel.shapes import NO_DATA, Computation, Iteration, Output, Reduction, RowData


def compute(computation: Computation, points: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """points (B, inputs) -> all results (B, columns), the outputs side by side."""
    graph, roots = computation.graph, [i for o in computation.outputs for i in o.nodes]
    numbers = [graph.nodes[i][1] for i in inputs_of(graph)]
    columns = np.asarray(points, dtype).T
    inputs = {i: columns[k] for i, k in zip(inputs_of(graph), numbers, strict=True)}
    values = evaluate_graph(graph, roots, inputs, dtype)
    return np.stack([np.broadcast_to(v, len(points)) for v in values], axis=1)


def reduce_rows(
    reduction: Reduction, parameters: np.ndarray, rows: np.ndarray, dtype: Any = np.float64
) -> np.ndarray:
    """parameters (n,), rows (N, columns) -> sums (results,), in float64, times their factors."""
    return _reduced(reduction, parameters[None], rows[None], dtype)[0]


def _reduced(
    reduction: Reduction, parameters: np.ndarray, tables: np.ndarray, dtype: Any
) -> np.ndarray:
    """parameters (P, n), rows (P, N, columns) -> sums (P, results), as of each one alone."""
    graph = reduction.graph
    sums = _at_rows(reduction, parameters, tables, dtype).sum(axis=1, dtype=np.longdouble)
    points = np.zeros((len(parameters), len(graph.names)), dtype)
    points[:, : reduction.parameters] = parameters
    once = Computation("factors", graph, (Output("factors", reduction.factors),))
    return np.asarray(sums * compute(once, points, dtype), np.float64)


def _at_rows(
    reduction: Reduction, parameters: np.ndarray, tables: np.ndarray, dtype: Any
) -> np.ndarray:
    """The results (P, N, results) at all rows."""
    n, names = reduction.parameters, len(reduction.graph.names)
    points = np.empty((*tables.shape[:2], names), dtype)
    points[:, :, :n], points[:, :, n:] = parameters[:, None], tables
    results = compute(reduction, points.reshape(-1, names), dtype)
    return results.reshape(*tables.shape[:2], results.shape[1])


def iterate(
    iteration: Iteration,
    state: np.ndarray,
    steps: int,
    data: RowData = NO_DATA,
    dtype: Any = np.float64,
) -> np.ndarray:
    """The states (S, state) after these steps."""
    state = np.array(state, dtype)
    for _ in range(steps):
        active = np.flatnonzero(state[:, -1] != 0)
        if not len(active):
            break
        inputs = [state[active]]
        if iteration.rows is not None:
            inputs.append(_sums(iteration, state, active, data, dtype))
        update = _updated_with_matrix if iteration.matrix else _updated
        state[active] = update(iteration, np.concatenate(inputs, axis=1), dtype)
    return state


def _updated(iteration: Iteration, inputs: np.ndarray, dtype: Any) -> np.ndarray:
    return compute(iteration.update, inputs, dtype)


def _sums(
    iteration: Iteration, state: np.ndarray, active: np.ndarray, data: RowData, dtype: Any
) -> np.ndarray:
    rows = iteration.rows
    assert rows is not None, "there are no rows to sum over"
    parts: list[np.ndarray] = []
    if data.shared is not None:
        parts.append(np.broadcast_to(data.shared, (len(active), *data.shared.shape)))
    if data.own is not None:
        parts.append(data.own[active])
    tables, parameters = np.concatenate(parts, axis=2), state[active, : rows.parameters]
    if iteration.matrix is None:
        return _reduced(rows, parameters, tables, dtype).astype(dtype)
    return (iteration.matrix.weight * _normal(rows, parameters, tables, dtype)).astype(dtype)


# --- with a matrix --------------------------------------------------------------------------------


def _normal(rows: Reduction, parameters: np.ndarray, tables: np.ndarray, dtype: Any) -> np.ndarray:
    """rᵀr/2, Jᵀr and the lower half of JᵀJ of each problem, in float64."""
    columns = len(rows.outputs[0].nodes)
    results = _at_rows(rows, parameters, tables, dtype).astype(np.float64)
    both = results.reshape(len(tables), -1, columns)
    products = np.swapaxes(both, 1, 2) @ both
    i, j = np.tril_indices(columns - 1)
    parts = products[:, -1:, -1] / 2, products[:, -1, :-1], products[:, i, j]
    return np.concatenate(parts, axis=1)


def _updated_with_matrix(iteration: Iteration, inputs: np.ndarray, dtype: Any) -> np.ndarray:
    """The next states, from states and sums, call by call."""
    update, matrix = iteration.update, iteration.matrix
    assert matrix is not None, "there is no matrix"
    points = np.zeros((len(inputs), len(update.graph.names)), dtype)
    points[:, : inputs.shape[1]] = inputs
    half = points[:, matrix.places.start : matrix.places.stop].copy()
    sums = inputs[:, iteration.state + 1 + matrix.n :]
    for call, output in zip(matrix.calls, update.outputs[1:], strict=True):
        arguments = compute(Computation(call.kind, update.graph, (output,)), points, dtype)
        if call.kind == "keep":
            half = np.where(arguments != 0, sums, half)
            continue
        vectors = arguments.reshape(len(inputs), -1, matrix.n)
        answer = _product if call.kind == "product" else _solution
        points[:, call.results.start : call.results.stop] = answer(full(half), vectors)
    states = compute(Computation(update.name, update.graph, update.outputs[:1]), points, dtype)
    states[:, matrix.places.start : matrix.places.stop] = half
    return states


def full(half: np.ndarray) -> np.ndarray:
    """Symmetric matrices (S, n, n) from their lower halves (S, n*(n+1)/2)."""
    n = int((2 * half.shape[1]) ** 0.5)
    matrices = np.zeros((len(half), n, n), half.dtype)
    i, j = np.tril_indices(n)
    matrices[:, i, j] = matrices[:, j, i] = half
    return matrices


def _product(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.einsum("sij,sj->si", matrix, vectors[:, 0])


def _solution(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """See `Call`; the right side is the last row of the factor."""
    count, n, _ = matrix.shape
    right, diagonal, floors, *active = vectors.transpose(1, 0, 2)
    a = np.zeros((count, n + 1, n), matrix.dtype)
    a[:, :n], a[:, n] = matrix, right
    for bound in active:
        a[:, :n] *= (bound[:, :, None] == 0) & (bound[:, None, :] == 0)
    a[:, range(n), range(n)] = diagonal
    inverse = np.zeros_like(right)
    for j in range(n):
        inverse[:, j] = 1 / np.maximum(a[:, j, j], floors[:, j])
        factor = a[:, j + 1 :, j] * inverse[:, j, None]
        a[:, j + 1 :, j + 1 :] -= factor[:, :, None] * a[:, None, j + 1 : n, j]
    for j in reversed(range(n)):
        a[:, n, j] *= inverse[:, j]
        a[:, n, :j] -= a[:, j, :j] * a[:, n, j, None]
    return a[:, n]
