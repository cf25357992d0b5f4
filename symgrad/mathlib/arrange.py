"""The last changes to a graph before back ends get it: shared reductions, ordered sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.node import INPUT, Graph, Op, reachable

TURNED: Final = {ops.sin: ops.sine, ops.cos: ops.cosine, ops.tan: ops.tangent}
"""What each is of the angle and the quarter turns of its argument."""

SUMS: Final = frozenset({ops.add, ops.sub, ops.mul, ops.div})
"""What compilers take apart, or fuse with a product or sum that it is made of."""

Build = Callable[[Graph, Op, tuple[int, ...]], int]
"""Makes ``op(*arguments)`` in a new graph."""


def share_reductions(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which the sine, cosine and tangent of one argument have one reduction."""
    several = _arguments_of_several(graph, roots)
    if not several:
        return graph, list(roots)

    def build(target: Graph, op: Op, args: tuple[int, ...]) -> int:
        if op not in TURNED or args[0] not in wanted:
            return target.add(op, *args)
        q = target.add(ops.quarters, *args)
        return target.add(TURNED[op], target.add(ops.angle, *args, q), q)

    wanted: set[int] = set()
    return _rebuilt(graph, roots, build, lambda i, new: wanted.add(new) if i in several else None)


def _arguments_of_several(graph: Graph, roots: Sequence[int]) -> set[int]:
    seen: set[int] = set()
    several: set[int] = set()
    for i in reachable(graph, roots):
        node = graph.nodes[i]
        if node[0] in TURNED:
            (several if node[1] in seen else seen).add(node[1])
    return several


def without_normal(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, with erfc and exp(-x**2) for the normal distribution."""
    if not any(graph.nodes[i][0] in (ops.bell, ops.normal_cdf) for i in reachable(graph, roots)):
        return graph, list(roots)

    def build(target: Graph, op: Op, args: tuple[int, ...]) -> int:
        if op not in (ops.bell, ops.normal_cdf):
            return target.add(op, *args)
        sign = 1.0 if op is ops.bell else -1.0
        z = target.add(ops.mul, args[0], target.constant(sign * math.sqrt(0.5)))
        if op is ops.bell:
            return target.add(ops.exp_neg_square, z)
        return target.add(ops.mul, target.add(ops.erfc, z), target.constant(0.5))

    return _rebuilt(graph, roots, build, lambda _, __: None)


def ordered(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which every product and sum that another is made of is opaque.

    Compilers can then neither fuse a product with a sum nor reassociate, so that devices agree to
    the bit where they agree on the single operations.
    """

    def build(target: Graph, op: Op, args: tuple[int, ...]) -> int:
        if op in SUMS:
            args = tuple(_rounded(target, a) for a in args)
        return target.add(op, *args)

    return _rebuilt(graph, roots, build, lambda _, __: None)


def _rounded(graph: Graph, i: int) -> int:
    node = graph.nodes[i]
    inner = graph.nodes[node[1]] if node[0] is ops.neg else node
    return graph.add(ops.opaque, i) if inner[0] in SUMS else i


def _rebuilt(
    graph: Graph, roots: Sequence[int], build: Build, note: Callable[[int, int], object]
) -> tuple[Graph, list[int]]:
    """A copy with all inputs, its operations made by ``build``; ``note`` is told of each node."""
    target = Graph()
    target.tracing = False
    inputs = sorted((node[1], i) for i, node in enumerate(graph.nodes) if node[0] is INPUT)
    renamed = {i: target.input(graph.names[k]) for k, i in inputs}
    for i in renamed:
        note(i, renamed[i])
    for i in reachable(graph, roots):
        if i in renamed:
            continue
        node = graph.nodes[i]
        target.place = graph.places[i]
        arguments = tuple(renamed[a] for a in node[1:]) if node[0].arity else ()
        renamed[i] = build(target, node[0], arguments) if arguments else target.intern(node)
        note(i, renamed[i])
    target.sources = graph.sources
    return target, [renamed[i] for i in roots]
