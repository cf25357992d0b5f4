"""The error function and its complement, which keeps its digits in the tail."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.exponential import gaussian

ERF: Final = (
    0.12837917, -0.37612626, 0.112835854, -0.026853813, 0.0051883277, -0.00080101937, 7.8538615e-05,
)  # fmt: skip
"""erf(x)/x - 1 in x**2, |x| <= 1: erf to 0.05 * 2**-24 of its value (tools/fit.py)."""

ERFC_TAIL: Final = (
    0.85516715, -0.23768087, -0.095556, 0.0139009105, 0.025391726, 0.01003009, -0.00404559,
    0.0037091272, -0.012174332, 0.0054495903,
)  # fmt: skip
"""erfc(a) exp(a**2) (a + 1) in t = (a - 1)/(a + 1), 0.81 <= a <= 10.1: to 0.15 * 2**-24."""

NORMAL_TAIL: Final = (
    0.5231557, -0.026264524, -0.07944141, -0.031558786, -0.024162922, 0.071603745, -0.10449548,
    0.12506367, -0.06493503, 0.009967584,
)  # fmt: skip
"""Phi(-a) exp(a**2/2) (a + 1) in t = (a - 1)/(a + 1), 1.145 <= a <= 14.4: to 0.50 * 2**-24."""

FAR: Final = 0.81
"""From here on erfc is computed itself, not from erf."""


def _near(x: Expr) -> Expr:
    """erf(x) for |x| <= 1; for a tiny x the product with the polynomial would be subnormal."""
    value = x + x * polynomial(x * x, ERF)
    return ops.where(ops.abs(x) < 1e-4, x * (2.0 / math.sqrt(math.pi)), value)


def _tail(a: Expr, end: float, coefficients: tuple[float, ...]) -> Expr:
    """W(t)/(a + 1), t = (a - 1)/(a + 1), a at most at the end.

    The reciprocal and the ratio are mended by a Newton step each: devices may be off by 2 ULP.
    """
    a = ops.where(a < end, a, end)
    below = a + 1.0
    r = ops.reciprocal(below)
    r = r + r * (1.0 - r * below)
    w = polynomial((a - 1.0) * r, coefficients)
    ratio = ops.opaque(w * r)  # or compilers would take w out of the difference
    return ratio + r * (w - ratio * below)


def _far_erfc(a: Expr) -> Expr:
    """erfc(a) = exp(-a**2) W(t)/(a + 1) for a >= 0.81."""
    return ops.where(a > 10.3, 0.0, gaussian(a, 1.0, _tail(a, 10.1, ERFC_TAIL)))


def erf(x: Expr) -> Expr:
    """A polynomial for |x| < 1; 1 - erfc(|x|) with the sign of x beyond."""
    a = ops.abs(x)
    return keep_nan(ops.where(a < 1.0, _near(x), ops.copysign(1.0 - _far_erfc(a), x)), x)


def erfc(x: Expr) -> Expr:
    """1 - erf(x) for |x| < 0.81; beyond, exp(-a**2) W(a), a = |x|, and 2 minus that for x < 0."""
    a = ops.abs(x)
    tail = _far_erfc(a)
    far = ops.where(x < 0.0, 2.0 - tail, tail)
    return keep_nan(ops.where(a < FAR, 1.0 - _near(x), far), x)


def normal_cdf(x: Expr) -> Expr:
    """(1 + erf(x/sqrt(2)))/2 for |x| < 1.145; beyond, exp(-a**2/2) W(a), a = |x|, or 1 less it."""
    a = ops.abs(x)
    tail = ops.where(a > 14.5, 0.0, gaussian(a, 0.5, _tail(a, 14.4, NORMAL_TAIL)))
    far = ops.where(x < 0.0, tail, 1.0 - tail)
    near = 0.5 + 0.5 * _near(x * math.sqrt(0.5))
    return keep_nan(ops.where(a < math.sqrt(2.0) * FAR, near, far), x)
