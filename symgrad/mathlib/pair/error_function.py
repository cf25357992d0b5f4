"""The error function, the normal distribution, and activations, of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.mathlib.double.error_function import (
    ERF,
    ERFC,
    GELU_ROOT,
    GELU_SLOPE,
    NORMAL,
    NORMAL_TAIL,
)
from symgrad.mathlib.double.logistic import SILU_ROOT, SILU_SLOPE
from symgrad.mathlib.pair.exponential import FAR, choose, polynomial, with_sign
from symgrad.mathlib.pair.expression import Paired, call, constant, less

DENSITY: Final = 1.0 / math.sqrt(2.0 * math.pi)
GONE: Final = 30.0
"""From here on the tails are 0."""


def _tail(a: Paired, middle: float, first: float, coefficients: Sequence[float]) -> Paired:
    """W(t)/(1 + 2a), t = (a - middle)/(a + middle): a tail without its exponential."""
    t = (a - middle) / (a + middle)
    return polynomial(t, (first + coefficients[0], *coefficients[1:]), 17) / (1.0 + 2.0 * a)


def _size(x: Paired) -> Paired:
    """|x|, at most 30; NaN stays NaN."""
    a = call(ops.abs, x)
    least = choose(a.high > GONE, constant(x, GONE), a)
    return choose(ops.isnan(a.high), a, least)  # drivers make minima of selections


def _error_tail(a: Paired) -> Paired:
    """erfc(a), 1/2 <= a <= 30."""
    return call(ops.exp_neg_square, a) * _tail(a, 3.0, 1.25, ERFC)


def _near(x: Paired) -> Paired:
    """erf(x) for |x| <= 1/2."""
    return x * polynomial(x * x, (1.0 + ERF[0], *ERF[1:]), 6)


def erf(x: Paired) -> Paired:
    """A polynomial for |x| < 1/2; 1 - erfc(|x|) with the sign of x beyond."""
    a = _size(x)
    return choose(a.high < 0.5, _near(x), with_sign(1.0 - _error_tail(a), x))


def erfc(x: Paired) -> Paired:
    """1 - erf(x) for |x| < 1/2; beyond, exp(-a**2) W(a), a = |x|, and 2 minus that for x < 0."""
    a = _size(x)
    tail = _error_tail(a)
    far = choose(x.high < 0.0, 2.0 - tail, tail)
    return choose(a.high < 0.5, 1.0 - _near(x), far)


def normal_cdf(x: Paired) -> Paired:
    """The tail exp(-a**2/2) W(a), a = |x|, or 1 less it; a polynomial for a < 7/8."""
    a = _size(x)
    tail = call(ops.bell, a) * _tail(a, 4.0, 0.8125, NORMAL_TAIL)
    far = choose(x.high < 0.0, tail, 1.0 - tail)
    middle = 0.5 + x * polynomial(x * x, (0.375 + NORMAL[0], *NORMAL[1:]), 8)
    return choose(a.high < 0.875, middle, far)


def near_root(
    slope: Paired, x: Paired, root: Sequence[float], coefficients: Sequence[float]
) -> Paired:
    """The slope, but d (a + d P(d)) within 1/8 of its root, d the distance."""
    d = x - root[0] - (less(root[0]) + root[1])
    near = d * polynomial(d, (root[2] + root[3], *coefficients), 5)
    return choose(ops.abs(d.high) < 0.125, near, slope)


def gelu_slope(x: Paired) -> Paired:
    """Phi(x) + x phi(x), phi the normal density."""
    near = with_sign(_size(x), x)
    slope = call(ops.normal_cdf, x) + near * (call(ops.bell, near) * DENSITY)
    return near_root(slope, x, GELU_ROOT, GELU_SLOPE)


def _share(x: Paired) -> tuple[Paired, Paired]:
    """e = exp(-|x|) and 1/(1 + e)."""
    e = call(ops.exp, -call(ops.abs, x))
    return e, 1.0 / (1.0 + e)


def silu(x: Paired) -> Paired:
    """x r for x >= 0, else x r e, r = 1/(1 + e), e = exp(-|x|); 0 at -inf."""
    e, r = _share(x)
    near = choose(x.high < -FAR, constant(x, -FAR), x)
    return near * choose(x.high >= 0.0, r, e * r)


def silu_slope(x: Paired) -> Paired:
    """r (1 + e x r) for x >= 0, else r e (1 + x r), r = 1/(1 + e), e = exp(-|x|)."""
    e, r = _share(x)
    near = choose(ops.abs(x.high) > FAR, with_sign(constant(x, FAR), x), x) * r
    slope = r * choose(x.high >= 0.0, 1.0 + near * e, (1.0 + near) * e)
    return near_root(slope, x, SILU_ROOT, SILU_SLOPE)
