"""Sums, products and quotients as a value and what its rounding lost: twice float64's digits.

A pair (high, low) stands for high + low. It is *rounded* if low is at most about a ULP of high:
`fast_sum` makes it so. The formulas hold in IEEE arithmetic, also where a product that is used once
is fused with a sum: all products whose errors matter are exact (Dekker 1971; Knuth, TAOCP 2).
"""

from __future__ import annotations

from typing import Any

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr


def within(x: Expr, low: float, high: float) -> Expr:
    """x limited to [low, high]; NaN stays NaN. CPUs have either choice as one instruction."""
    raised = ops.where(x < low, low, x)
    return ops.where(raised > high, high, raised)


def keep_tiny(value: Expr, x: Expr, tiny: float) -> Expr:
    """x itself where |x| < tiny, so that -0.0 and subnormals stay; else the value."""
    return ops.where(ops.abs(x) < tiny, x, value)


# Pairs.

Pair = tuple[Expr, Expr | float]


def fast_sum(a: Any, b: Any) -> Pair:
    """a + b rounded, and what was lost: |a| >= |b|, or a = 0, or both a whole of few units."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: Any, b: Any) -> Pair:
    """a + b rounded, and what was lost, for any a and b."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def square(a: Expr) -> Pair:
    """a * a: the square of the leading half of a, and the rest to 2**-79 of the whole."""
    high = ops.upper(a)
    return high * high, (a - high) * (a + high)


def product(a: Expr, b: Expr) -> Pair:
    """a * b: the product of the leading halves, and the rest to 2**-78 of the whole."""
    a_high, b_high = ops.upper(a), ops.upper(b)
    return a_high * b_high, a_high * (b - b_high) + (a - a_high) * b


def times(a: Pair, b: Pair) -> Pair:
    """a * b of rounded pairs, to 2**-77 of the whole, rounded."""
    high, low = product(a[0], b[0])
    return fast_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def scaled(a: Pair, factor: tuple[float, float]) -> Pair:
    """A rounded pair times a constant, given as its 26 leading bits and the rest; rounded."""
    high = ops.upper(a[0])
    low = (a[0] - high) * factor[0] + (a[0] * factor[1] + a[1] * factor[0])
    return fast_sum(high * factor[0], low)


def plus(a: Pair, b: Pair) -> Pair:
    """a + b; its low part may be as large as those of a and b."""
    total, lost = two_sum(a[0], b[0])
    return total, lost + (a[1] + b[1])


def choose(condition: Condition, a: Pair, b: Pair) -> Pair:
    """a where the condition holds, else b."""
    return ops.where(condition, a[0], b[0]), ops.where(condition, a[1], b[1])


def divide(a: Pair | tuple[float, float], b: Pair) -> Pair:
    """a / b with one division: half of the quotient's digits, and the rest to 2**-75 of the whole.

    b is rounded, 1/b normal, and |a| at least 2**-900 or 0.
    """
    inverse = ops.reciprocal(b[0])
    high = ops.upper(a[0] * inverse)
    b_high = ops.upper(b[0])
    left = (a[0] - high * b_high) - high * (b[0] - b_high)
    return high, (left + (a[1] - high * b[1])) * inverse


def root(a: Pair) -> Pair:
    """The square root of a rounded pair that is positive or 0: rounded, and the rest."""
    value = ops.sqrt(a[0])
    high, low = square(value)
    left = ((a[0] - high) - low) + a[1]
    return value, left / ops.where(a[0] > 0.0, 2.0 * value, 1.0)
