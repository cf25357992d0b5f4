"""Kernels in pairs as graphs in float32: what compilers see once all functions are inlined."""

from __future__ import annotations

from collections.abc import Mapping
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


def kernel(name: str, slopes: bool) -> tuple[Graph, list[int]]:
    """An operation, and its first derivatives, as back ends get them in float32x2."""
    graph = Graph()
    graph.tracing = False
    op = ops.TABLE[name]
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(op.arity)]
    y = op(*x)
    roots = [y.id, *[verbs.grad(y, v).id for v in x[op.parameters :] if slopes]]
    graph, roots = simplify(graph, roots, True, inlined("accurate", "float32x2"))
    return lower(graph, roots, "accurate", "float32x2")


class Flat:
    """The values, and the first derivatives, of an operation in pairs."""

    def __init__(self, name: str, slopes: bool = False) -> None:
        graph, roots = kernel(name, slopes)
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
        with np.errstate(all="ignore"):
            given: dict[int, Array] = {}
            for (high, low), x in zip(self.inputs.values(), arguments, strict=True):
                given[high] = np.float32(x)
                given[low] = np.float32(x - np.float64(given[high]))
            halves = [np.float64(v) for v in device.evaluate(self.graph, self.roots, given)]
            return [high + low for high, low in zip(halves[::2], halves[1::2], strict=True)]


def as_pairs(x: Array) -> Array:
    """Numbers of float64, rounded to pairs."""
    high = np.float64(np.float32(x))
    return high + np.float64(np.float32(x - high))
