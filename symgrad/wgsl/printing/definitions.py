"""The library's own functions, as WGSL functions: each once, before those that call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from symgrad.expr.graph.node import INPUT, Graph, Op, reachable
from symgrad.kernel.binding import bind
from symgrad.mathlib.define import Function, name_of
from symgrad.mathlib.pair.expression import TAKEN_APART
from symgrad.wgsl.printing.operations import PRIMARY, SINGLE, Floats, Text, render
from symgrad.wgsl.printing.pairs import OPAQUE, PAIR, PART


class Library:
    """The functions that a kernel may call, and their texts, each written once for all shaders."""

    def __init__(self, functions: Mapping[Op, Function], floats: Floats = SINGLE) -> None:
        self.names = {op: name_of(op) for op in functions}
        self._functions, self._in_pairs = functions, floats is PAIR
        self._floats = PART if self._in_pairs else floats
        self._texts: dict[Op, list[str]] = {}

    def definitions(self, used: Iterable[Op]) -> Iterator[str]:
        """The lines of the functions that these operations need."""
        needed = _in_order(used, self._functions)
        if needed and self._in_pairs:
            yield from OPAQUE
        for op in needed:
            if op not in self._texts:
                self._texts[op] = list(_function(self._functions[op], self.names, self._floats))
            yield from self._texts[op]


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


@cache
def _calls(function: Function) -> set[Op]:
    graph = function.graph
    return {graph.nodes[i][0] for i in reachable(graph, [function.root])}


def _function(function: Function, names: Mapping[Op, str], floats: Floats) -> Iterator[str]:
    graph = function.graph
    texts: dict[int, Text] = {
        i: (graph.names[graph.nodes[i][1]], PRIMARY) for i in function.arguments
    }
    texts |= {  # parts of pairs need no names
        i: (f"{texts[node[1]][0]}{node[0].wgsl[-2:]}", PRIMARY)
        for i, node in enumerate(graph.nodes)
        if node[0] in TAKEN_APART and node[1] in texts
    }
    parameters = ", ".join(
        f"{texts[i][0]}: {floats.types[kind]}"
        for i, kind in zip(function.arguments, function.op.signature, strict=False)
    )
    yield f"// {function.doc}"
    yield f"fn {function.name}({parameters}) -> {floats.types[function.op.result]} {{"
    root = function.root
    if rare := function.rare:
        yield from _statements(graph, rare, texts, names, floats)
        yield f"  if ({texts[rare[0]][0]}) {{ return {texts[rare[1]][0]}; }}"
        root = graph.nodes[root][3]
    yield from _statements(graph, [root], texts, names, floats)
    result = texts[root] if root in texts else floats.literal(graph.nodes[root])
    yield f"  return {result[0]};"
    yield "}"
    yield ""


def _statements(
    graph: Graph,
    roots: Sequence[int],
    texts: dict[int, Text],
    names: Mapping[Op, str],
    floats: Floats,
) -> Iterator[str]:
    """Lines for what the roots need and has no text yet; their own texts are expressions."""
    order = [i for i in reachable(graph, roots) if graph.nodes[i][0].arity and i not in texts]
    bound = bind(graph, order, roots) - set(roots)
    for i in order:
        assert graph.nodes[i][0] is not INPUT, "arguments are no operations"
        expression = render(graph, i, texts, names, floats)
        if i in bound:
            yield f"  let t{i} = {expression[0]};"
            expression = (f"t{i}", PRIMARY)
        texts[i] = expression
