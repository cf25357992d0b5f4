"""The regularized incomplete gamma and beta functions and their densities."""

from __future__ import annotations

from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.comparison import where
from symgrad.expr.ops.exponential import log, log1p
from symgrad.expr.ops.gamma import digamma, trigamma
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

_BETA_POINTS: Final = (
    (0.5, 0.5, 0.0625), (1.0, 1.0, 0.5), (2.5, 1.5, 0.75), (3.0, 7.0, 0.125),
    (0.25, 0.125, 0.984375), (20.0, 30.0, 0.375), (100.0, 2.0, 0.9375), (300.0, 250.0, 0.5),
)
"""Parameters and a point."""

_SLOPE_POINTS: Final = (
    (1.0, 1.0, 0.5), (2.5, 1.5, 0.75), (3.0, 2.0, 0.125), (0.5, 0.5, 0.0625),
    (0.25, 0.125, 0.875),
)
"""Some at which the density's derivatives by its parameters pass through no root."""


def _density_slope(y: Any, a: Any, x: Any) -> Any:
    """The density's derivative by x, with its limits at x = 0 for a = 1 and a >= 2."""
    inside = x > 0.0
    at = where(inside, x, 1.0)
    first = where(a > 2.0, 0.0, where((a > 1.0) & (a < 2.0), float("inf"), 2.0 * a - 3.0))
    first = where((a > 0.0) & (a < 1.0), float("-inf"), first)
    return where(inside, y * (((a - 1.0) - x) / at), where(x == 0.0, first, float("nan")))


def _log_over_shape(a: Any, x: Any) -> Any:
    """log x - digamma(a), of the density's derivative by a; 0 at x = 0, where that is 0 mostly.

    For large a it is log(x/a), by x - a next to x = a, and log a - digamma(a), by its asymptotic
    series (DLMF 5.11.2), as two large numbers would cancel.
    """
    inside, large = x > 0.0, a >= 16.0
    size = where(large, a, 16.0)
    positive, apart = where(inside, x, 1.0), (x - size) / size
    near = abs(apart) < 0.5
    ratio = where(near, log1p(where(near, apart, 0.0)), log(where(near, 1.0, positive / size)))
    return where(inside, where(large, ratio + _lacking(size), log(positive) - digamma(a)), 0.0)


def _bend_over_shape(a: Any, x: Any) -> Any:
    """The second derivative of the density by a, over it."""
    log = _log_over_shape(a, x)
    return where(x > 0.0, log * log - trigamma(a), 0.0)


def _exact_slope(a: Any, x: Any) -> Any:
    """gamma(a) gamma(a, x) by a is log x times it, less x**a/a**2 times a series."""
    a, x = _mp.mpf(a), _mp.mpf(x)
    series = x**a / (a * a) * _mp.hyp2f2(a, a, a + 1, a + 1, -x) / _mp.gamma(a)
    return (_mp.log(x) - _mp.psi(0, a)) * _mp.gammainc(a, 0, x, regularized=True) - series


def _exact_bend(a: Any, x: Any) -> Any:
    """The second derivative of P(a, x) by a, by digits that differences do not lose."""
    with _mp.workdps(3 * _mp.mp.dps):
        return _mp.diff(lambda s: _mp.gammainc(s, 0, x, regularized=True), a, 2)


def _exact_beta_slope(a: Any, b: Any, x: Any, which: int) -> Any:
    """The derivative of I_x(a, b) by one parameter, likewise."""
    with _mp.workdps(3 * _mp.mp.dps):
        by = (1, 0) if which == 0 else (0, 1)
        return _mp.diff(lambda p, q: _mp.betainc(p, q, 0, x, regularized=True), (a, b), by)


def _log_over_beta(a: Any, b: Any, x: Any, rest: Any) -> Any:
    """log x - digamma(a) + digamma(a + b), of the density's derivative by a; 0 at x = 0.

    ``rest`` is 1 - x. For large a it is log(x (a + b)/a), by a (1 - x) - b x next to 0, and what
    digamma lacks of a logarithm, by its asymptotic series (DLMF 5.11.2).
    """
    inside, large = x > 0.0, a >= 16.0
    size = where(large, a, 16.0)
    positive, apart = where(inside, x, 1.0), (b * x - size * rest) / size
    near = abs(apart) < 0.5
    ratio = where(
        near, log1p(where(near, apart, 0.0)), log(where(near, 1.0, positive * (1.0 + b / size)))
    )
    far = ratio + (_lacking(size) - _lacking(size + b))
    close = log(positive) + (digamma(a + b) - digamma(a))
    return where(inside, where(large, far, close), 0.0)


def _lacking(a: Any) -> Any:
    """log a - digamma(a) of a large a."""
    r = 1.0 / a
    s, series = r * r, 691 / 32760
    for k in (132, 240, 252, 120, 12):
        series = 1 / k - s * series
    return r * (0.5 + r * series)


def _beta_density_slope(y: Any, a: Any, b: Any, x: Any) -> Any:
    """That density's derivative by x, with its limits at x = 0 and x = 1."""
    inside = (x > 0.0) & (x < 1.0)
    at = where(inside, x, 0.5)
    slope = y * (((a - 1.0) * (1.0 - at) - (b - 1.0) * at) / (at * (1.0 - at)))
    first, last = _end_slope(a, b), -_end_slope(b, a)
    return where(inside, slope, where(x == 0.0, first, where(x == 1.0, last, float("nan"))))


def _end_slope(a: Any, b: Any) -> Any:
    """The slope of the density of a, b > 0 at x = 0."""
    steep = where(a > 1.0, float("inf"), where(a < 1.0, float("-inf"), b * (1.0 - b)))
    value = where(a > 2.0, 0.0, where(a == 2.0, b * (1.0 + b), steep))
    return where((a > 0.0) & (b > 0.0), value, float("nan"))


gammainc = Op(
    name="gammainc", signature="ff->f", cost=700,
    meaning="the regularized lower incomplete gamma function, P(a, x): the gamma distribution's "
    "distribution function",
    partials=lambda y, a, x: (gammainc_slope(a, x), gamma_density(a, x)),
    exact=lambda a, x: _mp.gammainc(a, 0, x, regularized=True), transcendental=True, scipy=True,
    sympy=lambda a, x: _sp.lowergamma(a, x) * _sp.exp(-_sp.loggamma(a)),
    latex=r"P\left({0}, {1}\right)", domain="a > 0, x >= 0, or a = 0, x > 0",
    edges="0 at x = 0 and for infinite a, 1 at x = inf and for a = 0, else NaN; there is no "
    "third derivative by a; where a is above 2**60 (float64: 2**120), 0, 1/2 or 1",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 7.0), (20.0, 19.0), (100.0, 80.0)),
    example=0.520499877813, public=True,
)
gammaincc = Op(
    name="gammaincc", signature="ff->f", cost=750,
    meaning="the regularized upper incomplete gamma function, Q(a, x) = 1 - P(a, x), accurate "
    "where it is small",
    partials=lambda y, a, x: (-gammainc_slope(a, x), -gamma_density(a, x)),
    exact=lambda a, x: _mp.gammainc(a, x, regularized=True), transcendental=True, scipy=True,
    sympy=lambda a, x: _sp.uppergamma(a, x) * _sp.exp(-_sp.loggamma(a)),
    latex=r"Q\left({0}, {1}\right)", domain="a > 0, x >= 0, or a = 0, x > 0",
    edges="1 at x = 0 and for infinite a, 0 at x = inf and for a = 0, else NaN; there is no "
    "third derivative by a; where a is above 2**60 (float64: 2**120), 0, 1/2 or 1",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 7.0), (20.0, 19.0), (100.0, 130.0)),
    example=0.479500122187, public=True,
)
gamma_density = Op(
    name="gamma_density", signature="ff->f", cost=150,
    meaning="x**(a - 1)*exp(-x)/gamma(a), the gamma distribution's density: the derivative of "
    "gammainc by x",
    partials=lambda y, a, x: (y * _log_over_shape(a, x), _density_slope(y, a, x)),
    exact=lambda a, x: _mp.exp((a - 1) * _mp.log(x) - x - _mp.loggamma(a)), transcendental=True,
    sympy=lambda a, x: x ** (a - 1) * _sp.exp(-x - _sp.loggamma(a)),
    domain="a > 0, x >= 0", edges="at x = 0 inf, 1 or 0 for a < 1, a = 1 and "
    "a > 1",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 9.0), (20.0, 9.0)),
)
gammainc_slope = Op(
    name="gammainc_slope", signature="ff->f", cost=900,
    meaning="the derivative of gammainc(a, x) by a", transcendental=True,
    partials=lambda y, a, x: (
        gammainc_bend(a, x), gamma_density(a, x) * _log_over_shape(a, x)
    ),
    exact=lambda a, x: _exact_slope(a, x), latex=r"\partial_a P\left({0}, {1}\right)",
    domain="a > 0, x >= 0", edges="0 at x = 0 and x = inf; there is no second derivative by a",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 7.0), (20.0, 12.0)),
)
gammainc_bend = Op(
    name="gammainc_bend", signature="ff->f", cost=1000,
    meaning="the second derivative of gammainc(a, x) by a", parameters=1, transcendental=True,
    partials=lambda y, a, x: (None, gamma_density(a, x) * _bend_over_shape(a, x)),
    exact=lambda a, x: _exact_bend(a, x), latex=r"\partial_a^2 P\left({0}, {1}\right)",
    domain="a > 0, x >= 0", edges="0 at x = 0 and x = inf, and where a is above 2**60 (float64: "
    "2**120); there is no derivative by a",
    points=((0.5, 0.25), (1.0, 1.0), (2.5, 1.5), (3.0, 7.0), (20.0, 12.0)),
)
betainc = Op(
    name="betainc", signature="fff->f", cost=2200,
    meaning="the regularized incomplete beta function, I_x(a, b): the beta distribution's "
    "distribution function",
    partials=lambda y, a, b, x: (
        betainc_slope_a(a, b, x), betainc_slope_b(a, b, x), beta_density(a, b, x)
    ),
    exact=lambda a, b, x: _mp.betainc(a, b, 0, x, regularized=True), transcendental=True,
    scipy=True, sympy=lambda a, b, x: _sp.betainc_regularized(a, b, 0, x),
    latex=r"I_{{{2}}}\left({0}, {1}\right)",
    domain="a > 0, b > 0, 0 <= x <= 1; also one of a, b 0 or infinite",
    edges="0 at x = 0, for b = 0 and for infinite a, 1 at x = 1, for a = 0 and for infinite b, "
    "else NaN; there is no second derivative by a or b; NaN for finite a or b above 2**60",
    points=_BETA_POINTS,
    example=0.16086124651, public=True,
)
betaincc = Op(
    name="betaincc", signature="fff->f", cost=2200,
    meaning="1 - I_x(a, b), accurate where it is small",
    partials=lambda y, a, b, x: (
        -betainc_slope_a(a, b, x), -betainc_slope_b(a, b, x), -beta_density(a, b, x)
    ),
    exact=lambda a, b, x: _mp.betainc(a, b, x, 1, regularized=True), transcendental=True,
    scipy=True, sympy=lambda a, b, x: _sp.betainc_regularized(a, b, x, 1),
    latex=r"I_{{1 - {2}}}\left({1}, {0}\right)",
    domain="a > 0, b > 0, 0 <= x <= 1; also one of a, b 0 or infinite",
    edges="1 less those of betainc; there is no second derivative by a or b; NaN for finite a or b "
    "above 2**60",
    points=_BETA_POINTS,
    example=0.83913875349, public=True,
)
beta_density = Op(
    name="beta_density", signature="fff->f", cost=1000,
    meaning="x**(a - 1)*(1 - x)**(b - 1)/B(a, b), the beta distribution's density: the derivative "
    "of betainc by x",
    partials=lambda y, a, b, x: (
        y * _log_over_beta(a, b, x, 1.0 - x), y * _log_over_beta(b, a, 1.0 - x, x),
        _beta_density_slope(y, a, b, x),
    ),
    exact=lambda a, b, x: _mp.exp(
        (a - 1) * _mp.log(x) + (b - 1) * _mp.log1p(-x)
        + _mp.loggamma(a + b) - _mp.loggamma(a) - _mp.loggamma(b)
    ), transcendental=True,
    sympy=lambda a, b, x: x ** (a - 1) * (1 - x) ** (b - 1)
    * _sp.exp(_sp.loggamma(a + b) - _sp.loggamma(a) - _sp.loggamma(b)),
    domain="a > 0, b > 0, 0 <= x <= 1", edges="at x = 0 inf, b or 0 for a < 1, a = 1 and a > 1, at "
    "x = 1 inf, a or 0 for b < 1, b = 1 and b > 1, else NaN; NaN for a or b above 2**60",
    points=_BETA_POINTS[:-3],
)
betainc_slope_a = Op(
    name="betainc_slope_a", signature="fff->f",
    cost=3000, meaning="the derivative of betainc(a, b, x) by a", parameters=2,
    partials=lambda y, a, b, x: (
        None, None, beta_density(a, b, x) * _log_over_beta(a, b, x, 1.0 - x)
    ),
    exact=lambda a, b, x: _exact_beta_slope(a, b, x, 0), transcendental=True,
    latex=r"\partial_a I_{{{2}}}\left({0}, {1}\right)", domain="a > 0, b > 0, 0 <= x <= 1",
    edges="0 at x = 0 and x = 1; there is no derivative by a or b; NaN for a or b above 2**60",
    points=_SLOPE_POINTS,
)
betainc_slope_b = Op(
    name="betainc_slope_b", signature="fff->f",
    cost=3000, meaning="the derivative of betainc(a, b, x) by b", parameters=2,
    partials=lambda y, a, b, x: (
        None, None, beta_density(a, b, x) * _log_over_beta(b, a, 1.0 - x, x)
    ),
    exact=lambda a, b, x: _exact_beta_slope(a, b, x, 1), transcendental=True,
    latex=r"\partial_b I_{{{2}}}\left({0}, {1}\right)", domain="a > 0, b > 0, 0 <= x <= 1",
    edges="0 at x = 0 and x = 1; there is no derivative by a or b; NaN for a or b above 2**60",
    points=_SLOPE_POINTS,
)
