"""Comparisons, conditions and what they choose: where, the smaller and the larger."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Masked, Op
from symgrad.expr.ops import interval
from symgrad.expr.ops.law import exact

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

lt = Op(
    name="lt", signature="ff->b", reference=np.less, meaning="a < b",
    llvm="fcmp olt {f} {0}, {1}", wgsl="{0} < {1}",
    latex="{0} < {1}", points=((1.0, 2.0), (2.0, 2.0)),
)
le = Op(
    name="le", signature="ff->b", reference=np.less_equal, meaning="a <= b",
    llvm="fcmp ole {f} {0}, {1}", wgsl="{0} <= {1}",
    latex=r"{0} \le {1}", points=((1.0, 2.0), (2.0, 2.0)),
)
eq = Op(
    name="eq", signature="ff->b", reference=np.equal, meaning="a == b",
    llvm="fcmp oeq {f} {0}, {1}", wgsl="{0} == {1}",
    commutative=True, latex="{0} = {1}", points=((1.0, 2.0), (2.0, 2.0)),
)
ne = Op(
    name="ne", signature="ff->b", reference=np.not_equal, meaning="a != b",
    llvm="fcmp une {f} {0}, {1}",
    wgsl="!({0} == {1})",  # "!=" is false beside NaN, on Vulkan
    commutative=True, latex=r"{0} \ne {1}", points=((1.0, 2.0), (2.0, 2.0)),
    laws=lambda a, b: (exact(ne(a, a), isnan(a)),),
)
logical_and = Op(
    name="logical_and", signature="bb->b", reference=np.logical_and, meaning="a and b",
    llvm="and {b} {0}, {1}",
    wgsl="{0} & {1}", commutative=True, latex=r"{0} \wedge {1}", points=((0, 1), (1, 1)),
    laws=lambda a, b: (exact(a & a, a),),
    public=True,
)
logical_or = Op(
    name="logical_or", signature="bb->b", reference=np.logical_or, meaning="a or b",
    llvm="or {b} {0}, {1}",
    wgsl="{0} | {1}", commutative=True, latex=r"{0} \vee {1}", points=((0, 1), (1, 1)),
    laws=lambda a, b: (exact(a | a, a),),
    public=True,
)
logical_xor = Op(
    name="logical_xor", signature="bb->b", reference=np.logical_xor, meaning="one of a and b",
    llvm="xor {b} {0}, {1}",
    wgsl="{0} != {1}", commutative=True, latex=r"{0} \oplus {1}", points=((0, 1), (1, 1)),
    public=True,
)
logical_not = Op(
    name="logical_not", signature="b->b", reference=np.logical_not, meaning="not a",
    llvm="xor {b} {0}, {true}",
    wgsl="!{0}", latex=r"\neg {0}", points=((0,), (1,)), laws=lambda a: (exact(~~a, a),),
    public=True,
)
isnan = Op(
    name="isnan", signature="f->b", reference=np.isnan, meaning="whether x is NaN", cost=2,
    llvm="fcmp uno {f} {0}, {0}",
    wgsl="(bitcast<{w}>({0}) & {magnitude}) > {infinite}", points=((1.0,), (math.nan,)),
    public=True,
)
isinf = Op(
    name="isinf", signature="f->b", reference=np.isinf, meaning="whether x is +inf or -inf",
    llvm="a = call {f} @llvm.fabs.{m}({f} {0}); fcmp oeq {f} {a}, {infinity}",
    wgsl="(bitcast<{w}>({0}) & {magnitude}) == {infinite}", cost=2, points=((1.0,), (math.inf,)),
    public=True,
)
isfinite = Op(
    name="isfinite", signature="f->b", reference=np.isfinite, meaning="neither NaN nor infinite",
    llvm="a = call {f} @llvm.fabs.{m}({f} {0}); fcmp olt {f} {a}, {infinity}",
    wgsl="(bitcast<{w}>({0}) & {magnitude}) < {infinite}", cost=2, points=((1.0,), (math.nan,)),
    public=True,
)


where = Op(
    name="where", signature="bff->f", reference=references.where, cost=1,
    meaning="a where the condition c holds, else b",
    llvm="select {b} {0}, {f} {1}, {f} {2}", wgsl="select({2}, {1}, {0})",
    vjp=lambda g, y, c, a, b: (None, Masked(c, g), Masked(~c, g)),
    laws=lambda c, a, b: (
        exact(where(c, a, a), a),
        exact(where(~c, a, b), where(c, b, a)),
        exact(where(c, where(c, a, b), b), where(c, a, b)),
        exact(where(c, a, where(c, b, a)), a),
    ),
    latex=r"\begin{{cases}} {1} & {0} \\ {2} & \text{{otherwise}} \end{{cases}}",
    edges="nothing of the other branch reaches value or derivative, not even NaN",
    whole=True, points=((0, 2.0, -3.0), (1, 2.0, -3.0)),
    interval=interval.join, public=True,
)


def at_nan(condition: Any, value: Any) -> Any:
    """The value, but NaN where the condition holds: outside an operation's domain."""
    return where(condition, math.nan, value)


def _half_at_tie(g: Any, a: Any, b: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """The cotangents of a minimum or maximum: all to one, half to each, or NaN.

    What g is multiplied by has no derivative, so that second ones cost what those of a choice do.
    """
    part = g * where(first | second, 1.0, where(a == b, 0.5, math.nan))
    return Masked(~second, part), Masked(~first, part)


minimum = Op(
    name="minimum", signature="ff->f", reference=np.minimum, meaning="the smaller of a and b",
    cost=3,
    vjp=lambda g, y, a, b: _half_at_tie(g, a, b, a < b, b < a),
    laws=lambda a, b: (exact(minimum(a, a), a),),
    latex=r"\min\left({0}, {1}\right)",
    edges="NaN if either is; the derivative at a tie is half to each",
    whole=True, points=((1.5, -0.25), (-3.0, 7.0), (2.0, 2.0)),
    interval=lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), public=True,
)
maximum = Op(
    name="maximum", signature="ff->f", reference=np.maximum, meaning="the larger of a and b",
    cost=3,
    vjp=lambda g, y, a, b: _half_at_tie(g, a, b, b < a, a < b),
    laws=lambda a, b: (exact(maximum(a, a), a),),
    latex=r"\max\left({0}, {1}\right)",
    edges="NaN if either is; the derivative at a tie is half to each",
    whole=True, points=((1.5, -0.25), (-3.0, 7.0), (2.0, 2.0)),
    interval=interval.maximum, public=True,
)
clip = Op(
    name="clip", signature="fff->f", reference=np.clip, cost=6,
    meaning="x limited to [low, high]: minimum(maximum(x, low), high)",
    compose=lambda x, low, high: minimum(maximum(x, low), high),
    edges="the derivative at a bound is half", whole=True,
    points=((0.5, 0.0, 1.0), (3.0, 0.0, 1.0)),
    public=True,
)
