"""Remainders of a division, without a rounding error."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.mathlib.bits import has_sign, keep_nan
from symgrad.mathlib.quotient import modulus


def _take(r: Expr, b: Expr) -> Expr:
    """r - q*b, exact: q is floor(r/b) or a neighbour, cut to its 26 leading bits."""
    q = ops.upper(ops.floor(r / b))
    high = ops.upper(b)
    return (r - q * high) - q * (b - high)


def fmod(a: Expr, b: Expr) -> Expr:
    """a - b*trunc(a/b), with the sign of a, exact for |a/b| < 2**72; NaN or exact beyond."""
    return keep_nan(ops.copysign(modulus(ops.abs(a), ops.abs(b), _take), a), a, b)


def remainder(a: Expr, b: Expr) -> Expr:
    """a - b*floor(a/b), with the sign of b, rounded once for |a/b| < 2**72; beyond as fmod."""
    divisor = ops.abs(b)
    r = modulus(ops.abs(a), divisor, _take)
    across = ops.logical_xor(has_sign(a), has_sign(b)) & (r > 0.0)
    return keep_nan(ops.copysign(ops.where(across, divisor - r, r), b), a, b)
