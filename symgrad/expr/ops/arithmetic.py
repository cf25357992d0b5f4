"""Sums, products, quotients, square roots and signs; and x itself, as a constant or rounded."""

from __future__ import annotations

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.law import exact, finite, nonnegative, nonzero, real

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

add = Op(
    name="add", signature="ff->f", reference=np.add, meaning="a + b", commutative=True,
    llvm="fadd {f} {0}, {1}", wgsl="{0} + {1}", partials=lambda y, a, b: (1, 1), latex="{0} + {1}",
    laws=lambda a, b: (
        exact(a + -0.0, a),
        exact(a + (-b), a - b),
        exact(a + a, 2.0 * a),
        real(a + 0.0, a),
    ),
    edges="inf - inf is NaN", points=((1.5, -0.25), (-3.0, 7.0)),
    interval=interval.add,
)
sub = Op(
    name="sub", signature="ff->f", reference=np.subtract, meaning="a - b",
    llvm="fsub {f} {0}, {1}", wgsl="{0} - {1}", partials=lambda y, a, b: (1, -1), latex="{0} - {1}",
    laws=lambda a, b: (
        exact(a - 0.0, a),
        exact(a - (-b), a + b),
        exact(-0.0 - a, -a),
        real(0.0 - a, -a),
        real(a - a, 0.0, when=finite(a)),
    ),
    edges="inf - inf is NaN", points=((1.5, -0.25), (-3.0, 7.0)),
    interval=lambda a, b: interval.add(a, interval.neg(b)),
)
mul = Op(
    name="mul", signature="ff->f", reference=np.multiply, meaning="a * b", commutative=True,
    llvm="fmul {f} {0}, {1}",
    wgsl="{0} * {1}", partials=lambda y, a, b: (b, a), latex=r"{0} \, {1}",
    laws=lambda a, b: (
        exact(a * 1.0, a),
        exact(a * -1.0, -a),
        exact((-a) * (-b), a * b),
        exact((-a) * b, -(a * b)),
        real(a * 0.0, 0.0, when=finite(a)),
    ),
    edges="0 * inf is NaN", points=((1.5, -0.25), (-3.0, 7.0)),
    interval=interval.mul,
)
div = Op(
    name="div", signature="ff->f", reference=np.divide, meaning="a / b", cost=4,
    llvm="fdiv {f} {0}, {1}",
    wgsl="{0} / {1}", partials=lambda y, a, b: ((r := reciprocal(b)), -(y * r)),
    latex=r"\frac{{{0}}}{{{1}}}",
    laws=lambda a, b: (
        exact(a / 1.0, a),
        exact(a / -1.0, -a),
        exact(1.0 / a, reciprocal(a)),
        exact(-1.0 / a, -reciprocal(a)),
        exact((-a) / (-b), a / b),
        exact((-a) / b, -(a / b)),
        exact(a / (-b), -(a / b)),
        real(a / a, 1.0, when=nonzero(a)),
    ),
    domain="b != 0", edges="a/0 is ±inf, 0/0 is NaN; d/db is -(a/b)/b, so no square overflows",
    points=((1.5, -0.7), (0.4, 2.0)),
    interval=lambda a, b: interval.mul(a, interval.reciprocal(b)),
)
neg = Op(
    name="neg", signature="f->f", reference=np.negative, meaning="-a",
    llvm="fneg {f} {0}", wgsl="-{0}",
    partials=lambda y, a: (-1,), latex="-{0}",
    laws=lambda a: (exact(neg(-a), a),), points=((1.5,), (-0.25,)),
    interval=interval.neg,
)
reciprocal = Op(
    name="reciprocal", signature="f->f", reference=references.reciprocal, meaning="1 / a", cost=4,
    llvm="fdiv {f} {one}, {0}",
    wgsl="{one} / {0}", partials=lambda y, a: (-(y * y),), latex=r"\frac{{1}}{{{0}}}",
    laws=lambda a: (
        exact(reciprocal(-a), -reciprocal(a)),
        real(reciprocal(reciprocal(a)), a),
        real(reciprocal(sqrt(a)), rsqrt(a)),
    ),
    domain="a != 0", edges="±inf at ±0", points=((1.5,), (-0.25,)),
    interval=interval.reciprocal, public=True,
)
fma = Op(
    name="fma", signature="fff->f", reference=references.fma, meaning="a * b + c", cost=1,
    llvm="call {f} @llvm.fma.{m}({f} {0}, {f} {1}, {f} {2})",
    wgsl="fma({0}, {1}, {2})", partials=lambda y, a, b, c: (b, a, 1),
    edges="rounded once where the device has a fused multiply-add", points=((1.5, -0.7, 2.0),),
    public=True,
)
sqrt = Op(
    name="sqrt", signature="f->f", reference=np.sqrt, meaning="the square root", cost=4,
    llvm="call {f} @llvm.sqrt.{m}({f} {0})",
    wgsl="sqrt({0})", partials=lambda y, x: (0.5 / y,), latex=r"\sqrt{{{0}}}",
    laws=lambda x: (
        real(sqrt(x * x), abs(x)),
    ),
    domain="x >= 0", edges="the derivative at 0 is inf", points=((2.0,), (0.3,)),
    interval=interval.sqrt, public=True,
)
rsqrt = Op(
    name="rsqrt", signature="f->f", reference=references.rsqrt, meaning="1/sqrt(x)", cost=4,
    llvm="r = call {f} @llvm.sqrt.{m}({f} {0}); fdiv {f} {one}, {r}",
    wgsl="inverseSqrt({0})", partials=lambda y, x: ((-0.5 * y) * (y * y),),
    latex=r"\frac{{1}}{{\sqrt{{{0}}}}}",
    domain="x > 0", edges="inf at 0", points=((2.0,), (0.3,)),
    interval=interval.power, public=True,
)
abs = Op(
    name="abs", signature="f->f", reference=np.abs, meaning="|x|",
    llvm="call {f} @llvm.fabs.{m}({f} {0})", wgsl="abs({0})",
    partials=lambda y, x: (sign(x),), latex=r"\left|{0}\right|",
    laws=lambda x: (
        exact(abs(-x), abs(x)),
        exact(abs(abs(x)), abs(x)),
        exact(abs(x), x, when=nonnegative(x)),
    ),
    edges="the derivative at 0 is 0", whole=True, points=((0.5,), (-4.0,)),
    interval=interval.abs, public=True,
)
sign = Op(
    name="sign", signature="f->f", reference=np.sign, meaning="-1, 0 or 1", cost=2,
    partials=lambda y, x: (None,), edges="sign(0) is 0, sign(NaN) is NaN; the derivative is 0",
    whole=True, points=((0.5,), (-4.0,), (0.0,)),
    interval=interval.within(-1.0, 1.0), public=True,
)
one_minus_square = Op(
    name="one_minus_square", signature="f->f", reference=lambda x: (1 - x) * (1 + x), cost=3,
    meaning="1 - x**2, accurate next to ±1", partials=lambda y, x: (-2.0 * x,),
    edges="the derivative is -2x itself, not the sum of those of 1 - x and 1 + x",
    points=((0.5,), (-4.0,), (0.0,), (1e-5,), (1.0,), (-0.9999,)),
)
copysign = Op(
    name="copysign", signature="ff->f", reference=np.copysign, cost=3,
    meaning="|a| with the sign of b",
    partials=lambda y, a, b: (copysign(1.0, a) * copysign(1.0, b), None),
    llvm="call {f} @llvm.copysign.{m}({f} {0}, {f} {1})",
    wgsl="bitcast<{f}>((bitcast<{w}>({0}) & {magnitude}) | (bitcast<{w}>({1}) & {sign}))",
    points=((1.5, -2.0), (-0.5, 3.0)),
    public=True,
)
stop_gradient = Op(
    name="stop_gradient", signature="f->f", reference=np.positive, cost=0,
    meaning="x, taken as a constant by differentiation", partials=lambda y, x: (None,),
    transparent=True, whole=True, points=((0.5,),),
)
opaque = Op(  # an xor with 0 would do too, but for compilers, who know that two of them cancel
    name="opaque", signature="f->f", reference=np.positive, cost=1,
    meaning="x, rounded where it stands: no compiler can see through it",
    partials=lambda y, x: (1,), points=((1.5,),),
    wgsl="bitcast<{f}>(bitcast<{w}>({0}) + params.zero)",
    interval=lambda a: a,
)
