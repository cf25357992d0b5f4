"""The cardinal sine in float64, and what its derivative is made of."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.coefficients import coefficients
from symgrad.mathlib.waves import ratio, sine_share

SINC: Final = coefficients("""
    -1.6449340668482264 0.8117424252833536 -0.19075182412208258 0.026147847817611463
    -0.002346081034804873 0.00014842878710920906 -6.975840390038353e-06 2.530088109597039e-07
    -7.092122628843302e-09
""")
"""(sinc(x) - 1)/x**2 in x**2, |x| <= 1/2: sinc to 0.* 2**-53 of its value (tools/fit.py)."""

SINC_RATIO: Final = coefficients("""
    0.3333333333333333 -0.3289868133696453 0.11596320361190766 -0.021194647124675916
    0.0023770770743307547 -0.00018046777194601226 9.895252807392737e-06 -4.1034530960532235e-07
    1.3321777094668386e-08 -3.4729406596665315e-10 7.0544216074313986e-12
""")
"""(sinc(x) - cos(pi x))/(pi x)**2 in x**2, |x| <= 3/4."""


def half_turn(x: Expr) -> tuple[Expr, Expr, Expr]:
    """sin(pi x) and cos(pi x) but for their sign, and that: 1 or -1."""
    k = ops.round(x)
    half = 0.5 * k
    r = math.pi * (x - k)
    return ops.sin(r), ops.cos(r), ops.where(ops.floor(half) == half, 1.0, -1.0)


def sinc(x: Expr) -> Expr:
    """sin(pi x)/(pi x), 0 where x is whole."""
    sine, _, sign = half_turn(x)
    return sine_share(x, sign * sine, SINC, ops.div)


def sinc_ratio(x: Expr) -> Expr:
    """(sinc(x) - cos(pi x))/(pi x)**2; for |x| < 3/4 a polynomial."""
    sine, cosine, sign = half_turn(x)
    return ratio(x, sign * sine, sign * cosine, SINC_RATIO)
