"""How WGSL has floats that are pairs of float32, and what functions of pairs are written with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.mathlib.define import operation
from symgrad.mathlib.pair.expression import parts
from symgrad.values.dtypes import PAIRS
from symgrad.wgsl.printing.operations import DOUBLE, PRIMARY, SINGLE, Floats, Text

OF_VECTORS: Final = frozenset({ops.neg, ops.where})
"""The operations whose texts are right for pairs as they are."""

OPAQUE_PAIR: Final = "bitcast<vec2<f32>>(bitcast<vec2<u32>>({0}) + params.zero)"
"""A pair that compilers cannot see through."""


class Pairs(Floats):
    """Floats that are pairs of float32: operations on them are calls, and the rest is float32's."""

    @property
    def type(self) -> str:
        """The name in WGSL: see `Floats`."""
        return "vec2<f32>"

    @property
    def word(self) -> str:
        """Two words: see `Floats`."""
        return "vec2<u32>"

    @cached_property
    def vocabulary(self) -> Mapping[str, str]:
        """Float32's: see `Floats`."""
        return SINGLE.vocabulary

    def vector(self, size: int, kind: str = "") -> str:
        """Several pairs side by side, which are a matrix: see `Floats`."""
        return super().vector(size, kind) if kind not in ("", self.type) else f"mat{size}x2<f32>"

    def component(self, k: int) -> str:
        """A column: see `Floats`."""
        return f"[{k}]"

    def operation(self, op: Op) -> Op:
        """The operation on pairs, unless WGSL's own text is right for vectors: see `Floats`."""
        return op if op in OF_VECTORS else operation(op, "float32x2")

    def params(self, more: str = "") -> str:
        """Float32's: see `Floats`."""
        return SINGLE.params(more)

    def pattern(self, op: Op) -> str:
        """The text of an operation on what is no pair, and of some on vectors: see `Floats`."""
        return OPAQUE_PAIR if op is ops.opaque else SINGLE.pattern(op)

    def number(self, value: float) -> Text:
        """A constant as a pair, each part rounded to float32: see `Floats`."""
        return f"vec2<f32>({', '.join(SINGLE.number(part)[0] for part in parts(value))})", PRIMARY


class Parts(Floats):
    """Floats in functions of pairs: as float32's, but what is opaque is a call."""

    def pattern(self, op: Op) -> str:
        """The text of an operation: see `Floats`."""
        return "opaque({0})" if op is ops.opaque else super().pattern(op)


OPAQUE: Final = (
    "// x, as a value that compilers cannot see through.",
    "fn opaque(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) + params.zero); }",
    "",
)
"""The function that functions of pairs call, for they do what compilers would undo."""


PAIR: Final = Pairs(PAIRS, 23, "f")
PART: Final = Parts(np.dtype(np.float32), 23, "f")

FLOATS: Final[Mapping[str, Floats]] = {"float32": SINGLE, "float64": DOUBLE, "float32x2": PAIR}
"""How WGSL has the floats of a kernel, by its dtype."""
