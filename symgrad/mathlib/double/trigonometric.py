"""Sine, cosine and tangent: reduced by pi/2 in four pieces, then two polynomials."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.limits import keep_tiny
from symgrad.mathlib.double.pair import Pair, divide, fast_sum

TRIG_BOUND: Final = 2.0**24
"""The largest |x| for which `sin`, `cos` and `tan` are right."""

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


def _quarter(n: Expr) -> tuple[Expr, Condition]:
    """n modulo 4, and whether it is odd."""
    q = n - 4.0 * ops.floor(0.25 * n)
    return q, (q == 1.0) | (q == 3.0)


def sin(x: Expr) -> Expr:
    """The sine or cosine of r = x - n pi/2, its sign that of the quarter; |x| <= 2**24."""
    n, r = reduce(x)
    z = r[0] * r[0]
    high, low = cosine(r, z)
    q, odd = _quarter(n)
    value = ops.where(odd, high + low, r[0] + sine_rest(r, z))
    return keep_tiny(ops.where(q > 1.5, -value, value), x, 2.0**-27)


def cos(x: Expr) -> Expr:
    """The cosine or sine of r = x - n pi/2, its sign that of the quarter; |x| <= 2**24."""
    n, r = reduce(x)
    z = r[0] * r[0]
    high, low = cosine(r, z)
    q, odd = _quarter(n)
    value = ops.where(odd, r[0] + sine_rest(r, z), high + low)
    return ops.where((q > 0.5) & (q < 2.5), -value, value)


def tan(x: Expr) -> Expr:
    """sin(r)/cos(r) or -cos(r)/sin(r), both in two pieces; |x| <= 2**24."""
    n, r = reduce(x)
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
    return keep_tiny(high + low, x, 2.0**-27)
