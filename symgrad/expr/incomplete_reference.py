"""What the incomplete gamma functions mean, in NumPy's numbers: integrals by many panels."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from symgrad.expr.special_reference import BERNOULLI, in_double

Array = Any

LONG: Final[Any] = np.longdouble
"""What large exponents are computed in, where it has more digits than float64."""


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


def _share(a: Array, x: Array) -> Array:
    """log(x**a exp(-x)/Gamma(a + 1)) of a, x > 0."""
    a, x = LONG(a), LONG(x)
    return _deviance(a, x) - _log_factorial_rest(a)


def _integral(slope: Array, x: Array, sign: Array) -> Array:
    """That of exp(-slope u - x (exp(sign u) - 1 - sign u)) over u > 0.

    By the trapezoidal rule in t, u = exp(t - exp(-t))/(slope + sqrt(x)) (Takahasi & Mori, 1974).
    """
    end = 1 / (slope + np.sqrt(x))
    total = np.zeros_like(x)
    for k in range(-56, 97):
        t = LONG(k) / 16
        u = end * np.exp(t - np.exp(-t))
        total = total + u * (1 + np.exp(-t)) * np.exp(-slope * u - x * _excess(sign * u))
    return total / 16


def _excess(v: Array) -> Array:
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
    a, x = LONG(a), LONG(x)
    below, few = x < np.maximum(a, 1), (x < np.maximum(a, 1)) & (a < 40)
    corner = below & (a < 1)
    top = np.where(corner, 1, x)  # the upper function at 1, and what lies between
    left = below & ~corner
    integral = _integral(np.abs(top - a), top, np.where(left, -1, 1))
    lower = np.where(few, _series(a, np.where(few, x, 1)), a * integral)
    lower = np.exp(_share(a, x)) * lower
    upper = a * np.exp(_share(a, top)) * integral
    inverse = a * np.exp(-(_log_factorial_rest(a) + a * np.log(a) - a))
    upper = upper + np.where(corner, inverse * _between(a, np.where(corner, x, 1)), 0)
    return np.where(below, lower, 1 - upper), np.where(left, 1 - lower, upper)


def _at_edges(inner: Array, a: Array, x: Array, bottom: float) -> Array:
    """``bottom`` is the value at x = 0."""
    value = np.where(x < a, bottom, np.where(x > a, 1 - bottom, inner))
    value = np.where((a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x), inner, value)
    outside = (a < 0) | (x < 0) | ((a == x) & ((a == 0) | np.isinf(a)))
    return np.where(outside | np.isnan(a) | np.isnan(x), np.nan, value)


def _inner(a: Array, x: Array) -> tuple[Array, Array]:
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    return np.where(inside, a, 1), np.where(inside, x, 1)


@in_double
def gammainc(a: Array, x: Array) -> Array:
    """The regularized lower incomplete gamma function."""
    return _at_edges(_both(*_inner(a, x))[0], a, x, 0)


@in_double
def gammaincc(a: Array, x: Array) -> Array:
    """The regularized upper incomplete gamma function."""
    return _at_edges(_both(*_inner(a, x))[1], a, x, 1)


@in_double
def gamma_density(a: Array, x: Array) -> Array:
    """x**(a - 1) exp(-x)/Gamma(a)."""
    inner, at = _inner(a, x)
    value = np.exp(_share(LONG(inner), LONG(at)) + np.log(LONG(inner)) - np.log(LONG(at)))
    first = np.where(a < 1, np.inf, np.where(a > 1, 0, 1))
    edge = np.where((x == 0) & (a > 0), first, 0)
    outside = (a < 0) | (x < 0) | (np.isinf(a) & np.isinf(x)) | np.isnan(a) | np.isnan(x)
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    return np.where(outside, np.nan, np.where(inside, value, edge))
