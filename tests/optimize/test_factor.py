"""Small systems as expressions, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.optimize.newton import solve_modified, solve_positive

EPS = 2.0**-52


def positive(matrix: Any, right: Any, floor: float) -> Any:
    return solve_positive(matrix, right, [floor] * len(right))


def modified(matrix: Any, right: Any, eps: float) -> Any:
    return solve_modified(matrix, right, eps)[0]


def solved(solve: Any, matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    n = len(right)
    lower = np.tril_indices(n)
    index = np.zeros((n, n), int)
    index[lower] = np.arange(len(lower[0]))
    index = np.maximum(index, index.T)
    kernel = sg.fused_forward(
        n + len(lower[0]), lambda v: solve(v[n:][index], v[:n], EPS), device="cpu", dtype="float64"
    )
    return kernel.run(np.concatenate([right, matrix[lower]]))


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("solve", [positive, modified])
def test_positive_definite_matrices_stay_as_they_are(solve: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n + 3, n))
    matrix, right = root.T @ root, rng.normal(size=n)
    np.testing.assert_allclose(solved(solve, matrix, right), np.linalg.solve(matrix, right), 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_other_matrices_give_a_direction_of_descent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(4, 4))
    matrix, right = matrix + matrix.T, rng.normal(size=4)
    found = solved(modified, matrix, right)
    assert np.isfinite(found).all()
    assert found @ right > 0


@pytest.mark.parametrize("seed", range(8))
def test_negative_curvature_is_followed_from_where_there_is_no_slope(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4))
    signs = np.where(np.arange(4) < seed % 4, 1.0, -1.0)
    matrix = root.T @ (signs[:, None] * root)

    def along(rows: Any, right: Any, eps: float) -> Any:
        return solve_modified(rows, right, eps, [0.5] * 4)[0]

    step = solved(along, matrix, np.zeros(4))
    assert step @ matrix @ step < 0.0
    np.testing.assert_array_equal(solved(along, root.T @ root, np.zeros(4)), 0.0)


def test_the_zero_matrix_gives_the_right_side_larger() -> None:
    found = solved(modified, np.zeros((2, 2)), np.ones(2))
    assert np.isfinite(found).all() and (found > 0).all()


def test_structural_zeros_cost_nothing() -> None:
    def tridiagonal(v: Any) -> Any:
        matrix = [[v[abs(i - j)] if abs(i - j) < 2 else 0.0 for j in range(20)] for i in range(20)]
        return solve_positive(matrix, v[2:], [EPS] * 20)

    kernel = sg.fused_forward(22, tridiagonal, device="cpu", dtype="float64")
    assert kernel.stats.operations < 300
    point = np.concatenate([[4.0, 1.0], np.ones(20)])
    matrix = 4 * np.eye(20) + np.eye(20, k=1) + np.eye(20, k=-1)
    np.testing.assert_allclose(matrix @ kernel.run(point), 1.0, rtol=1e-12)
