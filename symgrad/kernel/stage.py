"""What of a reduction needs no row: computed once, rather than at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from symgrad.expr import ops
from symgrad.expr.node import INPUT, Graph, reachable
from symgrad.kernel.plan import Output, Reduction


@dataclass(frozen=True)
class Stages:
    """The operations of a reduction: ``once`` of the parameters alone, ``each`` at every row.

    ``carried`` are the values of the first kind, parameters among them, that the second needs.
    """

    once: Sequence[int]
    each: Sequence[int]
    carried: Sequence[int]


def stages(reduction: Reduction) -> Stages:
    """The operations of a reduction, by what they depend on."""
    graph = reduction.graph
    nodes, roots = graph.nodes, [i for o in reduction.outputs for i in o.nodes]
    order = reachable(graph, roots)
    rows = _varying(graph, order, reduction.parameters)
    for i in reversed(order):  # conditions and words are cheap: they are made where they are used
        if i in rows and nodes[i][0].arity:
            rows.update(a for a in nodes[i][1:] if nodes[a][0].arity and graph.type(a) != "f")
    each = [i for i in order if nodes[i][0].arity and i in rows]
    wanted = dict.fromkeys([*(a for i in each for a in nodes[i][1:]), *roots])
    carried = sorted(
        i for i in wanted if i not in rows and (nodes[i][0].arity or nodes[i][0] is INPUT)
    )
    once = [i for i in reachable(graph, [*carried, *reduction.factors]) if nodes[i][0].arity]
    return Stages(once, each, carried)


def _varying(graph: Graph, order: Sequence[int], parameters: int) -> set[int]:
    """The nodes that depend on the row."""
    nodes = graph.nodes
    found: set[int] = set()
    for i in order:
        if nodes[i][0] is INPUT:
            if nodes[i][1] >= parameters:
                found.add(i)
        elif nodes[i][0].arity and not found.isdisjoint(nodes[i][1:]):
            found.add(i)
    return found


def hoisted(reduction: Reduction) -> Reduction:
    """The same reduction with less to do at each row.

    A quotient by what no row changes becomes a product with its reciprocal, which is rounded once
    more; and a factor that no row changes, of a whole result, is applied to the sum.
    """
    old = reduction.graph
    graph = _like(old)
    roots = [i for o in reduction.outputs for i in o.nodes]
    order = reachable(old, roots)
    varying = _varying(old, order, reduction.parameters)
    for name in old.names:
        graph.input(name)
    new: dict[int, int] = {}
    for i in order:
        op, *args = old.nodes[i]
        graph.place = old.places[i]
        if op is INPUT or not op.arity:
            new[i] = graph.intern(old.nodes[i])
        elif op is ops.div and args[0] in varying and args[1] not in varying:
            new[i] = graph.add(ops.mul, new[args[0]], graph.add(ops.reciprocal, new[args[1]]))
        else:
            new[i] = graph.add(op, *[new[a] for a in args])
    fixed = set(range(len(graph))) - {new[i] for i in varying}
    outputs: list[Output] = []
    factors: list[int] = []
    for output in reduction.summed:
        pairs = [_peel(graph, new[i], fixed) for i in output.nodes]
        outputs.append(Output(output.name, tuple(inner for inner, _ in pairs)))
        factors += [factor for _, factor in pairs]
    for output in reduction.outputs[len(outputs) :]:
        outputs.append(Output(output.name, tuple(new[i] for i in output.nodes)))
    return replace(reduction, graph=graph, outputs=tuple(outputs), factors=tuple(factors))


def _like(graph: Graph) -> Graph:
    """An empty graph that knows the same lines of the user's program."""
    made = Graph()
    made.tracing, made.sources = False, graph.sources
    return made


def _peel(graph: Graph, i: int, fixed: set[int]) -> tuple[int, int]:
    """The value without the factors that no row changes, and their product."""
    factor, negative = -1, False
    while True:
        op, *args = graph.nodes[i]
        if op is ops.neg:
            i, negative = args[0], not negative
        elif op is ops.mul and (args[0] in fixed) != (args[1] in fixed):
            k = 0 if args[0] in fixed else 1
            i, new = args[1 - k], args[k]
            factor = new if factor < 0 else graph.add(ops.mul, factor, new)
        elif factor < 0:
            return i, graph.constant(-1.0 if negative else 1.0)
        else:
            return i, graph.add(ops.neg, factor) if negative else factor


def arranged(graph: Graph, roots: Sequence[int], inputs: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph of some nodes, its inputs these, numbered in this order, and none else."""
    made = _like(graph)
    new = {i: made.input(graph.names[graph.nodes[i][1]]) for i in inputs}
    for i in reachable(graph, roots):
        if i in new:
            continue
        op, *args = graph.nodes[i]
        assert op is not INPUT, "an input is left out, but needed"
        made.place = graph.places[i]
        new[i] = made.add(op, *[new[a] for a in args]) if op.arity else made.intern(graph.nodes[i])
    return made, [new[i] for i in roots]
