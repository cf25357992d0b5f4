"""Waves that fall off: the cardinal sine."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import abs
from symgrad.expr.ops.comparison import where
from symgrad.expr.references import special_reference as reference
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

_RATIO_SLOPE: Final = tuple(
    (-1) ** k * 2 * k * (2 * k + 2) / math.factorial(2 * k + 3) * math.pi ** (2 * k)
    for k in range(1, 14)
)
"""The derivative of sinc_ratio over x, a power series in x**2, for |x| < 1."""


def _ratio_slope(y: Any, x: Any) -> Any:
    """(sinc(x) - 3 y)/x; near 0 the series, which has all its derivatives right."""
    square, series = x * x, 0.0
    for c in reversed(_RATIO_SLOPE):
        series = series * square + c
    near = abs(x) < 1.0
    return where(near, x * series, (sinc(x) - 3.0 * y) / where(near, 1.0, x))


def _exact_ratio(x: Any) -> Any:
    z = _mp.pi * x
    if _mp.fabs(z) < 1e-3:
        return _mp.mpf(1) / 3 - z**2 / 30 + z**4 / 840 - z**6 / 45360 + z**8 / 3991680
    return (_mp.sincpi(x) - _mp.cospi(x)) / z**2


sinc = Op(
    name="sinc",
    signature="f->f",
    reference=reference.sinc,
    cost=24,
    transcendental=True,
    meaning="sin(pi*x)/(pi*x), 1 at 0: the cardinal sine as NumPy has it",
    partials=lambda y, x: (-(math.pi**2 * (x * sinc_ratio(x))),),
    exact=lambda x: _mp.sincpi(x),
    sympy=lambda x: _sp.sinc(_sp.pi * x),
    edges="exactly 0 where x is whole; NaN at ±inf",
    points=((0.0,), (0.3,), (-0.5,), (0.5,), (-1.3,), (2.2,), (50.3,)),
    public=True,
)
sinc_ratio = Op(
    name="sinc_ratio",
    signature="f->f",
    reference=reference.sinc_ratio,
    cost=40,
    meaning="(sinc(x) - cos(pi*x))/(pi*x)**2, 1/3 at 0: of the derivative of sinc",
    partials=lambda y, x: (_ratio_slope(y, x),),
    exact=_exact_ratio,
    transcendental=True,
    edges="NaN at ±inf; near its zeros only the absolute error is small",
    points=((0.0,), (0.3,), (-0.5,), (0.5,), (-1.3,), (2.2,), (50.3,)),
)
