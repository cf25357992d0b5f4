"""Trigonometric functions, inverse and hyperbolic ones, the cardinal sine, slopes in the plane.

Inverse trigonometric functions are a polynomial each, after one reduction of the argument; of
hyperbolic ones odd polynomials near 0, and exponentials away from it. The slopes of distances and
angles in the plane are made of parts that they share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import (
    MAGIC,
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


# Sine, cosine and tangent of every finite float32: x less k quarter turns, then a polynomial.
#
# The parts are operations of their own, so that a kernel with the sine and the cosine of one
# argument reduces it once; one with either of them decides once whether the argument is large. Up
# to 3,000 radians k*pi/2 is subtracted in four exact pieces; larger arguments are multiplied by
# 2/pi as integers (Payne and Hanek 1983), of which only the bits that matter are used. Of x turns,
# the whole ones are taken off x exactly, however large it is, and one polynomial does for half a
# turn.

Word = Any
"""A word, or a Python integer where a constant one will do."""

SIN: Final = (-0.16666655, 0.00833216, -0.00019515256)
"""(sin(x) - x)/x**3 in x**2, |x| <= pi/4: sin to 0.14 * 2**-24 of its value (tools/fit.py)."""

COS: Final = (0.041666646, -0.0013887316, 2.4433128e-05)
"""(cos(x) - 1 + x**2/2)/x**4 in x**2, |x| <= pi/4: cos to 0.003 * 2**-24."""

HALF_PI: Final = (1.570556640625, 0.0002396702766418457, 1.5890691429376602e-08, 2.563344e-12)
"""pi/2 in pieces down to 2**-12, 2**-24, 2**-37 and the rest: the products of the first three with
k are exact, and so are the first two differences."""

HALF_PI_8: Final = (1.5703125, math.pi / 2 - 1.5703125)
"""pi/2: its 8 leading bits, and the rest."""

TURN: Final = (31.999987, 68.17482, 66.65454, 39.657356)
"""(sin(2 pi h) - 4 h)/(h w) in w = 1/16 - h**2, |h| <= 1/4: sin to 0.13 * 2**-24 of its value."""

NEAR: Final = 3000.0
"""Up to it k has 11 bits."""

TWO_OVER_PI: Final = (
    0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip
"""The bits of 2/pi, after 32 zeros."""


def quarters(x: Expr) -> Expr:
    """12582912 + k, k the whole number nearest to x/(pi/2); beyond 3,000 radians modulo 4."""
    return ops.where(_is_far(x), ops.far_quarters(x), _near_quarters(x))


def angle(x: Expr, q: Expr) -> Expr:
    """x - k*pi/2, q = 12582912 + k, each product exact and each difference rounded in its place."""
    return ops.where(_is_far(x), ops.far_angle(x), _near_angle(x, q))


def _is_far(x: Expr) -> Any:
    return ops.abs(x) > NEAR


def _near_quarters(x: Expr) -> Expr:
    return x * (2.0 / math.pi) + MAGIC


def _near_angle(x: Expr, q: Expr) -> Expr:
    k = ops.opaque(ops.opaque(q) - MAGIC)
    rest = x
    for piece in HALF_PI[:-1]:
        rest = ops.opaque(rest - k * piece)
    return rest - k * HALF_PI[-1]


def far_quarters(x: Expr) -> Expr:
    """12582912 + k, k modulo 4 the quarter turns nearest to x, for 3,000 < |x| < inf."""
    high, _ = _turns(x)
    k = (high + 0x20000000) >> 30
    negative = ops.word_lt(0x7FFFFFFF, ops.float_bits(x))
    return ops.bits_float(ops.word_where(negative, ops.word_sub(0, k), k) + 0x4B400000)


def far_angle(x: Expr) -> Expr:
    """x less the nearest multiple of pi/2, for 3,000 < |x| < inf; NaN beyond."""
    high, low = _turns(x)
    high, low = (high << 2) | (low >> 30), low << 2
    flip = ops.word_sub(0, high >> 31)  # above a half, a fraction less 1 is its complement
    parts = _sixteenths(high ^ flip, low ^ flip)
    first = parts[0] * 2.0**-16
    rest = parts[1] * 2.0**-32 + (parts[2] * 2.0**-48 + parts[3] * 2.0**-64)
    rest = first * HALF_PI_8[1] + rest * (math.pi / 2)
    value = ops.opaque(first * HALF_PI_8[0]) + ops.opaque(rest)
    sign = (high ^ ops.float_bits(x)) & 0x80000000
    signed = ops.bits_float(ops.float_bits(value) ^ sign)
    return ops.where(ops.isfinite(x), signed, math.nan)


def _sixteenths(high: Word, low: Word) -> list[Expr]:
    """The 16-bit digits of a number of two words, the first digit first."""
    return [ops.word_float(w) for w in (high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF)]


def _turns(x: Expr) -> tuple[Word, Word]:
    """|x|/(2 pi) modulo 1 as 64 bits: the quarter is in the first two.

    With |x| = m 2**e, m of 24 bits, all bits of 2/pi that m multiplies to whole turns are left
    out, and of the others 96 kept.
    """
    bits = ops.float_bits(x) & 0x7FFFFFFF
    m = (bits & 0x7FFFFF) | 0x800000
    first, second, third = _bits_of_two_over_pi((bits >> 23) - 120)
    carried = high_product(m, third)
    low = m * second + carried
    carry = ops.word_where(low < carried, 1, 0)
    return m * first + (high_product(m, second) + carry), low


def _bits_of_two_over_pi(start: Word) -> list[Word]:
    """Three words of `TWO_OVER_PI` from bit ``start`` on, start < 135: chosen, then shifted."""
    chosen = skip(TWO_OVER_PI, 1, start & 32)
    chosen = skip(chosen, 2, start & 64)[:4]
    beyond = [
        ops.word_where(ops.word_lt(0, start & 128), far, near)
        for near, far in zip(chosen, TWO_OVER_PI[4:], strict=True)
    ]
    return shifted(beyond, start)


def shifted(words: Any, start: Word) -> list[Word]:
    """The words but the last, from bit ``start`` modulo 32 on."""
    shift = start & 31
    down = ops.word_sub(31, shift)
    return [
        ops.word_shift_left(a, shift) | ops.word_shift_right(b >> 1, down)  # both below 32
        for a, b in pairwise(words)
    ]


def skip(words: Any, count: int, condition: Word) -> list[Word]:
    """The words, without the first ``count`` of them where the condition is not 0."""
    skipped = ops.word_lt(0, condition)
    return [ops.word_where(skipped, b, a) for a, b in zip(words, words[count:], strict=False)]


def high_product(m: Word, word: Word) -> Word:
    """The upper 32 bits of m*word, m of 24 bits, from products of halves."""
    m_high, m_low, high, low = m >> 16, m & 0xFFFF, word >> 16, word & 0xFFFF
    middle = m_high * low + ((m_low * low) >> 16)
    other = m_low * high + (middle & 0xFFFF)
    return m_high * high + ((middle >> 16) + (other >> 16))


def _sin(a: Expr) -> Expr:
    square = a * a
    value = a + a * square * polynomial(square, SIN)
    return ops.where(ops.abs(a) < 1e-4, a, value)


def _cos(a: Expr) -> Expr:
    square = a * a
    return 1.0 + square * (-0.5 + square * polynomial(square, COS))


def _negated(value: Expr, turns: Word) -> Expr:
    """The value, or its negative where the second last bit of the word is set."""
    return ops.bits_float(ops.float_bits(value) ^ ((turns & 2) << 30))


def _is_odd(turns: Word) -> Any:
    return ops.word_lt(0, turns & 1)


def sine(a: Expr, q: Expr) -> Expr:
    """sin(a), cos(a), -sin(a) or -cos(a): a polynomial, chosen by the last bits of q."""
    turns = ops.float_bits(q)
    return _negated(ops.where(_is_odd(turns), _cos(a), _sin(a)), turns)


def cosine(a: Expr, q: Expr) -> Expr:
    """cos(a), -sin(a), -cos(a) or sin(a): a polynomial, chosen by the last bits of q."""
    turns = ops.float_bits(q)
    return _negated(ops.where(_is_odd(turns), _sin(a), _cos(a)), turns + 1)


def tangent(a: Expr, q: Expr) -> Expr:
    """sin(a)/cos(a) or -cos(a)/sin(a), chosen by the last bit of q.

    A Newton step mends the ratio: devices may be off by 2 ULP, and the derivative squares it.
    """
    turns = ops.float_bits(q)
    odd = _is_odd(turns)
    sin, cos = _sin(a), _cos(a)
    above, below = ops.where(odd, -cos, sin), ops.where(odd, sin, cos)
    r = ops.reciprocal(below)
    ratio = ops.opaque(above * r)
    return ratio - r * (ratio * below - above)  # of -0.0 it is -0.0


def sin(x: Expr) -> Expr:
    """The sine of x less k quarter turns, and of these."""
    q = _near_quarters(x)
    return ops.where(_is_far(x), ops.far_sin(x), ops.sine(_near_angle(x, q), q))


def cos(x: Expr) -> Expr:
    """The cosine of x less k quarter turns, and of these."""
    q = _near_quarters(x)
    return ops.where(_is_far(x), ops.far_cos(x), ops.cosine(_near_angle(x, q), q))


def tan(x: Expr) -> Expr:
    """The tangent of x less k quarter turns, and of these."""
    q = _near_quarters(x)
    return ops.where(_is_far(x), ops.far_tan(x), ops.tangent(_near_angle(x, q), q))


def sin_turns(x: Expr) -> Expr:
    """The sine of x turns: of what they are from the nearest half turn, with its sign."""
    part = _part_of_turn(x)
    size = ops.abs(part)
    return ops.copysign(_sine_of_turn(ops.where(size > 0.25, 0.5 - size, size)), part)


def cos_turns(x: Expr) -> Expr:
    """The cosine of x turns: the sine of a quarter turn less them."""
    return _sine_of_turn(0.25 - ops.abs(_part_of_turn(x)))


def _part_of_turn(x: Expr) -> Expr:
    """x less the nearest whole number, which is exact; NaN where x is infinite."""
    return x - ops.round(x)


def _sine_of_turn(h: Expr) -> Expr:
    """sin(2 pi h), |h| <= 1/4: 4h, which is exact, and what is 0 at a quarter, where that is 1."""
    w = 0.0625 - h * h
    return 4.0 * h + h * (w * polynomial(w, TURN))


def far_sin(x: Expr) -> Expr:
    """The sine of |x| > 3,000 less k quarter turns, and of these."""
    return ops.sine(ops.far_angle(x), ops.far_quarters(x))


def far_cos(x: Expr) -> Expr:
    """The cosine of |x| > 3,000 less k quarter turns, and of these."""
    return ops.cosine(ops.far_angle(x), ops.far_quarters(x))


def far_tan(x: Expr) -> Expr:
    """The tangent of |x| > 3,000 less k quarter turns, and of these."""
    return ops.tangent(ops.far_angle(x), ops.far_quarters(x))
