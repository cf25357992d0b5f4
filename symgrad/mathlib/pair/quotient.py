"""Remainders of a division of pairs: multiples are taken off from the left, 23 bits at a time.

The products of a multiple below 2**24 with both parts of a divisor are exact, and so are their
differences from a number of 48 bits: remainders by numbers of 48 bits are exact, however large the
quotient is. By a pair with zeros between its parts they are so for quotients below 2**22.
"""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import has_sign
from symgrad.mathlib.pair.arithmetic import product, scaled
from symgrad.mathlib.pair.exponential import choose
from symgrad.mathlib.pair.expression import Paired, call, constant, pair

NEAR: Final = 2.0**22
"""Quotients below it are off by less than one, also on devices that divide with 3 ULP."""
STEP: Final = 20.0
"""The bits that are taken off at a time, at least."""
STEPS: Final = 13
"""STEP * STEPS is more than the exponents of normal numbers are apart."""


def _left(a: Paired, b: Paired) -> Paired:
    """a - b floor(a/b), 0 <= a < `NEAR` b."""
    q = ops.floor(a.high / b.high)
    r = (a - pair(*product(q, b.high))) - pair(*product(q, b.low))
    r = choose(r.high < 0.0, r + b, r)
    return choose(call(ops.le, b, r), r - b, r)


def _upwards(x: Paired, r: Paired, b: Paired) -> Paired:
    """r, a remainder of |x| by b, as x's: b less it if x is negative, and is no multiple of b."""
    return choose(has_sign(x.high) & (r.high > 0.0), b - r, r)


def modulus(a: Paired, b: Paired) -> Paired:
    """a - b floor(a/b), b >= 0; far_modulus where the quotient is large."""
    size = call(ops.abs, a)
    far = (size.high >= NEAR * b.high) | ops.isinf(b.high)
    return choose(far, call(ops.far_modulus, a, b), _upwards(a, _left(size, b), b))


def far_modulus(a: Paired, b: Paired) -> Paired:
    """a - b floor(a/b), b >= 0, of numbers of any size, by multiples of b times powers of two."""
    size = call(ops.abs, a)
    given = ops.isfinite(a.high) & (b.high > 0.0)
    finite = given & ops.isfinite(b.high)
    n = choose(finite, b, constant(a, 1.0))
    r = choose(finite, size, constant(a, 0.0))
    apart = ops.exponent(r.high) - ops.exponent(n.high)
    for k in range(1, STEPS + 1):
        r = _left(r, scaled(n, _above(apart - k * STEP)))
    r = choose(ops.isinf(b.high), size, r)
    return choose(given, _upwards(a, r, b), constant(a, math.nan))


def _above(x: Expr) -> Expr:
    """x, or 0 if it is negative."""
    return ops.where(x > 0.0, x, 0.0)
