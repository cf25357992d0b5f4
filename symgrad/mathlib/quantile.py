"""The normal distribution's logarithm, its hazard, and its inverse, which is that of erf."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.coefficients import Coefficients, coefficients

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
