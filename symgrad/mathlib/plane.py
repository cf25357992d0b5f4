"""The slopes of distances and angles in the plane, made of parts that they share."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr

LARGE, SMALL = 2.0**60, 2.0**-38
"""Sizes beyond which the squares, their sum or its reciprocal may leave the range."""

NOTHING: Final = 2.0**-126
"""A number that is nothing beside the sum of the squares, but not 0."""


def _scaled(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """a and b times a power of 2, the sum of their squares, and the power.

    The sum is positive, and to the bit that of b and a.
    """
    size = ops.abs(a) + ops.abs(b)
    scale = ops.where(size > LARGE, 2.0**-70, ops.where(size < SMALL, 2.0**100, 1.0))
    u, v = a * scale, b * scale
    return u, v, (u * u + v * v) + NOTHING, scale


def _finite(x: Expr) -> Expr:
    """x, 0 where it is infinite."""
    return ops.where(ops.isinf(x), 0.0, x)


def real_reciprocal(a: Expr, b: Expr) -> Expr:
    """a/(a**2 + b**2), both scaled by the same 2**k so that no square leaves the range."""
    u, _, square, scale = _scaled(a, b)
    return (_finite(u) * ops.reciprocal(square)) * scale


def real_reciprocal_square(a: Expr, b: Expr) -> Expr:
    """(a - b)/s (a + b)/s, s = a**2 + b**2, scaled in the same way."""
    u, v, square, scale = _scaled(a, b)
    inverse, u, v = ops.reciprocal(square), _finite(u), _finite(v)
    return (((u - v) * inverse) * scale) * (((u + v) * inverse) * scale)


def direction(a: Expr, b: Expr) -> Expr:
    """a/sqrt(a**2 + b**2), scaled in the same way."""
    u, _, square, _ = _scaled(a, b)
    return ops.where(ops.isinf(u), ops.copysign(1.0, u), u / ops.sqrt(square))
