"""Proven facts: an interval for every node, from which signs, finiteness and comparisons follow.

The interval [low, high] holds for every value of the inputs for which the node is not NaN, in any
rounding; ``-0.0`` counts as negative, so low >= 0 says that the sign bit is clear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, WORD, Graph, Node, Op, bits_float, reachable
from symgrad.expr.graph.region import Choice, Loop, Pick
from symgrad.expr.ops.interval import ANY, BELOW_ZERO, POSITIVE, Fixed, Interval, join

FLOAT32_SMALLEST: Final = 2.0**-126
"""The smallest float32 that no device flushes to 0."""
FLOAT32_LARGEST: Final = (2 - 2.0**-23) * 2.0**127
_WORDS: Final = (0.0, 2.0**32)
"""The interval of words as floats."""
_LOWS: Final = (-math.inf, -1.0, BELOW_ZERO, 0.0, 1.0)
_HIGHS: Final = (math.inf, 1.0, 0.0)
"""The ends that the intervals of carries are widened to."""
_PASSES: Final = 6
"""How often a loop's intervals are widened before nothing is concluded of it."""
_MOST_FACTORS: Final = 16
"""Factors of a product up to which they are looked at one by one."""
_MARGIN: Final = 2.0**-22
"""More than the relative error of an operation that is rounded to float32."""


def rounded(interval: Interval) -> Interval:
    """The interval widened to what float32 makes of its ends: rounding, underflow, overflow."""
    low, high = interval
    if math.isfinite(low) and low not in (0.0, BELOW_ZERO):
        low = min(low - abs(low) * _MARGIN, FLOAT32_LARGEST)
        low = 0.0 if 0 < low < FLOAT32_SMALLEST else low
    if math.isfinite(high) and high != 0.0:
        high = high + abs(high) * _MARGIN
        high = (
            FLOAT32_SMALLEST
            if 0 < high < FLOAT32_SMALLEST
            else 0.0
            if -FLOAT32_SMALLEST < high < 0
            else high
        )
        high = math.inf if high > FLOAT32_LARGEST else high
    return low, high


def _widened(a: Interval, b: Interval) -> Interval:
    """The interval a if b is within it, else one of few around both, so that widening ends."""
    low = a[0] if b[0] >= a[0] else max(x for x in _LOWS if x <= b[0])
    return (low, a[1] if b[1] <= a[1] else min(x for x in _HIGHS if x >= b[1]))


_FINITE: Final[dict[Op, Callable[..., float]]] = {
    ops.add: lambda a, b: a + b,
    ops.sub: lambda a, b: a + b,
    ops.neg: lambda a: a,
    ops.opaque: lambda a: a,
    ops.abs: lambda a: a,
    ops.mul: lambda a, b: a * b,
    ops.sqrt: math.sqrt,
}
"""Operations that are finite for finite arguments only, and how large they can be."""


class Facts:
    """Proven facts of the nodes of one graph, each computed once, when it is first needed.

    A node's interval needs those of its arguments, which a pass that goes through the arena in
    order has already asked for; deeper than ``_DEPTH`` unknown levels nothing is concluded.
    ``inputs`` are intervals that are known of inputs, words among them.
    """

    _DEPTH = 8

    def __init__(self, graph: Graph, inputs: Mapping[int, Interval] | None = None) -> None:
        self.graph = graph
        self._known: dict[int, Interval] = dict(inputs or {})
        self._results: dict[int, list[Interval]] = {}
        self._factors: dict[int, frozenset[int]] = {}

    def interval(self, i: int, depth: int = 0) -> Interval:
        """The proven interval of node i."""
        interval = self._known.get(i)
        if interval is None:
            if depth > self._DEPTH:
                return ANY
            interval = self._known[i] = self._conclude(i, depth)
        return interval

    def _conclude(self, i: int, depth: int) -> Interval:
        """The interval of node i, by the rule of its operation."""
        node = self.graph.nodes[i]
        op = node[0]
        rule = op.interval
        if rule is None:
            return self._without_rule(node, depth)
        if op is ops.mul and self._is_square(i, depth):
            return POSITIVE
        if rule.__class__ is Fixed:
            return rounded(rule())
        return rounded(rule(*[self._argument(a, depth + 1) for a in node[1:]]))

    def _without_rule(self, node: Node, depth: int) -> Interval:
        """The interval of a constant, a whole power, a word as a number, or a result; else any."""
        op = node[0]
        if op is CONST:
            value = bits_float(node[1])
            if math.isnan(value):
                return ANY
            negative_zero = value == 0 and math.copysign(1, value) < 0
            return rounded((BELOW_ZERO if negative_zero else value, value))
        if op is ops.integer_pow:
            return POSITIVE if self.graph.nodes[node[2]][1] % 2 == 0 else ANY
        if op is ops.word_float:
            return self._known.get(node[1], _WORDS)
        return self._result(node[1], op.index, depth) if op.__class__ is Pick else ANY

    def _result(self, i: int, index: int, depth: int) -> Interval:
        """The interval of a result of a loop or a choice; of other tuples nothing is known."""
        op, *args = self.graph.nodes[i]
        if not isinstance(op, Loop | Choice):
            return ANY
        if i not in self._results:
            self._results[i] = (
                self._carried(op, args, depth + 1)
                if isinstance(op, Loop)
                else self._chosen(op, args, depth + 1)
            )
        return self._results[i][index]

    def _chosen(self, op: Choice, args: Sequence[int], depth: int) -> list[Interval]:
        """The intervals of both sides of a choice together."""
        intervals = self._intervals(op.body.params, args[1:], depth)
        sides = [Facts(op.body.graph, intervals).all(side) for side in op.sides()]
        return [join(None, a, b) for a, b in zip(*sides, strict=True)]

    def _carried(self, op: Loop, args: Sequence[int], depth: int) -> list[Interval]:
        """The intervals of a loop's carries, by induction: what one iteration keeps, all keep."""
        body, (inits, captures) = op.body, op.split(args[2:])
        k, (params, outside) = body.params[0], op.split(body.params[1:])
        intervals = self._intervals(outside, captures, depth) | {k: self._counter(args[0], args[1])}
        carries = self._intervals(params, inits, depth)
        then = dict(zip(params, body.yields, strict=False))
        for _ in range(_PASSES):
            bounded = [p for p, interval in carries.items() if interval != ANY]
            after = Facts(body.graph, intervals | carries).all([then[p] for p in bounded])
            pairs = zip(bounded, after, strict=True)
            wider = carries | {p: _widened(carries[p], a) for p, a in pairs}
            if wider == carries:
                return [carries.get(p, ANY) for p in params]
            carries = wider
        return [ANY] * op.carries

    def _counter(self, lo: int, hi: int) -> Interval:
        """The interval of the counter of a loop between two words."""
        first, last = (self.graph.nodes[i] for i in (lo, hi))
        return (
            float(first[1]) if first[0] is WORD else 0.0,
            max(float(last[1]) - 1, 0.0) if last[0] is WORD else _WORDS[1],
        )

    def _intervals(
        self, params: Sequence[int], ids: Sequence[int], depth: int
    ) -> dict[int, Interval]:
        """The intervals of floats, by the parameters that they are."""
        pairs = zip(params, ids, strict=True)
        return {p: self.interval(i, depth) for p, i in pairs if self.graph.type(i) == "f"}

    def all(self, roots: Sequence[int]) -> list[Interval]:
        """The intervals of these nodes, those of all that they need concluded before."""
        nodes, known = self.graph.nodes, self._known
        for i in reachable(self.graph, roots):
            if i not in known and nodes[i][0].result == "f":
                known[i] = self._conclude(i, 0)
        return [self._argument(i, 0) for i in roots]

    def _is_square(self, i: int, depth: int) -> bool:
        """Whether node i is a product of squares and of factors with a clear sign bit.

        The sign bit of a product is clear if an even number of its factors have it set.
        """
        (_, a, b), nodes = self.graph.nodes[i], self.graph.nodes
        if a == b:
            return True
        alone = nodes[a][0] is not ops.mul and nodes[b][0] is not ops.mul
        factors = (a, b) if alone else self._single(i, depth)
        return all(self.interval(k, depth + 1)[0] >= 0 for k in factors)

    def _single(self, i: int, depth: int) -> frozenset[int]:
        """The factors of node i, of products within it too, that it has an odd number of times.

        A product of many is a factor itself.
        """
        factors = self._factors.get(i)
        if factors is not None:
            return factors
        nodes = self.graph.nodes
        if nodes[i][0] is not ops.mul or depth > self._DEPTH:
            return frozenset((i,))
        _, a, b = nodes[i]
        factors = self._single(a, depth + 1) ^ self._single(b, depth + 1)
        if len(factors) > _MOST_FACTORS:
            factors = frozenset((i,))
        if all(nodes[k][0] is not ops.mul or k in self._factors for k in (a, b)):
            self._factors[i] = factors  # it is whole
        return factors

    def _argument(self, i: int, depth: int) -> Interval:
        if self.graph.nodes[i][0].result != "f":
            return ANY
        return self._known.get(i) or self.interval(i, depth)

    def largest(self, i: int, depth: int = 0) -> float:
        """The largest magnitude that finite values of node i may have.

        The interval of a square root has no such bound, as it may be infinite; but where it, or a
        sum with it, is finite, so is what it is the root of.
        """
        op, *args = self.graph.nodes[i]
        low, high = self.interval(i, depth)
        bound = min(max(abs(low), abs(high)), FLOAT32_LARGEST)
        if op in _FINITE and bound == FLOAT32_LARGEST and depth < self._DEPTH:
            known = _FINITE[op](*(self.largest(a, depth + 1) for a in args))
            bound = min(bound, known * (1.0 + _MARGIN))
        return bound

    def nonnegative(self, i: int) -> bool:
        """Whether node i is NaN or has a clear sign bit."""
        return self.interval(i)[0] >= 0

    def positive(self, i: int) -> bool:
        """Whether node i is NaN or > 0."""
        return self.interval(i)[0] > 0

    def nonzero(self, i: int) -> bool:
        """Whether node i is a finite constant other than 0."""
        value = self.graph.value(i)
        return value is not None and value != 0 and math.isfinite(value)

    def finite(self, i: int) -> bool:
        """Whether node i is a finite number for every input.

        NaN and infinite inputs are allowed, so only constants and choices among them are.
        """
        node = self.graph.nodes[i]
        return all(map(self._is_finite_constant, node[2:] if node[0] is ops.where else (i,)))

    def _is_finite_constant(self, i: int) -> bool:
        value = self.graph.value(i)
        return value is not None and math.isfinite(value)

    def decide(self, op: Op, a: int, b: int) -> bool | None:
        """False if the comparison never holds, NaN or not; None if that is not proven."""
        if op is ops.lt and self.interval(a)[0] >= self.interval(b)[1]:
            return False
        if op is ops.le and self.interval(a)[0] > self.interval(b)[1]:
            return False
        return None
