"""The error function, in the plane that of Faddeeva, and the normal distribution.

Their complements, hazards and inverses keep their digits in the tails.
"""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import Coefficients, coefficients, keep_nan, polynomial
from symgrad.mathlib.exponential import Parts, gaussian
from symgrad.mathlib.faddeeva import Digits, derivative

ERF: Final = coefficients("""
    0.12837917 -0.37612626 0.112835854 -0.026853813 0.0051883277 -0.00080101937 7.8538615e-05
""")
"""erf(x)/x - 1 in x**2, |x| <= 1: erf to 0.05 * 2**-24 of its value (tools/fit.py)."""

ERFC_TAIL: Final = coefficients("""
    0.10516715 -0.23768087 -0.095556 0.0139009105 0.025391726 0.01003009 -0.00404559 0.0037091272
    -0.012174332 0.0054495903
""")
"""erfc(a) exp(a**2) (a + 1) - 3/4 in t = (a - 1)/(a + 1), 0.81 <= a <= 10.1: to 0.15 * 2**-24."""

NORMAL_TAIL: Final = coefficients("""
    0.117342 -0.19509952 -0.057495736 0.017898822 0.017653942 0.0038953284 -0.0024539155
    -0.0017041647 -0.0033904072 0.0022997737
""")
"""Phi(-a) exp(a**2/2) (a + 3/2) - 1/2 in t = (a - 3/2)/(a + 3/2), 1.145 <= a <= 14.4: to
0.12 * 2**-24."""

FAR: Final = 0.81
"""From here on erfc is computed itself, not from erf."""


def _near(x: Expr) -> Expr:
    """erf(x) for |x| <= 1; for a tiny x the product with the polynomial would be subnormal."""
    value = x + x * polynomial(x * x, ERF)
    return ops.where(ops.abs(x) < 1e-4, x * (2.0 / math.sqrt(math.pi)), value)


def _tail(a: Expr, shift: float, middle: float, coefficients: Coefficients) -> Parts:
    """(middle + P(t))/(a + shift), t = (a - shift)/(a + shift), in two parts.

    The second is what the first leaves of the dividend, which is not rounded for it, over the
    divisor and what was lost in its rounding: devices may be off by 2 ULP.
    """
    below = ops.opaque(a + shift)
    lost = a - ops.opaque(below - shift)
    r = ops.reciprocal(below)
    apart = polynomial((a - shift) * r, coefficients)
    ratio = ops.opaque((middle + apart) * r)
    left = ops.opaque(middle - ratio * below) + (apart - ratio * lost)
    return ratio, left * r


def _far_erfc(a: Expr) -> Expr:
    """erfc(a) = exp(-a**2) W(t)/(a + 1) for a >= 0.81."""
    tail = _tail(ops.where(a < 10.1, a, 10.1), 1.0, 0.75, ERFC_TAIL)
    return ops.where(a > 10.3, 0.0, gaussian(a, 1.0, tail))


def erf(x: Expr) -> Expr:
    """A polynomial for |x| < 1; 1 - erfc(|x|) with the sign of x beyond."""
    a = ops.abs(x)
    return keep_nan(ops.where(a < 1.0, _near(x), ops.copysign(1.0 - _far_erfc(a), x)), x)


def erfc(x: Expr) -> Expr:
    """1 - erf(x) for |x| < 0.81; beyond, exp(-a**2) W(a), a = |x|, and 2 minus that for x < 0."""
    a = ops.abs(x)
    tail = _far_erfc(a)
    far = ops.where(x < 0.0, 2.0 - tail, tail)
    return keep_nan(ops.where(a < FAR, 1.0 - _near(x), far), x)


def normal_cdf(x: Expr) -> Expr:
    """(1 + erf(x/sqrt(2)))/2 for |x| < 1.145; beyond, exp(-a**2/2) W(a), a = |x|, or 1 less it."""
    a = ops.abs(x)
    tail = _tail(ops.where(a < 14.4, a, 14.4), 1.5, 0.5, NORMAL_TAIL)
    tail = ops.where(a > 14.5, 0.0, gaussian(a, 0.5, tail))
    far = ops.where(x < 0.0, tail, 1.0 - tail)
    near = 0.5 + 0.5 * _near(x * math.sqrt(0.5))
    return keep_nan(ops.where(a < math.sqrt(2.0) * FAR, near, far), x)


HAZARD: Final = coefficients("""
    0.19859192 -0.84153867 0.017163316 0.18569702 -0.025446642 -0.05461583 0.0077895233 0.018319778
    -0.0012389937 -0.006082733 -0.00010756483 0.0016380746 7.522152e-05 -0.00024450905
""")
"""(phi(a)/Phi(-a) - a)(a + 3) - 3/2 in t = (a - 3)/(a + 3), a >= 0 (tools/fit.py)."""

INVERSE_MIDDLE: Final = coefficients("""
    1.6536546 0.24015817 -0.00603373 -0.0007406877 0.00018679966 -1.3891456e-05 -1.3919511e-06
    4.263099e-07 -2.4208955e-08 -4.638631e-09 6.377707e-10
""")
"""erfinv(x)/x in w - 25/8, w = -log(1 - x**2) <= 25/4."""

INVERSE_TAIL: Final = coefficients("""
    0.93347585 0.11825327 0.021509534 -0.19178247 0.07584893 0.4695471 -1.0771779 1.0230513
    -0.3815967
""")
"""erfinv(x)/s in (s - 5/2)/(s + 5/2), s = sqrt(w), 25/4 <= w <= 106."""

LOG_ROOT: Final = 0.5 * math.log(2.0 * math.pi)
DENSITY: Final = 1.0 / math.sqrt(2.0 * math.pi)


def excess(a: Expr, coefficients: Coefficients) -> Expr:
    """phi(a)/Phi(-a) - a for a >= 0, which falls from 0.8 as 1/a does."""
    r = 1.0 / (a + 3.0)
    t = ops.where(a < 2.0**60, (a - 3.0) * r, 1.0)
    return (1.5 + polynomial(t, coefficients)) * r


def log_distribution(x: Expr, coefficients: Coefficients) -> Expr:
    """-a**2/2 - log(sqrt(2 pi) hazard) for x = -a <= -1/4, log(1 - Phi(-x)) above."""
    a = ops.abs(x)
    hazard = a + excess(a, coefficients)
    left = -0.5 * (a * a) - (LOG_ROOT + ops.log(hazard))
    right = ops.log1p(-ops.normal_cdf(-x))
    return keep_nan(ops.where(x > -0.25, right, left), x)


def hazard_excess(x: Expr, coefficients: Coefficients) -> Expr:
    """x + phi(x)/Phi(x): a polynomial's for x <= 0; above, by the density."""
    a = ops.abs(x)
    left = excess(a, coefficients)
    right = a + (DENSITY * ops.bell(a)) / ops.normal_cdf(a)
    return keep_nan(ops.where(x > 0.0, right, left), x)


def log_ndtr(x: Expr) -> Expr:
    """-x**2/2 less a logarithm for x <= -1/4, log1p of the other tail above."""
    return log_distribution(x, HAZARD)


def mills_excess(x: Expr) -> Expr:
    """A polynomial over a + 3 for x = -a <= 0, by the density above."""
    return hazard_excess(x, HAZARD)


def _inverse(x: Expr, product: Expr) -> Expr:
    """erfinv(x), the product 1 - x**2 being given: polynomials in its logarithm or the root."""
    w = -ops.log(product)
    near = w < 6.25
    s = ops.sqrt(ops.where(near, 9.0, w))
    tail = s * polynomial((s - 2.5) / (s + 2.5), INVERSE_TAIL)
    middle = x * polynomial(ops.where(near, w, 3.125) - 3.125, INVERSE_MIDDLE)
    return ops.where(near, middle, ops.copysign(tail, x))


def erfinv(x: Expr) -> Expr:
    """x P(w), w = -log(1 - x**2), or sqrt(w) Q(sqrt(w))."""
    value = _inverse(x, (1.0 - x) * (1.0 + x))
    end = ops.abs(x) == 1.0
    value = ops.where(end, ops.copysign(math.inf, x), value)
    return keep_nan(ops.where(ops.abs(x) > 1.0, math.nan, value), x)


def ndtri(p: Expr) -> Expr:
    """sqrt(2) erfinv(2p - 1)."""
    value = math.sqrt(2.0) * _inverse((p - 0.5) + (p - 0.5), (4.0 * p) * (1.0 - p))
    value = ops.where(p == 0.0, -math.inf, ops.where(p == 1.0, math.inf, value))
    return keep_nan(ops.where((p < 0.0) | (p > 1.0), math.nan, value), p)


SINGLE: Final = Digits(0.5625, 4.9, 100.0, 6)


def _part(order: int, imaginary: bool, x: Expr, y: Expr, digits: Digits) -> Expr:
    """The real or the imaginary part of the derivative of an order."""
    return keep_nan(derivative(order, imaginary, x, y, digits), x, y)


def faddeeva_real(x: Expr, y: Expr, digits: Digits) -> Expr:
    """The real part of w: sums over nodes that move with x, or rest, or an asymptotic series."""
    return _part(0, False, x, y, digits)


def faddeeva_imag(x: Expr, y: Expr, digits: Digits) -> Expr:
    """The imaginary part of these sums."""
    return _part(0, True, x, y, digits)


def faddeeva_real_slope(x: Expr, y: Expr, digits: Digits) -> Expr:
    """The real part of sums of derivatives, of exp(-t**2) or of 1/(z - t)."""
    return _part(1, False, x, y, digits)


def faddeeva_imag_slope(x: Expr, y: Expr, digits: Digits) -> Expr:
    """The imaginary part of sums of derivatives."""
    return _part(1, True, x, y, digits)


def faddeeva_real_bend(x: Expr, y: Expr, digits: Digits) -> Expr:
    """The real part of sums of second derivatives."""
    return _part(2, False, x, y, digits)


def faddeeva_imag_bend(x: Expr, y: Expr, digits: Digits) -> Expr:
    """The imaginary part of sums of derivatives."""
    return _part(2, True, x, y, digits)
