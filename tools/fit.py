"""Derive the polynomials of symgrad.mathlib: minimax in relative error, coefficients in float32.

Each target is f(t) on an interval, to be approximated as P(t) with |P/f - 1| * weight least, where
the weight is the share of P in the function that uses it. Remez's exchange on a grid of mpmath
values finds P; coefficients are then rounded to float32 one after the other, from the highest
down, the lower ones being fitted again each time. Run ``python tools/fit.py [name ...]``: it prints
the coefficients as they stand in symgrad/mathlib, and the bound, relative to the function, in
units of 2**-24 (half a ULP at most).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
from numpy.polynomial.polynomial import polyval

mp.mp.dps = 40
GRID = 2001
Number = Any  # mpmath has no types
Real = Callable[[Number], Number]


@dataclass(frozen=True)
class Target:
    """P of this degree for f on [low, high]; ``share`` is how P's error shows in the function."""

    f: Real
    low: float
    high: float
    degree: int
    share: Real


def odd(g: Real) -> Real:
    """P for g(x) = x + x**3 P(x**2)."""

    def f(s: Number) -> Number:
        x = mp.sqrt(s)
        return (g(x) - x) / (x * s)

    return f


def odd_share(g: Real) -> Real:
    """|x**3 P / g|."""

    def share(s: Number) -> Number:
        x = mp.sqrt(s)
        return (g(x) - x) / g(x)

    return share


def _log_share(x: Number) -> Number:
    return (mp.log1p(x) - x + x * x / 2) / mp.log1p(x)


def _tail(t: Number) -> Number:
    """erfc(a) exp(a**2) (1 + 2a) at a = 2 (1 + t)/(1 - t)."""
    a = 2 * (1 + t) / (1 - t)
    return mp.erfc(a) * mp.exp(a * a) * (1 + 2 * a)


def _acosh(t: Number) -> Number:
    return (mp.acosh(1 + t) / mp.sqrt(2 * t) - 1) / t


def _acosh_share(t: Number) -> Number:
    return 1 - mp.sqrt(2 * t) / mp.acosh(1 + t)


def _erf(s: Number) -> Number:
    return mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1


def _erf_share(s: Number) -> Number:
    return 1 - mp.sqrt(s) / mp.erf(mp.sqrt(s))


def _one(_: Number) -> Number:
    return mp.mpf(1)


SMALL = 1e-9
TARGETS = {
    "EXPM1": Target(lambda x: (mp.expm1(x) - x) / x**2, -0.5, 0.5, 6,
                    lambda x: (mp.expm1(x) - x) / mp.expm1(x)),
    "LOG1P": Target(lambda x: (mp.log1p(x) - x + x * x / 2) / x**3, -0.2929, 0.4143, 8, _log_share),
    "EXP_SMALL": Target(lambda x: mp.expm1(x) / x, -0.1, 0.1, 3,
                        lambda x: 1 - mp.exp(-x)),
    "SINH": Target(odd(mp.sinh), SMALL, 1.0, 3, odd_share(mp.sinh)),
    "TANH": Target(odd(mp.tanh), SMALL, 0.625**2, 4, odd_share(mp.tanh)),
    "ASINH": Target(odd(mp.asinh), SMALL, 0.5625, 7, odd_share(mp.asinh)),
    "ACOSH": Target(_acosh, SMALL, 0.5, 5, _acosh_share),
    "ATANH": Target(odd(mp.atanh), SMALL, 0.25, 5, odd_share(mp.atanh)),
    "ATAN": Target(odd(mp.atan), SMALL, 0.1716, 3, odd_share(mp.atan)),
    "ASIN": Target(odd(mp.asin), SMALL, 0.25, 4, odd_share(mp.asin)),
    "LOG_SERIES": Target(odd(mp.atanh), SMALL, 0.01022, 3, odd_share(mp.atanh)),
    "ERF": Target(_erf, SMALL, 1.0, 6, _erf_share),
    "ERFC_TAIL": Target(_tail, -0.6, 0.67, 8, _one),
}  # fmt: skip


def fit(target: Target) -> tuple[list[float], float]:
    """The coefficients, float32 values, and the relative error of the function, in 2**-24."""
    nodes = np.cos(np.linspace(np.pi, 0, GRID)) / 2 + 0.5
    t = target.low + (target.high - target.low) * nodes
    t = t[np.abs(t) > SMALL / 2]
    values = np.array([float(target.f(mp.mpf(x))) for x in t])
    weights = np.array([float(abs(target.share(mp.mpf(x)))) for x in t]) / np.abs(values)
    coefficients = np.zeros(target.degree + 1)
    for k in range(target.degree, -1, -1):
        known = polyval(t, coefficients)
        coefficients[k] = np.float32(_remez(t, values - known, weights, k)[k])
    error = np.abs(polyval(t, coefficients) - values) * weights
    return coefficients.tolist(), float(error.max() * 2**24)


def _remez(t: np.ndarray, values: np.ndarray, weights: np.ndarray, degree: int) -> np.ndarray:
    """The coefficients of least |P - values| * weights: Remez's exchange on the grid."""
    powers = t[:, None] ** np.arange(degree + 1)
    chosen = np.linspace(0, len(t) - 1, degree + 2).astype(int)
    signs = (-1.0) ** np.arange(degree + 2)
    solution = np.zeros(degree + 2)
    for _ in range(60):
        heights = 1.0 / np.maximum(weights[chosen], 1e-30)
        solution = np.linalg.solve(
            np.column_stack([powers[chosen], signs * heights]), values[chosen]
        )
        error = (powers @ solution[:-1] - values) * weights
        exchanged = _extrema(error, degree + 2)
        if exchanged is None or np.array_equal(exchanged, chosen):
            break
        chosen = exchanged
    return solution[:-1]


def _extrema(error: np.ndarray, count: int) -> np.ndarray | None:
    """The largest |error| in each stretch of one sign; the ``count`` neighbours that matter."""
    cuts = np.flatnonzero(np.diff(np.sign(error)) != 0) + 1
    stretches = np.split(np.arange(len(error)), cuts)
    peaks = [int(s[np.argmax(np.abs(error[s]))]) for s in stretches]
    while len(peaks) > count:
        peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    return np.array(peaks) if len(peaks) == count else None


def main(names: list[str]) -> None:
    """Print the named coefficient sets, or all."""
    for name in names or TARGETS:
        coefficients, bound = fit(TARGETS[name])
        listed = ", ".join(str(np.float32(c)) for c in coefficients)
        print(f"{name} = ({listed})  # {bound:.4f} * 2**-24")


if __name__ == "__main__":
    main(sys.argv[1:])
