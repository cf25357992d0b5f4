"""Derive the polynomials of symgrad.mathlib: minimax in relative error, coefficients in float32.

Each target is f(t) on an interval, to be approximated as P(t) with |P/f - 1| * weight least, where
the weight is the share of P in the function that uses it. Remez's exchange on a grid of mpmath
values finds P; coefficients are then rounded to float32 one after the other, from the highest
down, the lower ones being fitted again each time. Run ``python tools/fit.py [name ...]``: it prints
the coefficients as they stand in symgrad/mathlib, and the bound, relative to the function, in
units of 2**-24 (half a ULP at most).

Coefficients of the float64 functions (`DOUBLE`) are found in the same way, in mpmath arithmetic on
a coarser grid, and rounded all at once: where the share of P is small, so is that of its rounding.
Their bounds are in units of 2**-53.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
from numpy.polynomial.polynomial import polyval

mp.mp.dps = 40
GRID = 2001
NODES = 96
"""Of an interpolant that stands for a function on the grid: none is one of its points."""
SAMPLES = 40
"""The points at which it is compared with the function."""
SAME = 1e-13
"""How close they are, beside the largest of them."""
SHORT = 10
"""The highest degree of a polynomial of which an interpolant is taken."""
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


def _tail(t: Number) -> Number:
    """erfc(a) exp(a**2) (a + 1) at a = (1 + t)/(1 - t)."""
    a = (1 + t) / (1 - t)
    return mp.erfc(a) * mp.exp(a * a) * (a + 1)


def _normal_tail(t: Number) -> Number:
    """Phi(-a) exp(a**2/2) (a + 3/2) at a = 3/2 (1 + t)/(1 - t)."""
    a = 1.5 * (1 + t) / (1 - t)
    return mp.ncdf(-a) * mp.exp(a * a / 2) * (a + 1.5)


def _acosh(t: Number) -> Number:
    return (mp.acosh(1 + t) / mp.sqrt(2 * t) - 1) / t


def _acosh_share(t: Number) -> Number:
    return 1 - mp.sqrt(2 * t) / mp.acosh(1 + t)


def _erf(s: Number) -> Number:
    return mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1


def _erf_share(s: Number) -> Number:
    return 1 - mp.sqrt(s) / mp.erf(mp.sqrt(s))


def _log_square(x: Number) -> Number:
    """P for log(1 + x) = x + x**2 P(x)."""
    return (mp.log1p(x) - x) / x**2


def _log_square_share(x: Number) -> Number:
    return 1 - x / mp.log1p(x)


def _turn(w: Number) -> Number:
    """P for sin(2 pi h) = h (4 + w P(w)), w = 1/16 - h**2."""
    h = mp.sqrt(0.0625 - w)
    return (mp.sin(2 * mp.pi * h) / h - 4) / w


def _one(_: Number) -> Number:
    return mp.mpf(1)


def _log_gamma(n: int) -> Real:
    """gammaln(n + d)/d."""
    return lambda d: mp.loggamma(n + d) / d


def _stirling(z: Number) -> Number:
    """(gammaln(x) - (x - 1/2) log x + x - log(2 pi)/2) x, of z = 1/x**2."""
    x = 1 / mp.sqrt(z)
    return (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2) * x


def _stirling_share(z: Number) -> Number:
    return _stirling(z) * mp.sqrt(z) / mp.loggamma(1 / mp.sqrt(z))


DIGAMMA_ROOT = mp.findroot(mp.digamma, 1.46)


def _digamma(t: Number) -> Number:
    """digamma(2 + t) over the distance from its root."""
    return mp.digamma(2 + t) / (2 + t - DIGAMMA_ROOT)


def _harmonic(z: Number) -> Number:
    """(log x - 1/(2x) - digamma(x)) x**2, of z = 1/x**2."""
    x = 1 / mp.sqrt(z)
    return (mp.log(x) - 0.5 / x - mp.digamma(x)) * x * x


def _harmonic_share(z: Number) -> Number:
    return _harmonic(z) * z / mp.digamma(1 / mp.sqrt(z))


def _sinc_ratio(s: Number) -> Number:
    """(sinc(x) - cos(pi x))/(pi x)**2, of s = x**2."""
    z = mp.pi * mp.sqrt(s)
    return (mp.sinc(z) - mp.cos(z)) / z**2


def _sinc(s: Number) -> Number:
    """(sinc(x) - 1)/x**2, of s = x**2."""
    return (mp.sincpi(mp.sqrt(s)) - 1) / s


def _hazard(t: Number) -> Number:
    """(phi(a)/Phi(-a) - a)(a + 3) - 3/2 at a = 3 (1 + t)/(1 - t)."""
    a = 3 * (1 + t) / (1 - t)
    if a < 200:
        excess = mp.npdf(a) / mp.ncdf(-a) - a
    else:
        z = 1 / a**2
        excess = (1 - 2 * z + 10 * z**2 - 74 * z**3 + 706 * z**4) / a
    return excess * (a + 3) - mp.mpf(3) / 2


def _bend(t: Number) -> Number:
    """(1 - u h)(4 - x)**2 at t = 6/(4 - x) - 1: h = phi(x)/Phi(x), u = h + x."""
    x = 4 - 6 / (t + 1)
    with mp.workdps(70):
        if x > -60:
            h = mp.npdf(x) / mp.ncdf(x)
            return (1 - (h + x) * h) * (4 - x) ** 2
        rest = -x
        for k in range(150, 1, -1):
            rest = k / rest - x
        return (1 - (1 / rest - x) / rest) * (4 - x) ** 2


def _scaled(n: int, a: Number) -> Number:
    """exp(-a) I_n(a), far to the right by its asymptotic series."""
    if a < 60:
        return mp.besseli(n, a) * mp.exp(-a)
    total, term = mp.mpf(0), mp.mpf(1)
    for k in range(1, 60):
        total += term
        term *= -(4 * n * n - (2 * k - 1) ** 2) / (8 * k * a)
    return total / mp.sqrt(2 * mp.pi * a)


def _bessel(f: Real, power: float) -> Real:
    """f(a) (a + 9)**power at t = 1 - 20/(a + 9)."""

    def g(t: Number) -> Number:
        a = 20 / (1 - t) - 9
        return f(a) * (a + 9) ** mp.mpf(power)

    return g


def _scaled_k(n: int, x: Number) -> Number:
    """exp(x) K_n(x), far to the right by its asymptotic series."""
    if x < 60:
        return mp.besselk(n, x) * mp.exp(x)
    total, term = mp.mpf(0), mp.mpf(1)
    for k in range(1, 60):
        total += term
        term *= (4 * n * n - (2 * k - 1) ** 2) / (8 * k * x)
    return total * mp.sqrt(mp.pi / (2 * x))


def _from(start: Number, f: Real, power: float) -> Real:
    """f(x) (x + 1)**power at t = 1 - 2 (start + 1)/(x + 1)."""

    def g(t: Number) -> Number:
        x = 2 * (start + 1) / (1 - t) - 1
        return f(x) * (x + 1) ** mp.mpf(power)

    return g


def _about_zero(n: int, k: int, low: float, high: float, degree: int) -> Target:
    """P for J_n(z + d) = d P(d), z the k-th zero, low <= z + d <= high."""
    z = mp.besseljzero(n, k)
    return Target(lambda d: mp.besselj(n, z + d) / d, float(low - z), float(high - z), degree, _one)


def _about_0(n: int) -> Real:
    """P for J_n(x) = (x/2)**n (1 + x**2 P(x**2))."""

    def f(s: Number) -> Number:
        x = mp.sqrt(s)
        return (mp.besselj(n, x) / (x / 2) ** n - 1) / s

    return f


def _about_0_share(n: int) -> Real:
    return lambda s: 1 - (mp.sqrt(s) / 2) ** n / mp.besselj(n, mp.sqrt(s))


@cache
def _hankel(n: int, u: Number) -> tuple[Number, Number]:
    """p, q of J_n(x) = sqrt(2/(pi x)) (p cos(t) - q sin(t)), t = x - (n + 1/2) pi/2, x**-2 = u."""
    x = 1 / mp.sqrt(u)
    t = x - (n + mp.mpf(1) / 2) * mp.pi / 2
    j, y, root = mp.besselj(n, x), mp.bessely(n, x), mp.sqrt(mp.pi * x / 2)
    return root * (j * mp.cos(t) + y * mp.sin(t)), root * (y * mp.cos(t) - j * mp.sin(t))


def _even(n: int, end: float, degree: int) -> Target:
    """P for p = 1 + u P(u)."""
    return Target(lambda u: (_hankel(n, u)[0] - 1) / u, SMALL, end**-2, degree,
                  lambda u: _hankel(n, u)[0] - 1)  # fmt: skip


def _odd(n: int, end: float, degree: int) -> Target:
    """P for q = P(u)/x."""
    return Target(lambda u: _hankel(n, u)[1] / mp.sqrt(u), SMALL, end**-2, degree,
                  lambda u: _hankel(n, u)[1])  # fmt: skip


def _hazard_share(t: Number) -> Number:
    return _hazard(t) / (_hazard(t) + mp.mpf(3) / 2)


def _inverse_middle(t: Number) -> Number:
    """erfinv(x)/x of t = -log(1 - x**2) - 25/8."""
    w = t + 3.125
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x if w > 1e-12 else mp.sqrt(mp.pi) / 2


def _inverse_tail(middle: float) -> Real:
    """erfinv(x)/s of t = (s - middle)/(s + middle), s**2 = -log(1 - x**2)."""

    def f(t: Number) -> Number:
        s = middle * (1 + t) / (1 - t)
        w = s * s
        rest = 1 - mp.sqrt(-mp.expm1(-w)) if w < 60 else mp.exp(-w) / 2
        start = mp.sqrt(w - mp.log(w) / 2 - 0.5)
        return mp.findroot(lambda y: mp.log(mp.erfc(y) / rest), start) / s

    return f


SMALL = 1e-9
TARGETS = {
    "EXP": Target(lambda x: (mp.expm1(x) - x) / x**2, -0.3814, 1.0052, 5,
                  lambda x: (mp.expm1(x) - x) / mp.exp(x)),
    "EXP2": Target(lambda x: mp.expm1(x * mp.log(2)) / x, -0.5501, 1.4501, 6,
                   lambda x: 1 - mp.mpf(2) ** -x),
    "LOG": Target(_log_square, -0.29290, 0.41422, 7, _log_square_share),
    "LOG2": Target(lambda x: mp.log1p(x) / (mp.log(2) * x) - 1, -0.29290, 0.41422, 8,
                   lambda x: 1 - mp.log(2) * x / mp.log1p(x)),
    "LOG10": Target(lambda x: mp.log1p(x) / (mp.log(10) * x) - 0.4375, -0.29290, 0.41422, 8,
                    lambda x: 1 - 0.4375 * mp.log(10) * x / mp.log1p(x)),
    "SIN": Target(odd(mp.sin), SMALL, 0.6169, 2, odd_share(mp.sin)),
    "COS": Target(lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2, SMALL, 0.6169, 2,
                  lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / mp.cos(mp.sqrt(s))),
    "TURN": Target(_turn, SMALL, 0.0625 - SMALL, 3, lambda w: w * _turn(w) / (w * _turn(w) + 4)),
    "EXPM1": Target(lambda x: (mp.expm1(x) - x) / x**2, -0.6933, 0.6933, 6,
                    lambda x: (mp.expm1(x) - x) / mp.expm1(x)),
    "SINH": Target(odd(mp.sinh), SMALL, 1.0, 3, odd_share(mp.sinh)),
    "TANH": Target(odd(mp.tanh), SMALL, 0.625**2, 4, odd_share(mp.tanh)),
    "ASINH": Target(odd(mp.asinh), SMALL, 0.5625, 7, odd_share(mp.asinh)),
    "ACOSH": Target(_acosh, SMALL, 0.5, 5, _acosh_share),
    "ATANH": Target(odd(mp.atanh), SMALL, 0.25, 5, odd_share(mp.atanh)),
    "ATAN": Target(odd(mp.atan), SMALL, 0.1716, 3, odd_share(mp.atan)),
    "ASIN": Target(odd(mp.asin), SMALL, 0.25, 4, odd_share(mp.asin)),
    "LOG_SERIES": Target(odd(mp.atanh), SMALL, 0.01022, 3, odd_share(mp.atanh)),
    "ERF": Target(_erf, SMALL, 1.0, 6, _erf_share),
    "ERFC_TAIL": Target(lambda t: _tail(t) - 0.75, -0.1051, 0.8201, 9,
                        lambda t: 1 - 0.75 / _tail(t)),
    "NORMAL_TAIL": Target(lambda t: _normal_tail(t) - 0.5, -0.1343, 0.8114, 9,
                          lambda t: 1 - 0.5 / _normal_tail(t)),
    "LOG_GAMMA_1": Target(_log_gamma(1), -0.5001, 0.5001, 13, _one),
    "LOG_GAMMA_2": Target(_log_gamma(2), -0.5001, 0.5001, 8, _one),
    "STIRLING": Target(_stirling, SMALL, 0.0817, 2, _stirling_share),
    "DIGAMMA": Target(_digamma, -1.0, 1.0, 13, _one),
    "HARMONIC": Target(_harmonic, SMALL, 0.1112, 2, _harmonic_share),
    "SINC_RATIO": Target(_sinc_ratio, SMALL, 0.5625, 5, _one),
    "HAZARD": Target(_hazard, -1.0, 0.9999, 13, _hazard_share),
    "INVERSE_MIDDLE": Target(_inverse_middle, -3.125, 3.125, 10, _one),
    "INVERSE_TAIL": Target(_inverse_tail(2.5), -0.0021, 0.61, 8, _one),
    "SINC": Target(_sinc, SMALL, 0.25, 4, lambda s: s * _sinc(s) / (1 + s * _sinc(s))),
    "J0_SERIES": Target(_about_0(0), SMALL, 1.0, 3, _about_0_share(0)),
    "J0_FIRST": _about_zero(0, 1, 1.0, 3.5, 9),
    "J0_SECOND": _about_zero(0, 2, 3.5, 7.0, 9),
    "J0_EVEN": _even(0, 7.0, 2),
    "J0_ODD": _odd(0, 7.0, 2),
    "J1_SERIES": Target(_about_0(1), SMALL, 4.0, 4, _about_0_share(1)),
    "J1_FIRST": _about_zero(1, 1, 2.0, 5.4, 9),
    "J1_SECOND": _about_zero(1, 2, 5.4, 8.6, 9),
    "J1_EVEN": _even(1, 8.6, 2),
    "J1_ODD": _odd(1, 8.6, 2),
}  # fmt: skip


def _cosine(s: Number) -> Number:
    """(cos(x) - 1 + x**2/2)/x**4, of s = x**2."""
    return (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2


def _cosine_share(s: Number) -> Number:
    return s * s * _cosine(s) / mp.cos(mp.sqrt(s))


def _log_series(z: Number) -> Number:
    """(2 atanh(s) - 2 s)/s**3, of z = s**2."""
    s = mp.sqrt(z)
    return 2 * (mp.atanh(s) - s) / (s * z)


def _log2_series(z: Number) -> Number:
    """R of atanh(s) = s/3 (3 + s**2 + s**4 R), of z = s**2."""
    s = mp.sqrt(z)
    return (3 * mp.atanh(s) / s - 3 - z) / z**2


def _exp2_rest(x: Number) -> Number:
    return (mp.mpf(2) ** x - 1 - x * mp.ln2) / x**2


def _double_tail(t: Number) -> Number:
    """erfc(a) exp(a**2) (1 + 2a) - 5/4 at a = 3 (1 + t)/(1 - t)."""
    a = 3 * (1 + t) / (1 - t)
    return mp.erfc(a) * mp.exp(a * a) * (1 + 2 * a) - 1.25


def _normal_middle(s: Number) -> Number:
    """(Phi(x) - 1/2)/x - 3/8, of s = x**2."""
    x = mp.sqrt(s)
    return mp.erf(x / mp.sqrt(2)) / (2 * x) - mp.mpf(3) / 8


def _normal_middle_share(s: Number) -> Number:
    return mp.sqrt(s) * _normal_middle(s) / mp.ncdf(-mp.sqrt(s))


def _double_normal_tail(t: Number) -> Number:
    """Phi(-a) exp(a**2/2) (1 + 2a) - 13/16 at a = 4 (1 + t)/(1 - t)."""
    a = 4 * (1 + t) / (1 - t)
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2) * (1 + 2 * a) - mp.mpf(13) / 16


def _double_normal_tail_share(t: Number) -> Number:
    return _double_normal_tail(t) / (_double_normal_tail(t) + mp.mpf(13) / 16)


def _sigmoid(x: Number) -> Number:
    return 1 / (1 + mp.exp(-x))


def silu_slope(x: Number) -> Number:
    """The derivative of x/(1 + exp(-x))."""
    return _sigmoid(x) * (1 + x * _sigmoid(-x))


def gelu_slope(x: Number) -> Number:
    """The derivative of x Phi(x)."""
    return mp.ncdf(x) + x * mp.npdf(x)


def gelu_tanh_slope(x: Number) -> Number:
    """The derivative of x/(1 + exp(-z)), z = 2 sqrt(2/pi)(x + 0.044715 x**3)."""
    scale, cubic = 2 * mp.sqrt(2 / mp.pi), mp.mpf("0.044715")
    z = scale * (x + cubic * x**3)
    return _sigmoid(z) * (1 + x * scale * (1 + 3 * cubic * x * x) * _sigmoid(-z))


def pieces(value: Number) -> tuple[float, float]:
    """The 26 leading bits of a number, and the rest."""
    _, exponent = mp.frexp(value)
    high = mp.ldexp(mp.nint(mp.ldexp(value, 26 - exponent)), exponent - 26)
    return float(high), float(value - high)


def root_of(g: Real, start: float) -> tuple[float, ...]:
    """The root of g in two pieces, and the derivative of g there, also in two."""
    root = mp.findroot(g, start)
    return float(root), float(root - float(root)), *pieces(mp.diff(g, root))


def about_root(g: Real, start: float) -> Target:
    """P for g(r + d) = d (g'(r) + d P(d)), |d| <= 1/8, r the root of g."""
    root = mp.findroot(g, start)
    steepness = mp.diff(g, root)

    def f(d: Number) -> Number:
        return (g(root + d) / d - steepness) / d

    return Target(f, -0.125, 0.125, 9, lambda d: d * d * f(d) / g(root + d))


SCALE = 2 * mp.sqrt(2 / mp.pi)
PIECES = {
    "SILU_ROOT": root_of(silu_slope, -1.278),
    "GELU_ROOT": root_of(gelu_slope, -0.752),
    "GELU_TANH_ROOT": root_of(gelu_tanh_slope, -0.752),
    "LINEAR": pieces(SCALE),
    "CUBIC": pieces(SCALE * mp.mpf("0.044715")),
    "DENSITY": pieces(1 / mp.sqrt(2 * mp.pi)),
}
"""Constants of symgrad.mathlib.double in pieces."""

DOUBLE = {
    "EXP": Target(lambda x: (mp.expm1(x) - x) / x**2, -0.3467, 0.3467, 9,
                  lambda x: (mp.expm1(x) - x) / mp.exp(x)),
    "EXPM1": Target(lambda x: (mp.expm1(x) - x) / x**2, -0.3467, 0.3467, 10,
                    lambda x: (mp.expm1(x) - x) / mp.expm1(x)),
    "EXP2": Target(_exp2_rest, -0.5, 0.5, 9, lambda x: x * x * _exp2_rest(x) / 2**x),
    "LOG": Target(_log_series, SMALL, 0.02945, 6, odd_share(mp.atanh)),
    "LOG2": Target(_log2_series, SMALL, 0.01022, 5,
                   lambda z: z**2 * _log2_series(z) / (3 + z + z**2 * _log2_series(z))),
    "SIN": Target(odd(mp.sin), SMALL, 0.61686, 5, odd_share(mp.sin)),
    "COS": Target(_cosine, SMALL, 0.61686, 5, _cosine_share),
    "SINH": Target(odd(mp.sinh), SMALL, 1.0, 6, odd_share(mp.sinh)),
    "ASIN": Target(odd(mp.asin), SMALL, 0.25, 11, odd_share(mp.asin)),
    "ATAN": Target(odd(mp.atan), SMALL, 0.1716, 10, odd_share(mp.atan)),
    "INVERSE_CBRT": Target(lambda x: 1 / mp.cbrt(x), 1.0, 2.0, 4, _one),
    "ERF": Target(_erf, SMALL, 0.25, 8, _erf_share),
    "ERFC": Target(_double_tail, -0.7144, 0.81, 23,
                   lambda t: _double_tail(t) / (_double_tail(t) + 1.25)),
    "NORMAL": Target(_normal_middle, SMALL, 0.7657, 10, _normal_middle_share),
    "NORMAL_TAIL": Target(_double_normal_tail, -0.6411, 0.8141, 22, _double_normal_tail_share),
    "SILU_SLOPE": about_root(silu_slope, -1.278),
    "GELU_SLOPE": about_root(gelu_slope, -0.752),
    "GELU_TANH_SLOPE": about_root(gelu_tanh_slope, -0.752),
    "LOG_GAMMA_1": Target(_log_gamma(1), -0.5001, 0.5001, 28, _one),
    "LOG_GAMMA_2": Target(_log_gamma(2), -0.5001, 0.5001, 18, _one),
    "STIRLING": Target(_stirling, SMALL, 0.0817, 8, _stirling_share),
    "DIGAMMA": Target(_digamma, -1.0, 1.0, 29, _one),
    "HARMONIC": Target(_harmonic, SMALL, 0.1112, 10, _harmonic_share),
    "SINC_RATIO": Target(_sinc_ratio, SMALL, 0.5625, 10, _one),
    "HAZARD": Target(_hazard, -1.0, 0.9999, 30, _hazard_share),
    "INVERSE_TAIL": Target(_inverse_tail(5.0), -0.336, 0.692, 9, _one),
    "SINC": Target(_sinc, SMALL, 0.25, 8, lambda s: s * _sinc(s) / (1 + s * _sinc(s))),
    "J0_SERIES": Target(_about_0(0), SMALL, 1.0, 7, _about_0_share(0)),
    "J0_FIRST": _about_zero(0, 1, 1.0, 3.5, 18),
    "J0_SECOND": _about_zero(0, 2, 3.5, 7.0, 18),
    "J0_EVEN": _even(0, 7.0, 12),
    "J0_ODD": _odd(0, 7.0, 12),
    "J1_SERIES": Target(_about_0(1), SMALL, 4.0, 9, _about_0_share(1)),
    "J1_FIRST": _about_zero(1, 1, 2.0, 5.4, 18),
    "J1_SECOND": _about_zero(1, 2, 5.4, 8.6, 18),
    "J1_EVEN": _even(1, 8.6, 10),
    "J1_ODD": _odd(1, 8.6, 11),
}  # fmt: skip
"""The polynomials of symgrad.mathlib.double."""


def fit_double(target: Target) -> tuple[list[float], float]:
    """The coefficients in float64, and the relative error of the function, in 2**-53."""
    count = 16 * (target.degree + 2)
    low, high = mp.mpf(target.low), mp.mpf(target.high)
    steps = [(1 - mp.cos(mp.pi * k / count)) / 2 for k in range(count + 1)]
    t = [x for x in (low + (high - low) * s for s in steps) if abs(x) > SMALL / 2]
    values = [target.f(x) for x in t]
    weights = [abs(target.share(x) / v) for x, v in zip(t, values, strict=True)]
    chosen = np.linspace(0, len(t) - 1, target.degree + 2).astype(int)
    solution: list[Number] = []
    for _ in range(8):
        solution = _level([t[i] for i in chosen], [values[i] for i in chosen],
                          [weights[i] for i in chosen])  # fmt: skip
        exchanged = _extrema(_errors(solution, t, values, weights), target.degree + 2)
        if exchanged is None or np.array_equal(exchanged, chosen):
            break
        chosen = exchanged
    coefficients = [float(c) for c in solution]
    error = np.abs(_errors(coefficients, t, values, weights))
    return coefficients, float(error.max() * 2**53)


SMOOTH: dict[str, tuple[Real, int]] = {
    "BEND": (_bend, 42),
    "I0E": (_bessel(lambda a: _scaled(0, a), 0.5), 40),
    "I1E": (_bessel(lambda a: _scaled(1, a), 0.5), 40),
    "I0E_SLOPE": (_bessel(lambda a: _scaled(1, a) - _scaled(0, a), 1.5), 50),
    "I1E_SLOPE": (_bessel(lambda a: _scaled(0, a) - _scaled(1, a) * (1 + 1 / a), 1.5), 50),
    "K0E": (_from(1, lambda x: _scaled_k(0, x), 0.5), 20),
    "K1E": (_from(1, lambda x: _scaled_k(1, x), 0.5), 20),
    "K_EXCESS": (_from(0.5, lambda x: _scaled_k(1, x) - _scaled_k(0, x), 1.5), 30),
    "K1E_SLOPE": (_from(0.5, lambda x: _scaled_k(1, x) * (1 - 1 / x) - _scaled_k(0, x), 1.5), 32),
}
"""f on [-1, 1] and a degree: the polynomials whose derivatives are wanted too."""


def interpolate(f: Real, degree: int) -> list[float]:
    """The coefficients of the polynomial that is f at the zeros of a Chebyshev polynomial."""
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * degree + 2)) for k in range(degree + 1)]
    rows = mp.matrix([[t**j for j in range(degree + 1)] for t in nodes])
    with mp.workdps(70):
        return [float(c) for c in mp.lu_solve(rows, mp.matrix([f(t) for t in nodes]))]


def _level(t: list[Number], values: list[Number], weights: list[Number]) -> list[Number]:
    """The polynomial whose weighted errors at these points are equal, with alternating signs."""
    rows = [
        [*(x**j for j in range(len(t) - 1)), (-1) ** k / w]
        for k, (x, w) in enumerate(zip(t, weights, strict=True))
    ]
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix(values)))[:-1]


def _errors(
    coefficients: list[Number], t: list[Number], values: list[Number], weights: list[Number]
) -> np.ndarray:
    found = [mp.polyval(coefficients[::-1], x) for x in t]
    return np.array([float((p - v) * w) for p, v, w in zip(found, values, weights, strict=True)])


def fit(target: Target) -> tuple[list[float], float]:
    """The coefficients, float32 values, and the relative error of the function, in 2**-24."""
    nodes = np.cos(np.linspace(np.pi, 0, GRID)) / 2 + 0.5
    t = target.low + (target.high - target.low) * nodes
    t = t[np.abs(t) > SMALL / 2]
    values = _on_grid(target.f, target, t)
    weights = np.abs(_on_grid(target.share, target, t)) / np.abs(values)
    coefficients = np.zeros(target.degree + 1)
    for k in range(target.degree, -1, -1):
        known = polyval(t, coefficients)
        coefficients[k] = np.float32(_remez(t, values - known, weights, k)[k])
    error = np.abs(polyval(t, coefficients) - values) * weights
    return coefficients.tolist(), float(error.max() * 2**24)


def _on_grid(f: Real, target: Target, t: np.ndarray) -> np.ndarray:
    """f on a grid: by its Chebyshev interpolant, if that is f to `SAME` at some of the points.

    The interpolant is evaluated by the barycentric formula (Berrut and Trefethen, 2004). Of long
    polynomials the coefficients depend on the last bits of the values.
    """
    if target.degree > SHORT:
        return np.array([float(f(mp.mpf(x))) for x in t])
    angles = np.pi * (np.arange(NODES) + 0.5) / NODES
    middle, half = (target.low + target.high) / 2, (target.high - target.low) / 2
    nodes = middle + half * np.cos(angles)
    known = np.array([float(f(mp.mpf(x))) for x in nodes])
    shares = np.sin(angles) * (-1.0) ** np.arange(NODES) / (t[:, None] - nodes)
    values = shares @ known / shares.sum(1)
    sample = slice(0, None, len(t) // SAMPLES)
    true = np.array([float(f(mp.mpf(x))) for x in t[sample]])
    if np.all(np.abs(values[sample] - true) <= SAME * np.abs(true).max()):
        return values
    return np.array([float(f(mp.mpf(x))) for x in t])


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
    for name in names or [*TARGETS, *DOUBLE, *PIECES]:
        if name in PIECES:
            print(f"double.{name} = {PIECES[name]}")
        if name in DOUBLE:
            coefficients, bound = fit_double(DOUBLE[name])
            print(f"double.{name}: {bound:.4f} * 2**-53\n{' '.join(map(repr, coefficients))}")
        if name not in TARGETS:
            continue
        coefficients, bound = fit(TARGETS[name])
        listed = " ".join(str(np.float32(c)) for c in coefficients)
        print(f"{name}: {bound:.4f} * 2**-24\n{listed}")


if __name__ == "__main__":
    main(sys.argv[1:])
