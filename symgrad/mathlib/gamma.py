"""The gamma function's logarithm and its derivatives: polynomials up to 3, asymptotic beyond.

The formulas are the same in float32 and float64; the coefficients are not, nor is the sine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.ops.gamma import zeta_sum
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import Coefficients, coefficients, keep_nan, polynomial


@dataclass(frozen=True)
class Digits:
    """The differences of float32 and float64.

    Attributes:
        about_1: gammaln(1 + d)/d, |d| <= 1/2.
        about_2: gammaln(2 + d)/d, |d| <= 1/2.
        stirling: (gammaln(x) - (x - 1/2) log x + x - log(2 pi)/2) x in 1/x**2, x >= 7/2.
        root: where digamma is 0, in pieces.
        digamma: digamma(2 + t)/(2 + t - root), |t| <= 1.
        harmonic: (log x - 1/(2x) - digamma(x)) x**2 in 1/x**2, x >= 3.
        shift: the terms of a polygamma function that are added up one by one.
        even: the coefficients B_2j/(2j)! of what is left.
        circular: sin(pi x) and cos(pi x), but for a sign that both have.
    """

    about_1: Coefficients
    about_2: Coefficients
    stirling: Coefficients
    root: tuple[float, float]
    digamma: Coefficients
    harmonic: Coefficients
    shift: int
    even: Coefficients
    circular: Callable[[Expr], tuple[Expr, Expr]]


LOG_GAMMA_1: Final = coefficients("""
    -0.5772157 0.822467 -0.40068516 0.27058128 -0.20741472 0.16955735 -0.14336774 0.12523733
    -0.11879915 0.10468603 -0.050351385 0.052877147 -0.17796357 0.15702803
""")
"""gammaln(1 + d)/d, |d| <= 1/2: to 0.* 2**-24 of its value (tools/fit.py)."""

LOG_GAMMA_2: Final = coefficients("""
    0.42278433 0.32246703 -0.06735222 0.020581603 -0.0073874295 0.0028790473 -0.0011778291
    0.00056984724 -0.00026987237
""")
"""gammaln(2 + d)/d, |d| <= 1/2."""

STIRLING: Final = (0.08333326, -0.0027733766, 0.0007064278)
"""The remainder of Stirling's formula, times x, in 1/x**2, x >= 7/2."""

DIGAMMA: Final = coefficients("""
    0.7853076 -0.26073897 0.108999155 -0.049550228 0.023458054 -0.01134746 0.0054900316 -0.002695895
    0.0015268201 -0.0007805942 0.00010984377 -3.777731e-05 0.00022171724 -0.00011595621
""")
"""digamma(2 + t)/(2 + t - root), |t| <= 1."""

HARMONIC: Final = (0.083332404, -0.008286315, 0.003231847)
"""(log x - 1/(2x) - digamma(x)) x**2 in 1/x**2, x >= 3."""

ROOT: Final = (1.4616321325302124, 1.243815e-08)
"""The root of digamma, in two pieces."""


def circles(x: Expr) -> tuple[Expr, Expr]:
    """sin(pi x) and cos(pi x)."""
    return ops.sin_turns(0.5 * x), ops.cos_turns(0.5 * x)


EVEN: Final = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)
"""B_2j/(2j)!"""

SINGLE: Final = Digits(
    LOG_GAMMA_1, LOG_GAMMA_2, STIRLING, ROOT, DIGAMMA, HARMONIC, 3, EVEN, circles
)


def gammaln(x: Expr, digits: Digits) -> Expr:
    """Polynomials about 1 and 2, from 7/2 on Stirling's formula; below -1/2 by reflection.

    That is log(pi/|x sin(pi x)|) - gammaln(-x). A step away from 1 and 2 it takes log(x).
    """
    left = x < -0.5
    p = ops.where(left, -x, x)
    small, first, second, third = p < 0.5, p < 1.5, p < 2.5, p < 3.5
    d = ops.where(small, p, ops.where(first, p - 1.0, ops.where(second, p - 2.0, p - 3.0)))
    d = ops.where(third, d, 0.0)
    near = d * ops.where(first, polynomial(d, digits.about_1), polynomial(d, digits.about_2))
    base = ops.where(small, ops.abs(p), ops.where(second, 1.0, ops.where(third, p - 1.0, p)))
    logarithm = ops.log(base)
    w = 1.0 / ops.where(third, 4.0, p)
    rest = (0.5 * math.log(2.0 * math.pi) - 0.5) + w * polynomial(w * w, digits.stirling)
    tail = (p - 0.5) * (logarithm - 1.0) + rest
    value = ops.where(third, near + ops.where(small, -logarithm, logarithm), tail)
    sine, _ = digits.circular(p)
    mirrored = ops.log(math.pi / (p * ops.abs(sine))) - value
    whole = (sine == 0.0) | (p > 2.0**53)
    return keep_nan(ops.where(left, ops.where(whole, math.inf, mirrored), value), x)


def digamma(x: Expr, digits: Digits) -> Expr:
    """A polynomial times the distance to its root up to 3, asymptotic beyond.

    Below 1 a step to the right, below 0 by reflection: digamma(1 - x) - pi cot(pi x).
    """
    left = x < 0.0
    p = ops.where(left, 1.0 - x, x)
    small, near = p < 1.0, p < 3.0
    below = ops.where(small, p, ops.where(near, p - 1.0, 1.0))
    distance = ops.opaque(below - (digits.root[0] - 1.0)) - digits.root[1]
    value = distance * polynomial(below - 1.0, digits.digamma)
    q = ops.where(near, 4.0, p)
    w = 1.0 / q
    square = w * w
    tail = ops.log(q) - (0.5 * w + square * polynomial(square, digits.harmonic))
    value = ops.where(near, value, tail)
    value = ops.where(small, value - 1.0 / ops.where(small, p, 1.0), value)
    sine, cosine = digits.circular(ops.where(left, x - ops.round(x), 0.25))
    mirrored = ops.where(sine == 0.0, math.nan, value - math.pi * (cosine / sine))
    return keep_nan(ops.where(left, mirrored, value), x)


def trigamma(x: Expr, digits: Digits) -> Expr:
    """The sum of 1/(x + k)**2, some terms and Euler and Maclaurin's."""
    return _polygamma(1, x, digits)


def tetragamma(x: Expr, digits: Digits) -> Expr:
    """-2 times the sum of 1/(x + k)**3."""
    return _polygamma(2, x, digits)


def pentagamma(x: Expr, digits: Digits) -> Expr:
    """6 times the sum of 1/(x + k)**4."""
    return _polygamma(3, x, digits)


def _polygamma(n: int, x: Expr, digits: Digits) -> Expr:
    """The n-th derivative of digamma, n = 1, 2 or 3, by reflection for x < 0."""
    left = x < 0.0
    total = zeta_sum(ops.where(left, 1.0 - x, x), n + 1, digits.shift, digits.even)
    value = (-1.0) ** (n + 1) * math.factorial(n) * total
    sine, cosine = digits.circular(ops.where(left, x - ops.round(x), 0.25))
    t = math.pi / sine
    square = t * t
    if n == 1:
        reflected = square
    elif n == 2:
        reflected = ops.where(sine == 0.0, math.nan, -2.0 * (square * t) * cosine)
    else:
        reflected = 2.0 * (square * square) * (1.0 + 2.0 * (cosine * cosine))
    return keep_nan(ops.where(left, (-1.0) ** n * value + reflected, value), x)
