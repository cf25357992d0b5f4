"""Points of the plane: their distance from the origin and their angle, and the slopes of these.

With z = a + ib the slopes are parts of 1/z and of z/|z|, whose own are made of parts of them again:
products, for derivatives of any order, without a choice between formulas.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops import interval
from symgrad.expr.references import reference

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

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
    name="real_reciprocal", signature="ff->f", reference=reference.real_reciprocal, cost=18,
    meaning="a/(a**2 + b**2), the real part of 1/(a + ib)", partials=_real_reciprocal_partials,
    edges="0 at (0, 0) and at infinity", points=POINTS,
)
real_reciprocal_square = Op(
    name="real_reciprocal_square", signature="ff->f", reference=reference.real_reciprocal_square,
    meaning="(a**2 - b**2)/(a**2 + b**2)**2, the real part of 1/(a + ib)**2", cost=22,
    partials=_real_reciprocal_square_partials, edges="0 at (0, 0) and at infinity", points=POINTS,
)
direction = Op(
    name="direction", signature="ff->f", reference=reference.direction, cost=20,
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
