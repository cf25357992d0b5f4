"""What the complete elliptic integrals mean, by the arithmetic-geometric mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.references.special_reference import in_double

Array = Any


def _integral(p: Array, a: Array, b: Array) -> Array:
    """Of (a cos(t)**2 + b sin(t)**2)/sqrt(cos(t)**2 + p sin(t)**2), 0 < t < pi/2: cel2."""
    k, m, c, a = np.sqrt(p), 1.0, a, a + b
    for _ in range(14):
        b, c, before, m = 2.0 * (c * k + b), a, m, m + k
        a, k = b / m + a, 2.0 * np.sqrt(k * before)
    return 0.25 * np.pi * a / m


def _of(p: Array, a: Array, b: Array, at_zero: float, at_infinity: float) -> Array:
    """The integral, which for p > 1 is that of b, a and 1/p over sqrt(p)."""
    inside = np.where((p > 0.0) & (p < np.inf), p, 1.0)
    far = inside > 1.0
    near = np.where(far, 1.0 / inside, inside)
    value = _integral(near, np.where(far, b, a), np.where(far, a, b))
    value = np.where(far, value / np.sqrt(inside), value)
    value = np.where(p == 0.0, at_zero, np.where(p == np.inf, at_infinity, value))
    return np.where(p >= 0.0, value, np.nan)


@in_double
def ellipkm1(p: Array) -> Array:
    """K(1 - p)."""
    return _of(p, 1.0, 1.0, np.inf, 0.0)


@in_double
def ellipe(m: Array) -> Array:
    """E(m)."""
    p = 1.0 - m
    far = p > 1.0
    inside = np.where(far, 1.0 / np.where(far, p, 1.0), p)
    value = _of(inside, 1.0, inside, 1.0, np.inf)
    return np.where(p == np.inf, np.inf, np.where(far, np.sqrt(np.abs(p)) * value, value))


@in_double
def elliptic_b(p: Array) -> Array:
    """(E - p K)/(1 - p)."""
    return _of(p, 1.0, 0.0, 1.0, 0.0)


@in_double
def elliptic_d(p: Array) -> Array:
    """(K - E)/(1 - p)."""
    return _of(p, 0.0, 1.0, np.inf, 0.0)
