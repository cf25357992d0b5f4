"""`curve_fit`: NIST's certified digits, and SciPy's results, arguments and errors."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from optimize.data_sets import CASES

import symgrad as sg
from symgrad.fit import model
from symgrad.pipeline import DTypeName

X = np.linspace(0.0, 4.0, 60)


def decay(x: Any, a: float, b: float, c: float) -> Any:
    return a * np.exp(-b * x) + c


def noisy(seed: int = 0, scale: float = 0.05) -> np.ndarray:
    return decay(X, 2.5, 1.3, 0.5) + scale * np.random.default_rng(seed).normal(size=X.size)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_nists_certified_digits(name: str, start: int) -> None:
    case = CASES[name]
    popt, pcov = sg.curve_fit(case.f, case.x, case.y, case.starts[start])
    assert case.digits(popt) > 10
    np.testing.assert_allclose(np.sqrt(np.diag(pcov)), case.deviations, rtol=1e-6)


def agree(*args: Any, **kwargs: Any) -> None:
    want = scipy.optimize.curve_fit(*args, **kwargs, ftol=1e-14, xtol=1e-14, gtol=1e-14)
    found = sg.curve_fit(*args, **kwargs)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], want[1], rtol=1e-5, atol=1e-6 * np.abs(want[1]).max())


def test_as_scipy_has_it() -> None:
    agree(decay, X, noisy())
    agree(decay, X, noisy(), [1.0, 2.0, 0.0])
    agree(decay, X.tolist(), noisy().tolist(), p0=(1, 1, 1), method="lm")


@pytest.mark.parametrize("absolute", [False, True])
def test_sigma(absolute: bool) -> None:
    deviations = np.linspace(0.05, 0.5, X.size)
    agree(decay, X, noisy(), sigma=deviations, absolute_sigma=absolute)
    agree(decay, X, noisy(), sigma=0.3, absolute_sigma=absolute)
    covariance = np.diag(deviations**2) + 0.001
    agree(decay, X, noisy(), sigma=covariance, absolute_sigma=absolute)


def test_bounds_that_hold_and_bounds_that_do_not() -> None:
    agree(decay, X, noisy(), bounds=([0.0, 0.0, 0.0], [5.0, 5.0, 5.0]))
    popt, _ = sg.curve_fit(decay, X, noisy(), bounds=([0.0, 0.0, 0.7], [5.0, 1.4, np.inf]))
    want, _ = scipy.optimize.curve_fit(
        decay, X, noisy(), bounds=([0.0, 0.0, 0.7], [5.0, 1.4, np.inf]), xtol=1e-14, ftol=1e-14
    )
    np.testing.assert_allclose(popt, want, rtol=1e-4)
    assert popt[2] == 0.7


def test_scipys_bounds_object_and_one_number_for_all() -> None:
    bounds = scipy.optimize.Bounds(0.0, 5.0)
    plain, _ = sg.curve_fit(decay, X, noisy())
    np.testing.assert_allclose(sg.curve_fit(decay, X, noisy(), bounds=bounds)[0], plain, rtol=1e-9)
    np.testing.assert_allclose(sg.curve_fit(decay, X, noisy(), bounds=(0, 9))[0], plain, rtol=1e-9)


def test_full_output() -> None:
    popt, _, info, message, ier = sg.curve_fit(decay, X, noisy(), full_output=True)
    np.testing.assert_allclose(info["fvec"], decay(X, *popt) - noisy(), atol=1e-14)
    assert info["nfev"] > 3
    assert ier in (1, 2, 3, 4)
    assert "converged" in message


def test_several_predictors() -> None:
    x = np.random.default_rng(1).uniform(size=(2, 50))
    y = 2.0 * x[0] + np.sin(3.0 * x[1])

    def plane(x: Any, a: float, b: float) -> Any:
        first, second = x
        return a * first + np.sin(b * second)

    np.testing.assert_allclose(sg.curve_fit(plane, x, y, [1.0, 2.5])[0], [2.0, 3.0], rtol=1e-9)


def test_models_of_all_points_at_once() -> None:
    def centred(x: Any, a: float, b: float) -> Any:
        return a * (x - np.mean(x)) + b * x[0]

    def summed(x: Any, a: float, b: float) -> Any:
        return np.cumsum(np.exp(-a * x)) * b

    agree(centred, X + 1, 3.0 * X + 1.0 + noisy())
    agree(summed, X, summed(X, 0.7, 2.0) + noisy())


def test_a_model_whose_constants_change_between_calls() -> None:
    factor = 1.0

    def model(x: Any, a: float) -> Any:
        return a * factor * x

    assert sg.curve_fit(model, X, 6 * X)[0] == pytest.approx([6.0])
    factor = 2.0
    assert sg.curve_fit(model, X, 6 * X)[0] == pytest.approx([3.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_are_names_or_numpys(dtype: DTypeName) -> None:
    y, kind = decay(X, 2.5, 1.3, 0.5), np.dtype(dtype)
    givens: list[Any] = [kind, kind.type]
    for given in givens:
        popt, _ = sg.curve_fit(decay, X, y, [1, 1, 1], dtype=given)
        np.testing.assert_array_equal(popt, sg.curve_fit(decay, X, y, [1, 1, 1], dtype=dtype)[0])
        found = sg.fit_many(decay, X, [y], [1, 1, 1], device="cpu", dtype=given)
        assert found.x.dtype == kind


@pytest.mark.parametrize("dtype", ["float16", "nonsense", 3])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    y, message = (
        decay(X, 2.5, 1.3, 0.5),
        f"dtype='{dtype}' is not a choice: use float32, float64 or float32x2",
    )
    with pytest.raises(sg.InputError, match=message):
        sg.curve_fit(decay, X, y, [1, 1, 1], dtype=dtype)
    with pytest.raises(sg.InputError, match=message):
        sg.fit_many(decay, X, [y], [1, 1, 1], dtype=dtype)
    with pytest.raises(sg.InputError, match=message):
        sg.minimize_from(lambda v: v @ v, 1, [[1.0]], sg.LBFGS(), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_end_short_of_the_minimum_is_none(dtype: DTypeName) -> None:
    """Of one step, which leaves a relative offset of 0.017, in pairs of float32 as in float64."""
    with pytest.raises(sg.FitError, match="the fit did not converge"):
        sg.curve_fit(decay, X, noisy(0, 0.01), [1.0, 1.0, 0.0], dtype=dtype, maxfev=1)


def test_limits_are_whole_numbers() -> None:
    for limit in ("many", 2.5, -1):
        with pytest.raises((sg.InputError, TypeError), match="maxfev="):
            sg.curve_fit(decay, X, decay(X, 1, 1, 1), [1, 1, 1], maxfev=limit)


def test_results_are_no_arrays_of_the_users() -> None:
    p0 = np.array([2.5, 1.3, 0.5])
    popt, _ = sg.curve_fit(decay, X, decay(X, *p0), p0, bounds=(0.0, 10.0))
    np.testing.assert_allclose(popt, p0, rtol=1e-15)
    assert not np.may_share_memory(popt, p0)


def test_many_rows_are_summed_first() -> None:
    times = model.ROWS_SUMMED_FIRST // X.size + 1
    x, y = np.tile(X, times), np.tile(noisy(), times)
    agree(decay, x, y)
    agree(decay, x, y, sigma=np.linspace(0.05, 0.5, x.size))


def test_rows_with_nan() -> None:
    y = noisy()
    y[3] = np.nan
    keep = np.isfinite(y)
    popt, pcov = sg.curve_fit(decay, X, y, nan_policy="omit")
    want = sg.curve_fit(decay, X[keep], y[keep])
    np.testing.assert_allclose(popt, want[0], rtol=1e-12)
    np.testing.assert_allclose(pcov, want[1], rtol=1e-9)
    with pytest.raises(sg.InputError, match="infs or NaNs"):
        sg.curve_fit(decay, X, y)


def test_a_covariance_that_cannot_be_estimated() -> None:
    def twice(x: Any, a: float, b: float) -> Any:
        return a * x + b * x

    with pytest.warns(scipy.optimize.OptimizeWarning, match="could not be estimated") as found:
        popt, pcov = sg.curve_fit(twice, X, 3.0 * X)
    assert [w.filename for w in found] == [__file__]
    assert popt.sum() == pytest.approx(3.0)
    assert pcov[0, 0] ** 0.5 > 1e6 * abs(popt[0])
    with pytest.warns(scipy.optimize.OptimizeWarning):
        sg.curve_fit(lambda x, a, b: a * x + b, [0.0, 1.0], [1.0, 3.0])


def test_exact_data() -> None:
    popt, pcov = sg.curve_fit(decay, X, decay(X, 2.5, 1.3, 0.5))
    np.testing.assert_allclose(popt, [2.5, 1.3, 0.5], rtol=1e-12)
    assert np.abs(pcov).max() < 1e-25


def test_no_minimum() -> None:
    with pytest.raises(RuntimeError, match="Optimal parameters not found") as caught:
        sg.curve_fit(decay, X, noisy(), [1.0, 2.0, 0.0], maxfev=1)
    assert isinstance(caught.value, sg.SymgradError)
    with pytest.raises(sg.FitError, match="not finite at the start"):
        sg.curve_fit(lambda x, a: np.log(a * x), X, noisy(), [-1.0])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((decay, X, []), {}, "must not be empty"),
        ((decay, X[:5], X), {}, "xdata has shape"),
        ((decay, X, X), {"bounds": ([0, 0], [1, 1])}, "arrays of 3 are needed"),
        ((decay, X, X), {"bounds": (1, 0)}, "strictly less"),
        ((decay, X, X), {"bounds": (0, 1), "p0": [2, 2, 2]}, "infeasible"),
        ((decay, X, X), {"bounds": (0, 1), "method": "lm"}, "only works for unconstrained"),
        ((decay, X, X), {"method": "newton"}, "`method` must be"),
        ((decay, X, X), {"sigma": [1.0, 2.0]}, "`sigma` has incorrect shape"),
        ((decay, X, X), {"sigma": -np.eye(60)}, "positive definite"),
        ((decay, X, X), {"nan_policy": "propagate"}, "nan_policy"),
        ((lambda x, *p: p[0] * x, X, X), {}, "Unable to determine number of fit parameters"),
        ((lambda x, a: [a, a], X, X), {}, "gave values of shape"),
    ],
)
def test_arguments_that_do_not_fit(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        sg.curve_fit(*arguments, **options)
    assert isinstance(caught.value, sg.InputError)


def test_other_errors() -> None:
    with pytest.raises(sg.TraceError, match=r"sg\.exp"):
        sg.curve_fit(lambda x, a: math.exp(a) * x, X, X)
    with pytest.raises(sg.InputTypeError, match="xdata holds text"):
        sg.curve_fit(decay, ["a"] * 60, X)
    with pytest.raises(TypeError, match="curve_fit does not know loss"):
        sg.curve_fit(decay, X, noisy(), loss="soft_l1", xtol=1e-8)
    with pytest.raises(TypeError, match="must not exceed the number"):
        sg.curve_fit(decay, X[:2], X[:2], method="lm")


def test_x_of_any_shape_that_the_model_takes() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))

    def plane(x: Any, a: Any, b: Any, *, factor: float = 2.0) -> Any:
        return factor * (a * x[:, 0] + b * x[:, 1])

    y = plane(x, 2.0, 3.0) + 0.01 * np.cos(np.arange(50))
    want = scipy.optimize.curve_fit(plane, x, y, [1, 1])  # of the keyword SciPy makes a parameter
    for p0 in (None, [1, 1]):
        popt, pcov = sg.curve_fit(plane, x, y, p0)
        np.testing.assert_allclose(popt, want[0], rtol=1e-6)
        np.testing.assert_allclose(pcov, want[1], rtol=1e-5)
    y[3], x[7, 0] = np.nan, np.nan
    keep = ~np.isin(np.arange(50), [3, 7])
    popt, _ = sg.curve_fit(plane, x, y, nan_policy="omit")
    want = scipy.optimize.curve_fit(plane, x[keep], y[keep], [1, 1])
    np.testing.assert_allclose(popt, want[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"nan_policy": "raise", "check_finite": False}, ValueError, "input contains nan values"),
        ({"check_finite": False}, ValueError, "ydata holds NaN"),
        (
            {"nan_policy": "omit", "xdata": [1.0, 2.0], "ydata": [np.nan] * 2},
            TypeError,
            "number of func parameters",
        ),
        ({"xdata": [1.0], "ydata": [1.0]}, TypeError, "must not exceed the number of data"),
        ({"loss": "soft_l1", "nan_policy": "omit"}, TypeError, "does not know loss='soft_l1'"),
        ({"jac": "foo", "nan_policy": "omit"}, ValueError, "jac='foo'"),
        ({"args": (3,), "nan_policy": "omit"}, ValueError, "not a supported keyword"),
        ({"bounds": [(0, 1)] * 3, "nan_policy": "omit"}, ValueError, "bounds: numbers or arrays"),
        ({"sigma": np.zeros(9)}, ValueError, "sigma holds NaN or 0"),
        ({"sigma": np.full(9, np.nan)}, ValueError, "sigma holds NaN or 0"),
    ],
)
def test_refusals_name_the_cause(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    x = np.arange(9.0)
    given: dict[str, Any] = {"xdata": x, "ydata": np.where(x == 4, np.nan, x)} | options
    if "sigma" in options:
        given["ydata"] = x
    with pytest.raises(sg.SymgradError, match=message) as raised:
        sg.curve_fit(lambda x, a, b: a * x + b, **given)
    assert isinstance(raised.value, error)


def test_the_linear_loss_and_rows_left_out_by_their_deviation() -> None:
    x = np.arange(9.0)
    y = np.where(x == 4, 100.0, 2 * x + 1)
    sigma = np.where(x == 4, np.inf, 1.0)
    popt, _ = sg.curve_fit(lambda x, a, b: a * x + b, x, y, sigma=sigma, loss="linear", f_scale=2.0)
    np.testing.assert_allclose(popt, [2.0, 1.0], rtol=1e-9)


def test_a_peak_far_from_zero_is_fitted_as_well_as_rounding_lets_it() -> None:
    x = 2.4e6 + np.arange(40) * 0.01  # as days are counted
    y = 2.0 * np.exp(-(((x - 2.4e6 - 0.2) / 0.1) ** 2))
    y += 1e-3 * np.random.default_rng(0).normal(size=40)
    peak = lambda x, a, b: a * np.exp(-(((x - b) / 0.1) ** 2))  # noqa: E731
    found, covariance = sg.curve_fit(peak, x, y, [1.0, 2.4e6 + 0.22])
    near, _ = sg.curve_fit(peak, x - 2.4e6, y, [1.0, 0.22])
    assert abs(found[1] - 2.4e6 - near[1]) < 1e-2 * covariance[1, 1] ** 0.5
    assert found[0] == pytest.approx(near[0], rel=1e-6)


def oscillation(x: Any, angle: float, mass: float) -> Any:
    return 1 - np.sin(2 * angle) ** 2 * np.sin(mass / x) ** 2


ENERGY = np.linspace(0.5, 8, 40)
LEVEL = np.arange(1.0, 6.0)
DEGENERATE = {
    "maximal mixing": (
        oscillation, ENERGY, 1 - 1.03 * np.sin(3 / ENERGY) ** 2, [0.6, 2.8], [np.pi / 4, 3.0143133],
    ),
    "a square at 0": (lambda x, a: a**2 * x, LEVEL, 0.1 * np.sin(LEVEL) - LEVEL, [1.0], [0.0]),
    "a start at a maximum": (lambda x, a: a**2 * x, LEVEL, 4 * LEVEL, [0.0], [2.0]),
    "a parameter without effect": (lambda x, a, b: a * x + 0 * b, LEVEL, 3 * LEVEL, [1, 1], [3, 1]),
    "a cosine at 0": (
        lambda x, a, b: np.cos(a) * x + b, LEVEL, 1.5 * LEVEL, [0.3, 0.0], [0.0, 1.5],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Covariance of the parameters")
@pytest.mark.parametrize("name", DEGENERATE)
def test_minima_at_which_a_column_of_the_jacobian_vanishes(name: str) -> None:
    f, x, y, start, want = DEGENERATE[name]
    popt, _ = sg.curve_fit(f, x, y, start)
    np.testing.assert_allclose(np.abs(popt), want, rtol=1e-6, atol=1e-6)
    many = sg.fit_many(f, x, [y], start, device="cpu")
    assert many.success[0]
    np.testing.assert_allclose(np.abs(many.x[0]), want, rtol=1e-6, atol=1e-5)


def test_an_error_carries_what_was_computed() -> None:
    with pytest.raises(sg.FitError) as caught:
        sg.curve_fit(decay, X, noisy(), [1.0, 2.0, 0.0], maxfev=1)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.popt is not None and error.pcov is not None
        assert error.popt.shape == (3,) and error.pcov.shape == (3, 3) and error.nfev > 1
        np.testing.assert_allclose(error.result.fun, decay(X, *error.popt) - noisy(), atol=1e-12)
        assert error.result.cost == pytest.approx(0.5 * np.sum(error.result.fun**2))
        assert not error.result.success and str(error) == error.result.message


@pytest.mark.parametrize("absolute", [False, True])
def test_degrees_of_freedom_are_one_thing_in_all_verbs(absolute: bool) -> None:
    """Rows of infinite deviation are none, and as many rows as parameters leave none."""
    x, y = np.arange(5.0), np.array([1.0, 2.9, 5.2, 90.0, 9.1])
    sigma = np.array([0.1, 0.2, 0.1, np.inf, 0.1])
    line = lambda x, a, b: a * x + b  # noqa: E731
    keep = np.isfinite(sigma)
    want = scipy.optimize.curve_fit(line, x[keep], y[keep], None, sigma[keep], absolute)[1]
    options = {"sigma": sigma, "absolute_sigma": absolute}
    found = [
        sg.curve_fit(line, x, y, **options)[1],
        sg.fit_model(line, x, y, **options).covariance,
        sg.fit_many(line, x, [y], device="cpu", covariance=True, **options).cov[0],
    ]
    np.testing.assert_allclose(found, [want] * 3, rtol=1e-5)
    few = sg.fit_many(
        line, x[:2], [y[:2]], device="cpu", covariance=True, absolute_sigma=absolute, sigma=0.1
    )
    assert np.isfinite(few.cov).all() == absolute


def test_more_data_than_x_as_of_complex_values() -> None:
    def resonance(f: Any, amplitude: Any, centre: Any, width: Any) -> Any:
        detuning = f - centre
        size = amplitude / (detuning**2 + width**2)
        return np.concatenate([size * width, -size * detuning])

    x = np.linspace(0.0, 4.0, 30)
    y = resonance(x, 2.0, 1.7, 0.4) + 0.05 * np.random.default_rng(0).normal(size=60)
    agree(resonance, x, y, [1.0, 1.5, 0.5])
    agree(resonance, x, y, [1.0, 1.5, 0.5], sigma=np.linspace(0.05, 0.1, 60))
    with pytest.raises(sg.InputError, match=r"ydata \(59,\), and f gave values of shape \(60,\)"):
        sg.curve_fit(resonance, x, y[:-1], [1.0, 1.5, 0.5])


SIZES = 2.0**-700, 2.0**-500, 2.0**-310, 2.0**310, 2.0**500, 2.0**700, 2.0**1000


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_data_of_any_size(size: float, given: bool) -> None:
    """The fit of data times a power of two is that of the data: squares are beyond the range."""
    want, pcov = sg.curve_fit(decay, X, noisy(), [2.0, 1.0, 0.4])
    units = np.array([size, 1.0, size])
    with np.errstate(over="ignore", under="ignore"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        start = [2.0 * size, 1.0, 0.4 * size] if given else None
        popt, found = sg.curve_fit(decay, X, noisy() * size, start)
        expected = pcov * np.outer(units, units)
    np.testing.assert_allclose(popt / units, want, rtol=1e-9)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    beyond = not np.isfinite(expected).all() or (np.diag(expected) == 0.0).any()
    assert [str(w.message) for w in told if "beyond the range" in str(w.message)] or not beyond
    assert beyond or not told


@pytest.mark.parametrize("size", [2.0**-700, 2.0**700])
@pytest.mark.parametrize("absolute", [False, True])
def test_deviations_and_bounds_of_any_size(size: float, absolute: bool) -> None:
    deviations = np.linspace(0.05, 0.5, X.size)
    deviations[3] = np.inf
    bounds = np.array([[0.0, 0.0, 0.0], [5.0, 1.29, 5.0]])
    start, units = np.array([2.0, 1.0, 0.4]), np.array([size, 1.0, size])
    options: Any = {"absolute_sigma": absolute, "full_output": True}
    want, pcov, info, *_ = sg.curve_fit(
        decay, X, noisy(), start, deviations, bounds=bounds, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.optimize.OptimizeWarning)
        popt, cov, seen, *_ = sg.curve_fit(
            decay, X, noisy() * size, start * units, deviations * size, bounds=bounds * units,
            **options,
        )  # fmt: skip
        free, plain, long, *_ = sg.curve_fit(
            decay, X, noisy() * size, start * units, bounds=bounds * units, full_output=True
        )
    np.testing.assert_allclose(popt / units, want, rtol=1e-9)
    np.testing.assert_allclose(cov[1], pcov[1] * units, rtol=1e-9)
    np.testing.assert_allclose(seen["fvec"], info["fvec"], rtol=1e-9)
    assert np.isfinite(plain[1]).all()
    residuals = decay(X, *(free / units)) - noisy()
    np.testing.assert_allclose(long["fvec"] / size, residuals, atol=1e-14)


def test_a_start_whose_squares_overflow() -> None:
    """The residuals at the start are 1e200, those at the minimum 1."""
    want, _ = sg.curve_fit(decay, X, noisy(), [2.0, 1.0, 0.4])
    popt, _ = sg.curve_fit(decay, X, noisy(), [1e200, 1.0, 0.4])
    np.testing.assert_allclose(popt, want, rtol=1e-9)
    with pytest.raises(sg.FitError, match="not finite at the start"):
        sg.curve_fit(decay, X, noisy(), [1.0, -1e6, 0.4])


@pytest.mark.parametrize("size", [1e-200, 1e100])
def test_data_that_float32_has_not(size: float) -> None:
    with pytest.raises(sg.InputError, match='the range of float32x2: use dtype="float64"'):
        sg.curve_fit(decay, X, noisy() * size, dtype="float32")


@pytest.mark.parametrize("size", [2.0**-700, 2.0**700])
def test_an_error_of_data_of_any_size(size: float) -> None:
    with pytest.raises(sg.FitError) as error:
        sg.curve_fit(decay, X, noisy() * size, [9.0 * size, 3.0, 0.0], maxfev=1)
    with pytest.raises(sg.FitError) as plain:
        sg.curve_fit(decay, X, noisy(), [9.0, 3.0, 0.0], maxfev=1)
    residuals = error.value.result.fun / size
    np.testing.assert_allclose(residuals, plain.value.result.fun, rtol=1e-9)
    assert error.value.nfev == plain.value.nfev


@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"device": 0}])
@pytest.mark.parametrize("kind", [float, int])
def test_entries_that_x_looks_up(kind: type, options: Any) -> None:
    places = np.array([0, 3, 1, 4, 5, 2, 6, 7, 3])
    table = np.linspace(0.0, 2.0, 8) ** 2
    y = 2.5 * table[places] + 0.3
    f = lambda x, a, b: a * sg.array(table)[x] + b  # noqa: E731
    popt, _ = sg.curve_fit(f, places.astype(kind), y, [1.0, 1.0], **options)
    np.testing.assert_allclose(popt, [2.5, 0.3], rtol=1e-6 if "dtype" in options else 1e-12)
    fit = sg.fit_model(f, places.astype(kind), y, {"a": 1.0, "b": 1.0})
    np.testing.assert_allclose(fit.predict(places), y, rtol=1e-12)


def test_parameters_that_x_looks_up() -> None:
    x = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 1.0])
    y = np.array([1.0, 2.0, 3.0, 1.2, 2.1, 2.9, 2.2])
    popt, _ = sg.curve_fit(lambda x, a, b, c: sg.array([a, b, c])[x], x, y)
    np.testing.assert_allclose(popt, [y[x == k].mean() for k in range(3)], rtol=1e-12)


def test_a_fit_within_a_fit_leaves_its_data_alone() -> None:
    """Both are of one model at as many rows, and so in one memory."""
    x, draw = np.linspace(0.0, 4.0, 50), np.random.default_rng(0)
    ys = [a * np.exp(-1.3 * x) + draw.normal(0.0, 0.02, 50) for a in (2.5, 4.0)]
    inner = list[np.ndarray]()

    def model(x: Any, a: Any, b: Any) -> Any:
        return a * np.exp(-b * x)

    def fitting(x: Any, a: Any, b: Any) -> Any:
        if isinstance(x, np.ndarray):
            inner.append(sg.curve_fit(model, x, ys[1])[0])
        return model(x, a, b)

    alone = [sg.curve_fit(model, x, y)[0] for y in ys]
    popt, _ = sg.curve_fit(fitting, x, ys[0])
    np.testing.assert_array_equal(popt, alone[0])
    assert inner
    np.testing.assert_array_equal(inner[0], alone[1])


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_a_model_that_takes_x_as_a_whole_is_told_where_a_parameter_starts_at_0(
    start: float,
) -> None:
    """At b = 0 all x together have the values of each: it takes another b to tell."""
    x = np.linspace(0.0, 3.0, 20)

    def model(x: Any, a: Any, b: Any) -> Any:
        return a * x + b * (x - np.mean(x))

    y = np.asarray(model(x, 1.0, 2.0) + 0.1 * np.sin(9 * x))
    want = np.linalg.lstsq(np.stack([x, x - x.mean()], 1), y)[0]
    for _ in range(2):
        popt, _ = sg.curve_fit(model, x, y, p0=[1.0, start])
        np.testing.assert_allclose(popt, want, rtol=1e-9)


@pytest.mark.parametrize("seed", [1, 8, 10])
def test_a_parameter_that_cancels_hides_no_minimum(seed: int) -> None:
    """Its derivatives are nothing but rounding, of which no direction is to be read."""
    draw = np.random.default_rng(seed)
    x = np.sort(draw.uniform(0.2, 4.0, 30))
    model = lambda x, a, b: (a / (x / b)) / ((x + b) * a) - x  # noqa: E731
    y = model(x, 1.0, 0.7) + 0.01 * draw.normal(size=30)
    popt, pcov = sg.curve_fit(model, x, y, p0=[0.6, 0.68])
    wanted, _ = sg.curve_fit(lambda x, b: model(x, 1.0, b), x, y, p0=[0.68])
    assert popt[1] == pytest.approx(wanted[0], rel=1e-6)
    assert pcov[0, 0] ** 0.5 > 1e6 * abs(popt[0])
