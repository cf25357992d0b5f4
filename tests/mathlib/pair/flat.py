"""Kernels in pairs as graphs in float32: what compilers see once all functions are inlined."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import CONST, Graph, Op, inputs_of, reachable
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.define import functions, inlined, lower, operation
from symgrad.mathlib.pair.expression import HIGH, LOW, PAIR, parts

from ..emulate import Emulated

Array = Any
FUNCTIONS = functions("accurate", "float32x2")


def kernel(name: str, order: int) -> tuple[Graph, list[int]]:
    """An operation's derivatives of an order, or its value, as back ends get them in float32x2."""
    graph = Graph()
    graph.tracing = False
    op = ops.TABLE[name]
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(op.arity)]
    results: list[Any] = [op(*x)]
    for _ in range(order):
        results = [verbs.grad(y, v) for y in results for v in x[op.parameters :]]
    roots = [y.id for y in results]
    graph, roots = simplify(graph, roots, True, inlined("accurate", "float32x2"))
    return lower(graph, roots, "accurate", "float32x2")


class Flat:
    """The value of an operation in pairs, or its derivatives of an order."""

    def __init__(self, name: str, order: int = 0) -> None:
        graph, roots = kernel(name, order)
        self.graph = Graph()
        self.graph.tracing = False
        self.inputs = {
            i: (self.graph.input(f"high{i}"), self.graph.input(f"low{i}")) for i in inputs_of(graph)
        }
        values: dict[int, Any] = dict(self.inputs)
        for i in reachable(graph, roots):
            op, *args = graph.nodes[i]
            if op is CONST:
                values[i] = tuple(map(self.graph.constant, parts(Graph.leaf_value(graph.nodes[i]))))
            elif op.arity:
                values[i] = self._applied(operation(op, "float32x2"), [values[a] for a in args])
            elif i not in values:
                values[i] = self.graph.intern(graph.nodes[i])
        self.roots = [i for root in roots for i in values[root]]

    def _body(self, graph: Graph, root: int, given: Mapping[int, Any]) -> Any:
        values = dict(given)
        for i in reachable(graph, [root]):
            op, *args = graph.nodes[i]
            if op.arity:
                values[i] = self._applied(op, [values[a] for a in args])
            elif i not in values:
                values[i] = self.graph.intern(graph.nodes[i])
        return values[root]

    def _applied(self, op: Op, args: list[Any]) -> Any:
        if op is PAIR:
            return tuple(args)
        if op in (HIGH, LOW):
            return args[0][op is LOW]
        if op not in FUNCTIONS:
            return self.graph.add(op, *args)
        f = FUNCTIONS[op]
        return self._body(f.graph, f.root, dict(zip(f.arguments, args, strict=True)))

    def run(self, device: Emulated, *arguments: Array) -> list[Array]:
        """The results in float64, of arguments in float64 that are pairs."""
        given: dict[int, Array] = {}
        for halves, x in zip(self.inputs.values(), arguments, strict=True):
            given |= dict(zip(halves, split(x), strict=True))
        results = [np.float64(v) for v in device.evaluate(self.graph, self.roots, given)]
        return [
            np.where(low == 0.0, high, high + low)
            for high, low in zip(results[::2], results[1::2], strict=True)
        ]


@lru_cache(maxsize=100)
def flat(name: str, order: int = 0) -> Flat:
    """The value of an operation, or its derivatives of an order."""
    return Flat(name, order)


def split(x: Array) -> tuple[Array, Array]:
    """Numbers of float64 as the nearest float32, and the one nearest to the rest."""
    with np.errstate(all="ignore"):
        high = np.float32(x)
        return high, np.where(np.isfinite(high), np.float32(x - high), np.float32(0.0))


def as_pairs(x: Array) -> Array:
    """Numbers of float64, rounded to pairs."""
    high, low = split(x)
    return np.float64(high) + low
