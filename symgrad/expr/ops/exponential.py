"""Exponentials and logarithms."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Handle, Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import reciprocal
from symgrad.expr.ops.comparison import at_nan, isfinite, where
from symgrad.expr.ops.hyperbolic import sigmoid, tanh
from symgrad.expr.ops.law import positive, real
from symgrad.expr.references import reference

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

LN2: Final = math.log(2.0)

exp = Op(
    name="exp", signature="f->f", reference=np.exp, meaning="e**x", cost=10,
    llvm="call {f} @llvm.exp.{m}({f} {0})",
    wgsl="exp({0})",
    partials=lambda y, x: (y,), transcendental=True, latex="e^{{{0}}}",
    laws=lambda x: (real(exp(log(x)), x, when=positive(x)),), points=((1.5,), (-2.0,)),
    interval=lambda a: (0.0, math.exp(min(a[1], 100.0))), public=True,
)


def _exp2_slope(y: Any, x: Any) -> Any:
    """ln 2 * 2**x, which is finite a little beyond where 2**x is; x - 1 is exact there."""
    return where(isfinite(y), LN2 * y, (2.0 * LN2) * exp2(x - 1.0))


exp2 = Op(
    name="exp2", signature="f->f", reference=np.exp2, meaning="2**x", cost=10,
    llvm="call {f} @llvm.exp2.{m}({f} {0})",
    wgsl="exp2({0})",
    partials=lambda y, x: (_exp2_slope(y, x),), transcendental=True, latex="2^{{{0}}}",
    scipy=True, points=((1.5,), (-2.0,)),
    interval=lambda a: (0.0, 2.0 ** min(a[1], 130.0)), public=True,
)
expm1 = Op(
    name="expm1", signature="f->f", reference=np.expm1, cost=16, transcendental=True,
    meaning="exp(x) - 1, accurate near 0", partials=lambda y, x: (exp(x),),
    edges="the derivative is exp(x) itself, not the value plus 1",
    scipy=True, points=((1e-3,), (-2.0,), (1.5,)),
    interval=interval.at_least(-1.0), public=True,
)
log = Op(
    name="log", signature="f->f", reference=np.log, meaning="the natural logarithm", cost=10,
    llvm="call {f} @llvm.log.{m}({f} {0})",
    wgsl="log({0})", partials=lambda y, x: (at_nan(x < 0.0, reciprocal(x)),),
    transcendental=True, latex=r"\ln\left({0}\right)",
    laws=lambda x: (real(log(exp(x)), x),),
    domain="x >= 0", edges="-inf at 0; NaN for x < 0, value and derivative",
    points=((2.0,), (0.3,)),
    interval=interval.log, public=True,
)
log2 = Op(
    name="log2", signature="f->f", reference=np.log2, meaning="the logarithm to base 2", cost=10,
    llvm="call {f} @llvm.log2.{m}({f} {0})",
    wgsl="log2({0})", partials=lambda y, x: (at_nan(x < 0.0, (1.0 / LN2) / x),),
    transcendental=True, laws=lambda x: (real(log2(exp2(x)), x),),
    domain="x >= 0", edges="as log", points=((2.0,), (0.3,)),
    public=True,
)
log10 = Op(
    name="log10", signature="f->f", reference=np.log10, meaning="the logarithm to base 10",
    cost=11, partials=lambda y, x: (at_nan(x < 0.0, (1.0 / math.log(10.0)) / x),),
    transcendental=True, domain="x >= 0", edges="as log", points=((2.0,), (0.3,)),
    public=True,
)
log1p = Op(
    name="log1p", signature="f->f", reference=np.log1p, cost=18, transcendental=True,
    meaning="log(1 + x), accurate near 0",
    partials=lambda y, x: (at_nan(x < -1.0, reciprocal(1.0 + x)),),
    domain="x >= -1", edges="-inf at -1; NaN for x < -1, value and derivative",
    scipy=True, points=((1e-3,), (2.0,), (-0.4,)),
    interval=interval.log1p, public=True,
)


sigmoid_difference = Op(
    name="sigmoid_difference", signature="ff->f", reference=reference.sigmoid_difference, cost=24,
    meaning="sigmoid(a - b), the difference not rounded; 1/2 where a = b, infinite or not",
    partials=lambda y, a, b: ((slope := logistic_difference(a, b)), -slope), transcendental=True,
    points=((1.5, -0.25), (30.0, 31.0), (0.5, 0.5), (-20.0, 30.0), (1.0, 1.0001)),
)
logistic_difference = Op(
    name="logistic_difference", signature="ff->f", reference=reference.logistic_difference, cost=26,
    meaning="logistic(a - b), the difference not rounded", commutative=True, transcendental=True,
    partials=lambda y, a, b: ((slope := y * tanh(0.5 * (b - a))), -slope),
    points=((1.5, -0.25), (30.0, 31.0), (0.5, 0.5), (-20.0, 30.0), (1.0, 1.0001)),
)


def _logaddexp_of_zero(a: Any, b: Any) -> Any:
    """log(1 + exp(b)) where a is the number 0, and the other way round."""
    for x, other in ((a, b), (b, a)):
        if (x.graph.value(x.id) if isinstance(x, Handle) else x) == 0:
            return softplus(other)
    return None


logaddexp = Op(
    name="logaddexp", signature="ff->f", reference=np.logaddexp, cost=30, commutative=True,
    meaning="log(exp(a) + exp(b)) without overflow", transcendental=True,
    partials=lambda y, a, b: (sigmoid_difference(a, b), sigmoid_difference(b, a)),
    special=_logaddexp_of_zero,
    points=(
        (1.5, -0.25), (30.0, 31.0), (0.5, 0.5), (0.0, 0.0), (-3.0, -3.0), (1e4, 1e4), (1.0, 1.0001),
        (1e-6, 0.0), (0.0, 40.0), (30.0, -20.0),
    ),
    public=True,
)
softplus = Op(
    name="softplus", signature="f->f", reference=reference.softplus, meaning="log(1 + exp(x))",
    cost=32, partials=lambda y, x: (sigmoid(x),), transcendental=True,
    points=((0.5,), (-30.0,), (100.0,)),
    interval=interval.at_least(0.0), public=True,
)
