"""Sine, cosine and tangent of pairs: x less k quarter turns, then one polynomial.

Up to 6,000 radians k pi/2 is subtracted in pieces whose products with k are exact. Of larger
numbers, the two of a pair are multiplied by 2/pi as integers (Payne and Hanek 1983), modulo turns.
The parts are operations of their own, as in float32.
"""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import MAGIC
from symgrad.mathlib.bits import polynomial as in_float32
from symgrad.mathlib.double.trigonometric import COS, SIN
from symgrad.mathlib.pair.arithmetic import fast_sum, two_sum
from symgrad.mathlib.pair.exponential import choose, keep_tiny
from symgrad.mathlib.pair.expression import Paired, call, constant, pair
from symgrad.mathlib.trigonometric import high_product, shifted, skip

Word = Any
"""A word, or a Python integer where a constant one will do."""

NEAR: Final = 6000.0
"""Up to it k has 12 bits."""

HALF_PI: Final = (
    1.57080078125, -4.410743713378906e-06, -4.371395334601402e-08, 2.5650592760939617e-12,
    -1.7156415177410622e-15, 5.170182981794105e-19,
)  # fmt: skip
"""pi/2: five pieces of 12 bits, and the rest to 2**-109."""

TWO_OVER_PI: Final = (
    0, 0, 0, 0, 0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041,
    0xFE5163AB, 0xDEBBC561, 0xB7246E3A, *(0,) * 7,
)  # fmt: skip
"""The bits of 2/pi, after 160 zeros; those that no float32 needs are 0."""

SINE: Final = (1.0, *SIN, 0.0)
"""sin(r)/r in r**2, |r| <= pi/4."""
COSINE: Final = (1.0, -0.5, *COS)
"""cos(r) in r**2, |r| <= pi/4."""
EXACT: Final = 5
"""The terms that float32 does not do for."""


def _is_far(x: Paired) -> Condition:
    return ops.abs(x.high) > NEAR


def _near_quarters(x: Paired) -> Paired:
    return pair(x.high * (2.0 / math.pi) + MAGIC)


def _near_angle(x: Paired, q: Paired) -> Paired:
    """Differences of numbers that have no more digits than pairs, and the last one rounded."""
    k = ops.opaque(ops.opaque(q.high) - MAGIC)
    first, second, third, fourth, fifth, rest = HALF_PI
    left = pair(*two_sum(ops.opaque(x.high - k * first), x.low))
    left = left - pair(*fast_sum(k * second, k * third))
    left = left - pair(*fast_sum(k * fourth, k * fifth))
    return left - pair(k) * rest


def quarters(x: Paired) -> Paired:
    """12582912 + k, k the whole number nearest to x/(pi/2); beyond 6,000 radians modulo 4."""
    return choose(_is_far(x), call(ops.far_quarters, x), _near_quarters(x))


def angle(x: Paired, q: Paired) -> Paired:
    """x - k*pi/2, q = 12582912 + k."""
    return choose(_is_far(x), call(ops.far_angle, x), _near_angle(x, q))


# Large arguments: turns as 128 bits behind the point.


def _product(x: Expr) -> list[Word]:
    """|x|/(2 pi) modulo 1: with |x| = m 2**e, m times the bits of 2/pi from the first that counts.

    0 where x is subnormal.
    """
    bits = ops.float_bits(x) & 0x7FFFFFFF
    m = ops.word_where(bits < 0x800000, 0, (bits & 0x7FFFFF) | 0x800000)
    words = _two_over_pi((bits >> 23) + 8)
    total: list[Word] = []
    carry = high_product(m, words[4])
    for k in range(3, -1, -1):
        low = m * words[k] + carry
        carry = high_product(m, words[k]) + ops.word_where(low < carry, 1, 0)
        total.insert(0, low)
    return total


def _two_over_pi(start: Word) -> list[Word]:
    """Five words of `TWO_OVER_PI` from bit ``start`` on, start < 264: chosen, then shifted."""
    words = skip(TWO_OVER_PI, 1, start & 32)
    words = skip(words, 2, start & 64)
    words = skip(words, 4, start & 128)
    return shifted(skip(words, 8, start & 256)[:6], start)


def _turns(x: Paired) -> list[Word]:
    """|high| + low, or -low for a negative high, over 2 pi and modulo 1."""
    highs, lows = _product(x.high), _product(x.low)
    differ = (ops.float_bits(x.high) ^ ops.float_bits(x.low)) >> 31
    flip = ops.word_sub(0, differ)
    total: list[Word] = []
    carry = differ
    for high, low in zip(reversed(highs), reversed(lows), strict=True):
        once = (low ^ flip) + carry
        both = once + high
        carry = ops.word_where(once < carry, 1, 0) + ops.word_where(both < high, 1, 0)
        total.insert(0, both)
    return total


def _fraction(word: Word, unit: float) -> Paired:
    """A word behind the point, times a power of two."""
    high, low = ops.word_float(word >> 16), ops.word_float(word & 0xFFFF)
    return pair(*fast_sum(high * (unit * 2.0**-16), low * (unit * 2.0**-32)))


def far_quarters(x: Paired) -> Paired:
    """12582912 + k, k modulo 4 the quarter turns nearest to x, for 6,000 < |x| < inf."""
    k = (_turns(x)[0] + 0x20000000) >> 30
    negative = ops.word_lt(0x7FFFFFFF, ops.float_bits(x.high))
    return pair(ops.bits_float(ops.word_where(negative, ops.word_sub(0, k), k) + 0x4B400000))


def far_angle(x: Paired) -> Paired:
    """x less the nearest multiple of pi/2, for 6,000 < |x| < inf; NaN beyond."""
    words = _turns(x)
    words = [(a << 2) | (b >> 30) for a, b in zip(words, [*words[1:], words[3] & 0], strict=True)]
    flip = ops.word_sub(0, words[0] >> 31)  # above a half, a fraction less 1 is its complement
    first, *others = [_fraction(word ^ flip, 2.0 ** (-32 * k)) for k, word in enumerate(words)]
    size = (first + (others[0] + (others[1] + others[2]))) * (math.pi / 2)
    negative = ops.word_lt(0x7FFFFFFF, words[0] ^ ops.float_bits(x.high))
    signed = choose(negative, -size, size)
    return choose(ops.isfinite(x.high), signed, constant(x, math.nan))


# Of the angle.


def _turned(a: Paired, odd: Condition, negative: Word) -> Paired:
    """sin(a), or cos(a) where the quarter is odd, negative where the word's second bit is set."""
    z = a * a
    tail = in_float32(
        z.high, [ops.where(odd, c, s) for c, s in zip(COSINE[EXACT:], SINE[EXACT:], strict=True)]
    )
    value = pair(tail)
    for c, s in zip(reversed(COSINE[:EXACT]), reversed(SINE[:EXACT]), strict=True):
        value = call(ops.fma, value, z, choose(odd, constant(a, c), constant(a, s)))
    value = choose(odd, value, value * a)
    sign = ops.where(ops.word_lt(0, negative & 2), -1.0, 1.0)
    return pair(value.high * sign, value.low * sign)


def sine(a: Paired, q: Paired) -> Paired:
    """sin(a), cos(a), -sin(a) or -cos(a), by the last bits of q."""
    turns = ops.float_bits(q.high)
    return _turned(a, ops.word_lt(0, turns & 1), turns)


def cosine(a: Paired, q: Paired) -> Paired:
    """cos(a), -sin(a), -cos(a) or sin(a), by the last bits of q."""
    turns = ops.float_bits(q.high) + 1
    return _turned(a, ops.word_lt(0, turns & 1), turns)


def tangent(a: Paired, q: Paired) -> Paired:
    """The sine over the cosine."""
    return call(ops.sine, a, q) / call(ops.cosine, a, q)


def sin(x: Paired) -> Paired:
    """The sine of x less k quarter turns, and of these."""
    q = _near_quarters(x)
    near = keep_tiny(call(ops.sine, _near_angle(x, q), q), x, 2.0**-30)
    return choose(_is_far(x), call(ops.far_sin, x), near)


def cos(x: Paired) -> Paired:
    """The cosine of x less k quarter turns, and of these."""
    q = _near_quarters(x)
    return choose(_is_far(x), call(ops.far_cos, x), call(ops.cosine, _near_angle(x, q), q))


def tan(x: Paired) -> Paired:
    """The tangent of x less k quarter turns, and of these."""
    q = _near_quarters(x)
    near = keep_tiny(call(ops.tangent, _near_angle(x, q), q), x, 2.0**-30)
    return choose(_is_far(x), call(ops.far_tan, x), near)


def far_sin(x: Paired) -> Paired:
    """The sine of |x| > 6,000 less k quarter turns, and of these."""
    return call(ops.sine, call(ops.far_angle, x), call(ops.far_quarters, x))


def far_cos(x: Paired) -> Paired:
    """The cosine of |x| > 6,000 less k quarter turns, and of these."""
    return call(ops.cosine, call(ops.far_angle, x), call(ops.far_quarters, x))


def far_tan(x: Paired) -> Paired:
    """The tangent of |x| > 6,000 less k quarter turns, and of these."""
    return call(ops.tangent, call(ops.far_angle, x), call(ops.far_quarters, x))


def _part_of_turn(x: Paired) -> tuple[Paired, Paired]:
    """The angle of x turns, less the nearest quarters, and 12582912 + these."""
    part = x - call(ops.round, x)
    q = 4.0 * part.high + MAGIC
    quarters = ops.opaque(ops.opaque(q) - MAGIC)
    return (part - pair(0.25 * quarters)) * (2.0 * math.pi), pair(q)


def sin_turns(x: Paired) -> Paired:
    """The sine of x turns: of what they are from the nearest quarter."""
    return call(ops.sine, *_part_of_turn(x))


def cos_turns(x: Paired) -> Paired:
    """The cosine of x turns: of what they are from the nearest quarter."""
    return call(ops.cosine, *_part_of_turn(x))
