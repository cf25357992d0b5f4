"""Hyperbolic functions and their inverses: odd polynomials near 0, exponentials away from it."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, keep_tiny, polynomial
from symgrad.mathlib.coefficients import Coefficients, coefficients

SINH: Final = (0.16666667, 0.00833335, 0.0001983616, 2.8169513e-06)
"""(sinh(x) - x)/x**3 in x**2, |x| <= 1: sinh to 0.09 * 2**-24 of its value (tools/fit.py)."""

TANH: Final = (-0.3333328, 0.13331442, -0.053739715, 0.020639088, -0.0057049873)
"""(tanh(x) - x)/x**3 in x**2, |x| <= 0.625: tanh to 0.15 * 2**-24."""

ASINH: Final = coefficients("""
    -0.16666666 0.07499929 -0.044628087 0.030232115 -0.021511193 0.014342809 -0.0073132156
    0.0019512223
""")
"""(asinh(x) - x)/x**3 in x**2, |x| <= 0.75: asinh to 0.02 * 2**-24."""

ATANH: Final = (0.333333, 0.20002519, 0.14222762, 0.118237294, 0.05135825, 0.17669117)
"""(atanh(x) - x)/x**3 in x**2, |x| <= 0.5: atanh to 0.08 * 2**-24."""

ACOSH: Final = (-0.08333333, 0.018749723, -0.005576656, 0.0018758095, -0.0006243745, 0.0001432455)
"""(acosh(1 + t)/sqrt(2t) - 1)/t on [0, 0.5]: acosh to 0.02 * 2**-24."""

LN2: Final = math.log(2.0)
TINY: Final = 1e-4
"""Below it x is the float32 nearest to each of these odd functions of x."""


def _odd(a: Expr, coefficients: Coefficients) -> Expr:
    square = a * a
    return a + a * square * polynomial(square, coefficients)


def _half_exp(a: Expr) -> Expr:
    """exp(a)/2 for a >= 0, which does not overflow before its true value does."""
    large = a > 80.0
    return ops.where(large, 0.5 * math.e, 0.5) * ops.exp(a - ops.where(large, 1.0, 0.0))


def sinh(x: Expr) -> Expr:
    """(exp(a) - exp(-a))/2 with the sign of x, a = |x|; for a < 1 a polynomial."""
    a = ops.abs(x)
    h = _half_exp(a)
    value = ops.where(a < 1.0, _odd(a, SINH), h - 0.25 / h)
    return keep_tiny(ops.copysign(value, x), x, TINY)


def cosh(x: Expr) -> Expr:
    """(exp(a) + exp(-a))/2, a = |x|."""
    h = _half_exp(ops.abs(x))
    return keep_nan(h + 0.25 / h, x)


def tanh(x: Expr) -> Expr:
    """1 - 2e/(1 + e) with the sign of x, e = exp(-2|x|); for |x| < 0.625 a polynomial."""
    a = ops.abs(x)
    e = ops.exp(-ops.abs(2.0 * x))  # written as in the derivative, with which it is shared
    r = ops.reciprocal(1.0 + e)
    value = ops.where(a < 0.625, _odd(a, TANH), 1.0 - 2.0 * (e * r))
    return keep_tiny(ops.copysign(value, x), x, TINY)


def asinh(x: Expr) -> Expr:
    """log(a + sqrt(a**2 + 1)) with the sign of x, a = |x|; for a < 0.75 a polynomial."""
    a = ops.abs(x)
    far = ops.where(a > 1e4, ops.log(a) + LN2, ops.log(a + ops.sqrt(a * a + 1.0)))
    return keep_tiny(ops.copysign(ops.where(a < 0.75, _odd(a, ASINH), far), x), x, TINY)


def acosh(x: Expr) -> Expr:
    """log(x + sqrt(x**2 - 1)); for t = x - 1 < 0.5 sqrt(2t) times a polynomial; NaN for x < 1."""
    t = x - 1.0
    near = ops.sqrt(2.0 * t)
    near = near + near * t * polynomial(t, ACOSH)
    far = ops.where(x > 1e4, ops.log(x) + LN2, ops.log(x + ops.sqrt(t * (x + 1.0))))
    return keep_nan(ops.where(x < 1.0, math.nan, ops.where(t < 0.5, near, far)), x)


def atanh(x: Expr) -> Expr:
    """log((1 + a)/(1 - a))/2 with the sign of x, a = |x|; for a < 0.5 a polynomial."""
    a = ops.abs(x)
    far = 0.5 * ops.log((1.0 + a) / (1.0 - a))
    far = ops.where(a < 1.0, far, ops.where(a == 1.0, math.inf, math.nan))
    return keep_tiny(ops.copysign(ops.where(a < 0.5, _odd(a, ATANH), far), x), x, TINY)
