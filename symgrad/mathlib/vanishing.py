"""Whether compilers may find out that a value is 0, whatever the inputs of its graph are.

They fold constants, take x - x and 0*x for 0, reassociate sums and cancel what is equal. All that
is true of real numbers, except that products of constants underflow: what is no zero function of
real inputs they do not take for one. As much of that is proven here as costs little.
"""

from __future__ import annotations

import math
from functools import cache, reduce
from operator import or_
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, Graph, Op
from symgrad.expr.laws.facts import Facts

DEPTH: Final = 8
"""Operations below a value that are looked at; of what lies deeper nothing is concluded."""

UNDERFLOW: Final = -126.0
"""The binary logarithm of the least product of constants that no device flushes to 0."""

_LEAVES: Final = frozenset({INPUT, ops.opaque})
"""Nodes that compilers know nothing of."""

_SUMS: Final = frozenset({ops.add, ops.sub})
_PRODUCTS: Final = frozenset({ops.mul, ops.div})

_ZERO_AT_ZERO: Final = frozenset({ops.neg, ops.abs, ops.sqrt})
"""0 where their argument is, and nowhere else."""

_STEPS: Final = frozenset({ops.floor, ops.ceil, ops.round, ops.trunc, ops.sign})
"""Constant over ranges of their argument."""

_CIRCULAR: Final = frozenset({ops.angle, ops.sine, ops.cosine, ops.tangent})
"""Functions of an angle whose quarter turns are their second argument."""


class Vanishing:
    """The proofs about the nodes of one graph.

    ``variable`` says whether inputs vary: those of a kernel do, but the arguments of a function may
    be constants where it is called.
    """

    def __init__(self, graph: Graph, variable: bool) -> None:
        self.graph, self.facts, self._variable = graph, Facts(graph), variable
        self._vanishes = cache(self._find_vanishing)
        self._varies = cache(self._find_varying)
        self._inputs = cache(self._find_inputs)
        self._underflow = cache(self._find_underflow)

    def possible(self, i: int) -> bool:
        """Whether node i may be known to be 0."""
        return self._vanishes(i, 0)

    def _find_vanishing(self, i: int, depth: int) -> bool:
        op, *args = self.graph.nodes[i]
        if op in _SUMS and depth <= DEPTH and self._apart(args, depth + 1):
            return False
        low, high = self.facts.interval(i)
        if low > 0.0 or high < 0.0:
            return False
        if depth > DEPTH or op is CONST:
            return True
        if op in _SUMS:
            return not self._of_one_sign(op, args, depth + 1)
        if op in _PRODUCTS:
            zero = any(self._vanishes(a, depth + 1) for a in args[: 2 if op is ops.mul else 1])
            return zero or self._underflow(i, depth) < UNDERFLOW
        if op in _ZERO_AT_ZERO or op is ops.where:
            return any(self._vanishes(a, depth + 1) for a in args[-2:])
        return not self._varies(i, depth)

    def _of_one_sign(self, op: Op, args: list[int], depth: int) -> bool:
        """Whether a sum is not 0, as both of its terms have one sign."""
        (low, high), (first, last) = (self.facts.interval(a) for a in args)
        first, last = (-last, -first) if op is ops.sub else (first, last)
        alike = min(low, first) >= 0.0 or max(high, last) <= 0.0
        return alike and not all(self._vanishes(a, depth) for a in args)

    def _apart(self, args: list[int], depth: int) -> bool:
        """Whether the arguments share no input, and one of them varies."""
        shared = self._inputs(args[0], depth) & self._inputs(args[-1], depth)
        return (len(args) == 1 or not shared) and any(self._varies(a, depth) for a in args)

    def _find_varying(self, i: int, depth: int) -> bool:
        """Whether node i is proven to be no constant."""
        op, *args = self.graph.nodes[i]
        if op in _LEAVES or depth > DEPTH:
            return op is ops.opaque or (op is INPUT and self._variable)
        if op in _PRODUCTS and any(self._vanishes(a, depth + 1) for a in args):
            return False
        if op in _CIRCULAR:
            return self._varies(args[0], depth + 1)
        known = op in _SUMS or op in _PRODUCTS or (op.signature == "f->f" and op not in _STEPS)
        return known and self._apart(args, depth + 1)

    def _find_inputs(self, i: int, depth: int) -> int:
        """The numbers of the inputs below node i, as bits; all bits where that is not known."""
        op, *args = self.graph.nodes[i]
        if op is INPUT:
            return 1 << args[0]
        if not op.arity or depth > DEPTH:
            return -1 if op.arity else 0
        return reduce(or_, (self._inputs(a, depth + 1) for a in args))

    def _find_underflow(self, i: int, depth: int) -> float:
        """The binary logarithm of the product of those constant factors of node i that are < 1."""
        op, *args = self.graph.nodes[i]
        if op is CONST:
            return min(_logarithm(self.graph, i), 0.0)
        if op not in _PRODUCTS or depth > DEPTH:
            return 0.0 if op not in _PRODUCTS else -math.inf
        first = self._underflow(args[0], depth + 1)
        if op is ops.mul:
            return first + self._underflow(args[1], depth + 1)
        return first + min(-_logarithm(self.graph, args[1]), 0.0)


def _logarithm(graph: Graph, i: int) -> float:
    """The binary logarithm of the size of a constant; 0 of anything else."""
    size = abs(graph.value(i) or 1.0)
    return math.log2(size) if math.isfinite(size) else 0.0
