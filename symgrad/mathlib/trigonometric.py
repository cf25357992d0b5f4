"""Inverse trigonometric functions, each a polynomial after one reduction of its argument."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import has_sign, keep_nan, keep_tiny, polynomial

ATAN: Final = (-0.3333295, 0.199777, -0.13877568, 0.08053337)
"""(atan(t) - t)/t**3 in t**2, |t| <= tan(pi/8): atan to 0.37 * 2**-24 of itself (tools/fit.py)."""

ASIN: Final = (0.16666752, 0.074952975, 0.045470376, 0.02417951, 0.042166315)
"""(asin(t) - t)/t**3 in t**2, |t| <= 0.5: asin to 0.10 * 2**-24."""

PI: Final = 3.1415927
"""The float32 nearest to pi, too large by ``-PI_REST``."""
PI_REST: Final = -8.742278e-08
TINY: Final = 1e-4


def _octant(n: Expr, m: Expr) -> Expr:
    """atan(n/m) for 0 <= n <= m, m > 0: reduced by pi/4 where n/m > tan(pi/8)."""
    high = n > 0.41421357 * m
    return _near_zero(ops.where(high, n - m, n) / ops.where(high, n + m, m), high)


def _mended_octant(n: Expr, m: Expr) -> Expr:
    """As `_octant`, with a ratio that a Newton step mends, where a device's is off by 2 ULP."""
    high = n > 0.41421357 * m
    above, below = ops.where(high, n - m, n), ops.where(high, n + m, m)
    r = ops.reciprocal(below)
    ratio = ops.opaque(above * r)
    return _near_zero(ratio + r * (above - ratio * below), high)


def _near_zero(t: Expr, high: Condition) -> Expr:
    """atan(t), and pi/4 more where it is to be added."""
    square = t * t
    rest = t * square * polynomial(square, ATAN) + ops.where(high, 0.25 * PI_REST, 0.0)
    return ops.where(high, 0.25 * PI, 0.0) + (t + rest)


def _complement(angle: Expr, turns: float) -> Expr:
    """turns * pi - angle, for 1/2 or 1 turns."""
    return turns * PI - (angle - turns * PI_REST)


def atan(x: Expr) -> Expr:
    """The angle of 1/|x| or |x|, whichever is at most 1, with the sign of x."""
    a = ops.abs(x)
    steep = a > 1.0
    angle = _octant(ops.where(steep, 1.0, a), ops.where(steep, a, 1.0))
    value = ops.where(a > 1e8, 0.5 * PI, ops.where(steep, _complement(angle, 0.5), angle))
    return keep_tiny(ops.copysign(value, x), x, TINY)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of (x, y): atan(smaller/larger), scaled by 2**k, and then the quadrant."""
    a, b = ops.abs(y), ops.abs(x)
    steep = a > b
    m = ops.where(steep, a, b)
    scale = ops.where(m > 2.0**60, 2.0**-64, ops.where(m < 2.0**-60, 2.0**80, 1.0))
    n = ops.where(a == b, m, ops.where(steep, b, a)) * scale
    usable = (m > 0.0) & (m < math.inf)
    angle = _mended_octant(
        ops.where(usable, n, ops.where((a == b) & (m > 0.0), 1.0, 0.0)),
        ops.where(usable, m * scale, 1.0),
    )
    angle = ops.where(steep, _complement(angle, 0.5), angle)
    angle = ops.where(has_sign(x), _complement(angle, 1.0), angle)
    return keep_nan(ops.copysign(angle, y), y, x)


def _reduced(x: Expr) -> tuple[Expr, Expr]:
    """a = |x|, and asin(a) if a <= 1/2, else asin(sqrt((1 - a)/2))."""
    a = ops.abs(x)
    near = a <= 0.5
    square = ops.where(near, a * a, 0.5 - 0.5 * a)
    t = ops.where(near, a, ops.sqrt(square))
    return a, t + t * square * polynomial(square, ASIN)


def asin(x: Expr) -> Expr:
    """A polynomial in x; where |x| = a > 1/2, pi/2 less twice the arc sine of sqrt((1 - a)/2)."""
    a, angle = _reduced(x)
    value = ops.where(a <= 0.5, angle, _complement(2.0 * angle, 0.5))
    return keep_tiny(ops.copysign(ops.where(a > 1.0, math.nan, value), x), x, TINY)


def acos(x: Expr) -> Expr:
    """pi/2 - asin(x) for |x| <= 1/2, else 2 asin(sqrt((1 - |x|)/2)), from pi if x < 0."""
    a, angle = _reduced(x)
    far = ops.where(x > 0.0, 2.0 * angle, _complement(2.0 * angle, 1.0))
    value = ops.where(a <= 0.5, _complement(ops.copysign(angle, x), 0.5), far)
    return keep_nan(ops.where(a > 1.0, math.nan, value), x)
