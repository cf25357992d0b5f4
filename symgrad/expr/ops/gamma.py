"""The gamma and beta functions, the polygamma functions, Riemann's and Hurwitz's zeta functions."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import abs, copysign, sqrt
from symgrad.expr.ops.comparison import isinf, isnan, where
from symgrad.expr.ops.exponential import exp, log, log1p, pow
from symgrad.expr.ops.rounding import floor, round
from symgrad.expr.ops.trigonometric import cos, sin
from symgrad.expr.references import power_chain
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
    name="gammaln", signature="f->f", reference=references.gammaln, cost=90, transcendental=True,
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
    name="digamma", signature="f->f", cost=80, transcendental=True,
    meaning="the derivative of gammaln", partials=lambda y, x: (trigamma(x),),
    exact=lambda x: _mp.digamma(x), sympy=lambda x: _sp.polygamma(0, x),
    latex=r"\psi\left({0}\right)",
    domain="all x but 0, -1, -2, ...",
    edges="-inf at 0, inf at -0.0, NaN at -1, -2, ...; near its zeros below 0 only the absolute "
    "error is small",
    points=((0.3,), (1.0,), (1.5,), (2.0,), (3.0,), (20.0,), (-0.4,), (-1.7,)),
    example=-3.5025242222, public=True,
)
trigamma = Op(
    name="trigamma", signature="f->f", cost=70,
    meaning="the derivative of digamma, polygamma(1, x)", partials=lambda y, x: (tetragamma(x),),
    exact=lambda x: _mp.psi(1, x), sympy=lambda x: _sp.polygamma(1, x), transcendental=True,
    latex=r"\psi_1\left({0}\right)", domain="all x but 0, -1, -2, ...",
    edges="inf at 0, -1, -2, ...", points=((0.3,), (1.0,), (2.5,), (20.0,), (-0.4,), (-1.7,)),
)
tetragamma = Op(
    name="tetragamma", signature="f->f", cost=70,
    meaning="the derivative of trigamma, polygamma(2, x)", partials=lambda y, x: (pentagamma(x),),
    exact=lambda x: _mp.psi(2, x), sympy=lambda x: _sp.polygamma(2, x), transcendental=True,
    latex=r"\psi_2\left({0}\right)", domain="all x but 0, -1, -2, ...",
    edges="-inf at 0, inf at -0.0, NaN at -1, -2, ...; near its zeros below 0 only the absolute "
    "error is small", points=((0.3,), (1.0,), (2.5,), (20.0,), (-0.4,), (-1.7,)),
)
pentagamma = Op(
    name="pentagamma", signature="f->f", cost=70,
    meaning="the derivative of tetragamma, polygamma(3, x)",
    partials=lambda y, x: (high_polygamma(4, x),), exact=lambda x: _mp.psi(3, x),
    sympy=lambda x: _sp.polygamma(3, x), transcendental=True,
    latex=r"\psi_3\left({0}\right)", domain="all x but 0, -1, -2, ...",
    edges="inf at 0, -1, -2, ...", points=((0.3,), (1.0,), (2.5,), (20.0,), (-0.4,), (-1.7,)),
)

POLYGAMMA: Final = (digamma, trigamma, tetragamma, pentagamma)
"""The polygamma functions that are rows, by their orders."""


# The beta function's logarithm, of rows of the table.

LARGE: Final = 6.0
"""From here on Stirling's series has all digits of a float64."""

STEPS: Final = 4
"""By how many steps a smaller argument, at least 2, is made one of these."""

_STIRLING: Final = tuple(b / (c * 2 * j * (2 * j - 1)) for j, (b, c) in enumerate(BERNOULLI, 1))


def stirling(x: Any) -> Any:
    """gammaln(x) - (x - 1/2) log x + x - log(2 pi)/2 for a large x."""
    w = 1.0 / x
    square, total = w * w, 0.0
    for c in reversed(_STIRLING):
        total = total * square + c
    return total * w


def _steps(x: Any, s: Any) -> Any:
    """gammaln(x) - gammaln(x + s) less the same of x + STEPS: the logarithm of a product."""
    above, below = x + s, x
    for k in range(1, STEPS):
        above, below = above * ((x + s) + float(k)), below * (x + float(k))
    return log(above / below)


def log_beta(a: Any, b: Any) -> Any:
    """log |B(a, b)|, without the difference of large logarithms where an argument is large."""
    first = a <= b
    low, high = where(first, a, b), where(first, b, a)
    stepped = (low > 0.0) & (low < 1.0) & (high >= LARGE - STEPS) & (high < LARGE)
    one = ((low > 0.0) & (high >= LARGE)) | stepped
    both = one & (low >= LARGE)
    s, t = where(one, low, 1.0), where(both, low, LARGE)
    large = where(stepped, high + float(STEPS), where(one, high, LARGE))
    ratio = s / large
    shift = stirling(large) - stirling(large + s) - (large - 0.5) * log1p(ratio)
    far = t * (log(ratio) - log1p(ratio)) - 0.5 * log(t) + 0.5 * math.log(2.0 * math.pi)
    taken = _steps(where(stepped, high, LARGE), where(stepped, low, 1.0))
    mixed = gammaln(where(both, 1.0, low)) + (s - s * log(large + s) + shift)
    mixed = mixed + where(stepped, taken, 0.0)
    low, high = where(one, 1.0, low), where(one, 1.0, high)
    near = gammaln(low) + (gammaln(high) - gammaln(low + high))
    value = where(both, far + stirling(t) + shift, where(one, mixed, near))
    return where(one & (large == math.inf), -math.inf, value)


# The gamma function itself, of rows of the table.

HIGHEST: Final = 172.0
"""From here on the gamma function is infinite in float64 too."""


def _gamma(x: Any) -> Any:
    """Below 6 a product with the gamma function of 1 to 2, by its small logarithm, beyond Stirling.

    x**(x - 1/2) would overflow before the value does, and is a square. Below 0 by reflection.
    """
    left = x < 0.0
    p = where(abs(x) < HIGHEST, abs(x), HIGHEST)
    near = p < LARGE
    q = where(near, p, 1.0)
    steps = where(q >= 2.0, floor(q) - 1.0, 0.0)
    product = 1.0
    for k in range(1, int(LARGE) - 1):
        product = product * where(q >= float(k + 1), q - float(k), 1.0)
    small = q < 1.0
    inner = where(small, 1.0 + q, q - steps)
    below = product * exp(gammaln(inner)) / where(small, q, 1.0)
    far = where(near, LARGE, p)
    half = pow(far, 0.5 * far - 0.25)
    large = (half * (exp(-far) * math.sqrt(2.0 * math.pi))) * (half * exp(stirling(far)))
    value = where(near, below, where(isinf(half), math.inf, large))  # exp may be 0 beside it
    value = where(p == HIGHEST, math.inf, value)
    whole = where(left, where(x == -math.inf, 0.0, -x), 0.5)
    apart = whole - round(whole)
    sine = sin(math.pi * apart)
    odd = where(round(whole) - 2.0 * floor(0.5 * round(whole)) == 1.0, -1.0, 1.0)
    mirrored = (-math.pi * odd) / (p * (where(apart == 0.0, 1.0, sine) * value))
    mirrored = where(apart == 0.0, float("nan"), mirrored)
    value = where(left, mirrored, where(x == 0.0, copysign(math.inf, x), value))
    return where(x == -math.inf, float("nan"), where(isnan(x), x, value))


gamma = Op(
    name="gamma", signature="f->f", reference=references.gamma, cost=150, transcendental=True,
    meaning="the gamma function", partials=lambda y, x: (y * digamma(x),), definition=_gamma,
    exact=lambda x: _mp.gamma(x), sympy=lambda x: _sp.gamma(x), scipy=True,
    latex=r"\Gamma\left({0}\right)", domain="all x but -1, -2, ...",
    edges="±inf at ±0.0, NaN at -1, -2, ... and -inf; next to these poles only the error beside "
    "the distance's rounding is small",
    points=((0.3,), (1.0,), (1.5,), (2.0,), (4.7,), (20.0,), (-0.4,), (-1.7,)), public=True,
)


# Riemann's and Hurwitz's zeta functions, of rows of the table.

_TERMS: Final = 9
"""How many terms of Hurwitz's zeta function are added up one by one."""


def hurwitz_zeta(s: Any, q: Any) -> Any:
    """The sum of (q + k)**-s over k >= 0, s > 1, q >= 0: nine terms and Euler-Maclaurin's.

    All is positive. Derivatives by s and by q are those of these terms.
    """
    y = q + float(_TERMS)
    u = 1.0 / y
    square, rest = u * u, 0.0
    for j in range(len(EVEN), 1, -1):
        rest = (s + float(2 * j - 3)) * (s + float(2 * j - 2)) * square * (EVEN[j - 1] + rest)
    last = pow(y, -s)
    total = where(last > 0.0, last * (0.5 + s * u * (EVEN[0] + rest)), 0.0)
    total = pow(y, 1.0 - s) / (s - 1.0) + total
    for k in range(_TERMS - 1, -1, -1):
        total = total + pow(q + float(k), -s)
    return where((s >= 1.0) & (q >= 0.0), total, float("nan"))


_LAURENT: Final = (
    0.5772156649015329, 0.07281584548367672, -0.00484518159643616, -0.00034230573671722431,
    9.689041939447084e-05, -6.611031810842189e-06, -3.3162409087527724e-07, 1.0462094584479187e-07,
    -8.733218100273797e-09, 9.478277778276236e-11, 5.658421927608708e-11, -6.768689863513697e-12,
    3.492115936672032e-13, 4.410424741757753e-15, -2.399786221770999e-15, 2.167731220072683e-16,
    -9.544466076366965e-18, -7.387676660538636e-20, 4.800850782488065e-20,
)  # fmt: skip
"""zeta(s) - 1/(s - 1) in s - 1: Stieltjes' constants (-1)**n gamma_n/n! (DLMF 25.2.4)."""

_LEFT: Final = -0.5
"""Below, it is that of 1 - s, by the functional equation."""


def riemann_zeta(s: Any) -> Any:
    """The sum of k**-s over k >= 1, continued: for -1/2 <= s < 1 Laurent's series about 1.

    Below, it is 2 (2 pi)**(s - 1) sin(pi s/2) gamma(1 - s) zeta(1 - s) (DLMF 25.4.1).
    """
    left, near = s < _LEFT, (s >= _LEFT) & (s < 1.0)
    t = where(left, 1.0 - s, 2.0)
    apart, series = where(near, s, 0.5) - 1.0, 0.0
    for c in reversed(_LAURENT):
        series = series * apart + c
    far = t >= LARGE
    large, small = where(far, t, LARGE), where(far, 2.0, t)
    power = pow(large * (1.0 / (2.0 * math.pi * math.e)), large) * exp(stirling(large))
    factor = where(
        far, power * sqrt(2.0 * math.pi / large), gamma(small) * pow(2.0 * math.pi, -small)
    )
    half = 0.5 * where(left, s, -1.0)
    whole = round(half)
    sine = sin(math.pi * (half - whole)) * where(whole == 2.0 * floor(0.5 * whole), 2.0, -2.0)
    above = hurwitz_zeta(where(left, t, where(near, 2.0, s)), 1.0)
    return where(near, 1.0 / apart + series, where(left, sine * factor * above, above))
