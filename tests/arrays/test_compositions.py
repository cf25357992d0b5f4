"""NumPy's functions that others make up, on whole arrays, beside NumPy; and updates at indices."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import symgrad as sg

RNG = np.random.default_rng(8)
A, B = RNG.normal(size=(2, 12, 30))
X = np.where(RNG.random(40) < 0.2, np.nan, RNG.normal(size=40))

CASES: list[Callable[[Any], Any]] = [
    np.cov,
    lambda a: np.cov(a[0], a[1], bias=True),
    lambda a: np.cov(a, rowvar=False, ddof=2),
    np.corrcoef,
    lambda a: np.quantile(a, [0.1, 0.5, 0.93], axis=1),
    lambda a: np.percentile(a, 25, axis=0, keepdims=True),
    lambda a: [np.quantile(a.reshape(3, 4, 30), 0.3, axis=(0, 2)), np.median(a, (0, 1))],
    lambda a: [
        np.median(a, 1, keepdims=True),
        np.percentile(a, [[5], [50]], (1, 0), keepdims=True),
    ],
    lambda a: [np.nanvar(a[:, :3], 1, ddof=2.5), np.nansum(a, initial=2.0), np.ptp(a, 1)],
    lambda a: np.piecewise(np.where(a > 0.5, np.inf, a), [a < 0], [np.sin]),
    lambda a: [np.vdot(a, B), np.linalg.trace(a.reshape(2, 6, 30)), np.linalg.outer(a[0], B[1])],
    lambda a: [np.nansum(a * X[:30]), np.nanprod(X[:30] + a, axis=1), np.nanmean(X[:30] * a)],
    lambda a: [np.nanmax(X[:30] * a, axis=1), np.nanmin(X[:30] * a, axis=1)],
    lambda a: [np.nanvar(X[:30] + a, axis=1, ddof=1), np.nanstd(X[:30] + a)],
    lambda a: np.nan_to_num(X[:30] + a, nan=2.0),
    lambda a: [np.isposinf(1 / (a - a)), np.isneginf(np.log(a - a))],
    *[lambda a, m=m: np.convolve(a[0], B[0, :7], m) for m in ("full", "same", "valid")],
    lambda a: np.convolve(a[0, :4], B[0], "same"),
    *[lambda a, m=m: np.correlate(a[0], B[0, :6], m) for m in ("full", "same", "valid")],
    *[lambda a, m=m: np.correlate(a[0, :6], B[0], m) for m in ("full", "same")],
    lambda a: np.interp(a, np.linspace(-1, 1, 9), B[0, :9]),
    lambda a: np.interp(a, np.linspace(-1, 1, 9), B[0, :9], left=7.0, right=-1.0),
    lambda a: np.gradient(a, 0.5, axis=1),
    lambda a: list(np.gradient(a)),
    lambda a: [np.gradient(a, np.arange(30) ** 1.5, axis=1), np.gradient(a, 0.5, edge_order=2)[0]],
    lambda a: np.gradient(a[:, :3], [0.0, 0.5, 2.0], axis=1, edge_order=2),
    np.ediff1d,
    lambda a: np.kron(a, B[:2, :3]),
    lambda a: np.cross(a[:, :3], B[:, :3]),
    lambda a: np.linalg.matrix_power(a[:, :12] / 3, 5),
    lambda a: np.select([a < -1, a < 0.5], [a * 2, np.sin(a)], 0.25),
    lambda a: [np.vander(a[0], 4), np.vander(a[0], 3, increasing=True)],
    *[lambda a, k=k: np.rot90(a, k) for k in range(4)],
    lambda a: np.sinc(np.round(a, 0) + 0.25 * a),
    lambda a: np.diagflat(a[:2, :3]),
    lambda a: [*np.divmod(a, 0.7), *np.modf(a)],
    lambda a: [np.block([[a, B], [B, a]]), np.block([a[0], B[1]]), np.block(a)],
    lambda a: [np.linspace(a[0], a[1], 5), np.linspace(a[0, 0], 2.0, 4, False)],
    lambda a: list(np.linspace(a[0], 1.0, 3, retstep=True, dtype=float, axis=-1)),
    lambda a: [np.fmax.reduce(X[:30] * a, axis=1), np.nanmin(X[:30] * a, initial=-0.5)],
    lambda a: [np.delete(a, [1, 3], 0), np.delete(a, slice(2, 9)), np.delete(a, -1, 1)],
    lambda a: [np.insert(a, 3, B[0], 0), np.insert(a, [1, 1, 7], B[:, :3], 1)],
    lambda a: [
        np.insert(a, 2, 5.0),
        np.insert(a, slice(0, 4, 2), 1.0, 1),
        np.insert(a, 1, B[:, :2].T, 1),
    ],
    lambda a: np.choose(np.arange(30) % 3, [a, a**2, 0.5]),
    lambda a: np.choose(np.argmax(a, 1), [a[:, 0], a[:, 1], a[:, 2]], mode="clip"),
    lambda a: np.piecewise(a, [a < -0.5, a > 0.2, a > 1], [lambda x: x**2, np.sin, 3.0, 7.0]),
    lambda a: [np.searchsorted(np.linspace(-1, 1, 9), a, side) for side in ("left", "right")],
    lambda a: np.apply_along_axis(lambda r: r[:4] * np.sum(r), 0, a),
    lambda a: np.apply_along_axis(lambda r: np.outer(r, B[0, :3]), 1, a),
    lambda a: [np.vecdot(a, B), np.matvec(a, B[0]), np.vecmat(a[:, 0], B)],
    lambda a: [np.linalg.norm(a, o) for o in (1, -1, 2, -2, np.inf, -np.inf, "nuc")],
    lambda a: [np.linalg.norm(a, 1, (1, 0), True), np.linalg.norm(a.reshape(3, 4, 30), 2, (0, 2))],
    lambda a: [np.linalg.matrix_norm(a, ord="nuc", keepdims=True), np.linalg.matrix_norm(a)],
    lambda a: [np.linalg.lstsq(a.T, B.T)[k] for k in range(4)],
    lambda a: list(np.linalg.lstsq(a[:, :12], B[:, 0])[:2]),
    lambda a: [np.pad(a, 2, "mean"), np.pad(a, ((1, 2), (0, 3)), "maximum", stat_length=2)],
    lambda a: [np.pad(a, 1, "minimum", stat_length=((1, 2), (3, 4))), np.pad(a[0], 3, "median")],
    lambda a: np.pad(a, ((2, 3), (1, 0)), "linear_ramp", end_values=((1, -2), (3, 4))),
    lambda a: np.pad(np.floor(9 * a).astype(int), ((2, 3), (1, 2)), "linear_ramp"),
    lambda a: [
        np.ldexp(a, np.floor(3 * a).astype(int)),
        *np.linalg.qr(a),
        np.linalg.qr(a[:, :5])[1],
    ],
    lambda a: [np.subtract.outer(a[0], B[:2]), np.multiply.outer(B[0], a[1])],
    lambda a: [np.resize(a, (20, 21)), np.resize(a[0], 5), np.compress(B[0] > 0, a, 1)],
    lambda a: [np.maximum.accumulate(a, 1), np.cumprod(a, 0), np.cumprod(a)],
    lambda a: [np.logaddexp.accumulate(900 * a, 1), np.logaddexp.accumulate(a)],
    lambda a: [np.logical_and.accumulate(a > -1, 0), np.logical_or.accumulate(a > 1, axis=1)],
    lambda a: [np.median(a, (0, 1)), np.median(a, 1, keepdims=True), np.median(X[:30] + a, 0)],
    lambda a: [np.quantile(a, [0.2, 0.5], (0, 1), keepdims=True), np.quantile(X[:30] + a, 0.3, 0)],
    lambda a: bits(np.floor(100 * a).astype(int)),
]


def bits(n: Any) -> list[Any]:
    """Integers whose bits count."""
    both = [n & 6, 5 & n, n | n[::-1], n ^ 3, ~n, np.where(n & 1 == 1, n, -n)]
    return [*both, n << 2, n >> 2, n >> n % 5, 1 << n % 7, np.bitwise_count(n)]


@pytest.mark.parametrize("f", CASES, ids=[str(k) for k in range(len(CASES))])
def test_names_are_what_they_are_in_numpy(f: Any) -> None:
    with np.errstate(all="ignore"):
        want = f(A)
    got = sg.jit(f, device="cpu", dtype="float64")(A)
    if not isinstance(want, list):
        want, got = [want], [got]
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)


def test_slopes_of_interpolations_and_convolutions() -> None:
    def loss(a: Any) -> Any:
        smooth = np.convolve(a, B[0, :7], "same")
        return np.sum(np.interp(smooth, np.linspace(-2, 2, 9), B[1, :9]) ** 2)

    x, along = RNG.normal(size=(2, 300))
    _, grad = sg.value_and_grad(loss, device="cpu", dtype="float64")(x)
    ends = [loss(x + h * along) for h in (1e-7, -1e-7)]
    assert grad @ along == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-5)


def written(a: Any) -> list[Any]:
    """Arrays after writes by masks, and at arrays of known indices, of which some are repeated."""
    u, v, w = a * 1.0, a * 1.0, a * 1.0
    u[a > 0.5] = -1.0
    v[np.array([3, 1, 3]), 2:5] = a[:3, :3]
    w[B > 1] = 0.0
    x, y, z = a * 1.0, a * 1.0, a * 1.0
    np.put(x, [5, 7, 5], [a[0, 0], 2.0])
    np.put_along_axis(x, np.argmax(B, 1, keepdims=True), a[:, :1], 1)
    np.fill_diagonal(y[:, 3:], a[:5, 0])
    np.copyto(y[2:4], a[0], where=B[:2] > 0)
    np.putmask(z, a > 0, B[0])
    return [u, v, w, x, y, z]


def test_writes_by_masks_and_at_arrays_of_indices() -> None:
    got = sg.jit(written, device="cpu", dtype="float64")(A)
    for w, g in zip(written(A), got, strict=True):
        np.testing.assert_array_equal(g, w)
    rows = sg.jit(lambda a: a.at[a[:, 0] > 0].set(2.0), device="cpu", dtype="float64")(A)
    np.testing.assert_array_equal(rows, np.where(A[:, :1] > 0, 2.0, A))


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_slopes_of_running_products_and_maxima(zeros: int) -> None:
    x = RNG.normal(size=(9, 40))
    x[[3, 6][:zeros]] = 0.0
    weights = RNG.normal(size=x.shape)
    others = np.array([np.cumprod(np.where(np.arange(9) == k, 1.0, x.T), 1).T for k in range(9)])
    behind = np.arange(9) >= np.arange(9)[:, None]
    wanted = np.sum(others * weights * behind[..., None], 1)

    def loss(x: Any) -> Any:
        return np.sum(np.cumprod(x, 0) * weights)

    slope = sg.jit(sg.grad(loss), device="cpu", dtype="float64")(x)
    np.testing.assert_allclose(slope, wanted, rtol=1e-12, atol=1e-12)
    largest = sg.jit(
        sg.grad(lambda x: np.sum(np.maximum.accumulate(x, 1) * weights)),
        dtype="float64",
        device="cpu",
    )
    if not zeros:  # no ties
        first = np.array([np.argmax(np.where(np.tri(40) > 0, r, -np.inf), 1) for r in x])
        wanted = np.sum(weights[..., None] * (first[..., None] == np.arange(40)), 1)
        np.testing.assert_allclose(largest(x), wanted, rtol=1e-12, atol=1e-12)


def test_an_index_whose_shape_depends_on_data_is_refused() -> None:
    for make in (sg.jit, sg.value_and_grad):
        with pytest.raises(sg.TraceError, match=r"use np\.where\(mask, a, 0\.0\)"):
            make(lambda a: np.sum(a[a > 0]), device="cpu")(A)


SIDES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "root": (
        lambda x: np.where(x > 0, np.sqrt(x), -x),
        lambda x: np.where(x > 0, 0.5 / x**0.5, -1),
    ),
    "chain": (
        lambda x: np.where(x > 0, np.log(np.sqrt(x)), 0),
        lambda x: np.where(x > 0, 0.5 / x, 0),
    ),
    "read twice": (
        lambda x: (lambda y: np.where(x > 0, y, 0) + np.where(x > 0.5, 2 * y, 0))(np.log(x)),
        lambda x: np.where(x > 0.5, 3 / x, np.where(x > 0, 1 / x, 0)),
    ),
    "quotient": (
        lambda x: np.where(x == 0, 1.0, 3 / x),
        lambda x: np.where(x == 0, 0, -3 / x**2),
    ),
    "cond": (
        lambda x: sg.cond(np.max(x) > 9, lambda: np.log(x), lambda: x**3),
        lambda x: 3 * x**2,
    ),
    "both sides": (
        lambda x: sg.cond(np.max(x) < 9, lambda: np.where(x > 0, x**0.3, x), lambda: 1 / (x - x)),
        lambda x: np.where(x > 0, 0.3 / x**0.7, 1),
    ),
}


@pytest.mark.parametrize("name", SIDES)
def test_a_side_that_is_not_taken_adds_nothing_to_derivatives(name: str) -> None:
    f, slope = SIDES[name]
    x = np.linspace(-1, 1, 401)
    with np.errstate(all="ignore"):
        want = slope(x)
    how: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
    run = sg.value_and_grad(lambda x: np.sum(f(x)), **how)
    np.testing.assert_allclose(run(x)[1], want, rtol=1e-12)
    np.testing.assert_allclose(run(x[[0, 200, 300, 400]])[1], want[[0, 200, 300, 400]], rtol=1e-12)
    second = sg.value_and_grad(lambda x: np.sum(sg.grad(lambda y: np.sum(f(y)))(x)), **how)(x)
    np.testing.assert_allclose(second[0], np.sum(want), rtol=1e-9)
    at, h = x[[3, 390]], 1e-6
    with np.errstate(all="ignore"):
        bend = (slope(at + h) - slope(at - h)) / (2 * h)
    np.testing.assert_allclose(second[1][[3, 390]], bend, rtol=1e-6, atol=1e-6)
    assert np.isfinite(second[1]).all()


EXTREMES: dict[str, tuple[Any, Any]] = {
    "max": (np.max, np.max),
    "min": (np.min, np.min),
    "nanmax": (np.nanmax, np.nanmax),
    "maximum.reduce": (np.maximum.reduce, np.max),
    "norm": (lambda x: np.linalg.norm(x, np.inf), lambda x: np.max(abs(x))),
}


@pytest.mark.parametrize("count", [2, 3, 6, 300])
@pytest.mark.parametrize("name", EXTREMES)
def test_ties_share_what_an_extreme_sends_back(name: str, count: int) -> None:
    f, reference = EXTREMES[name]
    x = np.linspace(0.0, 1.0, count)
    x[:: max(1, count // 5)], x[1] = 1.0, 0.0
    x[3:4] = 0.0
    hits = x == reference(x)
    value, slope = sg.value_and_grad(lambda x: 3 * f(x), device="cpu", dtype="float64")(x)
    assert value == 3 * reference(x)
    np.testing.assert_allclose(slope, 3 * hits / hits.sum(), rtol=1e-15)


@pytest.mark.parametrize("count", [2, 3, 300])
def test_extremes_of_nan_have_no_slope(count: int) -> None:
    x = np.linspace(0.0, 1.0, count)
    x[1] = np.nan
    _, slope = sg.value_and_grad(lambda x: np.max(x), device="cpu", dtype="float64")(x)
    assert np.isnan(slope).all()


@pytest.mark.parametrize("count", [4, 300])
def test_a_tie_with_the_initial_value_is_one_of_two(count: int) -> None:
    f = sg.value_and_grad(lambda x: np.max(x, initial=1.0), device="cpu", dtype="float64")
    np.testing.assert_allclose(f(np.ones(count))[1], 0.5 / count, rtol=1e-15)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_ties_share_alike_in_each_mode_and_in_pickles(mode: Any) -> None:
    kernel = sg.fused_jacobian(
        5, lambda v: [np.max(v) ** 2, np.ptp(v)], mode=mode, device="cpu", dtype="float64"
    )
    for k in (kernel, pickle.loads(pickle.dumps(kernel))):
        _, slopes = k.run([1.0, 2.0, 2.0, 0.0, 2.0])
        np.testing.assert_allclose(slopes[0], [0, 4 / 3, 4 / 3, 0, 4 / 3], rtol=1e-15)
        np.testing.assert_allclose(slopes[1], [0, 1 / 3, 1 / 3, -1, 1 / 3], rtol=1e-15)
    x = sg.array(list(sg.symbols("a b c")))
    assert sg.to_sympy(np.max(x)).doit() == sympy.Max(*sympy.symbols("a b c", real=True))


def test_ties_in_memory_share_alike() -> None:
    """A loop takes the largest of 48 elements that another one has written."""

    def f(v: Any) -> Any:
        a = sg.fori_loop(
            0, 48, lambda k, a: a.at[k].set(v[0] * (k % 4)), sg.array(np.zeros(48) + v[1])
        )
        return np.max(a) + np.min(a)

    kernel = sg.fused_forward_backward(2, f, device="cpu", dtype="float64")
    loss, slope = kernel.run([2.0, 5.0])
    assert loss == 6.0
    np.testing.assert_allclose(slope, [3.0, 0.0], rtol=1e-14)


def test_slopes_at_the_nodes_of_a_table_are_those_to_the_right() -> None:
    x = np.tile([-1.0, 0.0, 1.0], 100)
    nodes, values = np.array([-1.0, 0, 1, 2]), np.array([3.0, 1, 4, 5])
    how: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
    value, slope = sg.value_and_grad(lambda x: np.sum(np.interp(x, nodes, values)), **how)(x)
    assert value == 800.0
    np.testing.assert_array_equal(slope, np.tile([-2.0, 3.0, 1.0], 100))


def test_sinc_and_its_derivatives_are_right_near_zero() -> None:
    """As a quotient its first derivative has no right digit at 1e-4 in float32."""
    x = np.tile(np.array([1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.9999], np.float32), 100)
    z = (np.pi * x.astype(float)) ** 2
    slope = np.where(z < 1e-2, -z / 3 * (1 - z / 10 + z**2 / 280), np.cos(z**0.5) - np.sinc(x))
    _, first = sg.value_and_grad(lambda x: np.sum(np.sinc(x)), device="cpu")(x)
    np.testing.assert_allclose(first, slope / x, rtol=3e-6)
    curved = sg.jit(lambda x: sg.hvp(lambda x: np.sum(np.sinc(x)), x, np.ones(600)), device="cpu")
    small = x < 0.02
    series = -(np.pi**2) / 3 * (1 - 0.3 * z + z**2 / 56)
    np.testing.assert_allclose(curved(x)[small], series[small], rtol=3e-6)
