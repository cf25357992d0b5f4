"""The library's functions at NaN, infinities, signed zeros and the ends of their domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from symgrad.expr import ops

from .cases import BOUNDS, EDGES, FADDEEVA, FUNCTIONS, cancelling, evaluate, truth, ulps
from .edges import INCOMPLETE, INF, NAN, PLANE

UNARY = [n for n in BOUNDS if ops.TABLE[n].arity == 1]
BINARY = [n for n in BOUNDS if ops.TABLE[n].arity == 2]
ODD = ["expm1", "log1p", "sinh", "tanh", "asinh", "atanh", "asin", "atan", "erf", "cbrt"]

TABLE: list[tuple[str, tuple[float, ...], float]] = [
    ("pow", (0.0, 0.0), 1.0), ("pow", (NAN, 0.0), 1.0), ("pow", (1.0, NAN), 1.0),
    ("pow", (-2.0, 3.0), -8.0), ("pow", (-2.0, 2.0), 4.0), ("pow", (-2.0, 0.5), NAN),
    ("pow", (0.0, -1.0), INF), ("pow", (-0.0, -1.0), -INF), ("pow", (-0.0, 3.0), -0.0),
    ("pow", (-INF, 3.0), -INF), ("pow", (0.5, INF), 0.0), ("pow", (0.5, -INF), INF),
    ("pow", (-1.0, INF), 1.0), ("pow", (10.0, 2.0), 100.0), ("pow", (2.0, -126.0), 2.0**-126),
    ("atan2", (0.0, 0.0), 0.0), ("atan2", (-0.0, 0.0), -0.0), ("atan2", (0.0, -0.0), np.pi),
    ("atan2", (-0.0, -1.0), -np.pi), ("atan2", (INF, -INF), 0.75 * np.pi),
    ("atan2", (1e-30, 1e30), 0.0), ("atan2", (3e38, 3e38), 0.25 * np.pi),
    ("hypot", (3e38, 0.0), 3e38), ("hypot", (3e-38, 4e-38), 5e-38), ("hypot", (INF, NAN), INF),
    ("remainder", (-7.5, 2.0), 0.5), ("remainder", (7.5, -2.0), -0.5),
    ("remainder", (5.0, 0.0), NAN), ("remainder", (-5.0, INF), INF),
    ("remainder", (6.0, -3.0), -0.0), ("remainder", (1e10, 3.0), 1.0), ("fmod", (-7.5, 2.0), -1.5),
    ("fmod", (INF, 2.0), NAN), ("fmod", (-6.0, 3.0), -0.0), ("minimum", (NAN, 1.0), NAN),
    ("minimum", (1.0, NAN), NAN), ("maximum", (NAN, 1.0), NAN), ("maximum", (1.0, NAN), NAN),
    ("sign", (-0.0,), 0.0), ("sign", (NAN,), NAN), ("asin", (1.5,), NAN), ("acos", (-1.5,), NAN),
    ("acos", (1.0,), 0.0), ("acosh", (0.5,), NAN), ("atanh", (1.0,), INF), ("atanh", (-1.0,), -INF),
    ("atanh", (2.0,), NAN), ("log1p", (-1.0,), -INF), ("log1p", (-2.0,), NAN),
    ("log10", (0.0,), -INF), ("log10", (-1.0,), NAN), ("log10", (1.0,), 0.0),
    ("expm1", (-INF,), -1.0), ("sinh", (89.0,), 2.2448063e38), ("cosh", (89.0,), 2.2448063e38),
    ("cosh", (0.0,), 1.0), ("cbrt", (-27.0,), -3.0), ("cbrt", (-INF,), -INF),
    ("erfc", (-INF,), 2.0), ("erfc", (INF,), 0.0), ("erf", (-INF,), -1.0),
    ("exp_neg_square", (-INF,), 0.0), ("tanh", (100.0,), 1.0),
    ("gammaln", (1.0,), 0.0), ("gammaln", (2.0,), 0.0), ("gammaln", (0.0,), INF),
    ("gammaln", (-3.0,), INF), ("gammaln", (INF,), INF), ("gammaln", (-INF,), INF),
    ("gammaln", (-3e38,), INF), ("gammaln", (5e36,), INF), ("gammaln", (-0.5,), 1.2655121234846454),
    ("digamma", (0.0,), -INF), ("digamma", (-0.0,), INF), ("digamma", (-2.0,), NAN),
    ("digamma", (INF,), INF), ("digamma", (-INF,), NAN), ("digamma", (-0.5,), 0.03648997397857652),
    ("trigamma", (0.0,), INF), ("trigamma", (-1.0,), INF), ("trigamma", (INF,), 0.0),
    ("tetragamma", (-0.0,), INF), ("tetragamma", (-1.0,), NAN), ("tetragamma", (INF,), -0.0),
    ("xlogy", (0.0, 0.0), 0.0), ("xlogy", (0.0, -1.0), 0.0), ("xlogy", (0.0, NAN), NAN),
    ("xlogy", (1.0, 0.0), -INF), ("xlogy", (1.0, -1.0), NAN), ("xlog1py", (0.0, -1.0), 0.0),
    ("xlog1py", (0.0, NAN), NAN), ("entr", (0.0,), 0.0), ("entr", (-1.0,), -INF),
    ("entr", (INF,), -INF), ("logit", (0.0,), -INF), ("logit", (1.0,), INF), ("logit", (0.5,), 0.0),
    ("logit", (-0.1,), NAN), ("logit", (1.1,), NAN), ("log1mexp", (0.0,), -INF),
    ("i0e", (0.0,), 1.0), ("i0e", (INF,), 0.0), ("i0e", (-INF,), 0.0), ("i1e", (0.0,), 0.0),
    ("i1e", (-0.0,), -0.0), ("i1e", (INF,), 0.0), ("i1e", (-INF,), -0.0),
    ("k0e", (0.0,), INF), ("k0e", (INF,), 0.0), ("k0e", (-1.0,), NAN), ("k0e", (NAN,), NAN),
    ("k1e", (-0.0,), INF), ("k1e", (INF,), 0.0), ("k1e", (-INF,), NAN),
    ("ellipkm1", (0.0,), INF), ("ellipkm1", (INF,), 0.0), ("ellipkm1", (-1.0,), NAN),
    ("ellipe", (1.0,), 1.0), ("ellipe", (-INF,), INF), ("ellipe", (1.5,), NAN),
    ("elliptic_b", (0.0,), 1.0), ("elliptic_b", (INF,), 0.0), ("elliptic_d", (0.0,), INF),
    ("elliptic_d", (INF,), 0.0),
    ("log_ndtr", (INF,), -0.0), ("log_ndtr", (-INF,), -INF), ("inverse_mills", (-INF,), INF),
    ("inverse_mills", (INF,), 0.0), ("mills_excess", (-INF,), 0.0), ("erfinv", (0.0,), 0.0),
    ("erfinv", (-0.0,), -0.0), ("erfinv", (1.0,), INF), ("erfinv", (-1.0,), -INF),
    ("erfinv", (1.5,), NAN), ("erfinv_slope", (1.0,), INF), ("erfinv_slope", (2.0,), NAN),
    ("ndtri", (0.5,), 0.0), ("ndtri", (0.0,), -INF), ("ndtri", (1.0,), INF),
    ("ndtri", (-0.1,), NAN), ("ndtri_slope", (0.0,), INF),
    *PLANE, *INCOMPLETE, ("gammainc", (2.0, -1.0), NAN), ("gammainc", (2.0, -0.0), 0.0),
    ("gammainc", (1e30, 1e30), 0.5), ("gammainc", (1e-30, 1e-30), 1.0),
    ("gammaincc", (INF, 2.0), 1.0),
    ("gammaincc", (0.0, 2.0), 0.0), ("gammaincc", (0.0, 0.0), NAN), ("gammaincc", (NAN, 1.0), NAN),
    ("gammaincc", (1e-30, 1e-30), 6.8500334e-29), ("gammaincc", (1e30, 2e30), 0.0),
    ("gamma_density", (2.0, 0.0), 0.0),
    ("gamma_density", (0.0, 1.0), 0.0),
    ("betainc", (2e18, 2.0, 0.5), NAN),
    ("log1mexp", (INF,), -0.0), ("log1mexp", (-1.0,), NAN), ("sinc", (0.0,), 1.0),
    ("sinc", (INF,), NAN), ("sinc_ratio", (0.0,), 1 / 3),
    ("j0", (0.0,), 1.0), ("j0", (INF,), 0.0), ("j0", (-INF,), 0.0), ("j0", (1e-30,), 1.0),
    ("j1", (0.0,), 0.0), ("j1", (-0.0,), -0.0), ("j1", (INF,), 0.0), ("j1", (-INF,), -0.0),
    ("j1", (-1e-30,), -5e-31), ("j1_ratio", (-0.0,), 0.5), ("j1_ratio", (-INF,), 0.0),
]  # fmt: skip


def run(name: str, *arguments: Any) -> Any:
    return evaluate(FUNCTIONS[ops.TABLE[name]], *[np.atleast_1d(np.float32(a)) for a in arguments])


@pytest.mark.parametrize(("name", "arguments", "value"), TABLE)
def test_value(name: str, arguments: tuple[float, ...], value: float) -> None:
    got = run(name, *arguments)[0]
    assert np.isclose(got, np.float32(value), rtol=3e-7, atol=0, equal_nan=True)
    assert np.isnan(value) or np.signbit(got) == np.signbit(value)


@pytest.mark.parametrize("name", UNARY)
def test_nan_stays_nan(name: str) -> None:
    assert np.isnan(run(name, np.nan)[0])


@pytest.mark.parametrize("name", ODD)
def test_zero_keeps_its_sign(name: str) -> None:
    assert list(np.signbit(run(name, [0.0, -0.0]))) == [False, True]


@pytest.mark.parametrize("name", BINARY)
def test_all_pairs_of_edges_agree_with_the_op_table(name: str) -> None:
    a, b = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
    unit = cancelling(name, (a, b)) if name in (*FADDEEVA, "gammainc_bend") else 0.0
    assert np.max(ulps(run(name, a, b), truth(name, a, b), unit)) <= BOUNDS[name][0]


@pytest.mark.parametrize("name", [n for n in UNARY if n != "exp_neg_square"])
def test_all_edges_agree_with_the_op_table(name: str) -> None:
    unit = cancelling(name, (EDGES,))
    assert np.max(ulps(run(name, EDGES), truth(name, EDGES), unit)) <= BOUNDS[name][0]
