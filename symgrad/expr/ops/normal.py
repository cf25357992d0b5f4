"""The error function and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.comparison import where
from symgrad.expr.references import reference

# Rows are set by hand: what belongs together stands on one line.
# fmt: off


def fading(x: Any, y: Any) -> Any:
    """x as a factor beside y, which falls off faster than x grows: 0 where y is."""
    return where(y == 0.0, 0.0, x)


exp_neg_square = Op(
    name="exp_neg_square", signature="f->f", reference=reference.exp_neg_square, cost=14,
    meaning="exp(-x**2), the square exact", partials=lambda y, x: (-2.0 * (fading(x, y) * y),),
    transcendental=True, latex="e^{{-{0}^2}}", points=((0.5,), (-3.0,), (0.0,), (3e38,)),
    interval=interval.within(0.0, 1.0),
)
erf = Op(
    name="erf", signature="f->f", reference=reference.erf, meaning="the error function", cost=40,
    partials=lambda y, x: ((2.0 / math.sqrt(math.pi)) * exp_neg_square(x),), transcendental=True,
    latex=r"\mathrm{{erf}}\left({0}\right)", scipy=True,
    points=((0.5,), (-2.0,), (0.0,), (1e-5,), (5.0,), (3e38,), (-3e38,)),
    interval=interval.within(-1.0, 1.0), public=True,
)
erfc = Op(
    name="erfc", signature="f->f", reference=reference.erfc, cost=40, transcendental=True,
    meaning="1 - erf(x), accurate in the tail",
    partials=lambda y, x: ((-2.0 / math.sqrt(math.pi)) * exp_neg_square(x),),
    latex=r"\mathrm{{erfc}}\left({0}\right)", scipy=True,
    points=((0.5,), (-2.0,), (4.0,), (0.0,), (1.0001,), (3e38,), (-3e38,)),
    interval=interval.within(0.0, 2.0), public=True,
)
bell = Op(
    name="bell", signature="f->f", reference=reference.bell, cost=14,
    meaning="exp(-x**2/2), the square exact", partials=lambda y, x: (-(fading(x, y) * y),),
    transcendental=True, latex="e^{{-{0}^2/2}}", points=((0.5,), (-3.0,), (0.0,), (3e38,)),
    interval=interval.within(0.0, 1.0),
)
normal_cdf = Op(
    name="normal_cdf", signature="f->f", reference=reference.normal_cdf, cost=40,
    meaning="the normal distribution function, erfc(-x/sqrt(2))/2", transcendental=True,
    partials=lambda y, x: ((1.0 / math.sqrt(2.0 * math.pi)) * bell(x),),
    latex=r"\Phi\left({0}\right)",
    points=((0.5,), (-2.0,), (0.0,), (1e-5,), (5.0,), (3e38,), (-3e38,)),
    interval=interval.within(0.0, 1.0),
)
ndtr = Op(
    name="ndtr", signature="f->f", reference=reference.normal_cdf, cost=40, transcendental=True,
    meaning="the normal distribution function, as SciPy calls it", compose=normal_cdf,
    scipy=True, points=((0.5,), (-2.0,), (0.0,), (1e-5,), (5.0,), (3e38,), (-3e38,)),
    public=True,
)
