"""Linear algebra by loops: NumPy's values, right derivatives, short sources, on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg

import symgrad as sg
from symgrad.errors import TraceError
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.arrays import EMPTY_W, PUT
from symgrad.expr.graph.node import WORD
from symgrad.expr.graph.region import has_regions
from symgrad.expr.linear import matrices
from symgrad.expr.tracing.trace import trace
from symgrad.pipeline import Options, simplified

DRAW = np.random.default_rng(31)


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is larger than 4 x 4 is a loop."""
    monkeypatch.setattr(matrices, "MOST_WRITTEN", 16)


def of_numbers(a: np.ndarray) -> np.ndarray:
    """L of ``L @ L.T == a``, also of complex numbers, by which derivatives are exact."""
    lower = np.zeros_like(a)
    for j in range(len(a)):
        lower[j, j] = np.sqrt(a[j, j] - lower[j, :j] @ lower[j, :j])
        for i in range(j + 1, len(a)):
            lower[i, j] = (a[i, j] - lower[i, :j] @ lower[j, :j]) / lower[j, j]
    return lower


def matrix(v: Any, n: int) -> Any:
    return v[: n * n].reshape(n, n)


def definite(v: Any, n: int) -> Any:
    m = matrix(v, n)
    return m @ m.T + np.eye(n)


def weights(n: int, m: int = 1) -> np.ndarray:
    return np.cos(np.arange(n * m) + 1.0).reshape(n, m)


SAMPLES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "solve": (
        lambda v, n: np.sum(np.linalg.solve(matrix(v, n), v[-n:]) * weights(n)[:, 0]),
        lambda v, n: np.sum(np.linalg.solve(matrix(v, n), v[-n:]) * weights(n)[:, 0]),
    ),
    "inv": (
        lambda v, n: np.sum(sg.linalg.inv(matrix(v, n)) * weights(n, n)),
        lambda v, n: np.sum(np.linalg.inv(matrix(v, n)) * weights(n, n)),
    ),
    "det": (
        lambda v, n: sg.linalg.det(matrix(v, n)),
        lambda v, n: np.linalg.det(matrix(v, n)),
    ),
    "slogdet": (
        lambda v, n: np.linalg.slogdet(matrix(v, n)).logabsdet,
        lambda v, n: 0.5 * np.log(np.linalg.det(matrix(v, n)) ** 2),
    ),
    "cholesky": (
        lambda v, n: np.sum(np.linalg.cholesky(definite(v, n)) * weights(n, n)),
        lambda v, n: np.sum(of_numbers(definite(v, n)) * weights(n, n)),
    ),
    "solve_triangular": (
        lambda v, n: np.sum(sg.linalg.solve_triangular(matrix(v, n), v[-n:]) ** 2),
        lambda v, n: np.sum(np.linalg.solve(np.triu(matrix(v, n)), v[-n:]) ** 2),
    ),
}
"""Functions of n * n + n numbers, and the same of complex ones."""


def point(n: int) -> np.ndarray:
    a = DRAW.normal(size=(n, n)) + 2.0 * np.eye(n)[DRAW.permutation(n)]
    a[np.diag_indices(n)] += np.sign(np.diag(a))
    return np.concatenate([a.ravel(), DRAW.normal(size=n)])


@pytest.mark.parametrize("n", [6, 8])
@pytest.mark.parametrize("name", SAMPLES)
def test_values_and_gradients_are_exact(name: str, n: int) -> None:
    f, of_complex = SAMPLES[name]
    at = point(n)
    kernel = sg.fused_forward_backward(
        len(at), lambda v: f(v, n), device="cpu", dtype="float64", roll=False
    )
    value, gradient = kernel.run(at)
    assert has_regions(trace(lambda v: f(v, n), len(at)).graph)
    assert value == pytest.approx(of_complex(at, n), rel=1e-10)
    steps = at + 1e-30j * np.eye(len(at))
    slopes = [np.imag(of_complex(step, n)) / 1e-30 for step in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-10, atol=1e-10 * np.abs(slopes).max())


@pytest.mark.parametrize("name", ["solve", "slogdet", "cholesky"])
def test_hessians_are_differences_of_gradients(name: str) -> None:
    """Of a matrix that two numbers move."""
    n, base, along = 5, point(5), DRAW.normal(size=(2, 30))
    f = lambda v: SAMPLES[name][0](base + v[0] * along[0] + v[1] * along[1], n)  # noqa: E731
    kernel = sg.fused_hessian(2, f, device="cpu", dtype="float64")
    at = np.array([0.05, -0.02])
    _, _, hessian = kernel.run(at)
    for k, h in enumerate(1e-5 * np.eye(2)):
        row = (kernel.run(at + h)[1] - kernel.run(at - h)[1]) / 2e-5
        np.testing.assert_allclose(hessian[k], row, rtol=1e-6, atol=1e-7 * np.abs(hessian).max())


@pytest.mark.parametrize("name", ["slogdet", "cholesky"])
def test_a_gpu_gives_the_same(name: str) -> None:
    n, at = 5, point(5)
    f = lambda v: SAMPLES[name][0](v, n)  # noqa: E731
    on_gpu = sg.fused_forward_backward(len(at), f, device="gpu").run(at)
    on_cpu = sg.fused_forward_backward(len(at), f, device="cpu", dtype="float64").run(at)
    for found, want in zip(on_gpu, on_cpu, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_rows_are_exchanged_where_a_pivot_is_small() -> None:
    """Without that, a permutation has no solution at all, and tiny pivots lose all digits."""
    n = 6
    permuted = [np.eye(n)[DRAW.permutation(n)] for _ in range(5)]
    permuted += [m + 1e-17 * DRAW.normal(size=(n, n)) for m in permuted]
    b = DRAW.normal(size=n)
    f = lambda v: (  # noqa: E731
        np.linalg.solve(matrix(v, n), v[-n:]), np.linalg.det(matrix(v, n)),
        *np.linalg.slogdet(matrix(v, n)),
    )  # fmt: skip
    kernel = sg.fused_forward(n * n + n, f, device="cpu", dtype="float64")
    x, det, sign, logarithm = kernel.run([[*m.ravel(), *b] for m in permuted])
    for k, m in enumerate(permuted):
        np.testing.assert_allclose(x[k], np.linalg.solve(m, b), rtol=1e-12)
        assert det[k] == pytest.approx(np.linalg.det(m), rel=1e-12)
        assert (sign[k], logarithm[k]) == pytest.approx(tuple(np.linalg.slogdet(m)), abs=1e-12)


TRIANGLES = [
    (trans, lower, unit) for trans in (0, 1) for lower in (False, True) for unit in (False, True)
]


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize(("trans", "lower", "unit"), TRIANGLES)
def test_triangles_are_solved_as_scipy_does(n: int, trans: int, lower: bool, unit: bool) -> None:
    at = np.concatenate([point(n), DRAW.normal(size=n)])
    options = {"trans": trans, "lower": lower, "unit_diagonal": unit}

    def f(v: Any) -> Any:
        return sg.linalg.solve_triangular(matrix(v, n), v[n * n :].reshape(n, 2), **options)

    want = scipy.linalg.solve_triangular(matrix(at, n), at[n * n :].reshape(n, 2), **options)
    kernel = sg.fused_forward(len(at), f, device="cpu", dtype="float64")
    np.testing.assert_allclose(kernel.run(at), want, rtol=1e-10)
    np.testing.assert_allclose(f(at), want, rtol=1e-10)


def test_upper_factors_and_stacks_are_numpys() -> None:
    n = 5
    stack = DRAW.normal(size=(2, n, n))
    stack = stack @ stack.swapaxes(1, 2) + np.eye(n)
    right = DRAW.normal(size=(2, n, 3))
    at = np.concatenate([stack.ravel(), right.ravel()])

    def f(v: Any) -> Any:
        a, b = v[: 2 * n * n].reshape(2, n, n), v[2 * n * n :].reshape(2, n, 3)
        return np.linalg.cholesky(a, upper=True), np.linalg.solve(a, b), np.linalg.slogdet(a)[1]

    found = sg.fused_forward(len(at), f, device="cpu", dtype="float64").run(at)
    for part, want in zip(found, f(at), strict=True):
        np.testing.assert_allclose(part, want, rtol=1e-10, atol=1e-13)


def test_what_has_no_factor_is_nan() -> None:
    n = 5
    at = np.diag([1.0, 2.0, -1.0, 1.0, 1.0]).ravel()
    f = lambda v: np.linalg.cholesky(matrix(v, n))[-1, -1]  # noqa: E731
    assert np.isnan(sg.fused_forward(n * n, f, device="cpu").run(at + 0.01))


def lines(n: int) -> int:
    """The source of a likelihood of n numbers, and of its gradient."""

    def f(v: Any) -> Any:
        x = np.linspace(0.0, 1.0, n)
        cov = v[0] * np.exp(-v[1] * (x[:, None] - x) ** 2) + v[2] * np.eye(n)
        lower = np.linalg.cholesky(cov)
        z = sg.linalg.solve_triangular(lower, np.sin(5 * x), lower=True)
        return np.sum(z * z) + 2 * np.sum(np.log(np.diag(lower)))

    text = sg.fused_forward_backward(3, f, device="cpu").wgsl
    return sum(line.lstrip().startswith("for ") for line in text.splitlines())


def test_there_are_as_many_loops_for_a_large_matrix_as_for_a_small_one() -> None:
    assert lines(6) == lines(12) < 40


def test_a_factor_is_used_where_it_stands() -> None:
    """Nothing is copied between a factor and the solution by it."""
    n = 6

    def f(v: Any) -> Any:
        lower = np.linalg.cholesky(matrix(v, n))
        return sg.linalg.solve_triangular(lower, v[-n:], lower=True)

    graph = trace(f, n * n + n).graph
    stored = [args for op, *args in graph.nodes if op is PUT and graph.nodes[args[1]][0] is WORD]
    assert len(stored) == n * n + n


def test_loops_may_solve() -> None:
    """Newton's method for a point where a gradient is 0, a 5 x 5 system in each step."""
    n = 5
    target = np.linspace(0.5, 1.5, n)

    def f(v: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            residual = x**3 + v[0] * np.sum(x) - target
            slope = np.diag(3 * x**2) + v[0]
            return x - np.linalg.solve(slope, residual)

        return sg.fori_loop(0, 8, step, sg.array(np.ones(n)))

    kernel = sg.fused_forward(1, f, device="cpu", dtype="float64")
    x = kernel.run([0.1])
    np.testing.assert_allclose(x**3 + 0.1 * np.sum(x), target, rtol=1e-12)


def test_what_is_no_small_matrix_is_refused() -> None:
    v = sg.array(sg.symbols("v0:66"))
    with pytest.raises(TraceError, match="up to 64 rows"):
        sg.linalg.det(np.outer(v, v)[:65, :65])
    with pytest.raises(TraceError, match="square matrices"):
        sg.linalg.cholesky(v[:6].reshape(2, 3))
    with pytest.raises(TraceError, match="do not match"):
        sg.linalg.solve(v[:9].reshape(3, 3), v[:4])


# --- eigenpairs and least squares -----------------------------------------------------------------


def symmetric(v: Any, n: int) -> Any:
    """The matrix whose lower triangle these numbers are."""
    place = np.zeros((n, n), dtype=int)
    place[np.tril_indices(n)] = range(n * (n + 1) // 2)
    return v[np.maximum(place, place.T)]


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("spread", [1.0, 1e-9])
def test_eigenpairs_are_numpys(n: int, spread: float) -> None:
    """Also of values that nearly coincide, and of matrices that are diagonal already."""
    count = n * (n + 1) // 2
    draws = DRAW.normal(size=(6, count)) * spread
    full = np.array([np.eye(n) + symmetric(d, n) for d in draws])
    full[0] = np.diag(np.arange(n)[::-1])
    f = lambda v: (*np.linalg.eigh(matrix(v, n)), np.linalg.eigvalsh(matrix(v, n), UPLO="U"))  # noqa: E731
    kernel = sg.fused_forward(n * n, f, device="cpu", dtype="float64")
    values, vectors, again = kernel.run(full.reshape(6, -1))
    for a, w, v in zip(full, values, vectors, strict=True):
        np.testing.assert_allclose(w, np.linalg.eigvalsh(a), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(v.T @ v, np.eye(n), atol=1e-13)
        np.testing.assert_allclose(a @ v, v * w, atol=1e-13)
    np.testing.assert_array_equal(values, again)


def by_eigenpairs(v: Any, n: int) -> Any:
    """A function of eigenpairs in which the signs of vectors do not matter."""
    values, vectors = np.linalg.eigh(symmetric(v, n))
    moved = vectors @ np.diag(np.exp(0.3 * values)) @ vectors.T
    return np.sum(moved * weights(n, n)) + np.sum(vectors[0] ** 2 * weights(n)[:, 0])


def test_derivatives_of_eigenpairs_of_both_orders_are_differences() -> None:
    n = 4
    at = DRAW.normal(size=10)
    kernel = sg.fused_hessian(10, lambda v: by_eigenpairs(v, n), device="cpu", dtype="float64")
    value, gradient, hessian = kernel.run(at)
    assert value == pytest.approx(by_eigenpairs(at, n), rel=1e-12)
    for k, h in enumerate(1e-5 * np.eye(10)):
        slope = (by_eigenpairs(at + h, n) - by_eigenpairs(at - h, n)) / 2e-5
        assert gradient[k] == pytest.approx(slope, rel=1e-7, abs=1e-8)
        row = (kernel.run(at + h)[1] - kernel.run(at - h)[1]) / 2e-5
        np.testing.assert_allclose(hessian[k], row, rtol=1e-6, atol=1e-7 * np.abs(hessian).max())


def test_the_gradient_of_eigenvalues_is_exact() -> None:
    """dw/dA is the product of a vector with itself: to the bits, not to those of differences."""
    n, at = 5, DRAW.normal(size=15)
    pull = np.arange(1.0, n + 1)
    f = lambda v: np.sum(np.linalg.eigvalsh(symmetric(v, n)) * pull)  # noqa: E731
    gradient = sg.fused_forward_backward(15, f, device="cpu", dtype="float64").run(at)[1]
    _, vectors = np.linalg.eigh(symmetric(at, n))
    full = vectors @ np.diag(pull) @ vectors.T
    want = (2 * full - np.diag(np.diag(full)))[np.tril_indices(n)]
    np.testing.assert_allclose(gradient, want, rtol=1e-10, atol=1e-12)


def test_equal_eigenvalues_have_derivatives_together_and_vectors_none() -> None:
    n, at = 3, np.array([2.0, 0.0, 2.0, 0.0, 0.0, 2.0])
    squares = lambda v: np.sum(np.linalg.eigvalsh(symmetric(v, n)) ** 2)  # noqa: E731
    gradient = sg.fused_forward_backward(6, squares, device="cpu").run(at)[1]
    np.testing.assert_allclose(gradient, 2 * at * [1, 2, 1, 2, 2, 1])
    vector = lambda v: np.linalg.eigh(symmetric(v, n)).eigenvectors[1, 0]  # noqa: E731
    gradient = sg.fused_forward_backward(6, vector, device="cpu").run(at)[1]
    assert not np.all(np.isfinite(gradient))


def test_eigenpairs_of_what_is_no_number_are_nan() -> None:
    kernel = sg.fused_forward(
        3, lambda v: np.linalg.eigvalsh(symmetric(v, 2)), device="cpu", dtype="float64"
    )
    found = kernel.run([[np.nan, 1.0, 2.0], [1.0, np.inf, 2.0], [0.0, 0.0, 0.0]])
    assert np.all(np.isnan(found[:2]))
    np.testing.assert_array_equal(found[2], [0.0, 0.0])


def test_a_gpu_finds_the_same_eigenvalues() -> None:
    n, at = 4, DRAW.normal(size=(5, 10))
    f = lambda v: np.linalg.eigvalsh(symmetric(v, n))  # noqa: E731
    found = sg.fused_forward(10, f, device="gpu").run(at)
    want = [np.linalg.eigvalsh(symmetric(a, n)) for a in at]
    np.testing.assert_allclose(found, want, atol=3e-6)


def test_least_squares_are_numpys() -> None:
    m, n = 7, 3
    at = DRAW.normal(size=m * n + m)

    def f(v: Any) -> Any:
        x, left, rank, singular = np.linalg.lstsq(v[: m * n].reshape(m, n), v[m * n :], rcond=None)
        assert rank == n
        return x, left, singular

    found = sg.fused_forward(len(at), f, device="cpu", dtype="float64").run(at)
    for part, want in zip(found, f(at), strict=True):
        np.testing.assert_allclose(part, want, rtol=1e-10)


def test_least_squares_do_not_square_the_condition() -> None:
    """The normal equations would lose all digits of a matrix of condition 1e9."""
    t = np.linspace(0.0, 1.0, 12)
    a = np.stack([np.ones(12), 1.0 + 1e-9 * t], axis=1)
    b = a @ np.array([1.0, 2.0]) + 1e-9 * np.cos(9 * t)
    kernel = sg.fused_forward(
        12, lambda v: np.linalg.lstsq(a, v, rcond=None)[0], device="cpu", dtype="float64"
    )
    want = np.linalg.lstsq(a, b, rcond=None)[0]
    np.testing.assert_allclose(kernel.run(b), want, rtol=1e-5)


@pytest.mark.parametrize("rcond", [None, 1e-3])
def test_least_squares_of_points_of_less_than_full_rank_are_nan(rcond: float | None) -> None:
    """Not a large number without a word, in any precision."""
    m, n, rng = 6, 4, np.random.default_rng(3)
    points = rng.normal(size=(50, m * n))
    low = points.reshape(50, m, n).copy()
    low[:25, :, 3] = low[:25, :, :3] @ [1.0, -2.0, 0.5]
    low[25:, :, 1] = 0.0
    x = lambda v: np.linalg.lstsq(v.reshape(m, n), np.arange(m), rcond)[0]  # noqa: E731
    for dtype in ("float32", "float64", "float32x2"):
        kernel = sg.fused_forward(m * n, x, device="cpu", dtype=dtype)
        assert np.isfinite(kernel.run(points)).all()
        assert np.isnan(kernel.run(low.reshape(50, -1))).any(axis=-1).all()


def test_the_gradient_of_least_squares_is_that_of_the_normal_equations() -> None:
    m, n = 6, 3
    at = DRAW.normal(size=m * n + m)

    def of_complex(v: Any) -> Any:
        a, b = v[: m * n].reshape(m, n), v[m * n :]
        return np.sum(np.linalg.solve(a.T @ a, a.T @ b) * weights(n)[:, 0])

    def f(v: Any) -> Any:
        x = sg.linalg.lstsq(v[: m * n].reshape(m, n), v[m * n :])[0]
        return np.sum(x * weights(n)[:, 0])

    value, gradient = sg.fused_forward_backward(len(at), f, device="cpu", dtype="float64").run(at)
    assert value == pytest.approx(of_complex(at), rel=1e-10)
    slopes = [np.imag(of_complex(at + 1e-30j * e)) / 1e-30 for e in np.eye(len(at))]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-10, atol=1e-11)


# --- implicit derivatives -------------------------------------------------------------------------


def ill_conditioned(n: int) -> np.ndarray:
    """A matrix of condition 1e10."""
    left, right = (np.linalg.qr(DRAW.normal(size=(n, n)))[0] for _ in range(2))
    return left @ np.diag(np.logspace(0, -10, n)) @ right


@pytest.mark.parametrize("name", ["solve", "slogdet"])
def test_gradients_of_an_ill_conditioned_matrix_are_as_accurate_as_its_inverse(name: str) -> None:
    n, a = 6, ill_conditioned(6)
    at = np.concatenate([a.ravel(), DRAW.normal(size=n)])
    f = lambda v: SAMPLES[name][0](v, n)  # noqa: E731
    found = sg.fused_forward_backward(len(at), f, device="cpu", dtype="float64").run(at)[1]
    with mpmath.workdps(50):
        inverse = mpmath.matrix(a.tolist()) ** -1
        x, pulled = inverse * mpmath.matrix(at[-n:]), inverse.T * mpmath.matrix(weights(n))
        want = -pulled * x.T if name == "solve" else inverse.T
        want = np.array(want.tolist(), dtype=float)
    np.testing.assert_allclose(found[: n * n].reshape(n, n), want, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("name", ["solve", "inv", "slogdet"])
def test_forward_mode_agrees_with_reverse_mode(name: str) -> None:
    at, n = point(5), 5
    f = lambda v: SAMPLES[name][0](v, n)  # noqa: E731
    gradient = sg.fused_forward_backward(len(at), f, device="cpu", dtype="float64").run(at)[1]
    kernel = sg.fused_jacobian(
        len(at), lambda v: [f(v)], mode="forward", device="cpu", dtype="float64"
    )
    np.testing.assert_allclose(kernel.run(at)[1][0], gradient, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["solve", "inv", "slogdet"])
def test_a_matrix_is_factored_once_for_all_derivatives(name: str) -> None:
    n = 5
    traced = trace(lambda v: SAMPLES[name][0](v, n), n * n + n)
    graph, one = traced.graph, traced.graph.constant(1.0)
    roots = [*traced.outputs, *vjp(graph, {traced.outputs[0]: one}, traced.inputs)]
    ids = [graph.constant(0.0) if i is None else i for i in roots]
    made, _ = simplified(graph, ids, Options("factored"))
    assert sum(op is EMPTY_W for op, *_ in made.nodes) == 1


def test_gradients_go_through_loops_that_solve() -> None:
    """Newton's method: its gradient is that of the point where it ends, a difference of values."""
    n, target = 5, np.linspace(1.5, 2.5, 5)

    def f(v: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            slope = np.diag(3 * x**2) + v[0]
            return x - np.linalg.solve(slope, x**3 + v[0] * np.sum(x) - target)

        return np.sum(sg.fori_loop(0, 8, step, sg.array(np.ones(n))) * weights(n)[:, 0])

    kernel = sg.fused_hessian(1, f, device="cpu", dtype="float64")
    (_, gradient, hessian), h = kernel.run([0.1]), 1e-4
    after, before = kernel.run([0.1 + h]), kernel.run([0.1 - h])
    assert gradient[0] == pytest.approx((after[0] - before[0]) / (2 * h), rel=1e-6)
    assert hessian[0, 0] == pytest.approx((after[1][0] - before[1][0]) / (2 * h), rel=1e-6)


@pytest.mark.parametrize(("trans", "lower", "unit"), TRIANGLES)
def test_gradients_of_triangles_of_both_orders(trans: int, lower: bool, unit: bool) -> None:
    """What stands outside of the triangle has none."""
    n, options = 6, {"trans": trans, "lower": lower, "unit_diagonal": unit}
    at = np.concatenate([point(n), DRAW.normal(size=n)])

    def f(v: Any) -> Any:
        x = sg.linalg.solve_triangular(matrix(v, n), v[n * n :].reshape(n, 2), **options)
        return np.sum(x**3 * weights(n, 2))

    def of_complex(v: Any) -> Any:
        inside = np.tri(n, k=-int(unit))
        t = matrix(v, n) * (inside if lower else inside.T) + unit * np.eye(n)
        x = np.linalg.solve(t.T if trans else t, v[n * n :].reshape(n, 2))
        return np.sum(x**3 * weights(n, 2))

    along, h = DRAW.normal(size=len(at)), 1e-5
    kernel = sg.fused_hvp(len(at), f, device="cpu", dtype="float64")
    _, gradient, product = kernel.run(at, along)
    slopes = [np.imag(of_complex(at + 1e-30j * e)) / 1e-30 for e in np.eye(len(at))]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-10, atol=1e-10 * np.abs(slopes).max())
    after, before = (kernel.run(at + step * along, along)[1] for step in (h, -h))
    change = (after - before) / (2 * h)
    np.testing.assert_allclose(product, change, rtol=1e-5, atol=1e-6 * np.abs(change).max())


def test_second_derivatives_of_least_squares_are_differences_of_gradients() -> None:
    m, n, h = 6, 3, 1e-5
    at, along = DRAW.normal(size=(2, m * n + 2 * m))

    def f(v: Any) -> Any:
        a, b = v[: m * n].reshape(m, n), v[m * n :].reshape(m, 2)
        x, squares, *_ = sg.linalg.lstsq(a, b)
        return np.sum(x**3 * weights(n, 2)) + squares[0] * squares[1] ** 2

    kernel = sg.fused_hvp(len(at), f, device="cpu", dtype="float64")
    value, gradient, product = kernel.run(at, along)
    a, b = at[: m * n].reshape(m, n), at[m * n :].reshape(m, 2)
    x, squares, *_ = np.linalg.lstsq(a, b)
    assert value == pytest.approx(np.sum(x**3 * weights(n, 2)) + squares[0] * squares[1] ** 2)
    slope = (kernel.run(at + h * along, along)[0] - kernel.run(at - h * along, along)[0]) / (2 * h)
    assert gradient @ along == pytest.approx(slope, rel=1e-6)
    after, before = (kernel.run(at + step * along, along)[1] for step in (h, -h))
    change = (after - before) / (2 * h)
    np.testing.assert_allclose(product, change, rtol=1e-5, atol=1e-6 * np.abs(change).max())


def test_hessians_of_least_squares_in_both_modes() -> None:
    """Reverse over reverse, of a matrix that a number moves."""
    m, n = 6, 3
    base, along = DRAW.normal(size=(2, m * n + m))

    def f(v: Any) -> Any:
        moved = base + v[0] * along
        x = sg.linalg.lstsq(moved[: m * n].reshape(m, n), moved[m * n :])[0]
        return sg.grad(np.sum(x * weights(n)[:, 0]), v[0]) * v[1]

    kernel = sg.fused_forward_backward(2, f, device="cpu", dtype="float64")
    (value, slope), h = kernel.run([0.1, 1.0]), 1e-5
    difference = (kernel.run([0.1 + h, 1.0])[0] - kernel.run([0.1 - h, 1.0])[0]) / (2 * h)
    assert slope == pytest.approx([difference, value], rel=1e-6)


def test_gradients_of_ill_conditioned_least_squares_lose_no_more_than_the_condition() -> None:
    m, n = 8, 3
    left = np.linalg.qr(DRAW.normal(size=(m, n)))[0]
    a = left @ np.diag([1.0, 1e-4, 1e-8]) @ np.linalg.qr(DRAW.normal(size=(n, n)))[0]
    at = np.concatenate([a.ravel(), DRAW.normal(size=m)])

    def f(v: Any) -> Any:
        return np.sum(sg.linalg.lstsq(v[: m * n].reshape(m, n), v[m * n :])[0] * weights(n)[:, 0])

    found = sg.fused_forward_backward(len(at), f, device="cpu", dtype="float64").run(at)[1]
    with mpmath.workdps(60):
        matrix_, b = mpmath.matrix(a.tolist()), mpmath.matrix(at[m * n :])
        inverse = (matrix_.T * matrix_) ** -1
        x, z = inverse * (matrix_.T * b), inverse * mpmath.matrix(weights(n))
        want = (b - matrix_ * x) * z.T - (matrix_ * z) * x.T
        want = np.array(want.tolist(), dtype=float)
    np.testing.assert_allclose(found[: m * n].reshape(m, n), want, atol=1e-7 * np.abs(want).max())
