"""Rounding and powers of 2: float64 has them on CPUs, and not on every driver in WGSL."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr

SHIFT: Final = 2.0**52
"""The last bit of a sum with it is 1."""


def round(x: Expr) -> Expr:
    """The nearest integer, half to even: what is left of a sum with 2**52, as llvmpipe's is not."""
    a = ops.abs(x)
    nearest = ops.opaque(a + SHIFT) - SHIFT
    return ops.where(a < SHIFT, ops.copysign(nearest, x), x)


def scalb(x: Expr, k: Expr) -> Expr:
    """x * 2**k, in two steps, of which only the second may leave the range."""
    half = ops.floor(0.5 * k)
    return ops.opaque(x * ops.power_of_two(half)) * ops.power_of_two(k - half)
