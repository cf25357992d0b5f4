"""References of the incomplete gamma and beta functions: integrals, by many panels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.expr.references.special import BERNOULLI, in_double, where_inside

Array = Any

LONG: Final[Any] = np.longdouble
"""The type that large exponents are computed in, where it has more digits than float64."""


def _log_factorial_rest(a: Array) -> Array:
    """log Gamma(a + 1) - (a log a - a), for a > 0, by steps to where Stirling's series holds."""
    z, product = a, np.ones_like(a)
    for _ in range(16):
        small = z < 16
        product = np.where(small, product * (z + 1), product)
        z = np.where(small, z + 1, z)
    rest = np.log(2 * np.pi * z) / 2
    for j, b in enumerate(BERNOULLI):
        rest = rest + LONG(b) / ((2 * j + 2) * (2 * j + 1)) * z ** (-2.0 * j - 1)
    return rest - np.log(product) + ((z * np.log(z) - z) - (a * np.log(a) - a))


def _deviance(a: Array, x: Array) -> Array:
    """a log(x/a) + a - x, by a series where x is near a."""
    s = (x - a) / (x + a)
    near = np.abs(s) < 0.1
    t = np.where(near, s, 0)
    series = np.zeros_like(t)
    for k in range(12, -1, -1):
        series = series * t * t + LONG(1) / (2 * k + 3)
    far = a * np.log(np.where(near, 1, x / a)) + (a - x)
    return np.where(near, 2 * a * t**3 * series - (x - a) * t, far)


def log_share(a: Array, x: Array) -> Array:
    """log(x**a exp(-x)/Gamma(a + 1)) of a, x > 0."""
    return _deviance(a, x) - _log_factorial_rest(a)


NUMBERS_AT_A_TIME: Final = 2**20
"""The most that are computed at once."""


def trapezoid(integrand: Callable[[Array], Array], end: Array, first: int, last: int) -> Array:
    """The integral over u > 0, by the trapezoidal rule in t (Takahasi & Mori, 1974).

    u = end exp(t - exp(-t)), for 16 t from ``first`` up to ``last``.
    """
    end = np.asarray(end)
    t = np.arange(first, last).astype(LONG) / 16
    total = np.zeros_like(end)
    for some in np.array_split(t, 1 + t.size * end.size // NUMBERS_AT_A_TIME):
        part = some.reshape(-1, *(1 for _ in end.shape))
        u = end * np.exp(part - np.exp(-part))
        total = total + np.sum(u * (1 + np.exp(-part)) * integrand(u), axis=0)
    return total / 16


def _integral(slope: Array, x: Array, sign: Array) -> Array:
    """The integral of exp(-slope u - x (exp(sign u) - 1 - sign u)) over u > 0."""
    return trapezoid(
        lambda u: np.exp(-slope * u - x * excess(sign * u)), 1 / (slope + np.sqrt(x)), -56, 97
    )


def excess(v: Array) -> Array:
    """exp(v) - 1 - v."""
    near = np.abs(v) < 0.5
    w, total = np.where(near, v, 0), np.zeros_like(v)
    for k in range(18, 1, -1):
        total = total * w + LONG(1) / math.factorial(k)
    return np.where(near, total * w * w, np.expm1(v) - v)


def _series(a: Array, x: Array) -> Array:
    """The lower function divided by x**a exp(-x)/Gamma(a + 1), for x <= 40."""
    total = np.ones_like(x)
    for k in range(160, 0, -1):
        total = 1 + x / (a + k) * total
    return total


def _between(a: Array, x: Array) -> Array:
    """The integral of t**(a - 1) exp(-t) from x < 1 to 1, term by term."""
    log = a * np.log(x)
    total = -np.expm1(log) / a
    for n in range(1, 26):
        total = total - (-1) ** n * np.expm1(log + n * np.log(x)) / (a + n) / math.factorial(n)
    return total


def _both(a: Array, x: Array) -> tuple[Array, Array]:
    """The lower and the upper function of positive, finite arguments."""
    below, few = x < np.maximum(a, 1), (x < np.maximum(a, 1)) & (a < 40)
    corner = below & (a < 1)
    top = np.where(corner, 1, x)  # the upper function at 1, and what lies between
    left = below & ~corner
    integral = _integral(np.abs(top - a), top, np.where(left, -1, 1))
    lower = np.where(few, _series(a, np.where(few, x, 1)), a * integral)
    lower = np.exp(log_share(a, x)) * lower
    upper = a * np.exp(log_share(a, top)) * integral
    inverse = a * np.exp(-(_log_factorial_rest(a) + a * np.log(a) - a))
    upper = upper + np.where(corner, inverse * _between(a, np.where(corner, x, 1)), 0)
    return np.where(below, lower, 1 - upper), np.where(left, 1 - lower, upper)


def _at_edges(inner: Array, a: Array, x: Array, bottom: float) -> Array:
    """``bottom`` is the value at x = 0."""
    value = np.where(x < a, bottom, np.where(x > a, 1 - bottom, inner))
    value = np.where((a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x), inner, value)
    outside = (a < 0) | (x < 0) | ((a == x) & ((a == 0) | np.isinf(a)))
    return np.where(outside | np.isnan(a) | np.isnan(x), np.nan, value)


def of_gamma(function: Callable[[Array, Array], Array], a: Array, x: Array) -> Array:
    """The function where both are positive and finite, NaN elsewhere."""
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    return where_inside(inside, function, a, x)


@in_double
def gammainc(a: Array, x: Array) -> Array:
    """The regularized lower incomplete gamma function."""
    return _at_edges(of_gamma(lambda a, x: _both(a, x)[0], a, x), a, x, 0)


@in_double
def gammaincc(a: Array, x: Array) -> Array:
    """The regularized upper incomplete gamma function."""
    return _at_edges(of_gamma(lambda a, x: _both(a, x)[1], a, x), a, x, 1)


@in_double
def gamma_density(a: Array, x: Array) -> Array:
    """x**(a - 1) exp(-x)/Gamma(a)."""
    value = of_gamma(lambda a, x: np.exp(log_share(a, x) + np.log(a) - np.log(x)), a, x)
    first = np.where(a < 1, np.inf, np.where(a > 1, 0, 1))
    edge = np.where((x == 0) & (a > 0), first, 0)
    outside = (a < 0) | (x < 0) | (np.isinf(a) & np.isinf(x)) | np.isnan(a) | np.isnan(x)
    return np.where(outside, np.nan, np.where(np.isnan(value), edge, value))


# --- beta functions -------------------------------------------------------------------------------


def beta_share(a: Array, b: Array, x: Array, y: Array) -> Array:
    """log(x**a y**b/(a B(a, b)))."""
    n = a + b
    rest = _log_factorial_rest(n) - _log_factorial_rest(a) - _log_factorial_rest(b)
    return _deviance(a, n * x) + _deviance(b, n * y) + rest + np.log(b) - np.log(n)


def beta_integral(
    a: Array, b: Array, x: Array, y: Array, factor: Callable[[Array], Array] = np.ones_like
) -> Array:
    """The integral of (1 - x (1 - exp(-u)))**-(a + b) exp(-a u) times a factor over u > 0."""
    n, slope = a + b, a * y - b * x
    end = 1 / (np.maximum(slope, 0) + np.sqrt(n * x * y))

    def integrand(u: Array) -> Array:
        return factor(u) * np.exp(-slope * u - n * _bend(u, x, y))

    return trapezoid(integrand, end, -64, 113)


def _bend(u: Array, x: Array, y: Array) -> Array:
    """log(1 - x (1 - exp(-u))) + x u, or of y and exp(u) where y is the smaller."""
    sign, part = np.where(x > 0.5, 1, -1), np.minimum(x, y)
    w, near = part * np.expm1(sign * u), u < 0.5
    v = np.where(near, -w, 0)
    total = np.zeros_like(u)
    for k in range(60, 1, -1):
        total = total * v + LONG(1) / k
    close = part * excess(np.where(near, sign * u, 0)) - total * v * v
    return np.where(near, close, np.log1p(w) - sign * part * u)


def _beta_between(a: Array, b: Array, y: Array, end: Array) -> Array:
    """The integral of t**(a - 1) (1 - t)**(b - 1) from 1 - end to 1 - y, over end**b."""
    log, factor = np.log(y / end), np.ones_like(y)
    total = -np.expm1(b * log) / b
    for k in range(1, 60):
        factor = factor * (k - a) / k * end
        total = total - factor * np.expm1((b + k) * log) / (b + k)
    return total


def _beta_tail(a: Array, b: Array, x: Array, y: Array) -> Array:
    """The lower function, with eight terms of its series."""
    series = 1 + x * (a + b + 7) * beta_integral(a + 8, b, x, y)
    for k in range(7, 0, -1):
        series = 1 + x * (a + b + k - 1) / (a + k) * series
    return np.exp(beta_share(a, b, x, y)) * series


def _lower_beta(a: Array, b: Array, x: Array, y: Array) -> Array:
    """The lower function of positive, finite arguments; x + y = 1."""
    raised = a + b + 8
    corner = (b <= 1) & (raised * y < 1)
    end = np.where(corner, 1 / raised, 0.5)
    swap = (b > 0.5) & (a * y < b * x) & (raised * x >= 1) & ~corner
    at, rest = np.where(corner, 1 - end, x), np.where(corner, end, y)
    p, q = np.where(swap, b, a), np.where(swap, a, b)
    s, t = np.where(swap, rest, at), np.where(swap, at, rest)
    tail = _beta_tail(p, q, s, t)
    power = np.exp(beta_share(a, b, 1 - end, end) - a * np.log1p(-end)) * a
    more = power * _beta_between(a, b, np.where(corner, y, end), end)
    return np.where(swap, 1 - tail, tail + np.where(corner, more, 0))


LARGEST_PARAMETER: Final = 2.0**60
"""For larger parameters that are finite, there is no incomplete beta function here."""


def _beta_edges(inner: Array, a: Array, b: Array, x: Array, bottom: float) -> Array:
    """``bottom`` is the value at x = 0."""
    start, end = (a == 0) | np.isinf(b), (b == 0) | np.isinf(a)
    value = np.where(start, 1 - bottom, np.where(end, bottom, inner))
    value = np.where(x == 0, bottom, np.where(x == 1, 1 - bottom, value))
    outside = (a < 0) | (b < 0) | (x < 0) | (x > 1) | (start & end)
    return np.where(outside | np.isnan(a) | np.isnan(b) | np.isnan(x), np.nan, value)


def of_beta(function: Callable[..., Array], a: Array, b: Array, x: Array) -> Array:
    """The function of both parameters, x and 1 - x where they are inside, NaN elsewhere."""
    usable = (a <= LARGEST_PARAMETER) & (b <= LARGEST_PARAMETER)
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & usable
    return where_inside(inside, lambda a, b, x: function(a, b, x, 1 - x), a, b, x)


@in_double
def betainc(a: Array, b: Array, x: Array) -> Array:
    """The regularized incomplete beta function."""
    return _beta_edges(of_beta(_lower_beta, a, b, x), a, b, x, 0)


@in_double
def betaincc(a: Array, b: Array, x: Array) -> Array:
    """1 less that function."""
    inner = of_beta(lambda p, q, s, t: _lower_beta(q, p, t, s), a, b, x)
    return _beta_edges(inner, a, b, x, 1)


@in_double
def beta_density(a: Array, b: Array, x: Array) -> Array:
    """x**(a - 1) (1 - x)**(b - 1)/B(a, b)."""
    value = of_beta(
        lambda p, q, s, t: np.exp(beta_share(p, q, s, t) + np.log(p) - np.log(s) - np.log(t)),
        a, b, x,
    )  # fmt: skip
    first = np.where(a < 1, np.inf, np.where(a > 1, 0, b))
    last = np.where(b < 1, np.inf, np.where(b > 1, 0, a))
    value = np.where(x == 0, first, np.where(x == 1, last, value))
    outside = ~((a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b) & (x >= 0) & (x <= 1))
    return np.where(outside, np.nan, value)


# --- derivatives by the shapes --------------------------------------------------------------------


def _log_less_digamma(a: Array) -> Array:
    """log a - digamma(a), for a > 0, by steps to where the asymptotic series holds."""
    z, total = a, np.zeros_like(a)
    for _ in range(16):
        small = z < 16
        total = np.where(small, total + 1 / z, total)
        z = np.where(small, z + 1, z)
    rest = 1 / (2 * z)
    for j, b in enumerate(BERNOULLI):
        rest = rest + LONG(b) / (2 * j + 2) * z ** (-2.0 * j - 2)
    return rest + total + np.where(z > a, np.log(a / z), 0)


def _log_ratio(a: Array, x: Array) -> Array:
    """log(x/a)."""
    near = np.abs(x - a) < a / 2
    return np.where(near, np.log1p(np.where(near, (x - a) / a, 0)), np.log(x / a))


def _trigamma(a: Array) -> Array:
    """The derivative of digamma, for a > 0, likewise."""
    z, total = a, np.zeros_like(a)
    for _ in range(16):
        small = z < 16
        total = np.where(small, total + 1 / (z * z), total)
        z = np.where(small, z + 1, z)
    rest = 1 / z + 1 / (2 * z * z)
    for j, b in enumerate(BERNOULLI):
        rest = rest + LONG(b) * z ** (-2.0 * j - 3)
    return rest + total


def _by_series(a: Array, x: Array, order: int) -> Array:
    """A derivative over x**a exp(-x)/Gamma(a + 1), for x <= 40."""
    log = np.log(x / (a + 1)) + _log_less_digamma(a + 1)
    total, less, more = np.ones_like(x), np.zeros_like(x), np.zeros_like(x)
    for k in range(160, 0, -1):
        more = x / (a + k) * (2 / (a + k) * (total / (a + k) + less) + more)
        less = x / (a + k) * (total / (a + k) + less)
        total = 1 + x / (a + k) * total
    if order == 1:
        return log * total - less
    return (log * log - _trigamma(a + 1)) * total - 2 * log * less + more


def _by_moments(log: Array, a: Array, x: Array, sign: Array, order: int) -> Array:
    """A derivative by the integral, the lower one if sign is -1; log is log x - digamma(a)."""
    slope, spread = np.abs(x - a), _trigamma(a + 1) if order == 2 else 0
    following = np.where(a < 1, np.log(x / (a + 1)) + _log_less_digamma(a + 1), log - 1 / a)

    def weighed(u: Array) -> Array:
        factor = sign * log + u
        if order == 2:  # sign (factor**2 - trigamma(a)), without the terms 1/a**2
            inner = sign * following + u
            factor = sign * (inner * inner - spread) + 2 / a * inner
        return factor * np.exp(-slope * u - x * excess(sign * u))

    return -a * trapezoid(weighed, 1 / (slope + np.sqrt(x)), -56, 97)


def _by_shape(a: Array, x: Array, order: int, far: Array) -> Array:
    """A derivative of the regularized lower incomplete gamma function by its shape a."""
    value = of_gamma(lambda a, x: _inside(a, x, order), a, x)
    value = np.where(a > 1e15, far, value)
    value = np.where((a > 0) & (x > 0) & np.isfinite(x), value, 0)
    defined = (a > 0) & (x >= 0) & np.isfinite(a)
    return np.where(defined, value, np.nan)


def _inside(a: Array, x: Array, order: int) -> Array:
    """The derivative for positive, finite arguments."""
    log = _log_ratio(a, x) + _log_less_digamma(a)
    below = x < np.maximum(a, 1)
    few = (below | (x < 3)) & (a < 40)
    series = _by_series(a, np.where(few, x, 1), order)
    moments = _by_moments(log, a, np.where(few, a, x), np.where(below, -1, 1), order)
    return np.exp(log_share(a, x)) * np.where(few, series, moments)


@in_double
def gammainc_slope(a: Array, x: Array) -> Array:
    """The derivative of the regularized lower incomplete gamma function by its shape a."""
    return _by_shape(a, x, 1, -gamma_density(a, x))


@in_double
def gammainc_bend(a: Array, x: Array) -> Array:
    """The second derivative by its shape."""
    return _by_shape(a, x, 2, -gamma_density(a, x) * of_gamma(_log_ratio, a, x))


# --- the incomplete beta function -----------------------------------------------------------------

STEPS: Final = 8
"""How many terms of the series stand before the integral."""


def _score(a: Array, b: Array, x: Array, y: Array) -> Array:
    """log x - digamma(a) + digamma(a + b)."""
    apart = (b * x - a * y) / a
    near = np.abs(apart) < 0.5
    log = np.where(near, np.log1p(np.where(near, apart, 0)), np.log(x) + np.log1p(b / a))
    return log + (_log_less_digamma(a) - _log_less_digamma(a + b))


def _log_ratio_beta(u: Array, x: Array, y: Array, upper: Array) -> Array:
    """log(x/t) where logit(t) = logit(x) - u; for the upper function that of (1 - t)/y."""
    near = u < 1
    v = np.where(near, u, 0)
    close = np.where(upper, -np.log1p(x * np.expm1(-v)), np.log1p(y * np.expm1(v)))
    log = np.log(y + x * np.exp(-u))
    return np.where(near, close, np.where(upper, -log, u + log))


def _moment(a: Array, b: Array, x: Array, y: Array, upper: Array) -> tuple[Array, Array]:
    """The function, and the integral of the density times that logarithm, both over the share."""
    last, raised = x * (a + b + STEPS - 1), a + STEPS
    series = last * beta_integral(raised, b, x, y)
    moment = last * beta_integral(raised, b, x, y, lambda u: _log_ratio_beta(u, x, y, upper))
    for k in range(STEPS - 1, -1, -1):
        moment = moment + np.where(upper, series, b / (a + k) * (1 + series) + 1) / (a + b + k)
        series = 1 + series
        if k:
            step = x * (a + b + k - 1) / (a + k)
            series, moment = step * series, step * moment
    return series, moment


def _slope_between(a: Array, b: Array, y: Array, end: Array, upper: Array, mean: Array) -> Array:
    """The integral of t**(a - 1) (1 - t)**(b - 1) times log t - G from 1 - end to 1 - y.

    It is over end**b. For the upper function the factor is log((1 - t)/end) + mean.
    """
    log = np.log(y / end)
    total = below = by_a = np.zeros_like(y)
    factor = np.ones_like(y)
    for k in range(60):
        if k:
            by_a = by_a * (k - a) / k * end + factor / k * end
            factor = factor * (k - a) / k * end
        z = (b + k) * log
        part = -np.expm1(z) / (b + k)
        over = np.exp(z) * excess(np.maximum(-z, 0)) / (b + k) ** 2
        total = total + factor * part
        below = below + np.where(upper, factor * over, by_a * part)
    return np.where(upper, mean, -mean) * total - below


def _beta_slope(a: Array, b: Array, x: Array, y: Array) -> Array:
    """The derivative of the lower function by a, of positive, finite arguments; x + y = 1."""
    score = _score(a, b, x, y)
    upper = (np.where(a > 1, b * x - a * y, score) >= 0) & (b > np.minimum(a, 1 / 64))
    p, q, s, t = (np.where(upper, *pair) for pair in ((b, a), (a, b), (y, x), (x, y)))
    corner = (q <= 1) & ((p + q + STEPS) * t < 1)
    end = np.where(corner, 1 / (p + q + STEPS), 0.5)
    inner = np.where(corner, t, 0.5)
    mean = np.log1p(-inner) - score
    moved = np.where(upper, -np.log(inner / end), np.log1p(-end) - np.log1p(-inner))
    score = score + np.where(corner, moved, 0)
    at, rest = np.where(corner, 1 - end, s), np.where(corner, end, t)
    series, moment = _moment(p, q, at, rest, upper)
    mean = np.where(upper, score, mean)
    more = p * np.exp(-p * np.log1p(-end)) * _slope_between(p, q, inner, end, upper, mean)
    sign = np.where(upper, -1, 1)
    value = sign * score * series - moment + np.where(corner, sign * more, 0)
    return np.exp(beta_share(p, q, at, rest)) * value


def _slope_edges(inner: Array, a: Array, b: Array, x: Array) -> Array:
    edge = ((x == 0) | (x == 1)) & (a > 0) & (b > 0)
    usable = (a <= LARGEST_PARAMETER) & (b <= LARGEST_PARAMETER)
    return np.where(edge & usable, 0, inner)


@in_double
def betainc_slope_a(a: Array, b: Array, x: Array) -> Array:
    """The derivative of the regularized incomplete beta function by a."""
    return _slope_edges(of_beta(_beta_slope, a, b, x), a, b, x)


@in_double
def betainc_slope_b(a: Array, b: Array, x: Array) -> Array:
    """The derivative of the regularized incomplete beta function by b."""
    inner = of_beta(lambda p, q, s, t: -_beta_slope(q, p, t, s), a, b, x)
    return _slope_edges(inner, a, b, x)
