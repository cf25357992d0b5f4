"""Many curves at once: each as SciPy fits it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.optimize.result import MESSAGES

ScipyBounds: Any = scipy.optimize.Bounds

X = np.linspace(0.0, 4.0, 40)
RNG = np.random.default_rng(0)
TRUE = RNG.uniform(0.5, 2.0, (9, 3))


def decay(x: Any, a: Any, b: Any, c: Any) -> Any:
    return a * np.exp(-b * x) + c


Y = np.array([decay(X, *p) for p in TRUE]) + 0.01 * RNG.normal(size=(9, 40))


def alone(k: int, **options: Any) -> Any:
    return scipy.optimize.curve_fit(decay, X, Y[k], [1, 1, 1], ftol=1e-14, xtol=1e-14, **options)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("sigma", [None, 0.01, np.linspace(0.01, 0.1, 40)], ids=["-", "1", "M"])
def test_each_curve_as_if_it_were_alone(sigma: Any, absolute: bool) -> None:
    found = sg.fit_many(
        decay, X, Y, [1, 1, 1], sigma=sigma, absolute_sigma=absolute, covariance=True, device="cpu"
    )
    assert found.success.all()
    assert (found.x.shape, found.fun.shape, found.cov.shape) == ((9, 3), (9,), (9, 3, 3))
    for k in range(9):
        popt, pcov = alone(k, sigma=sigma, absolute_sigma=absolute)
        np.testing.assert_allclose(found.x[k], popt, rtol=1e-7)
        np.testing.assert_allclose(found.cov[k], pcov, rtol=1e-5)


def test_parameters_are_recovered_in_float32() -> None:
    exact = np.array([decay(X, *p) for p in TRUE])
    found = sg.fit_many(decay, X, exact, np.ones((9, 3)), device="cpu", dtype="float32")
    assert found.success.all()
    np.testing.assert_allclose(found.x, TRUE, rtol=1e-4)


def test_x_and_sigma_of_each_curve() -> None:
    want = sg.fit_many(decay, X, Y, [1, 1, 1], device="cpu")
    wide = np.broadcast_to(X, (9, 1, 40))
    found = sg.fit_many(lambda x, *p: decay(x[0], *p), wide, Y, [1, 1, 1], device="cpu")
    np.testing.assert_allclose(found.x, want.x, rtol=1e-8)
    sigma = RNG.uniform(0.01, 0.1, (9, 40))
    found = sg.fit_many(decay, X, Y, [1, 1, 1], sigma=sigma, device="cpu")
    both = sg.fit_many(lambda x, *p: decay(x[0], *p), wide, Y, [1, 1, 1], sigma=sigma, device="cpu")
    np.testing.assert_allclose(found.x, both.x, rtol=1e-8)
    for k in range(9):
        np.testing.assert_allclose(found.x[k], alone(k, sigma=sigma[k])[0], rtol=1e-7)


def test_several_predictors_and_bounds() -> None:
    x = RNG.uniform(size=(2, 30))
    y = np.stack([2.0 * x[0] - x[1], x[0] + 3.0 * x[1]])
    found = sg.fit_many(lambda x, a, b: a * x[0] + b * x[1], x, y, [0.5, 0.5], device="cpu")
    np.testing.assert_allclose(found.x, [[2.0, -1.0], [1.0, 3.0]], atol=1e-9)
    held = sg.fit_many(
        lambda x, a, b: a * x[0] + b * x[1], x, y, [0.5, 0.5], bounds=(0.0, np.inf), device="cpu"
    )
    want, _ = scipy.optimize.nnls(x.T, y[0])
    np.testing.assert_allclose(held.x, [want, [1.0, 3.0]], atol=1e-8)


def test_one_parameter_has_curve_fits_covariance() -> None:
    model = lambda x, b: np.exp(-b * x)  # noqa: E731
    noise = 0.01 * np.random.default_rng(4).normal(size=(3, len(X)))
    curves = model(X, np.array([[0.5], [1.0], [2.0]])) + noise
    found = sg.fit_many(model, X, curves, [1.0], covariance=True, device="cpu")
    want = [sg.curve_fit(model, X, y, [1.0])[1] for y in curves]
    np.testing.assert_allclose(found.cov, want, rtol=1e-6)


def test_a_singular_fit_has_no_covariance() -> None:
    found = sg.fit_many(lambda x, a, b: (a + b) * x, X, Y, [1, 1], covariance=True, device="cpu")
    assert np.isinf(found.cov).all()


def line(x: Any, a: Any, b: Any) -> Any:
    return a * x + b


def reaction(x: Any, rate: Any, start: Any) -> Any:
    """y' = -rate y^2 by Runge and Kutta's steps from each x to the next."""

    def slope(y: Any) -> Any:
        return -rate * y * y

    def step(y: Any, h: Any) -> Any:
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + h / 2 * b)
        y = y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
        return y, y

    _, values = sg.scan(step, start, x[1:] - x[:-1])
    return np.concatenate([sg.array([start]), values])


AT_ONCE: dict[str, Any] = {
    "mean": lambda x, a, b: a * (x - np.mean(x)) + b,
    "cumulative": lambda x, a, b: np.cumsum(a * np.exp(-b * x)),
    "convolution": lambda x, a, b: np.convolve(a * np.exp(-b * x), np.ones(5) / 5, mode="same"),
}


@pytest.mark.parametrize("own", [False, True], ids=["x", "own x"])
@pytest.mark.parametrize("sigma", [None, np.where(np.arange(40) % 7 == 3, np.inf, 0.05)])
@pytest.mark.parametrize("name", AT_ONCE)
def test_models_of_all_x_at_once(name: str, sigma: Any, own: bool) -> None:
    f, count = AT_ONCE[name], 4
    x = X + 0.1 * np.arange(count)[:, None] if own else np.broadcast_to(X, (count, 40))
    y = np.array([f(x[k], *TRUE[k, :2]) for k in range(count)]) + 0.01 * Y[:count]
    options: Any = {"sigma": sigma, "covariance": True, "device": "cpu"}
    found = sg.fit_many(f, x if own else X, y, [1.0, 1.0], **options)
    assert found.success.all()
    keep = slice(None) if sigma is None else np.isfinite(sigma)
    for k in range(count):
        popt, pcov = scipy.optimize.curve_fit(
            lambda _, a, b, k=k: f(x[k], a, b)[keep], X, y[k][keep], [1, 1], ftol=1e-14, xtol=1e-14
        )
        np.testing.assert_allclose(found.x[k], popt, rtol=1e-6)
        atol = 1e-5 * np.abs(pcov).max()
        np.testing.assert_allclose(found.cov[k], pcov, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("own", [False, True], ids=["x", "own x"])
@pytest.mark.parametrize("device", ["cpu", 0])
def test_an_ordinary_differential_equation_by_scan(device: Any, own: bool) -> None:
    """The reference is the closed solution."""
    x = X + np.zeros((5, 1)) if own else X
    rate, start = TRUE[:5, :1], TRUE[:5, 1:2]
    y = start / (1 + rate * start * X)
    found = sg.fit_many(reaction, x, y, [1.0, 1.0], device=device, dtype="float64")
    np.testing.assert_allclose(found.x, TRUE[:5, :2], rtol=1e-4)


def test_curves_of_different_lengths_of_models_of_all_x() -> None:
    f, short = AT_ONCE["cumulative"], 25
    y = f(X, 1.3, 0.7) * np.ones((2, 1))
    y[1, short:] = np.nan
    found = sg.fit_many(f, X, y, [1.0, 1.0], nan_policy="omit", device="cpu")
    np.testing.assert_allclose(found.x, [[1.3, 0.7]] * 2, rtol=1e-9)
    x = np.where(np.isnan(y), np.nan, X)
    with pytest.raises(sg.InputError, match="needs all x at once, and x holds NaN"):
        sg.fit_many(f, x, y, [1.0, 1.0], nan_policy="omit", device="cpu")


def test_other_methods_and_several_predictors_of_models_of_all_x() -> None:
    pairs = np.stack([X, np.sqrt(X)])
    f = lambda x, a, b: np.cumsum(a * x[0] + b * x[1])  # noqa: E731
    y = np.array([f(pairs, *p) for p in TRUE[:3, :2]])
    for method in (None, sg.LBFGS()):
        found = sg.fit_many(f, pairs, y, [1.0, 1.0], method=method, device="cpu")
        np.testing.assert_allclose(found.x, TRUE[:3, :2], rtol=1e-6)


def test_an_x_for_each_curve() -> None:
    x = np.array([X, 1.5 * X, 2.0 * X])
    want = np.array([[2.0, 0.5, 0.1], [3.0, 0.7, 0.0], [1.0, 2.0, -0.3]])
    y = np.array([decay(a, *p) for a, p in zip(x, want, strict=True)])
    found = sg.fit_many(decay, x, y, [1, 1, 1], device="cpu")
    np.testing.assert_allclose(found.x, want, atol=1e-7)
    # of the same shape, but predictors: the model does not take a single number
    both = sg.fit_many(
        lambda x, a, b, c: a * x[0] + b * x[1] + c * x[2] ** 2, x, y, [1, 1, 1], device="cpu"
    )
    design = np.stack([x[0], x[1], x[2] ** 2], axis=1)
    np.testing.assert_allclose(both.fun, [0.5 * np.linalg.lstsq(design, v)[1].sum() or
                               0.5 * np.sum((design @ np.linalg.lstsq(design, v)[0] - v) ** 2)
                               for v in y], rtol=1e-6)  # fmt: skip


def test_a_row_has_one_residual() -> None:
    with pytest.raises(sg.TraceError, match="returned 2 values for one x"):
        sg.fit_many(lambda x, a: a * x, np.stack([X, X]), Y, [1.0], device="cpu")


@pytest.mark.parametrize("method", [sg.Adam(0.05), sg.LBFGS(), sg.Newton(), sg.GaussNewton()])
def test_other_methods_minimise_the_squares_too(method: Any) -> None:
    found = sg.fit_many(
        line, X, Y, [1, 1], method=method, steps=3000, covariance=True, device="cpu"
    )
    want = sg.fit_many(line, X, Y, [1, 1], covariance=True, device="cpu")
    np.testing.assert_allclose(found.x, want.x, rtol=1e-3)
    np.testing.assert_allclose(found.fun, want.fun, rtol=1e-4)
    np.testing.assert_allclose(found.cov, want.cov, rtol=1e-2)


def test_a_start_that_overflows_costs_its_own_covariance_alone() -> None:
    starts = np.ones((9, 3))
    starts[4, 1] = -500.0
    found = sg.fit_many(decay, X, Y, starts, covariance=True, device="cpu")
    want = sg.fit_many(decay, X, Y, [1, 1, 1], covariance=True, device="cpu")
    others = np.arange(9) != 4
    assert found.status[4] == -2 and np.isinf(found.cov[4]).all()
    np.testing.assert_allclose(found.cov[others], want.cov[others], rtol=1e-9)


@pytest.mark.parametrize("sigma", [None, np.linspace(0.01, 0.1, 40)], ids=["-", "M"])
@pytest.mark.parametrize("own", [False, True])
def test_rows_with_nan_are_left_out(sigma: Any, own: bool) -> None:
    y, x = Y.copy(), np.broadcast_to(X, Y.shape).copy() if own else X.copy()
    y[0, 5], y[1, 30:] = np.nan, np.nan
    if own:
        x[2, 0] = np.nan
    found = sg.fit_many(
        decay, x, y, [1, 1, 1], sigma=sigma, covariance=True, nan_policy="omit", device="cpu"
    )
    assert found.success.all()
    for k in range(9):
        seen = x[k] if own else x
        keep = ~np.isnan(y[k]) & ~np.isnan(seen)
        popt, pcov = scipy.optimize.curve_fit(
            decay, seen[keep], y[k, keep], [1, 1, 1], None if sigma is None else sigma[keep],
            ftol=1e-14, xtol=1e-14,
        )  # fmt: skip
        np.testing.assert_allclose(found.x[k], popt, rtol=1e-6)
        np.testing.assert_allclose(found.cov[k], pcov, rtol=1e-4)
    ended = sg.fit_many(decay, X, y, [1, 1, 1], device="cpu")
    assert ended.status[:2].tolist() == [-2, -2] and ended.success[2:].all()
    with pytest.raises(sg.InputError, match="the first is row 5 of curve 0"):
        sg.fit_many(decay, X, y, [1, 1, 1], nan_policy="raise", device="cpu")
    with pytest.raises(sg.InputError, match='use one of "propagate"'):
        sg.fit_many(decay, X, y, [1, 1, 1], nan_policy="skip", device="cpu")  # pyright: ignore


def test_starts_and_bounds_as_in_scipy() -> None:
    want = sg.fit_many(decay, X, Y, [1, 1, 1], device="cpu")
    np.testing.assert_array_equal(sg.fit_many(decay, X, Y, device="cpu").x, want.x)
    box = ScipyBounds(np.zeros(3), np.full(3, 3.0))
    held = sg.fit_many(decay, X, Y, bounds=box, device="cpu")
    np.testing.assert_allclose(held.x, want.x, rtol=1e-6)
    with pytest.raises(sg.InputError, match="infeasible: p0 is outside of the bounds"):
        sg.fit_many(decay, X, Y, [5, 1, 1], bounds=box, device="cpu")
    with pytest.raises(sg.InputError, match="Unable to determine number of fit parameters"):
        sg.fit_many(lambda x, *p: p[0] * x, X, Y, device="cpu")
    with pytest.raises(sg.InputError, match="deviations are positive"):
        sg.fit_many(decay, X, Y, [1, 1, 1], sigma=0.0, device="cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y[0], [1, 1, 1]), "Y has shape"),
        ((X[:5], Y, [1, 1, 1]), "x has shape"),
        ((X, Y, np.ones((4, 3))), "p0 has shape"),
    ],
)
def test_shapes_that_do_not_fit(arguments: Any, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        sg.fit_many(decay, *arguments, device="cpu")
    with pytest.raises(sg.InputError, match="sigma has shape"):
        sg.fit_many(decay, X, Y, [1, 1, 1], sigma=[1.0, 2.0], device="cpu")


@pytest.mark.skipif(not any(d.is_gpu for d in sg.devices()), reason="no GPU")
def test_float64_after_a_gpu_without_it_is_the_cpus() -> None:
    want = sg.fit_many(decay, X, Y, covariance=True, device="cpu")
    own = next(d for d in sg.devices() if d.is_gpu)
    for gpu in {own, replace(own, dtypes=("float32",))}:
        found = sg.fit_many(decay, X, Y, covariance=True, device=gpu, dtype="float64")
        assert found.x.dtype == np.float64 and found.success.all()
        np.testing.assert_allclose(found.x, want.x, rtol=1e-9)
        np.testing.assert_allclose(found.cov, want.cov, rtol=1e-6)
    lacking, there = replace(own, dtypes=("float32",)), sg.device_array(Y, "gpu")
    with pytest.raises(sg.InputError, match=r"use Y\.numpy"):
        sg.fit_many(decay, X, there, np.ones(3), device=lacking, dtype="float64")


@pytest.mark.parametrize("sigma", [None, 0.5, "each"])
@pytest.mark.parametrize("missing", ["y", "x"])
def test_a_curve_without_any_row_has_no_fit(sigma: Any, missing: str) -> None:
    x = np.tile(np.linspace(0.0, 3.0, 20), (3, 1))
    y = np.exp(-x * [[0.5], [1.0], [2.0]])
    given = {"x": x.copy(), "y": y.copy()}
    given[missing][1] = np.nan
    found = sg.fit_many(
        lambda x, a, b: a * sg.exp(-b * x), given["x"], given["y"], [1.0, 1.5], covariance=True,
        nan_policy="omit", sigma=np.ones_like(y) if sigma == "each" else sigma, device="cpu",
    )  # fmt: skip
    assert found.success.tolist() == [True, False, True]
    assert found.status[1] == -2 and np.isnan(found.fun[1]) and np.isinf(found.cov[1]).all()
    np.testing.assert_allclose(found.x[[0, 2], 1], [0.5, 2.0], rtol=1e-9)


def bell(x: Any, height: Any, place: Any) -> Any:
    return height * np.exp(-((x - place) ** 2))


SCALES = {
    "float32": 2.0 ** np.array([-90.0, -63.0, -40.0, 0.0, 50.0, 63.0, 100.0]),
    "float64": 2.0 ** np.array([-1000.0, -700.0, -500.0, 0.0, 500.0, 700.0, 1000.0]),
}


@pytest.mark.parametrize("weighted", [None, "shared", "own"])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(("dtype", "digits"), [("float32", 3e-6), ("float64", 1e-9)])
def test_curves_of_any_size(dtype: Any, digits: float, absolute: bool, weighted: Any) -> None:
    """Curves times powers of two, beside one another, have the errors of the curve."""
    x, scales = np.linspace(-2.0, 2.0, 30), SCALES[dtype]
    y = bell(x, 1.5, 0.2) + 0.01 * np.random.default_rng(3).normal(size=x.size)
    starts = np.stack([scales, np.zeros(len(scales))], axis=1)
    sigma = np.linspace(0.5, 1.5, x.size)
    given = {None: None, "shared": sigma, "own": sigma * scales[:, None]}[weighted]
    options: Any = {"covariance": True, "absolute_sigma": absolute, "device": "cpu"}
    alone = sigma if weighted else None
    plain = sg.fit_many(bell, x, y[None], [[1.0, 0.0]], sigma=alone, dtype="float64", **options)
    found = sg.fit_many(bell, x, y * scales[:, None], starts, sigma=given, dtype=dtype, **options)
    assert found.success.all()
    np.testing.assert_allclose(found.x[:, 0] / scales, plain.x[0, 0], rtol=digits)
    np.testing.assert_allclose(found.x[:, 1], plain.x[0, 1], rtol=10 * digits)
    with np.errstate(over="ignore", under="ignore"):
        unit = (1.0 / scales) ** 2 if absolute and weighted != "own" else np.ones(len(scales))
        want = plain.cov[0, 1, 1] * unit
    np.testing.assert_allclose(found.cov[:, 1, 1], want, rtol=100 * digits)
    assert list(found.message) == [MESSAGES[s] for s in found.status]


@pytest.mark.parametrize("device", ["cpu", 0])
def test_curves_that_float32_has_not_are_no_successes(device: Any) -> None:
    x = np.linspace(-2.0, 2.0, 30)
    y, scales = bell(x, 1.5, 0.2), np.array([1e-60, 1.0, 1e60])
    starts = np.stack([scales, np.zeros(3)], axis=1)
    found = sg.fit_many(bell, x, y * scales[:, None], starts, device=device, dtype="float32")
    assert found.success.tolist() == [False, True, False]
    both = sg.fit_many(bell, x, y * scales[:, None], starts, device=device, dtype="float64")
    assert both.success.all()
    np.testing.assert_allclose(both.x[:, 0] / scales, 1.5, rtol=1e-9)
    np.testing.assert_allclose(both.x[:, 1], 0.2, rtol=1e-9)


@pytest.mark.parametrize("device", ["cpu", 0])
@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_curves_from_starts_of_one(dtype: Any, size: float, device: Any) -> None:
    """Residuals that are nothing beside those at the start are not beside y."""
    x = np.linspace(-2.0, 2.0, 30)
    found = sg.fit_many(bell, x, bell(x, 1.5, 0.2)[None] * size, device=device, dtype=dtype)
    rtol = 1e-6 if dtype == "float32" else 1e-12
    assert found.success.all()
    np.testing.assert_allclose(found.x[0] / [size, 1.0], [1.5, 0.2], rtol=rtol)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_a_start_of_one_beside_curves_that_are_far_from_it_is_no_success(size: float) -> None:
    x = np.linspace(-2.0, 2.0, 30)
    found = sg.fit_many(bell, x, bell(x, 1.5, 0.2)[None] * size, device="cpu", dtype="float64")
    assert not found.success[0]
