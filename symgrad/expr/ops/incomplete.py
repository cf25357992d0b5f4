"""The regularized incomplete gamma functions and their density."""

from __future__ import annotations

from typing import Any

from symgrad.expr import incomplete_reference as reference
from symgrad.expr.lazy import mpmath as _mp
from symgrad.expr.lazy import sympy as _sp
from symgrad.expr.node import Op
from symgrad.expr.ops.comparison import where


def _density_slope(y: Any, a: Any, x: Any) -> Any:
    """The density's derivative by x, with its limits at x = 0 for a = 1 and a >= 2."""
    inside = x > 0.0
    at = where(inside, x, 1.0)
    first = where(a > 2.0, 0.0, where((a > 1.0) & (a < 2.0), float("inf"), 2.0 * a - 3.0))
    first = where((a > 0.0) & (a < 1.0), float("-inf"), first)
    return where(inside, y * (((a - 1.0) - x) / at), where(x == 0.0, first, float("nan")))


gammainc = Op(
    name="gammainc", signature="ff->f", reference=reference.gammainc, cost=700,
    meaning="the regularized lower incomplete gamma function, P(a, x): the gamma distribution's "
    "distribution function", partials=lambda y, a, x: (None, gamma_density(a, x)),
    exact=lambda a, x: _mp.gammainc(a, 0, x, regularized=True), transcendental=True, scipy=True,
    parameters=1,
    sympy=lambda a, x: _sp.lowergamma(a, x) * _sp.exp(-_sp.loggamma(a)),
    latex=r"P\left({0}, {1}\right)", domain="a > 0, x >= 0, or a = 0, x > 0",
    edges="0 at x = 0 and for infinite a, 1 at x = inf and for a = 0, else NaN; there is no "
    "derivative by a; where a is above 2**60 (float64: 2**120), 0, 1/2 or 1",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 7.0), (20.0, 19.0), (100.0, 80.0)),
)  # fmt: skip
gammaincc = Op(
    name="gammaincc", signature="ff->f", reference=reference.gammaincc, cost=750,
    meaning="the regularized upper incomplete gamma function, Q(a, x) = 1 - P(a, x), accurate "
    "where it is small", partials=lambda y, a, x: (None, -gamma_density(a, x)),
    exact=lambda a, x: _mp.gammainc(a, x, regularized=True), transcendental=True, scipy=True,
    parameters=1,
    sympy=lambda a, x: _sp.uppergamma(a, x) * _sp.exp(-_sp.loggamma(a)),
    latex=r"Q\left({0}, {1}\right)", domain="a > 0, x >= 0, or a = 0, x > 0",
    edges="1 at x = 0 and for infinite a, 0 at x = inf and for a = 0, else NaN; there is no "
    "derivative by a; where a is above 2**60 (float64: 2**120), 0, 1/2 or 1",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 7.0), (20.0, 19.0), (100.0, 130.0)),
)  # fmt: skip
gamma_density = Op(
    name="gamma_density", signature="ff->f", reference=reference.gamma_density, cost=150,
    meaning="x**(a - 1)*exp(-x)/gamma(a), the gamma distribution's density: the derivative of "
    "gammainc by x",
    partials=lambda y, a, x: (None, _density_slope(y, a, x)), parameters=1,
    exact=lambda a, x: _mp.exp((a - 1) * _mp.log(x) - x - _mp.loggamma(a)), transcendental=True,
    sympy=lambda a, x: x ** (a - 1) * _sp.exp(-x - _sp.loggamma(a)),
    domain="a > 0, x >= 0", edges="at x = 0 inf, 1 or 0 for a < 1, a = 1 and "
    "a > 1; there is no derivative by a",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 9.0), (20.0, 9.0)),
)  # fmt: skip
