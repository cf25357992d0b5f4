"""Activations of neural networks, with the slopes of those that have formulas of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Masked, Op
from symgrad.expr.ops.arithmetic import abs
from symgrad.expr.ops.comparison import isnan, where
from symgrad.expr.ops.error_function import bell, fading
from symgrad.expr.ops.trigonometric import logistic, tanh

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

relu = Op(
    name="relu", signature="f->f", reference=lambda x: np.maximum(x, 0), meaning="maximum(x, 0)",
    cost=2, vjp=lambda g, y, x: (Masked(~(x <= 0.0), where(x > 0.0, g, x)),),
    edges="the derivative at 0 is 0", points=((0.5,), (-4.0,)),
    public=True,
    definition=lambda x: where((x > 0.0) | isnan(x), x, 0.0),
)
silu = Op(
    name="silu", signature="f->f", reference=references.silu, cost=24,
    meaning="x*sigmoid(x), also called swish; 0 at -inf", partials=lambda y, x: (silu_slope(x),),
    transcendental=True, edges="right where sigmoid(x) is subnormal, which devices flush",
    points=((0.5,), (-4.0,), (0.0,)),
    public=True,
)
silu_slope = Op(
    name="silu_slope", signature="f->f", reference=references.silu_slope, cost=30,
    meaning="sigmoid(x)*(1 + x*sigmoid(-x)), the derivative of silu", transcendental=True,
    partials=lambda y, x: (logistic(x) * (2.0 - x * tanh(0.5 * x)),),
    points=((0.5,), (-4.0,), (0.0,)),
)
gelu = Op(
    name="gelu", signature="f->f",
    reference=references.gelu, cost=44,
    meaning="x*Phi(x), Phi the normal distribution function (the exact form); 0 at -inf",
    partials=lambda y, x: (gelu_slope(x),), transcendental=True,
    points=((0.5,), (-4.0,), (0.0,), (1e-5,), (1e20,), (-3e38,)),
    public=True,
)


def _gelu_curvature(x: Any) -> Any:
    y = bell(x)
    x = fading(x, y)
    return (1.0 / math.sqrt(2.0 * math.pi)) * (2.0 * y - x * (x * y))


gelu_slope = Op(
    name="gelu_slope", signature="f->f", reference=references.gelu_slope, cost=60,
    meaning="Phi(x) + x*phi(x), phi the normal density: the derivative of gelu",
    partials=lambda y, x: (_gelu_curvature(x),), transcendental=True, points=((0.5,), (-2.0,)),
)
gelu_tanh = Op(
    name="gelu_tanh", signature="f->f", reference=references.gelu_tanh, cost=28,
    meaning="the tanh approximation of gelu, another function: they differ by up to 5e-4",
    partials=lambda y, x: (gelu_tanh_slope(x),), transcendental=True,
    points=((0.5,), (-4.0,), (0.0,), (1e-5,), (31.0,), (-3e38,)),
    public=True,
)


def _gelu_tanh_curvature(x: Any) -> Any:
    """The second derivative of x*sigmoid(z), z = a (x + b x**3); 0 from |x| = 30 on."""
    a, b = references.GELU_TANH
    x = where(abs(x) > 30.0, 30.0, x)
    z, slope, bend = a * (x + b * (x * x * x)), a * (1.0 + 3.0 * b * (x * x)), 6.0 * a * b * x
    turn = x * (slope * slope) * tanh(0.5 * z)
    return logistic(z) * ((2.0 * slope + x * bend) - turn)


gelu_tanh_slope = Op(
    name="gelu_tanh_slope", signature="f->f", reference=references.gelu_tanh_slope, cost=44,
    meaning="the derivative of gelu_tanh", partials=lambda y, x: (_gelu_tanh_curvature(x),),
    transcendental=True, points=((0.5,), (-4.0,), (0.0,)),
)
