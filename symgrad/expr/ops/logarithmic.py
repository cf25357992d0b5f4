"""Logarithms with a factor, of odds and of complements: entropies and likelihoods."""

from __future__ import annotations

import math
from typing import Any

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import abs, reciprocal
from symgrad.expr.ops.comparison import at_nan, isnan, where
from symgrad.expr.ops.exponential import exp, expm1, log, log1p
from symgrad.expr.references import special_reference as reference
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off


def _share(x: Any, y: Any) -> Any:
    """x/y, but 0/0 is 0."""
    return where((x == 0.0) & (y == 0.0), 0.0, x / y)


xlogy = Op(
    name="xlogy", signature="ff->f", reference=reference.xlogy, cost=14, transcendental=True,
    meaning="x*log(y), 0 where x is 0", partials=lambda r, x, y: (log(y), _share(x, y)),
    exact=lambda x, y: x * _mp.log(y) if x else x, sympy=lambda x, y: x * _sp.log(y),
    domain="y >= 0, or x = 0", edges="0 at x = 0 unless y is NaN; d/dx is log(y) there, d/dy 0",
    scipy=True, points=((1.5, 0.7), (0.0, 2.0), (2.0, 1.0), (-0.3, 20.0)),
    public=True,
    definition=lambda x, y: where((x == 0.0) & ~isnan(y), 0.0, x * log(y)),
)
xlog1py = Op(
    name="xlog1py", signature="ff->f", reference=reference.xlog1py, cost=22, transcendental=True,
    meaning="x*log(1 + y), 0 where x is 0",
    partials=lambda r, x, y: (log1p(y), _share(x, 1.0 + y)),
    exact=lambda x, y: x * _mp.log1p(y) if x else x, sympy=lambda x, y: x * _sp.log(1 + y),
    domain="y >= -1, or x = 0", edges="0 at x = 0 unless y is NaN; d/dx is log1p(y) there, d/dy 0",
    scipy=True, points=((1.5, 0.7), (0.0, 2.0), (2.0, 1e-3), (-0.3, -0.4)),
    public=True,
    definition=lambda x, y: where((x == 0.0) & ~isnan(y), 0.0, x * log1p(y)),
)
entr = Op(
    name="entr", signature="f->f", reference=reference.entr, cost=14, transcendental=True,
    meaning="-x*log(x), a term of an entropy", partials=lambda y, x: (-1.0 - log(x),),
    exact=lambda x: -x * _mp.log(x) if x > 0 else (_mp.mpf(0) if not x else -_mp.inf),
    sympy=lambda x: -x * _sp.log(x), domain="x >= 0",
    edges="0 at 0, where the derivative is inf; -inf for x < 0; the derivative has only a small "
    "absolute error near its root 1/e",
    scipy=True, points=((0.5,), (1.0,), (3.0,), (1e-3,)),
    public=True,
    definition=lambda x: where(x < 0.0, -math.inf, where(x == 0.0, 0.0, -x * log(x))),
)
logit = Op(
    name="logit", signature="f->f", reference=reference.logit, cost=40, transcendental=True,
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
    name="log1mexp", signature="f->f", reference=reference.log1mexp, cost=50, transcendental=True,
    meaning="log(1 - exp(-x)), accurate for small and large x",
    partials=lambda y, x: (_log1mexp_slope(x),),
    exact=lambda x: _mp.log(-_mp.expm1(-x)) if x else -_mp.inf,
    sympy=lambda x: _sp.log(1 - _sp.exp(-x)),
    domain="x >= 0", edges="-inf at 0, where the derivative is inf; NaN for x < 0",
    points=((0.7,), (0.6931471805599453,), (0.5,), (1e-3,), (3.0,), (30.0,)),
    public=True,
    definition=_log1mexp,
)


def _huber(delta: Any, r: Any) -> Any:
    """m (|r| - m/2), m the smaller of |r| and delta."""
    size = abs(r)
    m = where(size <= delta, size, delta)
    return where(delta < 0.0, math.inf, m * (size - 0.5 * m))


huber = Op(
    name="huber", signature="ff->f", reference=reference.huber, cost=8,
    meaning="r**2/2 for |r| <= delta, else delta*(|r| - delta/2): Huber's loss of a residual r",
    compose=_huber, domain="delta >= 0",
    edges="inf for delta < 0", scipy=True, points=((1.0, 0.5), (0.5, -2.0)),
    public=True,
)
