"""Definitions of float64 on pairs: operation by operation, where that keeps the digits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from symgrad.expr import ops
from symgrad.expr.graph.node import ANY_INPUT, CONST, Graph, Op, inputs_of, reachable
from symgrad.expr.laws.simplify import Definition, simplify
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.mathlib.pair.expression import Paired, call, constant, less

Formula = Callable[..., Any]


def on_pairs(formula: Formula, definitions: Callable[[], Mapping[Op, Definition]]) -> Formula:
    """A definition on floats as one on pairs, the operations with ``definitions`` expanded."""

    @wraps(formula)
    def on(*arguments: Paired) -> Paired:
        graph = Graph()
        graph.tracing = False
        names = formula.__code__.co_varnames
        inputs = [graph.input(n) for n, _ in zip(names, arguments, strict=False)]
        value = formula(*[Expr(graph, i) for i in inputs])
        simple, (root,) = simplify(graph, [value.id], True, definitions())
        given = dict(zip(inputs_of(simple), arguments, strict=True))
        return translated(simple, root, given)

    return on


def translated(graph: Graph, root: int, given: Mapping[int, Paired]) -> Paired:
    """The value of a graph of floats on pairs, its inputs being given.

    What is opaque on floats is a sum, and sums of pairs are so anyway. A product that nothing but a
    sum with a constant uses is one with it, as in Horner's rule.
    """
    order = reachable(graph, [root])
    uses = Counter(a for i in order if graph.nodes[i][0].arity for a in graph.nodes[i][1:])
    values: dict[int, Any] = dict(given)
    like = next(iter(given.values()))
    for i in order:
        op, *arguments = graph.nodes[i]
        if op is ops.opaque:
            values[i] = values[arguments[0]]
        elif op is ops.sub and (origin := graph.value(arguments[1])):
            values[i] = _from_root(values[arguments[0]], origin)
        elif op is ops.add and (terms := _fused(graph, arguments, uses)):
            values[i] = call(ops.fma, *[values[t] for t in terms])
        elif op.arity:
            values[i] = _applied(op, [values[a] for a in arguments], like.graph)
        elif op is CONST:
            values[i] = constant(like, Graph.leaf_value(graph.nodes[i]))
        elif op not in ANY_INPUT:
            values[i] = WRAP[op.result](like.graph, like.graph.intern(graph.nodes[i]))
    return values[root]


def _applied(op: Op, arguments: list[Any], graph: Graph) -> Any:
    if "f" in op.signature:
        return call(op, *arguments)
    return WRAP[op.result](graph, graph.add(op, *[a.id for a in arguments]))


def _fused(graph: Graph, terms: Sequence[int], uses: Mapping[int, int]) -> tuple[int, ...]:
    """The factors and the constant of a sum, if it is one of a product and a constant."""
    for product, other in (terms, reversed(terms)):
        node = graph.nodes[product]
        if node[0] is ops.mul and uses[product] == 1 and graph.nodes[other][0] is CONST:
            return *node[1:], other
    return ()


def _from_root(value: Paired, root: float) -> Paired:
    """The distance from a constant, which may be a root, and has more digits than a pair."""
    lost = less(root)
    return value - root - lost if lost else value - root
