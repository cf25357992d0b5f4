"""Devices whose compilers fold constants, as WGSL lets them: through lets, functions and choices.

What they make of a graph is another graph. A sum with a constant, to which another constant comes,
is one sum with the sum of both, rounded to float32; so are products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, Graph, Op, reachable
from symgrad.expr.graph.rebuild import outline, rebuild
from symgrad.mathlib.define import Function

SUMS = {ops.add, ops.sub}

Part = tuple[int | None, float]
"""The rest of a sum, or of a product, and the constant; None for a rest of nothing."""


def with_functions(
    graph: Graph, roots: Sequence[int], functions: Mapping[Op, Function]
) -> tuple[Graph, list[int]]:
    """The graph with the bodies of functions in the place of calls, as compilers inline them."""
    copy = outline(graph)

    def call(op: Op, *args: int) -> int:
        f = functions[op]
        ids = dict(zip(f.arguments, args, strict=True))
        for i in reachable(f.graph, [f.root]):
            node = f.graph.nodes[i]
            if node[0].arity:
                given = [ids[a] for a in node[1:]]
                ids[i] = call(node[0], *given) if node[0] in functions else add(node[0], *given)
            elif i not in ids:
                ids[i] = copy.graph.intern(node)
        return ids[f.root]

    add = copy.graph.add
    order = reachable(graph, roots)
    calls = {i: call for i in order if graph.nodes[i][0] in functions}
    return rebuild(graph, order, copy, changed=calls).of(roots)


def folded(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int], list[int]]:
    """The graph as such a compiler has it, its roots, and what all nodes have become."""
    copy = outline(graph)
    folding = _Folding(copy.graph)
    ids = [i if i >= 0 else 0 for i in copy.ids]
    for i in reachable(graph, roots):
        node = graph.nodes[i]
        if node[0].arity:
            ids[i] = folding.make(node[0], *[ids[a] for a in node[1:]])
        elif copy.ids[i] < 0:
            ids[i] = copy.graph.intern(node)
    return copy.graph, [ids[r] for r in roots], ids


class _Folding:
    """Nodes of a new graph, and what sums and products among them are made of."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sums: dict[int, Part] = {}
        self.products: dict[int, Part] = {}

    def make(self, op: Op, *args: int) -> int:
        """The id of ``op(*args)``, folded."""
        if op in SUMS:
            return self._sum(op, *args)
        if op is ops.mul:
            return self._product(*args)
        new = self.graph.add(op, *args)
        if op is ops.neg:
            self._note(self.sums, new, op, self._part(self.sums, args[0]))
            rest, c = self._part(self.products, args[0])
            if rest is not None and c != 1.0:
                self.products[new] = rest, -c
        return new

    def _part(self, parts: dict[int, Part], i: int) -> Part:
        if self.graph.nodes[i][0] is CONST:
            return None, float(np.float32(self.graph.value(i)))
        return parts.get(i, (i, 0.0 if parts is self.sums else 1.0))

    def _note(self, parts: dict[int, Part], new: int, op: Op, part: Part) -> None:
        rest, c = part
        if rest is not None and c:
            parts[new] = self.graph.add(op, rest), -c

    def _sum(self, op: Op, a: int, b: int) -> int:
        for k, (x, other) in enumerate(((a, b), (b, a))):
            node = self.graph.nodes[x]
            chosen = node[0] is ops.where and self.graph.nodes[other][0] is CONST
            if chosen and any(branch in self.sums for branch in node[2:]):
                sides = [(y, other) if k == 0 else (other, y) for y in node[2:]]
                return self.graph.add(ops.where, node[1], *[self._sum(op, *s) for s in sides])
        (rest, c), (last, d) = self._part(self.sums, a), self._part(self.sums, b)
        constant = float(op.reference(np.float32(c), np.float32(d)))
        if rest is None and last is None:
            return self.graph.constant(constant)
        if rest is None:
            assert last is not None
            both = self.graph.add(ops.neg, last) if op is ops.sub else last
        else:
            both = rest if last is None else self.graph.add(op, rest, last)
        if c and d:  # they meet
            new = self.graph.add(ops.add, both, self.graph.constant(constant)) if constant else both
        else:
            new = self.graph.add(op, a, b)
        if constant:
            self.sums[new] = both, constant
        return new

    def _product(self, a: int, b: int) -> int:
        (rest, c), (last, d) = self._part(self.products, a), self._part(self.products, b)
        with np.errstate(all="ignore"):
            constant = float(np.float32(c) * np.float32(d))
        if rest is None and last is None:
            return self.graph.constant(constant)
        both = last if rest is None else rest
        assert both is not None
        if rest is not None and last is not None:
            both = self.graph.add(ops.mul, rest, last)
        if c != 1.0 and d != 1.0:
            new = self.graph.add(ops.mul, both, self.graph.constant(constant))
        else:
            new = self.graph.add(ops.mul, a, b)
        if constant != 1.0:
            self.products[new] = both, constant
        self._distribute(new, a, b)
        return new

    def _distribute(self, new: int, a: int, b: int) -> None:
        """A multiple of a sum with a constant is one, too."""
        for k, x in ((a, b), (b, a)):
            factor = self.graph.value(k)
            if factor and x in self.sums:
                rest, c = self.sums[x]
                assert rest is not None
                multiple = float(np.float32(c) * np.float32(factor))
                self.sums[new] = self.graph.add(ops.mul, rest, k), multiple
