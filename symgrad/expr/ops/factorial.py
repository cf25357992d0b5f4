"""The gamma function itself, of rows of the table."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import abs, copysign
from symgrad.expr.ops.beta import LARGE as _LARGE
from symgrad.expr.ops.beta import stirling
from symgrad.expr.ops.comparison import isinf, isnan, where
from symgrad.expr.ops.exponential import exp
from symgrad.expr.ops.gamma import digamma, gammaln
from symgrad.expr.ops.powers import pow
from symgrad.expr.ops.rounding import floor, round
from symgrad.expr.ops.trigonometric import sin
from symgrad.expr.references import special_reference as reference
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

HIGHEST: Final = 172.0
"""From here on the gamma function is infinite in float64 too."""


def _gamma(x: Any) -> Any:
    """Below 6 a product with the gamma function of 1 to 2, by its small logarithm, beyond Stirling.

    x**(x - 1/2) would overflow before the value does, and is a square. Below 0 by reflection.
    """
    left = x < 0.0
    p = where(abs(x) < HIGHEST, abs(x), HIGHEST)
    near = p < _LARGE
    q = where(near, p, 1.0)
    steps = where(q >= 2.0, floor(q) - 1.0, 0.0)
    product = 1.0
    for k in range(1, int(_LARGE) - 1):
        product = product * where(q >= float(k + 1), q - float(k), 1.0)
    small = q < 1.0
    inner = where(small, 1.0 + q, q - steps)
    below = product * exp(gammaln(inner)) / where(small, q, 1.0)
    far = where(near, _LARGE, p)
    half = pow(far, 0.5 * far - 0.25)
    large = (half * (exp(-far) * math.sqrt(2.0 * math.pi))) * (half * exp(stirling(far)))
    value = where(near, below, where(isinf(half), math.inf, large))  # exp may be 0 beside it
    value = where(p == HIGHEST, math.inf, value)
    whole = where(left, where(x == -math.inf, 0.0, -x), 0.5)
    apart = whole - round(whole)
    sine = sin(math.pi * apart)
    odd = where(round(whole) - 2.0 * floor(0.5 * round(whole)) == 1.0, -1.0, 1.0)
    mirrored = (-math.pi * odd) / (p * (where(apart == 0.0, 1.0, sine) * value))
    mirrored = where(apart == 0.0, float("nan"), mirrored)
    value = where(left, mirrored, where(x == 0.0, copysign(math.inf, x), value))
    return where(x == -math.inf, float("nan"), where(isnan(x), x, value))


gamma = Op(
    name="gamma", signature="f->f", reference=reference.gamma, cost=150, transcendental=True,
    meaning="the gamma function", partials=lambda y, x: (y * digamma(x),), definition=_gamma,
    exact=lambda x: _mp.gamma(x), sympy=lambda x: _sp.gamma(x), scipy=True,
    latex=r"\Gamma\left({0}\right)", domain="all x but -1, -2, ...",
    edges="±inf at ±0.0, NaN at -1, -2, ... and -inf; next to these poles only the error beside "
    "the distance's rounding is small",
    points=((0.3,), (1.0,), (1.5,), (2.0,), (4.7,), (20.0,), (-0.4,), (-1.7,)), public=True,
)
