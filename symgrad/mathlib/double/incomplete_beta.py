"""The incomplete beta functions in float64."""

from __future__ import annotations

from typing import Final

from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.double.incomplete import DOUBLE
from symgrad.mathlib.incomplete_beta import (
    BetaDigits,
    by_first,
    by_second,
    density,
    lower,
    odd_powers,
    upper,
)

DOUBLE_BETA: Final = BetaDigits(DOUBLE, 8, 24, odd_powers(24), 600.0)


def betainc(a: Expr, b: Expr, x: Expr) -> Expr:
    """The factor before it times a series and an integral, or 1 less the upper function."""
    return lower(a, b, x, DOUBLE_BETA)


def betaincc(a: Expr, b: Expr, x: Expr) -> Expr:
    """The lower function of 1 - x, in two parts."""
    return upper(a, b, x, DOUBLE_BETA)


def beta_density(a: Expr, b: Expr, x: Expr) -> Expr:
    """The exponential of two deviances in two parts."""
    return density(a, b, x, DOUBLE_BETA)


def betainc_slope_a(a: Expr, b: Expr, x: Expr) -> Expr:
    """The function times log x - G, less an integral, on the side where neither cancels."""
    return by_first(a, b, x, DOUBLE_BETA)


def betainc_slope_b(a: Expr, b: Expr, x: Expr) -> Expr:
    """Less that by the first parameter, of b, a and 1 - x."""
    return by_second(a, b, x, DOUBLE_BETA)
