"""Order: minimum, maximum and sign, through which NaN passes, as it does not through WGSL's."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller of a and b; NaN if either is."""
    return keep_nan(ops.where(a < b, a, b), a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    """The larger of a and b; NaN if either is."""
    return keep_nan(ops.where(a > b, a, b), a, b)


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN of NaN."""
    return keep_nan(ops.where(x > 0.0, 1.0, ops.where(x < 0.0, -1.0, 0.0)), x)


# Where a comparison with NaN is false, as IEEE 754 and LLVM have it, one argument is tested, not
# both: the choice itself takes the second argument where either is NaN.


def smaller(a: Expr, b: Expr) -> Expr:
    """The smaller of a and b; NaN if either is."""
    return keep_nan(ops.where(a < b, a, b), a)


def larger(a: Expr, b: Expr) -> Expr:
    """The larger of a and b; NaN if either is."""
    return keep_nan(ops.where(a > b, a, b), a)
