"""The complete elliptic integrals in float64: the series of float32 with more terms."""

from __future__ import annotations

from typing import Final

from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.elliptic import Digits, digits, first_kind, of_cosines, of_sines, second_kind

DOUBLE: Final[Digits] = digits(12, 2.0**513)
"""The terms that are left out are below 2**-60 of the value."""


def ellipkm1(p: Expr) -> Expr:
    """A series about 1 after a step of Landen's, or one about 0 with a logarithm."""
    return first_kind(p, DOUBLE)


def ellipe(m: Expr) -> Expr:
    """E, as `ellipkm1` computes K."""
    return second_kind(1.0 - m, DOUBLE)


def elliptic_b(p: Expr) -> Expr:
    """B, as `ellipkm1` computes K."""
    return of_cosines(p, DOUBLE)


def elliptic_d(p: Expr) -> Expr:
    """D, as `ellipkm1` computes K."""
    return of_sines(p, DOUBLE)
