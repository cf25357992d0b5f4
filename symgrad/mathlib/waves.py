"""The cardinal sine and what its derivative is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import keep_nan, polynomial, quotient

SINC: Final = (-1.644934, 0.8117422, -0.19074796, 0.026117546, -0.0022371497)
"""(sinc(x) - 1)/x**2 in x**2, |x| <= 1/2: sinc to 0.* 2**-24 of its value (tools/fit.py)."""

SINC_RATIO: Final = (0.33333334, -0.3289868, 0.115962766, -0.02119149, 0.0023665708, -0.00016410604)
"""(sinc(x) - cos(pi x))/(pi x)**2 in x**2, |x| <= 3/4."""

WHOLE: Final = 1e30
"""Beyond it x is whole and the sine 0, also in float64; a quotient by pi x might not be finite."""


def sine_share(
    x: Expr, sine: Expr, coefficients: tuple[float, ...], divide: Callable[[Expr, Expr], Expr]
) -> Expr:
    """sin(pi x)/(pi x), the sine being given; for |x| < 1/2 a polynomial."""
    near, square = ops.abs(x) < 0.5, x * x
    far = divide(sine, ops.where(near | (ops.abs(x) > WHOLE), 1.0, math.pi * x))
    return keep_nan(ops.where(near, 1.0 + square * polynomial(square, coefficients), far), x)


def ratio(x: Expr, sine: Expr, cosine: Expr, coefficients: tuple[float, ...]) -> Expr:
    """(sine/(pi x) - cosine)/(pi x)**2; for |x| < 3/4 a polynomial."""
    near = ops.abs(x) < 0.75
    z = ops.where(near, 1.0, math.pi * x)
    far = ((sine / z - cosine) / z) / z
    return keep_nan(ops.where(near, polynomial(x * x, coefficients), far), x)


def sinc(x: Expr) -> Expr:
    """sin(pi x)/(pi x), the sine that of turns; for |x| < 1/2 a polynomial."""
    return sine_share(x, ops.sin_turns(0.5 * x), SINC, quotient)


def sinc_ratio(x: Expr) -> Expr:
    """(sinc(x) - cos(pi x))/(pi x)**2; for |x| < 3/4 a polynomial."""
    return ratio(x, ops.sin_turns(0.5 * x), ops.cos_turns(0.5 * x), SINC_RATIO)
