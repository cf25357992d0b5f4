"""Every way to run an iteration gives what the interpreter gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optimize.data_sets import CASES
from optimize.problems import Interpreted, rosenbrock, rosenbrock_residuals

import symgrad as sg

STARTS = np.random.default_rng(0).normal(size=(37, 2)).astype("float32")
HAS_GPU = sg.devices()[0].is_gpu
DEVICES = ["cpu", pytest.param("gpu", marks=pytest.mark.skipif(not HAS_GPU, reason="no GPU"))]


def interpreted(iteration: Any) -> Interpreted:
    return Interpreted(iteration, np.float32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "method",
    [sg.Adam(0.02), sg.LBFGS(3), sg.Newton(), sg.LevenbergMarquardt()],
    ids=lambda m: type(m).__name__,
)
def test_ends_are_the_same(method: Any, device: Any) -> None:
    f = rosenbrock_residuals if method.needs == "squares" else rosenbrock
    found = sg.minimize_from(f, 2, STARTS, method, 150, device=device)
    want = sg.minimize_from(f, 2, STARTS, method, 150, device="cpu", runner=interpreted)
    np.testing.assert_allclose(found.x, want.x, atol=5e-3)
    np.testing.assert_array_equal(found.success, want.success)


@pytest.mark.parametrize("device", DEVICES)
def test_data_of_each_problem(device: Any) -> None:
    x = np.linspace(0.0, 3.0, 25)
    rates = np.linspace(0.3, 2.0, 21)
    curves = 2.0 * np.exp(-np.outer(rates, x))
    found = sg.fit_many(
        lambda x, a, b: a * np.exp(-b * x), x, curves, [1.0, 1.0], device=device, dtype="float32"
    )
    assert found.success.all()
    np.testing.assert_allclose(found.x[:, 1], rates, rtol=1e-4)


@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
def test_where_float32_fails_float64_begins_anew() -> None:
    case = CASES["MGH17"]
    popt, _ = sg.curve_fit(case.f, case.x, case.y, case.starts[0], device="gpu")
    assert case.digits(popt) > 10
    x = np.linspace(0.0, 1.0, 20)
    popt, _ = sg.curve_fit(lambda x, a: a * x * 1e30, x, 2e10 * x, [1e15], device="gpu")
    assert popt[0] == pytest.approx(2e-20)


@pytest.mark.parametrize("name", ["DanWood", "Kirby2", "Thurber"])
@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
def test_a_fit_on_a_gpu_ends_in_float64(name: str) -> None:
    case = CASES[name]
    popt, _ = sg.curve_fit(case.f, case.x, case.y, case.starts[0], device="gpu")
    assert case.digits(popt) > 10
    popt, _ = sg.curve_fit(case.f, case.x, case.y, case.starts[0], device="gpu", dtype="float32")
    assert case.digits(popt) > 4.5
