"""The complete elliptic integrals: series about p = 1 after a step of Landen's, and about p = 0.

The integral of (a cos(t)**2 + b sin(t)**2)/sqrt(cos(t)**2 + k**2 sin(t)**2), t from 0 to pi/2, is
1/(1 + k) times that of a + b, 2 (a k + b)/(1 + k) and 2 sqrt(k)/(1 + k), which is nearer to 1
(Landen; Bulirsch, 1965, Numerische Mathematik 7, cel2), where the integrals of the cosines and the
sines are series in s, the ratio of 1 - that and 1 + that. Next to k = 0 they are series of which
each power has a logarithm. For k > 1 the integral is 1/k times that of b, a and 1/k. Where a and b
are not negative no digits are lost.

The formulas are the same in float32 and float64; the number of terms is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.ops.elliptic import about_one
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial

CUT: Final = 3.0 - 2.0 * math.sqrt(2.0)
"""The k below which series about 0 are taken; s is no larger, from there on."""

TERMS: Final = 6
"""Of each series: the next is below 2**-30 of the value."""

LEAST: Final = 2.0**-80
"""Below sqrt(p) of any p but 0."""


@dataclass(frozen=True)
class Series:
    """(c0 L + d0) + (c1 L + d1) p + ..., L = log(4/sqrt(p)): pairs of c and d."""

    terms: tuple[tuple[float, float], ...]

    def __call__(self, k: Expr) -> Expr:
        """At p = k**2."""
        square, log = k * k, math.log(4.0) - ops.log(k)
        of_log, rest = (polynomial(square, part) for part in zip(*self.terms, strict=True))
        return of_log * log + rest


def about_zero(count: int) -> tuple[Series, Series, Series, Series]:
    """K, E, B and D, by dE/dp = D/2, (1 - p) D = K - E and B = K - D."""
    k, d, e = [], [], [(0.0, 1.0)]
    square, harmonic, before = 1.0, 0.0, (0.0, 0.0)
    for j in range(count):
        k.append((square, -square * harmonic))
        before = before[0] + k[-1][0] - e[-1][0], before[1] + k[-1][1] - e[-1][1]
        d.append(before)
        slope = 0.5 * before[0] / (j + 1)
        e.append((slope, 0.5 * (before[1] + slope) / (j + 1)))
        square *= ((2 * j + 1) / (2 * j + 2)) ** 2
        harmonic += 1.0 / ((j + 1) * (2 * j + 1))
    b = [(x[0] - y[0], x[1] - y[1]) for x, y in zip(k, d, strict=True)]
    return Series(tuple(k)), Series(tuple(e[:count])), Series(tuple(b)), Series(tuple(d))


@dataclass(frozen=True)
class Digits:
    """What differs between float32 and float64: the series, and `LEAST`."""

    even: Sequence[float]
    odd: Sequence[float]
    zero: tuple[Series, Series, Series, Series]
    least: float


def digits(terms: int, least: float) -> Digits:
    """Those of so many terms."""
    series = [0.25 * math.pi * c for c in about_one(2 * terms)]
    return Digits(series[::2], series[1::2], about_zero(terms), least)


SINGLE: Final = digits(TERMS, LEAST)


@dataclass(frozen=True)
class Place:
    """p and what the integrals at p are made of.

    Attributes:
        over: sqrt(p), or 1 for p <= 1.
        small: k or 1/k, below `CUT`, else about it.
        large: the same where it is above.
        inside: whether it is below.
    """

    p: Expr
    over: Expr
    small: Expr
    large: Expr
    inside: Any
    digits: Digits

    def chosen(self, series: Expr, weighed: Callable[[Expr, Expr], Expr]) -> Expr:
        """The series about 0 where that is near, else what is made of the sums in s."""
        root = ops.sqrt(self.large)
        ratio = (1.0 - root) / (1.0 + root)
        s = ratio * ratio
        even, odd = (polynomial(s * s, c) for c in (self.digits.even, self.digits.odd))
        value = weighed(even, s * odd) / ((1.0 + self.large) + 2.0 * root)
        return ops.where(self.inside, series, value)

    def ended(self, value: Expr, at_zero: float) -> Expr:
        """The value for p > 0, that at 0, and NaN for p < 0."""
        p = self.p
        value = ops.where(p > 0.0, value, ops.where(p < 0.0, math.nan, at_zero))
        return keep_nan(value, p)


def place(p: Expr, digits: Digits) -> Place:
    """That of p."""
    root, far = ops.sqrt(p), p > 1.0
    over = ops.where(far, root, 1.0)
    k = ops.where(far, 1.0 / over, root)
    k = ops.where(k < digits.least, digits.least, k)
    inside = k < CUT
    return Place(p, over, ops.where(inside, k, CUT), ops.where(inside, 1.0, k), inside, digits)


def first_kind(p: Expr, digits: Digits) -> Expr:
    """K(1 - p)."""
    at = place(p, digits)
    value = at.chosen(digits.zero[0](at.small), lambda even, _: 4.0 * even)
    return at.ended(value / at.over, math.inf)


def second_kind(p: Expr, digits: Digits) -> Expr:
    """E(1 - p)."""
    at = place(p, digits)
    more, less = 1.0 + at.large, 1.0 - at.large
    value = at.chosen(
        digits.zero[1](at.small), lambda even, odd: (more * more) * even - (less * less) * odd
    )
    return at.ended(value * at.over, 1.0)


def of_cosines(p: Expr, digits: Digits, swapped: bool = False) -> Expr:
    """B(1 - p), or D(1 - p): the integral of the squares of cosines, or of sines."""
    at = place(p, digits)
    cosines = (p > 1.0) if swapped else ~(p > 1.0)
    series = ops.where(cosines, digits.zero[2](at.small), digits.zero[3](at.small))
    share = 2.0 * ops.where(cosines, at.large, 1.0) / (1.0 + at.large)
    value = at.chosen(series, lambda even, odd: (even - odd) + share * (even + odd))
    return at.ended(value / at.over, math.inf if swapped else 1.0)


def of_sines(p: Expr, digits: Digits) -> Expr:
    """D(1 - p)."""
    return of_cosines(p, digits, swapped=True)


def ellipkm1(p: Expr) -> Expr:
    """A series about 1 after a step of Landen's, or one about 0 with a logarithm."""
    return first_kind(p, SINGLE)


def ellipe(m: Expr) -> Expr:
    """The same, for E."""
    return second_kind(1.0 - m, SINGLE)


def elliptic_b(p: Expr) -> Expr:
    """The same for B."""
    return of_cosines(p, SINGLE)


def elliptic_d(p: Expr) -> Expr:
    """The same for D."""
    return of_sines(p, SINGLE)
