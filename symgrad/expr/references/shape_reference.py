"""What the derivative of the incomplete gamma functions by their shape means: its integrals."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.references.incomplete_reference import (
    LONG,
    excess,
    gamma_density,
    inner_gamma,
    log_share,
    trapezoid,
)
from symgrad.expr.references.special_reference import BERNOULLI, in_double

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


def _by_series(a: Array, x: Array) -> Array:
    """The derivative over x**a exp(-x)/Gamma(a + 1), for x <= 40."""
    log = np.log(x / (a + 1)) + _log_less_digamma(a + 1)
    total, less = np.ones_like(x), np.zeros_like(x)
    for k in range(160, 0, -1):
        less = x / (a + k) * (total / (a + k) + less)
        total = 1 + x / (a + k) * total
    return log * total - less


def _by_moments(log: Array, a: Array, x: Array, sign: Array) -> Array:
    """The derivative by the integral, the lower one if sign is -1; log is log x - digamma(a)."""
    slope = np.abs(x - a)

    def weighed(u: Array) -> Array:
        return (sign * log + u) * np.exp(-slope * u - x * excess(sign * u))

    return -a * trapezoid(weighed, 1 / (slope + np.sqrt(x)), -56, 97)


@in_double
def gammainc_slope(a: Array, x: Array) -> Array:
    """The derivative of the regularized lower incomplete gamma function by its shape a."""
    inside, (shape, at) = (a > 0) & (x > 0), map(LONG, inner_gamma(a, x))
    log = _log_ratio(shape, at) + _log_less_digamma(shape)
    below = at < np.maximum(shape, 1)
    few = below & (shape < 40)
    series = _by_series(shape, np.where(few, at, 1))
    moments = _by_moments(log, shape, np.where(few, shape, at), np.where(below, -1, 1))
    value = np.exp(log_share(shape, at)) * np.where(few, series, moments)
    value = np.where(a > 1e15, -gamma_density(a, x), value)
    value = np.where(inside & np.isfinite(a) & np.isfinite(x), value, 0)
    defined = (a > 0) & (x >= 0) & np.isfinite(a)
    return np.where(defined, value, np.nan)
