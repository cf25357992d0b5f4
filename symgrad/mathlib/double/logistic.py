"""The logistic function and what is made of it, from one exponential in two pieces."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import keep_nan
from symgrad.mathlib.double.exponential import EXPM1, exp_parts
from symgrad.mathlib.double.logarithm import log_sum_parts
from symgrad.mathlib.double.pair import Pair, choose, divide, fast_sum, two_sum

FAR = 800.0
"""From here on exp(-a) is 0."""


def size(x: Expr) -> Expr:
    """|x|, at most 800; NaN stays NaN."""
    a = ops.abs(x)
    return ops.where(a > FAR, FAR, a)


def decay(a: Expr, low: Expr | float = 0.0) -> tuple[Expr, Pair, Pair]:
    """k and p of exp(-a - low) = 2**k p, and that exponential, for a >= 0: rounded pairs."""
    k, parts = exp_parts(-a, -low, EXPM1)
    high, rest = fast_sum(*parts)
    return k, (high, rest), (ops.scalb(high, k), ops.scalb(rest, k))


def one_plus(e: Pair) -> Pair:
    """1 + e, e at most 1."""
    total, lost = fast_sum(1.0, e[0])
    return total, lost + e[1]


def share(left: Condition, p: Pair, e: Pair) -> Pair:
    """1/(1 + e), or on the left e/(1 + e), to be multiplied by 2**k there: e = 2**k p."""
    one = (ops.where(left, 0.0, 1.0), 0.0)
    return divide(choose(left, p, one), one_plus(e))


def raised(left: Condition, k: Expr, value: Expr) -> Expr:
    """The value, on the left times 2**k: a power of 2 that `decay` has made already."""
    return ops.where(left, ops.scalb(value, k), value)


def divide_twice(a: Pair, d: Pair) -> Pair:
    """a/d**2 with the one division that a/d takes."""
    return divide(fast_sum(*divide(a, d)), d)


def sigmoid(x: Expr) -> Expr:
    """1/(1 + e) for x >= 0, else e/(1 + e), e = exp(-|x|) in two pieces."""
    left = x < 0.0
    k, p, e = decay(size(x))
    high, low = share(left, p, e)
    return raised(left, k, high + low)


def logistic(x: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|x|) in two pieces."""
    k, p, e = decay(size(x))
    high, low = divide_twice(p, one_plus(e))
    return ops.scalb(high + low, k)


def softplus(x: Expr) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)), the logarithm in two pieces."""
    _, _, e = decay(size(x))
    high, low = log_sum_parts(*e)
    total, lost = two_sum(ops.where(x > 0.0, x, 0.0), high)
    return ops.where(x > FAR, x, total + (lost + low))


def _apart(a: Expr, b: Expr) -> tuple[tuple[Expr, Pair, Pair], Expr, Condition]:
    """`decay` of |a - b|, 0 where a = b; the larger; whether the difference is below 800."""
    first = a > b
    larger, smaller = ops.where(first, a, b), ops.where(first, b, a)
    apart, lost = two_sum(larger, -smaller)
    usable = apart < FAR
    apart = ops.where(a == b, 0.0, ops.where(usable, apart, FAR))
    return decay(apart, ops.where(usable, lost, 0.0)), larger, usable


def sigmoid_difference(a: Expr, b: Expr) -> Expr:
    """1/(1 + e) for a >= b, else e/(1 + e), e = exp(-|a - b|), all in two pieces."""
    (k, p, e), _, _ = _apart(a, b)
    left = a < b
    high, low = share(left, p, e)
    return keep_nan(raised(left, k, high + low), a, b)


def logistic_difference(a: Expr, b: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|a - b|), all in two pieces."""
    (k, p, e), _, _ = _apart(a, b)
    high, low = divide_twice(p, one_plus(e))
    return keep_nan(ops.scalb(high + low, k), a, b)


def logaddexp(a: Expr, b: Expr) -> Expr:
    """max(a, b) + log(1 + exp(-|a - b|)), difference, exponential and logarithm in two pieces."""
    (_, _, e), larger, usable = _apart(a, b)
    high, low = log_sum_parts(*e)
    total, lost = two_sum(larger, high)
    return keep_nan(ops.where(usable, total + (lost + low), larger + 0.0), a, b)
