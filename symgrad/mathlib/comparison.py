"""Minimum and maximum where a comparison with NaN is false, as IEEE 754 and LLVM have it.

One argument is then tested for NaN, not both as in `symgrad.mathlib.order`: the choice itself takes
the second argument where either is NaN.
"""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller of a and b; NaN if either is."""
    return keep_nan(ops.where(a < b, a, b), a)


def maximum(a: Expr, b: Expr) -> Expr:
    """The larger of a and b; NaN if either is."""
    return keep_nan(ops.where(a > b, a, b), a)
