"""Sine, cosine and tangent, and their inverses."""

from __future__ import annotations

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import one_minus_square, reciprocal, sqrt

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

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
