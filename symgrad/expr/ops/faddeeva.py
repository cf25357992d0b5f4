"""The Faddeeva function's parts, Dawson's function and Voigt's profile.

With w = K + iL and w' = P + iQ, z = x + iy, derivatives by x are those of w, and those by y are i
times them: K_y = -Q and L_y = P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import abs
from symgrad.expr.ops.comparison import where
from symgrad.expr.ops.exponential import exp
from symgrad.expr.ops.trigonometric import real_reciprocal, real_reciprocal_square
from symgrad.lazy import mpmath as _mp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

_POINTS: Final = (
    (0.375, 0.5), (0.375, 0.0625), (0.25, 0.0), (-0.5, 1.25),
)
"""Points of the upper half plane, none of them next to zeros of the derivatives."""

_EDGES: Final = "NaN for y < 0; 0 where either is infinite"


def _exact(x: Any, y: Any) -> Any:
    z = _mp.mpc(x, y)
    return _mp.exp(-z * z) * _mp.erfc(-1j * z)


def _exact_slope(x: Any, y: Any) -> Any:
    return 2j / _mp.sqrt(_mp.pi) - 2 * _mp.mpc(x, y) * _exact(x, y)


def _exact_bend(x: Any, y: Any) -> Any:
    return -2 * (_exact(x, y) + _mp.mpc(x, y) * _exact_slope(x, y))


TINY, LIFT = 2.0**-70, 2.0**40
"""Numbers of whose multiples the squares are nothing beside 1; and what makes them larger."""


def _by_square(coefficients: Sequence[float], twice: Any, square: Any) -> tuple[Any, Any]:
    """b and c: the polynomial is u b + c, u with this 2 Re u and |u|**2 (Knuth, TAOCP 4.6.4)."""
    b, after = coefficients[-2] + twice * coefficients[-1], coefficients[-1]
    for a in coefficients[-3:0:-1]:
        b, after = (a + twice * b) - square * after, b
    return b, coefficients[0] - square * after


def far_out(inverse: Any, less: Any, order: int, terms: int) -> tuple[Any, Any]:
    """i/sqrt(pi) times the sum of (2 k - 1)!!/2**k z**-(2 k + 1), or its derivative of an order.

    ``inverse`` and ``less`` are x and y over |z|**2.
    """
    u, v = (inverse - less) * (inverse + less), -2.0 * (inverse * less)
    size = inverse * inverse + less * less
    coefficients, double = [], 1.0 / math.sqrt(math.pi)
    for k in range(terms):
        coefficients.append(math.perm(2 * k + order, order) * double)
        double *= k + 0.5
    b, c = _by_square(coefficients, 2.0 * u, size * size)
    c = u * b + c
    for _ in range((order + 1) // 2):  # times 1/z**2
        b, c = u * b + c, u * c - (v * v) * b
    if order % 2:
        return v * b, -c
    return less * (c + 2.0 * (inverse * inverse) * b), inverse * (c - 2.0 * (less * less) * b)


faddeeva_real = Op(
    name="faddeeva_real", signature="ff->f", cost=900,
    meaning="the real part of w(x + iy), Voigt's function", transcendental=True,
    partials=lambda _, x, y: (faddeeva_real_slope(x, y), -faddeeva_imag_slope(x, y)),
    exact=lambda x, y: _exact(x, y).real,
    domain="y >= 0", edges=_EDGES, interval=interval.at_least(0.0), points=_POINTS,
)
faddeeva_imag = Op(
    name="faddeeva_imag", signature="ff->f", cost=900,
    meaning="the imaginary part of w(x + iy)", transcendental=True,
    partials=lambda _, x, y: (faddeeva_imag_slope(x, y), faddeeva_real_slope(x, y)),
    exact=lambda x, y: _exact(x, y).imag,
    domain="y >= 0", edges=_EDGES, points=_POINTS,
)
faddeeva_real_slope = Op(
    name="faddeeva_real_slope", signature="ff->f",
    meaning="the real part of w'(x + iy)", transcendental=True, cost=1100,
    partials=lambda _, x, y: (faddeeva_real_bend(x, y), -faddeeva_imag_bend(x, y)),
    exact=lambda x, y: _exact_slope(x, y).real, domain="y >= 0", edges=_EDGES, points=_POINTS,
)
faddeeva_imag_slope = Op(
    name="faddeeva_imag_slope", signature="ff->f",
    meaning="the imaginary part of w'(x + iy)", transcendental=True, cost=1100,
    partials=lambda _, x, y: (faddeeva_imag_bend(x, y), faddeeva_real_bend(x, y)),
    exact=lambda x, y: _exact_slope(x, y).imag, domain="y >= 0", edges=_EDGES, points=_POINTS,
)


def _third(x: Any, y: Any) -> tuple[Any, Any]:
    """-4 w' - 2 z w'', or where these cancel, from |z| = 20 on, an asymptotic series."""
    far = (abs(x) > 20.0) | (y > 20.0)
    real, imag = faddeeva_real_bend(x, y), faddeeva_imag_bend(x, y)
    out_x, out_y = where(far, x, 32.0), where(far, y, 32.0)
    inverses = real_reciprocal(out_x, out_y), real_reciprocal(out_y, out_x)
    out_real, out_imag = far_out(*inverses, 3, 10)
    by_real = -4.0 * faddeeva_real_slope(x, y) - 2.0 * (x * real - y * imag)
    by_imag = -4.0 * faddeeva_imag_slope(x, y) - 2.0 * (x * imag + y * real)
    return where(far, out_real, by_real), where(far, out_imag, by_imag)


def _real_bend_partials(_: Any, x: Any, y: Any) -> tuple[Any, Any]:
    real, imag = _third(x, y)
    return real, -imag


def _imag_bend_partials(_: Any, x: Any, y: Any) -> tuple[Any, Any]:
    real, imag = _third(x, y)
    return imag, real


faddeeva_real_bend = Op(
    name="faddeeva_real_bend", signature="ff->f",
    meaning="the real part of w''(x + iy)", transcendental=True, cost=1400,
    partials=_real_bend_partials, exact=lambda x, y: _exact_bend(x, y).real, domain="y >= 0",
    edges=_EDGES, points=_POINTS[:3],
)
faddeeva_imag_bend = Op(
    name="faddeeva_imag_bend", signature="ff->f",
    meaning="the imaginary part of w''(x + iy)", transcendental=True, cost=1400,
    partials=_imag_bend_partials, exact=lambda x, y: _exact_bend(x, y).imag, domain="y >= 0",
    edges=_EDGES, points=_POINTS[:3],
)
dawsn = Op(
    name="dawsn", signature="f->f", cost=900, transcendental=True,
    meaning="Dawson's integral, exp(-x**2) times the integral of exp(t**2) from 0 to x",
    compose=lambda x: 0.5 * math.sqrt(math.pi) * faddeeva_imag(x, 0.0), scipy=True,
    latex=r"F\left({0}\right)", points=((0.5,), (-0.25,), (0.0,), (2.5,), (-4.0,)),
    example=0.424436383502, public=True,
)


# --- Voigt's profile ------------------------------------------------------------------------------

_SHARP: Final = 2.0**30
"""Where x and gamma are beyond this many sigma, the profile is Lorentz's to 2**-60."""


def _place(x: Any, sigma: Any, gamma: Any) -> tuple[Any, Any, Any, Any]:
    """Whether sigma is nothing; 1/sigma; and x and gamma over sqrt(2) sigma."""
    sharp = abs(x) + abs(gamma) > _SHARP * sigma
    inverse = 1.0 / where(sharp, 1.0, sigma)
    scale = math.sqrt(0.5) * inverse
    return sharp, inverse, where(sharp, 0.0, x) * scale, where(sharp, 0.0, gamma) * scale


def _profile(x: Any, sigma: Any, gamma: Any) -> Any:
    """Re w((x + i gamma)/(sqrt(2) sigma))/(sqrt(2 pi) sigma)."""
    sharp, inverse, u, v = _place(x, sigma, gamma)
    # where the normal part is nothing, the rest is as v, but not what is flushed of it
    tiny = (abs(u) > 16.0) & (v < TINY) & (exp(-(u * u)) == 0.0)
    scale = where(tiny, inverse * (1.0 / LIFT), inverse)
    value = faddeeva_real(u, where(tiny, v * LIFT, v)) * scale
    value = value * (1.0 / math.sqrt(2.0 * math.pi))
    line = real_reciprocal(gamma, x) * (1.0 / math.pi)
    nothing = (sigma == 0.0) & (gamma == 0.0) & (x == 0.0)
    value = where(nothing, math.inf, where(sharp, line, value))
    return where((sigma < 0.0) | (gamma < 0.0), math.nan, value)


def _profile_partials(_: Any, x: Any, sigma: Any, gamma: Any) -> tuple[Any, Any, Any]:
    """By x, by sigma, where it is sigma times the second one by x, and by gamma."""
    sharp, inverse, u, v = _place(x, sigma, gamma)
    real, imag = real_reciprocal(gamma, x), real_reciprocal(x, gamma)
    scale = 1.0 / (2.0 * math.sqrt(math.pi))
    by_x = (faddeeva_real_slope(u, v) * scale) * inverse * inverse
    by_sigma = (faddeeva_real_bend(u, v) * (scale * math.sqrt(0.5))) * inverse * inverse
    by_gamma = (faddeeva_imag_slope(u, v) * -scale) * inverse * inverse
    bend = real * (6.0 * (imag * imag) - 2.0 * (real * real))
    return (
        where(sharp, real * imag * (-2.0 / math.pi), by_x),
        where(sharp, sigma * bend * (1.0 / math.pi), by_sigma),
        where(sharp, real_reciprocal_square(x, gamma) * (1.0 / math.pi), by_gamma),
    )


def _exact_profile(x: Any, sigma: Any, gamma: Any) -> Any:
    scale = sigma * _mp.sqrt(2)
    return _exact(x / scale, gamma / scale).real / (scale * _mp.sqrt(_mp.pi))


voigt_profile = Op(
    name="voigt_profile", signature="fff->f", cost=950,
    meaning="the profile of spectral lines, a normal distribution of deviation sigma folded with a "
    "Lorentz (Cauchy) distribution of half width gamma", partials=_profile_partials,
    definition=_profile, exact=_exact_profile, transcendental=True, scipy=True,
    latex=r"V\left({0}; {1}, {2}\right)", interval=interval.at_least(0.0),
    domain="sigma >= 0, gamma >= 0",
    edges="Lorentz's at sigma = 0, the normal one at gamma = 0, inf at 0 where both are 0; the "
    "rounding of x/sigma counts as it does in exp(-x**2/(2*sigma**2)), and far out second "
    "derivatives by sigma lose as many digits as (x**2 + gamma**2)/sigma**2 has",
    points=((0.5, 1.0, 0.25), (-0.25, 2.0, 0.25), (0.25, 1.0, 0.125), (0.0, 1.0, 0.5)),
    example=0.298212457042, public=True,
)
