"""The slopes of distances and angles in the plane, from a sum of squares in two pieces."""

from __future__ import annotations

import math

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan
from symgrad.mathlib.double.logistic import divide_twice
from symgrad.mathlib.double.pair import Pair, divide, fast_sum, root, square, times, two_sum

Parts = tuple[Expr, Expr, Expr, Pair]
"""k, a and b divided by 2**k, and the sum of their squares."""


def _scaled(a: Expr, b: Expr) -> Parts:
    """The parts of (a, b), the larger in ±[1, 2); at (0, 0) and at infinity of 0 and 0 over 1."""
    u, v = ops.abs(a), ops.abs(b)
    larger, smaller = ops.where(u > v, u, v), ops.where(u > v, v, u)
    usable = (larger > 0.0) & (larger < math.inf)
    k = ops.exponent(larger)

    def shifted(x: Expr, otherwise: float = 0.0) -> Expr:
        return ops.where(usable, ops.scalb(x, -k), otherwise)

    first, second = square(shifted(larger, 1.0)), square(shifted(smaller))
    total, lost = fast_sum(first[0], second[0])
    return k, shifted(a), shifted(b), fast_sum(total, lost + (first[1] + second[1]))


def real_reciprocal(a: Expr, b: Expr) -> Expr:
    """a/(a**2 + b**2), both scaled by the same 2**-k."""
    k, u, _, total = _scaled(a, b)
    high, low = divide((u, 0.0), total)
    return keep_nan(ops.copysign(ops.scalb(high + low, -k), a), a, b)


def real_reciprocal_square(a: Expr, b: Expr) -> Expr:
    """(a - b)(a + b)/(a**2 + b**2)**2, in the same way."""
    k, u, v, total = _scaled(a, b)
    high, low = divide_twice(times(two_sum(u, -v), two_sum(u, v)), total)
    return keep_nan(ops.scalb(ops.scalb(high + low, -k), -k), a, b)


def direction(a: Expr, b: Expr) -> Expr:
    """a/sqrt(a**2 + b**2), in the same way."""
    _, u, _, total = _scaled(a, b)
    high, low = divide((u, 0.0), fast_sum(*root(total)))
    value = ops.where(ops.isinf(a), 1.0, high + low)
    return keep_nan(ops.copysign(value, a), a, b)
