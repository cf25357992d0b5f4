"""The Faddeeva function's parts and those of its first two derivatives, in float64."""

from __future__ import annotations

from symgrad.expr.references.faddeeva import DOUBLE
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.faddeeva import part


def faddeeva_real(x: Expr, y: Expr) -> Expr:
    """The real part of w: sums over nodes that move with x, or rest, or an asymptotic series."""
    return part(0, False, x, y, DOUBLE)


def faddeeva_imag(x: Expr, y: Expr) -> Expr:
    """The imaginary part of these sums."""
    return part(0, True, x, y, DOUBLE)


def faddeeva_real_slope(x: Expr, y: Expr) -> Expr:
    """The real part of sums of derivatives, of exp(-t**2) or of 1/(z - t)."""
    return part(1, False, x, y, DOUBLE)


def faddeeva_imag_slope(x: Expr, y: Expr) -> Expr:
    """The imaginary part of sums of derivatives."""
    return part(1, True, x, y, DOUBLE)


def faddeeva_real_bend(x: Expr, y: Expr) -> Expr:
    """The real part of sums of second derivatives."""
    return part(2, False, x, y, DOUBLE)


def faddeeva_imag_bend(x: Expr, y: Expr) -> Expr:
    """The imaginary part of sums of derivatives."""
    return part(2, True, x, y, DOUBLE)
