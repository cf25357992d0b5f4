"""CurveRegressor is a regressor of scikit-learn as any other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import symgrad as sg

pytest.importorskip("sklearn", reason="needs scikit-learn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from symgrad.sklearn import CurveRegressor

INFORMATIVE = 4
"""The feature that scikit-learn's checks make y of."""


def line(x: Any, a: Any, b: Any) -> Any:
    """A straight line in one feature of any number: one is a number or (M,), several (k, ..)."""
    several = np.ndim(x) == 2 or isinstance(x, sg.ExprArray)
    return a + b * (x[min(INFORMATIVE, len(x) - 1)] if several else x)


def decay(x: Any, amount: Any, rate: Any) -> Any:
    return amount * np.exp(-rate * x)


def plane(x: Any, a: Any, b: Any, c: Any) -> Any:
    return a + b * x[0] + c * x[1] ** 2


X = np.linspace(0.0, 3.0, 30)[:, None]
Y = decay(X[:, 0], 2.0, 0.7) + 0.05 * np.cos(23 * X[:, 0])


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
def test_scikit_learns_own_checks() -> None:
    found = check_estimator(CurveRegressor(line), on_fail=None, on_skip=None)
    assert len(found) > 40
    assert [c["check_name"] for c in found if c["status"] not in ("passed", "skipped")] == []
    skipped = [str(c["exception"]) for c in found if c["status"] == "skipped"]
    assert [why for why in skipped if "SCIPY_ARRAY_API" not in why and "pandas" not in why] == []


def test_it_fits_as_curve_fit_does() -> None:
    popt, pcov = sg.curve_fit(decay, X[:, 0], Y)
    model = CurveRegressor(decay).fit(X, Y)
    assert model.parameters_ == dict(zip(("amount", "rate"), popt, strict=True))
    np.testing.assert_array_equal(list(model.errors_.values()), np.sqrt(np.diag(pcov)))
    values, spread = model.predict(X[:5], return_std=True)
    np.testing.assert_allclose(values, decay(X[:5, 0], *popt), rtol=1e-14)
    e = np.exp(-popt[1] * X[:5, 0])
    slopes = np.stack([e, -popt[0] * X[:5, 0] * e])
    np.testing.assert_allclose(spread, np.sqrt(np.einsum("im,ij,jm->m", slopes, pcov, slopes)))


def test_several_features_are_predictors() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 2))
    model = CurveRegressor(plane).fit(points, plane(points.T, 1.0, -2.0, 0.5))
    np.testing.assert_allclose(list(model.parameters_.values()), [1.0, -2.0, 0.5], rtol=1e-12)
    assert model.score(points, plane(points.T, 1.0, -2.0, 0.5)) == pytest.approx(1.0)


def test_weights_are_those_of_deviations() -> None:
    weight = np.linspace(0.0, 4.0, len(Y))
    model = CurveRegressor(decay, absolute_sigma=True).fit(X, Y, sample_weight=weight)
    popt, pcov = sg.curve_fit(decay, X[1:, 0], Y[1:], sigma=weight[1:] ** -0.5, absolute_sigma=True)
    np.testing.assert_allclose(list(model.parameters_.values()), popt, rtol=1e-10)
    np.testing.assert_allclose(model.fit_.covariance, pcov, rtol=1e-8)


def test_it_stands_in_pipelines_and_searches() -> None:
    pipeline = make_pipeline(StandardScaler(), CurveRegressor(decay)).fit(X, Y)
    np.testing.assert_allclose(pipeline.predict(X), CurveRegressor(decay).fit(X, Y).predict(X))
    search = GridSearchCV(CurveRegressor(line), {"model": [line, decay]}, cv=3).fit(X, Y)
    assert search.best_params_["model"] is decay
    assert cross_val_score(CurveRegressor(decay), X[::-1], Y[::-1], cv=3).shape == (3,)


def test_copies_have_what_it_has() -> None:
    model = CurveRegressor(decay, p0={"rate": 1.0}, bounds={"rate": (0.0, None)}, max_nfev=50)
    fitted: Any = clone(model)
    fitted.fit(X, Y)
    copied: Any = clone(fitted)
    assert not hasattr(model, "fit_") and copied.get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.fit_.summary() == fitted.fit_.summary()


@pytest.mark.parametrize(
    ("model", "samples", "message"),
    [
        (CurveRegressor(decay), 1, "n_samples = 1"),
        (CurveRegressor(decay, p0=[1.0, 1.0]), 1, "n_samples = 1"),
        (CurveRegressor(decay, p0={"speed": 1.0}), 30, "'speed'"),
        (CurveRegressor(decay, bounds={"rate": (2.0, 1.0)}), 30, "strictly less"),
    ],
)
def test_what_it_refuses(model: CurveRegressor, samples: int, message: str) -> None:
    with pytest.raises(sg.InputError, match=message) as caught:
        model.fit(X[:samples], Y[:samples])
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("weight", [-1.0, np.ones(3), np.ones((30, 1)), -np.ones(30)])
def test_weights_that_it_refuses(weight: Any) -> None:
    with pytest.raises(sg.InputError, match="sample_weight has shape"):
        CurveRegressor(decay).fit(X, Y, sample_weight=weight)
