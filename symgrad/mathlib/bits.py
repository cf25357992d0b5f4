"""Building blocks of definitions: leading bits, scaling, polynomials, and NaN tested on the bits.

Compilers below WGSL take float arithmetic for real arithmetic: they fold ``(a + b) - a`` to b and
lose NaN. Nothing here relies on more than they leave alone: bits, selections, exact products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr

MAGIC: Final = 12582912.0
"""1.5 * 2**23: the last bits of a float32 sum with it are those of a whole number."""


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """c0 + c1*x + c2*x**2 + ... by Horner's rule."""
    value = None
    for c in reversed(coefficients):
        value = c if value is None else value * x + c
    assert isinstance(value, Expr), "a polynomial has at least two coefficients"
    return value


def quotient(a: Expr, b: Expr) -> Expr:
    """a/b, mended by a Newton step where a device does not round it correctly."""
    inverse = ops.reciprocal(b)
    ratio = ops.opaque(a * inverse)
    return ratio - inverse * (ratio * b - a)


def leading(x: Expr) -> Expr:
    """x cut to its 12 leading bits: the product of two such numbers is exact in float32."""
    return ops.bits_float(ops.word_and(ops.float_bits(x), 0xFFFFF000))


def whole(word: object) -> Expr:
    """The float with the value of a word below 2**23, read off the bits of 2**23 + word."""
    return ops.bits_float(ops.word_add(word, 0x4B000000)) - 8388608.0


def has_sign(x: Expr) -> Condition:
    """Whether the sign bit is set: x < 0, or x is -0.0."""
    return ops.copysign(1.0, x) < 0.0


def keep_nan(value: Expr, *arguments: Expr) -> Expr:
    """The value, but NaN where an argument is NaN."""
    for x in reversed(arguments):
        value = ops.where(ops.isnan(x), x, value)
    return value


def keep_tiny(value: Expr, x: Expr, tiny: float) -> Expr:
    """x itself where |x| < tiny or x is NaN, so that -0.0 and subnormals stay; else the value."""
    return ops.where((ops.abs(x) < tiny) | ops.isnan(x), x, value)


def within(x: Expr, bound: float) -> Expr:
    """x limited to [-bound, bound]."""
    return ops.where(x > bound, bound, ops.where(x < -bound, -bound, x))


Coefficients = tuple[float, ...]
"""Coefficients of a polynomial, the one of the lowest power first."""


def coefficients(table: str) -> Coefficients:
    """The numbers of a table, which has white space between them.

    Example:
        >>> coefficients('''
        ...     1.0 0.5
        ...     -0.25
        ... ''')
        (1.0, 0.5, -0.25)
    """
    return tuple(map(float, table.split()))


# Rounding and powers of 2 in float64, which CPUs have, but not every driver in WGSL.

SHIFT: Final = 2.0**52
"""The last bit of a sum with it is 1."""


def rounded(x: Expr) -> Expr:
    """The nearest integer, half to even: what is left of a sum with 2**52, as llvmpipe's is not."""
    a = ops.abs(x)
    nearest = ops.opaque(a + SHIFT) - SHIFT
    return ops.where(a < SHIFT, ops.copysign(nearest, x), x)


def scaled(x: Expr, k: Expr) -> Expr:
    """x * 2**k, in two steps, of which only the second may leave the range."""
    half = ops.floor(0.5 * k)
    return ops.opaque(x * ops.power_of_two(half)) * ops.power_of_two(k - half)
