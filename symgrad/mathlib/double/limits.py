"""Limits: arguments kept in a range, and tiny ones that are their own value. NaN passes through."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr


def within(x: Expr, low: float, high: float) -> Expr:
    """x limited to [low, high]; NaN stays NaN. CPUs have either choice as one instruction."""
    raised = ops.where(x < low, low, x)
    return ops.where(raised > high, high, raised)


def keep_tiny(value: Expr, x: Expr, tiny: float) -> Expr:
    """x itself where |x| < tiny, so that -0.0 and subnormals stay; else the value."""
    return ops.where(ops.abs(x) < tiny, x, value)
