"""Hyperbolic functions and their inverses, from exponentials and logarithms in two pieces."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.exponential import EXPM1, exp_parts
from symgrad.mathlib.double.limits import keep_tiny
from symgrad.mathlib.double.logarithm import log_sum
from symgrad.mathlib.double.pair import Pair, divide, fast_sum, root, square, two_sum

SINH: Final = coefficients("""
    0.16666666666666669 0.008333333333333148 0.00019841269841431835 2.75573191570842e-06
    2.5052123134791765e-08 1.6057259912642143e-10 7.758744706811716e-13
""")
"""(sinh(x) - x)/x**3 in x**2, |x| <= 1: sinh to 0.09 * 2**-53 of itself (tools/fit.py)."""

TINY: Final = 2.0**-28
"""Below it x is the float64 nearest to each of these odd functions of x, or next to it."""
LARGE: Final = 2.0**28
"""From it on, sqrt(x**2 + 1) is |x| to half a ULP of the logarithm that follows."""


def _half_exp(a: Expr) -> Pair:
    """exp(a)/2 for a >= 0, which does not overflow before its true value does."""
    k, parts = exp_parts(ops.where(a > 712.0, 712.0, a))
    high, low = fast_sum(*parts)
    return ops.scalb(high, k - 1.0), ops.scalb(low, k - 1.0)


def sinh(x: Expr) -> Expr:
    """(exp(a) - exp(-a))/2 with the sign of x, a = |x|; for a < 1 a polynomial."""
    a = ops.abs(x)
    high, low = _half_exp(a)
    square = a * a
    near = a + a * square * polynomial(square, SINH)
    value = ops.where(a < 1.0, near, high + (low - 0.25 / high))
    return keep_tiny(ops.copysign(value, x), x, TINY)


def cosh(x: Expr) -> Expr:
    """(exp(a) + exp(-a))/2, a = |x|."""
    high, low = _half_exp(ops.abs(x))
    total, lost = fast_sum(high, 0.25 / high)
    return ops.where(total < math.inf, total + (lost + low), total)


def tanh(x: Expr) -> Expr:
    """(1 - e)/(1 + e) with the sign of x, e = exp(-2|x|), all in two pieces."""
    a = ops.abs(x)
    k, parts = exp_parts(-2.0 * ops.where(a > 22.0, 22.0, a), None, EXPM1)
    high, low = fast_sum(*parts)
    high, low = ops.scalb(high, k), ops.scalb(low, k)
    less, less_rest = fast_sum(1.0, -high)
    more, more_rest = fast_sum(1.0, high)
    t, rest = divide(fast_sum(less, less_rest - low), (more, more_rest + low))
    return keep_tiny(ops.copysign(t + rest, x), x, TINY)


def asinh(x: Expr) -> Expr:
    """log(1 + a + a**2/(1 + sqrt(1 + a**2))) with the sign of x, a = |x|."""
    a = ops.abs(x)
    large = a > LARGE
    b = ops.where(large, 1.0, a)
    high, low = square(b)
    total, lost = two_sum(1.0, high)
    r, rest = root(fast_sum(total, lost + low))
    below, lost = fast_sum(r, 1.0)
    q, q_rest = divide((high, low), (below, lost + rest))
    value, lost = fast_sum(b, q)
    value, lost = fast_sum(value, lost + q_rest)
    value = _log_or_double(a, large, value, lost)
    return keep_tiny(ops.copysign(value, x), x, TINY)


def _log_or_double(a: Expr, large: Expr, value: Expr, lost: Expr | float) -> Expr:
    """log(2 a) where a is large, else log(1 + value + lost)."""
    logarithm = log_sum(
        ops.where(large, a, value),
        ops.where(large, -1.0, lost),
        ops.where(large, 1.0, 0.0),
    )
    return ops.where(a < math.inf, logarithm, a)


def acosh(x: Expr) -> Expr:
    """log(1 + t + sqrt(t**2 + 2 t)), t = x - 1; NaN for x < 1."""
    large = x > LARGE
    t = ops.where(large, 1.0, x - 1.0)
    high, low = square(t)
    total, lost = two_sum(2.0 * t, high)
    r, rest = root(fast_sum(total, lost + low))
    value, lost = fast_sum(r, t)
    value = _log_or_double(x, large, value, lost + rest)
    return keep_nan(ops.where(x < 1.0, math.nan, ops.where(x == 1.0, 0.0, value)), x)


def atanh(x: Expr) -> Expr:
    """log(1 + 2a/(1 - a))/2 with the sign of x, a = |x|."""
    a = ops.abs(x)
    b = ops.where(a < 1.0, a, 0.0)
    q, rest = divide((2.0 * b, 0.0), fast_sum(1.0, -b))
    value, lost = fast_sum(q, rest)
    value = 0.5 * log_sum(value, lost)
    value = ops.where(a < 1.0, value, ops.where(a == 1.0, math.inf, math.nan))
    return keep_tiny(ops.copysign(value, x), x, TINY)
