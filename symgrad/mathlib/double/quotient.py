"""Remainders of a division, without a rounding error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import has_sign, keep_nan
from symgrad.mathlib.quotient import remainder, upwards

__all__ = ["far_modulus", "fmod", "modulus", "remainder"]

NEAR: Final = 2.0**25
"""Quotients below it have 26 bits when they are rounded down."""

TINY: Final = 2.0**-1022
HALF: Final = 2.0**26
"""Whole numbers below 2**52 are two below this."""


def fmod(a: Expr, b: Expr) -> Expr:
    """a - b*trunc(a/b), with the sign of a, exact.

    Beside 0 and infinity it is chosen last, by the arguments themselves, whatever a GPU's compiler
    makes of the modulus there.
    """
    value = ops.copysign(ops.modulus(ops.abs(a), ops.abs(b)), a)
    value = ops.where(ops.isinf(b), a, value)
    value = ops.where(ops.isfinite(a) & (b != 0.0), value, math.nan)
    return keep_nan(value, a, b)


def modulus(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), for b >= 0, rounded once for a < 0 and else exact."""
    size = ops.abs(a)
    near = upwards(has_sign(a), _near_modulus(size, b), b)
    return ops.where((size >= NEAR * b) | ops.isinf(b), ops.far_modulus(a, b), near)


def _near_modulus(a: Expr, b: Expr) -> Expr:
    """a - floor(a/b)*b, a >= 0: the halves of b have exact products with 26 bits."""
    q, high = ops.floor(a / b), ops.upper(b)
    r = (a - q * high) - q * (b - high)
    r = ops.where(r < 0.0, r + b, r)
    return ops.where(r >= b, r - b, r)


def far_modulus(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), for b >= 0, of numbers of any size: whole ones times powers of 2.

    Of |a| = m 2**i and b = n 2**k it is 2**k times m 2**(i - k) modulo n. The power is made by
    squaring its leading bits: i - k < 4096, and n > 2**33.
    """
    size = ops.abs(a)
    (m, i), (n, k) = _whole(size), _whole(b)
    times = _product_modulo(n)
    apart = i - k
    leading = ops.floor(apart * 2.0**-6)
    rest = apart - leading * 64.0
    power = ops.scalb(Expr(a.graph, a.graph.constant(1.0)), leading)
    for bit in (32.0, 16.0, 8.0, 4.0, 2.0, 1.0):
        power = times(power, power)
        twice = _reduced(power + power, n)
        power, rest = ops.where(rest >= bit, twice, power), ops.where(rest >= bit, rest - bit, rest)
    left = times(_reduced(m, n), power)
    value = ops.where(size < b, size, ops.scalb(ops.where(left < 0.0, left + n, left), k))
    given = ops.isfinite(a) & (b > 0.0)
    return ops.where(given, upwards(has_sign(a), value, b), math.nan)


def _whole(x: Expr) -> tuple[Expr, Expr]:
    """The whole number m from 2**52 to 2**53 and the exponent k with x = m 2**k."""
    tiny = x < TINY
    normal = ops.where(tiny, x * 2.0**54, x)
    k = ops.exponent(normal) - ops.where(tiny, 54.0 + 52.0, 52.0)
    return ops.significand(normal) * 2.0**52, k


def _reduced(a: Expr, n: Expr) -> Expr:
    """a less n, 0 or -n, so that |a| <= n/2, for |a| <= 3n/2."""
    a = ops.where(a > 0.5 * n, a - n, a)
    return ops.where(a < -0.5 * n, a + n, a)


def _product_modulo(n: Expr) -> Callable[[Expr, Expr], Expr]:
    """A product of whole numbers up to n/2 in size modulo n.

    The second factor is taken in halves. With 26 bits of it, and of the quotient by n, all products
    of halves are exact, and so are their sums in this order.
    """
    n_high = ops.upper(n)
    n_low = n - n_high

    def part(a: Expr, b: Expr | float) -> Expr:
        a_high = ops.upper(a)
        q = ops.round(a * b / n)
        return ((a_high * b - q * n_high) + (a - a_high) * b) - q * n_low

    def times(a: Expr, b: Expr) -> Expr:
        high = ops.round(b * (1.0 / HALF))
        return _reduced(part(part(a, high), HALF) + part(a, b - high * HALF), n)

    return times
