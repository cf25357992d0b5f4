"""Levenberg and Marquardt's method: where it ends, and what it calls a success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
