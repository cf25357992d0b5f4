"""Remainders of a division, exact: products are split so that no compiler can round them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import has_sign, keep_nan, leading

LARGE: Final = 2.0**126
"""Above it the reciprocal is subnormal, so that devices without subnormals divide to 0."""


def wide_div(a: Expr, b: Expr) -> Expr:
    """a/b, both divided by 4 where 1/b, by which devices multiply, is subnormal and flushed."""
    scale = ops.where(ops.abs(b) > LARGE, 0.25, 1.0)
    return (a * scale) / (b * scale)


def _take(r: Expr, b: Expr) -> Expr:
    """r - q*b without a rounding error, q the 21 leading bits of r/b or a whole number nearby.

    With 21 bits the difference fits in a float although a device's quotient is off by 3 ULP. q and
    b are cut into 12 bits and the rest, whose four products are exact; `opaque` keeps compilers
    from adding them up before they are subtracted.
    """
    bits = ops.float_bits(r / b)
    q = ops.floor(ops.bits_float(ops.word_and(ops.word_add(bits, 4), 0xFFFFFFF8)))
    q_high, b_high = leading(q), leading(b)
    q_low, b_low = q - q_high, b - b_high
    r = ops.opaque(r - q_high * b_high)
    r = ops.opaque(r - q_high * b_low)
    return ops.opaque(r - q_low * b_high) - q_low * b_low


def _scaled(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr]:
    """|a| and |b|, multiplied so that their parts and remainder stay normal, and the way back."""
    a, b = ops.abs(a), ops.abs(b)
    small, large = (a < 2.0**40) & (b < 2.0**40), (b > LARGE) & (a >= b)
    scale = ops.where(small, 2.0**80, ops.where(large, 0.25, 1.0))
    return a * scale, b * scale, ops.where(small, 2.0**-80, ops.where(large, 4.0, 1.0))


def modulus(a: Expr, b: Expr, take: Callable[[Expr, Expr], Expr]) -> Expr:
    """a modulo b, in [0, b), for a, b >= 0; NaN where three reductions do not get there.

    ``take(r, b)`` is r less b times the leading digits of r/b, without a rounding error.
    """
    r = take(take(take(a, b), b), b)
    r = ops.where(r < 0.0, r + b, r)
    r = ops.where(r >= b, r - b, r)
    r = ops.where(a < b, a, r)
    return ops.where((r >= 0.0) & (r < b) & ops.isfinite(a), r, math.nan)


def fmod(a: Expr, b: Expr) -> Expr:
    """a - b*trunc(a/b), with the sign of a, exact for |a/b| < 2**45; NaN or exact beyond."""
    dividend, divisor, back = _scaled(a, b)
    r = modulus(dividend, divisor, _take) * back
    return keep_nan(ops.copysign(r, a), a, b)


def remainder(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), with the sign of b, rounded once for |a/b| < 2**45; beyond as fmod."""
    dividend, divisor, back = _scaled(a, b)
    r = modulus(dividend, divisor, _take)
    across = ops.logical_xor(has_sign(a), has_sign(b)) & (r > 0.0)
    return keep_nan(ops.copysign(ops.where(across, divisor - r, r) * back, b), a, b)
