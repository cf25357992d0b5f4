"""The incomplete beta functions: x**a (1 - x)**b/B(a, b) times a series and an integral.

With logit(t) = logit(x) - u the integral is that over u > 0 of exp(-(a y - b x) u - (a + b) E(u)),
y = 1 - x, E(u) = log(1 - x (1 - exp(-u))) + x u. Where a y >= b x, neither term is negative; the
integrand falls from 1, and the logarithm of it is concave. Some terms of the power series stand
before it, so that it falls fast for small a too, and Gauss and Legendre's rule has all digits. Next
to 1, for b <= 1, the integral ends earlier, and the rest is a power series in 1 - x.

The formulas are the same in float32 and float64; the constants of `BetaDigits` are not.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.beta_share import Place, choose, lessened, share_of
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.incomplete import SINGLE, Digits, excess
from symgrad.mathlib.pairs import two_sum


@dataclass(frozen=True)
class BetaDigits:
    """What differs between float32 and float64.

    Attributes:
        common: as for the incomplete gamma functions.
        steps: how many terms of the power series stand before the integral.
        between: how many terms the series next to 1 has.
        atanh: the coefficients of (atanh(s) - s)/s**3 in s**2, |s| <= 1/2.
        scale: the power of 2 that very small values are larger by at first.
    """

    common: Digits
    steps: int
    between: int
    atanh: tuple[float, ...]
    scale: float


def odd_powers(count: int) -> tuple[float, ...]:
    """The coefficients of (atanh(s) - s)/s**3 in s**2."""
    return tuple(1.0 / (2 * k + 3) for k in range(count))


SINGLE_BETA: Final = BetaDigits(SINGLE, 4, 11, odd_powers(11), 64.0)

LARGEST: Final = 2.0**60
"""Up to here a and b are computed with; the result for larger ones, if finite, is NaN."""

SMALL: Final = 0.5
"""For a larger b, above the mean, it is the upper function that is computed."""

END: Final = 1.0
"""Up to this b, the integral ends where (a + steps + b) (1 - x) is this, if x is above; and the
upper function is computed only where (a + steps + b) x is more."""


@dataclass(frozen=True)
class Fall:
    """What the integrand falls by: slope u + n E(u)."""

    slope: Expr
    n: Expr
    x: Expr
    y: Expr
    digits: BetaDigits

    @property
    def left(self) -> Condition:
        """Whether E is computed from x and exp(-u), not from y and exp(u)."""
        return self.x < 0.6

    def __call__(self, u: Expr) -> tuple[Expr, Expr]:
        """It at u, and its derivative."""
        sign, part = ops.where(self.left, -1.0, 1.0), ops.where(self.left, self.x, self.y)
        e = excess(sign * u, self.digits.common, 4)
        w = part * (e + sign * u)
        far = w > 2.0
        inner = ops.where(far, 0.0, w)
        r = inner / (2.0 + inner)
        rest = r * (inner - 2.0 * (r * r) * polynomial(r * r, self.digits.atanh))
        value = ops.where(far, ops.log(1.0 + w) - part * u, part * e - rest)
        other = ops.where(self.left, self.y, self.x)
        return self.slope * u + self.n * value, self.slope + self.n * (
            other * ops.abs(w) / (1.0 + w)
        )


def _length(fall: Fall) -> Expr:
    """Where the integrand has fallen to e**-reach, or a little further."""
    reach, slope = fall.digits.common.reach, ops.where(fall.slope > 0.0, fall.slope, 0.0)
    bend = fall.n * (fall.x * fall.y)
    bend = ops.where(bend > 1e-20, bend, 1e-20)
    width = ops.sqrt((2.0 * reach) / bend)
    share = slope / (bend * width)
    end = width / (share + ops.sqrt(share * share + 1.0))
    straight, bent = reach / ops.where(fall.left, slope, 1.0), end * (1.0 + 0.25 * end)
    u = ops.where(fall.left, ops.where(straight < bent, straight, bent), end / (1.0 + 0.13 * end))
    for _ in range(2):
        value, derivative = fall(u)
        u = u - (value - reach) / derivative
    return u


def _integral(fall: Fall) -> Expr:
    length = 0.5 * _length(fall)
    terms: list[Expr] = []
    nodes = fall.digits.common.nodes
    for node, weight in zip(nodes[::2], nodes[1::2], strict=True):
        for at in (1.0 + node, 1.0 - node):
            terms.append(weight * ops.exp(-fall(length * at)[0]))
    return length * balanced(operator.add, terms)


def _series(p: Place, digits: BetaDigits) -> Expr:
    """The function divided by x**a y**b/(a B(a, b)), for a y >= b x, or about that."""
    total, x, y = p.a + p.b, p.x[0], p.y[0]
    slope = p.slope[0] + p.slope[1]
    raised = slope + float(digits.steps) * y
    series = _integral(Fall(raised, total + float(digits.steps), x, y, digits))
    series = 1.0 + x * ((total + float(digits.steps - 1)) * series)
    for k in range(digits.steps - 1, 0, -1):  # the factor x (a + b + k - 1)/(a + k), from 1
        short = (slope + (float(k - 1) * y + 1.0)) / (p.a + float(k))
        series = 1.0 + (series - short * series)
    return series


def _between(p: Place, end: Expr, digits: BetaDigits) -> Expr:
    """The integral of t**(a - 1) (1 - t)**(b - 1) from 1 - end to x, over end**b."""
    ratio = p.y[0] / end
    first = -ops.expm1(p.b * ops.log(ratio)) / p.b
    power = 1.0 - p.b * first
    total, down, factor = first, power, Expr(end.graph, end.graph.constant(1.0))
    for k in range(1, digits.between):
        factor = factor * (end * ((float(k) - p.a) / float(k)))
        down = down * ratio
        total = total + factor * ((1.0 - down) / (p.b + float(k)))
    return total


def lower_beta(p: Place, digits: BetaDigits) -> Expr:
    """The regularized lower function of inner arguments."""
    raised = (p.a + p.b) + float(digits.steps)
    corner = (p.b <= END) & (raised * p.y[0] < END)
    end = ops.where(corner, END / raised, 0.25)
    start = Place(
        p.a, p.b, choose(corner, two_sum(1.0, -end), p.x), choose(corner, (end, 0.0), p.y)
    )
    swap = (p.b > SMALL) & (p.slope[0] < 0.0) & (raised * p.x[0] >= END) & ~corner
    at = start.swapped(swap)
    share, series = share_of(at, digits.common, digits.scale), _series(at, digits)
    rest = (p.a * ops.exp(-p.a * ops.log1p(-end))) * _between(
        Place(p.a, p.b, p.x, choose(corner, p.y, (0.25, 0.0))), end, digits
    )
    value = share.value * (series + ops.where(corner, rest, 0.0))
    value = lessened(value, share.times, digits.scale)
    return ops.where(swap, 1.0 - value, value)


def _place(a: Expr, b: Expr, x: Expr) -> tuple[Condition, Place]:
    """Whether all are inside, and the place; where they are not, another."""
    usable = (a > 0.0) & (b > 0.0) & (a <= LARGEST) & (b <= LARGEST) & (x > 0.0) & (x < 1.0)
    x = ops.where(usable, x, 0.5)
    return usable, Place(
        ops.where(usable, a, 1.0), ops.where(usable, b, 1.0), (x, 0.0), two_sum(1.0, -x)
    )


def _at_edges(value: Expr, usable: Condition, a: Expr, b: Expr, x: Expr, bottom: float) -> Expr:
    """The value, but at 0, 1, infinity, and out of the domain; ``bottom`` is that at 0."""
    start, end = (a == 0.0) | ops.isinf(b), (b == 0.0) | ops.isinf(a)
    edge = ops.where(start, 1.0 - bottom, ops.where(end, bottom, math.nan))
    edge = ops.where(x == 0.0, bottom, ops.where(x == 1.0, 1.0 - bottom, edge))
    outside = (a < 0.0) | (b < 0.0) | (x < 0.0) | (x > 1.0) | (start & end)
    return keep_nan(ops.where(usable, value, ops.where(outside, math.nan, edge)), a, b, x)


def lower(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """The regularized lower function."""
    usable, p = _place(a, b, x)
    return _at_edges(lower_beta(p, digits), usable, a, b, x, 0.0)


def upper(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """1 less that, as the lower function of b, a and 1 - x."""
    usable, p = _place(a, b, x)
    value = lower_beta(Place(p.b, p.a, p.y, p.x), digits)
    return _at_edges(value, usable, a, b, x, 1.0)


def density(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """x**(a - 1) (1 - x)**(b - 1)/B(a, b)."""
    usable, p = _place(a, b, x)
    share = share_of(p, digits.common, digits.scale)
    small = p.x[0] < 2.0**-digits.scale
    value = (share.value / (p.x[0] * ops.where(small, 2.0**digits.scale, 1.0))) * (p.a / p.y[0])
    value = lessened(value, share.times - ops.where(small, 1.0, 0.0), digits.scale)
    first = ops.where(a < 1.0, math.inf, ops.where(a > 1.0, 0.0, b))
    last = ops.where(b < 1.0, math.inf, ops.where(b > 1.0, 0.0, a))
    edge = ops.where(x == 0.0, first, ops.where(x == 1.0, last, math.nan))
    outside = ~((a > 0.0) & (b > 0.0) & ops.isfinite(a) & ops.isfinite(b))
    return keep_nan(ops.where(usable, value, ops.where(outside, math.nan, edge)), a, b, x)


def betainc(a: Expr, b: Expr, x: Expr) -> Expr:
    """What precedes it times a series and an integral, or 1 less that of the upper function."""
    return lower(a, b, x, SINGLE_BETA)


def betaincc(a: Expr, b: Expr, x: Expr) -> Expr:
    """The lower function of 1 - x, in two parts."""
    return upper(a, b, x, SINGLE_BETA)


def beta_density(a: Expr, b: Expr, x: Expr) -> Expr:
    """The exponential of two deviances in two parts."""
    return density(a, b, x, SINGLE_BETA)
