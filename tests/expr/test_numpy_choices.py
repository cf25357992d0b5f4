"""What chooses by conditions, by order or in a table is NumPy's and SciPy's of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from expr.test_array import M, V, agree
from scipy.interpolate import CubicSpline

import symgrad as sg

NUMPY: Any = np
"""NumPy without its annotations, which know of no expressions."""
XP = np.array([-1.0, -0.25, 0.5, 0.75, 2.0])
FP = np.array([3.0, -1.0, 0.5, 4.0, 2.0])
D = np.random.default_rng(5)

CASES: dict[str, Callable[[Any], Any]] = {
    "select": lambda v: np.select([v > 1, v > 0], [v * 10, v * 100], -1.0),
    "select of numbers": lambda v: np.select([v > 1, v > 0], [1.0, 2.0]),
    "piecewise": lambda v: NUMPY.piecewise(v, [v < 0, v >= 1], [-1.0, lambda x: x**2]),
    "piecewise with another": lambda v: np.piecewise(v, [v < 0], [lambda x: -x, lambda x: x * 3]),
    "piecewise, both hold": lambda v: NUMPY.piecewise(v, [v < 2, v < 0], [1.0, 2.0]),
    "piecewise of one": lambda v: NUMPY.piecewise(v[0], [v[0] < 0], [-1.0, lambda x: x**2]),
    "choose": lambda v: np.choose([2, 0, 1], [v[:3], v[3:], 7.0]),
    "choose of one": lambda v: np.choose(1, v),
    "choose, clipped": lambda v: np.choose([-3, 1, 9], [v[0], v[1], v[2]], mode="clip"),
    "choose, wrapped": lambda v: np.choose([-1, 1, 9], [v[0], v[1], v[2]], mode="wrap"),
    "heaviside": lambda v: np.heaviside(v, 0.5),
    "heaviside at 0": lambda v: np.heaviside(v * 0.0, 0.5),
    "fmax": lambda v: np.fmax(v, [np.nan, 1.0, np.nan, 0.0, 0.0, 0.0]),
    "fmin": lambda v: np.fmin(v, v[::-1]),
    "nan_to_num": lambda v: np.nan_to_num(v),
    "nan_to_num of infinities": lambda v: np.nan_to_num(
        v * np.array([np.inf, 1, np.nan, 1, -np.inf, 1]), nan=7.0, posinf=1.0, neginf=-1.0
    ),
    "any": lambda v: np.any(v > 1),
    "any of numbers": lambda v: np.any(v, axis=0),
    "any along an axis": lambda v: np.any(M(v) > 1, axis=1, keepdims=True),
    "all": lambda v: np.all(v > -10),
    "all along axes": lambda v: np.all(M(v) > 0, axis=(0, 1)),
    "v.any": lambda v: (v > 1).any(),
    "v.all": lambda v: (M(v) > 1).all(axis=0),
    "count_nonzero": lambda v: np.count_nonzero(v > 0),
    "count_nonzero along an axis": lambda v: np.count_nonzero(M(v) > 0, axis=1),
    "sort": np.sort,
    "sort along an axis": lambda v: np.sort(M(v), axis=0),
    "sort of all": lambda v: np.sort(M(v), axis=None),
    "sort with numbers": lambda v: np.sort(np.concatenate([v, [0.1, -3.0, 0.2]])),
    "sort of one": lambda v: np.sort(v[:1]),
    "median": np.median,
    "median of an odd number": lambda v: np.median(v[:5]),
    "median along an axis": lambda v: np.median(M(v), axis=1, keepdims=True),
    "median of all axes": lambda v: np.median(M(v), axis=(0, 1)),
    "quantile": lambda v: np.quantile(v, 0.3),
    "quantiles": lambda v: np.quantile(v, [0.0, 0.25, 1.0]),
    "quantiles along an axis": lambda v: np.quantile(M(v), [0.1, 0.6], axis=0),
    "percentile": lambda v: np.percentile(v, 37.5),
    "ptp": lambda v: np.ptp(M(v), axis=1),
    "max with keepdims": lambda v: np.max(M(v), axis=1, keepdims=True),
    "max with initial": lambda v: np.max(v, initial=100.0),
    "max of numbers side by side": lambda v: np.max(np.concatenate([[1.0, 2.0, 3.0, 4.0], v])),
    "prod with keepdims": lambda v: np.prod(M(v), axis=0, keepdims=True),
    "var with keepdims": lambda v: np.var(M(v), axis=1, keepdims=True, ddof=1),
    "std over axes": lambda v: np.std(M(v), axis=(0, 1)),
    "average with keepdims": lambda v: np.average(M(v), 1, weights=[1.0, 2.0, 3.0], keepdims=True),
    "average of all": lambda v: np.average(M(v), weights=np.abs(M(V))),
    "cov": lambda v: np.cov(M(v)),
    "cov of two": lambda v: np.cov(v, v[::-1], bias=True),
    "cov of columns": lambda v: np.cov(M(v), rowvar=False),
    "corrcoef": lambda v: np.corrcoef(M(v)),
    "round to digits": lambda v: np.round(v, 1),
    "round to tens": lambda v: np.round(v * 100, -1),
    "diff along an axis": lambda v: np.diff(M(v), axis=0),
    "diff with ends": lambda v: np.diff(v, prepend=0.0, append=[1.0, 2.0]),
    "diff twice": lambda v: np.diff(M(v), n=2, axis=1),
    "ediff1d": lambda v: np.ediff1d(v, to_begin=0.0, to_end=[1.0, 2.0]),
    "gradient": np.gradient,
    "gradient with a step": lambda v: np.gradient(v, 0.5, edge_order=2),
    "gradient at points": lambda v: np.gradient(v, np.array([0.0, 1.0, 3.0, 3.5, 5.0, 9.0])),
    "gradient at points, order 2": lambda v: np.gradient(v, np.arange(6.0) ** 2, edge_order=2),
    "gradient of two axes": lambda v: tuple(np.gradient(M(v), 1.0, 2.0)),
    "gradient of one axis": lambda v: np.gradient(M(v), axis=1),
    "trapezoid along an axis": lambda v: np.trapezoid(M(v), axis=0),
    "trapezoid at points": lambda v: np.trapezoid(M(v), x=np.array([0.0, 1.0, 3.0])),
    "convolve": lambda v: np.convolve(v, [1.0, 0.0, -1.0]),
    "convolve same": lambda v: np.convolve(v, v[:3], "same"),
    "convolve valid": lambda v: np.convolve([1.0, 2.0], v, "valid"),
    "correlate": lambda v: np.correlate(v, [1.0, 2.0, 3.0]),
    "correlate full": lambda v: np.correlate(v, v[:2], "full"),
    "correlate same": lambda v: np.correlate(v, [1.0, 2.0, 4.0], "same"),
    "linspace": lambda v: np.linspace(v[0], v[1], 5),
    "linspace without its end": lambda v: np.linspace(0.0, v[:2], 4, endpoint=False),
    "linspace and its step": lambda v: np.linspace(v[0], 2.0, 3, retstep=True),
    "vander": lambda v: np.vander(v, 3),
    "vander increasing": lambda v: np.vander(v[:3], increasing=True),
    "block": lambda v: np.block([[v[:2], np.zeros(2)], [np.ones(2), v[2:4]]]),
    "divmod": lambda v: tuple(np.divmod(v, 0.3)),
    "modf": lambda v: tuple(np.modf(v)),
    "signbit": np.signbit,
    "ldexp": lambda v: np.ldexp(v, np.arange(len(v)) - 2),
    "logaddexp2": lambda v: np.logaddexp2(v, v[::-1]),
    "apply_along_axis": lambda v: NUMPY.apply_along_axis(np.sum, 1, M(v)),
    "apply_along_axis of vectors": lambda v: np.apply_along_axis(lambda r: r[:2] * 2, 0, M(v)),
    "take_along_axis": lambda v: np.take_along_axis(M(v), np.array([[2], [0]]), 1),
    "interp": lambda v: np.interp(v, XP, FP),
    "interp outside": lambda v: np.interp(v * 10, XP, FP, left=-5.0, right=7.0),
    "interp of one": lambda v: np.interp(v[0], XP, FP),
    "interp of values": lambda v: np.interp([0.0, 0.6, 9.0], XP, v[:5]),
    "interp of values at expressions": lambda v: np.interp(v[5], XP, v[:5]),
    "interp at the points": lambda v: np.interp(0.0 * v[:5] + XP, XP, FP),
    "interp with a period": lambda v: np.interp(v * 7, [0.5, 1.0, 2.5, 2.75], FP[:4], period=3.0),
    "interp between two": lambda v: np.interp(v, [0.0, 1.0], [2.0, 4.0]),
    "interp in a point": lambda v: np.interp(v, [0.0], [2.0]),
    "searchsorted": lambda v: np.searchsorted(XP, v),
    "searchsorted to the right": lambda v: np.searchsorted(XP, v * 0.0 + 0.5, side="right"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_numpy_chooses(name: str) -> None:
    agree(CASES[name], rtol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 7, 16, 33])
def test_sorting_networks_sort(n: int) -> None:
    values = np.concatenate([D.normal(size=(20, n)), D.integers(0, 3, (20, n))])
    kernel = sg.fused_forward(n, np.sort, device="cpu")
    np.testing.assert_array_equal(kernel.run(values), np.sort(values.astype(np.float32), axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float32x2"])
def test_nan_are_sorted_last_and_are_medians(dtype: Any) -> None:
    """One NaN once was spread over all elements."""
    n, values = 9, D.normal(size=(40, 9)).astype(np.float32)
    values[D.random((40, 9)) < 0.2] = np.nan
    for device in ("cpu", "gpu"):
        options: Any = {"device": device, "dtype": dtype}
        got = sg.fused_forward(n, np.sort, **options).run(values)
        np.testing.assert_array_equal(got, np.sort(values, axis=1))
        median = sg.fused_forward(n, np.median, **options).run(values)
        np.testing.assert_allclose(median, np.median(values, axis=1), rtol=1e-6)


def test_a_median_has_a_gradient() -> None:
    kernel = sg.fused_forward_backward(5, lambda v: np.median(v**2), device="cpu")
    value, gradient = kernel.run([3.0, -1.0, 2.0, 5.0, -4.0])
    assert value == 9.0 and gradient.tolist() == [6.0, 0.0, 0.0, 0.0, 0.0]


def test_only_what_a_median_needs_is_computed() -> None:
    whole = sg.fused_forward(9, np.sort, device="cpu").stats.operations
    assert sg.fused_forward(9, np.median, device="cpu").stats.operations < 0.9 * whole


@pytest.mark.parametrize("n", [4, 5, 12, 40])
def test_cubic_tables_are_scipys_splines(n: int) -> None:
    values, x = D.normal(size=n), np.linspace(-1.999, 2.999, 101)
    spline = CubicSpline(np.linspace(-2.0, 3.0, n), values)
    table = sg.table(values, -2.0, 3.0, "cubic")
    kernel = sg.fused_hessian(1, lambda v: table(v[0]), device="cpu", dtype="float64")
    value, slope, curvature = kernel.run(x[:, None])
    np.testing.assert_allclose(value, spline(x), rtol=0, atol=1e-11)
    np.testing.assert_allclose(slope[:, 0], spline(x, 1), rtol=0, atol=1e-10)
    np.testing.assert_allclose(curvature[:, 0, 0], spline(x, 2), rtol=0, atol=1e-9)


def test_values_of_a_table_may_be_parameters() -> None:
    at, values = 0.37, D.normal(size=6)
    for kind in ("linear", "cubic"):
        kernel = sg.fused_forward_backward(
            6, lambda v, kind=kind: sg.table(v, 0.0, 1.0, kind)(at), device="cpu", dtype="float64"
        )
        weights = kernel.run(values)[1]  # linear in the values
        assert weights @ values == pytest.approx(kernel.run(values)[0], rel=1e-13)
        assert weights.sum() == pytest.approx(1.0, rel=1e-13)


def test_tables_end_where_they_end() -> None:
    for kind in ("linear", "cubic"):
        table = sg.table([1.0, 3.0, 2.0, 5.0], 0.0, 3.0, kind)
        kernel = sg.fused_forward_backward(1, lambda v, f=table: f(v[0]), device="cpu")
        value, slope = kernel.run([[-1.0], [4.0], [np.nan], [-np.inf], [3.0]])
        np.testing.assert_array_equal(value, [1.0, 5.0, np.nan, 1.0, 5.0])
        assert slope[0, 0] == slope[1, 0] == 0.0


def test_a_table_of_numbers_at_numbers_is_numbers() -> None:
    assert sg.interp(0.5, [0.0, 1.0], [0.0, 3.0]) == 1.5
    assert np.asarray(sg.table([0.0, 1.0], 0.0, 1.0)([0.25, 0.5]), float).tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sg.interp(sg.var("x"), [0.0, 0.0], [1.0, 2.0]), "must increase"),
        (lambda: sg.interp(sg.var("x"), [0.0, 1.0], [1.0, 2.0, 3.0]), "as many"),
        (lambda: sg.interp(0.5, [sg.var("x"), 1.0], [1.0, 2.0]), "are numbers"),
        (lambda: sg.table([1.0], 0.0, 1.0), "at least 2"),
        (lambda: sg.table([1.0, 2.0, 3.0], 0.0, 1.0, "cubic"), "or 4 for a cubic"),
        (lambda: sg.table([1.0, 2.0], 1.0, 1.0), "low < high"),
        (lambda: sg.table([1.0, 2.0], 0.0, 1.0, "quintic"), "'linear' or 'cubic'"),
    ],
)
def test_what_is_no_table(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        make()


def test_a_transform_says_what_to_write() -> None:
    with pytest.raises(sg.TraceError, match=r"np.cos and np.sin"):
        sg.fused_forward(4, lambda v: np.abs(np.fft.rfft(v)), device="cpu")


def test_choose_by_an_expression() -> None:
    """Also by the counter of a loop; what is not chosen has no slope."""

    def f(v: Any) -> Any:
        return sg.fori_loop(
            0, 3, lambda k, s: s + np.choose(k, v) * np.choose(k, [1.0, 10.0, 100.0]), 0.0
        )

    kernel = sg.fused_forward_backward(3, f, device="cpu")
    value, slopes = kernel.run([2.0, 3.0, 4.0])
    assert value == 432.0
    assert slopes.tolist() == [1.0, 10.0, 100.0]
    beyond = sg.fused_forward(2, lambda v: np.choose(v[0], v), device="cpu")
    np.testing.assert_array_equal(
        beyond.run([[0, 5], [1, 5], [2, 5], [-3, 5], [0.25, 5]]), [0, 5, 5, -3, 0.25]
    )
    with pytest.raises(sg.TraceError, match=r"np.choose of 2 takes none of number \[0, 2\]"):
        sg.fused_forward(2, lambda v: np.sum(np.choose([0, 2], v)))


@pytest.mark.parametrize(
    "f",
    [
        lambda v: np.repeat(v, v[0]),
        lambda v: np.put(v, v[0], 1.0),
        lambda v: np.delete(v, v[0]),
        lambda v: v.__setitem__(v[0], 1.0),
    ],
)
def test_where_elements_are_is_known_before(f: Callable[[Any], Any]) -> None:
    with pytest.raises(sg.TraceError, match=r"depends on values .* use sg\.where"):
        sg.fused_forward(3, f)
