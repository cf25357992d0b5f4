"""The normal distribution's logarithm, hazard and inverse in float64, this by Halley's step."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import keep_nan, polynomial
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.quantile import (
    INVERSE_MIDDLE,
    LOG_ROOT,
    excess,
    hazard_excess,
    log_distribution,
)

HAZARD: Final = coefficients("""
    0.19859192958261904 -0.8415387946870332 0.01716314677430462 0.18569957991791294
    -0.025434750641240036 -0.0546386059443191 0.007699762308687512 0.018431224996932213
    -0.0009428857937533486 -0.006371543754328798 -0.0006340023192771727 0.0020435261113203344
    0.0006121243505114593 -0.0005421550431239726 -0.0003228731710536161 9.186809030552625e-05
    0.0001222305548079741 5.393299936482968e-06 -3.2823155177185494e-05 -1.047886487207647e-05
    5.0200523339685654e-06 3.6733286868191157e-06 2.0038633976165408e-07 -4.60568474669843e-07
    -2.8094689407319725e-07 -1.1921754931664845e-07 3.844203616920923e-08 5.8979021953012424e-08
    6.666266316011449e-09 -7.848713214002261e-09 -1.886213354722649e-09
""")
"""(phi(a)/Phi(-a) - a)(a + 3) - 3/2 in t = (a - 3)/(a + 3), a >= 0 (tools/fit.py)."""

INVERSE_TAIL: Final = coefficients("""
    0.9699814646418246 0.08063319181569006 -0.08345122063895694 0.03805573413635328
    0.026322797526036605 -0.10456056802098819 0.166145023510722 -0.14156838844447953
    0.04276586265214031 0.0075672252610542055
""")
"""erfinv(x)/s in (s - 5)/(s + 5), s**2 = -log(1 - x**2), 25/4 <= s**2 <= 750: to 4e-7."""


def log_ndtr(x: Expr) -> Expr:
    """-x**2/2 less a logarithm for x <= -1/4, log1p of the other tail above."""
    return log_distribution(x, HAZARD)


def mills_excess(x: Expr) -> Expr:
    """A polynomial over a + 3 for x = -a <= 0, by the density above."""
    return hazard_excess(x, HAZARD)


def _start(x: Expr, w: Expr) -> Expr:
    """|erfinv(x)| to 4e-7, w = -log(1 - x**2)."""
    near = w < 6.25
    s = ops.sqrt(ops.where(near, 9.0, w))
    tail = s * polynomial((s - 5.0) / (s + 5.0), INVERSE_TAIL)
    return ops.where(near, ops.abs(x) * polynomial(w - 3.125, INVERSE_MIDDLE), tail)


def _inverse(x: Expr, tail: Expr, central: Condition) -> Expr:
    """|erfinv(x)|, the tail being (1 - |x|)/2: Halley's step for erf(y) - x, or for log(tail)."""
    q = ops.where(central, 0.25, tail)
    w = -ops.log(4.0 * ops.where(central, (0.5 - 0.5 * x) * (0.5 + 0.5 * x), q * (1.0 - q)))
    y = _start(x, w)
    z = ops.where(central, y, 0.0)
    d = (ops.abs(x) - ops.erf(z)) * (0.5 * math.sqrt(math.pi)) * ops.exp(z * z)
    middle = y + (d + z * (d * d))
    t = math.sqrt(2.0) * ops.where(central, 1.0, y)
    rest = excess(t, HAZARD)
    hazard = t + rest
    left = ((-0.5 * (t * t) - ops.log(q)) - LOG_ROOT) - ops.log(hazard)
    d = left / hazard
    outer = t + (d - 0.5 * rest * (d * d))
    return ops.where(central, math.sqrt(2.0) * middle, outer)


def erfinv(x: Expr) -> Expr:
    """The inverse of erf for |x| < 1/2, of the tail's logarithm beyond."""
    a = ops.abs(x)
    central = a < 0.5
    inside = ops.where(a < 1.0, a, 0.75)
    value = math.sqrt(0.5) * _inverse(inside, 0.5 - 0.5 * inside, central)
    value = ops.where(a < 1.0, value, ops.where(a == 1.0, math.inf, math.nan))
    return keep_nan(ops.copysign(value, x), x)


def ndtri(p: Expr) -> Expr:
    """sqrt(2) times the inverse of erf for |2p - 1| < 1/2, of the tail's logarithm beyond."""
    tail = ops.where(p > 0.5, 1.0 - p, p)
    x = (p - 0.5) + (p - 0.5)
    usable = (tail > 0.0) & (tail < 1.0)
    value = _inverse(ops.abs(x), ops.where(usable, tail, 0.25), ops.abs(x) < 0.5)
    value = ops.where(usable, value, ops.where(tail == 0.0, math.inf, math.nan))
    return keep_nan(ops.copysign(value, x), p)
