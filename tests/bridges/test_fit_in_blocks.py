"""Curves fitted to data in blocks of Dask's: what one machine finds, also of hard problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.fit import data_form

da: Any = pytest.importorskip("dask.array", reason="needs dask")

RNG = np.random.default_rng(11)
COUNT = 500
X = RNG.uniform(-3.0, 3.0, COUNT)
SIGMA = RNG.uniform(0.5, 2.0, COUNT)


def peak(x: Any, height: Any, place: Any, width: Any) -> Any:
    return height * np.exp(-(((x - place) / width) ** 2))


def plane(x: Any, a: Any, b: Any, c: Any) -> Any:
    return a + b * x[0] + c * np.sin(x[1])


Y = peak(X, 2.0, 0.3, 0.8) + 0.1 * RNG.normal(size=COUNT)
PAIR = np.stack([X, RNG.uniform(size=COUNT)])
START = [1.0, 0.0, 0.5]


def cut(values: np.ndarray, size: int = 130) -> Any:
    return da.from_array(values, chunks=(*values.shape[:-1], size))


def agree(found: Any, want: Any, rtol: float = 1e-11) -> None:
    for a, b in zip(found[:2], want[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sigma": SIGMA, "absolute_sigma": True},
        {"sigma": cut(SIGMA, 77), "bounds": {"width": (0.0, 0.7)}},
        {"sigma": 0.2, "dtype": "float32"},
    ],
    ids=["plain", "sigma", "bounds", "pairs"],
)
def test_fits_are_those_of_one_machine(options: dict[str, Any]) -> None:
    found = sg.curve_fit(peak, cut(X), cut(Y), START, full_output=True, **options)
    options = {name: getattr(v, "compute", lambda v=v: v)() for name, v in options.items()}
    want = sg.curve_fit(peak, X, Y, START, full_output=True, **options)
    agree(found, want)
    np.testing.assert_allclose(found[2]["fvec"], want[2]["fvec"], rtol=0, atol=1e-12)
    assert found[2]["mode"] == want[2]["mode"]


def test_fits_are_scipys() -> None:
    agree(
        sg.curve_fit(peak, cut(X), cut(Y), START),
        scipy.optimize.curve_fit(peak, X, Y, START, xtol=1e-14, ftol=1e-14),
        rtol=1e-5,  # as far as SciPy goes
    )


def test_workers_fit_together(client: Any) -> None:
    agree(sg.curve_fit(peak, cut(X), cut(Y), START), sg.curve_fit(peak, X, Y, START))
    bad = np.where(np.arange(COUNT) == 300, np.nan, Y)
    with pytest.raises(sg.InputError, match="must not contain infs or NaNs"):
        sg.curve_fit(peak, cut(X), cut(bad), START)
    left = ~np.isnan(bad)
    found = sg.curve_fit(peak, cut(X), cut(bad), START, nan_policy="omit")
    agree(found, sg.curve_fit(peak, X[left], Y[left], START))


@pytest.mark.parametrize("x", [PAIR, cut(PAIR)], ids=["x here", "x in blocks"])
def test_predictors_are_lines_of_x(x: Any) -> None:
    agree(sg.curve_fit(plane, x, cut(Y, 90)), sg.curve_fit(plane, PAIR, Y))


def test_values_may_be_here_and_x_in_blocks() -> None:
    agree(sg.curve_fit(plane, cut(PAIR), Y), sg.curve_fit(plane, PAIR, Y))


def test_columns_that_nearly_agree_keep_their_digits() -> None:
    """Normal equations, with the square of this condition, would find nothing."""

    def twins(x: Any, a: Any, b: Any) -> Any:
        return a * x + b * (x + 1e-9 * x**2)

    y = twins(X, 1.0, 2.0)
    found, _ = sg.curve_fit(twins, cut(X), cut(y))
    np.testing.assert_allclose(found, [1.0, 2.0], rtol=1e-5)


def test_many_rows_are_summed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    want = sg.curve_fit(peak, X, Y, START)
    monkeypatch.setattr(data_form, "ROWS_SUMMED_FIRST", COUNT)
    agree(sg.curve_fit(peak, cut(X), cut(Y), START), want)


def test_blocks_may_have_lengths_that_nobody_knows() -> None:
    x, y = cut(X), cut(Y)
    some = (np.arange(COUNT) >= 260) & (X < 2.0)  # two blocks without a row
    kept = da.from_array(some, chunks=130)
    agree(sg.curve_fit(peak, x[kept], y[kept], START), sg.curve_fit(peak, X[some], Y[some], START))
    with pytest.raises(sg.InputError, match="must not be empty"):
        sg.curve_fit(peak, x[x > 9.0], y[x > 9.0], START)


def test_columns_of_data_frames_are_fitted() -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask.dataframe")
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    table = frames.from_pandas(pandas.DataFrame({"x": X, "y": Y}), npartitions=3)
    agree(sg.curve_fit(peak, table["x"], table["y"], START), sg.curve_fit(peak, X, Y, START))


@pytest.mark.parametrize(
    "model",
    [
        lambda x, a: a * x / np.max(x),
        lambda x, a: a * np.cumsum(x),
        lambda x, a: [a, a * x],
    ],
    ids=["largest", "running sum", "two values"],
)
def test_models_of_all_rows_are_refused(model: Any) -> None:
    with pytest.raises(sg.InputError, match=r"come in blocks, .* bring the data here"):
        sg.curve_fit(model, cut(X), cut(Y), [1.0])


def test_data_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(sg.InputError, match=r"in blocks, \(M,\) or \(k, M\)"):
        sg.curve_fit(peak, cut(X[1:]), cut(Y), START)
    with pytest.raises(sg.InputError, match="the deviation of each row"):
        sg.curve_fit(peak, cut(X), cut(Y), START, np.eye(COUNT))
    with pytest.raises(TypeError, match="must not exceed the number of data points=2"):
        sg.curve_fit(peak, cut(X[:2]), cut(Y[:2]), START)


@pytest.mark.parametrize("size", [2.0**-700, 2.0**700])
def test_data_of_any_size(size: float) -> None:
    units = np.array([size, 1.0, 1.0])
    with pytest.warns(scipy.optimize.OptimizeWarning, match="beyond the range of float64"):
        found = sg.curve_fit(peak, cut(X), cut(Y * size), START * units, SIGMA * size, True)
    want = sg.curve_fit(peak, X, Y, START, SIGMA, True)
    np.testing.assert_allclose(found[0] / units, want[0], rtol=1e-11)
    np.testing.assert_allclose(found[1][1:] / units, want[1][1:], rtol=1e-9)
