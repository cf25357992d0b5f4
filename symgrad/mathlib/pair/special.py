"""Special functions of float64 whose constants, or sines, are others on pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.double import elliptic as double_elliptic
from symgrad.mathlib.double import gamma as double_gamma
from symgrad.mathlib.elliptic import LARGEST, first_kind, of_cosines, of_sines, second_kind
from symgrad.mathlib.gamma import circles, log_gamma, polygamma, psi

GAMMA: Final = replace(double_gamma.DOUBLE, circular=circles)
"""With the sines and cosines of turns, which are 0 at whole numbers."""

ELLIPTIC: Final = replace(double_elliptic.DOUBLE, largest=LARGEST)


def gammaln(x: Expr) -> Expr:
    """Polynomials about 1 and 2, from 7/2 on Stirling's formula; below -1/2 by reflection."""
    return log_gamma(x, GAMMA)


def digamma(x: Expr) -> Expr:
    """A polynomial times the distance to its root up to 3, asymptotic beyond."""
    return psi(x, GAMMA)


def trigamma(x: Expr) -> Expr:
    """The sum of 1/(x + k)**2, seven terms and Euler and Maclaurin's."""
    return polygamma(1, x, GAMMA)


def tetragamma(x: Expr) -> Expr:
    """-2 times the sum of 1/(x + k)**3."""
    return polygamma(2, x, GAMMA)


def pentagamma(x: Expr) -> Expr:
    """6 times the sum of 1/(x + k)**4."""
    return polygamma(3, x, GAMMA)


def ellipkm1(p: Expr) -> Expr:
    """A series about 1 after a step of Landen's, or one about 0 with a logarithm."""
    return first_kind(p, ELLIPTIC)


def ellipe(m: Expr) -> Expr:
    """E, as `ellipkm1` computes K."""
    return second_kind(1.0 - m, ELLIPTIC)


def elliptic_b(p: Expr) -> Expr:
    """B, as `ellipkm1` computes K."""
    return of_cosines(p, ELLIPTIC)


def elliptic_d(p: Expr) -> Expr:
    """D, as `ellipkm1` computes K."""
    return of_sines(p, ELLIPTIC)


FORMULAS: Final = (
    gammaln, digamma, trigamma, tetragamma, pentagamma,
    ellipkm1, ellipe, elliptic_b, elliptic_d,
)  # fmt: skip
