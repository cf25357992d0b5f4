"""Powers and roots: x**p with its logarithm in two pieces, the cube root, the hypotenuse."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.exponential import exp2_parts
from symgrad.mathlib.double.limits import within
from symgrad.mathlib.double.logarithm import split
from symgrad.mathlib.double.pair import Pair, divide, fast_sum, root, square
from symgrad.mathlib.powers import of_any_sign

LOG2: Final = coefficients("""
    0.5999999999999946 0.4285714285785242 0.33333332982741753 0.2727281223303301 0.2306608608836521
    0.20697157363656918
""")
"""(3 atanh(s)/s - 3 - s**2)/s**4 in s**2, |s| <= 0.1011: atanh to 1e-5 * 2**-53 (tools/fit.py)."""

INVERSE_CBRT: Final = coefficients("""
    1.6700003601281594 -1.1728603315072732 0.6954601448142301 -0.22122683738878654
    0.028589050174986516
""")
"""1/cbrt(m) on [1, 2], to 3.8e-5."""

FACTOR: Final = (0.9617966860532761, 7.872699542894897e-09)
"""2/(3 ln 2): its 26 leading bits, and the rest."""
LOG2_3_HALVES: Final = (0.5849624872207642, 1.350039202129749e-08)
"""log2(3/2): its 26 leading bits, and the rest."""
CBRT_2: Final = 2.0 ** (1.0 / 3.0)


def _log2(a: Expr) -> Pair:
    """log2(a) for a finite a > 0, its leading half and the rest, to 2**-65 of its value.

    With a = 2**k m, c = 3/2 or 1, whichever is nearer to m, and s = (m - c)/(m + c), it is
    k + log2(c) + 2/(3 ln 2) s (3 + s**2 + s**4 R(s**2)); what the sum of 3 and s**2 loses, and what
    s itself does, is kept (as fdlibm's e_pow.c, Sun 1993).
    """
    k, m = split(a, math.sqrt(3.0))
    halves = m > math.sqrt(1.5)
    c = ops.where(halves, 1.5, 1.0)
    high, low = divide((m - c, 0.0), fast_sum(c, m))
    s = high + low
    z = s * s
    rest = low * (high + s) + (z * z) * polynomial(z, LOG2)
    leading = high * high
    t = ops.upper(3.0 + (leading + rest))
    t_rest = rest - ((t - 3.0) - leading)
    major, minor = fast_sum(high * t, low * t + t_rest * s)
    cut = ops.upper(major)
    minor = FACTOR[1] * cut + (minor + (major - cut)) * sum(FACTOR)
    total, lost = fast_sum(k + ops.where(halves, LOG2_3_HALVES[0], 0.0), FACTOR[0] * cut)
    lost = lost + ops.where(halves, LOG2_3_HALVES[1], 0.0)
    high = ops.upper(total)
    return high, (total - high) + (lost + minor)


def _magnitude(a: Expr, p: Expr) -> Expr:
    """a**p for a positive finite a."""
    p = within(p, -(2.0**65), 2.0**65)  # beyond, the power is 0, 1 or inf already
    high, low = _log2(a)
    p_high = ops.upper(p)
    exponent, rest = fast_sum(p_high * high, (p - p_high) * high + p * low)
    inside = ops.abs(exponent) < 1100.0
    rest = ops.where(inside, rest, 0.0)
    k, (value, low) = exp2_parts(within(exponent, -1100.0, 1100.0), rest)
    return ops.scalb(value + low, k)


def pow(x: Expr, p: Expr) -> Expr:
    """|x|**p as 2**(p log2|x|), the logarithm in two pieces; negative for x < 0 and odd p."""
    a = ops.abs(x)
    usable = (a > 0.0) & (a < math.inf)
    value = _magnitude(ops.where(usable, a, 1.0), p)
    rising = (p > 0.0) ^ (a == 0.0)
    value = ops.where(usable, value, ops.where(rising, math.inf, 0.0))
    return of_any_sign(x, p, value)


def cbrt(x: Expr) -> Expr:
    """2**q m**(1/3), m in [1, 8): half its digits y by Newton steps, the rest from m - y**3.

    Newton's steps are r + r (1 - m r**3)/3 for r = 1/cbrt(m), without a division.
    """
    a = ops.abs(x)
    small = a < 2.0**-1022
    a = ops.where(small, a * 2.0**54, a)
    k, m = ops.exponent(a), ops.significand(a)
    q = ops.floor((k + 0.5) * (1.0 / 3.0))
    left = k - 3.0 * q
    start = ops.where(left == 1.0, 1.0 / CBRT_2, ops.where(left == 2.0, CBRT_2**-2, 1.0))
    r = polynomial(m, INVERSE_CBRT) * start
    m = m * ops.where(left == 1.0, 2.0, ops.where(left == 2.0, 4.0, 1.0))
    for _ in range(2):
        r = r + r * (1.0 - m * (r * r * r)) * (1.0 / 3.0)
    whole = m * (r * r)
    y = ops.upper(whole)
    square = y * y
    high = ops.upper(square)
    rest = (m - high * y) - (square - high) * y
    value = ops.scalb(y + rest / (3.0 * (y * whole)), ops.where(small, q - 18.0, q))
    return ops.where((x == 0.0) | ~ops.isfinite(x), x, ops.copysign(value, x))


def rsqrt(x: Expr) -> Expr:
    """1/sqrt(x), the quotient and the root each with what their rounding lost."""
    small = x < 2.0**-900
    z = ops.where(small, x * 2.0**600, x)
    s = ops.sqrt(z)
    inverse = ops.reciprocal(s)
    high, low = square(s)
    left = (z - high) - low
    q, rest = divide((1.0, 0.0), (s, 0.0))
    value = q + (rest - (0.5 * (left * inverse)) * (inverse * inverse))
    usable = (x > 0.0) & (x < math.inf)
    return ops.where(usable, value, inverse) * ops.where(small, 2.0**300, 1.0)


def hypot(a: Expr, b: Expr) -> Expr:
    """sqrt(a**2 + b**2), both scaled by the same 2**-k, the squares and their sum in two pieces."""
    u, v = ops.abs(a), ops.abs(b)
    larger, smaller = ops.where(u > v, u, v), ops.where(u > v, v, u)
    k = ops.exponent(larger)
    first, second = square(ops.scalb(larger, -k)), square(ops.scalb(smaller, -k))
    total, lost = fast_sum(first[0], second[0])
    value, rest = root(fast_sum(total, lost + (first[1] + second[1])))
    value = ops.scalb(value + rest, k)
    return ops.where(ops.isinf(a) | ops.isinf(b), math.inf, keep_nan(value, a, b))
