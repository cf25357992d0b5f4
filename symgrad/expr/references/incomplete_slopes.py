"""References of the derivatives of incomplete gamma and beta functions by their shapes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from symgrad.expr.references.incomplete import (
    LARGEST_PARAMETER,
    LONG,
    beta_integral,
    beta_share,
    excess,
    gamma_density,
    log_share,
    of_beta,
    of_gamma,
    trapezoid,
)
from symgrad.expr.references.special import BERNOULLI, in_double

Array = Any


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


def _between(a: Array, b: Array, y: Array, end: Array, upper: Array, mean: Array) -> Array:
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
    more = p * np.exp(-p * np.log1p(-end)) * _between(p, q, inner, end, upper, mean)
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
