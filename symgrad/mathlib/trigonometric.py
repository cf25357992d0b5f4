"""Inverse trigonometric functions, hyperbolic ones, the cardinal sine, slopes in the plane.

Inverse trigonometric functions are a polynomial each, after one reduction of the argument; of
hyperbolic ones odd polynomials near 0, and exponentials away from it. The slopes of distances and
angles in the plane are made of parts that they share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import (
    Coefficients,
    coefficients,
    has_sign,
    keep_nan,
    keep_tiny,
    polynomial,
    quotient,
)

ATAN: Final = (-0.3333295, 0.199777, -0.13877568, 0.08053337)
"""(atan(t) - t)/t**3 in t**2, |t| <= tan(pi/8): atan to 0.37 * 2**-24 of itself (tools/fit.py)."""

ASIN: Final = (0.16666752, 0.074952975, 0.045470376, 0.02417951, 0.042166315)
"""(asin(t) - t)/t**3 in t**2, |t| <= 0.5: asin to 0.10 * 2**-24."""

PI: Final = 3.1415927
"""The float32 nearest to pi, too large by ``-PI_REST``."""
PI_REST: Final = -8.742278e-08
TINY: Final = 1e-4


def _octant(n: Expr, m: Expr) -> Expr:
    """atan(n/m) for 0 <= n <= m, m > 0: reduced by pi/4 where n/m > tan(pi/8)."""
    high = n > 0.41421357 * m
    return _near_zero(ops.where(high, n - m, n) / ops.where(high, n + m, m), high)


def _mended_octant(n: Expr, m: Expr) -> Expr:
    """As `_octant`, with a ratio that a Newton step mends, where a device's is off by 2 ULP."""
    high = n > 0.41421357 * m
    above, below = ops.where(high, n - m, n), ops.where(high, n + m, m)
    r = ops.reciprocal(below)
    ratio = ops.opaque(above * r)
    return _near_zero(ratio + r * (above - ratio * below), high)


def _near_zero(t: Expr, high: Condition) -> Expr:
    """atan(t), and pi/4 more where it is to be added."""
    square = t * t
    rest = t * square * polynomial(square, ATAN) + ops.where(high, 0.25 * PI_REST, 0.0)
    return ops.where(high, 0.25 * PI, 0.0) + (t + rest)


def _complement(angle: Expr, turns: float) -> Expr:
    """turns * pi - angle, for 1/2 or 1 turns."""
    return turns * PI - (angle - turns * PI_REST)


def atan(x: Expr) -> Expr:
    """The angle of 1/|x| or |x|, whichever is at most 1, with the sign of x."""
    a = ops.abs(x)
    steep = a > 1.0
    angle = _octant(ops.where(steep, 1.0, a), ops.where(steep, a, 1.0))
    value = ops.where(a > 1e8, 0.5 * PI, ops.where(steep, _complement(angle, 0.5), angle))
    return keep_tiny(ops.copysign(value, x), x, TINY)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of (x, y): atan(smaller/larger), scaled by 2**k, and then the quadrant."""
    a, b = ops.abs(y), ops.abs(x)
    steep = a > b
    m = ops.where(steep, a, b)
    scale = ops.where(m > 2.0**60, 2.0**-64, ops.where(m < 2.0**-60, 2.0**80, 1.0))
    n = ops.where(a == b, m, ops.where(steep, b, a)) * scale
    usable = (m > 0.0) & (m < math.inf)
    angle = _mended_octant(
        ops.where(usable, n, ops.where((a == b) & (m > 0.0), 1.0, 0.0)),
        ops.where(usable, m * scale, 1.0),
    )
    angle = ops.where(steep, _complement(angle, 0.5), angle)
    angle = ops.where(has_sign(x), _complement(angle, 1.0), angle)
    return keep_nan(ops.copysign(angle, y), y, x)


def _reduced(x: Expr) -> tuple[Expr, Expr]:
    """a = |x|, and asin(a) if a <= 1/2, else asin(sqrt((1 - a)/2))."""
    a = ops.abs(x)
    near = a <= 0.5
    square = ops.where(near, a * a, 0.5 - 0.5 * a)
    t = ops.where(near, a, ops.sqrt(square))
    return a, t + t * square * polynomial(square, ASIN)


def asin(x: Expr) -> Expr:
    """A polynomial in x; where |x| = a > 1/2, pi/2 less twice the arc sine of sqrt((1 - a)/2)."""
    a, angle = _reduced(x)
    value = ops.where(a <= 0.5, angle, _complement(2.0 * angle, 0.5))
    return keep_tiny(ops.copysign(ops.where(a > 1.0, math.nan, value), x), x, TINY)


def acos(x: Expr) -> Expr:
    """pi/2 - asin(x) for |x| <= 1/2, else 2 asin(sqrt((1 - |x|)/2)), from pi if x < 0."""
    a, angle = _reduced(x)
    far = ops.where(x > 0.0, 2.0 * angle, _complement(2.0 * angle, 1.0))
    value = ops.where(a <= 0.5, _complement(ops.copysign(angle, x), 0.5), far)
    return keep_nan(ops.where(a > 1.0, math.nan, value), x)


# slopes of distances and angles ----------------------------------------------------------------

LARGE, SMALL = 2.0**60, 2.0**-38
"""Sizes beyond which the squares, their sum or its reciprocal may leave the range."""

NOTHING: Final = 2.0**-126
"""A number that is nothing beside the sum of the squares, but not 0."""


def _scaled(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """a and b times a power of 2, the sum of their squares, and the power.

    The sum is positive, and to the bit that of b and a.
    """
    size = ops.abs(a) + ops.abs(b)
    scale = ops.where(size > LARGE, 2.0**-70, ops.where(size < SMALL, 2.0**100, 1.0))
    u, v = a * scale, b * scale
    return u, v, (u * u + v * v) + NOTHING, scale


def _finite(x: Expr) -> Expr:
    """x, 0 where it is infinite."""
    return ops.where(ops.isinf(x), 0.0, x)


def real_reciprocal(a: Expr, b: Expr) -> Expr:
    """a/(a**2 + b**2), both scaled by the same 2**k so that no square leaves the range."""
    u, _, square, scale = _scaled(a, b)
    return (_finite(u) * ops.reciprocal(square)) * scale


def real_reciprocal_square(a: Expr, b: Expr) -> Expr:
    """(a - b)/s (a + b)/s, s = a**2 + b**2, scaled in the same way."""
    u, v, square, scale = _scaled(a, b)
    inverse, u, v = ops.reciprocal(square), _finite(u), _finite(v)
    return (((u - v) * inverse) * scale) * (((u + v) * inverse) * scale)


def direction(a: Expr, b: Expr) -> Expr:
    """a/sqrt(a**2 + b**2), scaled in the same way."""
    u, _, square, _ = _scaled(a, b)
    return ops.where(ops.isinf(u), ops.copysign(1.0, u), u / ops.sqrt(square))


# hyperbolic functions -----------------------------------------------------------------------------

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


SINC: Final = (-1.644934, 0.8117422, -0.19074796, 0.026117546, -0.0022371497)
"""(sinc(x) - 1)/x**2 in x**2, |x| <= 1/2: sinc to 0.* 2**-24 of its value (tools/fit.py)."""

SINC_RATIO: Final = (0.33333334, -0.3289868, 0.115962766, -0.02119149, 0.0023665708, -0.00016410604)
"""(sinc(x) - cos(pi x))/(pi x)**2 in x**2, |x| <= 3/4."""

WHOLE: Final = 1e30
"""Beyond it x is whole and the sine 0, also in float64; a quotient by pi x might not be finite."""


def sine_share(
    x: Expr, sine: Expr, coefficients: tuple[float, ...], divide: Callable[[Expr, Expr], Expr]
) -> Expr:
    """sin(pi x)/(pi x), the sine being given; for |x| < 1/2 a polynomial."""
    near, square = ops.abs(x) < 0.5, x * x
    far = divide(sine, ops.where(near | (ops.abs(x) > WHOLE), 1.0, math.pi * x))
    return keep_nan(ops.where(near, 1.0 + square * polynomial(square, coefficients), far), x)


def sine_ratio(x: Expr, sine: Expr, cosine: Expr, coefficients: tuple[float, ...]) -> Expr:
    """(sine/(pi x) - cosine)/(pi x)**2; for |x| < 3/4 a polynomial."""
    near = ops.abs(x) < 0.75
    z = ops.where(near, 1.0, math.pi * x)
    far = ((sine / z - cosine) / z) / z
    return keep_nan(ops.where(near, polynomial(x * x, coefficients), far), x)


def sinc(x: Expr) -> Expr:
    """sin(pi x)/(pi x), the sine that of turns; for |x| < 1/2 a polynomial."""
    return sine_share(x, ops.sin_turns(0.5 * x), SINC, quotient)


def sinc_ratio(x: Expr) -> Expr:
    """(sinc(x) - cos(pi x))/(pi x)**2; for |x| < 3/4 a polynomial."""
    return sine_ratio(x, ops.sin_turns(0.5 * x), ops.cos_turns(0.5 * x), SINC_RATIO)
