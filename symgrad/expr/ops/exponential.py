"""Exponentials, logarithms and powers; logarithms with a factor, of odds and of complements."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Handle, Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.arithmetic import abs, reciprocal, stop_gradient
from symgrad.expr.ops.comparison import at_nan, isfinite, isnan, where
from symgrad.expr.ops.law import positive, real
from symgrad.expr.ops.trigonometric import sigmoid, tanh
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

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
    name="sigmoid_difference", signature="ff->f", reference=references.sigmoid_difference, cost=24,
    meaning="sigmoid(a - b), the difference not rounded; 1/2 where a = b, infinite or not",
    partials=lambda y, a, b: ((slope := logistic_difference(a, b)), -slope), transcendental=True,
    points=((1.5, -0.25), (30.0, 31.0), (0.5, 0.5), (-20.0, 30.0), (1.0, 1.0001)),
)
logistic_difference = Op(
    name="logistic_difference", signature="ff->f", reference=references.logistic_difference,
    meaning="logistic(a - b), the difference not rounded", commutative=True, transcendental=True,
    cost=26,
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
    name="softplus", signature="f->f", reference=references.softplus, meaning="log(1 + exp(x))",
    cost=32, partials=lambda y, x: (sigmoid(x),), transcendental=True,
    points=((0.5,), (-30.0,), (100.0,)),
    interval=interval.at_least(0.0), public=True,
)


# Powers and the cube root.

integer_pow = Op(
    name="integer_pow", signature="fi->f", reference=references.integer_power, cost=3,
    meaning="x**k for a constant integer k, by products for -15 < k < 17",
    vjp=lambda g, y, x, k: ((k.number * g) * x ** (k.number - 1), None), latex="{0}^{{{1}}}",
    edges="x**0 is 1; x**-k is 1/x**k, ±inf from 2**126 on where a device flushes a subnormal x**k",
    points=(
        (1.5, 3), (-1.25, 4), (-0.5, -3), (0.0, 2), (1.1, 8), (-1.2, 9), (0.0, 9), (1.3, -12),
        (-0.9, 25), (-1.01, -300), (1.7, 7), (1.3, -6), (-1.9, -14), (2.0, 16),
    ),
)


def _shifts(base: float) -> bool:
    """Whether the logarithm, as a factor, moves a float32 over an end of the range."""
    size = math.fabs(math.log(base)) if 0.0 < base < math.inf else 1.0
    return 0.0 < size < 1.0 or size > 64.0


def _varying(x: Any, p: Any) -> Any:
    """p, for x <= 0 as a constant: there, powers are functions of x only."""
    return p if p.graph.value(p.id) is not None else where(x > 0.0, p, stop_gradient(p))


def _slope(x: Any, p: Any) -> Any:
    """p x**(p - 1), p - 1 not rounded: a half less 1 never is."""
    exponent = p.graph.value(p.id)
    if exponent is not None and float(2.0 * exponent).is_integer():
        return exponent * x ** (exponent - 1.0)
    return pow_times(_varying(x, p), x, p, -1)


def _growth(y: Any, x: Any, p: Any) -> Any:
    """x**p log(x), 0 for x <= 0; of a constant base that moves nothing over an end the product."""
    base = x.graph.value(x.id)
    inside = base is not None and not _shifts(base)
    grown = y * log(x) if inside else pow_times(log(x), x, p, 0)
    return where(x > 0.0, grown, where(isnan(y), y, 0.0))


def _pow_times_partials(y: Any, c: Any, x: Any, p: Any, k: Any) -> tuple[Any, ...]:
    """x**(p + k), (p + k) c x**(p + k - 1) and, for x > 0, log(x) c x**(p + k)."""
    k = k.number
    grown = pow_times(c * log(x), x, p, k)
    return (
        pow_times(1.0, x, p, k),
        pow_times(c * (_varying(x, p) + k), x, p, k - 1),
        where(x > 0.0, grown, where(isnan(y), y, 0.0)),
        None,
    )


pow_times = Op(
    name="pow_times", signature="fffi->f", reference=references.pow_times, cost=12,
    meaning="c * x**(p + k) for a constant integer k, without p + k or x**p being rounded",
    partials=_pow_times_partials, transcendental=True, domain="x >= 0, or p an integer",
    edges="0 where c is 0; the derivative by p is 0 for x <= 0",
    points=(
        (1.5, 1.5, 2.5, -1), (-0.5, 0.3, -1.7, -2), (2.0, 4.0, 0.5, 0), (1.5, 2.0, 0.0, -1),
        (0.7, 2.0, 1.0, -2), (0.7, 1.0, 3.0, -1),
    ),
)
pow = Op(
    name="pow", signature="ff->f", reference=np.power, meaning="x**p", cost=30,
    partials=lambda y, x, p: (_slope(x, p), _growth(y, x, p)),
    transcendental=True, latex="{0}^{{{1}}}", domain="x >= 0, or p an integer",
    edges="0**0 is 1; a negative x gives NaN unless p is an integer; d/dp is 0 for x <= 0",
    points=(
        (1.5, 2.5), (0.3, -1.7), (-2.0, 3.0), (4.0, 0.5), (2.0, 0.0), (2.0, 1.0), (0.5, 1.0),
        (1.0, 0.0), (1.0, 1.0), (1.0, 2.5), (3.0, 2.0), (3.0, -2.0), (2.0, 1.0000001),
        (2.0, 0.99999994), (1.5, 1e-6), (1e5, 1.000001), (1.00001, 3.7), (1e-20, 4.0),
    ),
    interval=interval.power,
)
cbrt = Op(
    name="cbrt", signature="f->f", reference=np.cbrt, meaning="the real cube root", cost=20,
    partials=lambda y, x: (reciprocal(3.0 * (y * y)),), latex=r"\sqrt[3]{{{0}}}",
    edges="the derivative at 0 is inf", scipy=True, points=((2.0,), (-0.3,)),
    public=True,
)


# Logarithms with a factor, of odds and of complements: entropies and likelihoods.

def _share(x: Any, y: Any) -> Any:
    """x/y, but 0/0 is 0."""
    return where((x == 0.0) & (y == 0.0), 0.0, x / y)


xlogy = Op(
    name="xlogy", signature="ff->f", cost=14, transcendental=True,
    meaning="x*log(y), 0 where x is 0", partials=lambda r, x, y: (log(y), _share(x, y)),
    exact=lambda x, y: x * _mp.log(y) if x else x, sympy=lambda x, y: x * _sp.log(y),
    domain="y >= 0, or x = 0", edges="0 at x = 0 unless y is NaN; d/dx is log(y) there, d/dy 0",
    scipy=True, points=((1.5, 0.7), (0.0, 2.0), (2.0, 1.0), (-0.3, 20.0)),
    example=-0.535012415908, public=True,
    definition=lambda x, y: where((x == 0.0) & ~isnan(y), 0.0, x * log(y)),
)
xlog1py = Op(
    name="xlog1py", signature="ff->f", cost=22, transcendental=True,
    meaning="x*log(1 + y), 0 where x is 0",
    partials=lambda r, x, y: (log1p(y), _share(x, 1.0 + y)),
    exact=lambda x, y: x * _mp.log1p(y) if x else x, sympy=lambda x, y: x * _sp.log(1 + y),
    domain="y >= -1, or x = 0", edges="0 at x = 0 unless y is NaN; d/dx is log1p(y) there, d/dy 0",
    scipy=True, points=((1.5, 0.7), (0.0, 2.0), (2.0, 1e-3), (-0.3, -0.4)),
    example=0.795942376593, public=True,
    definition=lambda x, y: where((x == 0.0) & ~isnan(y), 0.0, x * log1p(y)),
)
entr = Op(
    name="entr", signature="f->f", cost=14, transcendental=True,
    meaning="-x*log(x), a term of an entropy", partials=lambda y, x: (-1.0 - log(x),),
    exact=lambda x: -x * _mp.log(x) if x > 0 else (_mp.mpf(0) if not x else -_mp.inf),
    sympy=lambda x: -x * _sp.log(x), domain="x >= 0",
    edges="0 at 0, where the derivative is inf; -inf for x < 0; the derivative has only a small "
    "absolute error near its root 1/e",
    scipy=True, points=((0.5,), (1.0,), (3.0,), (1e-3,)),
    example=0.34657359028, public=True,
    definition=lambda x: where(x < 0.0, -math.inf, where(x == 0.0, 0.0, -x * log(x))),
)
logit = Op(
    name="logit", signature="f->f", reference=references.logit, cost=40, transcendental=True,
    meaning="log(x/(1 - x)), the inverse of sigmoid",
    partials=lambda y, x: (at_nan((x < 0.0) | (x > 1.0), reciprocal(x * (1.0 - x))),),
    exact=lambda x: _mp.log(x / (1 - x)) if 0 < x < 1 else (x - 0.5) * _mp.inf,
    sympy=lambda x: _sp.log(x / (1 - x)), domain="0 <= x <= 1",
    edges="-inf at 0 and inf at 1, the derivative inf; NaN beyond",
    scipy=True, points=((0.5,), (0.25,), (0.75,), (0.1,), (1e-3,), (0.999,), (0.6,)),
    public=True,
)


def _log1mexp_slope(x: Any) -> Any:
    """1/(exp(x) - 1), which does not overflow."""
    return at_nan(x < 0.0, exp(-x) / -expm1(-x))


def _log1mexp(x: Any) -> Any:
    """log(-expm1(-x)) below ln 2, log1p(-exp(-x)) above."""
    small = x < math.log(2.0)
    less = log(where(small, -expm1(-x), 1.0))
    return where(small, less, log1p(-exp(-x)))


log1mexp = Op(
    name="log1mexp", signature="f->f", cost=50, transcendental=True,
    meaning="log(1 - exp(-x)), accurate for small and large x",
    partials=lambda y, x: (_log1mexp_slope(x),),
    exact=lambda x: _mp.log(-_mp.expm1(-x)) if x else -_mp.inf,
    sympy=lambda x: _sp.log(1 - _sp.exp(-x)),
    domain="x >= 0", edges="-inf at 0, where the derivative is inf; NaN for x < 0",
    points=((0.7,), (0.6931471805599453,), (0.5,), (1e-3,), (3.0,), (30.0,)),
    example=-0.686341002808, public=True,
    definition=_log1mexp,
)


def _huber(delta: Any, r: Any) -> Any:
    """m (|r| - m/2), m the smaller of |r| and delta."""
    size = abs(r)
    m = where(size <= delta, size, delta)
    return where(delta < 0.0, math.inf, m * (size - 0.5 * m))


huber = Op(
    name="huber", signature="ff->f", reference=references.huber, cost=8,
    meaning="r**2/2 for |r| <= delta, else delta*(|r| - delta/2): Huber's loss of a residual r",
    compose=_huber, domain="delta >= 0",
    edges="inf for delta < 0", scipy=True, points=((1.0, 0.5), (0.5, -2.0)),
    public=True,
)
