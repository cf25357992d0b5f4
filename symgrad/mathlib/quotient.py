"""Remainders of a division, exact: products are split so that no compiler can round them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracers.integers import Word
from symgrad.mathlib.bits import has_sign, keep_nan, leading

LARGE: Final = 2.0**126
"""Above it the reciprocal is subnormal, so that devices without subnormals divide to 0."""

SMALL: Final = 2.0**-80
"""From it on, what is left when a multiple is taken off in parts is no subnormal."""

NEAR: Final = 2.0**18
"""Quotients below it are off by less than one, also on devices that divide with 3 ULP."""


def wide_div(a: Expr, b: Expr) -> Expr:
    """a/b, both divided by 4 where 1/b, by which devices multiply, is subnormal and flushed."""
    scale = ops.where(ops.abs(b) > LARGE, 0.25, 1.0)
    return (a * scale) / (b * scale)


def modulus(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), for b >= 0, rounded once for a < 0 and else exact."""
    size = ops.abs(a)
    far = (size >= NEAR * b) | (b < SMALL) | (b > LARGE)
    near = upwards(has_sign(a), _near_modulus(size, b), b)
    return ops.where(far, ops.far_modulus(a, b), near)


def upwards(negative: Condition, r: Expr, b: Expr) -> Expr:
    """r, a remainder of |a| by b, as a's: b less it if a is negative, and is no multiple of b."""
    return ops.where(negative & (r > 0.0), b - r, r)


def _near_modulus(a: Expr, b: Expr) -> Expr:
    """a - floor(a/b)*b, a >= 0: factors are cut into 12 bits and the rest, to be exact."""
    q = ops.floor(a / b)
    q_high, b_high = leading(q), leading(b)
    q_low, b_low = q - q_high, b - b_high
    r = ops.opaque(a - q_high * b_high)
    r = ops.opaque(r - q_high * b_low)
    r = ops.opaque(ops.opaque(r - q_low * b_high) - q_low * b_low)
    r = ops.where(r < 0.0, r + b, r)
    return ops.where(r >= b, r - b, r)


def far_modulus(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), for b >= 0, of numbers of any size: whole ones times powers of 2.

    Of |a| = m 2**i and b = n 2**k it is 2**k times m 2**(i - k) modulo n. The power is made by
    squaring its leading bits: i - k < 256, and 2**15 is a word.
    """
    size, negative = ops.abs(a), has_sign(a)
    (m, i), (n, k) = _whole(size), _whole(b)
    n = ops.word_where(ops.word_lt(0, n), n, 1)
    times = _product_modulo(n)
    apart = (i - k) & 0xFF
    power = times(ops.word_shift_left(1, apart >> 4), 1)
    for bit in (3, 2, 1, 0):
        power = times(power, ops.word_shift_left(power, (apart >> bit) & 1))
    rest = times(m, power)
    rest = ops.word_where(ops.word_lt(0x7FFFFFFF, rest), rest + n, rest)
    rest = ops.word_where(negative & ops.word_lt(0, rest), n - rest, rest)
    value = ops.opaque(ops.word_float(rest) * 2.0**-23) * ops.bits_float(k << 23)
    less = ops.word_lt(ops.float_bits(size), ops.float_bits(b))  # subnormals are not flushed here
    given = ops.isfinite(a) & ops.word_lt(0, ops.float_bits(b))
    return ops.where(given, ops.where(less, upwards(negative, size, b), value), math.nan)


def _whole(x: Expr) -> tuple[Word, Word]:
    """The whole number m below 2**24 and the biased exponent k with x = m 2**(k - 150) >= 0."""
    bits = ops.float_bits(x)
    field, digits = bits >> 23, bits & 0x7FFFFF
    normal = ops.word_lt(0, field)
    return ops.word_where(normal, digits | 0x800000, digits), ops.word_where(normal, field, 1)


def _product_modulo(n: Word) -> Callable[[Any, Any], Word]:
    """A product of whole numbers modulo n < 2**24, as a signed word of about n/2 at most.

    Words multiply modulo 2**32: what is left of a product without a multiple of n near it is right,
    if it is small. The multiple is found in floats, which are off by 5 at most for products up to
    2**23 n: after the first time less than 6 n are left, after the second n/2.
    """
    inverse = ops.ratio(1.0, ops.word_float(n))

    def times(a: Any, b: Any) -> Word:
        size = _signed(a) * _signed(b)
        left = ops.word_mul(a, b) - ops.nearest_word(size * inverse) * n
        return left - ops.nearest_word(_signed(left) * inverse) * n

    return times


def _signed(a: Any) -> Any:
    """The float of a signed word, or of a constant."""
    return float(a) if isinstance(a, int) else ops.signed_float(a)


def fmod(a: Expr, b: Expr) -> Expr:
    """a - b*trunc(a/b), with the sign of a, exact."""
    return keep_nan(ops.copysign(ops.modulus(ops.abs(a), ops.abs(b)), a), a, b)


def remainder(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), with the sign of b, rounded once."""
    r = ops.modulus(ops.where(has_sign(b), -a, a), ops.abs(b))
    return keep_nan(ops.copysign(r, b), a, b)
