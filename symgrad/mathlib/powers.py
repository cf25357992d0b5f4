"""Powers and roots: x**p with its logarithm in two floats, the cube root, the hypotenuse."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import has_sign, keep_nan, leading, polynomial, whole, within

LOG_SERIES: Final = (0.33333334, 0.20000006, 0.14283733, 0.11340781)
"""(atanh(s) - s)/s**3 in s**2, |s| <= 0.1011: atanh to 0.0018 * 2**-24 (tools/fit.py)."""

TWO_OVER_LN2: Final = (2.884765625, 2.0 / math.log(2.0) - 2.884765625)
"""2/ln 2: its 12 leading bits, and the rest."""
LOG2_3_HALVES: Final = (0.5849609375, math.log2(1.5) - 0.5849609375)
"""log2(3/2): bits down to 2**-12, and the rest."""


def _two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b rounded, and what the rounding lost; |a| >= |b| or a = 0 (Dekker 1971)."""
    total = ops.opaque(a + b)
    return total, b - (total - a)


def _split(a: Expr) -> tuple[Expr, Expr, Condition]:
    """k, m of a = 2**k m, m in [sqrt(3)/2, sqrt(3)), and whether m > sqrt(3/2); a > 0, finite."""
    subnormal = a < 2.0**-126
    bits = ops.float_bits(ops.where(subnormal, a * 2.0**24, a))
    m = ops.bits_float(ops.word_add(ops.word_and(bits, 0x7FFFFF), 0x3F800000))
    k = whole(ops.word_div(bits, 0x800000)) - ops.where(subnormal, 151.0, 127.0)
    above = m > math.sqrt(3.0)
    return ops.where(above, k + 1.0, k), ops.where(above, 0.5 * m, m), (m > 1.2247449) & ~above


def _log2(a: Expr) -> tuple[Expr, Expr]:
    """log2(a) as a sum of two floats, to 2**-30 of its value.

    With a = 2**k m and c = 3/2 or 1, whichever is nearer to m, log2(a) is
    k + log2(c) + 2/ln 2 atanh(s), s = (m - c)/(m + c); s is kept in two pieces.
    """
    k, m, halves = _split(a)
    c = ops.where(halves, 1.5, 1.0)
    f, g = m - c, m + c
    g_high = leading(g)
    g_low = m - ops.opaque(g_high - c)
    s = f / g
    high = leading(s)
    low = (ops.opaque(f - high * g_high) - high * g_low) / g
    square = s * s
    low = low + s * square * polynomial(square, LOG_SERIES)
    rest = high * TWO_OVER_LN2[1] + low * sum(TWO_OVER_LN2)
    fraction, lost = _two_sum(high * TWO_OVER_LN2[0], rest)
    total, rest = _two_sum(k + ops.where(halves, LOG2_3_HALVES[0], 0.0), fraction)
    return total, rest + (lost + ops.where(halves, LOG2_3_HALVES[1], 0.0))


def _magnitude(a: Expr, p: Expr) -> Expr:
    """a**p for a positive finite a."""
    p = within(p, 1e12)  # beyond, the power is 0, 1 or inf already
    high, low = _log2(a)
    cut, p_cut = leading(high), leading(p)
    low = (high - cut) + low
    exponent, rest = _two_sum(p_cut * cut, (p - p_cut) * cut + p * low)
    value = ops.exp2(within(exponent, 200.0))
    return value * (1.0 + ops.where(ops.abs(exponent) < 200.0, rest * math.log(2.0), 0.0))


def pow(x: Expr, p: Expr) -> Expr:
    """|x|**p as 2**(p log2|x|), the logarithm in two floats; negative for x < 0 and odd p."""
    a = ops.abs(x)
    rising = p > 0.0
    value = ops.where(a == 0.0, ops.where(rising, 0.0, math.inf), _magnitude(a, p))
    value = ops.where(ops.isinf(a), ops.where(rising, math.inf, 0.0), value)
    return of_any_sign(x, p, value)


def of_any_sign(x: Expr, p: Expr, value: Expr) -> Expr:
    """x**p, of |x|**p: negative for x < 0 and odd p, NaN where p is no integer, and 1 for p = 0."""
    half = 0.5 * p
    integer = ops.floor(p) == p
    odd = integer & (ops.floor(half) != half)
    value = ops.where(odd & has_sign(x), -value, value)
    outside = (x < 0.0) & ops.isfinite(x) & ~integer
    value = keep_nan(ops.where(outside, math.nan, value), x, p)
    return ops.where((p == 0.0) | (x == 1.0), 1.0, value)


def cbrt(x: Expr) -> Expr:
    """Three Newton steps from a third of the exponent: y - (y - a/y**2)/3, which forms no y**3."""
    a = ops.abs(x)
    subnormal = a < 2.0**-126  # its bits are a * 2**149, also where devices flush it
    scaled = 2.0 * whole(ops.word_and(ops.float_bits(x), 0x7FFFFFFF))
    a = ops.where(subnormal, scaled, a)
    y = ops.bits_float(ops.word_add(ops.word_div(ops.float_bits(a), 3), 0x2A514067))
    for _ in range(3):
        y = y - (y - a / (y * y)) * (1.0 / 3.0)
    y = ops.where(subnormal, y * 2.0**-50, y)
    return ops.where((a == 0.0) | ~ops.isfinite(x), x, ops.copysign(y, x))


def hypot(a: Expr, b: Expr) -> Expr:
    """sqrt(a**2 + b**2), both scaled by the same 2**k so that no square leaves the range."""
    u, v = ops.abs(a), ops.abs(b)
    m = ops.where(u > v, u, v)
    large, small = m > 2.0**60, m < 2.0**-50
    scale = ops.where(large, 2.0**-70, ops.where(small, 2.0**100, 1.0))
    back = ops.where(large, 2.0**70, ops.where(small, 2.0**-100, 1.0))
    u, v = u * scale, v * scale
    value = keep_nan(ops.sqrt(u * u + v * v) * back, a, b)
    return ops.where(ops.isinf(a) | ops.isinf(b), math.inf, value)
