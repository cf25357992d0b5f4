"""The factor before the integral of the incomplete beta functions: x**a (1 - x)**b/(a B(a, b)).

The gamma functions are Stirling's, of parameters that are raised to at least 4 by their recurrence.
So an exponential is left, of a log(n x/a) + b log(n y/b), n = a + b, y = 1 - x (Loader, 2000, "Fast
and accurate computation of binomial probabilities"), which is computed as a pair of numbers, and a
quotient of products, computed as pairs too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import polynomial
from symgrad.mathlib.incomplete import Digits, cubic, gathered
from symgrad.mathlib.pair.arithmetic import Pair, over, product, two_sum

SHIFT: Final = 4.0
"""The number that a smaller parameter is raised by, for Stirling's formula."""

SCALE: Final = 64.0
"""The power of 2 that small numbers are multiplied by, lest their low parts be subnormal."""


@dataclass(frozen=True)
class Place:
    """Parameters, and 0 < x < 1 and y = 1 - x in two parts each."""

    a: Expr
    b: Expr
    x: Pair
    y: Pair

    def swapped(self, swap: Condition) -> Place:
        """Where the condition holds, b, a, y and x."""
        a, b = ops.where(swap, self.b, self.a), ops.where(swap, self.a, self.b)
        return Place(a, b, choose(swap, self.y, self.x), choose(swap, self.x, self.y))

    @property
    def slope(self) -> Pair:
        """a y - b x."""
        terms = [product(self.a, part) for part in self.y if isinstance(part, Expr)]
        rest = [product(self.b, part) for part in self.x if isinstance(part, Expr)]
        terms += [(-high, -low) for high, low in rest]
        return gathered([(part, 0.0) for pair in zip(*terms, strict=True) for part in pair])


def choose(condition: Condition, a: Pair, b: Pair) -> Pair:
    """`where` of both parts."""
    return ops.where(condition, a[0], b[0]), ops.where(condition, a[1], b[1])


@dataclass(frozen=True)
class Raised:
    """A parameter, or where it is less than SHIFT, that much more.

    Attributes:
        given: the parameter.
        large: whether it is as it was.
        value: in two parts.
    """

    given: Expr
    large: Condition
    value: Pair


def _raised(a: Expr) -> Raised:
    large = a >= SHIFT
    return Raised(a, large, two_sum(a, ops.where(large, 0.0, SHIFT)))


@dataclass(frozen=True)
class Logarithm:
    """2 atanh(s) + k log 2, |s| < 0.172, s in two parts.

    Attributes:
        total: what s is a quotient by, in units.
        unit: a power of 2.
    """

    k: Expr
    s: Pair
    total: Pair
    unit: Expr


def _log_ratio(n: Pair, x: Pair, a: Pair, digits: Digits) -> Logarithm:
    """log(n x/a)."""
    small = x[0] < 2.0**-40
    up = ops.where(small, 2.0**SCALE, 1.0)
    first = product(n[0], x[0] * up)
    high, low = two_sum(first[0], first[1] + (n[0] * (x[1] * up) + n[1] * (x[0] * up)))
    tiny = high < 2.0**-40
    high, low = ops.where(tiny, high * 2.0**SCALE, high), ops.where(tiny, low * 2.0**SCALE, low)
    m, c = ops.significand(high), ops.significand(a[0])
    low, of_c = low / digits.power(high), a[1] / digits.power(a[0])
    above, below = m > math.sqrt(2.0) * c, math.sqrt(2.0) * m < c
    unit = ops.where(above, 0.5, ops.where(below, 2.0, 1.0))
    m, low = m * unit, low * unit
    shift = ops.where(above, 1.0, ops.where(below, -1.0, 0.0))
    k = ops.exponent(high) - ops.exponent(a[0]) + shift
    k = k - ops.where(small, SCALE, 0.0) - ops.where(tiny, SCALE, 0.0)
    sum_, lost = two_sum(m, c)
    total = sum_, lost + (low + of_c)
    s = _ratio(two_sum(ops.opaque(m - c), low - of_c), total)
    return Logarithm(k, s, total, digits.power(a[0]))


def _ratio(d: Pair, total: Pair) -> Pair:
    """d over the total."""
    s = ops.opaque(d[0] / total[0])
    high, low = product(s, total[0])
    return s, ((ops.opaque(d[0] - high) - low) + d[1] - s * total[1]) / total[0]


def _lacking(a: Expr, digits: Digits) -> Expr:
    """The remainder of Stirling's formula for log Gamma(a)."""
    w = 1.0 / a
    return w * polynomial(w * w, digits.stirling)


def _exponent(p: Place, a: Raised, b: Raised, n: Pair, digits: Digits) -> Pair:
    """a log(n x/a) + b log(n y/b) and what Stirling's formula lacks."""
    of_a = _log_ratio(n, p.x, a.value, digits)
    of_b = _log_ratio(n, p.y, b.value, digits)
    near = a.large & b.large & (of_a.k == 0.0) & (of_b.k == 0.0)
    d = p.slope
    terms: list[tuple[Any, Any]] = []
    for value, log, sign in ((p.a, of_a, 1.0), (p.b, of_b, -1.0)):
        factor = choose(near, (sign * d[0], sign * d[1]), (2.0 * value, 0.0))
        apart = -sign * d[0] / log.unit, -sign * d[1] / log.unit
        s = choose(near, _ratio(apart, log.total), log.s)
        high, low = product(factor[0], s[0])
        whole = product(value, log.k * digits.ln2[0])
        terms += [
            (whole[0], whole[1] + value * (log.k * digits.ln2[1] + log.k * digits.ln2[2])),
            (high, low + (factor[0] * s[1] + factor[1] * s[0])),
            *cubic(2.0 * value, s, digits),
        ]
    lacking = _lacking(n[0], digits) - _lacking(a.value[0], digits) - _lacking(b.value[0], digits)
    return gathered([*terms, (0.0, lacking)])


def _unless(condition: Condition, a: Pair) -> Pair:
    """It, or where the condition holds, 1."""
    return choose(condition, (1.0, 0.0), a)


def _chain(factors: Sequence[Pair]) -> Pair:
    """The compensated product of double-float factors."""
    total = factors[0]
    for a in factors[1:]:
        high, low = product(total[0], a[0])
        total = high, low + (total[0] * a[1] + total[1] * a[0])
    return total


def _from(a: Pair, start: int, count: int, unit: Expr) -> Pair:
    """The product of a + start, a + start + 1, ..., each divided by the unit, a power of 2."""
    factors: list[Pair] = []
    for k in range(start, start + count):
        high, low = two_sum(a[0], float(k))
        factors.append((high / unit, (low + a[1]) / unit))
    return _chain(factors)


def _steps(a: Raised, b: Raised, n: Pair, digits: Digits) -> Expr:
    """The factor of 1/(a B(a, b)) by raised parameters, divided by that of Stirling's formula."""
    total, unit = two_sum(a.given, b.given), digits.power(n[0])
    one = Expr(unit.graph, unit.graph.constant(1.0))
    none, some = a.large & b.large, a.large | b.large
    fourth = _chain([(n[0] / unit, n[1] / unit)] * 4)
    first = choose(b.large, (total[0] / unit, total[1] / unit), b.value)
    up = [
        _unless(a.large, _from((a.given, 0.0), 1, 3, one)),
        _unless(b.large, _from((b.given, 0.0), 1, 3, one)),
        _unless(b.large, over((b.given, 0.0), total)),
        _unless(none, fourth),
        _unless(some, fourth),
        (ops.where(b.large, 1.0, unit), 0.0),
    ]
    down = [
        _unless(a.large, _chain([a.value] * 3)),
        _unless(b.large, _chain([b.value] * 3)),
        _unless(none, first),
        _unless(none, _from(total, 1, 3, unit)),
        _unless(some, _from(total, 4, 4, unit)),
    ]
    high, low = over(_chain(up), _chain(down))
    return high + low


@dataclass(frozen=True)
class Share:
    """x**a y**b/(a B(a, b)) = value 2**-(scale times), times being 0, 1 or 2."""

    value: Expr
    times: Expr


def lessened(value: Expr, times: Expr, scale: float) -> Expr:
    """value 2**-(scale times), times from -1 to 2."""
    up, down = 2.0**scale, 2.0**-scale
    value = value * ops.where(times > 0.0, down, ops.where(times < 0.0, up, 1.0))
    return value * ops.where(times > 1.0, down, 1.0)


def share_of(p: Place, digits: Digits, scale: float) -> Share:
    """The share of a place; ``scale`` is a power of 2 by which tiny ones are larger at first."""
    a, b = _raised(p.a), _raised(p.b)
    n = gathered([a.value, b.value])
    high, low = _exponent(p, a, b, n, digits)
    ln2 = [scale * part for part in digits.ln2]
    size = high - ops.where(p.b < 2.0**-32, ln2[0], 0.0)
    times = ops.where(size < -2.0 * ln2[0], 2.0, ops.where(size < -ln2[0], 1.0, 0.0))
    high, low = gathered([(high, low), *[(times * part, 0.0) for part in ln2]])
    value = ops.exp(high)
    value = value + value * ops.where(value > 0.0, low, 0.0)
    peak = ops.sqrt((b.value[0] / n[0]) / (2.0 * math.pi * a.value[0]))
    return Share(value * (peak * _steps(a, b, n, digits)), times)
