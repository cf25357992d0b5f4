"""Exponentials: 2**k times a polynomial, whose leading terms are summed without an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.limits import keep_tiny, within
from symgrad.mathlib.double.pair import Pair, fast_sum, square, two_sum

EXP: Final = coefficients("""
    0.5000000000000011 0.16666666666666413 0.04166666666652974 0.008333333333494286
    0.001388888894374431 0.00019841269507070113 2.4801492975479535e-05 2.755758579355825e-06
    2.763029434289545e-07 2.5000298539325195e-08
""")
"""(exp(r) - 1 - r)/r**2, |r| <= 0.3467: exp to 0.10 * 2**-53 of its value (tools/fit.py)."""

EXPM1: Final = coefficients("""
    0.5 0.16666666666666677 0.041666666666666505 0.008333333333321665 0.0013888888888962852
    0.00019841269886041515 2.4801587171657736e-05 2.755724429043053e-06 2.755740332087936e-07
    2.5109010500122315e-08 2.0875145739121365e-09
""")
"""The coefficients of the same function, by which expm1 is right to 0.02 * 2**-53 of its value."""

EXP2: Final = coefficients("""
    0.24022650695910122 0.05550410866482074 0.00961812910759696 0.0013333558146685226
    0.0001540353045408794 1.5252733547708842e-05 1.3215436601146852e-06 1.01781843207828e-07
    7.0735803719616804e-09 4.4363513626273165e-10
""")
"""(2**r - 1 - r ln 2)/r**2, |r| <= 1/2: exp2 to 0.04 * 2**-53."""

LN2: Final = (0.6931471805598903, 5.497923018708371e-14)
"""ln 2: its 42 leading bits, whose product with a whole number below 2**11 is exact; the rest."""
LN2_SHORT: Final = (0.6931471675634384, 1.2996506893889889e-08)
"""ln 2: its 26 leading bits, and the rest."""
INVERSE_LN2: Final = 1.0 / math.log(2.0)


def _reduced(x: Expr, low: Expr | float | None = None) -> tuple[Expr, Expr, Expr]:
    """k, h, rest of x + low = k ln 2 + (h - rest), k whole, h exact, |x| < 1400 (Cody & Waite)."""
    k = ops.round(x * INVERSE_LN2)
    h = x - k * LN2[0]
    rest = k * LN2[1] if low is None else k * LN2[1] - low
    return k, h, rest


def exp_parts(
    x: Expr, low: Expr | float | None = None, coefficients: Sequence[float] = EXP
) -> tuple[Expr, Pair]:
    """k and a pair p of exp(x + low) = 2**k p, |x| < 1400, low at most 2**-15; p is not rounded."""
    k, h, rest = _reduced(x, low)
    r = h - rest
    return k, _one_plus(h, (r * r) * polynomial(r, coefficients) - rest)


def _one_plus(h: Expr, w: Expr) -> Pair:
    """1 + h + w, |h| < 1, its high part 1 + h rounded."""
    high = 1.0 + h
    return high, (h - (high - 1.0)) + w


def exp2_parts(x: Expr, low: Expr | None = None) -> tuple[Expr, Pair]:
    """k and a pair p of 2**(x + low) = 2**k p, |x| < 2000, low at most 2**-30; p is not rounded."""
    k = ops.round(x)
    fraction = x - k
    high = ops.upper(fraction)
    h = high * LN2_SHORT[0]
    rest = fraction - high if low is None else (fraction - high) + low
    r = fraction if low is None else fraction + low
    w = (rest * math.log(2.0) + high * LN2_SHORT[1]) + (r * r) * polynomial(r, EXP2)
    return k, _one_plus(h, w)


def exp(x: Expr) -> Expr:
    """e**x = 2**k e**r, r = x - k ln 2, |r| <= ln(2)/2."""
    k, (high, low) = exp_parts(within(x, -746.0, 710.0))
    return ops.scalb(high + low, k)


def exp2(x: Expr) -> Expr:
    """2**k 2**r, k the whole number nearest to x and r = x - k."""
    k, (high, low) = exp2_parts(within(x, -1076.0, 1025.0))
    return ops.scalb(high + low, k)


def expm1(x: Expr) -> Expr:
    """2**k exp(r) - 1, at half its size so that 2**k does not overflow early."""
    k, h, rest = _reduced(within(x, -40.0, 710.0))
    r = h - rest
    high, low = square(r)
    cube = r * (high + low)
    total, lost = fast_sum(1.0, h)
    total, more = fast_sum(total, EXPM1[0] * high)
    low = (lost + more) + ((EXPM1[0] * low - rest) + cube * polynomial(r, EXPM1[1:]))
    high, lost = two_sum(ops.scalb(total, k - 1.0), -0.5)
    return keep_tiny(2.0 * (high + (lost + ops.scalb(low, k - 1.0))), x, 2.0**-54)


def neg_square_parts(x: Expr) -> tuple[Expr, Pair]:
    """k and a pair p of exp(-x**2) = 2**k p, |x| <= 28: the square of x's leading half is exact."""
    high = ops.upper(x)
    return exp_parts(-(high * high), (high - x) * (x + high))


def half_square_parts(x: Expr) -> tuple[Expr, Pair]:
    """k and a pair p of exp(-x**2/2) = 2**k p, |x| <= 39: as `neg_square_parts`."""
    high = ops.upper(x)
    return exp_parts(-0.5 * (high * high), (0.5 * (high - x)) * (x + high), EXPM1)


def exp_neg_square(x: Expr) -> Expr:
    """exp(-x**2), the square in two pieces."""
    k, (high, low) = neg_square_parts(within(x, -28.0, 28.0))
    return ops.scalb(high + low, k)


def exp_square(x: Expr) -> Expr:
    """exp(x**2), the square in two pieces."""
    x = within(x, -28.0, 28.0)
    high = ops.upper(x)
    k, (value, low) = exp_parts(within(high * high, 0.0, 720.0), (x - high) * (x + high))
    return ops.scalb(value + low, k)
