"""The normal distribution, and gelu, which is made of it."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.double.activation import by_share, near_root
from symgrad.mathlib.double.error_function import weight
from symgrad.mathlib.double.exponential import half_square_parts
from symgrad.mathlib.double.limits import within
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

NORMAL: Final = (
    0.02394228040143266, -0.06649038006690355, 0.009973557009971885, -0.0011873282144809387,
    0.00011543467906842093, -9.444612991993213e-06, 6.658360681829713e-07, -4.098075149931051e-08,
    2.022059248045758e-09,
)  # fmt: skip
"""(Phi(x) - 1/2)/x - 3/8 in x**2, |x| <= 0.7: Phi to 0.10 * 2**-53 of its value (tools/fit.py)."""

NORMAL_TAIL: Final = (
    0.03719577171772043, -0.02300923310459607, -0.09637998589041437, 0.12890813544482432,
    -0.09526047896238411, 0.04436429044194615, -0.010512319259611873, -0.0012100600554162883,
    0.0015769785086103248, -0.00014330554385485867, -0.00020435492360945683, 3.78681538622411e-05,
    3.1558232982483544e-05, -6.03360582593108e-06, -5.89002784360684e-06, 5.997503404373209e-07,
    1.203308915095084e-06, 6.053463998704382e-08, -2.375723833010467e-07, -5.602235737307866e-08,
    3.946871957078254e-08, 1.6529202658272264e-08, -4.219680748219263e-09, -2.102552399010713e-09,
)  # fmt: skip
"""Phi(-a) exp(a**2/2)(1 + 2a) - 13/16 in t = (a - 4)/(a + 4), 0.7 <= a <= 39: to 0.03 * 2**-53."""

GELU_ROOT: Final = (
    -0.7517915246935645, 1.4956759177009883e-17, 0.43149399012327194, 2.190774977647835e-09,
)  # fmt: skip
"""Where gelu is least, and its second derivative there, each in two pieces."""
GELU_SLOPE: Final = (
    0.38828498299055186, -0.01819967639867108, -0.1140082332970792, -0.014771522148194133,
    0.019421679786962347, 0.00453922835280707, -0.0022395305615307273, -0.0007448223331843,
    0.00018585870147713645, 8.584490018036151e-05,
)  # fmt: skip
"""(gelu'(r + d)/d - gelu''(r))/d, r the root, |d| <= 1/8: gelu' to 0.09 * 2**-53."""

DENSITY: Final = (0.3989422768354416, 3.5659910885844774e-09)
"""1/sqrt(2 pi): its 26 leading bits, and the rest."""
NEAR: Final = 0.7
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
    """Phi(-a) exp(a**2/2) = W(t)/(1 + 2a), t = (a - 4)/(a + 4), for a >= 0.7."""
    w = weight(a, 4.0, 0.8125, NORMAL_TAIL)
    return fast_sum(*divide(w, two_sum(2.0 * a, 1.0)))


def _middle(x: Expr) -> Pair:
    """Phi(x) for |x| <= 0.7."""
    high, low = fast_sum(0.5, 0.5 * x)
    high, more = fast_sum(high, -0.125 * x)
    return high, (low + more) + x * polynomial(x * x, NORMAL)


def _distribution(x: Expr) -> tuple[Expr, Pair]:
    """j and a pair q of Phi(x) = 2**j q."""
    a = _size(x)
    k, parts = half_square_parts(a)
    tail = times(_mills(a), fast_sum(*parts))
    above, lost = fast_sum(1.0, -ops.scalb(tail[0], k))
    right = (above, lost - ops.scalb(tail[1], k))
    left = x < -NEAR
    return ops.where(left, k, 0.0), choose(
        left, tail, choose(a < NEAR, fast_sum(*_middle(x)), right)
    )


def normal_cdf(x: Expr) -> Expr:
    """The tail exp(-a**2/2) W(a), a = |x|, or 1 less it; a polynomial for a < 0.7."""
    j, (high, low) = _distribution(x)
    return ops.scalb(high + low, j)


def gelu(x: Expr) -> Expr:
    """x times the normal distribution function in two pieces."""
    return ops.where(x > FAR, x, by_share(within(x, -FAR, FAR), *_distribution(x)))


def gelu_slope(x: Expr) -> Expr:
    """Phi(x) + x phi(x): 1 + exp(-a**2/2)(a c - W(a)), a = |x|; for a < 0.7 Phi by a polynomial."""
    a = _size(x)
    k, parts = half_square_parts(a)
    near, left, side = a < NEAR, x < -NEAR, ops.copysign(1.0, x)
    line, mills = scaled((a, 0.0), DENSITY), _mills(a)
    rest = fast_sum(*plus(line, (-mills[0], -mills[1])))
    high, low = times(choose(near, line, rest), fast_sum(*parts))
    high, low = side * ops.scalb(high, k), side * ops.scalb(low, k)
    one = (ops.where(near, 0.0, 1.0), 0.0)
    total, lost = plus(choose(near, _middle(x), one), (high, low))
    return near_root(ops.where(left, high + low, total + lost), x, GELU_ROOT, GELU_SLOPE)
