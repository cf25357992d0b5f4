"""Definitions expanded inside a kernel's graph, where value and derivative share their parts."""

from __future__ import annotations

import math

from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.expr.reference import GELU_TANH


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


def _falling(x: Expr) -> tuple[Expr, Expr, Expr]:
    """e, 1/(1 + e) and a scale, e times the scale being exp(-|x|).

    From |x| = 80 on e is exp(16 - |x|), which is normal for longer; 1 + e is 1 there all the same.
    A Newton step mends the reciprocal and what the rounding of 1 + e does to it.
    """
    far = ops.abs(x) > 80.0
    e = ops.exp(ops.where(far, 16.0, 0.0) - ops.abs(x))
    r = ops.reciprocal(1.0 + e)
    r = r + r * ((1.0 - r) - r * e)
    return e, r, ops.where(far, math.exp(-16.0), 1.0)


def silu(x: Expr) -> Expr:
    """x/(1 + e) for x >= 0, else e*x/(1 + e), e = exp(-|x|), scaled where it may be subnormal."""
    e, r, scale = _falling(x)
    share = x * r
    return ops.where(x >= 0.0, share, (share * e) * scale)


def silu_slope(x: Expr) -> Expr:
    """r*(1 + e*x*r) for x >= 0, else r*e*(1 + x*r), r = 1/(1 + e), of the parts that silu has."""
    e, r, scale = _falling(x)
    share = x * r
    return r * ops.where(x >= 0.0, 1.0 + share * e, ((1.0 + share) * e) * scale)


def gelu(x: Expr) -> Expr:
    """x Phi(x)."""
    return x * ops.normal_cdf(x)


def gelu_slope(x: Expr) -> Expr:
    """Phi(x) + x phi(x), phi the normal density."""
    return ops.normal_cdf(x) + x * ((1.0 / math.sqrt(2.0 * math.pi)) * ops.bell(x))


def gelu_tanh(x: Expr) -> Expr:
    """x sigmoid(z), z = a (x + b x**3); from |x| = 30 on 0 or x."""
    a, b = GELU_TANH
    value = x * ops.sigmoid(a * (x + b * (x * x * x)))
    return ops.where(ops.abs(x) > 30.0, ops.relu(x), value)


def gelu_tanh_slope(x: Expr) -> Expr:
    """sigmoid(z) + x z' logistic(z); from |x| = 30 on 0 or 1."""
    a, b = GELU_TANH
    z, steepness = a * (x + b * (x * x * x)), a + (3.0 * a * b) * (x * x)
    value = ops.sigmoid(z) + (x * steepness) * ops.logistic(z)
    return ops.where(ops.abs(x) > 30.0, ops.where(x > 0.0, 1.0, 0.0), value)


def softplus(x: Expr) -> Expr:
    """max(x, 0) + log1p(exp(-|x|))."""
    return ops.relu(x) + ops.log1p(ops.exp(-ops.abs(x)))


def logaddexp(a: Expr, b: Expr) -> Expr:
    """max(a, b) + log1p(exp(-|a - b|)), the difference 0 where a = b, infinite or not."""
    apart = ops.where(a == b, 0.0, a - b)
    return ops.maximum(a, b) + ops.log1p(ops.exp(-ops.abs(apart)))
