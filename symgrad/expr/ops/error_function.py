"""The error function and the normal distribution, with logarithms, inverses and scaled tails."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr import references
from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import abs
from symgrad.expr.ops.comparison import where
from symgrad.lazy import mpmath as _mp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off


def fading(x: Any, y: Any) -> Any:
    """x as a factor beside y, which falls off faster than x grows: 0 where y is."""
    return where(y == 0.0, 0.0, x)


exp_neg_square = Op(
    name="exp_neg_square", signature="f->f", reference=references.exp_neg_square, cost=14,
    meaning="exp(-x**2), the square exact", partials=lambda y, x: (-2.0 * (fading(x, y) * y),),
    transcendental=True, latex="e^{{-{0}^2}}", points=((0.5,), (-3.0,), (0.0,), (3e38,)),
    interval=interval.within(0.0, 1.0),
)
erf = Op(
    name="erf", signature="f->f", reference=references.erf, meaning="the error function", cost=40,
    partials=lambda y, x: ((2.0 / math.sqrt(math.pi)) * exp_neg_square(x),), transcendental=True,
    latex=r"\mathrm{{erf}}\left({0}\right)", scipy=True,
    points=((0.5,), (-2.0,), (0.0,), (1e-5,), (5.0,), (3e38,), (-3e38,)),
    interval=interval.within(-1.0, 1.0), public=True,
)
erfc = Op(
    name="erfc", signature="f->f", reference=references.erfc, cost=40, transcendental=True,
    meaning="1 - erf(x), accurate in the tail",
    partials=lambda y, x: ((-2.0 / math.sqrt(math.pi)) * exp_neg_square(x),),
    latex=r"\mathrm{{erfc}}\left({0}\right)", scipy=True,
    points=((0.5,), (-2.0,), (4.0,), (0.0,), (1.0001,), (3e38,), (-3e38,)),
    interval=interval.within(0.0, 2.0), public=True,
)
bell = Op(
    name="bell", signature="f->f", reference=references.bell, cost=14,
    meaning="exp(-x**2/2), the square exact", partials=lambda y, x: (-(fading(x, y) * y),),
    transcendental=True, latex="e^{{-{0}^2/2}}", points=((0.5,), (-3.0,), (0.0,), (3e38,)),
    interval=interval.within(0.0, 1.0),
)
normal_cdf = Op(
    name="normal_cdf", signature="f->f", reference=references.normal_cdf, cost=40,
    meaning="the normal distribution function, erfc(-x/sqrt(2))/2", transcendental=True,
    partials=lambda y, x: ((1.0 / math.sqrt(2.0 * math.pi)) * bell(x),),
    latex=r"\Phi\left({0}\right)",
    points=((0.5,), (-2.0,), (0.0,), (1e-5,), (5.0,), (3e38,), (-3e38,)),
    interval=interval.within(0.0, 1.0),
)
ndtr = Op(
    name="ndtr", signature="f->f", reference=references.normal_cdf, cost=40, transcendental=True,
    meaning="the normal distribution function, as SciPy calls it", compose=normal_cdf,
    scipy=True, points=((0.5,), (-2.0,), (0.0,), (1e-5,), (5.0,), (3e38,), (-3e38,)),
    public=True,
)


# The normal distribution's logarithm and quantiles, and the inverse of erf.

BEND: Final = (
    4.114047614906926, 4.5927708091643655, -0.575003247080336, -4.000513028960457,
    -0.7183507210213834, 2.9882691622442175, 1.0272296905663452, -2.106537058413086,
    -0.9182286917840307, 1.4339578328620926, 0.6815331498314108, -0.9448625259146536,
    -0.45263486299717776, 0.5999212405606188, 0.2796711874808045, -0.36554440970978697,
    -0.16615174715480266, 0.2139675691304169, 0.09794769491900962, -0.12132383380047293,
    -0.05854839804833355, 0.06761111779891363, 0.035544408878275494, -0.03755778125658317,
    -0.021562628919229086, 0.020866906643688767, 0.012789768492932492, -0.01142364730808077,
    -0.007271701046991958, 0.005964745768403611, 0.0038776583288476145, -0.0028403569344748816,
    -0.001877958493297273, 0.001169324985150385, 0.0007876949627987434, -0.0003904964035631584,
    -0.00026846818430443386, 9.732114873963477e-05, 6.825636825811171e-05, -1.5860314543595946e-05,
    -1.1323269164725166e-05, 1.2547038193516625e-06, 9.092581680274307e-07,
)
"""(1 - u h)(4 - x)**2 in 6/(4 - x) - 1, x <= 1, and its derivatives (tools/fit.py)."""


def _hazard(x: Any) -> Any:
    """phi(x)/Phi(x)."""
    return _mp.npdf(x) / _mp.ncdf(x)


def _inverse_normal(p: Any) -> Any:
    """The root of log Phi(x) - log p, by Newton's steps; -inf and inf at the ends."""
    if not 0 < p < 1:
        return {0: -_mp.inf, 1: _mp.inf}.get(p, _mp.nan)
    q = min(p, 1 - p)
    x = -_mp.sqrt(-2 * _mp.log(q)) if q < 0.3 else -_mp.sqrt(2 * _mp.pi) * (0.5 - q)
    for _ in range(60):
        step = (_mp.log(_mp.ncdf(x)) - _mp.log(q)) / _hazard(x)
        x = x - step
        if _mp.fabs(step) <= _mp.eps * _mp.fabs(x):
            break
    return x if p < 0.5 else -x


def _bend(x: Any) -> Any:
    """1 - u h for x <= 1, u = mills_excess(x) = h + x: h has poles, but far from these x."""
    r = 1.0 / (4.0 - where(x <= 1.0, x, 0.0))
    t, total = 6.0 * r - 1.0, 0.0
    for c in reversed(BEND):
        total = total * t + c
    return total * (r * r)


def _hazard_slope(y: Any, x: Any) -> Any:
    """-u h; where its derivatives would cancel, the polynomial of 1 - u h."""
    return where(x <= 1.0, _bend(x) - 1.0, -(y * mills_excess(x)))


def _excess_slope(y: Any, x: Any) -> Any:
    """1 - u h, by the polynomial to the left."""
    return where(x <= 1.0, _bend(x), 1.0 - y * inverse_mills(x))


def _inverse_erf(x: Any) -> Any:
    return _mp.erfinv(x) if _mp.fabs(x) < 0.5 else -_inverse_normal((1 - x) / 2) / _mp.sqrt(2)


log_ndtr = Op(
    name="log_ndtr", signature="f->f", cost=70, transcendental=True,
    meaning="the logarithm of the normal distribution function, accurate in both tails",
    partials=lambda y, x: (inverse_mills(x),), scipy=True,
    exact=lambda x: _mp.log(_mp.ncdf(x)) if x < 0 else _mp.log1p(-_mp.ncdf(-x)),
    latex=r"\ln\Phi\left({0}\right)", edges="-inf at -inf, -0.0 at inf",
    points=((0.0,), (0.5,), (-0.5,), (-3.0,), (4.0,), (-30.0,), (7.0,)),
    example=-0.69314718056, public=True,
)
inverse_mills = Op(
    name="inverse_mills", signature="f->f", cost=60,
    meaning="phi(x)/Phi(x), the derivative of log_ndtr: the inverse of Mills' ratio",
    partials=lambda y, x: (_hazard_slope(y, x),), exact=_hazard, transcendental=True,
    points=((0.0,), (0.5,), (-0.5,), (-3.0,), (4.0,)),
)
mills_excess = Op(
    name="mills_excess", signature="f->f", cost=50,
    meaning="x + phi(x)/Phi(x), which falls as -1/x to the left", transcendental=True,
    partials=lambda y, x: (_excess_slope(y, x),), exact=lambda x: x + _hazard(x),
    points=((0.0,), (0.5,), (-0.5,), (-3.0,), (4.0,)),
)
erfinv = Op(
    name="erfinv", signature="f->f", cost=60, transcendental=True,
    meaning="the inverse of erf", partials=lambda y, x: (erfinv_slope(x),), scipy=True,
    exact=lambda x: _inverse_erf(x), domain="-1 <= x <= 1",
    latex=r"\mathrm{{erf}}^{{-1}}\left({0}\right)",
    edges="±inf at ±1, where the derivative is inf; NaN beyond",
    points=((0.0,), (0.3,), (-0.5,), (0.5,), (0.9,), (-0.999,), (1e-3,)),
    example=0.0, public=True,
)
erfinv_slope = Op(
    name="erfinv_slope", signature="f->f", cost=120,
    meaning="the derivative of erfinv", partials=lambda y, x: (2.0 * erfinv(x) * (y * y),),
    exact=lambda x: _mp.sqrt(_mp.pi) / 2 * _mp.exp(_inverse_erf(x) ** 2),
    transcendental=True, domain="-1 <= x <= 1", edges="inf at ±1, NaN beyond",
    points=((0.0,), (0.3,), (-0.5,), (0.5,), (0.9,), (-0.999,)),
)
ndtri = Op(
    name="ndtri", signature="f->f", cost=60, transcendental=True,
    meaning="the inverse of ndtr: quantiles of the normal distribution", exact=_inverse_normal,
    partials=lambda y, p: (ndtri_slope(p),), domain="0 <= p <= 1", scipy=True,
    latex=r"\Phi^{{-1}}\left({0}\right)",
    edges="-inf at 0 and inf at 1, where the derivative is inf; NaN beyond",
    points=((0.5,), (0.3,), (0.25,), (0.75,), (1e-3,), (1e-30,), (0.99,)),
    example=0.0, public=True,
)
ndtri_slope = Op(
    name="ndtri_slope", signature="f->f", cost=120,
    meaning="the derivative of ndtri", partials=lambda y, p: (ndtri(p) * (y * y),),
    exact=lambda p: _mp.sqrt(2 * _mp.pi) * _mp.exp(_inverse_normal(p) ** 2 / 2),
    transcendental=True, domain="0 <= p <= 1", edges="inf at 0 and 1, NaN beyond",
    points=((0.5,), (0.3,), (0.25,), (0.75,), (1e-3,), (0.99,)),
)


# The scaled complement of the error function.

def _scaled(x: Any) -> Any:
    """exp(x**2) erfc(x) for x >= 0 by Mills' ratio; below 0 twice exp(x**2) less that of -x."""
    tail = math.sqrt(2.0 / math.pi) / inverse_mills(-math.sqrt(2.0) * abs(x))
    return where(x < 0.0, 2.0 * exp_square(x) - tail, tail)


exp_square = Op(
    name="exp_square", signature="f->f", cost=14,
    meaning="exp(x**2), the square exact", partials=lambda y, x: (2.0 * x * y,),
    transcendental=True, latex="e^{{{0}^2}}", points=((0.5,), (-3.0,), (0.0,)),
    exact=lambda x: _mp.exp(x * x), interval=interval.at_least(1.0),
)
erfcx = Op(
    name="erfcx", signature="f->f", cost=80, transcendental=True,
    meaning="exp(x**2)*erfc(x), the scaled complement of the error function",
    partials=lambda y, x: (-math.sqrt(2.0) * mills_excess(-math.sqrt(2.0) * x) * y,),
    definition=_scaled, scipy=True, exact=lambda x: _mp.exp(x * x) * _mp.erfc(x),
    interval=interval.at_least(0.0), edges="0 at inf, inf at -inf",
    points=((0.5,), (-2.0,), (4.0,), (0.0,), (1.0001,), (300.0,), (1e-5,)),
    example=0.615690344193, public=True,
)
