"""The complete elliptic integrals, of the parameter m, or of p = 1 - m next to m = 1.

K = B + D and E = B + p D, where B and D are the integrals of cos(t)**2 and sin(t)**2, each over
sqrt(cos(t)**2 + p sin(t)**2), t from 0 to pi/2. Their derivatives are differences of B and D over
1 - p. About p = 1 these cancel, but not what they are after a step of Landen's: with k = sqrt(p)
and the integrals e of the cosines and o of the sines, both series in the square of
(1 - sqrt(k))/(1 + sqrt(k)), B and D are 2 e -+ (1 - k)/(1 + k) (e + o), over (1 + sqrt(k))**2.
"""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import sqrt
from symgrad.expr.ops.comparison import where
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

def about_one(count: int) -> tuple[float, ...]:
    """Coefficients of e and o in turns, from the series of K and E in s (Gauss; Ivory)."""
    squares = [(math.comb(2 * k, k) / 4.0**k) ** 2 for k in range(count // 2 + 1)]
    odd = [
        squares[k] * (1.0 - 1.0 / (2 * k - 1) ** 2) + squares[k - 1] for k in range(1, len(squares))
    ]
    return tuple(c for k, o in enumerate(odd) for c in (2.0 * squares[k], o))


_G: Final = tuple(0.25 * math.pi * c for c in about_one(24))


def _slope(p: Any, of_sines: bool, difference: Any) -> Any:
    """The derivative of B or D by p: a difference over 2 (1 - p), or for p about 1 the series."""
    near = (p > 1.0 / 34.0) & (p < 34.0)
    inside = where(near, p, 1.0)
    k = sqrt(inside)
    root = sqrt(k)
    ratio = (1.0 - root) / (1.0 + root)
    s, even, odd = ratio * ratio, 0.0, 0.0
    for a, b in zip(_G[-2::-2], _G[::-2], strict=True):
        even, odd = even * (s * s) + a, odd * (s * s) + b
    odd = odd * s
    both, square, landen = even + odd, (1.0 + inside) + 2.0 * k, (1.0 + k) + 2.0 * root
    if of_sines:
        value = 0.5 * ((even - odd) + (2.0 * k / square) * both) / (inside * landen)
    else:
        value = both / (square * landen)
    return where(near, -value, difference / (2.0 * (1.0 - where(near, 0.0, p))))


def _d_slope(y: Any, p: Any) -> Any:
    """(D - B/p)/(2 (1 - p)), where D is infinite too -inf."""
    return _slope(p, True, where(p > 0.0, y, 0.0) - elliptic_b(p) / p)



ellipkm1 = Op(
    name="ellipkm1", signature="f->f", cost=110, scipy=True,
    meaning="K(1 - p), the complete elliptic integral of the first kind, next to its pole at p = 0",
    partials=lambda y, p: (-0.5 * elliptic_b(p) / p,), exact=lambda p: _mp.ellipk(1 - p),
    sympy=lambda p: _sp.elliptic_k(1 - p), latex=r"K\left(1 - {0}\right)", transcendental=True,
    domain="p >= 0", edges="inf at 0, 0 at inf, else NaN", interval=interval.at_least(0.0),
    points=((0.75,), (1.001,), (0.01,), (3.0,), (1e6,)), example=1.68575035481, public=True,
)
ellipk = Op(
    name="ellipk", signature="f->f", cost=110,
    meaning="K(m), the complete elliptic integral of the first kind, of the parameter m = k**2",
    compose=lambda m: ellipkm1(1.0 - m), scipy=True, latex=r"K\left({0}\right)",
    domain="m <= 1", edges="inf at 1, 0 at -inf, else NaN", transcendental=True,
    points=((0.25,), (1e-5,), (0.75,), (0.9990234375,), (-3.0,), (-1e4,)),
    example=1.68575035481, public=True,
)
ellipe = Op(
    name="ellipe", signature="f->f", cost=110, scipy=True,
    meaning="E(m), the complete elliptic integral of the second kind, of the parameter m = k**2",
    partials=lambda y, m: (-0.5 * elliptic_d(1.0 - m),), exact=lambda m: _mp.ellipe(m),
    sympy=lambda m: _sp.elliptic_e(m), latex=r"E\left({0}\right)", transcendental=True,
    domain="m <= 1", edges="1 at 1, inf at -inf, else NaN", interval=interval.at_least(0.0),
    points=((0.25,), (1e-5,), (0.75,), (0.9990234375,), (-3.0,), (-1e4,)),
    example=1.46746220934, public=True,
)
elliptic_b = Op(
    name="elliptic_b", signature="f->f", cost=110,
    meaning="B(1 - p) of the parameter m = 1 - p, (E - p K)/m: of the derivative of K",
    partials=lambda y, p: (_slope(p, False, y - elliptic_d(p)),), transcendental=True,
    exact=lambda p: _mp.pi / 4 * _mp.hyp2f1(0.5, 0.5, 2, 1 - p), latex=r"B\left(1 - {0}\right)",
    domain="p >= 0", edges="1 at 0, 0 at inf", interval=interval.at_least(0.0),
    points=((0.75,), (1.0,), (0.01,), (1e-9,), (1.5,), (3.0,), (1e6,)),
)
elliptic_d = Op(
    name="elliptic_d", signature="f->f", cost=110,
    meaning="D(1 - p) of the parameter m = 1 - p, (K - E)/m: of the derivative of E",
    partials=lambda y, p: (_d_slope(y, p),), transcendental=True,
    exact=lambda p: _mp.pi / 4 * _mp.hyp2f1(0.5, 1.5, 2, 1 - p), latex=r"D\left(1 - {0}\right)",
    domain="p >= 0", edges="inf at 0, 0 at inf", interval=interval.at_least(0.0),
    points=((0.75,), (1.0,), (0.01,), (1e-9,), (1.5,), (3.0,), (1e6,)),
)
