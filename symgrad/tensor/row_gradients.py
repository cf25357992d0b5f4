"""The gradients of functions of rows: reverse mode through their reductions, as expressions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.row import Reduction, Reductions


class RowGradients:
    """The gradients of a row's elements, of what its reductions and its results give."""

    def __init__(self, reductions: Reductions, inputs: Sequence[int]) -> None:
        self.reductions, self.graph, self.inputs = reductions, reductions.graph, inputs
        self.forward = list(reductions.entries)
        self.wrt = [*inputs, *(r.symbol for r in self.forward)]
        self.each: defaultdict[int, list[int]] = defaultdict(list)
        """What elements give to inputs: a node for each element."""
        self.once: defaultdict[int, list[int]] = defaultdict(list)
        """What rows give to reductions: once for a row."""

    def of(self, result: int, cotangent: int) -> list[int]:
        """The gradients of the inputs, for a cotangent of a result."""
        self._pull(result, cotangent)
        for reduction in reversed(self.forward):
            self._through(reduction)
        return [_sum(self.graph, self.each[i]) for i in self.inputs]

    def _pull(self, node: int, cotangent: int) -> None:
        """What a node with a cotangent gives."""
        parts = self.each if self.reductions.varies(node) else self.once
        for i, contribution in zip(
            self.wrt, vjp(self.graph, {node: cotangent}, self.wrt), strict=True
        ):
            if contribution is not None:
                parts[i].append(contribution)

    def _through(self, reduction: Reduction) -> None:
        """What the elements of a reduction get of what the reduction has got."""
        graph, i = self.graph, reduction.symbol
        each = _sum(graph, self.each[i]) if self.each[i] else None
        summed = [] if each is None else [self.reductions.of("sum", each)]
        parts = [*summed, *self.once[i]]
        if not parts:
            return
        cotangent = _sum(graph, parts)
        if reduction.kind != "sum":
            cotangent = self._shared(reduction, cotangent)
        self._pull(reduction.node, cotangent)

    def _shared(self, reduction: Reduction, cotangent: int) -> int:
        """The cotangent of an extreme: elements that are equal to it have the same part of it."""
        element, extreme, incoming = (
            Expr(self.graph, i) for i in (reduction.node, reduction.symbol, cotangent)
        )
        is_it: Any = element == extreme
        many = self.reductions.of("sum", ops.where(is_it, 1.0, 0.0).id)
        return ops.where(is_it, incoming / Expr(self.graph, many), 0.0).id


def _sum(graph: Graph, parts: Sequence[int]) -> int:
    """The sum of some nodes."""
    if not parts:
        return graph.constant(0.0)
    total = parts[0]
    for part in parts[1:]:
        total = graph.add(ops.add, total, part)
    return total
