"""The incomplete gamma functions: x**a exp(-x)/Gamma(a + 1) times an integral by fixed nodes.

With t = x exp(u) the upper function is the integral, over u > 0, of exp(-(x - a) u - x E(u)),
E(u) = exp(u) - 1 - u, times a x**a exp(-x)/Gamma(a + 1); with t = x exp(-u), the lower one that of
exp(-(a - x) u - x E(-u)). For x >= a, or x <= a, neither term is negative, so no digits cancel. The
integrand falls from 1, its logarithm is concave, and Gauss and Legendre's rule on the interval in
which it falls by e**-reach has all digits, whatever a and x are. What comes before it is as in
Loader, 2000, "Fast and accurate computation of binomial probabilities": the deviance
a log(x/a) + a - x in a pair of numbers, for it is large and multiplies all of the result.

The formulas are the same in float32 and float64; the constants of `Digits` are not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib import gamma
from symgrad.mathlib.bits import Coefficients, coefficients, keep_nan, polynomial
from symgrad.mathlib.pair.arithmetic import Pair, product, split, two_sum


@dataclass(frozen=True)
class Digits:
    """The differences of float32 and float64.

    Attributes:
        nodes: the positive nodes and the weights, in turns, of Gauss and Legendre's rule.
        reach: where the integrand has fallen to e**-reach, the interval ends.
        steps: how many terms of the lower function's series stand before its integral.
        series: the coefficients of E(w)/w**2, |w| < 1.2.
        atanh: those of (atanh(s) - s)/s**3 - 5/16 in s**2, |s| < 0.172.
        rest: those of (Gamma(1 + f) - 1)/f in f - 1/2, 0 <= f <= 1.
        stirling: what Stirling's formula lacks for x >= 7/2, times x, in 1/x**2.
        harmonic: log x - 1/(2 x) - digamma(x), times x**2, in 1/x**2, for x >= 3.
        ln2: ln 2 in parts, of which an exponent is an exact multiple.
        corner: how many terms the upper function's series has for a, x < 1.
        tiny: the least normal number, and what makes it and smaller ones normal.
        huge: from here on the lower function is 0, 1/2 or 1.
        far: if a > far and x is not about a, the result is 0 or 1.
    """

    nodes: Coefficients
    reach: float
    steps: int
    series: Coefficients
    atanh: Coefficients
    rest: Coefficients
    stirling: Coefficients
    harmonic: Coefficients
    ln2: tuple[float, float, float]
    corner: int
    tiny: tuple[float, float]
    huge: float
    far: float
    power: Callable[[Expr], Expr]
    """2**k of x = 2**k m, 1 <= m < 2."""


NODES: Final = coefficients("""
    0.10805494870734367 0.2152638534631578 0.31911236892788974 0.2051984637212956 0.5152486363581541
    0.18553839747793782 0.6872929048116855 0.15720316715819355 0.827201315069765 0.12151857068790319
    0.9284348836635735 0.08015808715976021 0.9862838086968123 0.03511946033175186
""")
"""Of Gauss and Legendre's rule of 14 points."""

GAMMA_REST: Final = coefficients("""
    -0.22754615545272827 0.5197691917419434 -0.20991134643554688 0.20522411167621613
    -0.12116928398609161 0.08749950677156448 -0.057518113404512405 0.03703764081001282
    -0.024712039157748222 0.023805612698197365 -0.015883496031165123
""")
"""(Gamma(1 + f) - 1)/f in f - 1/2, 0 <= f <= 1: to 0.25 * 2**-24, by Chebyshev polynomials."""


def growth(count: int) -> tuple[float, ...]:
    """The coefficients of (exp(w) - 1 - w)/w**2."""
    return tuple(1.0 / math.factorial(k + 2) for k in range(count))


def odd_powers(count: int) -> tuple[float, ...]:
    """The coefficients of (atanh(s) - s)/s**3 - 5/16 in s**2."""
    return (1.0 / 48.0, *(1.0 / (2 * k + 3) for k in range(1, count)))


def _power(x: Expr) -> Expr:
    return ops.bits_float(ops.word_and(ops.float_bits(x), 0x7F800000))


LN2: Final = split(math.log(2.0), (14, 14))

SINGLE: Final = Digits(
    NODES, 19.0, 4, growth(10), odd_powers(6), GAMMA_REST, gamma.STIRLING, gamma.HARMONIC,
    (LN2[0], LN2[1], LN2[2]), 11, (2.0**-126, 24.0), 2.0**60, 4096.0, _power,
)  # fmt: skip


# --- x**a exp(-x)/Gamma(a + 1) --------------------------------------------------------------------


def _relative(x: Expr, c: Expr, digits: Digits) -> tuple[Expr, Expr, Expr]:
    """k, m, n: x = 2**k m 2**e and c = n 2**e, m between n sqrt(1/2) and n sqrt(2); c >= 1."""
    small = x < digits.tiny[0]
    normal = ops.where(small, x * 2.0 ** digits.tiny[1], x)
    m, of_c = ops.significand(normal), ops.significand(c)
    above, below = m > math.sqrt(2.0) * of_c, math.sqrt(2.0) * m < of_c
    m = ops.where(above, 0.5 * m, ops.where(below, 2.0 * m, m))
    shift = ops.where(above, 1.0, ops.where(below, -1.0, 0.0))
    k = ops.exponent(normal) - ops.exponent(c) + shift
    return ops.where(small, k - digits.tiny[1], k), m, of_c


def _ratio(m: Expr, c: Expr) -> Pair:
    """(m - c)/(m + c), m - c being exact."""
    total, lost = two_sum(m, c)
    d = ops.opaque(m - c)
    s = ops.opaque(d / total)
    high, low = product(s, total)
    return s, ((ops.opaque(d - high) - low) - s * lost) / total


def gathered(terms: Sequence[tuple[Any, Any]]) -> Pair:
    """The sum of pairs, its low part at most about a ULP of the high one."""
    high, low = terms[0]
    for other, rest in terms[1:]:
        high, lost = two_sum(high, other)
        low = low + (lost + rest)
    return two_sum(high, low)


def cubic(factor: Expr, s: Pair, digits: Digits) -> list[tuple[Any, Any]]:
    """factor (atanh(s) - s) as pairs, |s| < 0.172."""
    by_s, of_square = product(factor, s[0]), product(s[0], s[0])
    high, low = product(by_s[0], of_square[0])
    low = low + by_s[0] * (of_square[1] + 3.0 * (s[0] * s[1])) + by_s[1] * of_square[0]
    rest = high * polynomial(s[0] * s[0], digits.atanh)
    return [(0.25 * high, 0.25 * low), (0.0625 * high, 0.0625 * low), (rest, 0.0)]


def _deviance(a: Pair, x: Expr, large: Condition, digits: Digits) -> Pair:
    """a log x - x, or for a large a, a log(x/a) + a - x less what Stirling's formula lacks."""
    c = ops.where(large, a[0], 1.0)
    k, m, of_c = _relative(x, c, digits)
    far = large & (a[0] > digits.far) & (k != 0.0)
    k = ops.where(far, 0.0, k)
    unit = digits.power(c)
    s, rest = _ratio(m, of_c)
    twice = 2.0 * a[0]
    factor = ops.where(large, -(ops.opaque(m - of_c) * unit), twice)
    high, low = product(factor, s)
    whole = product(a[0], k * digits.ln2[0])
    moved = two_sum(ops.where(large, m * unit, 0.0), -x)
    w = 1.0 / ops.where(large, a[0], 4.0)
    lacking = ops.where(large, w * polynomial(w * w, digits.stirling), 0.0)
    log = k * math.log(2.0) + 2.0 * s
    total, less = gathered([
        (whole[0], whole[1] + a[0] * (k * digits.ln2[1] + k * digits.ln2[2])), moved,
        (high, low + factor * rest), *cubic(twice, (s, rest), digits), (0.0, a[1] * log - lacking),
    ])  # fmt: skip
    return ops.where(far, NOTHING, total), ops.where(far, 0.0, less)


def _reciprocal_gamma(a: Expr, f: Expr, digits: Digits) -> Expr:
    """1/Gamma(a + 1), -1 < a < 7/2; f is a + 1 for a < 0."""
    first, second, third = a < 1.0, a < 2.0, a < 3.0
    f = ops.where(a < 0.0, f, ops.where(first, a, ops.where(second, a - 1.0, a - 2.0)))
    f = ops.where(third, f, a - 3.0)
    below = 1.0 + f * polynomial(f - 0.5, digits.rest)
    steps = ops.where(first, 1.0, 1.0 + f) * ops.where(second, 1.0, 2.0 + f)
    below = below * steps * ops.where(third, 1.0, 3.0 + f)
    return ops.where(a < 0.0, f, 1.0) / below


NOTHING: Final = -2000.0
"""An exponent whose exponential is 0."""

SHARE: Final = 64.0
"""The power of 2 by which large and small values are smaller and larger at first: that of a
subnormal x would overflow, and the low part of a small one be subnormal."""


def _power_over_gamma(a: Pair, following: Expr, x: Expr, digits: Digits, factor: Any = 1.0) -> Expr:
    """A factor times x**a exp(-x)/Gamma(a + 1) for a > -1 and 0 < x < inf; ``following`` is a + 1.

    It underflows only where the product does.
    """
    large = a[0] >= 3.5
    high, low = _deviance(a, x, large, digits)
    ln2 = [SHARE * part for part in digits.ln2]
    way = ops.where(high > ln2[0], -1.0, ops.where(high < -ln2[0], 1.0, 0.0))
    high, low = gathered([(high, low), *[(way * part, 0.0) for part in ln2]])
    value = ops.exp(high)
    value = value + value * ops.where(value > 0.0, low, 0.0)
    small = _reciprocal_gamma(ops.where(large, 0.5, a[0]), following, digits)
    value = value * ops.where(large, _peak(ops.where(large, a[0], 4.0)), small) * factor
    return value * ops.where(way < 0.0, 2.0**SHARE, ops.where(way > 0.0, 2.0**-SHARE, 1.0))


def _peak(a: Expr) -> Expr:
    """1/sqrt(2 pi a), of a smaller a, whose reciprocal is not subnormal."""
    return 2.0**-20 * ops.sqrt((1.0 / (2.0 * math.pi)) / (2.0**-40 * a))


def gamma_density(a: Expr, x: Expr, digits: Digits) -> Expr:
    """The exponential of the deviance in two parts.

    It is x**(a - 1) exp(-x)/Gamma(a).
    """
    usable, inner, at = _usable(a, x, digits)
    value = _power_over_gamma(two_sum(inner, -1.0), inner, at, digits)
    first = ops.where(a < 1.0, math.inf, ops.where(a > 1.0, 0.0, 1.0))
    outside = (a < 0.0) | (x < 0.0) | (ops.isinf(a) & ops.isinf(x))
    edge = ops.where(outside, math.nan, ops.where((x == 0.0) & (a > 0.0), first, 0.0))
    huge = (a >= digits.huge) & (a == x) & ops.isfinite(a)
    edge = ops.where(huge, _peak(ops.where(huge, a, 1.0)), edge)
    return keep_nan(ops.where(usable, value, edge), a, x)


# --- the integral ---------------------------------------------------------------------------------


def _length(slope: Expr, x: Expr, lower: Condition, digits: Digits) -> Expr:
    """Where the integrand has fallen to e**-reach, or a little further."""
    x = ops.where(x > 1e-20, x, 1e-20)
    width = ops.sqrt((2.0 * digits.reach) / x)
    share = slope / (x * width)
    end = width / (share + ops.sqrt(share * share + 1.0))
    straight, bent = digits.reach / ops.where(lower, slope, 1.0), end * (1.0 + 0.25 * end)
    nearer = ops.where(straight < bent, straight, bent)
    return ops.where(lower, nearer, end / (1.0 + 0.13 * end))


def excess(u: Expr, digits: Digits, doublings: int = 2) -> Expr:
    """exp(u) - 1 - u, by that of u over a power of 2."""
    w = 0.5**doublings * u
    e = (w * w) * polynomial(w, digits.series)
    for _ in range(doublings):
        e = w * w + e * (e + (2.0 + 2.0 * w))
        w = 2.0 * w
    return e


def _moments(
    slope: Expr, x: Expr, lower: Condition, digits: Digits, orders: Sequence[int] = (0,)
) -> list[Expr]:
    """The integrals of u**k exp(-slope u - x E(±u)) over u > 0, - for the lower function."""
    length = 0.5 * _length(slope, x, lower, digits)
    sign = ops.where(lower, -1.0, 1.0)
    terms: list[list[Expr]] = [[] for _ in orders]
    for node, weight in zip(digits.nodes[::2], digits.nodes[1::2], strict=True):
        for place in (1.0 + node, 1.0 - node):
            u = length * place
            term = weight * ops.exp(-(slope * u + x * excess(sign * u, digits)))
            for k, order in enumerate(orders):
                terms[k].append(balanced(operator.mul, [u] * order) * term if order else term)
    return [length * balanced(operator.add, t) for t in terms]


LEAST: Final = 0.5
"""For a smaller a, the lower function is computed for x below this one, and the upper one above."""


LARGE: Final = 4.0
"""From here on the median is about a - 1/3, and the integrand falls from there on all the same."""


@dataclass(frozen=True)
class Tail:
    """One of the two functions for 0 < a, x < inf: the lower one, or the upper."""

    lower: Condition
    value: Expr


def _side(a: Expr, x: Expr, digits: Digits) -> tuple[Condition, Expr]:
    """Whether it is the lower function, and how the logarithm of its integrand falls at first."""
    median = ops.where(a > LARGE, a - 1.0 / 3.0, a)
    lower = x < ops.where(a > LEAST, median, LEAST)
    apart = ops.where(lower, a - x, x - a)
    return lower, ops.where(lower, apart + float(digits.steps), apart)


def _tail(a: Expr, x: Expr, digits: Digits) -> Tail:
    """The lower function, with some terms of its series, below about the median, else the upper.

    So the complement of a tail is no smaller than it, and has its absolute error.
    """
    lower, slope = _side(a, x, digits)
    (integral,) = _moments(slope, x, lower, digits)
    series = 1.0 + x * integral
    for k in range(digits.steps - 1, 0, -1):
        series = 1.0 + (x / (a + float(k))) * series
    share = _power_over_gamma((a, 0.0), a, x, digits)
    return Tail(lower, share * ops.where(lower, series, a * integral))


def _corner(a: Expr, x: Expr, digits: Digits) -> Expr:
    """The upper function for a, x < 1 (Gautschi, 1979, "A computational procedure ...")."""
    rest = polynomial(a - 0.5, digits.rest)
    lost = -ops.expm1(a * ops.log(x))
    sum_: Any = 0.0
    for n in range(digits.corner, 0, -1):
        sum_ = ((1.0 / math.factorial(n)) / (a + float(n)) + sum_) * -x
    return ((a * rest + lost) - a * ((1.0 - lost) * sum_)) / (1.0 + a * rest)


def _at_edges(value: Expr, a: Expr, x: Expr, bottom: float, digits: Digits) -> Expr:
    """The value, but at 0, infinity, for huge a, and out of the domain; ``bottom`` is that at 0."""
    step = ops.where(x < a, bottom, ops.where(x > a, 1.0 - bottom, 0.5))
    value = ops.where(a >= digits.huge, step, value)
    value = ops.where((x == 0.0) | (a == 0.0), step, value)
    value = ops.where(ops.isinf(x) & ops.isfinite(a), 1.0 - bottom, value)
    outside = (a < 0.0) | (x < 0.0) | ((a == x) & ((a == 0.0) | ops.isinf(a)))
    return keep_nan(ops.where(outside, math.nan, value), a, x)


def _usable(a: Expr, x: Expr, digits: Digits) -> tuple[Condition, Expr, Expr]:
    """Whether both are positive, finite, and a is not huge; where they are, both, else others."""
    usable = (a > 0.0) & (a < digits.huge) & (x > 0.0) & (x < math.inf)
    return usable, ops.where(usable, a, 1.0), ops.where(usable, x, 1.0)


def gammainc(a: Expr, x: Expr, digits: Digits) -> Expr:
    """Its density times a series and an integral, or 1 less that of the upper function."""
    tail = _tail(*_usable(a, x, digits)[1:], digits)
    return _at_edges(ops.where(tail.lower, tail.value, 1.0 - tail.value), a, x, 0.0, digits)


def gammaincc(a: Expr, x: Expr, digits: Digits) -> Expr:
    """Its density times an integral, or 1 less the lower function; a series for a, x < 1.

    It is no complement there, for it may be small.
    """
    _, inner, at = _usable(a, x, digits)
    tail = _tail(inner, at, digits)
    corner = tail.lower & (inner < 1.0)
    small = _corner(ops.where(corner, inner, 0.5), ops.where(corner, at, 0.5), digits)
    value = ops.where(corner, small, 1.0 - tail.value)
    return _at_edges(ops.where(tail.lower, value, tail.value), a, x, 1.0, digits)


def _log_over_shape(a: Expr, x: Expr, digits: Digits) -> Expr:
    """log x - digamma(a + 1), for a large a without their difference."""
    large = a >= LARGE
    inner = ops.where(large, a, LARGE)
    w, apart = 1.0 / inner, (x - inner) / inner
    near = ops.abs(apart) < 0.5
    far = ops.log(ops.where(near, 1.0, x / inner))
    ratio = ops.where(near, ops.log1p(ops.where(near, apart, 0.0)), far)
    rest = w * (0.5 - w * polynomial(w * w, digits.harmonic))
    return ops.where(large, ratio - rest, ops.log(x) - ops.digamma(ops.where(large, 1.0, a) + 1.0))


def gammainc_slope(a: Expr, x: Expr, digits: Digits) -> Expr:
    """The density of the integral times its terms' derivatives, by the same nodes.

    It is the derivative of the lower function by a: of its logarithm, or that of the upper one.
    With <u>, the mean of u by the integrand, they are log x - digamma(a) -+ <u>. Below the median
    neither term of the lower function's is positive, above it neither of the upper's negative; the
    terms of the series before the integral have derivatives of one sign too.
    """
    usable, inner, at = _usable(a, x, digits)
    lower, slope = _side(inner, at, digits)
    integral, moment = _moments(slope, at, lower, digits, (0, 1))
    log = _log_over_shape(inner, at, digits)
    series, less = 1.0 + at * integral, at * moment
    for k in range(digits.steps - 1, 0, -1):
        step = inner + float(k)
        less = (at / step) * (series / step + less)
        series = 1.0 + (at / step) * series
    upper = (inner * log + 1.0) * integral + inner * moment
    by_log = ops.where(lower, log * series - less, -upper)
    by_log = ops.where(ops.isfinite(by_log), by_log, -0.0)  # where x/a vanishes the log is infinite
    value = _power_over_gamma((inner, 0.0), inner, at, digits, by_log)
    ends = ((x == 0.0) | (x == math.inf)) & (a > 0.0) & ops.isfinite(a)
    huge = (a >= digits.huge) & ops.isfinite(a) & (x >= 0.0)
    at_peak = huge & (a == x)
    edge = ops.where(ends, 0.0, ops.where(huge, -0.0, math.nan))
    edge = ops.where(at_peak, -_peak(ops.where(at_peak, a, 1.0)), edge)
    return keep_nan(ops.where(usable, value, edge), a, x)


def gammainc_bend(a: Expr, x: Expr, digits: Digits) -> Expr:
    """The density of the integral times its terms' second derivatives, by the same nodes.

    There are three moments of the integrand. The second derivatives of the terms of the series
    have one sign too.
    """
    usable, inner, at = _usable(a, x, digits)
    lower, slope = _side(inner, at, digits)
    integral, first, second = _moments(slope, at, lower, digits, (0, 1, 2))
    log = _log_over_shape(inner, at, digits)
    spread = log * log - ops.trigamma(inner + 1.0)
    series, less, more = 1.0 + at * integral, at * first, at * second
    for k in range(digits.steps - 1, 0, -1):
        step = inner + float(k)
        more = (at / step) * ((2.0 / step) * (series / step + less) + more)
        less = (at / step) * (series / step + less)
        series = 1.0 + (at / step) * series
    upper = inner * (spread * integral + 2.0 * log * first + second)
    upper = upper + 2.0 * (log * integral + first)
    by_log = ops.where(lower, spread * series - 2.0 * log * less + more, -upper)
    by_log = ops.where(ops.isfinite(by_log), by_log, 0.0)  # where x/a vanishes the log is infinite
    value = _power_over_gamma((inner, 0.0), inner, at, digits, by_log)
    zero = (a > 0.0) & (x >= 0.0) & ops.isfinite(a)
    return keep_nan(ops.where(usable, value, ops.where(zero, 0.0, math.nan)), a, x)
