"""The complete elliptic integrals: series about p = 1 after a step of Landen's, and about p = 0.

The integral of (a cos(t)**2 + b sin(t)**2)/sqrt(cos(t)**2 + k**2 sin(t)**2), t from 0 to pi/2, is
1/(1 + k) times that of a + b, 2 (a k + b)/(1 + k) and 2 sqrt(k)/(1 + k), which is nearer to 1
(Landen; Bulirsch, 1965, Numerische Mathematik 7, cel2), where the integrals of the cosines and the
sines are series in s, the ratio of 1 - that and 1 + that. The formula is that of k and of 1/k at
once. Next to k = 0 they are series of which each power has a logarithm, and those next to infinity
are 1/k times the integrals of b, a and 1/k. Where a and b are not negative no digits are lost.

The formulas are the same in float32 and float64; the number of terms is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.ops.elliptic import about_one
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import keep_nan, polynomial, quotient

CUT: Final = 3.0 - 2.0 * math.sqrt(2.0)
"""The k below which, and 1/k above which series about 0 are taken; s is no larger in between."""

TERMS: Final = 6
"""Of each series: the next is below 2**-30 of the value."""

LARGEST: Final = 2.0**65
"""Above sqrt(p) of any p but infinity."""


@dataclass(frozen=True)
class Series:
    """(c0 L + d0) + (c1 L + d1) p + ..., L = log(4/sqrt(p)): pairs of c and d."""

    terms: tuple[tuple[float, float], ...]

    def __call__(self, p: Expr, log: Expr) -> Expr:
        """At p, whose L is the logarithm."""
        (c, d), *others = self.terms
        of_log, rest = (polynomial(p, part) for part in zip(*others, strict=True))
        return (c * log + d) + p * (of_log * log + rest)


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
    """The differences of float32 and float64: the series, and `LARGEST`."""

    even: Sequence[float]
    odd: Sequence[float]
    zero: tuple[Series, Series, Series, Series]
    largest: float


def digits_of(terms: int, largest: float) -> Digits:
    """The series of this number of terms."""
    series = [0.25 * math.pi * c for c in about_one(2 * terms)]
    return Digits(series[::2], series[1::2], about_zero(terms), largest)


SINGLE: Final = digits_of(TERMS, LARGEST)


@dataclass(frozen=True)
class Place:
    """p, and what the integrals at p are computed from.

    Attributes:
        root: sqrt(p).
        outside: whether it is below `CUT` or above 1/`CUT`.
        far: whether it is above 1.
    """

    p: Expr
    root: Expr
    outside: Condition
    far: Condition
    digits: Digits

    def series(self, *series: Series) -> list[Expr]:
        """The series about 0 at p or 1/p, whose logarithms are those of 4/sqrt(p) or 4 sqrt(p)."""
        root = ops.where(self.outside, self.root, CUT)
        root = ops.where(root < self.digits.largest, root, self.digits.largest)
        log = ops.abs(ops.log(root * ops.where(self.far, 4.0, 0.25)))
        p = ops.where(self.outside, self.p, CUT * CUT)
        p = ops.where(p > 1.0, 1.0 / p, p)
        return [one(p, log) for one in series]

    def over_root(self, series: Expr) -> Expr:
        """A series over sqrt(p) for p > 1."""
        return series * ops.where(self.far, ops.rsqrt(self.p), 1.0)

    def chosen(self, series: Expr, weighed: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
        """The series about 0, or what is ``weighed`` of the sums in s and k, (1 + sqrt(k))**2."""
        k = ops.where(self.outside, 1.0, self.root)
        root = ops.sqrt(k)
        ratio = (1.0 - root) / (1.0 + root)
        s = ratio * ratio
        even, odd = (polynomial(s * s, c) for c in (self.digits.even, self.digits.odd))
        value = quotient(weighed(even, s * odd, k), (1.0 + k) + 2.0 * root)
        return ops.where(self.outside, series, value)

    def ended(self, value: Expr, at_zero: float) -> Expr:
        """The value for p > 0, that at 0, and NaN for p < 0."""
        p = self.p
        value = ops.where(p > 0.0, value, ops.where(p < 0.0, math.nan, at_zero))
        return keep_nan(value, p)


def place(p: Expr, digits: Digits) -> Place:
    """The place of p."""
    root = ops.sqrt(p)
    return Place(p, root, (root < CUT) | (root > 1.0 / CUT), root > 1.0, digits)


def ellipkm1(p: Expr, digits: Digits) -> Expr:
    """A series about 1 after a step of Landen's, or one about 0 with a logarithm."""
    at = place(p, digits)
    (series,) = at.series(digits.zero[0])
    return at.ended(at.chosen(at.over_root(series), lambda even, _odd, _k: 4.0 * even), math.inf)


def ellipe(m: Expr, digits: Digits) -> Expr:
    """E, as `ellipkm1` computes K."""
    p = 1.0 - m
    at = place(p, digits)
    (series,) = at.series(digits.zero[1])

    def weighed(even: Expr, odd: Expr, k: Expr) -> Expr:
        twice = 2.0 * (1.0 + ops.where(at.outside, 1.0, p))
        return twice * even - ((1.0 - k) * (1.0 - k)) * (even + odd)

    return at.ended(at.chosen(series * ops.where(at.far, at.root, 1.0), weighed), 1.0)


def elliptic_b(p: Expr, digits: Digits) -> Expr:
    """B, as `ellipkm1` computes K.

    It is the integral of the squares of cosines.
    """
    at = place(p, digits)
    cosines, sines = at.series(*digits.zero[2:])
    series = at.over_root(ops.where(at.far, sines, cosines))
    value = at.chosen(series, lambda even, odd, k: 2.0 * even - _inclined(even, odd, k))
    return at.ended(value, 1.0)


def elliptic_d(p: Expr, digits: Digits) -> Expr:
    """D, as `ellipkm1` computes K.

    It is the integral of the squares of sines.
    """
    at = place(p, digits)
    cosines, sines = at.series(*digits.zero[2:])
    series = at.over_root(ops.where(at.far, cosines, sines))
    value = at.chosen(series, lambda even, odd, k: 2.0 * even + _inclined(even, odd, k))
    return at.ended(value, math.inf)


def _inclined(even: Expr, odd: Expr, k: Expr) -> Expr:
    """Half of what the squares of sines weigh more than those of cosines."""
    return quotient(1.0 - k, 1.0 + k) * (even + odd)
