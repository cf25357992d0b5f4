"""Columns with names as x, arrays among them, and vectors as y: beside SciPy's fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg

RNG = np.random.default_rng(0)
M, S = 30, 4
OMEGA, BASIS = np.geomspace(0.1, 10.0, M), RNG.normal(size=(M, 2, 2))
TRUE = RNG.uniform(0.5, 2.0, (S, 3))
NOISE = 0.01 * RNG.normal(size=(S, M, 2))
SIGMA = RNG.uniform(0.01, 0.05, (M, 2))


def impedance(x: Any, r: Any, tau: Any, level: Any) -> Any:
    slow = tau * x.omega
    part = r / (1 + slow**2)
    return sg.array([part, -part * slow]) + x["basis"] @ sg.array([level, 0.1])


def at_all(p: Any, k: int | None = None) -> np.ndarray:
    """The model in NumPy's words, (M, 2)."""
    r, tau, level = p
    slow = tau * (OMEGA if k is None else OMEGA * (1 + 0.1 * k))
    part = r / (1 + slow**2)
    return np.stack([part, -part * slow], axis=1) + BASIS @ np.array([level, 0.1])


Y = np.stack([at_all(p) for p in TRUE]) + NOISE
TABLE = {"omega": OMEGA, "basis": BASIS}


def by_scipy(y: np.ndarray, sigma: Any, k: int | None = None, absolute: bool = False) -> Any:
    weights = np.broadcast_to(1.0 if sigma is None else sigma, y.shape).ravel()
    return scipy.optimize.curve_fit(
        lambda _, *p: at_all(p, k).ravel(), np.arange(y.size), y.ravel(), np.ones(3),
        None if sigma is None else weights, absolute, ftol=1e-14, xtol=1e-14,
    )  # fmt: skip


@pytest.mark.parametrize("sigma", [None, 0.02, SIGMA[:, 0], SIGMA], ids=["-", "1", "M", "M,2"])
def test_a_model_of_named_arrays_and_vectors(sigma: Any) -> None:
    spread = SIGMA[:, :1] if np.ndim(sigma) == 1 else sigma
    popt, pcov = by_scipy(Y[0], spread)
    fit = sg.fit_model(impedance, TABLE, Y[0], sigma=sigma)
    np.testing.assert_allclose(fit.popt, popt, rtol=1e-6)
    np.testing.assert_allclose(fit.covariance, pcov, rtol=1e-5)
    assert fit.names == ("r", "tau", "level")
    assert (fit.freedom, fit.residuals.shape) == (2 * M - 3, (2 * M,))
    np.testing.assert_allclose(fit.predict(TABLE), at_all(fit.popt), rtol=1e-12)
    assert fit.band({name: column[:5] for name, column in TABLE.items()}).shape == (5, 2)
    assert fit.summary().startswith("impedance: 60 points")


@pytest.mark.parametrize("own", [False, True])
def test_many_of_them(own: bool) -> None:
    omega = np.stack([OMEGA * (1 + 0.1 * k) for k in range(S)])
    y = np.stack([at_all(p, k) for k, p in enumerate(TRUE)]) + NOISE if own else Y
    x = TABLE | {"omega": omega} if own else TABLE
    fits = sg.fit_many(
        impedance, x, y, {"r": 1.2}, sigma=SIGMA, covariance=True, absolute_sigma=True, device="cpu"
    )
    assert fits.success.all()
    for k in range(S):
        popt, pcov = by_scipy(y[k], SIGMA, k if own else None, absolute=True)
        np.testing.assert_allclose(fits.x[k], popt, rtol=1e-6)
        np.testing.assert_allclose(fits.cov[k], pcov, rtol=1e-5)


def test_numbers_that_are_missing_are_left_out_one_by_one() -> None:
    y = Y.copy()
    y[0, 3, 1], y[2, 7] = np.nan, np.nan
    fits = sg.fit_many(impedance, TABLE, y, nan_policy="omit", covariance=True, device="cpu")
    fit = sg.fit_model(impedance, TABLE, y[0], nan_policy="omit")
    assert fit.freedom == 2 * M - 1 - 3
    np.testing.assert_allclose(fits.x[0], fit.popt, rtol=1e-7)
    np.testing.assert_allclose(fits.cov[0], fit.covariance, rtol=1e-5)
    popt, _ = by_scipy(Y[0], np.where(np.isnan(y[0]), 1e9, 1.0))
    np.testing.assert_allclose(fit.popt, popt, rtol=1e-6)


def test_a_structured_array_of_numbers() -> None:
    table = np.zeros(M, [("omega", float), ("basis", float, (2, 2))])
    table["omega"], table["basis"] = OMEGA, BASIS
    first = lambda x, r, tau, level: impedance(x, r, tau, level)[0]  # noqa: E731
    fit = sg.fit_model(first, table, Y[0, :, 0])
    popt, _ = scipy.optimize.curve_fit(lambda _, *p: at_all(p)[:, 0], OMEGA, Y[0, :, 0], np.ones(3))
    np.testing.assert_allclose(fit.popt, popt, rtol=1e-6)
    assert fit.predict(table[:4]).shape == (4,)


def circle(t: Any, radius: Any, speed: Any) -> Any:
    return sg.array([radius * np.cos(speed * t), radius * np.sin(speed * t)])


def test_vectors_at_plain_x() -> None:
    t = np.linspace(0.0, 2.0, 12)
    y = np.stack([circle(v, 2.0, 1.3) for v in t]).astype(float)
    fit = sg.fit_model(circle, t, y, [1.5, 1.0])
    np.testing.assert_allclose(fit.popt, [2.0, 1.3], rtol=1e-9)
    np.testing.assert_allclose(
        fit.predict(0.5), np.asarray(circle(0.5, 2.0, 1.3), float), rtol=1e-9
    )
    own = sg.fit_many(circle, np.stack([t, t]), np.stack([y, y]), [1.5, 1.0], device="cpu")
    np.testing.assert_allclose(own.x, [[2.0, 1.3]] * 2, rtol=1e-7)


def walk(x: Any, rate: Any) -> Any:
    """A model of all points at once: sums of what comes before, and their negatives."""
    total = np.cumsum(np.exp(-rate * x.t))
    return np.stack([total, -total], axis=1)


def test_models_of_all_points() -> None:
    t = np.linspace(0.0, 2.0, 12)
    total = np.cumsum(np.exp(-0.7 * t))
    y = np.stack([total, -total], axis=1)
    assert sg.fit_model(walk, {"t": t}, y).popt == pytest.approx([0.7], rel=1e-9)
    fits = sg.fit_many(walk, {"t": t}, np.stack([y, 2 * y]), device="cpu")
    assert fits.x[0] == pytest.approx([0.7], rel=1e-7)
    own = np.stack([t, 1.1 * t])
    far = np.cumsum(np.exp(-0.7 * own[1]))
    each = np.stack([y, np.stack([far, -far], axis=1)])
    each[0, 3, 1] = np.nan
    fits = sg.fit_many(walk, {"t": own}, each, nan_policy="omit", device="cpu")
    np.testing.assert_allclose(fits.x, [[0.7]] * 2, rtol=1e-7)
    y[3, 1] = np.nan  # the other number of the point counts
    found = sg.fit_model(walk, {"t": t}, y + 0.01 * np.cos(9 * y), nan_policy="omit")
    kept = ~np.isnan(y).ravel()
    popt, _ = scipy.optimize.curve_fit(
        lambda _, rate: np.stack([s := np.cumsum(np.exp(-rate * t)), -s], 1).ravel()[kept],
        np.arange(23), (y + 0.01 * np.cos(9 * y)).ravel()[kept], [1.0], ftol=1e-14, xtol=1e-14,
    )  # fmt: skip
    assert found.popt == pytest.approx(popt, rel=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"omega": OMEGA[:-1], "basis": BASIS}, Y[0], r"x\['omega'\] has shape \(29,\): y has 30"),
        ({"omega": ["1"] * M, "basis": BASIS}, Y[0], r"x\['omega'\] holds text"),
        ({"omega": OMEGA, "basis": BASIS}, Y[0, :, :1], r"gave values of shape \(2,\), and y has"),
        (np.ones((3, 4)), Y[0], r"x has shape \(3, 4\), and y \(30, 2\)"),
        ({"frequency": OMEGA}, Y[0], r"there are no parameters 'omega'"),
    ],
)  # fmt: skip
def test_data_that_do_not_go_together(x: Any, y: Any, message: str) -> None:
    with pytest.raises(sg.SymgradError, match=message):
        sg.fit_model(impedance, x, y)


def test_deviations_and_tables_that_do_not_go_together() -> None:
    with pytest.raises(sg.InputError, match=r"sigma has shape \(7,\)"):
        sg.fit_model(impedance, TABLE, Y[0], sigma=np.ones(7))
    fit = sg.fit_model(impedance, TABLE, Y[0])
    with pytest.raises(sg.InputError, match="x is a table with the columns 'omega', 'basis'"):
        fit.predict(OMEGA)
