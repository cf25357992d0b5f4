"""Circular and hyperbolic functions, their inverses and parts, and those of points of the plane."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import abs, one_minus_square, reciprocal, sqrt
from symgrad.expr.ops.comparison import at_nan, where
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

sinh = Op(
    name="sinh", signature="f->f", reference=np.sinh, meaning="the hyperbolic sine", cost=20,
    partials=lambda y, x: (cosh(x),), transcendental=True,
    latex=r"\sinh\left({0}\right)", points=((0.5,), (-2.0,)),
    public=True,
)
cosh = Op(
    name="cosh", signature="f->f", reference=np.cosh, meaning="the hyperbolic cosine", cost=16,
    wgsl="cosh({0})", partials=lambda y, x: (sinh(x),), transcendental=True,
    latex=r"\cosh\left({0}\right)", points=((0.5,), (-2.0,)),
    interval=interval.at_least(1.0), public=True,
)
tanh = Op(
    name="tanh", signature="f->f", reference=np.tanh, meaning="the hyperbolic tangent", cost=16,
    partials=lambda y, x: (4.0 * logistic(2.0 * x),), transcendental=True,
    latex=r"\tanh\left({0}\right)",
    edges="the derivative is 4u/(1+u)**2, u = exp(-2|x|), which is right where 1 - y**2 is 0",
    points=((0.5,), (-2.0,), (12.0,), (0.0,), (1e-5,), (3e38,)),
    interval=interval.within(-1.0, 1.0), public=True,
)
asinh = Op(
    name="asinh", signature="f->f", reference=np.arcsinh, meaning="the inverse of sinh", cost=24,
    partials=lambda y, x: (
        where(abs(x) > 1e9, reciprocal(abs(x)), reciprocal(sqrt(1.0 + x * x))),
    ),
    transcendental=True, points=((0.5,), (-2.0,), (1e7,), (0.0,), (1e-5,), (1.0,), (-1.0,)),
    public=True,
)
acosh = Op(
    name="acosh", signature="f->f", reference=np.arccosh, meaning="the inverse of cosh", cost=24,
    partials=lambda y, x: (reciprocal(sqrt(x - 1.0) * sqrt(x + 1.0)),), transcendental=True,
    domain="x >= 1", edges="the derivative at 1 is inf",
    points=((1.5,), (30.0,), (1.0001,), (1e5,)),
    interval=interval.at_least(0.0), public=True,
)
atanh = Op(
    name="atanh", signature="f->f", reference=np.arctanh, meaning="the inverse of tanh", cost=22,
    partials=lambda y, x: (at_nan(abs(x) > 1.0, reciprocal(one_minus_square(x))),),
    transcendental=True, domain="-1 <= x <= 1", edges="±inf at ±1",
    points=((0.5,), (-0.3,), (0.0,), (1e-5,), (-1e-8,), (0.9999,), (-0.99,)),
    public=True,
)
sigmoid = Op(
    name="sigmoid", signature="f->f", reference=references.sigmoid, meaning="1/(1 + exp(-x))",
    cost=18, partials=lambda y, x: (logistic(x),), transcendental=True,
    latex=r"\sigma\left({0}\right)",
    edges="the derivative is exp(-|x|)/(1 + exp(-|x|))**2, right where y*(1 - y) is 0",
    points=((0.5,), (-4.0,), (20.0,), (0.0,), (1e-5,), (-3e38,)),
    interval=interval.within(0.0, 1.0), public=True,
)
logistic = Op(
    name="logistic", signature="f->f", reference=references.logistic, cost=20, transcendental=True,
    meaning="exp(-x)/(1 + exp(-x))**2, the derivative of sigmoid",
    partials=lambda y, x: (-(y * tanh(0.5 * x)),),
    points=((0.5,), (-4.0,), (20.0,), (0.0,), (1e-5,), (-3e38,)),
    interval=interval.within(0.0, 1.0),
)


# Points of the plane: their distance from the origin and their angle, and the slopes of these.
#
# With z = a + ib the slopes are parts of 1/z and of z/|z|, whose own are made of parts of them
# again: products, for derivatives of any order, without a choice between formulas.

POINTS = (
    (3.0, 4.0), (-0.5, 0.1), (1.0, 1.0), (-1.0, 1.0), (2.0, -2.0001), (1e-3, 10.0), (10.0, -1e-3),
    (1.0, 1e5), (-1e-10, 1.0), (0.0, 2.0), (-2.0, 0.0), (3e7, 1e7), (-1e-7, 3e-7),
)
"""Pairs that tie, nearly so, or are far apart."""


def _real_reciprocal_partials(y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """-Re 1/z**2 and Im 1/z**2."""
    return -real_reciprocal_square(a, b), -2.0 * (y * real_reciprocal(b, a))


def _real_reciprocal_square_partials(y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """-2 Re 1/z**3 and 2 Im 1/z**3, 1/z being u - iv."""
    u, v = real_reciprocal(a, b), real_reciprocal(b, a)
    return -2.0 * (u * (y - 2.0 * (v * v))), -2.0 * (v * (y + 2.0 * (u * u)))


real_reciprocal = Op(
    name="real_reciprocal", signature="ff->f", reference=references.real_reciprocal, cost=18,
    meaning="a/(a**2 + b**2), the real part of 1/(a + ib)", partials=_real_reciprocal_partials,
    edges="0 at (0, 0) and at infinity", points=POINTS,
)
real_reciprocal_square = Op(
    name="real_reciprocal_square", signature="ff->f", reference=references.real_reciprocal_square,
    meaning="(a**2 - b**2)/(a**2 + b**2)**2, the real part of 1/(a + ib)**2", cost=22,
    partials=_real_reciprocal_square_partials, edges="0 at (0, 0) and at infinity", points=POINTS,
)
direction = Op(
    name="direction", signature="ff->f", reference=references.direction, cost=20,
    meaning="a/hypot(a, b), the real part of (a + ib)/|a + ib|",
    partials=lambda y, a, b: (
        (v := direction(b, a)) * real_reciprocal(b, a), -(v * real_reciprocal(a, b))
    ),
    edges="0 at (0, 0); ±1 where a is infinite", points=POINTS,
)
hypot = Op(
    name="hypot", signature="ff->f", reference=np.hypot, cost=14, commutative=True,
    meaning="sqrt(a**2 + b**2) without overflow",
    partials=lambda y, a, b: (direction(a, b), direction(b, a)),
    edges="the derivative at (0, 0) is (0, 0), that by an infinite argument ±1", points=POINTS,
    interval=interval.at_least(0.0), public=True,
)
atan2 = Op(
    name="atan2", signature="ff->f", reference=np.arctan2, cost=20, transcendental=True,
    meaning="the angle of the point (x, y), in radians: atan2(y, x)",
    partials=lambda _, y, x: (real_reciprocal(x, y), -real_reciprocal(y, x)),
    edges="atan2(0, 0) is 0 with C's signs, its derivative there and at infinity (0, 0)",
    points=((0.5, 1.5), (-1.0, -2.0), (3.0, -0.1), *POINTS),
    public=True,
)


# Sine, cosine and tangent, and their inverses.

sin = Op(
    name="sin", signature="f->f", reference=np.sin, meaning="the sine of x radians", cost=12,
    llvm="call {f} @llvm.sin.{m}({f} {0})",
    wgsl="sin({0})", partials=lambda y, x: (cos(x),), transcendental=True,
    latex=r"\sin\left({0}\right)", points=((0.5,), (-4.0,)),
    interval=interval.within(-1.0, 1.0), public=True,
)
cos = Op(
    name="cos", signature="f->f", reference=np.cos, meaning="the cosine of x radians", cost=12,
    llvm="call {f} @llvm.cos.{m}({f} {0})",
    wgsl="cos({0})", partials=lambda y, x: (-sin(x),), transcendental=True,
    latex=r"\cos\left({0}\right)", points=((0.5,), (-4.0,)),
    interval=interval.within(-1.0, 1.0), public=True,
)
tan = Op(
    name="tan", signature="f->f", reference=np.tan, meaning="the tangent of x radians", cost=16,
    llvm="call {f} @llvm.tan.{m}({f} {0})",
    wgsl="tan({0})", partials=lambda y, x: (1.0 + y * y,), transcendental=True,
    latex=r"\tan\left({0}\right)", points=((0.5,), (-1.0,)),
    public=True,
)
asin = Op(
    name="asin", signature="f->f", reference=np.arcsin, meaning="the arc sine, in radians", cost=16,
    wgsl="asin({0})", partials=lambda y, x: (reciprocal(sqrt(one_minus_square(x))),),
    transcendental=True, latex=r"\arcsin\left({0}\right)",
    domain="-1 <= x <= 1", edges="the derivative at ±1 is inf",
    points=((0.5,), (-0.3,), (0.0,), (1e-5,), (-1e-8,), (0.9999,), (-0.99,)),
    public=True,
)
acos = Op(
    name="acos", signature="f->f", reference=np.arccos, meaning="the arc cosine, in radians",
    cost=16, wgsl="acos({0})", transcendental=True, latex=r"\arccos\left({0}\right)",
    partials=lambda y, x: (-reciprocal(sqrt(one_minus_square(x))),),
    domain="-1 <= x <= 1", edges="the derivative at ±1 is -inf",
    points=((0.5,), (-0.3,), (0.0,), (1e-5,), (-1e-8,), (0.9999,), (-0.99,)),
    interval=interval.within(0.0, 3.2), public=True,
)
atan = Op(
    name="atan", signature="f->f", reference=np.arctan, meaning="the arc tangent, in radians",
    cost=14, wgsl="atan({0})", partials=lambda y, x: (reciprocal(1.0 + x * x),),
    transcendental=True, latex=r"\arctan\left({0}\right)",
    points=((0.5,), (-3.0,), (0.0,), (1e-5,), (1.0,), (-1.0,), (1e5,)),
    interval=interval.within(-1.6, 1.6), public=True,
)


# The parts of sine, cosine and tangent: angles without their quarter turns.

quarters = Op(
    name="quarters", signature="f->f", reference=references.quarters, cost=4,
    meaning="12582912 + k, k whole: the quarter turns nearest to x radians, if they are many mod 4",
    points=((0.5,), (-4.0,), (1e5,)),
)
angle = Op(
    name="angle", signature="ff->f", reference=references.angle, cost=10,
    meaning="what is left of x radians without k quarter turns, q = quarters(x) = 12582912 + k",
    points=((0.5, 12582912.0), (-4.0, 12582909.0), (1e5, 12582912.0 + 63662 % 4)),
)
far_quarters = Op(
    name="far_quarters", signature="f->f", reference=references.quarters, cost=50,
    meaning="quarters(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)
far_angle = Op(
    name="far_angle", signature="f->f", cost=60,
    reference=lambda x: references.angle(x, references.quarters(x)),
    meaning="x radians without the nearest multiple of pi/2", points=((0.5,), (-4.0,), (1e5,)),
)
far_sin = Op(
    name="far_sin", signature="f->f", reference=np.sin, cost=120, transcendental=True,
    meaning="sin(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)
far_cos = Op(
    name="far_cos", signature="f->f", reference=np.cos, cost=120, transcendental=True,
    meaning="cos(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)
far_tan = Op(
    name="far_tan", signature="f->f", reference=np.tan, cost=120, transcendental=True,
    meaning="tan(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)
sin_turns = Op(
    name="sin_turns", signature="f->f", reference=references.sin_turns, cost=14,
    meaning="the sine of x turns, sin(2*pi*x)", transcendental=True,
    points=((0.3,), (-1.3,), (1e5,), (50000.3,)),
    interval=interval.within(-1.0, 1.0),
)
cos_turns = Op(
    name="cos_turns", signature="f->f", reference=references.cos_turns, cost=12,
    meaning="the cosine of x turns, cos(2*pi*x)", transcendental=True,
    points=((0.3,), (-1.3,), (1e5,), (50000.3,)),
    interval=interval.within(-1.0, 1.0),
)
sine = Op(
    name="sine", signature="ff->f", reference=references.sine, cost=12, transcendental=True,
    meaning="the sine of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
    interval=interval.within(-1.0, 1.0),
)
cosine = Op(
    name="cosine", signature="ff->f", reference=references.cosine, cost=12, transcendental=True,
    meaning="the cosine of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
    interval=interval.within(-1.0, 1.0),
)
tangent = Op(
    name="tangent", signature="ff->f", reference=references.tangent, cost=16, transcendental=True,
    meaning="the tangent of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
)


# Waves that fall off: the cardinal sine.

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
    cost=24,
    transcendental=True,
    meaning="sin(pi*x)/(pi*x), 1 at 0: the cardinal sine as NumPy has it",
    partials=lambda y, x: (-(math.pi**2 * (x * sinc_ratio(x))),),
    exact=lambda x: _mp.sincpi(x),
    sympy=lambda x: _sp.sinc(_sp.pi * x),
    edges="exactly 0 where x is whole; NaN at ±inf",
    points=((0.0,), (0.3,), (-0.5,), (0.5,), (-1.3,), (2.2,), (50.3,)),
    example=1.0, public=True,
)
sinc_ratio = Op(
    name="sinc_ratio",
    signature="f->f",
    cost=40,
    meaning="(sinc(x) - cos(pi*x))/(pi*x)**2, 1/3 at 0: of the derivative of sinc",
    partials=lambda y, x: (_ratio_slope(y, x),),
    exact=_exact_ratio,
    transcendental=True,
    edges="NaN at ±inf; near its zeros only the absolute error is small",
    points=((0.0,), (0.3,), (-0.5,), (0.5,), (-1.3,), (2.2,), (50.3,)),
)
