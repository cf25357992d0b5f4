"""Points of the plane in pairs: angles, distances, and the slopes of both."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import has_sign
from symgrad.mathlib.pair.exponential import choose, polynomial, with_sign
from symgrad.mathlib.pair.expression import Paired, call, constant, pair

LARGE, SMALL = 2.0**60, 2.0**-40
"""Sizes beyond which squares, or what they lose, may leave the range."""


def _scaled(x: Paired, scale: Expr) -> Paired:
    """x times a power of two; an infinite low part is none."""
    high = x.high * scale
    return pair(high, ops.where(ops.isfinite(high), x.low * scale, 0.0))


def _scale(larger: Expr) -> Expr:
    """A power of two by which no square of the larger number leaves the range."""
    return ops.where(larger > LARGE, 2.0**-70, ops.where(larger < SMALL, 2.0**80, 1.0))


def _squares(a: Paired, b: Paired) -> tuple[Paired, Paired, Paired, Expr]:
    """a and b times a power of two, the sum of their squares, and the power.

    At (0, 0) the sum is 1, so that quotients are 0.
    """
    u, v = ops.abs(a.high), ops.abs(b.high)
    larger = ops.where(u > v, u, v)
    scale = _scale(larger)
    p, q = _scaled(a, scale), _scaled(b, scale)
    return p, q, choose(larger == 0.0, constant(a, 1.0), call(ops.fma, p, p, q * q)), scale


def _finite(x: Paired) -> Paired:
    """x, 0 where it is infinite."""
    return choose(ops.isinf(x.high), constant(x, 0.0), x)


def hypot(a: Paired, b: Paired) -> Paired:
    """sqrt(a**2 + b**2), both scaled by the same power of two."""
    p, q, square, scale = _squares(a, b)
    nothing = (p.high == 0.0) & (q.high == 0.0)
    back = ops.reciprocal(scale)
    value = choose(nothing, constant(a, 0.0), _scaled(call(ops.sqrt, square), back))
    value = choose(ops.isnan(a.high), a, choose(ops.isnan(b.high), b, value))
    infinite = ops.isinf(a.high) | ops.isinf(b.high)
    return choose(infinite, constant(a, math.inf), value)


def real_reciprocal(a: Paired, b: Paired) -> Paired:
    """a/(a**2 + b**2), both scaled by the same power of two."""
    p, _, square, scale = _squares(a, b)
    return _scaled(_finite(p) / square, scale)


def real_reciprocal_square(a: Paired, b: Paired) -> Paired:
    """(a - b)/s (a + b)/s, s = a**2 + b**2, scaled in the same way."""
    p, q, square, scale = _squares(a, b)
    p, q = _finite(p), _finite(q)
    return _scaled((p - q) / square, scale) * _scaled((p + q) / square, scale)


def direction(a: Paired, b: Paired) -> Paired:
    """a/sqrt(a**2 + b**2), scaled in the same way."""
    p, _, square, _ = _squares(a, b)
    one = pair(ops.copysign(1.0, a.high))
    return choose(ops.isinf(a.high), one, p / call(ops.sqrt, square))


# Angles.

BETWEEN: Final = 0.4140625
"""Near tan(pi/8): numbers from 0 to 1 are within 0.21 of 0, this, or 1, but for a rotation."""

ATAN: Final = tuple((-1.0) ** k / (2 * k + 1) for k in range(11))
"""atan(t)/t in t**2, |t| < 0.21."""


def _arc(n: Paired, m: Paired) -> Paired:
    """atan(n/m), 0 <= n <= m: that of c, and of (n - c m)/(m + c n), c = 0, `BETWEEN` or 1."""
    ratio = n.high / m.high
    near, middle = ratio < 0.2, ratio < 0.66

    def chosen(of: float, of_one: float) -> Paired:
        rest = choose(middle, constant(n, of), constant(n, of_one))
        return choose(near, constant(n, 0.0), rest)

    c = pair(ops.where(near, 0.0, ops.where(middle, BETWEEN, 1.0)))
    t = call(ops.fma, -m, c, n) / call(ops.fma, n, c, m)
    slope = polynomial(t * t, ATAN, 5)
    return call(ops.fma, slope, t, chosen(math.atan(BETWEEN), 0.25 * math.pi))


def _axis(condition: Condition, value: Paired, angle: float) -> Paired:
    """The angle less the value where the condition holds."""
    return choose(condition, angle - value, value)


def atan2(y: Paired, x: Paired) -> Paired:
    """The angle of (x, y): the arc tangent of the smaller by the larger, and then the quadrant."""
    a, b = call(ops.abs, y), call(ops.abs, x)
    steep = a.high > b.high
    larger, smaller = choose(steep, a, b), choose(steep, b, a)
    usable = (larger.high > 0.0) & (larger.high < math.inf)
    scale = _scale(larger.high)
    both = pair(ops.where((a.high == b.high) & (a.high > 0.0), 1.0, 0.0))
    n = choose(usable, _scaled(smaller, scale), both)
    m = choose(usable, _scaled(larger, scale), constant(y, 1.0))
    angle = _axis(steep, _arc(n, m), 0.5 * math.pi)
    value = with_sign(_axis(has_sign(x.high), angle, math.pi), y)
    return choose(ops.isnan(x.high), x, choose(ops.isnan(y.high), y, value))


def atan(x: Paired) -> Paired:
    """The angle of (1, x)."""
    return call(ops.atan2, x, constant(x, 1.0))


def _other(x: Paired) -> Paired:
    """sqrt(1 - x**2)."""
    return call(ops.sqrt, (1.0 - x) * (1.0 + x))


def asin(x: Paired) -> Paired:
    """The angle of (sqrt(1 - x**2), x)."""
    return call(ops.atan2, x, _other(x))


def acos(x: Paired) -> Paired:
    """The angle of (x, sqrt(1 - x**2))."""
    return call(ops.atan2, _other(x), x)
