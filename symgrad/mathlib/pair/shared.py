"""Definitions of float64 on pairs: operation by operation, where that keeps the digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from symgrad.expr.graph.node import ANY_INPUT, CONST, Graph, Op, inputs_of, reachable
from symgrad.expr.laws.simplify import Definition, simplify
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.mathlib.pair.expression import Paired, call, constant

Formula = Callable[..., Any]


def on_pairs(formula: Formula, definitions: Callable[[], Mapping[Op, Definition]]) -> Formula:
    """A definition on floats as one on pairs, the operations with ``definitions`` expanded."""

    @wraps(formula)
    def on(*arguments: Paired) -> Paired:
        graph = Graph()
        graph.tracing = False
        names = formula.__code__.co_varnames
        values = formula(*[Expr(graph, graph.input(n)) for n, _ in zip(names, arguments)])
        simple, (root,) = simplify(graph, [values.id], True, definitions())
        given = dict(zip(inputs_of(simple), arguments, strict=True))
        return translated(simple, root, given)

    return on


def translated(graph: Graph, root: int, given: Mapping[int, Paired]) -> Paired:
    """The value of a graph of floats on pairs, its inputs being given."""
    values: dict[int, Any] = dict(given)
    like = next(iter(given.values()))
    for i in reachable(graph, [root]):
        op, *arguments = graph.nodes[i]
        if op.arity:
            values[i] = _applied(op, [values[a] for a in arguments], like.graph)
        elif op is CONST:
            values[i] = constant(like, float(graph.value(i)))
        elif op not in ANY_INPUT:
            values[i] = WRAP[op.result](like.graph, like.graph.intern(graph.nodes[i]))
    return values[root]


def _applied(op: Op, arguments: list[Any], graph: Graph) -> Any:
    if "f" in op.signature:
        return call(op, *arguments)
    return WRAP[op.result](graph, graph.add(op, *[a.id for a in arguments]))
