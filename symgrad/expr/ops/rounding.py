"""Whole numbers: rounding in every direction, and what divisions leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import stop_gradient
from symgrad.expr.ops.comparison import where

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

floor = Op(
    name="floor", signature="f->f", reference=np.floor, meaning="the largest integer <= x",
    llvm="call {f} @llvm.floor.{m}({f} {0})",
    wgsl="floor({0})", partials=lambda y, x: (None,), whole=True, points=((0.5,), (-4.5,)),
    latex=r"\left\lfloor {0} \right\rfloor",
    public=True,
)
ceil = Op(
    name="ceil", signature="f->f", reference=np.ceil, meaning="the smallest integer >= x",
    llvm="call {f} @llvm.ceil.{m}({f} {0})",
    wgsl="ceil({0})", partials=lambda y, x: (None,), whole=True, points=((0.5,), (-4.5,)),
    latex=r"\left\lceil {0} \right\rceil",
    public=True,
)
round = Op(
    name="round", signature="f->f", reference=np.round, meaning="the nearest integer",
    llvm="call {f} @llvm.roundeven.{m}({f} {0})",
    wgsl="round({0})", partials=lambda y, x: (None,), edges="half goes to even",
    whole=True, points=((0.5,), (-4.5,), (1.7,)),
    public=True,
)
trunc = Op(
    name="trunc", signature="f->f", reference=np.trunc, meaning="the integer part",
    llvm="call {f} @llvm.trunc.{m}({f} {0})",
    wgsl="trunc({0})", partials=lambda y, x: (None,), whole=True, points=((0.5,), (-4.5,)),
    public=True,
)
fract = Op(
    name="fract", signature="f->f", reference=lambda x: x - np.floor(x), meaning="x - floor(x)",
    compose=lambda x: x - floor(x), cost=2, edges="the derivative is 1", points=((0.25,), (-4.5,)),
    public=True,
)


def _turns(y: Any, a: Any, b: Any) -> Any:
    """The whole number (a - y)/b, y a remainder; a - y may overflow, and y = b be infinite."""
    return round(a / b - where(y == b, 1.0, y / b))


remainder = Op(
    name="remainder", signature="ff->f", reference=np.remainder, cost=6,
    meaning="a - b*floor(a/b), with the sign of b, as Python's %",
    partials=lambda y, a, b: (1, -_turns(y, a, b)), latex=r"{0} \bmod {1}",
    domain="b != 0", edges="NaN at b = 0", points=((7.5, 2.0), (-7.5, 2.0), (7.25, -3.0)),
    public=True,
)
fmod = Op(
    name="fmod", signature="ff->f", reference=np.fmod, cost=6,
    meaning="a - b*trunc(a/b), with the sign of a, as C's fmod",
    partials=lambda y, a, b: (1, -_turns(y, a, b)),
    domain="b != 0", edges="NaN at b = 0", points=((7.5, 2.0), (-7.5, 2.0), (7.25, -3.0)),
    public=True,
)
floor_divide = Op(
    name="floor_divide", signature="ff->f", reference=np.floor_divide,
    meaning="floor(a / b) of the exact quotient, as Python's //",
    compose=lambda a, b: where(b == 0.0, stop_gradient(a / b), _turns(remainder(a, b), a, b)),
    points=((7.5, 2.0), (-7.5, 2.0)),
    edges="the derivative is structurally 0",
    public=True,
)
