"""The normal distribution, and gelu, which is made of it."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.activation import by_share, near_root
from symgrad.mathlib.double.error_function import weight
from symgrad.mathlib.double.exponential import half_square_parts
from symgrad.mathlib.double.limits import within
from symgrad.mathlib.double.logistic import raised
from symgrad.mathlib.double.pair import (
    Pair,
    choose,
    divide,
    fast_sum,
    plus,
    scaled,
    times,
    two_sum,
)

NORMAL: Final = coefficients("""
    0.02394228040143268 -0.06649038006690544 0.009973557010035546 -0.0011873282154764339
    0.00011543468758265635 -9.444656087582893e-06 6.659687811378704e-07 -4.1225425401171976e-08
    2.271735467018308e-09 -1.1137730674977512e-10 4.247782766197899e-12
""")
"""(Phi(x) - 1/2)/x - 3/8 in x**2, |x| <= 7/8: Phi to 0.07 * 2**-53 of its value (tools/fit.py)."""

NORMAL_TAIL: Final = coefficients("""
    0.03719577171772043 -0.023009233104596058 -0.09637998589041442 0.12890813544482277
    -0.09526047896237878 0.04436429044202294 -0.01051231925981391 -0.0012100600571395453
    0.0015769785125956438 -0.00014330552286992592 -0.0002043549698637822 3.786800310124002e-05
    3.155856894636516e-05 -6.032948625520679e-06 -5.891596190866846e-06 5.980598923025367e-07
    1.2080069967783605e-06 6.273710605985942e-08 -2.4629313733126327e-07 -5.633670617161159e-08
    4.859391145698534e-08 1.3989932264857736e-08 -8.33229281867373e-09
""")
"""Phi(-a) exp(a**2/2)(1 + 2a) - 13/16 in t = (a - 4)/(a + 4), 7/8 <= a <= 39: to 0.04 * 2**-53."""

GELU_ROOT: Final = coefficients("""
    -0.7517915246935645 1.4956759177009883e-17 0.43149399012327194 2.190774977647835e-09
""")
"""Where gelu is least, and its second derivative there, each in two pieces."""
GELU_SLOPE: Final = coefficients("""
    0.38828498299055186 -0.01819967639867108 -0.1140082332970792 -0.014771522148194133
    0.019421679786962347 0.00453922835280707 -0.0022395305615307273 -0.0007448223331843
    0.00018585870147713645 8.584490018036151e-05
""")
"""(gelu'(r + d)/d - gelu''(r))/d, r the root, |d| <= 1/8: gelu' to 0.09 * 2**-53."""

DENSITY: Final = (0.3989422768354416, 3.5659910885844774e-09)
"""1/sqrt(2 pi): its 26 leading bits, and the rest."""
NEAR: Final = 0.875
FAR: Final = 39.0
"""From here on exp(-a**2/2) is 0."""


def bell(x: Expr) -> Expr:
    """exp(-x**2/2), the square in two pieces."""
    k, (high, low) = half_square_parts(within(x, -FAR, FAR))
    return ops.scalb(high + low, k)


def _size(x: Expr) -> Expr:
    """|x|, at most 39; NaN stays NaN."""
    a = ops.abs(x)
    return ops.where(a > FAR, FAR, a)


def _mills(a: Expr) -> Pair:
    """Phi(-a) exp(a**2/2) = W(t)/(1 + 2a), t = (a - 4)/(a + 4), for a >= 7/8."""
    w = weight(a, 4.0, 0.8125, NORMAL_TAIL)
    return fast_sum(*divide(w, two_sum(2.0 * a, 1.0)))


def _middle(x: Expr) -> Pair:
    """Phi(x) for |x| <= 7/8."""
    high, low = fast_sum(0.5, 0.5 * x)
    high, more = two_sum(high, -0.125 * x)
    return high, (low + more) + x * polynomial(x * x, NORMAL)


def _distribution(x: Expr) -> tuple[Condition, Expr, Pair]:
    """Whether x is far left, k, and a pair q: Phi(x) is 2**k q there, and else q."""
    a = _size(x)
    k, parts = half_square_parts(a)
    tail = times(_mills(a), fast_sum(*parts))
    above, lost = fast_sum(1.0, -ops.scalb(tail[0], k))
    right = (above, lost - ops.scalb(tail[1], k))
    left = x <= -NEAR
    return left, k, choose(left, tail, choose(a < NEAR, fast_sum(*_middle(x)), right))


def normal_cdf(x: Expr) -> Expr:
    """The tail exp(-a**2/2) W(a), a = |x|, or 1 less it; a polynomial for a < 7/8."""
    left, k, (high, low) = _distribution(x)
    return raised(left, k, high + low)


def gelu(x: Expr) -> Expr:
    """x times the normal distribution function in two pieces."""
    return ops.where(x > FAR, x, by_share(within(x, -FAR, FAR), *_distribution(x)))


def gelu_slope(x: Expr) -> Expr:
    """1 + exp(-a**2/2)(a c - W(a)), a = |x|, less 1 for x < 0; Phi a polynomial for a < 7/8."""
    a = _size(x)
    k, parts = half_square_parts(a)
    near, left, side = a < NEAR, x <= -NEAR, ops.copysign(1.0, x)
    line, mills = scaled((a, 0.0), DENSITY), _mills(a)
    rest = fast_sum(*plus(line, (-mills[0], -mills[1])))
    high, low = times(choose(near, line, rest), fast_sum(*parts))
    high, low = side * ops.scalb(high, k), side * ops.scalb(low, k)
    one = (ops.where(near, 0.0, 1.0), 0.0)
    total, lost = plus(choose(near, _middle(x), one), (high, low))
    return near_root(ops.where(left, high + low, total + lost), x, GELU_ROOT, GELU_SLOPE)
