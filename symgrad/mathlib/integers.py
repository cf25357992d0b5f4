"""Casts between real numbers and integers, and Threefry's bits, over what every device has.

A device may round, or limit, in a way of its own where a cast has no exact result; here nothing
is cast that has none.
"""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.references.reference import PARITY, ROTATIONS
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.integers import SIGN, SignedWord, Word


def uint32(x: Expr) -> Word:
    """The unsigned integer that is x rounded towards 0, or the nearest one; 0 of NaN."""
    x = ops.trunc(x)
    upper = x >= SIGN
    inside = ops.where((x > 0.0) & (x < 2.0 * SIGN), ops.where(upper, x - SIGN, x), 0.0)
    integer = ops.nearest_word(inside) | ops.word_where(upper, SIGN, 0)
    return ops.word_where(x >= 2.0 * SIGN, 2 * SIGN - 1, integer)


def int32(x: Expr) -> Word:
    """The word of the signed integer that is x rounded towards 0, or the nearest; 0 of NaN."""
    x = ops.trunc(x)
    near = ops.nearest_word(ops.where(abs(x) < SIGN, x, 0.0))
    return ops.word_where(x >= SIGN, SIGN - 1, ops.word_where(x <= -SIGN, SIGN, near))


def uint32_float(w: Word) -> Expr:
    """The word as a real number: of two halves, whose sum is rounded once."""
    return ops.word_float(w >> 16) * 65536.0 + ops.word_float(w & 0xFFFF)


def int32_float(w: Word) -> Expr:
    """The word as a signed number, rounded once."""
    integer = SignedWord(w.graph, w.id)
    size = ops.uint32_float(integer.magnitude())
    return ops.where(integer.is_negative(), -size, size)


def threefry_first(a: Word, b: Word, c: Word, d: Word) -> Word:
    """The first word of Threefry-2x32's block (c, d) under the key (a, b)."""
    return _threefry(a, b, c, d)[0]


def threefry_second(a: Word, b: Word, c: Word, d: Word) -> Word:
    """The second word of Threefry-2x32's block (c, d) under the key (a, b)."""
    return _threefry(a, b, c, d)[1]


def _threefry(a: Word, b: Word, c: Word, d: Word) -> tuple[Word, Word]:
    """Salmon, Moraes, Dror and Shaw (2011): rounds of sums and rotations, and the key between."""
    keys = a, b, a ^ b ^ PARITY
    x, y = c + a, d + b
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = (y << bits | y >> (32 - bits)) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + (keys[(group + 2) % 3] + (group + 1))
    return x, y
