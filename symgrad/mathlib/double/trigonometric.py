"""Circular and hyperbolic functions, their inverses, and the slopes of points of the plane.

Sine, cosine and tangent are reduced by pi/2 in four pieces, then two polynomials. Beyond 2**24 the
argument is multiplied by 2/pi instead, of which only the digits that matter are used (Payne and
Hanek 1983).
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
from symgrad.mathlib.bits import coefficients, has_sign, keep_nan, polynomial
from symgrad.mathlib.double.exponential import EXPM1, exp_parts, log_sum
from symgrad.mathlib.double.logistic import divide_twice
from symgrad.mathlib.double.pair import (
    Pair,
    choose,
    divide,
    fast_sum,
    keep_tiny,
    root,
    scaled,
    square,
    times,
    two_sum,
)
from symgrad.mathlib.trigonometric import sine_ratio, sine_share

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
"""Digits in use: the rest of a product is below 2**-140, no quarter turn nearer than 2**-61."""
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


def cosine_of(r: Pair, z: Expr) -> Pair:
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
    high, low = cosine_of(r, z)
    q, odd = _quarter(n)
    value = ops.where(odd, high + low, r[0] + sine_rest(r, z))
    return ops.where(q > 1.5, -value, value)


def _cosine(n: Expr, r: Pair) -> Expr:
    """The cosine or sine of r, its sign that of the quarter."""
    z = r[0] * r[0]
    high, low = cosine_of(r, z)
    q, odd = _quarter(n)
    value = ops.where(odd, r[0] + sine_rest(r, z), high + low)
    return ops.where((q > 0.5) & (q < 2.5), -value, value)


def _tangent(n: Expr, r: Pair) -> Expr:
    """sin(r)/cos(r) or -cos(r)/sin(r), both in two pieces."""
    z = r[0] * r[0]
    half = ops.upper(r[0])
    lost = (half * half - z) + (r[0] - half) * (r[0] + half)  # what the rounding of z lost
    s = fast_sum(r[0], sine_rest(r, z))
    high, low = cosine_of(r, z)
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


# Inverse trigonometric functions, each a polynomial after one reduction of its argument.

ATAN: Final = coefficients("""
    -0.333333333333332 0.19999999999953216 -0.14285714280162587 0.11111110781917653
    -0.09090897717368841 0.07692059559888764 -0.0666309723476238 0.05847843781408682
    -0.050391159187133765 0.03806013977080866 -0.017902743745857916
""")
"""(atan(t) - t)/t**3 in t**2, |t| <= tan(pi/8): atan to 0.05 * 2**-53 of itself (tools/fit.py)."""

ASIN: Final = coefficients("""
    0.1666666666666541 0.0750000000033684 0.044642856828447375 0.030381959132661996
    0.02237175814355071 0.017359703483187647 0.013885247020226596 0.012169142435751469
    0.0065282472142118445 0.019527592616414395 -0.016223304708249793 0.031911689897975104
""")
"""(asin(t) - t)/t**3 in t**2, |t| <= 0.5: asin to 0.17 * 2**-53."""

QUARTER_PI: Final = (0.7853981633974483, 3.061616997868383e-17)
"""pi/4: its 50 leading bits, of which thrice is exact, and the rest."""
TINY: Final = 2.0**-28


def _from_eighth(eighths: Expr | float, sign: Expr | float, angle: Pair) -> Expr:
    """eighths * pi/4 + sign * angle."""
    high, low = fast_sum(eighths * QUARTER_PI[0], sign * angle[0])
    return high + (low + (sign * angle[1] + eighths * QUARTER_PI[1]))


def _octant(n: Expr, m: Expr) -> tuple[Expr, Pair]:
    """j and the angle t of atan(n/m) = j pi/4 + t, j = 0 or 1, for 0 <= n <= m, 1/m normal."""
    high = n > 0.4142135623730951 * m
    less, less_rest = fast_sum(m, -n)
    more, more_rest = fast_sum(m, n)
    above = (ops.where(high, -less, n), ops.where(high, -less_rest, 0.0))
    below = (ops.where(high, more, m), ops.where(high, more_rest, 0.0))
    t, rest = divide(above, below)
    small = ops.abs(above[0]) < 2.0**-60
    t, rest = ops.where(small, above[0] / m, t), ops.where(small, 0.0, rest)
    whole = t + rest
    z = whole * whole
    return ops.where(high, 1.0, 0.0), (t, rest + whole * z * polynomial(z, ATAN))


def atan(x: Expr) -> Expr:
    """The angle of 1/|x| or |x|, whichever is at most 1, with the sign of x."""
    a = ops.abs(x)
    a = ops.where(a > 2.0**60, 2.0**60, a)
    steep = a > 1.0
    j, angle = _octant(ops.where(steep, 1.0, a), ops.where(steep, a, 1.0))
    value = _from_eighth(ops.where(steep, 2.0 - j, j), ops.where(steep, -1.0, 1.0), angle)
    return keep_tiny(ops.copysign(value, x), x, TINY)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of (x, y): atan(smaller/larger), scaled by 2**-k, and then the quadrant."""
    a, b = ops.abs(y), ops.abs(x)
    steep = a > b
    larger, smaller = ops.where(steep, a, b), ops.where(steep, b, a)
    usable = (larger > 0.0) & (larger < math.inf)
    k = -ops.exponent(ops.where(usable, larger, 1.0))
    n = ops.scalb(ops.where(usable, smaller, 0.0), k)
    n = ops.where((a == b) & (a > 0.0), 1.0, n)
    m = ops.where(usable & (a != b), ops.scalb(larger, k), 1.0)
    j, angle = _octant(n, m)
    j, sign = ops.where(steep, 2.0 - j, j), ops.where(steep, -1.0, 1.0)
    behind = has_sign(x)
    j, sign = ops.where(behind, 4.0 - j, j), ops.where(behind, -sign, sign)
    return keep_nan(ops.copysign(_from_eighth(j, sign, angle), y), y, x)


def _reduced(x: Expr) -> tuple[Expr, Pair]:
    """a = |x|, and asin(a) if a <= 1/2, else twice the arc sine of sqrt((1 - a)/2)."""
    a = ops.abs(x)
    near = a <= 0.5
    z = ops.where(near, a * a, 0.5 - 0.5 * a)
    t = ops.where(near, a, ops.sqrt(z))
    high = ops.upper(t)
    lost = (z - high * high) / ops.where(z > 0.0, t + high, 1.0)
    rest = t * z * polynomial(z, ASIN)
    return a, (ops.where(near, a, 2.0 * high), ops.where(near, rest, 2.0 * (lost + rest)))


def asin(x: Expr) -> Expr:
    """A polynomial in x; where |x| = a > 1/2, pi/2 less twice the arc sine of sqrt((1 - a)/2)."""
    a, angle = _reduced(x)
    value = ops.where(a <= 0.5, angle[0] + angle[1], _from_eighth(2.0, -1.0, angle))
    return keep_tiny(ops.copysign(ops.where(a > 1.0, math.nan, value), x), x, TINY)


def acos(x: Expr) -> Expr:
    """pi/2 - asin(x) for |x| <= 1/2, else 2 asin(sqrt((1 - |x|)/2)), from pi if x < 0."""
    a, angle = _reduced(x)
    near, left = a <= 0.5, x < 0.0
    eighths = ops.where(near, 2.0, ops.where(left, 4.0, 0.0))
    sign = ops.where(near ^ left, -1.0, 1.0)
    return keep_nan(ops.where(a > 1.0, math.nan, _from_eighth(eighths, sign, angle)), x)


# Hyperbolic functions and their inverses, from exponentials and logarithms in two pieces.

SINH: Final = coefficients("""
    0.16666666666666669 0.008333333333333148 0.00019841269841431835 2.75573191570842e-06
    2.5052123134791765e-08 1.6057259912642143e-10 7.758744706811716e-13
""")
"""(sinh(x) - x)/x**3 in x**2, |x| <= 1: sinh to 0.09 * 2**-53 of itself (tools/fit.py)."""

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


# The slopes of distances and angles in the plane, from a sum of squares in two pieces.

Parts = tuple[Expr, Expr, Expr, Pair]
"""k, a and b divided by 2**k, and the sum of their squares."""


def _scaled(a: Expr, b: Expr) -> Parts:
    """The parts of (a, b), the larger in ±[1, 2); at (0, 0) and at infinity of 0 and 0 over 1."""
    u, v = ops.abs(a), ops.abs(b)
    larger, smaller = ops.where(u > v, u, v), ops.where(u > v, v, u)
    usable = (larger > 0.0) & (larger < math.inf)
    k = ops.exponent(larger)

    def shifted(x: Expr, otherwise: float = 0.0) -> Expr:
        return ops.where(usable, ops.scalb(x, -k), otherwise)

    first, second = square(shifted(larger, 1.0)), square(shifted(smaller))
    total, lost = fast_sum(first[0], second[0])
    return k, shifted(a), shifted(b), fast_sum(total, lost + (first[1] + second[1]))


def real_reciprocal(a: Expr, b: Expr) -> Expr:
    """a/(a**2 + b**2), both scaled by the same 2**-k."""
    k, u, _, total = _scaled(a, b)
    high, low = divide((u, 0.0), total)
    return keep_nan(ops.copysign(ops.scalb(high + low, -k), a), a, b)


def real_reciprocal_square(a: Expr, b: Expr) -> Expr:
    """(a - b)(a + b)/(a**2 + b**2)**2, in the same way."""
    k, u, v, total = _scaled(a, b)
    high, low = divide_twice(times(two_sum(u, -v), two_sum(u, v)), total)
    return keep_nan(ops.scalb(ops.scalb(high + low, -k), -k), a, b)


def direction(a: Expr, b: Expr) -> Expr:
    """a/sqrt(a**2 + b**2), in the same way."""
    _, u, _, total = _scaled(a, b)
    high, low = divide((u, 0.0), fast_sum(*root(total)))
    value = ops.where(ops.isinf(a), 1.0, high + low)
    return keep_nan(ops.copysign(value, a), a, b)


# The cardinal sine, and the parts of its derivative.

SINC: Final = coefficients("""
    -1.6449340668482264 0.8117424252833536 -0.19075182412208258 0.026147847817611463
    -0.002346081034804873 0.00014842878710920906 -6.975840390038353e-06 2.530088109597039e-07
    -7.092122628843302e-09
""")
"""(sinc(x) - 1)/x**2 in x**2, |x| <= 1/2: sinc to 0.* 2**-53 of its value (tools/fit.py)."""

SINC_RATIO: Final = coefficients("""
    0.3333333333333333 -0.3289868133696453 0.11596320361190766 -0.021194647124675916
    0.0023770770743307547 -0.00018046777194601226 9.895252807392737e-06 -4.1034530960532235e-07
    1.3321777094668386e-08 -3.4729406596665315e-10 7.0544216074313986e-12
""")
"""(sinc(x) - cos(pi x))/(pi x)**2 in x**2, |x| <= 3/4."""


def half_turn(x: Expr) -> tuple[Expr, Expr, Expr]:
    """sin(pi x) and cos(pi x) but for their sign, and that: 1 or -1."""
    k = ops.round(x)
    half = 0.5 * k
    r = math.pi * (x - k)
    return ops.sin(r), ops.cos(r), ops.where(ops.floor(half) == half, 1.0, -1.0)


def sinc(x: Expr) -> Expr:
    """sin(pi x)/(pi x), 0 where x is whole."""
    sine, _, sign = half_turn(x)
    return sine_share(x, sign * sine, SINC, ops.div)


def sinc_ratio(x: Expr) -> Expr:
    """(sinc(x) - cos(pi x))/(pi x)**2; for |x| < 3/4 a polynomial."""
    sine, cosine, sign = half_turn(x)
    return sine_ratio(x, sign * sine, sign * cosine, SINC_RATIO)
