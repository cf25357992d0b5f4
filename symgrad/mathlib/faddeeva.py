"""The Faddeeva function w(z) = exp(-z**2) erfc(-iz) and its derivatives, z = x + iy, y >= 0.

w(z) is i/pi times the integral of exp(-t**2)/(z - t). The trapezoidal rule of step h errs by
exp(-pi**2/h**2) only, once the residue at the pole t = z is added (Matta and Reichel, 1971,
Mathematics of Computation 25). Next to 0 its nodes are x + (k + 1/2) h, all terms of the
value are positive, and derivatives are those of exp(-t**2) (Rybicki, 1989, Computers in Physics 3).
Beyond, nodes are (k + 1/2) h, or k h where x is next to one of these (Al Azah and Chandler-Wilde,
2021, SIAM Journal on Numerical Analysis 59), and derivatives are those of 1/(z - t). Far out it is
an asymptotic series. Real and imaginary parts are written out, so that both keep their digits where
the other is much larger.

The formulas are the same in float32 and float64; the constants of `Digits` are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.ops.faddeeva import LIFT, TINY, far_out

Pair = tuple[Any, Any]
"""The real and the imaginary part of a complex number."""


@dataclass(frozen=True)
class Digits:
    """The constants that differ between float32 and float64.

    Attributes:
        step: the distance of nodes.
        reach: the last of them; beyond, exp(-t**2) is nothing.
        far: the square of the |z| from which the asymptotic series is taken.
        terms: how many terms it has.
    """

    step: float
    reach: float
    far: float
    terms: int


DOUBLE: Final = Digits(0.4375, 6.8, 760.0, 12)

INNER: Final = ((1.0, 0.5), (2.25, 0.6), (3.0, 0.8))
"""The x and y up to which nodes move with x, for each order: beyond, less cancels so."""

STEP: Final = 0.5
"""The distance of moving nodes, but for the second derivative: multiples of it are exact."""


def _times(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _inner(order: int, x: Any, y: Any, digits: Digits) -> Pair:
    """The sum over the nodes x - t and x + t, t = (k + 1/2) h, and the residue.

    Terms are h/pi (exp(-(x - t)**2) ± exp(-(x + t)**2)) times y or t over t**2 + y**2.
    """
    step = STEP if order < 2 else digits.step
    of_real, of_imaginary = 0.0, 0.0
    grow, shrink, unit = ops.exp(step * x), ops.exp(-step * x), ops.sinh(step * x)
    sinh, cosh, less, square = unit, 0.5 * (grow + shrink), shrink, y * y
    double = 2.0 * unit * cosh, 1.0 + 2.0 * (unit * unit), shrink * shrink
    for k in range(math.ceil((INNER[order][0] + digits.reach) / step)):
        t = (k + 0.5) * step
        even, odd = cosh, sinh
        if order == 1:
            even, odd = 2.0 * t * sinh - 2.0 * x * cosh, 2.0 * t * cosh - 2.0 * x * sinh
        elif order == 2:
            bend, rest = 4.0 * ((x - t) * (x - t)) - 2.0, 8.0 * t * (x * less)
            even, odd = bend * cosh + rest, bend * sinh - rest
        share = 2.0 * step / math.pi * math.exp(-t * t) / (t * t + square)
        of_real, of_imaginary = of_real + share * even, of_imaginary + t * share * odd
        sinh, cosh = sinh * double[1] + cosh * double[0], cosh * double[1] + sinh * double[0]
        less = less * double[2]
    size = ops.exp(-2.0 * math.pi / step * y)
    height, fall = 2.0 * size / (1.0 + size) * ops.exp(square), ops.exp_neg_square(x)
    residue = height * ops.cos(2.0 * (x * y)), -height * ops.sin(2.0 * (x * y))
    if order == 1:
        residue = _times((-2.0 * x, -2.0 * y), residue)
    elif order == 2:
        residue = _times((4.0 * ((x - y) * (x + y)) - 2.0, 8.0 * (x * y)), residue)
    return fall * (y * of_real + residue[0]), fall * (of_imaginary + residue[1])


def _trapezoidal(order: int, x: Any, y: Any, odd: Any, digits: Digits) -> Pair:
    """The sum over pairs of nodes t and -t of 2 i h/pi exp(-t**2) times a function of z and t.

    With q = 1/(z**2 - t**2) it is z q, -q**2 (z**2 + t**2) or 2 z q**3 (z**2 + 3 t**2).
    """
    step, of_real, of_imaginary = digits.step, 0.0, 0.0
    d, square = 2.0 * (x * y), y * y
    for k in reversed(range(math.ceil(digits.reach / step))):
        whole, half = k * step, (k + 0.5) * step
        weights = [2.0 * step / math.pi * math.exp(-t * t) for t in (whole, half)]
        t = ops.where(odd, whole, half)
        e = ops.where(odd, weights[0] if k else 0.5 * weights[0], weights[1])
        four, between = ops.where(odd, 4.0 * whole * whole, 4.0 * half * half), (x - t) * (x + t)
        c = between - square
        r = 1.0 / (((x - t) * (x - t) + square) * ((x + t) * (x + t) + square))
        if order == 0:
            real, imaginary = r * ((x * x + square) + 0.25 * four), r * (between + square)
        elif order == 1:
            apart = (c - d) * (c + d)
            real, imaginary = r + four * (c * r) * r, r * (c + 0.5 * four * (apart * r))
        else:
            apart, w = (c - d) * (c + d), four * r
            real = r * r * (apart + w * (c * (c * c - 3.0 * (d * d))))
            imaginary = r * r * (2.0 * c + w * (3.0 * (c * c) - d * d))
        of_real, of_imaginary = of_real + e * real, of_imaginary + e * imaginary
    if order == 0:
        return y * of_real, x * of_imaginary
    if order == 1:
        return -d * of_real, -of_imaginary
    return (
        2.0 * y * (2.0 * (x * x) * of_imaginary - of_real),
        2.0 * x * (of_real + 2.0 * square * of_imaginary),
    )


def _residue(order: int, x: Any, y: Any, phase: Any, digits: Digits) -> Pair:
    """2 exp(-z**2) g or its derivative, g = v/(1 + v), v = exp(2 pi i phase - 2 pi y/h).

    The derivative of g is 2 pi i/h times g (1 - g).
    """
    pace = 2.0 * math.pi / digits.step
    size, less = ops.exp(-pace * y), -ops.expm1(-2.0 * pace * y)
    sine, cosine = ops.sin(2.0 * math.pi * phase), ops.cos(2.0 * math.pi * phase)
    below = (1.0 + size * size) + 2.0 * (size * cosine)
    share = size * (cosine + size) / below, size * sine / below
    height = 2.0 * ops.exp_neg_square(x) * ops.exp(y * y)
    wave = height * ops.cos(2.0 * (x * y)), -height * ops.sin(2.0 * (x * y))
    if order == 0:
        return _times(wave, share)
    scale = pace * size / (below * below)
    slope = -scale * (sine * less), scale * (cosine * (1.0 + size * size) + 2.0 * size)
    of_share = _times((-2.0 * x, -2.0 * y), share)
    if order == 1:
        return _times(wave, (of_share[0] + slope[0], of_share[1] + slope[1]))
    first = _times(
        (-2.0 * x, -2.0 * y), (of_share[0] + 2.0 * slope[0], of_share[1] + 2.0 * slope[1])
    )
    bend = _times(slope, (2.0 * pace * (size * sine) / below, pace * less / below))
    return _times(wave, (first[0] - 2.0 * share[0] + bend[0], first[1] - 2.0 * share[1] + bend[1]))


def derivative(order: int, imaginary: bool, x: Any, y: Any, digits: Digits) -> Any:
    """The real or the imaginary part of w's derivative of this order, up to the second, y >= 0."""
    part = int(imaginary)
    odd_in_x = (order + part) % 2 == 1
    size, lift, lower = ops.abs(x), 1.0, 1.0
    if odd_in_x:  # next to 0 it is as x, but not what is flushed of it
        lift, lower = (ops.where(size < TINY, f, 1.0) for f in (LIFT, 1.0 / LIFT))
    a = size * lift
    square = ops.where(a + y < 64.0, a * a + y * y, 4096.0)
    near, far = (a < INNER[order][0]) & (y < INNER[order][1]), square > digits.far
    between = ~(near | far)
    mid_x, mid_y = ops.where(between, a, 4.0), ops.where(between, y, 4.0)
    halves = ops.round(mid_x * (2.0 / digits.step))
    odd = halves - 2.0 * ops.round(0.5 * halves) != 0.0
    phase = (mid_x - halves * (0.5 * digits.step)) * (1.0 / digits.step)  # the difference is exact
    low = ops.where(mid_y < math.pi / digits.step, mid_y, 0.0)
    value = _trapezoidal(order, mid_x, mid_y, odd, digits)[part]
    residue = _residue(order, mid_x, low, phase, digits)[part]
    value = value + ops.where(mid_y < math.pi / digits.step, residue, 0.0)
    inside = _inner(order, ops.where(near, a, 0.0), ops.where(near, y, 0.0), digits)[part]
    out_x, out_y = ops.where(far, a, 32.0), ops.where(far, y, 32.0)
    inverses = ops.real_reciprocal(out_x, out_y), ops.real_reciprocal(out_y, out_x)
    outside = far_out(*inverses, order, digits.terms)[part]
    value = ops.where(near, inside, ops.where(far, outside, value))
    if odd_in_x:
        value = ops.where(x < 0.0, -value, value) * lower
    return ops.where(y < 0.0, math.nan, value)
