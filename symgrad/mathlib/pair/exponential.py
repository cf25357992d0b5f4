"""Exponentials, logarithms and hyperbolic functions of pairs.

exp(x) is 2**k exp(r), r = x - k ln 2 from products that are exact; log(x) is k ln 2 plus a series
in s = f/(2 + f) for x = 2**k (1 + f). The polynomials are float64's; of their terms those below
2**-22 of the sum are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import polynomial as in_float32
from symgrad.mathlib.double.exponential import EXP, LOG
from symgrad.mathlib.pair.arithmetic import fast_sum, finished, product, scaled, split, two_sum
from symgrad.mathlib.pair.expression import Paired, call, constant, pair

LN2: Final = split(math.log(2.0), (16, 16))
"""ln 2 in parts, of which a whole number below 2**8 is an exact multiple."""
LOG10_2: Final = split(math.log10(2.0), (16, 16))
"""log10(2), in the same way."""

FAR: Final = 110.0
"""From here on exp(x) is infinite, and exp(-x) is 0."""
OVER: Final = 89.6
"""exp(x)/4 is a number, and sinh(x) is infinite."""


def polynomial(x: Paired, coefficients: Sequence[float], exact: int) -> Paired:
    """c0 + c1 x + ... by Horner's rule: the first so many as pairs, the others in float32."""
    value = pair(in_float32(x.high, coefficients[exact:]))
    for c in reversed(coefficients[:exact]):
        value = call(ops.fma, value, x, constant(x, c))
    return value


def choose(condition: object, a: Paired, b: Paired) -> Paired:
    """a where the condition holds, else b."""
    return call(ops.where, condition, a, b)


def keep_tiny(value: Paired, x: Paired, tiny: float) -> Paired:
    """x itself where |x| < tiny, so that -0.0 stays; else the value."""
    return choose(ops.abs(x.high) < tiny, x, value)


def with_sign(value: Paired, x: Paired) -> Paired:
    """A value that is not negative, with the sign of x."""
    turn = ops.copysign(1.0, x.high)
    return pair(value.high * turn, value.low * turn)


def _float(like: Paired, value: float) -> Expr:
    return Expr(like.graph, like.graph.constant(value))


# Exponentials.


def _within(x: Paired, low: float, high: float) -> Paired:
    """x limited to [low, high]; NaN stays NaN, though drivers make minima of selections."""
    near = ops.where(x.high > high, high, ops.where(x.high < low, low, x.high))
    near = ops.where(ops.isnan(x.high), x.high, near)
    return pair(near, ops.where(near == x.high, x.low, 0.0))


def _reduced(x: Paired, rest: Expr | float = 0.0) -> tuple[Expr, Paired]:
    """k, r of x + rest = k ln 2 + r, k whole, |r| <= ln(2)/2: the first difference is exact."""
    k = ops.round(x.high * (1.0 / math.log(2.0)))
    first = ops.opaque(x.high - k * LN2[0])
    second, lost = two_sum(first, x.low)
    third, more = two_sum(second, ops.opaque(k * -LN2[1]))
    return k, pair(*fast_sum(third, ((lost + more) + rest) - k * LN2[2]))


def _slope(r: Paired) -> Paired:
    """(exp(r) - 1)/r, |r| < 0.35."""
    return call(ops.fma, polynomial(r, EXP, 5), r, constant(r, 1.0))


def _power(x: Paired, rest: Expr | float = 0.0, shift: float = 0.0) -> Paired:
    """exp(x + rest) 2**shift, |x| <= 110."""
    k, r = _reduced(x, rest)
    return scaled(call(ops.fma, _slope(r), r, constant(r, 1.0)), k + shift)


def exp(x: Paired) -> Paired:
    """e**x = 2**k e**r, r = x - k ln 2, |r| <= ln(2)/2."""
    return _power(_within(x, -FAR, FAR))


def exp2(x: Paired) -> Paired:
    """2**k e**r, k the whole number nearest to x and r = (x - k) ln 2."""
    x = _within(x, -200.0, 200.0)
    k = ops.round(x.high)
    r = pair(*fast_sum(x.high - k, x.low)) * math.log(2.0)
    return scaled(call(ops.fma, _slope(r), r, constant(r, 1.0)), k)


def _quarter(x: Paired) -> Paired:
    """(exp(x) - 1)/4, which does not overflow before exp(x)/2 does."""
    k, r = _reduced(x)
    k = k - 2.0
    less = pair(*two_sum(ops.power_of_two(k), _float(r, -0.25)))
    return scaled(_slope(r) * r, k) + less


def expm1(x: Paired) -> Paired:
    """2**k (exp(r) - 1) and 2**k - 1, a quarter of both."""
    return keep_tiny(_times_power(_quarter(_within(x, -40.0, OVER)), 4.0), x, 2.0**-60)


def _times_power(x: Paired, factor: float) -> Paired:
    """x times a power of two."""
    high = x.high * factor
    return pair(high, ops.where(ops.isfinite(high), x.low * factor, 0.0))


def _square(x: Paired, factor: float) -> tuple[Paired, Expr]:
    """x**2 times a power of two, as a pair and what that leaves of it."""
    high, lost = product(x.high, x.high * factor)
    cross, less = product(x.high * (2.0 * factor), x.low)
    middle, rest = two_sum(lost, cross)
    return pair(*fast_sum(high, middle)), rest + (less + x.low * (x.low * factor))


def _of_square(x: Paired, factor: float) -> Paired:
    """exp(factor x**2), the square of three numbers."""
    inside = ops.abs(x.high) < 15.0
    square, rest = _square(choose(inside, x, constant(x, 15.0)), factor)
    return choose(ops.isnan(x.high), x, _power(_within(square, -FAR, FAR), rest))


def exp_neg_square(x: Paired) -> Paired:
    """exp(-x**2), the square of three numbers."""
    return _of_square(x, -1.0)


def exp_square(x: Paired) -> Paired:
    """exp(x**2), the square of three numbers."""
    return _of_square(x, 1.0)


def bell(x: Paired) -> Paired:
    """exp(-x**2/2), the square of three numbers."""
    return _of_square(x, -0.5)


# Hyperbolic functions.


def _size(x: Paired, most: float) -> Paired:
    """|x|, but no more than a limit."""
    return _within(call(ops.abs, x), 0.0, most)


def sinh(x: Paired) -> Paired:
    """(t + t/(1 + t))/2 with the sign of x, t = exp(|x|) - 1."""
    t = _quarter(_size(x, OVER))
    half = t + t / (_times_power(t, 4.0) + 1.0)
    return keep_tiny(with_sign(_times_power(half, 2.0), x), x, 2.0**-60)


def cosh(x: Paired) -> Paired:
    """(exp(a) + exp(-a))/2, a = |x|."""
    quarter = _power(_size(x, FAR), shift=-2.0)
    return _times_power(quarter + 0.0625 / quarter, 2.0)


def tanh(x: Paired) -> Paired:
    """-t/(2 + t) with the sign of x, t = exp(-2|x|) - 1."""
    t = call(ops.expm1, _times_power(_size(x, 30.0), -2.0))
    return keep_tiny(with_sign(-t / (t + 2.0), x), x, 2.0**-60)


def asinh(x: Paired) -> Paired:
    """log(1 + a + a**2/(1 + sqrt(1 + a**2))) with the sign of x, a = |x|."""
    a = call(ops.abs, x)
    large = a.high > 2.0**30
    b = choose(large, constant(x, 1.0), a)
    square = b * b
    value = b + square / (1.0 + call(ops.sqrt, 1.0 + square))
    return keep_tiny(with_sign(_log_or_double(a, large, value), x), x, 2.0**-60)


def _log_or_double(a: Paired, large: object, value: Paired) -> Paired:
    """log(2 a) where a is large, else log(1 + value)."""
    twice = call(ops.log, choose(large, a, constant(a, 1.0))) + math.log(2.0)
    return choose(large, twice, call(ops.log1p, value))


def acosh(x: Paired) -> Paired:
    """log(1 + t + sqrt(t (t + 2))), t = x - 1; NaN for x < 1."""
    large = x.high > 2.0**30
    t = choose(large, constant(x, 1.0), x - 1.0)
    value = _log_or_double(x, large, t + call(ops.sqrt, t * (t + 2.0)))
    return choose(x.high < 0.0, constant(x, math.nan), value)


def atanh(x: Paired) -> Paired:
    """log(1 + 2a/(1 - a))/2 with the sign of x, a = |x|."""
    a = call(ops.abs, x)
    value = call(ops.log1p, _times_power(a, 2.0) / (1.0 - a))
    return keep_tiny(with_sign(_times_power(value, 0.5), x), x, 2.0**-60)


# Logarithms.


def _split(x: Paired) -> tuple[Expr, Paired]:
    """k, f of x = 2**k (1 + f), 1 + f in (sqrt(1/2), sqrt(2)], for a finite x > 0."""
    bits = ops.where(x.high < 2.0**-60, 60.0, ops.where(x.high > 2.0**60, -60.0, 0.0))
    scale = ops.power_of_two(bits)
    high, low = x.high * scale, x.low * scale
    k = ops.exponent(high) + ops.where(ops.significand(high) > math.sqrt(2.0), 1.0, 0.0)
    unit = ops.power_of_two(-k)
    return k - bits, pair(*fast_sum(high * unit - 1.0, low * unit))


def _series(f: Paired) -> Paired:
    """log(1 + f) = s (2 + s**2 P(s**2)), s = f/(2 + f), |s| < 0.172."""
    s = f / (f + 2.0)
    z = s * s
    return s * call(ops.fma, polynomial(z, LOG, 3), z, constant(z, 2.0))


def _multiple(k: Expr, unit: Sequence[float]) -> Paired:
    """k times a number in three parts."""
    high, low = fast_sum(k * unit[0], k * unit[1])
    return pair(*fast_sum(high, low + k * unit[2]))


def _at_ends(value: Paired, x: Paired) -> Paired:
    """A logarithm's value, but -inf of 0, inf of inf, NaN of NaN and of negative numbers."""
    outside = ops.where(x.high == 0.0, -math.inf, ops.where(x.high < 0.0, math.nan, x.high))
    return choose((x.high > 0.0) & (x.high < math.inf), value, pair(outside))


def log(x: Paired) -> Paired:
    """k ln 2 plus the series of f, x = 2**k (1 + f)."""
    k, f = _split(x)
    return _at_ends(_multiple(k, LN2) + _series(f), x)


def log2(x: Paired) -> Paired:
    """k plus log(1 + f)/ln 2."""
    k, f = _split(x)
    return _at_ends(call(ops.fma, _series(f), constant(x, 1.0 / math.log(2.0)), pair(k)), x)


def log10(x: Paired) -> Paired:
    """As `log2`, to base 10: that of 2 in three parts."""
    k, f = _split(x)
    of_f = constant(x, 1.0 / math.log(10.0))
    return _at_ends(call(ops.fma, _series(f), of_f, _multiple(k, LOG10_2)), x)


def log1p(x: Paired) -> Paired:
    """k ln 2 plus the series of f, 1 + x = 2**k (1 + f); f = x next to 0."""
    u = x + 1.0
    near = ops.abs(x.high) < 0.28
    k, f = _split(u)
    f = choose(near, x, f)
    value = _at_ends(_multiple(ops.where(near, 0.0, k), LN2) + _series(f), u)
    return keep_tiny(value, x, 2.0**-60)


# The cube root, and decay.


def cbrt(x: Paired) -> Paired:
    """Newton's step from float32's y: y + (x - y**3)/(3 y**2)."""
    y = ops.opaque(ops.cbrt(x.high))
    square = pair(*product(y, y))
    left = x - square * pair(y)
    usable = (x.high != 0.0) & ops.isfinite(x.high)
    step = (left.high + left.low) / (3.0 * ops.where(usable, square.high, 1.0))
    return finished(y, ops.where(usable, step, 0.0), y)


def decay_between(a: Paired, b: Paired) -> Paired:
    """exp(-|a - b|), the difference as three numbers; 1 where a = b."""
    below = call(ops.lt, a, b)
    p, q = choose(below, a, b), choose(below, b, a)
    high, lost = two_sum(p.high, -q.high)
    low, less = two_sum(p.low, -q.low)
    middle, rest = two_sum(lost, low)
    apart = choose(high > -FAR, pair(*fast_sum(high, middle)), pair(high))
    apart = choose(call(ops.eq, a, b), constant(a, 0.0), apart)
    return _power(_within(apart, -FAR, 0.0), ops.where(high > -FAR, rest + less, 0.0))
