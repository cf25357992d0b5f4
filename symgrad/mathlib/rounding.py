"""Quotients and roots rounded correctly, from those of a device that are off by up to 3 ULP.

The significands are divided, so that nothing leaves the range. What a quotient q leaves of the
dividend is exact when its products are made of halves of 12 bits; divided, it mends q to 0.51 ULP,
and what the mended q leaves is compared with half a step of q. Sums and products are all that has
to be rounded correctly, and no fused one is needed. Zeros, infinities, NaN and subnormal arguments
are left to the device; subnormal results are rounded twice.
"""

from __future__ import annotations

from collections.abc import Callable

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracers.integers import Word
from symgrad.mathlib.bits import leading


def _field(x: Expr) -> Word:
    """The biased exponent."""
    return (ops.float_bits(x) >> 23) & 0xFF


def _is_normal(field: Word) -> Condition:
    return ops.word_lt(ops.word_sub(field, 1), 254)


def _significand(x: Expr) -> Expr:
    """|x| with the exponent 0, in [1, 2)."""
    return ops.bits_float((ops.float_bits(x) & 0x7FFFFF) | 0x3F800000)


def _less(rest: Expr, a: Expr, b: Expr) -> Expr:
    """rest - a*b, the product exact and the difference rounded here."""
    return ops.opaque(rest - a * b)


def _mended(
    near: Expr, left: Callable[[Expr], Expr], slope: Expr, half: Callable[[Expr], Expr]
) -> Expr:
    """The float nearest to the root of ``left``, which falls with the slope given, near it.

    ``half`` is what ``left`` loses over half a step of a float.
    """
    near = ops.opaque(near + ops.ratio(left(near), slope))
    rest, most = left(near), half(near)
    bits = ops.float_bits(near)
    bits = ops.word_where(rest > most, bits + 1, bits)
    return ops.bits_float(ops.word_where(rest <= -most, ops.word_sub(bits, 1), bits))


def _quotient(a: Expr, b: Expr) -> Expr:
    """a/b for a and b in [1, 2); never halfway between two floats."""
    b_high = leading(b)
    b_low = b - b_high

    def left(q: Expr) -> Expr:
        high = leading(q)
        low = q - high
        return _less(_less(_less(_less(a, high, b_high), high, b_low), low, b_high), low, b_low)

    return _mended(ops.ratio(a, b), left, b, lambda q: ops.where(q < 1.0, 2.0**-25, 2.0**-24) * b)


def div(a: Expr, b: Expr) -> Expr:
    """a/b, rounded correctly: the quotient of the significands times two powers of 2."""
    over, under = _field(a), _field(b)
    total = ops.word_sub(over + 512, under)
    half = total >> 1
    powers = [ops.bits_float(ops.word_sub(k, 129) << 23) for k in (half, ops.word_sub(total, half))]
    value = ops.opaque(_quotient(_significand(a), _significand(b)) * powers[0]) * powers[1]
    sign = (ops.float_bits(a) ^ ops.float_bits(b)) & 0x80000000
    signed = ops.bits_float(ops.float_bits(value) | sign)
    return ops.where(_is_normal(over) & _is_normal(under), signed, ops.ratio(a, b))


def reciprocal(x: Expr) -> Expr:
    """1/x, rounded correctly."""
    return div(Expr(x.graph, x.graph.constant(1.0)), x)


def sqrt(x: Expr) -> Expr:
    """The square root, rounded correctly: that of x times a power of 4, in [1, 4)."""
    bits = ops.float_bits(x)
    m = ops.bits_float(((bits & 0xFFFFFF) ^ 0x800000) + 0x3F800000)
    near = ops.root(m)

    def left(s: Expr) -> Expr:
        high = leading(s)
        low = s - high
        return _less(_less(_less(m, high, high), 2.0 * high, low), low, low)

    value = _mended(near, left, 2.0 * near, lambda s: s * 2.0**-23)
    power = ops.bits_float((((_field(x) + 1) >> 1) + 63) << 23)
    return ops.where(_is_normal(_field(x)) & (x > 0.0), value * power, ops.root(x))


def rsqrt(x: Expr) -> Expr:
    """1/sqrt(x), each of the two rounded correctly."""
    return ops.reciprocal(ops.sqrt(x))
