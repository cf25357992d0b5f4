"""Powers and the cube root."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import reciprocal, stop_gradient
from symgrad.expr.ops.comparison import isnan, where
from symgrad.expr.ops.exponential import log
from symgrad.expr.references import reference

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

integer_pow = Op(
    name="integer_pow", signature="fi->f", reference=reference.integer_power, cost=3,
    meaning="x**k for a constant integer k, by products for -15 < k < 17",
    vjp=lambda g, y, x, k: ((k.number * g) * x ** (k.number - 1), None), latex="{0}^{{{1}}}",
    edges="x**0 is 1; x**-k is 1/x**k, ±inf from 2**126 on where a device flushes a subnormal x**k",
    points=(
        (1.5, 3), (-1.25, 4), (-0.5, -3), (0.0, 2), (1.1, 8), (-1.2, 9), (0.0, 9), (1.3, -12),
        (-0.9, 25), (-1.01, -300), (1.7, 7), (1.3, -6), (-1.9, -14), (2.0, 16),
    ),
)


def _shifts(base: float) -> bool:
    """Whether the logarithm, as a factor, moves a float32 over an end of the range."""
    size = math.fabs(math.log(base)) if 0.0 < base < math.inf else 1.0
    return 0.0 < size < 1.0 or size > 64.0


def _varying(x: Any, p: Any) -> Any:
    """p, for x <= 0 as a constant: there, powers are functions of x only."""
    return p if p.graph.value(p.id) is not None else where(x > 0.0, p, stop_gradient(p))


def _slope(x: Any, p: Any) -> Any:
    """p x**(p - 1), p - 1 not rounded: a half less 1 never is."""
    exponent = p.graph.value(p.id)
    if exponent is not None and float(2.0 * exponent).is_integer():
        return exponent * x ** (exponent - 1.0)
    return pow_times(_varying(x, p), x, p, -1)


def _growth(y: Any, x: Any, p: Any) -> Any:
    """x**p log(x), 0 for x <= 0; of a constant base that moves nothing over an end the product."""
    base = x.graph.value(x.id)
    inside = base is not None and not _shifts(base)
    grown = y * log(x) if inside else pow_times(log(x), x, p, 0)
    return where(x > 0.0, grown, where(isnan(y), y, 0.0))


def _pow_times_partials(y: Any, c: Any, x: Any, p: Any, k: Any) -> tuple[Any, ...]:
    """x**(p + k), (p + k) c x**(p + k - 1) and, for x > 0, log(x) c x**(p + k)."""
    k = k.number
    grown = pow_times(c * log(x), x, p, k)
    return (
        pow_times(1.0, x, p, k),
        pow_times(c * (_varying(x, p) + k), x, p, k - 1),
        where(x > 0.0, grown, where(isnan(y), y, 0.0)),
        None,
    )


pow_times = Op(
    name="pow_times", signature="fffi->f", reference=reference.pow_times, cost=12,
    meaning="c * x**(p + k) for a constant integer k, without p + k or x**p being rounded",
    partials=_pow_times_partials, transcendental=True, domain="x >= 0, or p an integer",
    edges="0 where c is 0; the derivative by p is 0 for x <= 0",
    points=(
        (1.5, 1.5, 2.5, -1), (-0.5, 0.3, -1.7, -2), (2.0, 4.0, 0.5, 0), (1.5, 2.0, 0.0, -1),
        (0.7, 2.0, 1.0, -2), (0.7, 1.0, 3.0, -1),
    ),
)
pow = Op(
    name="pow", signature="ff->f", reference=np.power, meaning="x**p", cost=30,
    partials=lambda y, x, p: (_slope(x, p), _growth(y, x, p)),
    transcendental=True, latex="{0}^{{{1}}}", domain="x >= 0, or p an integer",
    edges="0**0 is 1; a negative x gives NaN unless p is an integer; d/dp is 0 for x <= 0",
    points=(
        (1.5, 2.5), (0.3, -1.7), (-2.0, 3.0), (4.0, 0.5), (2.0, 0.0), (2.0, 1.0), (0.5, 1.0),
        (1.0, 0.0), (1.0, 1.0), (1.0, 2.5), (3.0, 2.0), (3.0, -2.0), (2.0, 1.0000001),
        (2.0, 0.99999994), (1.5, 1e-6), (1e5, 1.000001), (1.00001, 3.7), (1e-20, 4.0),
    ),
    interval=interval.power,
)
cbrt = Op(
    name="cbrt", signature="f->f", reference=np.cbrt, meaning="the real cube root", cost=20,
    partials=lambda y, x: (reciprocal(3.0 * (y * y)),), latex=r"\sqrt[3]{{{0}}}",
    edges="the derivative at 0 is inf", scipy=True, points=((2.0,), (-0.3,)),
    public=True,
)
