"""The gamma function's logarithm and its derivatives, the polygamma functions."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.comparison import where
from symgrad.expr.ops.rounding import round
from symgrad.expr.ops.trigonometric import cos, sin
from symgrad.expr.references import special_reference as reference
from symgrad.expr.references.integer_powers import power_chain
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

_SHIFT: Final = 14
"""How many terms of a polygamma function's series are added up one by one; more for large orders"""

BERNOULLI: Final = (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510),
    (43867, 798), (-174611, 330), (854513, 138), (-236364091, 2730), (8553103, 6),
    (-23749461029, 870), (8615841276005, 14322),
)
"""The Bernoulli numbers B_2, B_4, ..., as fractions."""

EVEN: Final = tuple(b / (c * math.factorial(2 * j)) for j, (b, c) in enumerate(BERNOULLI[:10], 1))
"""B_2j/(2j)!"""


def zeta_sum(p: Any, s: int, shift: int, even: tuple[float, ...]) -> Any:
    """The sum of (p + k)**-s over k >= 0, s >= 2, p > 0: ``shift`` terms and Euler-Maclaurin's.

    All but its last, small terms are positive, and they are added up from the smallest on: neither
    for a small p, where the first is all, nor for a large one are digits lost. From ``2 * shift``
    on no term is added up: devices may flush each of them where their sum is normal.
    """
    far = p >= 2.0 * shift
    y = where(far, p, p + float(shift))
    u = 1.0 / y
    square, rest = u * u, 0.0
    for j in range(len(even), 0, -1):
        rest = rest * square + even[j - 1] * math.prod(range(s, s + 2 * j - 1))
    tail = inverse_power(y, s - 1) * (1.0 / (s - 1) + (0.5 * u + square * rest))
    later = inverse_power(p + float(shift - 1), s)
    for k in range(shift - 2, 0, -1):
        later = later + inverse_power(p + float(k), s)
    tiny = p < 2.0 ** (-120.0 / s)
    first = power_chain(1.0 / p, s)
    first = where(tiny, first, inverse_power(where(tiny, 1.0, p), s))
    return where(far, tail, (tail + later) + first)


def inverse_power(y: Any, s: int) -> Any:
    """y**-s with one quotient, for which y**s must be normal."""
    return 1.0 / power_chain(y, s)


def cotangent_slope(n: int) -> np.ndarray[Any, Any]:
    """The n-th derivative of cot(t), a polynomial in c = cot(t), as c' = -(1 + c**2)."""
    polynomial = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([-1.0, 0.0, -1.0])
    return polynomial.coef


def high_polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma of elementary operations, for any n >= 2."""
    left = x < 0.0
    total = zeta_sum(where(left, 1.0 - x, x), n + 1, _SHIFT + n, EVEN)
    value = (-1.0) ** (n + 1) * math.factorial(n) * total
    r = math.pi * (x - round(x))
    c = cos(r) / sin(where(left, r, 1.0))
    slope = 0.0
    for coefficient in cotangent_slope(n)[::-1]:
        slope = slope * c + float(coefficient)
    return where(left, (-1.0) ** n * value - math.pi ** (n + 1) * slope, value)


gammaln = Op(
    name="gammaln", signature="f->f", reference=reference.gammaln, cost=90, transcendental=True,
    meaning="log(|gamma(x)|)", partials=lambda y, x: (digamma(x),),
    exact=lambda x: _mp.re(_mp.loggamma(x)) if x > 0 or x != _mp.floor(x) else _mp.inf,
    sympy=lambda x: _sp.loggamma(x), latex=r"\ln\left|\Gamma\left({0}\right)\right|",
    domain="all x but 0, -1, -2, ...",
    edges="inf at 0, -1, -2, ... and at ±inf; near its zeros below 0 only the absolute error is "
    "small",
    scipy=True, points=((0.3,), (1.0,), (1.5,), (2.0,), (2.7,), (3.5,), (20.0,), (-0.4,), (-1.7,)),
    public=True,
)
digamma = Op(
    name="digamma", signature="f->f", reference=reference.digamma, cost=80, transcendental=True,
    meaning="the derivative of gammaln", partials=lambda y, x: (trigamma(x),),
    exact=lambda x: _mp.digamma(x), sympy=lambda x: _sp.polygamma(0, x),
    latex=r"\psi\left({0}\right)",
    domain="all x but 0, -1, -2, ...",
    edges="-inf at 0, inf at -0.0, NaN at -1, -2, ...; near its zeros below 0 only the absolute "
    "error is small",
    points=((0.3,), (1.0,), (1.5,), (2.0,), (3.0,), (20.0,), (-0.4,), (-1.7,)),
    public=True,
)
trigamma = Op(
    name="trigamma", signature="f->f", reference=lambda x: reference.polygamma(1, x), cost=70,
    meaning="the derivative of digamma, polygamma(1, x)", partials=lambda y, x: (tetragamma(x),),
    exact=lambda x: _mp.psi(1, x), sympy=lambda x: _sp.polygamma(1, x), transcendental=True,
    latex=r"\psi_1\left({0}\right)", domain="all x but 0, -1, -2, ...",
    edges="inf at 0, -1, -2, ...", points=((0.3,), (1.0,), (2.5,), (20.0,), (-0.4,), (-1.7,)),
)
tetragamma = Op(
    name="tetragamma", signature="f->f", reference=lambda x: reference.polygamma(2, x), cost=70,
    meaning="the derivative of trigamma, polygamma(2, x)", partials=lambda y, x: (pentagamma(x),),
    exact=lambda x: _mp.psi(2, x), sympy=lambda x: _sp.polygamma(2, x), transcendental=True,
    latex=r"\psi_2\left({0}\right)", domain="all x but 0, -1, -2, ...",
    edges="-inf at 0, inf at -0.0, NaN at -1, -2, ...; near its zeros below 0 only the absolute "
    "error is small", points=((0.3,), (1.0,), (2.5,), (20.0,), (-0.4,), (-1.7,)),
)
pentagamma = Op(
    name="pentagamma", signature="f->f", reference=lambda x: reference.polygamma(3, x), cost=70,
    meaning="the derivative of tetragamma, polygamma(3, x)",
    partials=lambda y, x: (high_polygamma(4, x),), exact=lambda x: _mp.psi(3, x),
    sympy=lambda x: _sp.polygamma(3, x), transcendental=True,
    latex=r"\psi_3\left({0}\right)", domain="all x but 0, -1, -2, ...",
    edges="inf at 0, -1, -2, ...", points=((0.3,), (1.0,), (2.5,), (20.0,), (-0.4,), (-1.7,)),
)

POLYGAMMA: Final = (digamma, trigamma, tetragamma, pentagamma)
"""The polygamma functions that are rows, by their orders."""
