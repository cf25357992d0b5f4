"""The last changes to a graph before back ends get it: sines of turns, shared reductions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, Graph, Node, Op, bits_float, float_bits, reachable
from symgrad.expr.graph.rebuild import outline, rebuild

CIRCULAR: Final = {ops.sin: ops.sine, ops.cos: ops.cosine, ops.tan: ops.tangent}
"""Each as an operation on the angle and the quarter turns of its argument."""

OF_TURNS: Final = {ops.sin: ops.sin_turns, ops.cos: ops.cos_turns}
"""Each as an operation on an argument in turns; a tangent has poles there, and stays as it is."""

DEGREES: Final = 720.0
"""The half degrees of a turn: all multiples of them are recognized."""

MOST: Final = 2048.0
"""The most turns that are."""

ONE: Final = (CONST, float_bits(1.0))


def in_turns(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which sin(2*pi*x) is sin_turns(x), and so for all multiples of half a degree.

    No float32 is a multiple of pi: 2*pi*x would be rounded twice, and what is left of it without
    its whole turns would have lost as many digits as these have. Off x they are taken exactly.
    """
    nodes = graph.nodes
    if not _has(graph, OF_TURNS) or not any(n[0] is CONST and _turns(n[1]) for n in nodes):
        return graph, list(roots)

    copy = outline(graph)
    target = copy.graph

    def sine(op: Op, x: int) -> int:
        turns = _in_turns(target, x)
        return target.add(op, x) if turns is None else target.add(OF_TURNS[op], turns)

    order = reachable(graph, roots)
    changed = {i: sine for i in order if nodes[i][0] in OF_TURNS}
    return rebuild(graph, order, copy, changed=changed).of(roots)


def _in_turns(graph: Graph, i: int, depth: int = 6) -> int | None:
    """Node i divided by 2*pi, if it is a multiple of half a degree, or a product with one."""
    op, *args = graph.nodes[i]
    if op is CONST:
        turns = _turns(args[0])
        return graph.constant(turns) if turns else None
    factors = {ops.mul: 2, ops.div: 1, ops.neg: 1}.get(op, 0) if depth else 0
    for k in range(factors):
        turns = _in_turns(graph, args[k], depth - 1)
        if turns is not None:
            one = op is ops.mul and graph.nodes[turns] == ONE
            return args[1 - k] if one else graph.add(op, *args[:k], turns, *args[k + 1 :])
    return None


def _turns(bits: int) -> float:
    """c/(2 pi) of the float c with these bits, if it is a multiple of half a degree, else 0."""
    turns = bits_float(bits) / (2.0 * math.pi)
    degrees = DEGREES * turns
    close = abs(turns) <= MOST and abs(degrees - round(degrees)) <= 2.0**-50 * abs(degrees)
    return round(degrees) / DEGREES if close else 0.0


def share_reductions(
    graph: Graph, roots: Sequence[int], merging: bool = False
) -> tuple[Graph, list[int]]:
    """The graph, in which the sine, cosine and tangent of one argument have one reduction.

    With ``merging``, constants are merged before, as by `merge_constants`: in the same copy, and
    in another one only where that has made one argument of two.
    """
    nodes = graph.nodes
    merges = merging and bool(_merged([node for node in nodes if node[0] is CONST]))
    shares = _has(graph, CIRCULAR) and bool(_of_several(graph, range(len(graph))))
    order = reachable(graph, roots) if merges or shares else []
    leaves = _merged([nodes[i] for i in order if nodes[i][0] is CONST]) if merges else {}
    several = _of_several(graph, order)
    if not (leaves or several):
        return graph, list(roots)
    copy = outline(graph)
    intern = copy.graph.intern

    def reduced(op: Op, x: int) -> int:
        quarters = intern((ops.quarters, x))
        return intern((CIRCULAR[op], intern((ops.angle, x, quarters)), quarters))

    changed = dict.fromkeys(several, reduced)
    copied = rebuild(graph, order, copy, changed=changed, leaves=leaves).of(roots)
    return share_reductions(*copied) if leaves else copied


def with_fused(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which a product that nothing but a sum uses is one with it: an `ops.fma`.

    Two products in a sum stay apart, so that equal ones cancel.
    """
    nodes, order = graph.nodes, reachable(graph, roots)
    uses = Counter([*roots, *(a for i in order if nodes[i][0].arity for a in nodes[i][1:])])
    copy = outline(graph)
    target = copy.graph

    def fused(side: int, op: Op, *terms: int) -> int:
        _, a, b = target.nodes[terms[side]]
        other = terms[1 - side]
        if op is ops.sub and side == 0:
            other = target.add(ops.neg, other)
        elif op is ops.sub:
            a = target.add(ops.neg, a)
        return target.add(ops.fma, a, b, other)

    def is_product(i: int) -> bool:
        op, *args = nodes[i]
        return op is ops.mul or (op is ops.neg and nodes[args[0]][0] is ops.mul)

    changed = {
        i: partial(fused, side)
        for i in order
        if nodes[i][0] in (ops.add, ops.sub)
        for side, (term, other) in enumerate(zip(nodes[i][1:], nodes[i][:0:-1], strict=True))
        if nodes[term][0] is ops.mul and uses[term] == 1 and not is_product(other)
    }
    return rebuild(graph, order, copy, changed=changed).of(roots) if changed else (graph, [*roots])


def _of_several(graph: Graph, order: Iterable[int]) -> list[int]:
    """The sines, cosines and tangents among these nodes whose arguments have several of them."""
    nodes = graph.nodes
    circular = [i for i in order if nodes[i][0] in CIRCULAR]
    times = Counter([nodes[i][1] for i in circular])
    return [i for i in circular if times[nodes[i][1]] > 1]


def _has(graph: Graph, wanted: Container[Op]) -> bool:
    """Whether any node is one of these operations."""
    return any(op in wanted for op in graph.heads)


def merge_constants(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which constants that are one number in float32 are one constant.

    Grids and sums computed in float64 differ in digits that no kernel in float32 has.
    """
    nodes = graph.nodes
    if not _merged([node for node in nodes if node[0] is CONST]):
        return graph, list(roots)  # without a walk
    order = reachable(graph, roots)
    merged = _merged([nodes[i] for i in order if nodes[i][0] is CONST])
    if not merged:
        return graph, list(roots)
    return rebuild(graph, order, outline(graph), leaves=merged).of(roots)


def _merged(constants: Sequence[Node]) -> dict[Node, Node]:
    """For each constant the first that is the same in float32, if that is another for any."""
    with np.errstate(over="ignore"):
        rounded = np.array([bits_float(bits) for _, bits in constants]).astype(np.float32)
    bits = rounded.view(np.uint32).tolist()
    first = dict(zip(reversed(bits), reversed(constants), strict=True))
    if len(first) == len(constants):
        return {}
    return {node: first[b] for node, b in zip(constants, bits, strict=True)}


def share_quotients(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which all that is divided by one denominator is multiplied by its reciprocal.

    That rounds twice, and a reciprocal may leave the range where a quotient does not.
    """
    order = reachable(graph, roots)
    quotients = [i for i in order if graph.nodes[i][0] is ops.div]
    reciprocals = [i for i in order if graph.nodes[i][0] is ops.reciprocal]
    times = Counter(graph.nodes[i][-1] for i in (*quotients, *reciprocals))
    several = [i for i in quotients if times[graph.nodes[i][2]] > 1]
    if not several:
        return graph, list(roots)
    copy = outline(graph)
    add = copy.graph.add

    def product(_: Op, a: int, b: int) -> int:
        return add(ops.mul, a, add(ops.reciprocal, b))

    return rebuild(graph, order, copy, changed=dict.fromkeys(several, product)).of(roots)
