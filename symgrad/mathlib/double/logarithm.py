"""Logarithms: that of the exponent, and a series in s = f/(2 + f) for the significand 1 + f."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.exponential import LN2
from symgrad.mathlib.double.limits import keep_tiny
from symgrad.mathlib.double.pair import Pair, fast_sum, two_sum

LOG: Final = coefficients("""
    0.6666666666666734 0.39999999999415 0.2857142874237358 0.22222198569258667 0.1818356478204233
    0.15314033020924456 0.1479617915421776
""")
"""(2 atanh(s) - 2 s)/s**3 in s**2, |s| <= 0.1716: log to 0.02 * 2**-53 of itself (tools/fit.py)."""

PER_LN2: Final = (1.4426950216293335, 1.9259629911266175e-08)
"""1/ln 2: its 26 leading bits, and the rest."""
PER_LN10: Final = (0.4342944771051407, 4.798111141615973e-09)
"""1/ln 10: its 26 leading bits, and the rest."""
LOG10_2: Final = (0.30102999566395283, 2.8363394551044964e-14)
"""log10(2): its 42 leading bits, and the rest."""


def split(x: Expr, top: float = math.sqrt(2.0)) -> tuple[Expr, Expr]:
    """k, m of x = 2**k m, m in (top/2, top], for a finite x > 0."""
    small = x < 2.0**-1022
    scaled = ops.where(small, x * 2.0**54, x)
    m = ops.significand(scaled)
    above = m > top
    k = ops.exponent(scaled) + ops.where(above, 1.0, 0.0)
    return ops.where(small, k - 54.0, k), ops.where(above, 0.5 * m, m)


def series(f: Expr) -> tuple[Expr, Expr]:
    """h, t of log(1 + f) = f - (h - t), h = f**2/2 (the form of fdlibm's e_log.c, Sun 1993)."""
    s = f / (2.0 + f)
    z = s * s
    h = 0.5 * (f * f)
    return h, s * (h + z * polynomial(z, LOG))


def at_ends(value: Expr, x: Expr) -> Expr:
    """A logarithm's value, but -inf of 0, inf of inf, NaN of NaN and of negative numbers."""
    outside = ops.where(x == 0.0, -math.inf, ops.where(x < 0.0, math.nan, x))
    return ops.where((x > 0.0) & (x < math.inf), value, outside)


def log(x: Expr) -> Expr:
    """k ln 2 plus the series of f, x = 2**k (1 + f); the sum of k ln 2 and f is exact."""
    k, m = split(x)
    f = m - 1.0
    h, t = series(f)
    high, low = fast_sum(k * LN2[0], f)
    return at_ends(high + (low - (h - (t + k * LN2[1]))), x)


def log_sum(a: Expr, low: Expr | float, twice: Expr | float = 0.0) -> Expr:
    """log(1 + a + low) + twice ln 2, for a > -1, low at most 2**-53 of a or of 1 + a."""
    high, rest = log_sum_parts(a, low, twice)
    return high + rest


def log_sum_parts(a: Expr, low: Expr | float, twice: Expr | float = 0.0) -> Pair:
    """The `log_sum` as a pair, which is not rounded."""
    u, lost = two_sum(1.0, a)
    k, m = split(u)
    near = k == 0.0
    f = ops.where(near, a, m - 1.0)
    rest = ops.where(near, low, ops.scalb(lost + low, -k)) / ops.where(near, u, m)
    h, t = series(f)
    k = k + twice
    high, lost = fast_sum(k * LN2[0], f)
    return high, lost - (h - (t + (k * LN2[1] + rest)))


def log1p(x: Expr) -> Expr:
    """log(1 + x), what the sum 1 + x loses being added to first order."""
    value = log_sum(x, 0.0)
    outside = ops.where(x == -1.0, -math.inf, ops.where(x < -1.0, math.nan, x))
    value = ops.where((x > -1.0) & (x < math.inf), value, outside)
    return keep_tiny(value, x, 2.0**-54)


def _halves(f: Expr) -> tuple[Expr, Expr]:
    """log(1 + f): its leading half, and the rest."""
    h, t = series(f)
    high = ops.upper(f - h)
    return high, ((f - high) - h) + t


def log2(x: Expr) -> Expr:
    """k + log(1 + f)/ln 2, the product of the leading halves exact (FreeBSD's e_log2.c)."""
    k, m = split(x)
    a, b = _halves(m - 1.0)
    high, low = fast_sum(k, a * PER_LN2[0])
    return at_ends(high + (low + ((a + b) * PER_LN2[1] + b * PER_LN2[0])), x)


def log10(x: Expr) -> Expr:
    """As `log2`, with the logarithm of 2 to base 10 in two pieces."""
    k, m = split(x)
    a, b = _halves(m - 1.0)
    high, low = fast_sum(k * LOG10_2[0], a * PER_LN10[0])
    rest = k * LOG10_2[1] + ((a + b) * PER_LN10[1] + b * PER_LN10[0])
    return at_ends(high + (low + rest), x)
