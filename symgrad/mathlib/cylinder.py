"""The Bessel functions of the first kind J_0 and J_1: power series, then factors next to zeros.

Beyond their second zeros they are waves, J_n(x) = sqrt(2/(pi x)) (p cos(t) - q sin(t)) with
t = x - (n + 1/2) pi/2, where p and q are polynomials in 1/x (Hankel). There errors are small beside
the amplitude sqrt(2/(pi x)); before, beside the value, also next to a zero.

The formulas are the same in float32 and float64; the coefficients are not, nor are the sines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import Coefficients, coefficients, has_sign, keep_nan, polynomial


@dataclass(frozen=True)
class Stretch:
    """Where J_n(z + d) = d P(d), z being a zero.

    Attributes:
        zero: z, in two pieces.
        end: the z + d up to which this holds.
        factor: P.
    """

    zero: tuple[float, float]
    end: float
    factor: Coefficients


@dataclass(frozen=True)
class Fits:
    """The differences of float32 and float64, and of J_0 and J_1.

    Attributes:
        order: n of J_n.
        start: up to where the power series is taken.
        series: (J_n(x)/(x/2)**n - 1)/x**2 in x**2.
        stretches: those next to zeros, up to where waves begin.
        even: (p - 1) x**2 in 1/x**2.
        odd: q x in 1/x**2.
        circle: the sine and the cosine.
    """

    order: int
    start: float
    series: Coefficients
    stretches: tuple[Stretch, ...]
    even: Coefficients
    odd: Coefficients
    circle: Callable[[Expr], tuple[Expr, Expr]]


class Digits(NamedTuple):
    """The differences of float32 and float64: the coefficients of J_0 and of J_1."""

    j0: Fits
    j1: Fits


J0_SERIES: Final = (-0.25, 0.0156249525, -0.00043388695, 6.6161642e-06)
"""(J_0(x)/1 - 1)/x**2 in x**2, x < 1: J_0 to 0.* 2**-24 of its value (tools/fit.py)."""
J0_FIRST: Final = coefficients("""
    -0.5191475 0.1079387 0.056601774 -0.008657662 -0.0021941934 0.00026435786 4.3715125e-05
    -4.318393e-06 -5.176415e-07 3.700977e-08
""")
"""J_0(z + d)/d in d, z its first zero, 1 <= z + d < 3.5."""
J0_SECOND: Final = coefficients("""
    0.3402648 -0.030820632 -0.05298855 0.004630945 0.0022574295 -0.00017504643 -4.6495075e-05
    3.1227535e-06 5.517857e-07 -1.9960138e-08
""")
"""J_0(z + d)/d in d, z its second zero, 3.5 <= z + d < 7."""
J0_EVEN: Final = (-0.0703073, 0.11048207, -0.4104098)
"""(p - 1) x**2 in 1/x**2, 7 <= x."""
J0_ODD: Final = (-0.124998994, 0.07282108, -0.18118086)
"""q x in 1/x**2."""
J1_SERIES: Final = (-0.125, 0.005208327, -0.0001084998, 1.3528456e-06, -1.05189395e-08)
"""(J_1(x)/(x/2) - 1)/x**2 in x**2, x < 2."""
J1_FIRST: Final = coefficients("""
    -0.4027594 0.05255614 0.053410415 -0.0051796753 -0.0022330482 0.00017459833 4.613344e-05
    -3.0000988e-06 -5.4160165e-07 2.5103844e-08
""")
"""J_1(z + d)/d in d, z its first zero, but 0, 2 <= z + d < 5.4."""
J1_SECOND: Final = coefficients("""
    0.30011576 -0.021389214 -0.046970457 0.003130288 0.0021055222 -0.00012550034 -4.4922715e-05
    2.3957166e-06 5.3642526e-07 -2.5391802e-08
""")
"""J_1(z + d)/d in d, z its second zero, 5.4 <= z + d < 8.6."""
J1_EVEN: Final = (0.11718545, -0.1432237, 0.5400732)
"""(p - 1) x**2 in 1/x**2, 8.6 <= x."""
J1_ODD: Final = (0.3749996, -0.10229739, 0.23909752)
"""q x in 1/x**2."""


def _circle(x: Expr) -> tuple[Expr, Expr]:
    """Of one reduced angle."""
    q = ops.quarters(x)
    angle = ops.angle(x, q)
    return ops.sine(angle, q), ops.cosine(angle, q)


J0: Final = Fits(
    0, 1.0, J0_SERIES,
    (Stretch((2.404825448989868, 1.087059e-07), 3.5, J0_FIRST),
     Stretch((5.520078182220459, -7.1934146e-08), 7.0, J0_SECOND)),
    J0_EVEN, J0_ODD, _circle,
)  # fmt: skip
J1: Final = Fits(
    1, 2.0, J1_SERIES,
    (Stretch((3.8317060470581055, -7.685059e-08), 5.4, J1_FIRST),
     Stretch((7.015586853027344, -1.8321172e-07), 8.6, J1_SECOND)),
    J1_EVEN, J1_ODD, _circle,
)  # fmt: skip


SINGLE: Final = Digits(J0, J1)


def j0(x: Expr, digits: Digits) -> Expr:
    """A power series, two factors next to zeros, then Hankel's form."""
    return _first_kind(x, digits.j0)


def j1(x: Expr, digits: Digits) -> Expr:
    """As `j0`, for the odd function."""
    return _first_kind(x, digits.j1)


def _first_kind(x: Expr, fits: Fits) -> Expr:
    """J_0 or J_1, the latter an odd function."""
    a, end = ops.abs(x), fits.stretches[-1].end
    inside = a < end
    near, far = ops.where(inside, a, 0.0), ops.where(inside, end, a)
    value = ops.where(inside, _about_zeros(near, fits), _wave(far, fits))
    if fits.order:
        value = ops.where(has_sign(x), -value, value)
    return keep_nan(value, x)


def j1_ratio(x: Expr, digits: Digits) -> Expr:
    """J_1(x)/x, 1/2 at 0.

    About 0 it is the power series.
    """
    value, fits = ops.j1(x), digits.j1
    near = ops.abs(x) < fits.start
    beyond = value / ops.where(near, 1.0, x)
    series = 0.5 * _series(ops.where(near, x, 0.0), fits)
    return keep_nan(ops.where(near, series, beyond), x)


def _series(x: Expr, fits: Fits) -> Expr:
    """J_n(x)/(x/2)**n."""
    square = x * x
    return 1.0 + square * polynomial(square, fits.series)


def _about_zeros(a: Expr, fits: Fits) -> Expr:
    value, start = _series(a, fits), fits.start
    if fits.order:
        value = 0.5 * a * value
    for stretch in fits.stretches:
        d = ops.opaque(a - stretch.zero[0]) - stretch.zero[1]
        value = ops.where(a < start, value, d * polynomial(d, stretch.factor))
        start = stretch.end
    return value


def _wave(a: Expr, fits: Fits) -> Expr:
    """Hankel's form, cos(t) and sin(t) being sums of the sine and the cosine; 0 at inf."""
    sine, cosine = fits.circle(a)
    w = 1.0 / a
    square = w * w
    more, q = square * polynomial(square, fits.even), w * polynomial(square, fits.odd)
    total, rest = sine + cosine, sine - cosine
    wave = rest + (more * rest + q * total) if fits.order else total + (more * total - q * rest)
    return ops.where(a < math.inf, _over_root(0.5 * wave, (0.25 * math.pi) * a), 0.0)


def _over_root(a: Expr, b: Expr) -> Expr:
    """a/sqrt(b), mended by a Newton step for both."""
    root = ops.opaque(ops.sqrt(b))
    inverse = ops.reciprocal(root)
    ratio = ops.opaque(a * inverse)
    lost = 0.5 * inverse * (b - root * root)
    return ratio - inverse * ((ratio * root - a) + ratio * lost)
