"""The library's own functions, as LLVM functions: each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

from symgrad.expr.node import Op, reachable
from symgrad.llvm.instruction import Shape, Writer, lone_products, single
from symgrad.mathlib.define import Function, name_of

INLINED = 6_000
"""Instructions of calls that are written in place: a call costs more than a short function."""


def names_of(functions: Iterable[Op], shape: Shape) -> dict[Op, str]:
    """The names of functions for numbers of this shape."""
    suffix = shape.suffix
    return {op: f"{name_of(op)}.{suffix}" for op in functions}


def closure(used: Iterable[Op], functions: Mapping[Op, Function]) -> list[Op]:
    """The operations that are functions, and those that they call."""
    found: dict[Op, None] = {}
    stack = [op for op in used if op in functions]
    while stack:
        op = stack.pop()
        if op not in found:
            found[op] = None
            graph = functions[op].graph
            heads = dict.fromkeys(graph.nodes[i][0] for i in reachable(graph, [functions[op].root]))
            stack.extend(h for h in heads if h in functions)
    return sorted(found, key=lambda op: op.name)


def definitions(
    used: Iterable[Op], functions: Mapping[Op, Function], shape: Shape, inline: bool
) -> Iterator[str]:
    """The lines of the functions that these operations need."""
    calls = names_of(functions, shape)
    needed = closure(used, functions)
    rare = [f for op in needed if (f := functions[op]).rare]
    far = {f.graph.nodes[f.rare[1]][0] for f in rare}
    for op in needed:
        function = functions[op]
        graph, root = function.graph, function.root
        left_out = {root, *function.rare[1:]} if function.rare else set[int]()
        order = [i for i in reachable(graph, [root]) if graph.nodes[i][0].arity]
        order = [i for i in order if i not in left_out]
        names = {a: f"%{graph.names[graph.nodes[a][1]]}" for a in function.arguments}
        parameters = ", ".join(
            f"{shape.types[kind]} {names[a]}"
            for a, kind in zip(function.arguments, op.signature, strict=False)
        )
        kept = graph.nodes[root][1:] if function.rare else [root]
        products = lone_products(graph, order, kept) if shape.fused else frozenset[int]()
        writer = Writer(graph, shape, calls, names, products)
        for i in order:
            writer.write(i)
        result = shape.types[op.result]
        hint = "noinline cold" if op in far else "alwaysinline" if inline else "noinline"
        yield f"define internal {result} @{calls[op]}({parameters}) {hint} #0 {{"
        if function.rare:
            yield from _branching(function, shape, writer)
            yield "}"
            yield ""
            continue
        yield from writer.lines
        if isfinite(function.bound):
            yield from _beyond(function, shape, writer.operand(root))
        else:
            yield f"  ret {result} {writer.operand(root)}"
        yield "}"
        yield ""


def _branching(function: Function, shape: Shape, writer: Writer) -> Iterator[str]:
    """The end of a function that rarely calls another: where no lane has to, none does."""
    condition, call = function.rare
    kind, truth = shape.types[function.op.result], shape.types["b"]
    test, near = writer.operand(condition), writer.operand(function.graph.nodes[function.root][3])
    yield from writer.lines
    writer.lines.clear()
    if shape.lanes > 1:
        yield f"  %any = call i1 @llvm.vector.reduce.or.v{shape.lanes}i1({truth} {test})"
    yield f"  br i1 {'%any' if shape.lanes > 1 else test}, label %rare, label %common"
    yield "common:"
    yield f"  ret {kind} {near}"
    yield "rare:"
    writer.write(call)
    writer.write(function.root)
    yield from writer.lines
    yield f"  ret {kind} {writer.operand(function.root)}"


def _beyond(function: Function, shape: Shape, near: str) -> Iterator[str]:
    """The end of a function that is right up to a bound only: the system's, for lanes beyond it."""
    (x,) = (f"%{function.graph.names[function.graph.nodes[a][1]]}" for a in function.arguments)
    kind, truth, suffix = shape.float, shape.types["b"], shape.suffix
    yield f"  %size = call {kind} @llvm.fabs.{suffix}({kind} {x})"
    yield f"  %far = fcmp ogt {kind} %size, {shape.number(function.bound)}"
    if shape.lanes > 1:
        yield f"  %any = call i1 @llvm.vector.reduce.or.v{shape.lanes}i1({truth} %far)"
    yield f"  br i1 {'%any' if shape.lanes > 1 else '%far'}, label %beyond, label %within"
    yield "within:"
    yield f"  ret {kind} {near}"
    yield "beyond:"
    yield f"  %system = {single(function.op, shape).format(x)}"
    yield f"  %both = select {truth} %far, {kind} %system, {kind} {near}"
    yield f"  ret {kind} %both"
