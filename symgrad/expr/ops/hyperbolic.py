"""Hyperbolic functions, their inverses, and the logistic function, which is a tanh."""

from __future__ import annotations

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import abs, one_minus_square, reciprocal, sqrt
from symgrad.expr.ops.comparison import at_nan, where
from symgrad.expr.references import reference

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
    name="sigmoid", signature="f->f", reference=reference.sigmoid, meaning="1/(1 + exp(-x))",
    cost=18, partials=lambda y, x: (logistic(x),), transcendental=True,
    latex=r"\sigma\left({0}\right)",
    edges="the derivative is exp(-|x|)/(1 + exp(-|x|))**2, right where y*(1 - y) is 0",
    points=((0.5,), (-4.0,), (20.0,), (0.0,), (1e-5,), (-3e38,)),
    interval=interval.within(0.0, 1.0), public=True,
)
logistic = Op(
    name="logistic", signature="f->f", reference=reference.logistic, cost=20, transcendental=True,
    meaning="exp(-x)/(1 + exp(-x))**2, the derivative of sigmoid",
    partials=lambda y, x: (-(y * tanh(0.5 * x)),),
    points=((0.5,), (-4.0,), (20.0,), (0.0,), (1e-5,), (-3e38,)),
    interval=interval.within(0.0, 1.0),
)
