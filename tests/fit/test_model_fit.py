"""Fits with names: what SciPy finds, statistics by their formulas, a table and a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg

RNG = np.random.default_rng(11)
X = np.linspace(0.0, 4.0, 30)
SIGMA = 0.02 + 0.02 * X
Y = 2.5 * np.exp(-1.3 * X) + 0.4 + SIGMA * RNG.normal(size=30)


def decay(x: Any, amount: Any, rate: Any, rest: Any) -> Any:
    return amount * np.exp(-rate * x) + rest


@pytest.fixture(scope="module")
def fit() -> sg.ModelFit:
    return sg.fit_model(decay, X, Y, {"rate": 0.5}, sigma=SIGMA, absolute_sigma=True)


def test_it_is_scipys(fit: sg.ModelFit) -> None:
    popt, pcov = scipy.optimize.curve_fit(decay, X, Y, sigma=SIGMA, absolute_sigma=True)
    np.testing.assert_allclose(fit.popt, popt, rtol=1e-6)
    np.testing.assert_allclose(fit.covariance, pcov, rtol=1e-5)
    assert list(fit.values) == list(fit.errors) == ["amount", "rate", "rest"]
    np.testing.assert_allclose(list(fit.errors.values()), np.sqrt(np.diag(pcov)), rtol=1e-5)


def test_statistics_are_those_of_their_formulas(fit: sg.ModelFit) -> None:
    residuals = Y - decay(X, *fit.popt)
    chi = np.sum((residuals / SIGMA) ** 2)
    np.testing.assert_allclose(fit.residuals, residuals, rtol=1e-9, atol=1e-12)
    found = [fit.chi_square, fit.reduced_chi_square, fit.aic, fit.bic, fit.r_squared]
    around = np.sum((Y - Y.mean()) ** 2)
    wanted = [
        chi, chi / 27, 30 * math.log(chi / 30) + 6, 30 * math.log(chi / 30) + 3 * math.log(30),
        1 - np.sum(residuals**2) / around,
    ]  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_the_band_is_how_far_the_curve_moves(fit: sg.ModelFit) -> None:
    at = np.array([0.1, 1.0, 5.0])
    drawn = RNG.multivariate_normal(fit.popt, 1e-4 * fit.covariance, 40_000)
    curves = decay(at, *[p[:, None] for p in drawn.T])
    np.testing.assert_allclose(fit.band(at), 100 * curves.std(axis=0), rtol=0.02)
    np.testing.assert_allclose(fit.predict(at), decay(at, *fit.popt), rtol=1e-12)


def test_bounds_by_names_hold() -> None:
    fit = sg.fit_model(decay, X, Y, bounds={"rest": (None, 0.3), "amount": (0.0, None)})
    assert fit.values["rest"] == pytest.approx(0.3)
    popt, _ = sg.curve_fit(decay, X, Y, {"rest": 0.2}, bounds={"rest": (None, 0.3)})
    np.testing.assert_allclose(popt, fit.popt, rtol=1e-6)


def test_many_curves_start_by_names() -> None:
    curves = np.stack([a * np.exp(-X) + 0.5 for a in (1.0, 2.0)])
    start = {"amount": np.array([1.1, 2.1]), "rate": 0.8}
    found = sg.fit_many(decay, X, curves, start, bounds={"rate": (0.0, 3.0)}, device="cpu")
    np.testing.assert_allclose(found.x, [[1, 1, 0.5], [2, 1, 0.5]], rtol=1e-6)


def test_two_predictors() -> None:
    x = RNG.normal(size=(2, 50))
    y = 3.0 * x[0] - 2.0 * x[1] + 0.01 * RNG.normal(size=50)
    fit = sg.fit_model(lambda x, a, b: a * x[0] + b * x[1], x, y)
    wanted, *_ = np.linalg.lstsq(x.T, y)
    np.testing.assert_allclose(fit.popt, wanted, rtol=1e-9)
    assert "correlations" in fit.summary() and fit.plot() is not None


def test_the_table_and_the_picture(fit: sg.ModelFit, tmp_path: Any) -> None:
    lines = fit.summary().splitlines()
    assert lines[0] == "decay: 30 points, 3 parameters"
    assert [line.split()[0] for line in lines[3:6]] == ["amount", "rate", "rest"]
    assert f"{fit.reduced_chi_square:.4g}" in lines[-3]
    fit.plot().savefig(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000


def test_what_is_refused() -> None:
    with pytest.raises(sg.InputError, match=r"p0 names 'speed': the model has amount, rate, rest"):
        sg.fit_model(decay, X, Y, {"speed": 1.0})
    with pytest.raises(sg.InputError, match=r"bounds names 'speed'"):
        sg.fit_model(decay, X, Y, bounds={"speed": (0, 1)})
    with pytest.raises(sg.InputError, match=r"x has shape \(30,\), y \(29,\)"):
        sg.fit_model(decay, X, Y[:-1])
    with pytest.raises(sg.InputError, match=r"it was of shape \(30,\) in the fit"):
        sg.fit_model(decay, X, Y).predict(np.ones((2, 3)))


def slopes(x: Any, amount: Any, rate: Any, rest: Any) -> Any:
    curve = np.exp(-rate * x)
    return np.column_stack([curve, -amount * x * curve, np.ones_like(x)])


def test_points_left_out_are_left_out_of_everything() -> None:
    x, y, sigma = X.copy(), Y.copy(), SIGMA.copy()
    x[2], y[5], sigma[7] = np.nan, np.nan, np.inf
    keep = np.isfinite(x) & np.isfinite(y) & np.isfinite(sigma)
    found = sg.fit_model(decay, x, y, sigma=sigma, nan_policy="omit")
    wanted = sg.fit_model(decay, X[keep], Y[keep], sigma=SIGMA[keep])
    popt, pcov = scipy.optimize.curve_fit(
        decay, X[keep], Y[keep], sigma=SIGMA[keep], jac=slopes, ftol=1e-14, xtol=1e-14
    )
    np.testing.assert_allclose(found.popt, popt, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, pcov, rtol=1e-5)
    assert found.freedom == 27 - 3
    assert found.summary() == wanted.summary()
    with pytest.raises(sg.InputError, match="nan_policy='omit'"):
        sg.fit_model(decay, x, y)


def test_a_covariance_of_the_data() -> None:
    whole = np.diag(SIGMA**2) + 0.0005
    found = sg.fit_model(decay, X, Y, sigma=whole)
    popt, pcov = scipy.optimize.curve_fit(decay, X, Y, sigma=whole)
    r = Y - decay(X, *popt)
    np.testing.assert_allclose(found.covariance, pcov, rtol=1e-5)
    np.testing.assert_allclose(found.chi_square, r @ np.linalg.inv(whole) @ r, rtol=1e-9)
    assert len(found.plot().axes) == 2


def test_a_model_of_all_x_is_evaluated_at_all_of_them() -> None:
    centred = lambda x, slope, level: slope * (x - np.mean(x)) + level  # noqa: E731
    found = sg.fit_model(centred, X, Y)
    slope, level = np.polyfit(X - X.mean(), Y, 1)
    np.testing.assert_allclose(found.residuals, Y - centred(X, slope, level), atol=1e-12)
    np.testing.assert_allclose(found.predict(X[:9]), centred(X[:9], slope, level), atol=1e-12)
    columns = np.column_stack([X - X.mean(), np.ones_like(X)])
    wanted = np.sqrt(np.einsum("mi,ij,mj->m", columns, found.covariance, columns))
    np.testing.assert_allclose(found.band(X), wanted, rtol=1e-9)


def test_a_single_x(fit: sg.ModelFit) -> None:
    assert fit.predict(0.7) == fit.predict([0.7])[0]
    assert fit.band(0.7) == fit.band([0.7])[0]
    plane = sg.fit_model(lambda x, a, b: a * x[0] + b * x[1], np.stack([X, X**2]), Y)
    np.testing.assert_allclose(plane.predict([2.0, 3.0]), plane.popt @ [2.0, 3.0], rtol=1e-12)


def test_names_beside_bounds_of_scipy() -> None:
    found = sg.fit_model(decay, X, Y, {"rate": 0.5}, bounds=scipy.optimize.Bounds(0.0, 1.0))
    assert found.values["amount"] == 1.0


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        ({"y": Y + 1j}, {}, "y holds complex128 values"),
        ({"x": X.astype("datetime64[s]")}, {}, "x holds datetime64"),
        ({"y": np.ma.masked_less(Y, 1.0)}, {}, "y has masked entries"),
        ({}, {"bounds": {"rate": 1}}, r"bounds\['rate'\] is 1: \(low, high\) is needed"),
        ({}, {"bounds": {"rate": (0, 1, 2)}}, r"bounds\['rate'\] is \(0, 1, 2\)"),
        ({}, {"p0": [1.0]}, "p0 has 1 parameter, and the model decay"),
        ({}, {"p0": {"rate": "1"}}, r"p0\['rate'\] holds"),
        ({}, {"sigma": np.ones(3)}, r"sigma has shape \(3,\)"),
    ],
)
def test_data_and_options_that_are_refused(data: Any, options: Any, text: str) -> None:
    given = {"x": X, "y": Y} | data
    with pytest.raises(sg.SymgradError, match=text):
        sg.fit_model(decay, given["x"], given["y"], **options)


@pytest.mark.parametrize("size", [2.0**-700, 2.0**700])
def test_measures_of_fits_of_any_size(size: float) -> None:
    x = np.linspace(0.0, 4.0, 30)
    y = 2.5 * np.exp(-1.3 * x) + 0.01 * np.cos(40.0 * x)
    f = lambda x, a, b: a * np.exp(-b * x)  # noqa: E731
    plain = sg.fit_model(f, x, y, sigma=0.01, absolute_sigma=True)
    with pytest.warns(scipy.optimize.OptimizeWarning, match="beyond the range of float64"):
        fit = sg.fit_model(f, x, y * size, sigma=0.01 * size, absolute_sigma=True)
    assert fit.errors["b"] == pytest.approx(plain.errors["b"], rel=1e-9)
    for name in ("chi_square", "reduced_chi_square", "aic", "bic", "r_squared"):
        assert getattr(fit, name) == pytest.approx(getattr(plain, name), rel=1e-9)
