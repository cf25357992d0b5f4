"""Matrices of any magnitude, of constants alone, and singular ones; norms and their curvature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(5, 3)), RNG.normal(size=5)
S = A[:3] + A[:3].T
LOGARITHM = np.linalg.slogdet(S)[1]
LARGE = np.tile(RNG.normal(size=(4, 4)), (4, 4)) + 9 * np.eye(16)

OF_ANY_SIZE: dict[str, Callable[[Any, Any], Any]] = {
    "lstsq": lambda a, s: np.linalg.lstsq(A * a, B * a)[0],
    "lstsq, unlike columns": lambda a, s: (
        np.linalg.lstsq(A * sg.array([a, 1.0, 1.0 / a]), B)[0] * np.array([s, 1.0, 1 / s])),
    "squares that are left": lambda a, s: np.linalg.lstsq(A, B * a**0.25)[1] / s**0.5,
    "singular values": lambda a, s: np.linalg.lstsq(A * a, B)[3] / s,
    "eigvalsh": lambda a, s: np.linalg.eigvalsh(S * a) / s,
    "eigh": lambda a, s: np.linalg.eigh(S * a)[1] ** 2,
    "norm of three": lambda a, s: np.linalg.norm(A[0] * a) / s,
    "norm of a matrix": lambda a, s: np.linalg.norm(A * a) / s,
    "norms of rows": lambda a, s: np.linalg.norm(A.T @ A * a, axis=1) / s,
    "solve of two": lambda a, s: np.linalg.solve(S[:2, :2] * a, B[:2] * a),
    "solve of three": lambda a, s: np.linalg.solve(S * a, B[:3] * a),
    "solve of sixteen": lambda a, s: np.linalg.solve(LARGE * a, np.ones(16) * a),
    "cholesky": lambda a, s: np.linalg.cholesky(A.T @ A * a) / s**0.5,
    "slogdet": lambda a, s: np.linalg.slogdet(S * a)[1] / (LOGARITHM + 3 * np.log(s)),
    "inv": lambda a, s: np.linalg.inv(S * a) * s,
}  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [("float32", (1.0, 2.0**66, 2.0**-83)), ("float64", (2.0**530, 2.0**-560))],
)
def test_linear_algebra_of_large_and_small_elements(dtype: Any, sizes: tuple[float, ...]) -> None:
    def every(v: Any, s: float) -> list[Any]:
        return [np.ravel(np.array(f(v[0], s), dtype=object)) for f in OF_ANY_SIZE.values()]

    for s in sizes:
        kernel = sg.fused_forward(
            1, lambda v, s=s: np.concatenate(every(v, s)), device="cpu", dtype=dtype
        )
        found = np.asarray(kernel.run([s]), float)
        wanted = np.concatenate(every([1.0], 1.0)).astype(float)
        np.testing.assert_allclose(found, wanted, rtol=2e-5 if dtype == "float32" else 1e-13)


def test_derivatives_of_least_squares_do_not_overflow() -> None:
    kernel = sg.fused_forward_backward(
        1, lambda v: np.sum(np.linalg.lstsq(A * v[0], B)[0]), device="cpu"
    )
    total = np.linalg.lstsq(A, B)[0].sum()
    for s in (2.0**60, 2.0**-40):
        value, slope = kernel.run([s])
        assert value * s == pytest.approx(total, rel=1e-5)
        assert float(slope[0]) * s * s == pytest.approx(-total, rel=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 13])
def test_singular_matrices_have_the_determinant_zero(n: int) -> None:
    def f(v: Any) -> Any:
        a = np.ones((n, n)) * v[0] if n > 1 else sg.array([[v[0] - v[0]]])
        return [*np.linalg.slogdet(a), np.linalg.det(a)]

    assert list(sg.fused_forward(1, f, device="cpu").run([2.0])) == [0.0, -np.inf, 0.0]


CONSTANT = np.array([[2.0, 1.0], [1.0, 3.0]])

OF_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "eigvalsh": np.linalg.eigvalsh,
    "eigh": lambda a: np.linalg.eigh(a)[1],
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "slogdet": lambda a: np.linalg.slogdet(a)[1],
    "cholesky": np.linalg.cholesky,
    "solve": lambda a: np.linalg.solve(a, np.ones(2)),
    "solve_triangular": lambda a: sg.linalg.solve_triangular(a, np.ones(2), lower=True),
    "lstsq": lambda a: np.linalg.lstsq(a, np.ones(2))[0],
    "singular values": lambda a: np.linalg.lstsq(a, np.ones(2))[3],
    "matrix_power": lambda a: np.linalg.matrix_power(a, -2),
    "norm": np.linalg.norm,
    "norm 1": lambda a: np.linalg.norm(a, 1),
    "vector_norm": np.linalg.vector_norm,
    "matrix_norm": np.linalg.matrix_norm,
    "multi_dot": lambda a: np.linalg.multi_dot([a, a, a]),
    "trace": np.linalg.trace,
}


@pytest.mark.parametrize("name", OF_CONSTANTS)
def test_arrays_of_constants_alone_are_numbers(name: str) -> None:
    f = OF_CONSTANTS[name]
    np.testing.assert_allclose(np.asarray(f(sg.array(CONSTANT)), float), f(CONSTANT), rtol=1e-14)


def test_a_constant_among_matrices_and_a_triangle_without_variables() -> None:
    def f(v: Any) -> Any:
        stack = np.stack([sg.array(CONSTANT), sg.array(CONSTANT * v[0])])
        above = sg.array([[4.0, v[0]], [1.0, 3.0]])
        return [*np.linalg.eigvalsh(stack)[:, 0], np.linalg.cholesky(above)[1, 1],
                np.linalg.eigvalsh(above)[0]]  # fmt: skip

    found = sg.fused_forward(1, f, device="cpu", dtype="float64").run([2.0])
    least = np.linalg.eigvalsh(CONSTANT)[0]
    lower = np.array([[4.0, 1.0], [1.0, 3.0]])
    wanted = [least, 2 * least, np.linalg.cholesky(lower)[1, 1], np.linalg.eigvalsh(lower)[0]]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("at", [(1.0, 30.0), (1.0, 30.0, 0.02), (5.0, 1e-3, 200.0, 1.0)])
def test_the_curvature_of_a_norm_has_no_cancellation(at: tuple[float, ...]) -> None:
    n, x = len(at), np.array(at, np.float32).astype(float)
    kernel = sg.fused_hessian(n, np.linalg.norm, device="cpu")
    hessian = np.asarray(kernel.run(list(at))[2], float)
    r = np.sqrt(x @ x)
    wanted = -np.outer(x, x) / r**3
    for k in range(n):
        wanted[k, k] = (x @ x - x[k] ** 2) / r**3 if n > 2 else np.delete(x, k)[0] ** 2 / r**3
    np.testing.assert_allclose(np.diag(hessian), np.diag(wanted), rtol=3e-6)
    scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert np.all(abs(hessian - wanted) <= 3e-6 * (abs(wanted) if n < 4 else scale))
