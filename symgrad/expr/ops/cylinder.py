"""The Bessel functions of the first kind J_0 and J_1, also known as cylinder functions."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import abs
from symgrad.expr.ops.comparison import where
from symgrad.expr.references import special_reference as reference
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

_RATIO_SLOPE: Final = tuple(
    (-1) ** k * k * 4.0**-k / (math.factorial(k) * math.factorial(k + 1)) for k in range(1, 18)
)
"""The derivative of j1_ratio over x, a power series in x**2, for |x| < 3."""


def _ratio_slope(y: Any, x: Any) -> Any:
    """-J_2(x)/x by J_2 = 2 J_1/x - J_0; near 0 the series, which has all its derivatives right."""
    square, series = x * x, 0.0
    for c in reversed(_RATIO_SLOPE):
        series = series * square + c
    near = abs(x) < 3.0
    return where(near, x * series, (j0(x) - 2.0 * y) / where(near, 1.0, x))


_AMPLITUDE: Final = "beyond its second zero errors are small beside sqrt(2/(pi x)), the amplitude"

j0 = Op(
    name="j0", signature="f->f", reference=reference.j0, cost=80, transcendental=True,
    meaning="J_0(x), a Bessel function of the first kind", partials=lambda y, x: (-j1(x),),
    exact=lambda x: _mp.besselj(0, x), sympy=lambda x: _sp.besselj(0, x), scipy=True,
    latex=r"J_0\left({0}\right)", edges=f"0 at ±inf; {_AMPLITUDE}",
    points=((0.0,), (1e-5,), (0.5,), (-1.0,), (1.7,), (3.0,), (-4.6,), (7.0,), (9.7,), (-123.4,)),
    public=True,
)
j1 = Op(
    name="j1", signature="f->f", reference=reference.j1, cost=80, transcendental=True,
    meaning="J_1(x), a Bessel function of the first kind",
    partials=lambda y, x: (j0(x) - j1_ratio(x),),
    exact=lambda x: _mp.besselj(1, x), sympy=lambda x: _sp.besselj(1, x), scipy=True,
    latex=r"J_1\left({0}\right)", edges=f"±0.0 at ±inf; {_AMPLITUDE}",
    points=((0.0,), (1e-5,), (0.5,), (-1.0,), (1.2,), (3.0,), (-4.6,), (6.1,), (9.3,), (-123.4,)),
    public=True,
)
j1_ratio = Op(
    name="j1_ratio", signature="f->f", reference=reference.j1_ratio, cost=90, transcendental=True,
    meaning="J_1(x)/x, 1/2 at 0: of the derivative of j1",
    partials=lambda y, x: (_ratio_slope(y, x),),
    exact=lambda x: _mp.besselj(1, x) / x if x else _mp.mpf(1) / 2,
    latex=r"\frac{{J_1\left({0}\right)}}{{{0}}}", edges="0 at ±inf; as j1 next to zeros",
    points=((0.0,), (1e-5,), (0.5,), (-1.0,), (1.2,), (3.0,), (-4.6,), (6.1,), (9.3,), (-123.4,)),
)
