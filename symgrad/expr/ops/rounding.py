"""Whole numbers, remainders, powers of two, and numbers cut to half their digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr import references
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


# Parts of the float64 functions: powers of two, and numbers cut to half their digits.

scalb = Op(
    name="scalb", signature="ff->f", reference=references.scalb, cost=3,
    meaning="x * 2**k, k a whole number of at most 2044 in absolute value",
    llvm="h = fmul {f} {1}, {half}; i = call {f} @llvm.floor.{m}({f} {h}); "
    "j = fsub {f} {1}, {i}; p = fadd {f} {i}, {biased}; q = fadd {f} {j}, {biased}; "
    "pw = bitcast {f} {p} to {w}; qw = bitcast {f} {q} to {w}; "
    "ps = shl {w} {pw}, {digits}; qs = shl {w} {qw}, {digits}; "
    "pf = bitcast {w} {ps} to {f}; qf = bitcast {w} {qs} to {f}; y = fmul {f} {0}, {pf}; "
    "fmul {f} {y}, {qf}",
    llvm_v8f64="call {f} @llvm.x86.avx512.mask.scalef.pd.512({f} {0}, {f} {1}, {f} {0}, i8 -1, "
    "i32 4)",
    wgsl="ldexp({0}, i32({1}))", points=((1.5, 3.0), (-0.7, -5.0)),
)
power_of_two = Op(
    name="power_of_two", signature="f->f", reference=references.power_of_two, cost=2,
    meaning="2**k, k a whole number of a normal power", points=((3.0,), (-5.0,)),
    llvm="p = fadd {f} {0}, {biased}; pw = bitcast {f} {p} to {w}; ps = shl {w} {pw}, {digits}; "
    "bitcast {w} {ps} to {f}",
    wgsl="bitcast<{f}>(bitcast<{w}>({0} + {biased}) << {digits})",
)
exponent = Op(
    name="exponent", signature="f->f", reference=references.exponent, cost=3,
    meaning="floor(log2(|x|)) of a normal x", points=((1.5,), (-40.0,)),
    llvm="x = bitcast {f} {0} to {w}; s = lshr {w} {x}, {digits}; e = and {w} {s}, {exponents}; "
    "o = or {w} {e}, {whole}; v = bitcast {w} {o} to {f}; fsub {f} {v}, {whole_bias}",
    wgsl="{f}(i32((bitcast<{w}>({0}) >> {digits}) & {exponents}) - {bias})",
)
significand = Op(
    name="significand", signature="f->f", reference=references.significand, cost=2,
    meaning="x / 2**exponent(x) of a normal x, in ±[1, 2)", points=((1.5,), (-40.0,)),
    llvm="x = bitcast {f} {0} to {w}; d = and {w} {x}, {unscaled}; o = or {w} {d}, {one_word}; "
    "bitcast {w} {o} to {f}",
    wgsl="bitcast<{f}>((bitcast<{w}>({0}) & {unscaled}) | {one_word})",
)
upper = Op(
    name="upper", signature="f->f", reference=references.upper,
    meaning="x cut to half its digits, 26 of 53 bits (float32: 12 of 24): products are exact",
    llvm="x = bitcast {f} {0} to {w}; h = and {w} {x}, {leading}; bitcast {w} {h} to {f}",
    wgsl="bitcast<{f}>(bitcast<{w}>({0}) & {leading})", points=((1.5,), (-40.0 - 2.0**-40,)),
)
first_digits = Op(
    name="first_digits", signature="f->f", reference=references.first_digits, cost=3,
    meaning="x cut to a quarter of its digits, 13 of 53 bits (float32: 6 of 24): its fourth power "
    "is exact", edges="where |x| >= 2 it is less than |x|, also for inf: something is left of x",
    llvm="x = bitcast {f} {0} to {w}; s = lshr {w} {x}, {second}; o = and {w} {s}, {unit}; "
    "d = sub {w} {x}, {o}; h = and {w} {d}, {quarter}; bitcast {w} {h} to {f}",
    wgsl="bitcast<{f}>((bitcast<{w}>({0}) - ((bitcast<{w}>({0}) >> {second}) & {unit})) & "
    "{quarter})",
    points=((1.5,), (-40.0 - 2.0**-40,), (2.0,)),
)
