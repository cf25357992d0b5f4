"""The meaning of kernels: computations, sums over rows and repeated steps, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import Waves
from reference_kernels import _solution, compute, iterate, reduce_rows

from symgrad.expr.tracers import functions
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.shapes import Computation, Iteration, Output, Reduction, RowData


def computation(f: Any, n: int) -> Computation:
    t = trace(f, n)
    return Computation("f", t.graph, (Output("a", t.outputs[:1]), Output("b", t.outputs[1:])))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_stand_side_by_side(dtype: Any) -> None:
    made = computation(lambda v: [v[0] * v[1], functions.exp(v[0]), 3.0], 3)
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(dtype)
    found = compute(made, x, dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.stack([x[:, 0] * x[:, 1], np.exp(x[:, 0]),
                                                   np.full(7, 3.0)], axis=1))  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 10])
def test_rows_are_summed_and_the_sums_multiplied(count: int) -> None:
    t = trace(lambda v: [v[0] * v[2], v[1] + 0.0 * v[2]], 3)
    factors = (t.inputs[1], t.graph.constant(2.0))
    outputs = (Output("loss", t.outputs[:1]), Output("grad", t.outputs[1:]))
    made = Reduction("r", t.graph, outputs, 2, factors)
    rows = np.arange(count, dtype=np.float64)[:, None]
    found = reduce_rows(made, np.array([3.0, 5.0]), rows)
    np.testing.assert_array_equal(found, [3.0 * rows.sum() * 5.0, 5.0 * count * 2.0])


def test_a_problem_rests_where_its_flag_is_zero() -> None:
    t = trace(lambda v: [v[0] + 1.0, functions.where(v[0] + 1.0 < 3.0, 1.0, 0.0)], 2)
    update = Computation("u", t.graph, (Output("state", t.outputs),))
    start = np.array([[0.0, 1.0], [-5.0, 1.0], [9.0, 0.0]])
    found = iterate(Iteration(update, 2), start, 6)
    np.testing.assert_array_equal(found, [[3.0, 0.0], [1.0, 1.0], [9.0, 0.0]])


def test_steps_see_the_sums_over_shared_and_own_columns() -> None:
    """Fitting y = a x by one step of Newton's method: a is the quotient of two sums."""
    inner = trace(lambda v: [v[1] * v[1], v[1] * (v[2] - v[0] * v[1])], 3)
    outputs = (Output("sums", inner.outputs),)
    ones = (inner.graph.constant(1.0),) * 2
    rows = Reduction("r", inner.graph, outputs, 1, ones)
    outer = trace(lambda v: [v[0] + v[3] / v[2], 0.0], 4)
    update = Computation("u", outer.graph, (Output("state", outer.outputs),))
    x = np.array([[1.0], [2.0], [3.0]])
    y = np.stack([2.0 * x, -1.5 * x])
    start = np.array([[7.0, 1.0], [0.0, 1.0]])
    found = iterate(Iteration(update, 2, rows, 1), start, 5, RowData(x, y))
    np.testing.assert_allclose(found[:, 0], [2.0, -1.5], rtol=1e-14)


# matrices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (0.0, np.inf), (0.3, 0.8)])
@pytest.mark.parametrize("residuals", [1, 2])
def test_a_matrix_in_an_array_is_that_of_expressions(
    residuals: int, bounds: tuple[float, float]
) -> None:
    case = Waves(6, 4, 30, bounds, 0.25, residuals, "float64")
    stored = case.made()
    kinds = [call.kind for call in stored.matrix.calls] if stored.matrix else []
    more = ["product", "solve", "product"] if np.isfinite(bounds).any() else []
    assert kinds == ["keep", "solve", *more]
    for steps in (1, 2, 3):
        np.testing.assert_allclose(
            case.expected(steps), case.expected(steps, False), rtol=1e-7, atol=1e-9
        )


def test_solutions_of_systems() -> None:
    draw = np.random.default_rng(0)
    half = draw.normal(size=(3, 5, 5))
    matrix = half @ half.transpose(0, 2, 1)
    right, held = draw.normal(size=(3, 5)), np.array([0.0, 1.0, 0.0, 0.0, 1.0])
    diagonal = matrix.diagonal(axis1=1, axis2=2) + 0.1
    full = matrix + 0.1 * np.eye(5)
    floors = np.zeros((3, 5))
    free = _solution(matrix, np.stack([right, diagonal, floors], axis=1))
    np.testing.assert_allclose(free, np.linalg.solve(full, right[:, :, None])[:, :, 0])
    found = _solution(matrix, np.stack([right, diagonal, floors, np.tile(held, (3, 1))], axis=1))
    inner = np.ix_(range(3), held == 0, held == 0)
    want = np.linalg.solve(full[inner], right[:, held == 0, None])[:, :, 0]
    np.testing.assert_allclose(found[:, held == 0], want)
    np.testing.assert_allclose(found[:, held != 0], (right / diagonal)[:, held != 0])


def test_pivots_have_floors() -> None:
    singular, ones = np.ones((1, 2, 2)), np.ones(2)
    found = _solution(singular, np.array([[[1.0, 3.0], ones, [0.0, 0.5]]]))
    np.testing.assert_array_equal(found, [[-3.0, 4.0]])
