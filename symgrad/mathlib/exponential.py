"""Exponentials and logarithms near the places where the device's own lose all their digits."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import keep_nan, keep_tiny, leading, polynomial

EXPM1: Final = (
    0.5, 0.16666667, 0.04166666, 0.008333142, 0.0013889305, 0.00019973583, 2.4790832e-05,
)  # fmt: skip
"""(exp(x) - 1 - x)/x**2 on [-0.5, 0.5]: expm1 to 0.02 * 2**-24 of its value (tools/fit.py)."""

LOG1P: Final = (
    0.33333313, -0.2500001, 0.2000212, -0.16667986, 0.14219521, -0.12405753, 0.11888588,
    -0.116748184, 0.06744588,
)  # fmt: skip
"""(log(1 + x) - x + x**2/2)/x**3 on [sqrt(1/2) - 1, sqrt(2) - 1]: log1p to 0.07 * 2**-24."""

EXP_SMALL: Final = (0.99999976, 0.5000002, 0.16676992, 0.041655358)
"""(exp(x) - 1)/x on [-0.1, 0.1]: exp to 0.12 * 2**-24."""


def expm1(x: Expr) -> Expr:
    """exp(x) - 1; below 1/2 in absolute value a polynomial, so that no digit cancels."""
    near = x + (x * x) * polynomial(x, EXPM1)
    return keep_tiny(ops.where(ops.abs(x) < 0.5, near, ops.exp(x) - 1.0), x, 2.0**-27)


def _log_near_one(f: Expr) -> Expr:
    """log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2)."""
    square = f * f
    return f + (f * square * polynomial(f, LOG1P) - 0.5 * square)


def log1p(x: Expr) -> Expr:
    """log(1 + x); a polynomial where 1 + x lies between sqrt(1/2) and sqrt(2)."""
    far = ops.where(x > -1.0, ops.log(1.0 + x), ops.where(x == -1.0, -math.inf, math.nan))
    near = (x > -0.2929) & (x < 0.4142)
    return keep_tiny(ops.where(near, _log_near_one(x), far), x, 2.0**-27)


def log10(x: Expr) -> Expr:
    """log(x)/log(10), the logarithm a polynomial in x - 1 near 1."""
    near = (x > 0.7072) & (x < 1.4142)
    value = ops.where(near, _log_near_one(x - 1.0), ops.log(x)) * (1.0 / math.log(10.0))
    outside = ops.where(x == 0.0, -math.inf, math.nan)
    return keep_nan(ops.where(x > 0.0, value, outside), x)


def split_square(x: Expr) -> tuple[Expr, Expr]:
    """The pair (e, d) with exp(-x**2) = e (1 + d), for |x| < 12.

    e = exp(-h**2) and 1 + d = exp(-(x - h)(x + h)), h the 12 leading bits of x: h**2 is exact.
    """
    h = leading(x)
    rest = (h - x) * (x + h)
    return ops.exp(-(h * h)), rest * polynomial(rest, EXP_SMALL)


def exp_neg_square(x: Expr) -> Expr:
    """exp(-x**2) = exp(-h**2) exp(-(x - h)(x + h)), h the 12 leading bits of x: h**2 is exact."""
    e, d = split_square(x)
    return keep_nan(ops.where(ops.abs(x) < 12.0, e * (1.0 + d), 0.0), x)
