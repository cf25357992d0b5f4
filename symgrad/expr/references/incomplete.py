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
