"""Sine, cosine and tangent of every finite float32: x less k quarter turns, then a polynomial.

The parts are operations of their own, so that a kernel with the sine and the cosine of one argument
reduces it once; one with either of them decides once whether the argument is large. Up to 3,000
radians k*pi/2 is subtracted in four exact pieces; larger arguments are multiplied by 2/pi as
integers (Payne and Hanek 1983), of which only the bits that matter are used. Of x turns, the whole
ones are taken off x exactly, however large it is, and one polynomial does for half a turn.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import MAGIC, polynomial

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


def _odd(turns: Word) -> Any:
    return ops.word_lt(0, turns & 1)


def sine(a: Expr, q: Expr) -> Expr:
    """sin(a), cos(a), -sin(a) or -cos(a): a polynomial, chosen by the last bits of q."""
    turns = ops.float_bits(q)
    return _negated(ops.where(_odd(turns), _cos(a), _sin(a)), turns)


def cosine(a: Expr, q: Expr) -> Expr:
    """cos(a), -sin(a), -cos(a) or sin(a): a polynomial, chosen by the last bits of q."""
    turns = ops.float_bits(q)
    return _negated(ops.where(_odd(turns), _sin(a), _cos(a)), turns + 1)


def tangent(a: Expr, q: Expr) -> Expr:
    """sin(a)/cos(a) or -cos(a)/sin(a), chosen by the last bit of q.

    A Newton step mends the ratio: devices may be off by 2 ULP, and the derivative squares it.
    """
    turns = ops.float_bits(q)
    odd = _odd(turns)
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
