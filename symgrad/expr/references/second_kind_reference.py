"""What the modified Bessel functions of the second kind mean, by a series and by quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.expr.references.special_reference import in_double

Array = Any


def _series(n: int, x: Array) -> Array:
    """K_n(x), n being 0 or 1, for 0 < x <= 1."""
    log, square = np.log(2.0 / x) - np.euler_gamma, 0.25 * x * x
    total, harmonic, term = np.zeros_like(x), 0.0, np.ones_like(x)
    for k in range(12):
        after = harmonic + 1.0 / (k + 1)
        total = total + term * (log + (0.5 * (harmonic + after) if n else harmonic))
        harmonic, term = after, term * square / ((k + 1) * (k + 1 + n))
    return 1.0 / x - 0.5 * x * total if n else total


def _quadrature(n: int, x: Array) -> Array:
    """exp(x) K_n(x), x > 1: the integral of exp(-2 x sinh(t/2)**2) cosh(n t), t > 0, by steps."""
    total, step = np.zeros_like(x), 0.15 / np.sqrt(x)
    for k in range(65):
        t = k * step
        value = np.exp(-2.0 * x * np.sinh(0.5 * t) ** 2) * np.cosh(n * t)
        total = total + (value if k else 0.5 * value)
    return step * total


def _scaled(n: int, x: Array) -> Array:
    inside = np.where((x > 0.0) & (x <= 1.0), x, 1.0)
    far = _quadrature(n, np.where((x > 1.0) & (x < math.inf), x, 2.0))
    value = np.where(x > 1.0, far, np.exp(inside) * _series(n, inside))
    value = np.where(x == 0.0, math.inf, np.where(x == math.inf, 0.0, value))
    return np.where(x >= 0.0, value, math.nan)


@in_double
def k0e(x: Array) -> Array:
    """exp(x) K_0(x)."""
    return _scaled(0, x)


@in_double
def k1e(x: Array) -> Array:
    """exp(x) K_1(x)."""
    return _scaled(1, x)
