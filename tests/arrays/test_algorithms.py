"""Linear algebra and sorts of large arrays: values of NumPy and SciPy, slopes by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg

import symgrad as sg

RNG = np.random.default_rng(11)
N = 70
ANY = RNG.normal(size=(N, N))
DEFINITE = ANY @ ANY.T / N + np.eye(N)
RIGHT, VECTOR = RNG.normal(size=(N, 2)), RNG.normal(size=N)
TALL = RNG.normal(size=(80, 13))
BATCH = DEFINITE[:20, :20] + 0.1 * RNG.normal(size=(3, 20, 20))


def triangular(a: Any, b: Any, **options: Any) -> Any:
    """Of numbers SciPy's."""
    if isinstance(a, np.ndarray):
        return scipy.linalg.solve_triangular(a, b, **options)
    return sg.linalg.solve_triangular(a, b, **options)


def expm(a: Any) -> Any:
    """Of numbers SciPy's."""
    return scipy.linalg.expm(a) if isinstance(a, np.ndarray) else sg.linalg.expm(a)


def symmetric(a: Any) -> Any:
    return (a + a.T) / 2


def eigen(a: Any) -> Any:
    values, vectors = np.linalg.eigh(symmetric(a))
    return np.sum(np.sin(values)) + np.sum(vectors**4 * np.arange(N))


def orthogonal(a: Any) -> Any:
    q, r = np.linalg.qr(a)
    return np.sum(np.sin(3 * q) * q) + np.sum(r**2 * np.arange(13.0))


def of_low_rank(a: Any, b: Any) -> Any:
    """A function of the pseudo-inverse, and of the least solutions, of a product of rank 3."""
    x = np.linalg.lstsq(a @ b.T, RIGHT[:20], rcond=1e-10)[0]
    return np.sum(np.sin(np.linalg.pinv(a @ b.T, 1e-10))) + np.sum(x**3)


def vectors(a: Any) -> Any:
    """A function of singular values and vectors."""
    u, s, v = np.linalg.svd(a, full_matrices=False)
    weights = np.arange(len(a) * 1.0)[:, None] + np.arange(a.shape[1])
    return np.sum(u**4) + np.sum(s**2) + np.sum(np.sin((u * s**1.5) @ v) * weights) + np.sum(v**4)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (lambda a: np.sum(np.sin(np.linalg.cholesky(symmetric(a)))), (DEFINITE,)),
    "solve": (lambda a, b: np.sum(np.sin(np.linalg.solve(a, b))), (DEFINITE, VECTOR)),
    "solve_batch": (lambda a, b: np.sum(np.linalg.solve(a, b) ** 2), (BATCH, RIGHT[:20])),
    "lower": (
        lambda a, b: np.sum(np.sin(triangular(a, b, lower=True))), (DEFINITE + 3 * np.eye(N), RIGHT)
    ),
    "upper_transposed": (
        lambda a, b: np.sum(np.sin(triangular(a, b, trans=1))), (DEFINITE + 3 * np.eye(N), VECTOR)
    ),
    "inv": (lambda a: np.sum(np.sin(np.linalg.inv(a))), (DEFINITE,)),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1] ** 2, (ANY,)),
    "det": (lambda a: np.sum(np.linalg.det(a)), (BATCH,)),
    "eigh": (eigen, (ANY,)),
    "qr": (orthogonal, (TALL,)),
    "qr of wide": (lambda a: np.sum(np.sin(3 * np.linalg.qr(a.T)[1])), (TALL,)),
    "svd": (lambda a: np.sum(np.sin(np.linalg.svd(a, compute_uv=False))), (TALL,)),
    "svd of tall": (vectors, (TALL,)),
    "svd of wide": (lambda a: vectors(a.T), (TALL,)),
    "expm": (lambda a: np.sum(np.sin(expm(0.2 * a))), (ANY,)),
    "pinv": (of_low_rank, (ANY[:20, :3], ANY[:30, 3:6])),
    "cond": (lambda a: np.linalg.cond(a) + np.linalg.cond(a[:13], 1), (TALL,)),
    "sort": (lambda a: np.sum(np.sort(a, axis=0)[:5] ** 3) + np.median(a), (TALL,)),
}  # fmt: skip


def slope(f: Callable[..., Any], arrays: tuple[np.ndarray, ...], way: list[np.ndarray]) -> float:
    """The derivative along a direction, by Richardson's extrapolation of central differences."""

    def difference(h: float) -> float:
        up, down = (f(*[x + s * h * d for x, d in zip(arrays, way, strict=True)]) for s in (1, -1))
        return float(up - down) / (2 * h)

    return (4 * difference(5e-5) - difference(1e-4)) / 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes(name: str) -> None:
    f, arrays = FUNCTIONS[name]
    step = sg.value_and_grad(f, argnums=tuple(range(len(arrays))), device="cpu", dtype="float64")
    value, grads = step(*arrays)
    assert np.isclose(value, f(*arrays), rtol=1e-10)
    way = [RNG.normal(size=x.shape) for x in arrays]
    along = sum(np.sum(g * d) for g, d in zip(grads, way, strict=True))
    assert np.isclose(along, slope(f, arrays, way), rtol=1e-6)


def likelihood(x: Any, y: Any, length: Any) -> Any:
    """The negative logarithm of a Gaussian process's marginal likelihood."""
    distances = np.sum((x[:, None] - x[None]) ** 2, -1)
    covariance = np.exp(-0.5 * distances / length**2) + 0.1 * np.eye(len(x))
    lower = np.linalg.cholesky(covariance)
    white = triangular(lower, y, lower=True)
    return 0.5 * np.sum(white**2) + np.sum(np.log(np.diagonal(lower)))


def test_a_gaussian_process_and_the_slope_of_its_slope() -> None:
    x, length = RNG.normal(size=(350, 3)), np.array(0.7)
    y = np.sin(x[:, 0])
    gradient = sg.value_and_grad(likelihood, argnums=(0, 2), device="cpu", dtype="float64")
    value, (dx, dl) = gradient(x, y, length)
    assert np.isclose(value, likelihood(x, y, 0.7), rtol=1e-11)
    way = [RNG.normal(size=x.shape), 0 * y, np.array(0.3)]
    along = np.sum(dx * way[0]) + dl * way[2]
    assert np.isclose(along, slope(likelihood, (x, y, length), way), rtol=1e-7)

    def slopes(x: Any, y: Any, length: Any) -> Any:
        inner = sg.value_and_grad(likelihood, argnums=(0, 2))(x, y, length)[1]
        return np.sum(np.sin(inner[0])) + inner[1]

    second = sg.value_and_grad(slopes, argnums=(0, 2), device="cpu", dtype="float64")
    _, (dx, dl) = second(x, y, length)

    def plain(x: Any, y: Any, length: Any) -> Any:
        _, inner = gradient(x, y, length)
        return np.sum(np.sin(inner[0])) + inner[1]

    along = np.sum(dx * way[0]) + dl * way[2]
    assert np.isclose(along, slope(plain, (x, y, length), way), rtol=1e-6)


def test_on_a_gpu_what_it_does_not_factor_is_done_on_the_host() -> None:
    f, arrays = FUNCTIONS["eigh"]
    value, grad = sg.value_and_grad(f, device="gpu")(*arrays)
    wanted = sg.value_and_grad(f, device="cpu", dtype="float64")(*arrays)
    assert np.isclose(value, wanted[0], rtol=1e-4)
    assert np.allclose(grad, wanted[1], rtol=1e-3, atol=1e-2)


LOW = {
    (4, 4): np.outer(ANY[0, :4], ANY[1, :4]),
    (6, 4): ANY[:6, :2] @ ANY[2:4, :4],
    (4, 6): ANY[:4, :3] @ ANY[3:6, :6],
    (30, 20): ANY[:30, :20],
}


@pytest.mark.parametrize("shape", LOW)
@pytest.mark.parametrize("verb", ["jit", "value_and_grad"])
def test_least_squares_of_any_rank_are_numpys(shape: tuple[int, int], verb: str) -> None:
    """Of a matrix of rank 1 the solution once was 4e30."""
    a, b = LOW[shape], ANY[: shape[0], :2]
    for rcond in (None, 0.3):
        x, _, rank, values = np.linalg.lstsq(a, b, rcond=rcond)
        f = lambda a, rcond=rcond: np.linalg.lstsq(a, b, rcond=rcond)  # noqa: E731
        if verb == "jit":
            got = sg.jit(f, device="cpu", dtype="float64")(a)
            assert got[2] == rank
            np.testing.assert_allclose(got[3], values, atol=1e-13)
        else:
            total = lambda a, f=f: (np.sum(f(a)[0]), f(a)[0])  # noqa: E731
            got = sg.value_and_grad(total, has_aux=True, device="cpu", dtype="float64")(a)[0][1:]
        np.testing.assert_allclose(got[0], x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("f", [
    np.linalg.pinv,
    lambda a: np.linalg.pinv(a, 0.3),
    lambda a: np.linalg.pinv(a, rtol=0.3),
    np.linalg.matrix_rank,
    lambda a: np.linalg.matrix_rank(a, 0.5),
    lambda a: np.linalg.matrix_rank(a, rtol=0.3),
    lambda a: np.linalg.cond(a, -2),
    lambda a: np.linalg.pinv(a[..., :4, :4], hermitian=True),
    lambda a: np.linalg.matrix_rank(a[..., :4, :4], hermitian=True),
    lambda a: np.linalg.svd(a[..., :4, :4], compute_uv=False, hermitian=True),
])  # fmt: skip
def test_ranks_and_pseudo_inverses_are_numpys(f: Any) -> None:
    for a in (*LOW.values(), BATCH):
        got = sg.jit(f, device="cpu", dtype="float64")(a)
        np.testing.assert_allclose(got, f(a), rtol=1e-9, atol=1e-12)


def cofactors(a: np.ndarray) -> np.ndarray:
    """The signed minors of a matrix."""
    minor = lambda i, j: np.linalg.det(np.delete(np.delete(a, i, 0), j, 1))  # noqa: E731
    n = len(a)
    return np.array([[(-1) ** (i + j) * minor(i, j) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_slopes_of_determinants_of_singular_matrices_are_their_cofactors(device: Any) -> None:
    """Where a factor is 0 its inverse is none, and the slopes once were NaN."""
    whole = np.array([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]])
    beyond = np.zeros((7, 7))
    beyond[1:, 1:] = np.diag(np.arange(1.0, 7.0)) + 1.0
    for a in (whole, whole * [[1], [1], [0]], beyond, np.zeros((4, 4)), np.outer([1, 2], [3, 6])):
        for f in (sg.value_and_grad, lambda f, **o: sg.jit(sg.value_and_grad(f), **o)):
            value, slope = f(np.linalg.det, device=device)(a)
            np.testing.assert_allclose(value, np.linalg.det(a), atol=1e-4)
            np.testing.assert_allclose(slope, cofactors(a), rtol=2e-6, atol=1e-4)


def test_second_derivatives_of_determinants() -> None:
    a, w = BATCH[0, :6, :6], ANY[:6, :6]
    outer = lambda a: np.sum(w * sg.grad(np.linalg.det)(a))  # noqa: E731
    slope_of = sg.value_and_grad(np.linalg.det, device="cpu", dtype="float64")
    along = np.sum(w * sg.jit(sg.grad(outer), device="cpu", dtype="float64")(a))
    want = slope(lambda a: np.sum(w * slope_of(a)[1]), (a,), [w])
    assert np.isclose(along, want, rtol=1e-8)


@pytest.mark.parametrize("a", [np.ones((3, 3)), ANY[:4, :3] @ ANY[:3, :4], np.zeros((2, 2))])
def test_second_derivatives_of_determinants_of_singular_matrices(a: np.ndarray) -> None:
    """A determinant is linear in each element, so differences over a distance of 1 are exact."""
    n = len(a)
    want = np.zeros((n,) * 4)
    for place in np.ndindex(n, n):
        step = np.zeros((n, n))
        step[place] = 1.0
        want[place] = cofactors(a + step) - cofactors(a)
    curvature = sg.jit(sg.hessian(np.linalg.det), device="cpu", dtype="float64")(a)
    np.testing.assert_allclose(curvature, want, atol=1e-13)


def test_third_derivatives_of_determinants() -> None:
    a, u, w = BATCH[0, :4, :4], ANY[:4, :4], ANY[4:8, :4]
    outer = lambda a: np.sum(u * sg.grad(lambda a: np.sum(w * sg.grad(np.linalg.det)(a)))(a))  # noqa: E731
    run = sg.jit(sg.value_and_grad(outer), device="cpu", dtype="float64")
    way = ANY[8:12, :4]
    want = slope(lambda a: run(a)[0], (a,), [way])
    assert np.isclose(np.sum(way * run(a)[1]), want, rtol=1e-8)


def test_no_factor_is_nan_and_shapes_are_refused() -> None:
    value, _ = sg.value_and_grad(FUNCTIONS["cholesky"][0], device="cpu")(-DEFINITE)
    assert np.isnan(value)
    with pytest.raises(sg.TraceError, match="square matrices"):
        sg.value_and_grad(lambda a: np.sum(np.linalg.inv(a)), device="cpu")(TALL)


@pytest.mark.parametrize("size", [0.01, 1.0, 40.0])
def test_the_exponential_of_a_small_matrix(size: float) -> None:
    a = ANY[:3, :3] * size
    kernel = sg.fused_forward(
        9, lambda v: sg.linalg.expm(v.reshape(3, 3)).ravel(), device="cpu", dtype="float64"
    )
    with mpmath.workdps(60):
        wanted = np.array(mpmath.expm(mpmath.matrix(a.tolist())).tolist(), float)
    results = [kernel.run(a.ravel()).reshape(3, 3), sg.linalg.expm(a)]
    error = max(np.abs(x - wanted).max() for x in results) / np.abs(wanted).max()
    assert error <= 1e-15 * (1 + np.linalg.norm(a, 1))


def test_systems_without_unknowns_have_solutions_without_elements() -> None:
    solve = sg.jit(np.linalg.solve, device="cpu")
    assert solve(np.zeros((0, 0)), np.zeros(0)).shape == (0,)
    assert solve(np.zeros((0, 0)), np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("shape", [(150, 150), (2, 130, 130), (520, 520)])
def test_factors_by_blocks(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(2).normal(size=shape)
    a, right = a @ a.mT / shape[-1] + np.eye(shape[-1]), np.random.default_rng(3).normal(size=shape)
    run = sg.jit(
        lambda a, c: (
            lower := np.linalg.cholesky(a), sg.linalg.solve_triangular(lower, c, lower=True)
        ),
        device="cpu", dtype="float64",
    )  # fmt: skip
    factor, solution = run(a + np.triu(right, 1), right)
    np.testing.assert_allclose(factor, np.linalg.cholesky(a), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(factor @ solution, right, rtol=1e-11, atol=1e-12)
    a[..., -1, -1] = -1.0
    assert np.isnan(run(a, right)[0]).all()
