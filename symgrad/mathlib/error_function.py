"""The error function and its complement, which keeps its digits in the tail."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.coefficients import Coefficients, coefficients
from symgrad.mathlib.exponential import Parts, gaussian

ERF: Final = coefficients("""
    0.12837917 -0.37612626 0.112835854 -0.026853813 0.0051883277 -0.00080101937 7.8538615e-05
""")
"""erf(x)/x - 1 in x**2, |x| <= 1: erf to 0.05 * 2**-24 of its value (tools/fit.py)."""

ERFC_TAIL: Final = coefficients("""
    0.10516715 -0.23768087 -0.095556 0.0139009105 0.025391726 0.01003009 -0.00404559 0.0037091272
    -0.012174332 0.0054495903
""")
"""erfc(a) exp(a**2) (a + 1) - 3/4 in t = (a - 1)/(a + 1), 0.81 <= a <= 10.1: to 0.15 * 2**-24."""

NORMAL_TAIL: Final = coefficients("""
    0.117342 -0.19509952 -0.057495736 0.017898822 0.017653942 0.0038953284 -0.0024539155
    -0.0017041647 -0.0033904072 0.0022997737
""")
"""Phi(-a) exp(a**2/2) (a + 3/2) - 1/2 in t = (a - 3/2)/(a + 3/2), 1.145 <= a <= 14.4: to
0.12 * 2**-24."""

FAR: Final = 0.81
"""From here on erfc is computed itself, not from erf."""


def _near(x: Expr) -> Expr:
    """erf(x) for |x| <= 1; for a tiny x the product with the polynomial would be subnormal."""
    value = x + x * polynomial(x * x, ERF)
    return ops.where(ops.abs(x) < 1e-4, x * (2.0 / math.sqrt(math.pi)), value)


def _tail(a: Expr, shift: float, middle: float, coefficients: Coefficients) -> Parts:
    """(middle + P(t))/(a + shift), t = (a - shift)/(a + shift), in two parts.

    The second is what the first leaves of the dividend, which is not rounded for it, over the
    divisor and what was lost in its rounding: devices may be off by 2 ULP.
    """
    below = ops.opaque(a + shift)
    lost = a - ops.opaque(below - shift)
    r = ops.reciprocal(below)
    apart = polynomial((a - shift) * r, coefficients)
    ratio = ops.opaque((middle + apart) * r)
    left = ops.opaque(middle - ratio * below) + (apart - ratio * lost)
    return ratio, left * r


def _far_erfc(a: Expr) -> Expr:
    """erfc(a) = exp(-a**2) W(t)/(a + 1) for a >= 0.81."""
    tail = _tail(ops.where(a < 10.1, a, 10.1), 1.0, 0.75, ERFC_TAIL)
    return ops.where(a > 10.3, 0.0, gaussian(a, 1.0, tail))


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
    tail = _tail(ops.where(a < 14.4, a, 14.4), 1.5, 0.5, NORMAL_TAIL)
    tail = ops.where(a > 14.5, 0.0, gaussian(a, 0.5, tail))
    far = ops.where(x < 0.0, tail, 1.0 - tail)
    near = 0.5 + 0.5 * _near(x * math.sqrt(0.5))
    return keep_nan(ops.where(a < math.sqrt(2.0) * FAR, near, far), x)
