"""The error function and its complement, which keeps its digits in the tail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.exponential import neg_square_parts
from symgrad.mathlib.double.pair import Pair, divide, fast_sum, times, two_sum

ERF: Final = coefficients("""
    0.12837916709551256 -0.37612638903183465 0.11283791670924823 -0.026866170632717665
    0.005223977370343853 -0.0008548297525307031 0.0001205332434104445 -1.4845584185908674e-05
    1.4723218425334932e-06
""")
"""erf(x)/x - 1 in x**2, |x| <= 1/2: erf to 0.13 * 2**-53 of its value (tools/fit.py)."""

ERFC: Final = coefficients("""
    0.0030080582697296528 -0.1356211061245812 -0.04756229435345117 0.12964515870276397
    -0.11927366341527552 0.06830802734385698 -0.02377051491960597 0.0025293918182126636
    0.0018886903725633748 -0.0007798322945394403 -0.0001051599025606537 0.00012509950458508795
    4.949954739428285e-06 -2.0101265929136506e-05 -7.328233848952975e-07 3.4745919205832055e-06
    3.589862554632005e-07 -6.211891298111857e-07 -1.4321946903126654e-07 1.0790608853831677e-07
    4.1352088286917145e-08 -1.7944548635636388e-08 -6.7897453972482876e-09 2.5334759043772427e-09
""")
"""erfc(a) exp(a**2) (1 + 2a) - 5/4 in t = (a - 3)/(a + 3), 0.5 <= a <= 28: to 0.03 * 2**-53."""


def _near(x: Expr) -> Expr:
    """erf(x) - x for |x| <= 1/2."""
    return x * polynomial(x * x, ERF)


def weight(a: Expr, middle: float, leading: float, coefficients: Sequence[float]) -> Pair:
    """W(t) less its leading constant, plus it: a rounded pair, t = (a - middle)/(a + middle)."""
    t, t_rest = divide(two_sum(a, -middle), two_sum(a, middle))
    slope = polynomial(t + t_rest, coefficients[1:])
    slope_high = ops.upper(slope)
    rest = slope_high * t_rest + (slope - slope_high) * (t + t_rest)
    w, lost = fast_sum(leading, slope_high * t)
    return fast_sum(w, (lost + coefficients[0]) + rest)


def _tail(a: Expr) -> Pair:
    """erfc(a) = exp(-a**2) W(t)/(1 + 2a), t = (a - 3)/(a + 3), for a >= 1/2; 0 from a = 28 on."""
    a = ops.where(a > 28.0, 28.0, a)
    w = weight(a, 3.0, 1.25, ERFC)
    k, e = neg_square_parts(a)
    above = times(w, e)
    q = fast_sum(*divide(above, two_sum(2.0 * a, 1.0)))
    return ops.scalb(q[0], k), ops.scalb(q[1], k)


def erf(x: Expr) -> Expr:
    """A polynomial for |x| < 1/2; 1 - erfc(|x|) with the sign of x beyond."""
    a = ops.abs(x)
    near = ops.where(a < 2.0**-30, x * (2.0 / math.sqrt(math.pi)), x + _near(x))
    tail, rest = _tail(a)
    high, low = fast_sum(1.0, -tail)
    return keep_nan(ops.where(a < 0.5, near, ops.copysign(high + (low - rest), x)), x)


def erfc(x: Expr) -> Expr:
    """1 - erf(x) for |x| < 1/2; beyond, exp(-a**2) W(a), a = |x|, and 2 minus that for x < 0."""
    a = ops.abs(x)
    tail, rest = _tail(a)
    far = ops.where(x < 0.0, 2.0 - tail, tail + rest)
    high, low = fast_sum(1.0, -x)
    return keep_nan(ops.where(a < 0.5, high + (low - _near(x)), far), x)
