"""Sine, cosine and tangent: reduced by pi/2 in four pieces, then two polynomials.

Beyond 2**24 the argument is multiplied by 2/pi instead, of which only the digits that matter are
used (Payne and Hanek 1983).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.limits import keep_tiny
from symgrad.mathlib.double.pair import Pair, choose, divide, fast_sum, scaled

NEAR: Final = 2.0**24
"""The largest |x| that pi/2 in four pieces reduces."""

SIN: Final = coefficients("""
    -0.1666666666666663 0.008333333333322118 -0.00019841269829588257 2.755731362079401e-06
    -2.5050747657471304e-08 1.5896223633976683e-10
""")
"""(sin(x) - x)/x**3 in x**2, |x| <= pi/4: sin to 0.10 * 2**-53 of itself (tools/fit.py)."""

COS: Final = coefficients("""
    0.041666666666666595 -0.0013888888888873047 2.480158728884524e-05 -2.755731417743195e-07
    2.0875700590364313e-09 -1.1358523619516285e-11
""")
"""(cos(x) - 1 + x**2/2)/x**4 in x**2, |x| <= pi/4: cos to 0.01 * 2**-53."""

HALF_PI: Final = coefficients("""
    1.570796325802803 9.920935739593517e-10 5.721188722588272e-18 3.5215598651832e-27
""")
"""pi/2: bits down to 2**-28, 2**-57 and 2**-86, and the rest, which ends at 2**-140."""
TWO_OVER_PI: Final = 0.6366197723675814

BASE_BITS: Final = 24.0
BASE: Final = 2.0**BASE_BITS
DIGITS: Final = (
    0, 0, 0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163,
    0xABDEBB, 0xC561B7, 0x246E3A, 0x424DD2, 0xE00649, 0x2EEA09, 0xD1921C, 0xFE1DEB, 0x1CB129,
    0xA73EE8, 0x8235F5, 0x2EBB44, 0x84E99C, 0x7026B4, 0x5F7E41, 0x3991D6, 0x398353, 0x39F49C,
    0x845F8B, 0xBDF928, 0x3B1FF8, 0x97FFDE, 0x05980F, 0xEF2F11, 0x8B5A0A, 0x6D1F6D, 0x367ECF,
    0x27CB09, 0xB74F46, 0x3F669E, 0x5FEA2D, 0x7527BA, 0xC7EBE5, 0xF17B3D, 0x0739F7, 0x8A5292,
    0xEA6BFB, 0x5FB11F, 0x8D5D08, 0x560330, 0x46FC7B, 0x6BABF0,
)  # fmt: skip
"""2/pi in digits of 24 bits, after two that are 0."""
DIGITS_USED: Final = 10
"""What is left out of a product is below 2**-140, while no quarter turn is nearer than 2**-61."""
HALF_PI_PAIR: Final = (1.5707963109016418, 1.5893254773528196e-08)
"""pi/2: its 26 leading bits, and the rest."""


def reduce(x: Expr) -> tuple[Expr, Pair]:
    """n, r of x = n pi/2 + r, |r| <= pi/4, n whole, for |x| <= 2**24.

    n has 24 bits, the first three pieces of pi/2 have 29: products are exact, and so are the
    differences, or their error is kept. The absolute error is below 2**-115, while no such x but 0
    comes nearer than 2**-60 to a multiple of pi/2 (Cody & Waite 1980).
    """
    n = ops.round(x * TWO_OVER_PI)
    first = x - n * HALF_PI[0]
    second, lost = fast_sum(first, n * -HALF_PI[1])
    third, more = fast_sum(second, n * -HALF_PI[2])
    return n, (third, (lost + more) - n * HALF_PI[3])


def sine_rest(r: Pair, z: Expr) -> Expr:
    """sin(r) less the high part of r; z is its square."""
    return r[0] * z * polynomial(z, SIN) + r[1] * (1.0 - 0.5 * z)


def cosine(r: Pair, z: Expr) -> Pair:
    """cos(r), the high part of r squared being z: 1 - z/2 rounded, and the rest."""
    half = 0.5 * z
    high = 1.0 - half
    return high, ((1.0 - high) - half) + ((z * z) * polynomial(z, COS) - r[0] * r[1])


def far_reduce(x: Expr) -> tuple[Expr, Pair]:
    """n modulo 4 and r of x = n pi/2 + r, |r| <= pi/4, n whole, for 2**24 < |x| < inf.

    With |x| = m 2**k, m of 53 bits, the digits of 2/pi that m multiplies to multiples of 4 are left
    out. Digits of the product are whole numbers below 2**24, and only those to the left of the
    point, and the next ones, are added without an error.
    """
    a = ops.abs(x)
    k = ops.exponent(a) - 52.0
    skipped = ops.floor((k - 2.0) * (1.0 / BASE_BITS))
    factor = _digits_of_product(ops.significand(a), _digits_from(skipped + 2.0))
    unit = ops.power_of_two(k - BASE_BITS * (skipped + 1.0) + 2.0 * BASE_BITS)
    parts = [d * (unit * BASE**-n) for n, d in enumerate(factor)]
    total = functools.reduce(operator.add, [t - 4.0 * ops.floor(0.25 * t) for t in parts[:4]])
    n = ops.floor(total + 0.5)
    high, low = fast_sum(total - n, parts[4])
    high, low = fast_sum(high, low + parts[5])
    high, low = fast_sum(high, low + functools.reduce(operator.add, parts[:5:-1]))
    r = scaled((high, low), HALF_PI_PAIR)
    negative = x < 0.0
    return ops.where(negative, -n, n), choose(negative, (-r[0], -r[1]), r)


def _digits_from(start: Expr) -> list[Any]:
    """`DIGITS_USED` of the `DIGITS`, from number ``start`` on."""
    digits: list[Any] = list(DIGITS)
    for step in (32, 16, 8, 4, 2, 1):
        later = start >= step
        pairs = zip_longest(digits[: step - 1 + DIGITS_USED], digits[step:])
        digits = [a if b is None else ops.where(later, b, a) for a, b in pairs if a is not None]
        start = ops.where(later, start - step, start)
    return digits


def _digits_of_product(m: Expr, digits: Sequence[Any]) -> list[Expr]:
    """Digits of 2**52 m times a fraction, 1 <= m < 2: the first has all that is above them."""
    scaled_up = m * 16.0
    first = ops.floor(scaled_up)
    scaled_up = (scaled_up - first) * BASE
    second = ops.floor(scaled_up)
    third = (scaled_up - second) * BASE
    columns = zip(digits, [0.0, *digits], [0.0, 0.0, *digits], strict=False)
    sums = [first * a + (second * b + third * c) for a, b, c in columns]
    for n in range(len(sums) - 1, 0, -1):
        carry = ops.floor(sums[n] * (1.0 / BASE))
        sums[n], sums[n - 1] = sums[n] - carry * BASE, sums[n - 1] + carry
    return sums


def _quarter(n: Expr) -> tuple[Expr, Condition]:
    """n modulo 4, and whether it is odd."""
    q = n - 4.0 * ops.floor(0.25 * n)
    return q, (q == 1.0) | (q == 3.0)


def _sine(n: Expr, r: Pair) -> Expr:
    """The sine or cosine of r, its sign that of the quarter."""
    z = r[0] * r[0]
    high, low = cosine(r, z)
    q, odd = _quarter(n)
    value = ops.where(odd, high + low, r[0] + sine_rest(r, z))
    return ops.where(q > 1.5, -value, value)


def _cosine(n: Expr, r: Pair) -> Expr:
    """The cosine or sine of r, its sign that of the quarter."""
    z = r[0] * r[0]
    high, low = cosine(r, z)
    q, odd = _quarter(n)
    value = ops.where(odd, r[0] + sine_rest(r, z), high + low)
    return ops.where((q > 0.5) & (q < 2.5), -value, value)


def _tangent(n: Expr, r: Pair) -> Expr:
    """sin(r)/cos(r) or -cos(r)/sin(r), both in two pieces."""
    z = r[0] * r[0]
    half = ops.upper(r[0])
    lost = (half * half - z) + (r[0] - half) * (r[0] + half)  # what the rounding of z lost
    s = fast_sum(r[0], sine_rest(r, z))
    high, low = cosine(r, z)
    c = fast_sum(high, low - 0.5 * lost)
    _, odd = _quarter(n)
    up = tuple(ops.where(odd, -a, b) for a, b in zip(c, s, strict=True))
    down = tuple(ops.where(odd, b, a) for a, b in zip(c, s, strict=True))
    high, low = divide((up[0], up[1]), (down[0], down[1]))
    return high + low


def _is_far(x: Expr) -> Condition:
    return ops.abs(x) > NEAR


def sin(x: Expr) -> Expr:
    """The sine or cosine of r = x - n pi/2, its sign that of the quarter."""
    return ops.where(_is_far(x), ops.far_sin(x), keep_tiny(_sine(*reduce(x)), x, 2.0**-27))


def cos(x: Expr) -> Expr:
    """The cosine or sine of r = x - n pi/2, its sign that of the quarter."""
    return ops.where(_is_far(x), ops.far_cos(x), _cosine(*reduce(x)))


def tan(x: Expr) -> Expr:
    """The tangent of r = x - n pi/2, or the negative of its reciprocal."""
    return ops.where(_is_far(x), ops.far_tan(x), keep_tiny(_tangent(*reduce(x)), x, 2.0**-27))


def far_sin(x: Expr) -> Expr:
    """The sine of |x| > 2**24; NaN of infinities."""
    return ops.where(ops.isfinite(x), _sine(*far_reduce(x)), math.nan)


def far_cos(x: Expr) -> Expr:
    """The cosine of |x| > 2**24; NaN of infinities."""
    return ops.where(ops.isfinite(x), _cosine(*far_reduce(x)), math.nan)


def far_tan(x: Expr) -> Expr:
    """The tangent of |x| > 2**24; NaN of infinities."""
    return ops.where(ops.isfinite(x), _tangent(*far_reduce(x)), math.nan)
