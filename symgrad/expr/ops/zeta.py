"""Riemann's and Hurwitz's zeta functions, of rows of the table."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.ops.arithmetic import sqrt
from symgrad.expr.ops.beta import LARGE as _LARGE
from symgrad.expr.ops.beta import stirling
from symgrad.expr.ops.comparison import where
from symgrad.expr.ops.exponential import exp
from symgrad.expr.ops.factorial import gamma
from symgrad.expr.ops.gamma import EVEN as _EVEN
from symgrad.expr.ops.powers import pow
from symgrad.expr.ops.rounding import floor, round
from symgrad.expr.ops.trigonometric import sin

_TERMS: Final = 9
"""How many terms of Hurwitz's zeta function are added up one by one."""


def hurwitz_zeta(s: Any, q: Any) -> Any:
    """The sum of (q + k)**-s over k >= 0, s > 1, q >= 0: nine terms and Euler-Maclaurin's.

    All is positive. Derivatives by s and by q are those of these terms.
    """
    y = q + float(_TERMS)
    u = 1.0 / y
    square, rest = u * u, 0.0
    for j in range(len(_EVEN), 1, -1):
        rest = (s + float(2 * j - 3)) * (s + float(2 * j - 2)) * square * (_EVEN[j - 1] + rest)
    last = pow(y, -s)
    total = where(last > 0.0, last * (0.5 + s * u * (_EVEN[0] + rest)), 0.0)
    total = pow(y, 1.0 - s) / (s - 1.0) + total
    for k in range(_TERMS - 1, -1, -1):
        total = total + pow(q + float(k), -s)
    return where((s >= 1.0) & (q >= 0.0), total, float("nan"))


_LAURENT: Final = (
    0.5772156649015329, 0.07281584548367672, -0.00484518159643616, -0.00034230573671722431,
    9.689041939447084e-05, -6.611031810842189e-06, -3.3162409087527724e-07, 1.0462094584479187e-07,
    -8.733218100273797e-09, 9.478277778276236e-11, 5.658421927608708e-11, -6.768689863513697e-12,
    3.492115936672032e-13, 4.410424741757753e-15, -2.399786221770999e-15, 2.167731220072683e-16,
    -9.544466076366965e-18, -7.387676660538636e-20, 4.800850782488065e-20,
)  # fmt: skip
"""zeta(s) - 1/(s - 1) in s - 1: Stieltjes' constants (-1)**n gamma_n/n! (DLMF 25.2.4)."""

_LEFT: Final = -0.5
"""Below, it is that of 1 - s, by the functional equation."""


def riemann_zeta(s: Any) -> Any:
    """The sum of k**-s over k >= 1, continued: for -1/2 <= s < 1 Laurent's series about 1.

    Below, it is 2 (2 pi)**(s - 1) sin(pi s/2) gamma(1 - s) zeta(1 - s) (DLMF 25.4.1).
    """
    left, near = s < _LEFT, (s >= _LEFT) & (s < 1.0)
    t = where(left, 1.0 - s, 2.0)
    apart, series = where(near, s, 0.5) - 1.0, 0.0
    for c in reversed(_LAURENT):
        series = series * apart + c
    far = t >= _LARGE
    large, small = where(far, t, _LARGE), where(far, 2.0, t)
    power = pow(large * (1.0 / (2.0 * math.pi * math.e)), large) * exp(stirling(large))
    factor = where(
        far, power * sqrt(2.0 * math.pi / large), gamma(small) * pow(2.0 * math.pi, -small)
    )
    half = 0.5 * where(left, s, -1.0)
    whole = round(half)
    sine = sin(math.pi * (half - whole)) * where(whole == 2.0 * floor(0.5 * whole), 2.0, -2.0)
    above = hurwitz_zeta(where(left, t, where(near, 2.0, s)), 1.0)
    return where(near, 1.0 / apart + series, where(left, sine * factor * above, above))
