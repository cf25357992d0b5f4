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
