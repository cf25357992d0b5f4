"""The Faddeeva function's parts and those of its first two derivatives."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.references.faddeeva import Digits, derivative
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan

SINGLE: Final = Digits(0.5625, 4.9, 100.0, 6)


def part(order: int, imaginary: bool, x: Expr, y: Expr, digits: Digits) -> Expr:
    """The real or the imaginary part of the derivative of an order."""
    return keep_nan(derivative(ops, order, imaginary, x, y, digits), x, y)


def faddeeva_real(x: Expr, y: Expr) -> Expr:
    """The real part of w: sums over nodes that move with x, or rest, or an asymptotic series."""
    return part(0, False, x, y, SINGLE)


def faddeeva_imag(x: Expr, y: Expr) -> Expr:
    """The imaginary part of these sums."""
    return part(0, True, x, y, SINGLE)


def faddeeva_real_slope(x: Expr, y: Expr) -> Expr:
    """The real part of sums of derivatives, of exp(-t**2) or of 1/(z - t)."""
    return part(1, False, x, y, SINGLE)


def faddeeva_imag_slope(x: Expr, y: Expr) -> Expr:
    """The imaginary part of sums of derivatives."""
    return part(1, True, x, y, SINGLE)


def faddeeva_real_bend(x: Expr, y: Expr) -> Expr:
    """The real part of sums of second derivatives."""
    return part(2, False, x, y, SINGLE)


def faddeeva_imag_bend(x: Expr, y: Expr) -> Expr:
    """The imaginary part of sums of derivatives."""
    return part(2, True, x, y, SINGLE)
