"""A row of weight 0 contributes nothing, whatever its loss and derivatives come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]

ROWS = np.array([[1, 2, 1], [1e30, 1, 0], [-5, 1, 0], [2, 3, 0.5], [np.nan, 1, 0], [3, 1, 2]])
"""Columns x, y and a weight: where it is 0 the misfit is infinite or NaN."""

GOOD = ROWS[ROWS[:, 2] > 0]


def misfit(p: Any, r: Any) -> Any:
    return sg.exp(p[0] * r[0]) + sg.log(p[1] + r[0]) - r[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("verb", [sg.fused_forward_backward, sg.fused_least_squares])
def test_sums_over_rows(verb: Any, reduce: str, device: Any) -> None:
    kernel = verb(2, misfit, row=3, weights=2, reduce=reduce, device=device)
    for found in (kernel.run([0.5, 1.0], ROWS), kernel.bind(ROWS).run([0.5, 1.0])):
        for a, b in zip(found, kernel.run([0.5, 1.0], GOOD), strict=True):
            assert np.isfinite(b).all()
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_lines_of_tables_that_rows_look_up(device: Any) -> None:
    kernel = sg.fused_forward_backward(
        {"rate": (3, 2), "shift": ()},
        lambda p, r: sg.exp(p.rate[r.who, 0] * r.x) * p.rate[r.who, 1] + p.shift * r.x,
        columns=["who", "x", "w"], weights="w", device=device,
    )  # fmt: skip
    rows = {"who": [0, 1, 2, 0], "x": [0.5, 1e30, np.inf, 2.0], "w": [1.0, 0.0, 0.0, 3.0]}
    good = {name: [v[0], v[3]] for name, v in rows.items()}
    params = {"rate": [[0.1, 1.0], [2.0, 3.0], [1.0, -1.0]], "shift": 0.3}
    (loss, slopes), (want, right) = kernel.run(params, rows), kernel.run(params, good)
    assert loss == pytest.approx(want, rel=1e-6)
    np.testing.assert_allclose(slopes["rate"], right["rate"], rtol=1e-6)
    assert slopes["shift"] == pytest.approx(right["shift"], rel=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_weight_that_is_nan_is_seen(device: Any) -> None:
    kernel = sg.fused_forward_backward(2, misfit, row=3, weights=2, device=device)
    loss, slopes = kernel.run([0.5, 1.0], [[1.0, 2.0, np.nan]])
    assert np.isnan(loss) and np.isnan(slopes).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "method", [sg.LevenbergMarquardt(), sg.LBFGS(), sg.Newton(), sg.Adam(0.01)],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_minimisations_over_data(method: Any, device: Any) -> None:
    kernel = sg.fused_least_squares(2, misfit, row=3, weights=2, device=device)
    found = kernel.minimize([0.2, 1.0], method, 20, rows=ROWS)
    want = kernel.minimize([0.2, 1.0], method, 20, rows=GOOD)
    assert np.isfinite(want.fun).all()
    np.testing.assert_allclose(found.x, want.x, rtol=1e-3)
    np.testing.assert_allclose(found.fun, want.fun, rtol=1e-4)


def growth(x: Any, a: Any, b: Any) -> Any:
    return a * np.exp(b * x)


X = np.array([0.0, 1.0, 2.0, 3.0, 1e4])
Y = np.array([*(growth(X[:4], 1.0, 0.5) + 0.02 * np.cos(9 * X[:4])), 7.0])
SIGMA = np.array([0.1, 0.2, 0.1, 0.2, np.inf])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", [None, sg.LBFGS()], ids=["LM", "LBFGS"])
def test_curves_with_infinite_deviations(method: Any, device: Any) -> None:
    found = sg.fit_many(
        growth, X, Y[None], [1.1, 0.6], sigma=SIGMA, method=method, dtype="float32",
        covariance=True, absolute_sigma=True, device=device,
    )  # fmt: skip
    want, cov = scipy.optimize.curve_fit(
        growth, X[:4], Y[:4], [1.1, 0.6], sigma=SIGMA[:4], absolute_sigma=True
    )
    np.testing.assert_allclose(found.x[0], want, rtol=2e-3)
    np.testing.assert_allclose(found.cov[0], cov, rtol=1e-2)


def test_many_variables_whose_matrix_the_kernel_keeps() -> None:
    if len(DEVICES) == 1:
        pytest.skip("no GPU")
    n = 13
    rows = np.column_stack([np.linspace(-1, 1, 30), np.ones(30)])
    rows[[3, 20]] = [[np.inf, 0.0], [1e30, 0.0]]

    def wave(p: Any, r: Any) -> Any:
        return np.sum([p[k] * np.cos(k * r[0]) for k in range(n)]) - sg.exp(r[0])

    kernel = sg.fused_least_squares(n, wave, row=2, weights=1, device=DEVICES[1])
    found = kernel.minimize(np.zeros(n), sg.LevenbergMarquardt(), 3, rows=rows)
    want = kernel.minimize(np.zeros(n), sg.LevenbergMarquardt(), 3, rows=rows[rows[:, 1] > 0])
    assert np.isfinite(found.x).all()
    np.testing.assert_allclose(found.fun, want.fun, rtol=1e-2)


@pytest.mark.parametrize("rows", [5, 2**17 + 5], ids=["few", "many"])
def test_one_curve_with_infinite_deviations(rows: int) -> None:
    x = np.concatenate([np.linspace(0, 3, rows - 1), X[-1:]])
    sigma = np.where(x > 10, np.inf, 0.1)
    y = np.where(x > 10, 7.0, growth(np.minimum(x, 3.0), 1.0, 0.5) + 0.01 * np.cos(9 * x))
    found, cov = sg.curve_fit(growth, x, y, [1.1, 0.6], sigma=sigma, absolute_sigma=True)
    want, right = sg.curve_fit(
        growth, x[:-1], y[:-1], [1.1, 0.6], sigma=sigma[:-1], absolute_sigma=True
    )
    np.testing.assert_allclose(found, want, rtol=1e-6)
    np.testing.assert_allclose(cov, right, rtol=1e-6)
