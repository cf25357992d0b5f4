"""The parts of sine, cosine and tangent: angles without their quarter turns."""

from __future__ import annotations

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.references import reference

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

quarters = Op(
    name="quarters", signature="f->f", reference=reference.quarters, cost=4,
    meaning="12582912 + k, k whole: the quarter turns nearest to x radians, if they are many mod 4",
    points=((0.5,), (-4.0,), (1e5,)),
)
angle = Op(
    name="angle", signature="ff->f", reference=reference.angle, cost=10,
    meaning="what is left of x radians without k quarter turns, q = quarters(x) = 12582912 + k",
    points=((0.5, 12582912.0), (-4.0, 12582909.0), (1e5, 12582912.0 + 63662 % 4)),
)
far_quarters = Op(
    name="far_quarters", signature="f->f", reference=reference.quarters, cost=50,
    meaning="quarters(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)
far_angle = Op(
    name="far_angle", signature="f->f", cost=60,
    reference=lambda x: reference.angle(x, reference.quarters(x)),
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
    name="sin_turns", signature="f->f", reference=reference.sin_turns, cost=14, transcendental=True,
    meaning="the sine of x turns, sin(2*pi*x)", points=((0.3,), (-1.3,), (1e5,), (50000.3,)),
    interval=interval.within(-1.0, 1.0),
)
cos_turns = Op(
    name="cos_turns", signature="f->f", reference=reference.cos_turns, cost=12, transcendental=True,
    meaning="the cosine of x turns, cos(2*pi*x)", points=((0.3,), (-1.3,), (1e5,), (50000.3,)),
    interval=interval.within(-1.0, 1.0),
)
sine = Op(
    name="sine", signature="ff->f", reference=reference.sine, cost=12, transcendental=True,
    meaning="the sine of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
    interval=interval.within(-1.0, 1.0),
)
cosine = Op(
    name="cosine", signature="ff->f", reference=reference.cosine, cost=12, transcendental=True,
    meaning="the cosine of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
    interval=interval.within(-1.0, 1.0),
)
tangent = Op(
    name="tangent", signature="ff->f", reference=reference.tangent, cost=16, transcendental=True,
    meaning="the tangent of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
)
