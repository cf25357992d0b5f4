"""Linear algebra of expressions is NumPy's of numbers, and its derivatives are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from expr.test_array import agree

import symgrad as sg
from symgrad.expr.tracing.trace import trace

NUMPY: Any = np
"""NumPy without its annotations, which know of no expressions."""
DRAW = np.random.default_rng(12)
B = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]])
W = np.arange(24.0).reshape(2, 3, 4) / 7 - 1.3


def matrix(v: Any, n: int) -> Any:
    return v[: n * n].reshape(n, n)


def definite(v: Any, n: int) -> Any:
    return matrix(v, n) @ matrix(v, n).T + np.eye(n)


CASES: dict[str, Callable[[Any], Any]] = {
    "solve a vector": lambda v: np.linalg.solve(matrix(v, 3), v[9:12]),
    "solve a matrix": lambda v: np.linalg.solve(matrix(v, 3), v[9:15].reshape(3, 2)),
    "solve two rows": lambda v: np.linalg.solve(matrix(v, 2), v[4:6]),
    "solve one row": lambda v: np.linalg.solve(v[:1, None], v[1:2]),
    "solve numbers on the left": lambda v: np.linalg.solve(B, v[:3]),
    "solve numbers on the right": lambda v: np.linalg.solve(
        matrix(v, 3), np.array([1.0, 0.0, 2.0])
    ),
    "solve a stack": lambda v: np.linalg.solve(v[:18].reshape(2, 3, 3), v[18:24].reshape(2, 3, 1)),
    "solve a stack for one": lambda v: np.linalg.solve(v[:18].reshape(2, 3, 3), B),
    "solve five": lambda v: np.linalg.solve(matrix(v, 5), v[:5]),
    "solve a triangle": lambda v: np.linalg.solve(np.triu(matrix(v, 4)), v[:4]),
    "inv 2": lambda v: np.linalg.inv(matrix(v, 2)),
    "inv 4": lambda v: np.linalg.inv(matrix(v, 4)),
    "inv of a stack": lambda v: np.linalg.inv(v[:8].reshape(2, 2, 2)),
    "det 1": lambda v: np.linalg.det(v[:1, None]),
    "det 3": lambda v: np.linalg.det(matrix(v, 3)),
    "det 5": lambda v: np.linalg.det(matrix(v, 5)),
    "det 6": lambda v: np.linalg.det(np.block([[definite(v, 3), B], [B.T, -definite(v, 3)]])),
    "det of a stack": lambda v: np.linalg.det(v[:18].reshape(2, 3, 3)),
    "slogdet": lambda v: tuple(np.linalg.slogdet(matrix(v, 3))),
    "slogdet of a stack": lambda v: tuple(np.linalg.slogdet(v[:8].reshape(2, 2, 2))),
    "slogdet.logabsdet": lambda v: np.linalg.slogdet(definite(v, 4)).logabsdet,
    "cholesky": lambda v: np.linalg.cholesky(definite(v, 4)),
    "cholesky upper": lambda v: np.linalg.cholesky(definite(v, 3), upper=True),
    "cholesky of a stack": lambda v: np.linalg.cholesky(np.stack([definite(v, 2), np.eye(2)])),
    "matrix_power": lambda v: np.linalg.matrix_power(matrix(v, 3), 5),
    "matrix_power -2": lambda v: np.linalg.matrix_power(matrix(v, 2), -2),
    "matrix_power 0": lambda v: np.linalg.matrix_power(matrix(v, 2), 0) + 0 * v[0],
    "multi_dot": lambda v: np.linalg.multi_dot([matrix(v, 3), B, v[:3]]),
    "norm 3": lambda v: np.linalg.norm(v, 3),
    "norm 0": lambda v: np.linalg.norm(v, 0),
    "norm -inf": lambda v: np.linalg.norm(v, -np.inf),
    "norm of a matrix, 1": lambda v: np.linalg.norm(matrix(v, 3), 1),
    "norm of a matrix, -1": lambda v: np.linalg.norm(matrix(v, 3), -1),
    "norm of a matrix, inf": lambda v: np.linalg.norm(matrix(v, 3), np.inf),
    "norm of a matrix, fro": lambda v: NUMPY.linalg.norm(matrix(v, 3), "fro", keepdims=True),
    "norm of matrices": lambda v: np.linalg.norm(v[:24].reshape(2, 3, 4), np.inf, axis=(0, 2)),
    "norm along an axis": lambda v: np.linalg.norm(matrix(v, 3), np.inf, axis=0, keepdims=True),
    "vector_norm": lambda v: np.linalg.vector_norm(matrix(v, 3), axis=1, ord=1),
    "vector_norm of all": lambda v: np.linalg.vector_norm(matrix(v, 3)),
    "matrix_norm": lambda v: np.linalg.matrix_norm(v[:8].reshape(2, 2, 2)),
    "trace with an offset": lambda v: np.trace(matrix(v, 3), offset=1),
    "trace of a stack": lambda v: np.trace(v[:24].reshape(2, 3, 4), axis1=1, axis2=2),
    "linalg.trace": lambda v: np.linalg.trace(v[:8].reshape(2, 2, 2)),
    "cross along an axis": lambda v: np.cross(v[:6].reshape(3, 2), v[6:12].reshape(3, 2), axis=0),
    "linalg.cross": lambda v: np.linalg.cross(v[:3], v[3:6]),
    "kron": lambda v: np.kron(v[:6].reshape(2, 3), B),
    "kron of vectors and matrices": lambda v: np.kron(v[:2], matrix(v, 2)),
    "outer of matrices": lambda v: np.outer(matrix(v, 2), v[:2]),
    "vecdot": lambda v: np.vecdot(v[:6].reshape(2, 3), B[:2]),
    "matvec": lambda v: NUMPY.matvec(v[:24].reshape(2, 4, 3), B[:2]),
    "matvec, broadcast": lambda v: NUMPY.matvec(B, v[:6].reshape(2, 3)),
    "vecmat": lambda v: NUMPY.vecmat(v[:6].reshape(2, 3), v[:24].reshape(2, 3, 4)),
    "vecmat of one": lambda v: NUMPY.vecmat(v[:3], B),
    "tensordot of axes": lambda v: np.tensordot(v[:24].reshape(2, 3, 4), W, axes=([0, 1], [0, 1])),
    "tensordot of one axis": lambda v: np.tensordot(v[:6].reshape(2, 3), B, axes=(1, 0)),
    "tensordot 0": lambda v: np.tensordot(v[:2], v[2:4], axes=0),
    "einsum of a diagonal": lambda v: np.einsum("ii->i", matrix(v, 3)),
    "einsum of a trace": lambda v: np.einsum("ii", matrix(v, 3)),
    "einsum with an ellipsis": lambda v: np.einsum("...ij,jk->...ik", v[:24].reshape(2, 4, 3), B),
    "einsum, ellipsis implied": lambda v: np.einsum("...i,i...", v[:6].reshape(2, 3), B[:, :2]),
    "einsum of three": lambda v: np.einsum("ij,jk,kl->il", matrix(v, 3), B, matrix(v, 3)),
    "einsum of four": lambda v: np.einsum("i,ij,jk,k", v[:3], B, matrix(v, 3), v[3:6]),
    "einsum by lists": lambda v: np.einsum(B, [0, 1], v[:3], [1], [0]),
    "einsum by lists, implied": lambda v: np.einsum(B, [0, 1], v[:3], [1]),
    "einsum, batched": lambda v: np.einsum("bij,bjk->bik", v[:18].reshape(2, 3, 3), W[:, :, :3]),
    "einsum that sums alone": lambda v: np.einsum("ij,k->k", matrix(v, 3), v[:2]),
    "einsum of a sum": lambda v: np.einsum("ij->", matrix(v, 3)),
    "einsum, not optimised": lambda v: np.einsum("i,ij,j", v[:3], B, v[:3], optimize=False),
}


@pytest.mark.parametrize("name", CASES)
def test_numpys_linear_algebra(name: str) -> None:
    if not hasattr(np, name[:6]) and name.startswith(("matvec", "vecmat")):
        pytest.skip("NumPy has it from 2.2 on")
    agree(CASES[name], DRAW.normal(size=25), rtol=1e-11)


@pytest.mark.parametrize("zeros", list(itertools.product([0.0, 1.0], repeat=3)))
def test_rows_are_exchanged_where_a_pivot_is_small(zeros: tuple[float, ...]) -> None:
    """Elimination without pivots would lose all digits, or divide by 0."""
    at = DRAW.normal(size=9)
    at[[0, 4, 8]] *= np.array(zeros) + 1e-17 * (np.array(zeros) == 0)
    for f in (np.linalg.inv, np.linalg.det):
        agree(lambda v, f=f: f(v.reshape(3, 3)), at, rtol=1e-12)


def test_hilberts_matrix_is_solved_as_stably_as_by_lapack() -> None:
    n = 6
    hilbert = 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1.0)
    variables = sg.symbols("h0:36")
    x = np.linalg.solve(sg.array(variables).reshape(n, n), np.ones(n))
    found = sg.evaluate(list(x), dict(zip(variables, hilbert.ravel(), strict=True)))
    residual = np.abs(hilbert @ np.array(found, float) - 1.0).max()
    assert (
        residual <= 8 * np.abs(hilbert @ np.linalg.solve(hilbert, np.ones(n)) - 1.0).max() + 1e-12
    )


DIFFERENTIATED: dict[str, Callable[[Any], Any]] = {
    "solve": lambda v: np.sum(np.linalg.solve(matrix(v, 3), np.array([1.0, 2.0, 3.0])) ** 2),
    "inv": lambda v: np.sum(np.linalg.inv(matrix(v, 4)) * W[0, 0]),
    "det": lambda v: np.linalg.det(matrix(v, 4)),
    "log-likelihood": lambda v: (
        np.linalg.slogdet(definite(v, 3)).logabsdet + v[:3] @ np.linalg.solve(definite(v, 3), v[:3])
    ),
    "cholesky": lambda v: np.sum(np.linalg.cholesky(definite(v, 3)) * B),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_and_hessians_are_those_of_differences(name: str) -> None:
    f, at = DIFFERENTIATED[name], DRAW.normal(size=16)
    kernel = sg.fused_hessian(16, f, device="cpu", dtype="float64")
    value, gradient, hessian = kernel.run(at)
    assert value == pytest.approx(f(at), rel=1e-12)
    for k, h in enumerate(1e-5 * np.eye(16)):
        slope = (f(at + h) - f(at - h)) / 2e-5
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-6 * np.abs(gradient).max())
        row = (kernel.run(at + h)[1] - kernel.run(at - h)[1]) / 2e-5
        np.testing.assert_allclose(hessian[k], row, rtol=1e-5, atol=1e-6 * np.abs(hessian).max())


def test_the_gradient_of_a_determinant_of_a_singular_matrix_is_its_cofactors() -> None:
    kernel = sg.fused_forward_backward(9, lambda v: np.linalg.det(v.reshape(3, 3)), device="cpu")
    value, gradient = kernel.run([1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 0.0, 1.0, 1.0])
    assert value == 0.0
    np.testing.assert_array_equal(gradient, [-2, -2, 2, 1, 1, -1, 0, 0, 0])


def test_zeros_of_a_matrix_cost_nothing() -> None:
    full = trace(lambda v: np.linalg.solve(v[:16].reshape(4, 4), v[:4]), 16)
    triangle = trace(lambda v: np.linalg.solve(np.triu(v[:16].reshape(4, 4)), v[:4]), 16)
    assert len(triangle.graph) < len(full.graph) / 2
    factors = sg.symbols("d0:7")
    determinant = np.linalg.det(np.diag(sg.array(factors)))
    assert sum(sg.count_ops(determinant).values()) <= 13
    assert sg.evaluate(determinant, {d: k + 1.0 for k, d in enumerate(factors)}) == 5040.0
