"""Levenberg and Marquardt's method: where it ends, and what it calls a success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.pipeline import DTypeName


def growth(x: Any, a: Any, b: Any) -> Any:
    return a * (1.0 - np.exp(-b * x))


GROWTH = np.array([1.0, 2, 3, 5, 7, 10]), np.array([109.0, 149, 149, 191, 213, 224])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_that_has_run_flat_is_no_success(dtype: DTypeName) -> None:
    """NIST's BoxBOD from its first start: exp(-b x) underflows, and b has no gradient any more."""
    x, y = GROWTH
    found = sg.fit_many(growth, x, [y, y], [[1.0, 1.0], [100.0, 0.75]], device="cpu", dtype=dtype)
    assert found.success.tolist() == [False, True]
    if dtype == "float32":
        assert found.status[0] == -3
        assert "flat" in found.message[0]
    np.testing.assert_allclose(found.x[1], [213.80940889, 0.54723748542], rtol=1e-5)


def test_variables_without_effect_are_no_failure() -> None:
    x, y = GROWTH
    unused = sg.fit_many(lambda x, a, b, c: growth(x, a, b) + 0.0 * c, x, [y], [100.0, 0.75, 3.0],
                         device="cpu", dtype="float32")  # fmt: skip
    assert unused.success[0]
    held = sg.fit_many(lambda x, a, b, c: growth(x, a, b) + c * np.exp(-x), x, [0.0 * y + 1.0],
                       [1.0, 1.0, 1.0], bounds=([0.0, 0.1, 0.0], [9.0, 9.0, 9.0]), device="cpu",
                       dtype="float32")  # fmt: skip
    assert held.success[0]


def spots(count: int, peak: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels, images of round spots with Poisson noise, and starts."""
    draw = np.random.default_rng(1)
    pixels = np.mgrid[:11.0, :11.0].reshape(2, -1)
    a, x, y, w = draw.uniform([0.5, 4, 4, 1.2], [1.5, 6, 6, 2], (count, 4)).T
    far = (pixels[0] - x[:, None]) ** 2 + (pixels[1] - y[:, None]) ** 2
    images = draw.poisson(peak * a[:, None] * np.exp(-far / (2 * w[:, None] ** 2)) + 20)
    starts = np.full((count, 5), [0, 5, 5, 1.5, 0.0])
    starts[:, 0], starts[:, 4] = np.ptp(images, axis=1), images.min(axis=1)
    return pixels, images, starts


def spot(x: Any, a: Any, x0: Any, y0: Any, w: Any, offset: Any) -> Any:
    return a * np.exp(-((x[0] - x0) ** 2 + (x[1] - y0) ** 2) / (2 * w**2)) + offset


@pytest.mark.parametrize(("peak", "steps", "error"), [(1000.0, 5.0, 1e-4), (100.0, 7.0, 2e-3)])
def test_fits_in_float32_end_soon_and_where_float64_does(
    peak: float, steps: float, error: float
) -> None:
    pixels, images, starts = spots(2000, peak)
    found = sg.fit_many(spot, pixels, images, starts, device="cpu", dtype="float32")
    want = sg.fit_many(spot, pixels, images, starts, device="cpu", dtype="float64")
    assert found.success.all() and want.success.all()
    assert found.nit.mean() < steps and found.nit.max() < 50
    assert np.quantile(np.abs(found.x / want.x - 1).max(axis=1), 0.999) < error


def decay(p: Any, row: Any) -> Any:
    return p[0] * np.exp(-p[1] * row[0]) - row[1]


def decaying(scale: float, noise: float = 0.02) -> np.ndarray:
    """x and y of a decay with noise of a hundredth, y times the scale, (40, 2)."""
    x = np.linspace(0.0, 4.0, 40)
    errors = noise * np.random.default_rng(0).normal(size=x.size)
    return np.stack([x, (2.5 * np.exp(-1.3 * x) + errors) * scale], axis=1)


GPUS = [d.index for d in sg.devices() if d.is_gpu][:1]
METHODS = [sg.LevenbergMarquardt(), sg.GaussNewton()]
POWERS = {"float32": (-47, -20, 52), "float64": (-430, -40, 450)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_ends_do_not_depend_on_the_unit_of_y(method: Any, dtype: DTypeName) -> None:
    """Powers of two round nothing, so the same steps lead to the same bits in that unit."""
    fit: Any = {"n": 2, "method": method, "steps": 200, "device": "cpu", "dtype": dtype}
    plain = sg.minimize_from(decay, starts=[[1.0, 1.0]], shared=decaying(1.0), **fit)
    assert plain.success[0]
    for power in POWERS[dtype]:
        unit = 2.0**power
        found = sg.minimize_from(decay, starts=[[unit, 1.0]], shared=decaying(unit), **fit)
        assert found.success[0] and found.nit[0] == plain.nit[0]
        np.testing.assert_array_equal(found.x[0] / np.array([unit, 1.0], dtype), plain.x[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_ends_do_not_depend_on_the_unit_of_residuals(method: Any, dtype: DTypeName) -> None:
    fit: Any = {"n": 2, "starts": [[1.0, 1.0]], "method": method, "steps": 200, "device": "cpu",
                "dtype": dtype, "shared": decaying(1.0)}  # fmt: skip
    plain = sg.minimize_from(decay, **fit)
    for power in POWERS[dtype]:
        found = sg.minimize_from(lambda p, row, unit=2.0**power: unit * decay(p, row), **fit)
        assert found.success[0] and found.nit[0] == plain.nit[0]
        np.testing.assert_array_equal(found.x, plain.x)


@pytest.mark.parametrize(
    ("device", "noise"), [("cpu", 1e-4), ("cpu", 0.0), *[(d, 0.0) for d in GPUS]]
)
def test_residuals_whose_fourth_powers_vanish(device: Any, noise: float) -> None:
    """In float32: an end is found as it is in the unit of y, from near and from far, or none is."""
    fit: Any = {"n": 2, "method": sg.LevenbergMarquardt(), "steps": 200, "device": device}
    plain = sg.minimize_from(decay, starts=[[1.0, 1.0]], shared=decaying(1.0, noise), **fit)
    least = (-52, -46, -40) if device == "cpu" else (-30,)  # GPUs may take subnormal numbers for 0
    for power in (*least, 52):
        unit = 2.0**power
        data = decaying(unit, noise)
        found = sg.minimize_from(decay, starts=[[unit, 1.0], [1.0, 1.0]], shared=data, **fit)
        right = np.all(np.abs(found.x / np.array([unit, 1.0]) / plain.x - 1) < 2e-7, axis=1)
        assert right[0] and found.nit[0] == plain.nit[0]
        assert (found.success == right).all()
        assert right[1] or abs(power) > 48


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_small_data_from_a_start_that_is_far_larger(
    method: Any, dtype: DTypeName, scale: float
) -> None:
    """Residuals that are nothing beside those at the start are not rounding."""
    data = decaying(1.0)
    want = scipy.optimize.least_squares(lambda p: decay(p, data.T), [2.0, 1.0], xtol=1e-15,
                                        ftol=1e-15, gtol=1e-15).x  # fmt: skip
    found = sg.minimize_from(decay, 2, [[1.0, 1.0]], method, 200, shared=decaying(scale),
                             device="cpu", dtype=dtype)  # fmt: skip
    assert found.success[0]
    rtol = 1e-6 if dtype == "float32" else 1e-7  # squares are compared, to 1e-15 of them
    np.testing.assert_allclose(found.x[0] / [scale, 1.0], want, rtol=rtol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "residuals",
    [
        lambda v: [v[0], v[0] + v[1]],
        lambda v: [v[0] ** 2, v[1]],
        lambda v: [np.exp(v[0]) - 1.0, v[1] - np.sin(v[0])],
        lambda v: [np.cosh(v[0]) - 1.0, v[1]],
    ],
)
def test_residuals_that_vanish_at_0(residuals: Any, method: Any, dtype: DTypeName) -> None:
    """There is no J x for their rounding to be compared with, and columns of J may vanish too."""
    starts = [[3.0, 4.0], [-1.0, 0.1]]
    found = sg.minimize_from(residuals, 2, starts, method, 200, device="cpu", dtype=dtype)
    assert found.success.all()
    np.testing.assert_allclose(found.x, 0.0, atol=1e-3 if dtype == "float32" else 1e-7)
