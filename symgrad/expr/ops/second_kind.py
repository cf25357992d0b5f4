"""Modified Bessel functions of the second kind of any constant order, of rows of the table."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.ops.arithmetic import sqrt
from symgrad.expr.ops.bessel import k0e, k1e
from symgrad.expr.ops.comparison import isnan, where
from symgrad.expr.ops.exponential import exp, log
from symgrad.expr.ops.hyperbolic import asinh, cosh, sinh
from symgrad.expr.ops.powers import pow

_RECIPROCAL_GAMMA: Final = (
    1.0, 0.5772156649015329, -0.6558780715202539, -0.04200263503409524, 0.16653861138229148,
    -0.04219773455554433, -0.009621971527876973, 0.0072189432466631, -0.0011651675918590652,
    -0.00021524167411495098, 0.0001280502823881162, -2.013485478078824e-05, -1.2504934821426706e-06,
    1.1330272319816959e-06, -2.056338416977607e-07, 6.116095104481416e-09, 5.0020076444692229e-09,
    -1.1812745704870201e-09, 1.0434267116911005e-10,
)  # fmt: skip
"""1/Gamma(1 + f) in f (DLMF 5.7.1)."""

_TERMS: Final = 11
"""Of Temme's series, whose next is below 2**-55 at 1."""

_STEP, _NODES = 0.21875, 28
"""The trapezoidal rule's: it errs by exp(-2 pi sqrt(2)/step) at 1."""


def _series(f: float, x: Any) -> tuple[Any, Any]:
    """K of the orders f and f + 1, 0 < |f| <= 1/2, x <= 1 (Temme, 1975, J. Comp. Physics 19)."""
    even, odd = (
        sum(c * f ** (k - k % 2) for k, c in enumerate(_RECIPROCAL_GAMMA) if k % 2 == parity)
        for parity in (0, 1)
    )
    log_of = math.log(2.0) - log(x)
    growth = pow(2.0 / x, f)
    shrink = 1.0 / growth
    steep = abs(f) * log_of > 1.0
    sine = where(steep, 0.5 * (growth - shrink), sinh(f * where(steep, 0.0, log_of)))
    scale = math.pi * f / math.sin(math.pi * f)
    u = scale * (sine * (even / f) - 0.5 * (growth + shrink) * odd)
    p, q = 0.5 * math.gamma(1.0 + f) * growth, 0.5 * math.gamma(1.0 - f) * shrink
    square, power = 0.25 * (x * x), 1.0
    first, second = u, p
    for k in range(1, _TERMS):
        u = (float(k) * u + p + q) * (1.0 / (k * k - f * f))
        p, q = p * (1.0 / (k - f)), q * (1.0 / (k + f))
        power = power * square * (1.0 / k)
        first, second = first + power * u, second + power * (p - float(k) * u)
    return first, second * 2.0 / x


def _integrals(f: float, x: Any) -> tuple[Any, Any]:
    """exp(x) K of the orders f and f + 1, x >= 1: integrals of exp(-2 x sinh(t/2)**2) cosh(f t).

    With u = sqrt(2 x) sinh(t/2) they are those of exp(-u**2) times what has poles at ±i sqrt(2 x).
    """
    inverse, first, second = 1.0 / sqrt(2.0 * x), 0.0, 0.0
    for k in reversed(range(_NODES)):
        u = k * _STEP
        weight = 2.0 * _STEP * math.exp(-u * u) * (1.0 if k else 0.5)
        share = weight / sqrt(2.0 * x + u * u)
        t = 2.0 * asinh(u * inverse)
        first, second = first + share * cosh(f * t), second + share * cosh((f + 1.0) * t)
    return first, second


def scaled_bessel_k(order: float, x: Any) -> Any:
    """exp(x) K of a constant order >= 0, by the recurrence from orders about 0: all positive."""
    whole = math.floor(order + 0.5)
    f = order - whole
    if f == 0.0:
        value, after = k0e(x), k1e(x)
    else:
        inside = (x > 0.0) & (x < 1.0)
        near, far = where(inside, x, 0.5), where(x < 1.0, 1.0, x)
        growth = exp(near)
        pairs = zip(_series(f, near), _integrals(f, far), strict=True)
        value, after = (where(inside, growth * a, b) for a, b in pairs)
        value, after = (
            where(x > 0.0, v, where(isnan(x) | (x < 0.0), math.nan, math.inf))
            for v in (value, after)
        )
    for k in range(whole):
        value, after = after, value + (2.0 * (f + (k + 1))) * after / x
    return value
