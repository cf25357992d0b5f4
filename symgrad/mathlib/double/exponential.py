"""Exponentials, logarithms, powers and roots, from polynomials with leading terms in two pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import coefficients, keep_nan, polynomial
from symgrad.mathlib.double.pair import (
    Pair,
    divide,
    fast_sum,
    keep_tiny,
    root,
    square,
    two_sum,
    within,
)
from symgrad.mathlib.exponential import of_any_sign

EXP: Final = coefficients("""
    0.5000000000000011 0.16666666666666413 0.04166666666652974 0.008333333333494286
    0.001388888894374431 0.00019841269507070113 2.4801492975479535e-05 2.755758579355825e-06
    2.763029434289545e-07 2.5000298539325195e-08
""")
"""(exp(r) - 1 - r)/r**2, |r| <= 0.3467: exp to 0.10 * 2**-53 of its value (tools/fit.py)."""

EXPM1: Final = coefficients("""
    0.5 0.16666666666666677 0.041666666666666505 0.008333333333321665 0.0013888888888962852
    0.00019841269886041515 2.4801587171657736e-05 2.755724429043053e-06 2.755740332087936e-07
    2.5109010500122315e-08 2.0875145739121365e-09
""")
"""The coefficients of the same function, by which expm1 is right to 0.02 * 2**-53 of its value."""

EXP2: Final = coefficients("""
    0.24022650695910122 0.05550410866482074 0.00961812910759696 0.0013333558146685226
    0.0001540353045408794 1.5252733547708842e-05 1.3215436601146852e-06 1.01781843207828e-07
    7.0735803719616804e-09 4.4363513626273165e-10
""")
"""(2**r - 1 - r ln 2)/r**2, |r| <= 1/2: exp2 to 0.04 * 2**-53."""

LN2: Final = (0.6931471805598903, 5.497923018708371e-14)
"""ln 2: its 42 leading bits, whose product with a whole number below 2**11 is exact; the rest."""
LN2_SHORT: Final = (0.6931471675634384, 1.2996506893889889e-08)
"""ln 2: its 26 leading bits, and the rest."""
INVERSE_LN2: Final = 1.0 / math.log(2.0)


def _reduced(x: Expr, low: Expr | float | None = None) -> tuple[Expr, Expr, Expr]:
    """k, h, rest of x + low = k ln 2 + (h - rest), k whole, h exact, |x| < 1400 (Cody & Waite)."""
    k = ops.round(x * INVERSE_LN2)
    h = x - k * LN2[0]
    rest = k * LN2[1] if low is None else k * LN2[1] - low
    return k, h, rest


def exp_parts(
    x: Expr, low: Expr | float | None = None, coefficients: Sequence[float] = EXP
) -> tuple[Expr, Pair]:
    """k and a pair p of exp(x + low) = 2**k p, |x| < 1400, low at most 2**-15; p is not rounded."""
    k, h, rest = _reduced(x, low)
    r = h - rest
    return k, _one_plus(h, (r * r) * polynomial(r, coefficients) - rest)


def _one_plus(h: Expr, w: Expr) -> Pair:
    """1 + h + w, |h| < 1, its high part 1 + h rounded."""
    high = 1.0 + h
    return high, (h - (high - 1.0)) + w


def exp2_parts(x: Expr, low: Expr | None = None) -> tuple[Expr, Pair]:
    """k and a pair p of 2**(x + low) = 2**k p, |x| < 2000, low at most 2**-30; p is not rounded."""
    k = ops.round(x)
    fraction = x - k
    high = ops.upper(fraction)
    h = high * LN2_SHORT[0]
    rest = fraction - high if low is None else (fraction - high) + low
    r = fraction if low is None else fraction + low
    w = (rest * math.log(2.0) + high * LN2_SHORT[1]) + (r * r) * polynomial(r, EXP2)
    return k, _one_plus(h, w)


def exp(x: Expr) -> Expr:
    """e**x = 2**k e**r, r = x - k ln 2, |r| <= ln(2)/2."""
    k, (high, low) = exp_parts(within(x, -746.0, 710.0))
    return ops.scalb(high + low, k)


def exp2(x: Expr) -> Expr:
    """2**k 2**r, k the whole number nearest to x and r = x - k."""
    k, (high, low) = exp2_parts(within(x, -1076.0, 1025.0))
    return ops.scalb(high + low, k)


def expm1(x: Expr) -> Expr:
    """2**k exp(r) - 1, at half its size so that 2**k does not overflow early."""
    k, h, rest = _reduced(within(x, -40.0, 710.0))
    r = h - rest
    high, low = square(r)
    cube = r * (high + low)
    total, lost = fast_sum(1.0, h)
    total, more = fast_sum(total, EXPM1[0] * high)
    low = (lost + more) + ((EXPM1[0] * low - rest) + cube * polynomial(r, EXPM1[1:]))
    high, lost = two_sum(ops.scalb(total, k - 1.0), -0.5)
    return keep_tiny(2.0 * (high + (lost + ops.scalb(low, k - 1.0))), x, 2.0**-54)


def neg_square_parts(x: Expr) -> tuple[Expr, Pair]:
    """k and a pair p of exp(-x**2) = 2**k p, |x| <= 28: the square of x's leading half is exact."""
    high = ops.upper(x)
    return exp_parts(-(high * high), (high - x) * (x + high))


def half_square_parts(x: Expr) -> tuple[Expr, Pair]:
    """k and a pair p of exp(-x**2/2) = 2**k p, |x| <= 39: as `neg_square_parts`."""
    high = ops.upper(x)
    return exp_parts(-0.5 * (high * high), (0.5 * (high - x)) * (x + high), EXPM1)


def exp_neg_square(x: Expr) -> Expr:
    """exp(-x**2), the square in two pieces."""
    k, (high, low) = neg_square_parts(within(x, -28.0, 28.0))
    return ops.scalb(high + low, k)


def exp_square(x: Expr) -> Expr:
    """exp(x**2), the square in two pieces."""
    x = within(x, -28.0, 28.0)
    high = ops.upper(x)
    k, (value, low) = exp_parts(within(high * high, 0.0, 720.0), (x - high) * (x + high))
    return ops.scalb(value + low, k)


# Logarithms: that of the exponent, and a series in s = f/(2 + f) for the significand 1 + f.

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


# Powers and roots: x**p with its logarithm in two pieces, the cube root, the hypotenuse.

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
