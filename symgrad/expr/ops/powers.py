"""Powers, the cube root and the hypotenuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.expr import reference
from symgrad.expr.node import Op
from symgrad.expr.ops.arithmetic import abs, copysign, opaque, reciprocal, sign, sqrt
from symgrad.expr.ops.comparison import isfinite, isinf, isnan, where
from symgrad.expr.ops.exponential import log

integer_pow = Op(
    name="integer_pow", signature="fi->f", reference=reference.integer_power, cost=3,
    meaning="x**k for a constant integer k, a chain of multiplications",
    vjp=lambda g, y, x, k: ((k.number * g) * x ** (k.number - 1), None), latex="{0}^{{{1}}}",
    edges="x**0 is 1; x**-k is 1/x**k", points=((1.5, 3), (-1.25, 4), (-0.5, -3), (0.0, 2)),
)  # fmt: skip


def _shifts(base: float) -> bool:
    """Whether the logarithm, as a factor, moves a float32 over an end of the range."""
    size = math.fabs(math.log(base)) if 0.0 < base < math.inf else 1.0
    return 0.0 < size < 1.0 or size > 64.0


def _pow_partials(y: Any, x: Any, p: Any) -> tuple[Any, Any]:
    """p x**(p - 1) as p y/x, for p - 1 is rounded, and y log(x).

    Where y is tiny or overflows it is h**2, h = |x|**(p/2), and what it is multiplied by goes
    between the two, opaque, for compilers might square h first; where x is 0 or infinite h is
    x**(p - 1). A constant base takes this second power only if log(x) is below 1 or far above.
    """
    ends = (x == 0.0) | isinf(x)
    beyond = ~ends & ((abs(y) < 1e-37) | isinf(y))
    h = pow(where(ends, x, abs(x)), where(ends, p - 1.0, 0.5 * p))
    by_p = y * log(x)
    base = x.graph.value(x.id)
    if base is None or _shifts(base):
        by_p = where(beyond, opaque(h * log(x)) * h, by_p)
    by_p = where(x > 0.0, by_p, where(isnan(y), y, 0.0))
    exponent = p.graph.value(p.id)
    if exponent is not None and float(2.0 * exponent).is_integer():
        return exponent * x ** (exponent - 1.0), by_p  # the exponent less 1 is not rounded
    small = abs(x) < 1.0  # p comes before the division by it, so that neither product overflows
    first, last = where(small, p, 1.0), where(small, 1.0, p)
    inner = opaque(copysign(first * h, first * y) / x * last)
    by_x = where(beyond, inner * h, first * y / x * last)
    return where(p == 0.0, 0.0, where(ends, p * h, by_x)), by_p


pow = Op(
    name="pow", signature="ff->f", reference=np.power, meaning="x**p", cost=30,
    partials=_pow_partials,
    transcendental=True, latex="{0}^{{{1}}}", domain="x >= 0, or p an integer",
    edges="0**0 is 1; a negative x gives NaN unless p is an integer; d/dp is 0 for x <= 0",
    points=((1.5, 2.5), (0.3, -1.7), (-2.0, 3.0), (4.0, 0.5)),
)  # fmt: skip
cbrt = Op(
    name="cbrt", signature="f->f", reference=np.cbrt, meaning="the real cube root", cost=20,
    partials=lambda y, x: (reciprocal(3.0 * (y * y)),), latex=r"\sqrt[3]{{{0}}}",
    edges="the derivative at 0 is inf", scipy=True, points=((2.0,), (-0.3,)),
)  # fmt: skip


def share(a: Any, whole: Any) -> Any:
    """a/whole, |a| <= whole; 0/0 is 0 and inf/inf is 1."""
    return where(abs(a) == whole, sign(a), a / whole)


def _hypot_partials(y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """a/y and b/y; (a/2)/(y/2) where y overflows, y/2 = m/2 sqrt(1 + (n/m)**2) for |n| <= m."""
    u, v = abs(a), abs(b)
    m, n = where(u > v, u, v), where(u > v, v, u)
    over = isinf(y) & isfinite(m)
    scale = where(over, 0.5, 1.0)
    ratio = n / m
    whole = where(over, (0.5 * m) * sqrt(1.0 + ratio * ratio), y)
    return share(a * scale, whole), share(b * scale, whole)


hypot = Op(
    name="hypot", signature="ff->f", reference=np.hypot, cost=14, commutative=True,
    meaning="sqrt(a**2 + b**2) without overflow", partials=_hypot_partials,
    edges="the derivative at (0, 0) is (0, 0), that by an infinite argument ±1",
    points=((3.0, 4.0), (-0.5, 0.1)),
)  # fmt: skip
