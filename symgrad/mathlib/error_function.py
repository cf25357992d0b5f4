"""The error function and its complement, which keeps its digits in the tail."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial

ERF: Final = (
    0.12837917, -0.37612626, 0.112835854, -0.026853813, 0.0051883277, -0.00080101937, 7.8538615e-05,
)  # fmt: skip
"""erf(x)/x - 1 in x**2, |x| <= 1: erf to 0.05 * 2**-24 of its value (tools/fit.py)."""

ERFC_TAIL: Final = (
    1.253008, -0.13562118, -0.04756264, 0.12964657, -0.11926742, 0.06829736, -0.023814972,
    0.0025483202, 0.0020239062, -0.0007350762, -0.00025093945,
)  # fmt: skip
"""erfc(a) exp(a**2) (1 + 2a) in t = (a - 3)/(a + 3), 0 <= a <= 12: to 1.08 * 2**-24."""


def erf(x: Expr) -> Expr:
    """1 - erfc(|x|) with the sign of x; for |x| < 1 a polynomial."""
    a = ops.abs(x)
    near = x + x * polynomial(x * x, ERF)
    far = ops.copysign(1.0 - ops.erfc(a), x)
    return keep_nan(ops.where(a < 1.0, near, far), x)


def erfc(x: Expr) -> Expr:
    """exp(-a**2) W(t)/(1 + 2a), a = |x|, t = (a - 3)/(a + 3); 2 minus that for x < 0."""
    a = ops.abs(x)
    a = ops.where(a < 12.0, a, 12.0)  # erfc(10.1) is 0 in float32
    tail = ops.exp_neg_square(a) * polynomial((a - 3.0) / (a + 3.0), ERFC_TAIL) / (1.0 + 2.0 * a)
    return keep_nan(ops.where(x < 0.0, 2.0 - tail, tail), x)
