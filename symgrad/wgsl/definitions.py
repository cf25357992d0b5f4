"""The library's own functions, as WGSL functions: each once, before those that call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from symgrad.expr.node import INPUT, Op, reachable
from symgrad.kernel.schedule import bind
from symgrad.mathlib.define import Function
from symgrad.wgsl.expression import PRIMARY, TYPES, Text, literal, render


def definitions(used: Iterable[Op], functions: Mapping[Op, Function]) -> Iterator[str]:
    """The lines of the functions that these operations need."""
    for op in _in_order(used, functions):
        yield from _function(functions[op], functions)


def _in_order(used: Iterable[Op], functions: Mapping[Op, Function]) -> list[Op]:
    """The operations that are functions, callees before callers, in the order of their names."""
    done: dict[Op, None] = {}
    stack = sorted((op for op in used if op in functions), key=lambda op: op.name, reverse=True)
    while stack:
        op = stack[-1]
        callees = sorted(
            {c for c in _calls(functions[op]) if c in functions and c not in done},
            key=lambda c: c.name,
        )
        if callees:
            stack.extend(callees)
        else:
            done.setdefault(stack.pop())
    return list(done)


def _calls(function: Function) -> set[Op]:
    graph = function.graph
    return {graph.nodes[i][0] for i in reachable(graph, [function.root])}


def _function(function: Function, functions: Mapping[Op, Function]) -> Iterator[str]:
    graph, root = function.graph, function.root
    names = {op: f.name for op, f in functions.items()}
    texts: dict[int, Text] = {
        i: (graph.names[graph.nodes[i][1]], PRIMARY) for i in function.arguments
    }
    order = [i for i in reachable(graph, [root]) if graph.nodes[i][0].arity]
    bound = bind(graph, order, [root])
    parameters = ", ".join(
        f"{texts[i][0]}: {TYPES[kind]}"
        for i, kind in zip(function.arguments, function.op.signature, strict=False)
    )
    yield f"// {function.doc}"
    yield f"fn {function.name}({parameters}) -> {TYPES[function.op.result]} {{"
    for i in order:
        assert graph.nodes[i][0] is not INPUT, "arguments are no operations"
        expression = render(graph, i, texts, names)
        if i in bound and i != root:
            yield f"  let t{i} = {expression[0]};"
            expression = (f"t{i}", PRIMARY)
        texts[i] = expression
    yield f"  return {texts[root][0] if root in texts else literal(graph.nodes[root])[0]};"
    yield "}"
    yield ""
