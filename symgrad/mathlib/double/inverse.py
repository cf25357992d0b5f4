"""Inverse trigonometric functions, each a polynomial after one reduction of its argument."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import has_sign, keep_nan, polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.double.limits import keep_tiny
from symgrad.mathlib.double.pair import Pair, divide, fast_sum

ATAN: Final = coefficients("""
    -0.333333333333332 0.19999999999953216 -0.14285714280162587 0.11111110781917653
    -0.09090897717368841 0.07692059559888764 -0.0666309723476238 0.05847843781408682
    -0.050391159187133765 0.03806013977080866 -0.017902743745857916
""")
"""(atan(t) - t)/t**3 in t**2, |t| <= tan(pi/8): atan to 0.05 * 2**-53 of itself (tools/fit.py)."""

ASIN: Final = coefficients("""
    0.1666666666666541 0.0750000000033684 0.044642856828447375 0.030381959132661996
    0.02237175814355071 0.017359703483187647 0.013885247020226596 0.012169142435751469
    0.0065282472142118445 0.019527592616414395 -0.016223304708249793 0.031911689897975104
""")
"""(asin(t) - t)/t**3 in t**2, |t| <= 0.5: asin to 0.17 * 2**-53."""

QUARTER_PI: Final = (0.7853981633974483, 3.061616997868383e-17)
"""pi/4: its 50 leading bits, of which thrice is exact, and the rest."""
TINY: Final = 2.0**-28


def _from_eighth(eighths: Expr | float, sign: Expr | float, angle: Pair) -> Expr:
    """eighths * pi/4 + sign * angle."""
    high, low = fast_sum(eighths * QUARTER_PI[0], sign * angle[0])
    return high + (low + (sign * angle[1] + eighths * QUARTER_PI[1]))


def _octant(n: Expr, m: Expr) -> tuple[Expr, Pair]:
    """j and the angle t of atan(n/m) = j pi/4 + t, j = 0 or 1, for 0 <= n <= m, 1/m normal."""
    high = n > 0.4142135623730951 * m
    less, less_rest = fast_sum(m, -n)
    more, more_rest = fast_sum(m, n)
    above = (ops.where(high, -less, n), ops.where(high, -less_rest, 0.0))
    below = (ops.where(high, more, m), ops.where(high, more_rest, 0.0))
    t, rest = divide(above, below)
    small = ops.abs(above[0]) < 2.0**-60
    t, rest = ops.where(small, above[0] / m, t), ops.where(small, 0.0, rest)
    whole = t + rest
    z = whole * whole
    return ops.where(high, 1.0, 0.0), (t, rest + whole * z * polynomial(z, ATAN))


def atan(x: Expr) -> Expr:
    """The angle of 1/|x| or |x|, whichever is at most 1, with the sign of x."""
    a = ops.abs(x)
    a = ops.where(a > 2.0**60, 2.0**60, a)
    steep = a > 1.0
    j, angle = _octant(ops.where(steep, 1.0, a), ops.where(steep, a, 1.0))
    value = _from_eighth(ops.where(steep, 2.0 - j, j), ops.where(steep, -1.0, 1.0), angle)
    return keep_tiny(ops.copysign(value, x), x, TINY)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of (x, y): atan(smaller/larger), scaled by 2**-k, and then the quadrant."""
    a, b = ops.abs(y), ops.abs(x)
    steep = a > b
    larger, smaller = ops.where(steep, a, b), ops.where(steep, b, a)
    usable = (larger > 0.0) & (larger < math.inf)
    k = -ops.exponent(ops.where(usable, larger, 1.0))
    n = ops.scalb(ops.where(usable, smaller, 0.0), k)
    n = ops.where((a == b) & (a > 0.0), 1.0, n)
    m = ops.where(usable & (a != b), ops.scalb(larger, k), 1.0)
    j, angle = _octant(n, m)
    j, sign = ops.where(steep, 2.0 - j, j), ops.where(steep, -1.0, 1.0)
    behind = has_sign(x)
    j, sign = ops.where(behind, 4.0 - j, j), ops.where(behind, -sign, sign)
    return keep_nan(ops.copysign(_from_eighth(j, sign, angle), y), y, x)


def _reduced(x: Expr) -> tuple[Expr, Pair]:
    """a = |x|, and asin(a) if a <= 1/2, else twice the arc sine of sqrt((1 - a)/2)."""
    a = ops.abs(x)
    near = a <= 0.5
    z = ops.where(near, a * a, 0.5 - 0.5 * a)
    t = ops.where(near, a, ops.sqrt(z))
    high = ops.upper(t)
    lost = (z - high * high) / ops.where(z > 0.0, t + high, 1.0)
    rest = t * z * polynomial(z, ASIN)
    return a, (ops.where(near, a, 2.0 * high), ops.where(near, rest, 2.0 * (lost + rest)))


def asin(x: Expr) -> Expr:
    """A polynomial in x; where |x| = a > 1/2, pi/2 less twice the arc sine of sqrt((1 - a)/2)."""
    a, angle = _reduced(x)
    value = ops.where(a <= 0.5, angle[0] + angle[1], _from_eighth(2.0, -1.0, angle))
    return keep_tiny(ops.copysign(ops.where(a > 1.0, math.nan, value), x), x, TINY)


def acos(x: Expr) -> Expr:
    """pi/2 - asin(x) for |x| <= 1/2, else 2 asin(sqrt((1 - |x|)/2)), from pi if x < 0."""
    a, angle = _reduced(x)
    near, left = a <= 0.5, x < 0.0
    eighths = ops.where(near, 2.0, ops.where(left, 4.0, 0.0))
    sign = ops.where(near ^ left, -1.0, 1.0)
    return keep_nan(ops.where(a > 1.0, math.nan, _from_eighth(eighths, sign, angle)), x)
