"""NumPy's functions that are made up of others, of arrays of expressions and of whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

WEIGHTS = np.linspace(0.5, 1.5, 4)
COMPOSED: dict[str, Any] = {
    "diff": lambda v: np.diff(v, 2, prepend=0.5, append=v[:2]),
    "diff of rows": lambda v: np.diff(v.reshape(3, 4), axis=0, prepend=v[:4][None], append=1.0),
    "ediff1d": lambda v: np.ediff1d(v, to_end=v[:2], to_begin=[0.5]),
    "trapezoid of rows": lambda v: np.trapezoid(v.reshape(3, 4), x=WEIGHTS, axis=1),
    "trapezoid of columns": lambda v: np.trapezoid(v.reshape(3, 4), x=v.reshape(3, 4)**2, axis=0),
    "cov": lambda v: np.cov(v.reshape(3, 4), v.reshape(3, 4)[:1], ddof=0),
    "cov of one": lambda v: np.cov(v, rowvar=False),
    "average": lambda v: sum(np.average(v.reshape(3, 4), 1, WEIGHTS, returned=True)),
    "average of all": lambda v: sum(np.average(v.reshape(3, 4), returned=True)),
    "average by axes": lambda v: np.average(
        v.reshape(3, 2, 2), (2, 0), np.arange(1.0, 7.0).reshape(2, 3), keepdims=True
    ),
    "cross": lambda v: np.cross(v.reshape(3, 4), v[:3], axisa=0, axisc=0),
    "matrix_power": lambda v: np.linalg.matrix_power(v[:9].reshape(3, 3), 5),
    "matrix_power 0": lambda v: np.linalg.matrix_power(v[:9].reshape(3, 3), 0) + v[0],
    "matrix_power -2": lambda v: np.linalg.matrix_power(v[:9].reshape(3, 3), -2),
    "vander": lambda v: np.vander(v, 4),
    "polyval": lambda v: np.polyval(v, 0.5) + np.polyval([1.0, 2.0, 3.0], v),
    "linspace of integers": lambda v: np.linspace(v[0] * 0 - 0.5, v[:3] ** 2, 4, dtype=int) + v[0],
    "chosen": lambda v: np.choose((v > -0.5).astype(int) + (v > 0.5), [v, 2.0, v[::-1]]),
    "chosen of one": lambda v: np.choose([0, 0, 0], [v[:1]]),
    "no out": lambda v: np.mean(v.reshape(3, 4), 0, None, None, True) + np.round(v[:4], 1, None),
    "no out of methods": lambda v: v.reshape(3, 4).sum(1, None, None, True) + v[0].round(1, None),
    "infinities": lambda v: np.isposinf(1.0 / (v - v)) * v + np.isneginf(v) * v,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", COMPOSED)
def test_both_kinds_of_arrays_have_numpys_values(name: str) -> None:
    f = COMPOSED[name]
    v = np.random.default_rng(5).normal(size=12)
    options: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
    expected = f(v)
    elements = sg.fused_forward(12, lambda v: np.ravel(f(v)), **options)(v)
    np.testing.assert_allclose(np.ravel(elements), np.ravel(expected), rtol=1e-10, atol=1e-12)
    whole = sg.jit(f, **options)(v)
    np.testing.assert_allclose(whole, expected, rtol=1e-10, atol=1e-12)
    assert np.shape(whole) == np.shape(expected)


def test_an_index_beyond_the_choices_is_the_nearest_one() -> None:
    def f(v: Any, mode: Any = "raise") -> Any:
        return np.choose(v.astype(int), [v, 2.0 * v, v * v], mode=mode)

    v = np.array([-4.0, 0.0, 1.0, 2.0, 3.0, 50.0])
    expected = f(v, "clip")
    options: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
    np.testing.assert_array_equal(sg.fused_forward(6, f, **options)(v), expected)
    np.testing.assert_array_equal(sg.jit(f, **options)(v), expected)


def test_the_mean_of_no_numbers_is_nan_without_a_warning() -> None:
    kernel = sg.fused_forward(2, lambda v: np.nanmean(v[:0]), device="cpu")
    assert np.isnan(kernel([1.0, 2.0]))
    assert np.isnan(sg.jit(lambda v: np.nanmean(v[:0]), device="cpu")(np.ones(2)))


AXIS = np.exceptions.AxisError
INTO: Any = np.zeros(6)
OUT = "cannot write to out=: use its result"
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "sum": (lambda v: np.sum(v, out=INTO[0]), sg.TraceError, f"np.sum of .*{OUT}"),
    "sum, by its place": (lambda v: np.sum(v, 0, None, INTO[0]), sg.TraceError, f"np.sum .*{OUT}"),
    "round": (lambda v: np.round(v, 1, out=INTO), sg.TraceError, f"np.round .*{OUT}"),
    "the method round": (lambda v: v.round(1, out=INTO), sg.TraceError, "cannot"),
    "take": (lambda v: np.take(v, [0], out=INTO[:1]), sg.TraceError, f"np.take .*{OUT}"),
    "the method take": (lambda v: v.take([0], None, INTO[:1]), sg.TraceError, f"np.take .*{OUT}"),
    "choose": (lambda v: np.choose([0], [v], out=INTO), sg.TraceError, f"np.choose .*{OUT}"),
    "accumulate": (lambda v: np.add.accumulate(v, out=INTO), sg.TraceError, "cannot hold"),
    "a choice": (lambda v: np.choose([0, 2], [v[:2], v[2:4]]), sg.TraceError, "of 2 takes none"),
    "no axis to take of": (lambda v: np.take(v, [0], axis=4), AXIS, "axis 4"),
    "no axis to sum": (lambda v: np.sum(v, axis=1), AXIS, "axis 1"),
    "no axis of slopes": (lambda v: np.gradient(v, axis=3), AXIS, "axis 3"),
    "no axis of quantiles": (lambda v: np.quantile(v, 0.5, axis=-2), AXIS, "axis -2"),
    "no axis of products": (lambda v: np.tensordot(v, v, ([1], [0])), AXIS, "axis 1"),
    "an axis twice": (lambda v: np.mean(v[None], axis=(0, 0)), ValueError, "repeated"),
    "slopes twice": (lambda v: np.gradient(v[None], axis=(1, -1)), ValueError, "repeated"),
    "places of slopes": (lambda v: np.gradient(v, [0.0, 1.0]), sg.TraceError, r"shape \(2,\)"),
    "one point": (lambda v: np.gradient(v[:1]), sg.TraceError, "of 1 points"),
    "fewer than no points": (lambda v: np.linspace(v[0], 1.0, -2), sg.TraceError, "-2 points"),
    "half a point": (lambda v: np.linspace(v[0], 1.0, 3.0), TypeError, "float"),  # type: ignore[call-overload]
    "a matrix": (lambda v: np.convolve(v, v[None]), sg.TraceError, r"\(6,\), \(1, 6\)"),
    "nothing": (lambda v: np.convolve(v, []), sg.TraceError, "not empty"),
    "lengths": (lambda v: np.einsum("i,i", v, v[1:]), sg.TraceError, "'i,i'.*axis i is 6 and 5"),
    "a diagonal": (lambda v: np.einsum("ii", v.reshape(2, 3)), sg.TraceError, "'ii'.*2 and 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_kinds_of_arrays_refuse_what_numpy_does_or_they_cannot_do(name: str) -> None:
    f, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        sg.fused_forward(6, lambda v: np.ravel(f(v)), device="cpu")
    with pytest.raises(error, match=message):
        sg.jit(lambda x: f(x[:6]), device="cpu")(np.ones(3000))
