"""The scaled complement of the error function."""

from __future__ import annotations

import math
from typing import Any

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import abs
from symgrad.expr.ops.comparison import where
from symgrad.expr.ops.quantile import inverse_mills, mills_excess
from symgrad.expr.references import scaled_erfc_reference as reference
from symgrad.lazy import mpmath as _mp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

def _scaled(x: Any) -> Any:
    """exp(x**2) erfc(x) for x >= 0 by Mills' ratio; below 0 twice exp(x**2) less that of -x."""
    tail = math.sqrt(2.0 / math.pi) / inverse_mills(-math.sqrt(2.0) * abs(x))
    return where(x < 0.0, 2.0 * exp_square(x) - tail, tail)


exp_square = Op(
    name="exp_square", signature="f->f", reference=reference.exp_square, cost=14,
    meaning="exp(x**2), the square exact", partials=lambda y, x: (2.0 * x * y,),
    transcendental=True, latex="e^{{{0}^2}}", points=((0.5,), (-3.0,), (0.0,)),
    exact=lambda x: _mp.exp(x * x), interval=interval.at_least(1.0),
)
erfcx = Op(
    name="erfcx", signature="f->f", reference=reference.erfcx, cost=80, transcendental=True,
    meaning="exp(x**2)*erfc(x), the scaled complement of the error function",
    partials=lambda y, x: (-math.sqrt(2.0) * mills_excess(-math.sqrt(2.0) * x) * y,),
    definition=_scaled, scipy=True, exact=lambda x: _mp.exp(x * x) * _mp.erfc(x),
    interval=interval.at_least(0.0), edges="0 at inf, inf at -inf",
    points=((0.5,), (-2.0,), (4.0,), (0.0,), (1.0001,), (300.0,), (1e-5,)), public=True,
)
