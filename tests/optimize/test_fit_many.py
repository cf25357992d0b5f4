"""Many curves at once: each as SciPy fits it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg

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


def test_a_singular_fit_has_no_covariance() -> None:
    found = sg.fit_many(lambda x, a, b: (a + b) * x, X, Y, [1, 1], covariance=True, device="cpu")
    assert np.isinf(found.cov).all()


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
