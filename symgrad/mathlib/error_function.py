"""The error function and its complement, which keeps its digits in the tail."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.exponential import split_square

ERF: Final = (
    0.12837917, -0.37612626, 0.112835854, -0.026853813, 0.0051883277, -0.00080101937, 7.8538615e-05,
)  # fmt: skip
"""erf(x)/x - 1 in x**2, |x| <= 1: erf to 0.05 * 2**-24 of its value (tools/fit.py)."""

ERFC_TAIL: Final = (
    1.2769784, -0.09276358, -0.16603039, 0.16404232, -0.054218363, -0.0079473695, 0.008694692,
    0.00094879844, -0.0013191424,
)  # fmt: skip
"""erfc(a) exp(a**2) (1 + 2a) in t = (a - 2)/(a + 2), 0.5 <= a <= 10.1: to 0.39 * 2**-24."""


def _near(x: Expr) -> Expr:
    """erf(x) for |x| <= 1; for a tiny x the product with the polynomial would be subnormal."""
    value = x + x * polynomial(x * x, ERF)
    return ops.where(ops.abs(x) < 1e-4, x * (2.0 / math.sqrt(math.pi)), value)


def _tail(a: Expr) -> Expr:
    """erfc(a) = exp(-a**2) W(t)/(1 + 2a), t = (a - 2)/(a + 2), for a >= 1/2; 0 from a = 10.1 on."""
    a = ops.where(a < 10.1, a, 10.1)
    w = polynomial((a - 2.0) / (a + 2.0), ERFC_TAIL) / (1.0 + 2.0 * a)
    e, d = split_square(a)
    return e * (w + w * d)


def erf(x: Expr) -> Expr:
    """A polynomial for |x| < 1; 1 - erfc(|x|) with the sign of x beyond."""
    a = ops.abs(x)
    return keep_nan(ops.where(a < 1.0, _near(x), ops.copysign(1.0 - _tail(a), x)), x)


def erfc(x: Expr) -> Expr:
    """1 - erf(x) for |x| < 1/2; beyond, exp(-a**2) W(a), a = |x|, and 2 minus that for x < 0."""
    a = ops.abs(x)
    tail = _tail(a)
    far = ops.where(x < 0.0, 2.0 - tail, tail)
    return keep_nan(ops.where(a < 0.5, 1.0 - _near(x), far), x)
