"""Definitions expanded inside a kernel's graph, where value and derivative share their parts."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.expression import Expr


def relu(x: Expr) -> Expr:
    """x where x > 0, else 0; NaN stays NaN."""
    return ops.where((x > 0.0) | ops.isnan(x), x, 0.0)


def sigmoid(x: Expr) -> Expr:
    """1/(1 + e) for x >= 0, else e/(1 + e), e = exp(-|x|), which its derivative needs as well."""
    e = ops.exp(-ops.abs(x))
    r = ops.reciprocal(1.0 + e)
    return ops.where(x >= 0.0, r, e * r)


def logistic(x: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|x|), of the parts that sigmoid has."""
    e = ops.exp(-ops.abs(x))
    r = ops.reciprocal(1.0 + e)
    return e * (r * r)


def softplus(x: Expr) -> Expr:
    """max(x, 0) + log1p(exp(-|x|))."""
    return ops.relu(x) + ops.log1p(ops.exp(-ops.abs(x)))


def logaddexp(a: Expr, b: Expr) -> Expr:
    """max(a, b) + log1p(exp(-|a - b|)), the difference 0 where a = b, infinite or not."""
    apart = ops.where(a == b, 0.0, a - b)
    return ops.maximum(a, b) + ops.log1p(ops.exp(-ops.abs(apart)))
