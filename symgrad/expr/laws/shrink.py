"""Loops and choices without their unneeded parts, and laws of regions.

What is not needed: results, the carries that none needs, captures, carries that never change, and
carries and captures that are constants. A loop of constants alone is one itself, its value by the
references of operations. The laws: a loop of no iteration is its inits, one of few iterations its
body as often; results of the last iteration that depend on captures alone are computed behind the
loop; a choice whose condition is known is one of its sides, and a result that both sides give is no
result of a choice; within a side the condition is known. All are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import TRUTH, WORD, Graph, inputs_of, reachable
from symgrad.expr.graph.region import (
    TURNS,
    Choice,
    Loop,
    Region,
    Regional,
    choice_op,
    close,
    loop_op,
    pick,
)
from symgrad.expr.laws.fuse import copied
from symgrad.expr.semantics.evaluate import FOLDED, constant_node, evaluate_graph

UNROLLED_ITERATIONS: Final = 4
"""Iterations up to which a loop with a small body is written out."""

UNROLLED_COST: Final = 64
"""The most that the iterations of a loop that is written out cost together, in additions."""

FOLDED_STEPS: Final = 2**11
"""Operations that evaluating a loop of constants takes at most: some milliseconds."""

Simplify = Callable[[Graph, Sequence[int]], tuple[Graph, list[int]]]
"""The graph of some roots, simplified, and the roots in it; all inputs are kept."""

Inline = Callable[[Region, Sequence[int], Mapping[int, int]], list[int]]
"""The nodes of a region in the graph that is made, of which its parameters are nodes."""


class Shrinking:
    """Loops and choices on their way into a graph that is made.

    ``inline`` makes nodes of a region there, and ``simplify`` simplifies its graph.
    ``laws`` says whether laws are applied.
    """

    def __init__(self, graph: Graph, simplify: Simplify, inline: Inline, laws: bool) -> None:
        self._graph, self._simplify, self._inline, self._laws = graph, simplify, inline, laws

    def results(
        self, op: Loop | Choice, used: Iterable[int], args: Sequence[int]
    ) -> dict[int, int]:
        """The results that are wanted, by number, where the arguments are made."""
        if isinstance(op, Choice):
            return self._choice(op, set(used), args)
        results, numbers = dict[int, int](), set(used)
        if TURNS in numbers and not op.test:
            numbers.remove(TURNS)
            results[TURNS] = self._iterations(args[0], args[1])
        return results | self._loop(op, numbers, args)

    # --- loops ------------------------------------------------------------------------------------

    def _iterations(self, lo: int, hi: int) -> int:
        """How many iterations a loop takes that has no test."""
        graph, zero = self._graph, self._graph.intern((WORD, 0))
        count = self._count(lo, hi)
        if count is not None:
            return graph.intern((WORD, count))
        some = graph.add(ops.word_lt, lo, hi)
        return graph.add(ops.word_where, some, graph.add(ops.word_sub, hi, lo), zero)

    def _count(self, lo: int, hi: int) -> int | None:
        """The number of iterations between two bounds, if it is known."""
        ends = self._graph.nodes[lo], self._graph.nodes[hi]
        if lo == hi:
            return 0
        return max(0, ends[1][1] - ends[0][1]) if ends[0][0] is ends[1][0] is WORD else None

    def _loop(self, op: Loop, used: set[int], args: Sequence[int]) -> dict[int, int]:
        """The used results of a loop, by the first law that fits, or of a smaller loop."""
        count, (inits, outside) = self._count(args[0], args[1]), op.split(args[2:])
        if count == 0:
            zero = {TURNS: self._graph.intern((WORD, 0))}
            return {j: inits[j] if j >= 0 else zero[TURNS] for j in used}
        fixed = {j for j, init in enumerate(inits) if self._is_fixed(op, j, init)}
        results = {j: inits[j] for j in used & fixed}
        if self._laws and count is not None and not op.test:
            if count == 1 or (count <= UNROLLED_ITERATIONS and op.cost <= UNROLLED_COST):
                return results | self._written_out(op, used - fixed, args, count)
            results |= self._behind(op, used - fixed, outside)
        return results | self._smaller(op, used - results.keys(), args, fixed)

    def _is_fixed(self, op: Loop, j: int, init: int) -> bool:
        """Whether carry j never changes."""
        then, graph = op.body.yields[j], op.body.graph
        node = graph.nodes[then]
        return then == op.body.params[1 + j] or (
            node[0].constant and node == self._graph.nodes[init]
        )

    def _written_out(
        self, op: Loop, used: set[int], args: Sequence[int], count: int
    ) -> dict[int, int]:
        """The results of a loop as those of its body, iteration by iteration."""
        (lo, *_), (carries, outside) = args, op.split(args[2:])
        k, *params = op.body.params
        _, needed = _needed(op, used)
        first = self._graph.nodes[lo][1] if self._graph.nodes[lo][0] is WORD else None
        assert first is not None or count == 1, "bounds are known"
        for iteration in reversed(range(count)) if op.down else range(count):
            at = lo if first is None else self._graph.intern((WORD, first + iteration))
            new = {k: at, **dict(zip(params, [*carries, *outside], strict=True))}
            then = self._inline(op.body, [op.body.yields[j] for j in needed], new)
            for j, i in zip(needed, then, strict=True):
                carries[j] = i
        return {j: carries[j] for j in used}

    def _behind(self, op: Loop, used: set[int], outside: Sequence[int]) -> dict[int, int]:
        """Results that depend on captures alone, of a loop that takes some iteration."""
        params = op.body.params
        inner = set(params[: 1 + op.carries])
        for i in range(len(op.body.graph)):
            if not inner.isdisjoint(op.body.graph.args(i)):
                inner.add(i)
        js = [j for j in sorted(used) if op.body.yields[j] not in inner]
        new = dict(zip(params[1 + op.carries :], outside, strict=True))
        ends = self._inline(op.body, [op.body.yields[j] for j in js], new) if js else []
        return dict(zip(js, ends, strict=True))

    def _smaller(
        self, op: Loop, used: set[int], args: Sequence[int], fixed: set[int]
    ) -> dict[int, int]:
        """The results of the loop without what they do not need."""
        if not used:
            return {}
        k, *params = op.body.params
        seen, carries = _needed(op, used - {TURNS}, fixed)
        others = [n for n in range(len(params)) if n not in carries and params[n] in seen]
        region, captures = self._cut(
            op.body,
            [k, *[params[j] for j in carries]],
            {params[n]: args[2 + n] for n in others},
            [*[op.body.yields[j] for j in carries], *op.body.yields[op.carries :]],
        )
        count = self._count(args[0], args[1])
        most = op.most
        if count is not None and (not op.test if most is None else count < most):
            most = count  # of a loop with a test and no limit the count is no bound that tells
        arguments = [*args[:2], *[args[2 + j] for j in carries], *captures]
        numbers = {j: n for n, j in enumerate(carries)} | {TURNS: TURNS}
        whole = loop_op(region, len(carries), op.test, op.down, most)
        if self._is_folded(whole, [numbers[j] for j in used], arguments, count):
            return {j: self._folded(whole, numbers[j], arguments) for j in used}
        region = self._simplified(region)
        small = loop_op(region, len(carries), op.test, op.down, most)
        if self._is_least(small, arguments):
            loop = self._graph.intern((small, *arguments))
            return {j: pick(self._graph, loop, numbers[j], _kind(small, numbers[j])) for j in used}
        again = self._loop(small, {numbers[j] for j in used}, arguments)
        return {j: again[numbers[j]] for j in used}

    def _is_folded(
        self, op: Loop, used: Iterable[int], args: Sequence[int], count: int | None
    ) -> bool:
        """Whether these results are constants, and known soon."""
        if count is None or not all(self._graph.nodes[a][0].constant for a in args):
            return False
        iterations = count if op.most is None else min(count, op.most)
        return iterations * _steps(op.body) <= FOLDED_STEPS and all(
            _kind(op, j) in FOLDED for j in used
        )

    def _folded(self, op: Loop, number: int, args: Sequence[int]) -> int:
        """The constant that a result of a loop of constants is."""
        alone, kind = Graph(), _kind(op, number)
        loop = alone.intern((op, *[alone.intern(self._graph.nodes[a]) for a in args]))
        ((value,),) = evaluate_graph(alone, [pick(alone, loop, number, kind)], {})
        return self._graph.intern(constant_node(kind, value))

    def _is_least(self, op: Loop, args: Sequence[int]) -> bool:
        """Whether a loop has no fixed carry, and no capture or carry that is not needed."""
        inits, _ = op.split(args[2:])
        seen = set(reachable(op.body.graph, op.body.yields))
        return not any(self._is_fixed(op, j, i) for j, i in enumerate(inits)) and (
            seen.issuperset(op.body.params[1 + op.carries :])
        )

    # --- choices ----------------------------------------------------------------------------------

    def _choice(self, op: Choice, used: set[int], args: Sequence[int]) -> dict[int, int]:
        """The used results of a choice: those that its sides share, and those of a smaller one."""
        condition, *outside = args
        node = self._graph.nodes[condition]
        new, (one, other) = dict(zip(op.body.params, outside, strict=True)), op.sides()
        if not self._laws:
            return self._chosen(op, sorted(used), condition, (one, other), new)
        if node[0] is ops.logical_not:
            condition, one, other = node[1], other, one
            node = self._graph.nodes[condition]
        equal = one if node[0] is TRUTH and node[1] else other
        same = [j for j in sorted(used) if node[0] is TRUTH or one[j] == other[j]]
        ends = self._inline(op.body, [equal[j] for j in same], new)
        rest = sorted(used.difference(same))
        results = dict(zip(same, ends, strict=True))
        return results | self._chosen(op, rest, condition, (one, other), new)

    def _chosen(
        self,
        op: Choice,
        used: Sequence[int],
        condition: int,
        sides: tuple[Sequence[int], Sequence[int]],
        new: Mapping[int, int],
    ) -> dict[int, int]:
        """The results of a choice that has no others."""
        if not used:
            return {}
        graph, yields = op.body.copy(), list[int]()
        for side, holds in zip(sides, (1, 0), strict=True):
            values = {p: p for p in new}
            if self._laws:
                truth = graph.intern((TRUTH, holds))
                values |= {p: truth for p, a in new.items() if a == condition}
            yields += copied(graph, Region(graph, (), tuple(side[j] for j in used)), values)
        seen = set(reachable(graph, yields))
        needed = {p: a for p, a in new.items() if p in seen}
        region, captures = self._closed(Region(graph, (), ()), [], needed, yields)
        n = len(used)
        small = choice_op(region, n)
        first, second = small.sides()
        if self._laws and any(a == b for a, b in zip(first, second, strict=True)):
            again = self._choice(small, set(range(n)), [condition, *captures])
            return {j: again[m] for m, j in enumerate(used)}
        choice = self._graph.intern((small, condition, *captures))
        kinds = region.types(first)
        return {j: pick(self._graph, choice, m, kinds[m]) for m, j in enumerate(used)}

    # --- both -------------------------------------------------------------------------------------

    def _closed(
        self, body: Region, params: Sequence[int], outside: Mapping[int, int], yields: Sequence[int]
    ) -> tuple[Region, list[int]]:
        """The region simplified, and what is outside of it: see `_cut`."""
        region, captured = self._cut(body, params, outside, yields)
        return self._simplified(region), captured

    def _cut(
        self, body: Region, params: Sequence[int], outside: Mapping[int, int], yields: Sequence[int]
    ) -> tuple[Region, list[int]]:
        """The region of what the yields need, and what is outside of it.

        A parameter for what is a constant outside is that constant; those for the same are one.
        """
        graph, replace, captured = body.copy(), dict[int, int](), dict[int, int]()
        for p, a in outside.items():
            node = self._graph.nodes[a]
            if node[0].constant:
                replace[p] = graph.intern(node)
            elif captured.setdefault(a, p) != p:
                replace[p] = captured[a]
        region, _ = close(graph, [*params, *captured.values()], yields, replace)
        return region, list(captured)

    def _simplified(self, region: Region) -> Region:
        graph, roots = self._simplify(region.graph, region.yields)
        graph.release()
        return Region(graph, tuple(inputs_of(graph)), tuple(roots))


def _steps(body: Region) -> float:
    """How many operations a region takes at most; infinitely many if that, or one, is not known."""
    graph, steps = body.graph, 1.0
    for i in reachable(graph, body.yields):
        op = graph.nodes[i][0]
        if isinstance(op, Regional):
            iterations = op.most if isinstance(op, Loop) else 1
            steps += _steps(op.body) * (math.inf if iterations is None else iterations)
        steps += math.inf if op is ops.opaque else 1
    return steps


def _kind(op: Loop, number: int) -> str:
    return "u" if number == TURNS else op.body.graph.type(op.body.yields[number])


def _needed(op: Loop, used: Iterable[int], fixed: Iterable[int] = ()) -> tuple[set[int], list[int]]:
    """The nodes that results and the test need in any iteration, and the carries among them."""
    body, params = op.body, op.body.params
    still = set(fixed)
    number = {p: j for j, p in enumerate(params[1 : 1 + op.carries]) if j not in still}
    seen, numbers = set[int](), set(used)
    stack = [body.yields[j] for j in numbers] + list(body.yields[op.carries :])
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack += body.graph.args(i)
            if i in number and number[i] not in numbers:
                numbers.add(number[i])
                stack.append(body.yields[number[i]])
    return seen, sorted(numbers)
