"""The incomplete beta functions: x**a (1 - x)**b/B(a, b) times a series and an integral.

With logit(t) = logit(x) - u the integral is that over u > 0 of exp(-(a y - b x) u - (a + b) E(u)),
y = 1 - x, E(u) = log(1 - x (1 - exp(-u))) + x u. Where a y >= b x, neither term is negative; the
integrand falls from 1, and the logarithm of it is concave. Some terms of the power series stand
before it, so that it falls fast for small a too, and Gauss and Legendre's rule has all digits. Next
to 1, for b <= 1, the integral ends earlier, and the rest is a power series in 1 - x.

The derivative by a is the integral of the density times log t - G from 0 to x, or less that from x
to 1, as G is the mean of log t. Up to the geometric mean e**G nothing changes its sign there, above
it nothing here. By the integral's nodes it is (log x - G) times the function, less the integral of
the density times log(x/t), for which there is a recurrence of positive terms.

The formulas are the same in float32 and float64; the constants of `BetaDigits` are not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib import incomplete
from symgrad.mathlib.beta_share import SHIFT, Place, choose, lessened, share_of
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.incomplete import Digits, excess
from symgrad.mathlib.pair.arithmetic import two_sum


@dataclass(frozen=True)
class BetaDigits:
    """The differences of float32 and float64.

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


SINGLE: Final = BetaDigits(incomplete.SINGLE, 4, 11, odd_powers(11), 64.0)

LARGEST: Final = 2.0**60
"""Up to here a and b are computed with; the result for larger ones, if finite, is NaN."""

SMALL: Final = 0.5
"""For a larger b, above the mean, it is the upper function that is computed."""

END: Final = 1.0
"""Up to this b, the integral ends where (a + steps + b) (1 - x) is this, if x is above; and the
upper function is computed only where (a + steps + b) x is more."""


@dataclass(frozen=True)
class Fall:
    """The fall of the integrand: slope u + n E(u)."""

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
        far, inner, r = self._halves(w)
        rest = r * (inner - 2.0 * (r * r) * polynomial(r * r, self.digits.atanh))
        value = ops.where(far, ops.log(1.0 + w) - part * u, part * e - rest)
        other = ops.where(self.left, self.y, self.x)
        return self.slope * u + self.n * value, self.slope + self.n * (
            other * ops.abs(w) / (1.0 + w)
        )

    def _halves(self, w: Expr) -> tuple[Condition, Expr, Expr]:
        """Whether w > 2; where not, it; and r, log(1 + w) = 2 atanh(r)."""
        far = w > 2.0
        inner = ops.where(far, 0.0, w)
        return far, inner, inner / (2.0 + inner)

    def log_ratio(self, u: Expr, upper: Condition) -> Expr:
        """log(x/t) at u; or that of (1 - t)/y, for the upper function."""
        sign, part = ops.where(self.left, -1.0, 1.0), ops.where(self.left, self.x, self.y)
        w = part * (excess(sign * u, self.digits.common, 4) + sign * u)
        far, _, r = self._halves(w)
        near = 2.0 * (r + r * ((r * r) * polynomial(r * r, self.digits.atanh)))
        log = ops.where(far, ops.log(1.0 + w), near)
        log = ops.where(upper, -log, log)
        return log + ops.where(upper ^ self.left, u, 0.0)


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


def _integral(fall: Fall, factor: Callable[[Expr], Expr] | None = None) -> Expr:
    """The integral over u > 0 of the integrand, times a factor."""
    length = 0.5 * _length(fall)
    terms: list[Expr] = []
    nodes = fall.digits.common.nodes
    for node, weight in zip(nodes[::2], nodes[1::2], strict=True):
        for at in (1.0 + node, 1.0 - node):
            term = weight * ops.exp(-fall(length * at)[0])
            terms.append(term if factor is None else factor(length * at) * term)
    return length * balanced(operator.add, terms)


def _fall(p: Place, digits: BetaDigits) -> Fall:
    """The integrand's, with a raised by the steps."""
    raised = p.slope[0] + p.slope[1] + float(digits.steps) * p.y[0]
    return Fall(raised, (p.a + p.b) + float(digits.steps), p.x[0], p.y[0], digits)


def _short(p: Place, k: int) -> Expr:
    """1 less x (a + b + k - 1)/(a + k), the ratio of terms of the series."""
    return (p.slope[0] + p.slope[1] + (float(k - 1) * p.y[0] + 1.0)) / (p.a + float(k))


def _series(p: Place, digits: BetaDigits) -> Expr:
    """The function divided by x**a y**b/(a B(a, b)), for a y >= b x, or about that."""
    last = (p.a + p.b) + float(digits.steps - 1)
    series = 1.0 + p.x[0] * (last * _integral(_fall(p, digits)))
    for k in range(digits.steps - 1, 0, -1):
        series = 1.0 + (series - _short(p, k) * series)
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


def _start(p: Place, digits: BetaDigits) -> tuple[Condition, Expr, Place]:
    """Whether the integral ends earlier than at x; if so, where, from 1; and that place, or p."""
    raised = (p.a + p.b) + float(digits.steps)
    corner = (p.b <= END) & (raised * p.y[0] < END)
    end = ops.where(corner, END / raised, 0.25)
    x, y = choose(corner, two_sum(1.0, -end), p.x), choose(corner, (end, 0.0), p.y)
    return corner, end, Place(p.a, p.b, x, y)


def lower_beta(p: Place, digits: BetaDigits) -> Expr:
    """The regularized lower function of inner arguments."""
    raised = (p.a + p.b) + float(digits.steps)
    corner, end, start = _start(p, digits)
    swap = (p.b > SMALL) & (p.slope[0] < 0.0) & (raised * p.x[0] >= END) & ~corner
    at = start.swapped(swap)
    share, series = share_of(at, digits.common, digits.scale), _series(at, digits)
    rest = (p.a * ops.exp(-p.a * ops.log1p(-end))) * _between(
        Place(p.a, p.b, p.x, choose(corner, p.y, (0.25, 0.0))), end, digits
    )
    value = share.value * (series + ops.where(corner, rest, 0.0))
    value = lessened(value, share.times, digits.scale)
    return ops.where(swap, 1.0 - value, value)


# --- the derivative by a --------------------------------------------------------------------------


def _score(p: Place, digits: BetaDigits) -> Expr:
    """log x - digamma(a) + digamma(a + b): the derivative of the density's logarithm by a.

    Of a large a, or one that its recurrence has raised, the logarithms of digamma's asymptotic
    series are one, by a y - b x next to where it vanishes.
    """
    small = p.a < SHIFT
    shift = ops.where(small, SHIFT, 0.0)
    a, inner = p.a + shift, ops.where(small, p.a, 1.0)
    apart = ((p.slope[0] + p.slope[1]) + shift * p.y[0]) / a
    near = ops.abs(apart) < 0.5
    far = ops.log(ops.where(near, 1.0, p.x[0] * (1.0 + p.b / a)))
    log = ops.where(near, ops.log1p(ops.where(near, -apart, 0.0)), far)
    w, v = 1.0 / a, 1.0 / (a + p.b)
    first = ops.opaque(p.b / (inner + p.b)) / inner  # 1/(inner (inner + b)) may be infinite
    rest = 0.5 * w * (p.b * v) + (
        w * w * polynomial(w * w, digits.common.harmonic)
        - v * v * polynomial(v * v, digits.common.harmonic)
    )
    steps = balanced(
        operator.add,
        [
            first,
            *((p.b / ((inner + k) + p.b)) / (inner + k) for k in map(float, range(1, int(SHIFT)))),
        ],
    )
    return log + (rest + ops.where(small, steps, 0.0))


def _log_moment(p: Place, upper: Condition, digits: BetaDigits) -> tuple[Expr, Expr]:
    """The series, and the integral of the density times log(x/t) from 0 to x, both over the share.

    For the upper function, whose place is swapped, it is that of log((1 - t)/y).
    """
    fall, total = _fall(p, digits), p.a + p.b
    last = p.x[0] * (total + float(digits.steps - 1))
    series = last * _integral(fall)
    moment = last * _integral(fall, lambda u: fall.log_ratio(u, upper))
    for k in range(digits.steps - 1, -1, -1):
        step = total + float(k)
        lower = p.b / (p.a + float(k)) * (1.0 + series) + 1.0
        moment = ops.where(upper, series, lower) / step + moment
        series = 1.0 + series
        if k:
            short = _short(p, k)
            far = p.x[0] * ((total + float(k - 1)) / (p.a + float(k)))
            ratio = ops.where(short < 0.5, 1.0 - short, far)
            series, moment = ratio * series, ratio * moment
    return series, moment


TINY_FALL: Final = 2.0**-60
"""Below it 1 - exp(-z) is z, and 1 - (1 + z) exp(-z) is z**2/2, which may be subnormal."""


def _between_slope(p: Place, end: Expr, upper: Condition, mean: Expr, digits: BetaDigits) -> Expr:
    """The integral of `_between` with a factor.

    That is log t - G for the lower function, whose ``mean`` is G, and for the upper one
    log((1 - t)/end) + mean.
    """
    log = ops.log(p.y[0] / end)
    z = -p.b * log
    tiny, small = z < TINY_FALL, z < 2.0
    z_inside = ops.where(tiny, 1.0, z)
    down = ops.exp(-z)
    near = down * excess(ops.where(small, z_inside, 0.0), digits.common)
    far = (1.0 - down) - z * down
    share = ops.where(small, near, far) / (z_inside * z_inside)
    first = ops.where(tiny, 0.5, share) * (log * log)
    mass = ops.where(tiny, -log, -ops.expm1(-z) / p.b)
    one = Expr(end.graph, end.graph.constant(1.0))
    factor, by_a, below, ratio = one, 0.0 * one, ops.where(upper, first, 0.0), p.y[0] / end
    total = mass
    for k in range(1, digits.between):
        step = end * ((float(k) - p.a) / float(k))
        by_a = by_a * step + factor * (end / float(k))
        factor, down, power = factor * step, down * ratio, p.b + float(k)
        part = (1.0 - down) / power
        over_end = factor * ((part + log * down) / power)
        total = total + factor * part
        below = below + ops.where(upper, over_end, by_a * part)
    return ops.where(upper, mean, -mean) * total - below


LEAST_SWAPPED: Final = 2.0**-6
"""For a smaller b, if a is not smaller, the lower function's derivative is computed everywhere."""

LEAST_SHAPE: Final = 2.0**-120
"""The derivative by a smaller a is that by this one, if b is not as small."""

TINY_SHAPES: Final = 2.0**-64
"""Where both are smaller, the function is b/(a + b)."""


def slope_beta(p: Place, digits: BetaDigits) -> Expr:
    """The derivative of the lower function by a, of inner arguments."""
    score = _score(p, digits)
    above = ops.where(p.a > 1.0, -(p.slope[0] + p.slope[1]), score) >= 0.0
    upper = above & ((p.b > LEAST_SWAPPED) | (p.b > p.a))
    place = p.swapped(upper)
    corner, end, start = _start(place, digits)
    y = ops.where(corner, place.y[0], 0.25)
    mean = ops.log1p(-y) - score
    to_start = ops.where(upper, -ops.log(y / end), ops.log1p(-end) - ops.log1p(-y))
    score = score + ops.where(corner, to_start, 0.0)
    share = share_of(start, digits.common, digits.scale)
    series, moment = _log_moment(start, upper, digits)
    mean = ops.where(upper, score, mean)
    inner = Place(place.a, place.b, place.x, (y, 0.0))
    rest = place.a * ops.exp(-place.a * ops.log1p(-end))
    rest = rest * _between_slope(inner, end, upper, mean, digits)
    signed = ops.where(upper, -1.0, 1.0)
    value = (signed * score) * series - moment + ops.where(corner, signed * rest, 0.0)
    return lessened(share.value * value, share.times, digits.scale)


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


def betainc(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """The factor before it times a series and an integral, or 1 less the upper function."""
    usable, p = _place(a, b, x)
    return _at_edges(lower_beta(p, digits), usable, a, b, x, 0.0)


def betaincc(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """The lower function of 1 - x, in two parts."""
    usable, p = _place(a, b, x)
    value = lower_beta(Place(p.b, p.a, p.y, p.x), digits)
    return _at_edges(value, usable, a, b, x, 1.0)


def beta_density(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """The exponential of two deviances in two parts."""
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


def betainc_slope_a(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """The function times log x - G, less an integral, on the side where neither cancels."""
    usable, p = _place(a, b, x)
    return _slope_at_edges(_slope(p, digits), usable, a, b, x)


def betainc_slope_b(a: Expr, b: Expr, x: Expr, digits: BetaDigits) -> Expr:
    """Less that by the first parameter, of b, a and 1 - x."""
    usable, p = _place(a, b, x)
    return _slope_at_edges(-_slope(Place(p.b, p.a, p.y, p.x), digits), usable, a, b, x)


def _slope(p: Place, digits: BetaDigits) -> Expr:
    """The derivative of the lower function by a, which may be tiny."""
    tiny, total = (p.a < TINY_SHAPES) & (p.b < TINY_SHAPES), p.a + p.b
    a, b = ops.where(p.a < LEAST_SHAPE, LEAST_SHAPE, p.a), ops.where(tiny, 1.0, p.b)
    inner = slope_beta(Place(a, b, p.x, p.y), digits)
    return ops.where(tiny, -ops.opaque(p.b / total) / total, inner)  # 1/total**2 may be infinite


def _slope_at_edges(value: Expr, usable: Condition, a: Expr, b: Expr, x: Expr) -> Expr:
    inside = (a > 0.0) & (b > 0.0) & (a <= LARGEST) & (b <= LARGEST)
    edge = ops.where(inside & ((x == 0.0) | (x == 1.0)), 0.0, math.nan)
    return keep_nan(ops.where(usable, value, edge), a, b, x)
