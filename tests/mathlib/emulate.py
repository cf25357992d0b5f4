"""Devices worse than the ones here: subnormals flushed, quotients off, products fused with sums,
constants folded across both.

NumPy evaluates the definitions operation by operation, and does to each what a GPU may do to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import INPUT, Graph, inputs_of, reachable
from symgrad.expr.laws.simplify import Rewriter, simplify
from symgrad.expr.semantics.evaluate import leaf
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.define import functions, inlined, lower, primitive

from .fold import folded, with_functions

Array = Any

MOVED: Final = frozenset({
    ops.where, ops.float_bits, ops.bits_float, ops.abs, ops.neg, ops.copysign, ops.isnan, ops.isinf,
    ops.isfinite, ops.opaque, ops.word_float, ops.signed_float,
})  # fmt: skip
"""What moves bits, and flushes nothing."""

INEXACT: Final = {
    ops.div: 1.0, ops.ratio: 1.0, ops.reciprocal: 0.36, ops.sqrt: 0.36, ops.root: 0.36,
    ops.rsqrt: 0.7,
}  # fmt: skip
"""What devices round otherwise, and how far off it is beside a quotient, as on an H200."""


@dataclass(frozen=True)
class Emulated:
    """A device.

    Attributes:
        flushes: subnormals are 0, as arguments and as results; quotients are products with the
            reciprocal, which is 0 where it is subnormal.
        fuses: a product that is added is not rounded; of two products the one on this side, 1 or 2;
            0 for a device without a fused multiply-add.
        off: quotients are off by up to so many ULP before they are rounded, reciprocals and roots
            by their share of it: in one half of all places as far as they may, in a direction that
            depends on the operation, in the other half anyhow.
        folds: constants that are added, or multiplied by, one after another are one.
    """

    flushes: bool = False
    fuses: int = 0
    off: float = 0.0
    folds: bool = False

    def evaluate(self, graph: Graph, roots: Sequence[int], inputs: dict[int, Array]) -> list[Array]:
        """The values of the roots, in float32."""
        if self.folds:
            graph, roots, ids = folded(graph, roots)
            inputs = {ids[i]: value for i, value in inputs.items()}
        values: dict[int, Array] = dict(inputs)
        with np.errstate(all="ignore"):
            for i in reachable(graph, roots):
                node = graph.nodes[i]
                if node[0].arity:
                    values[i] = self._apply(graph, i, values)
                elif node[0] is not INPUT:
                    values[i] = leaf(node, np.float32)
        return [values[i] for i in roots]

    def _argument(self, graph: Graph, i: int, values: dict[int, Array]) -> Array:
        """A value as arithmetic takes it; results of arithmetic are flushed already."""
        op = graph.nodes[i][0]
        return self._flushed(values[i]) if op in MOVED or not op.arity else values[i]

    def _apply(self, graph: Graph, i: int, values: dict[int, Array]) -> Array:
        op, *args = graph.nodes[i]
        if op in MOVED:
            return op.reference(*[values[a] for a in args])
        given = [self._argument(graph, a, values) for a in args]
        product = self._product(graph, i)
        if product is not None:
            return self._flushed(self._fused(graph, i, product, values))
        result = self._inexact(op, given, i) if op in INEXACT else op.reference(*given)
        return self._flushed(result)

    def _product(self, graph: Graph, i: int) -> int | None:
        """Which argument of a sum is fused with it."""
        op, *args = graph.nodes[i]
        if not self.fuses or op not in (ops.add, ops.sub):
            return None
        products = [k for k, a in enumerate(args) if graph.nodes[a][0] is ops.mul]
        return products[-1 if self.fuses == 2 else 0] if products else None

    def _fused(self, graph: Graph, i: int, k: int, values: dict[int, Array]) -> Array:
        """The sum of an exact product and the other argument."""
        op, *args = graph.nodes[i]
        factors = graph.nodes[args[k]][1:]
        x, y = (self._argument(graph, a, values).astype(np.float64) for a in factors)
        given = [self._argument(graph, a, values).astype(np.float64) for a in args]
        given[k] = x * y
        return op.reference(*given).astype(np.float32)

    def _inexact(self, op: Any, given: list[Array], i: int) -> Array:
        """A quotient or a root, off by as much as the device's."""
        exact = np.asarray(op.reference(*given))
        if self.flushes and op is ops.div:
            exact = np.where(np.abs(given[1]) > 2.0**126, given[0] * np.float32(0.0), exact)
        if not self.off:
            return exact
        random = np.random.default_rng(i)
        share = random.uniform(-1.0, 1.0, exact.shape)
        share[::2] = random.choice([-1.0, 1.0])
        wide = op.reference(*[v.astype(np.float64) for v in given])
        moved = np.float32(wide + share * (self.off * INEXACT[op]) * np.spacing(np.abs(exact)))
        sure = (np.abs(exact) <= 2.0**-126) | ~np.isfinite(moved)
        if op in (ops.div, ops.reciprocal):
            sure |= np.frexp(given[-1])[0] == np.copysign(0.5, given[-1])
        return np.where(sure, exact, moved)

    def _flushed(self, value: Array) -> Array:
        if not self.flushes or np.asarray(value).dtype != np.float32:
            return value
        tiny = np.abs(value) < 2.0**-126
        return np.where(tiny, np.copysign(np.float32(0.0), value), value) if tiny.any() else value


def with_derivatives(name: str) -> tuple[Graph, list[int], list[int]]:
    """A function and its derivatives: the graph, its inputs, and the results."""
    graph = Graph()
    graph.tracing = False
    op = ops.TABLE[name]
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(op.arity)]
    y = op(*variables)
    roots = [y.id, *[verbs.grad(y, v).id for v in variables[op.parameters :]]]
    return graph, [v.id for v in variables], roots


def expanded(name: str, math: str = "accurate") -> tuple[Graph, list[int], list[int]]:
    """The same in operations of the device."""
    graph, _, roots = with_derivatives(name)
    graph, roots = primitives(graph, roots, math)
    return graph, inputs_of(graph), roots


def compiled(graph: Graph, roots: list[int], math: str = "accurate") -> tuple[Graph, list[int]]:
    """The graph in operations of the device, with all that kernels make opaque."""
    graph, roots = simplify(graph, roots, True, inlined(math))
    return with_functions(*lower(graph, roots, math, "float32"), functions(math))


def primitives(graph: Graph, roots: list[int], math: str = "accurate") -> tuple[Graph, list[int]]:
    """The graph in operations of the device."""
    if math != "strict":
        graph, roots = simplify(graph, roots, True, {**inlined(math), ops.div: _wide})
    return simplify(graph, roots, True, primitive(math))


def _wide(rewriter: Rewriter, a: int, b: int) -> int:
    """Kernels divide in this way by what may be large; definitions of functions do not."""
    return rewriter.graph.intern((ops.wide_div, a, b))
