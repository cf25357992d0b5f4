"""The Faddeeva function w(z) = exp(-z**2) erfc(-iz) and its derivatives, z = x + iy, y >= 0.

w(z) is i/pi times the integral of exp(-t**2)/(z - t). The trapezoidal rule of step h errs by
exp(-pi**2/h**2) only, once the residue at the pole t = z is added (Matta and Reichel, 1971,
Mathematics of Computation 25). Next to 0 its nodes are x + (k + 1/2) h, all terms of the
value are positive, and derivatives are those of exp(-t**2) (Rybicki, 1989, Computers in Physics 3).
Beyond, nodes are (k + 1/2) h, or k h where x is next to one of these (Al Azah and Chandler-Wilde,
2021, SIAM Journal on Numerical Analysis 59), and derivatives are those of 1/(z - t). Far out it is
an asymptotic series. Real and imaginary parts are written out, so that both keep their digits where
the other is much larger.

The formulas are those of kernels and of NumPy, in float32 and float64: ``m`` holds the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from symgrad.expr.references import reference
from symgrad.expr.references.special import in_double

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


TINY, LIFT = 2.0**-70, 2.0**40
"""Numbers of whose multiples the squares are nothing beside 1; and what makes them larger."""


def _times(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _by_square(coefficients: Sequence[float], twice: Any, square: Any) -> Pair:
    """b and c: the polynomial is u b + c, u with this 2 Re u and |u|**2 (Knuth, TAOCP 4.6.4)."""
    b, after = coefficients[-2] + twice * coefficients[-1], coefficients[-1]
    for a in coefficients[-3:0:-1]:
        b, after = (a + twice * b) - square * after, b
    return b, coefficients[0] - square * after


def _inner(m: Any, order: int, x: Any, y: Any, digits: Digits) -> Pair:
    """The sum over the nodes x - t and x + t, t = (k + 1/2) h, and the residue.

    Terms are h/pi (exp(-(x - t)**2) ± exp(-(x + t)**2)) times y or t over t**2 + y**2.
    """
    step = STEP if order < 2 else digits.step
    of_real, of_imaginary = 0.0, 0.0
    grow, shrink, unit = m.exp(step * x), m.exp(-step * x), m.sinh(step * x)
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
    size = m.exp(-2.0 * math.pi / step * y)
    height, fall = 2.0 * size / (1.0 + size) * m.exp(square), m.exp_neg_square(x)
    residue = height * m.cos(2.0 * (x * y)), -height * m.sin(2.0 * (x * y))
    if order == 1:
        residue = _times((-2.0 * x, -2.0 * y), residue)
    elif order == 2:
        residue = _times((4.0 * ((x - y) * (x + y)) - 2.0, 8.0 * (x * y)), residue)
    return fall * (y * of_real + residue[0]), fall * (of_imaginary + residue[1])


def far_out(inverse: Any, less: Any, order: int, terms: int) -> Pair:
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


def _trapezoidal(m: Any, order: int, x: Any, y: Any, odd: Any, digits: Digits) -> Pair:
    """The sum over pairs of nodes t and -t of 2 i h/pi exp(-t**2) times a function of z and t.

    With q = 1/(z**2 - t**2) it is z q, -q**2 (z**2 + t**2) or 2 z q**3 (z**2 + 3 t**2).
    """
    step, of_real, of_imaginary = digits.step, 0.0, 0.0
    d, square = 2.0 * (x * y), y * y
    for k in reversed(range(math.ceil(digits.reach / step))):
        whole, half = k * step, (k + 0.5) * step
        weights = [2.0 * step / math.pi * math.exp(-t * t) for t in (whole, half)]
        t = m.where(odd, whole, half)
        e = m.where(odd, weights[0] if k else 0.5 * weights[0], weights[1])
        four, between = m.where(odd, 4.0 * whole * whole, 4.0 * half * half), (x - t) * (x + t)
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


def _residue(m: Any, order: int, x: Any, y: Any, phase: Any, digits: Digits) -> Pair:
    """2 exp(-z**2) g or its derivative, g = v/(1 + v), v = exp(2 pi i phase - 2 pi y/h).

    The derivative of g is 2 pi i/h times g (1 - g).
    """
    pace = 2.0 * math.pi / digits.step
    size, less = m.exp(-pace * y), -m.expm1(-2.0 * pace * y)
    sine, cosine = m.sin(2.0 * math.pi * phase), m.cos(2.0 * math.pi * phase)
    below = (1.0 + size * size) + 2.0 * (size * cosine)
    share = size * (cosine + size) / below, size * sine / below
    height = 2.0 * m.exp_neg_square(x) * m.exp(y * y)
    wave = height * m.cos(2.0 * (x * y)), -height * m.sin(2.0 * (x * y))
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


def derivative(m: Any, order: int, imaginary: bool, x: Any, y: Any, digits: Digits) -> Any:
    """The real or the imaginary part of w's derivative of this order, up to the second, y >= 0."""
    part = int(imaginary)
    odd_in_x = (order + part) % 2 == 1
    size, lift, lower = m.abs(x), 1.0, 1.0
    if odd_in_x:  # next to 0 it is as x, but not what is flushed of it
        lift, lower = (m.where(size < TINY, f, 1.0) for f in (LIFT, 1.0 / LIFT))
    a = size * lift
    square = m.where(a + y < 64.0, a * a + y * y, 4096.0)
    near, far = (a < INNER[order][0]) & (y < INNER[order][1]), square > digits.far
    between = ~(near | far)
    mid_x, mid_y = m.where(between, a, 4.0), m.where(between, y, 4.0)
    halves = m.round(mid_x * (2.0 / digits.step))
    odd = halves - 2.0 * m.round(0.5 * halves) != 0.0
    phase = (mid_x - halves * (0.5 * digits.step)) * (1.0 / digits.step)  # the difference is exact
    low = m.where(mid_y < math.pi / digits.step, mid_y, 0.0)
    value = _trapezoidal(m, order, mid_x, mid_y, odd, digits)[part]
    residue = _residue(m, order, mid_x, low, phase, digits)[part]
    value = value + m.where(mid_y < math.pi / digits.step, residue, 0.0)
    inside = _inner(m, order, m.where(near, a, 0.0), m.where(near, y, 0.0), digits)[part]
    out_x, out_y = m.where(far, a, 32.0), m.where(far, y, 32.0)
    inverses = m.real_reciprocal(out_x, out_y), m.real_reciprocal(out_y, out_x)
    outside = far_out(*inverses, order, digits.terms)[part]
    value = m.where(near, inside, m.where(far, outside, value))
    if odd_in_x:
        value = m.where(x < 0.0, -value, value) * lower
    return m.where(y < 0.0, math.nan, value)


NUMPY: Final = SimpleNamespace(
    abs=np.abs, where=np.where, exp=np.exp, expm1=np.expm1, sin=np.sin, sinh=np.sinh, cos=np.cos,
    round=np.round,
    exp_neg_square=reference.exp_neg_square, real_reciprocal=reference.real_reciprocal,
)  # fmt: skip
"""NumPy's functions, and what it has none for."""


def meaning(order: int, imaginary: bool) -> Callable[[Any, Any], Any]:
    """That part of the derivative, in NumPy."""
    return in_double(partial(_in_numpy, order, imaginary))


def _in_numpy(order: int, imaginary: bool, x: Any, y: Any) -> Any:
    return derivative(NUMPY, order, imaginary, x, y, DOUBLE)


@in_double
def dawsn(x: Any) -> Any:
    """sqrt(pi)/2 times the imaginary part on the real axis."""
    return 0.5 * math.sqrt(math.pi) * _in_numpy(0, True, x, np.zeros_like(x))


@in_double
def voigt_profile(x: Any, sigma: Any, gamma: Any) -> Any:
    """Voigt's function over sqrt(2 pi) sigma, Lorentz's line where sigma is nothing beside it."""
    sharp = np.abs(x) + np.abs(gamma) > 2.0**30 * sigma
    scale = math.sqrt(2.0) * np.where(sharp, 1.0, sigma)
    value = _in_numpy(0, False, x / scale, gamma / scale) / (scale * math.sqrt(math.pi))
    value = np.where(sharp, reference.real_reciprocal(gamma, x) / math.pi, value)
    value = np.where((sigma == 0.0) & (gamma == 0.0) & (x == 0.0), math.inf, value)
    return np.where((sigma < 0.0) | (gamma < 0.0), math.nan, value)
