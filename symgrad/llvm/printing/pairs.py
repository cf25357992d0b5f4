"""Pairs of float32 in registers: each has the bits of both where float64 has its own.

So they are moved, chosen and kept as float64 is. Arrays of the host have the sum of both, in
float64: what is read is taken apart, and what is written put together.
"""

from __future__ import annotations

from typing import Final

from symgrad.expr.graph.node import Op
from symgrad.mathlib.pair.expression import only_in_kernels

TAKEN_APART: Final = Op(
    name="pair_from_float64", signature="d->f", reference=only_in_kernels,
    meaning="the float32 nearest to a float64, and to the rest, which is 0 of an infinite one",
    llvm="h = fptrunc {d} {0} to {s}; w = fpext {s} {h} to {d}; z = fsub {d} {w}, {w}; "
    "r = fsub {d} {0}, {w}; rest = fptrunc {d} {r} to {s}; finite = fcmp ord {d} {z}, {z}; "
    "l = select {b} {finite}, {s} {rest}, {s} zeroinitializer; "
    "hv = bitcast {s} {h} to {sv}; lv = bitcast {s} {l} to {sv}; "
    "both = shufflevector {sv} {hv}, {sv} {lv}, {zipped}; bitcast {ss} {both} to {d}",
)  # fmt: skip

PUT_TOGETHER: Final = Op(
    name="float64_of_pair", signature="f->d", reference=only_in_kernels,
    meaning="the sum of a pair, rounded to float64, with the sign of 0 that the first has",
    llvm="v = bitcast {d} {0} to {ss}; "
    "e = shufflevector {ss} {v}, {ss} poison, {even}; h = bitcast {sv} {e} to {s}; "
    "o = shufflevector {ss} {v}, {ss} poison, {odd}; l = bitcast {sv} {o} to {s}; "
    "hw = fpext {s} {h} to {d}; lw = fpext {s} {l} to {d}; both = fadd {d} {hw}, {lw}; "
    "none = fcmp oeq {s} {h}, zeroinitializer; select {b} {none}, {d} {hw}, {d} {both}",
)  # fmt: skip
