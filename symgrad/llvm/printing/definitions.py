"""The library's own functions, as LLVM functions: each once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from symgrad.expr.graph.node import Op, reachable
from symgrad.llvm.printing.operations import (
    NAMES,
    Shape,
    Writer,
    called,
    lone_products,
    uses_of,
)
from symgrad.mathlib.define import Function


def closure(used: Iterable[Op], functions: Mapping[Op, Function]) -> list[Op]:
    """The operations that are functions, and those that they call."""
    reached: dict[Op, None] = {}
    stack = [op for op in used if op in functions]
    while stack:
        op = stack.pop()
        if op not in reached:
            reached[op] = None
            graph = functions[op].graph
            heads = dict.fromkeys(graph.nodes[i][0] for i in reachable(graph, [functions[op].root]))
            stack.extend(h for h in heads if h in functions)
    return sorted(reached, key=lambda op: op.name)


def definitions(
    used: Iterable[Op], functions: Mapping[Op, Function], shape: Shape, inline: bool
) -> Iterator[str]:
    """The lines of the functions that these operations need."""
    needed = closure(used, functions)
    far = {f.graph.nodes[f.rare[1]][0] for op in needed if (f := functions[op]).rare}
    near = "alwaysinline" if inline else "noinline"
    for op in needed:
        hint = "noinline cold" if op in far else near
        yield from _definition(functions[op], shape, functions, hint)


def of_each(op: Op, shape: Shape) -> Iterator[str]:
    """The lines of a function of so many numbers that leaves what it makes of each in memory.

    LLVM writes instructions quickly, one by one, as long as none takes a vector apart: a function
    that calls this one has no such.
    """
    one, many = NAMES[shape.dtype], shape.float
    names = [f"%x{k}" for k in range(op.arity * shape.lanes)]
    parameters = ", ".join(f"{one} {name}" for name in names)
    yield f"define internal void @{called(op, shape)}.each({parameters}, ptr %to) noinline #0 {{"
    vectors: list[str] = []
    for k in range(op.arity):
        vector = "poison"
        for lane, name in enumerate(names[k * shape.lanes : (k + 1) * shape.lanes]):
            inserted = f"%v{k}.{lane}"
            yield f"  {inserted} = insertelement {many} {vector}, {one} {name}, i64 {lane}"
            vector = inserted
        vectors.append(f"{many} {vector}")
    yield f"  %made = call {many} @{called(op, shape)}({', '.join(vectors)})"
    yield f"  store {many} %made, ptr %to, align {shape.itemsize}"
    yield "  ret void"
    yield "}"
    yield ""


def _definition(function: Function, shape: Shape, calls: Container[Op], hint: str) -> Iterator[str]:
    """The lines of a function, with what the compiler should do with calls of it."""
    op, kinds, shape = function.op, function.op.signature, shape.parts
    names = {a: _argument(function, a) for a in function.arguments}
    parameters = ", ".join(
        f"{shape.types[kind]} {name}" for kind, name in zip(kinds, names.values(), strict=False)
    )
    writer = _written(function, shape, calls, names)
    head = f"define internal {shape.types[op.result]} @{called(op, shape)}({parameters})"
    yield f"{head} {hint} #0 {{"
    yield from (_branching if function.rare else _straight)(function, shape, writer)
    yield "}"
    yield ""


def _argument(function: Function, a: int) -> str:
    """The name of an argument."""
    return f"%{function.graph.names[function.graph.nodes[a][1]]}"


def _written(
    function: Function, shape: Shape, calls: Container[Op], names: dict[int, str]
) -> Writer:
    """The writer of a function's body, but for the choice of a rare call, and the call."""
    graph, root = function.graph, function.root
    left_out = {root, *function.rare[1:]} if function.rare else set[int]()
    order = [i for i in reachable(graph, [root]) if graph.nodes[i][0].arity and i not in left_out]
    results = graph.args(root) if function.rare else [root]
    uses = uses_of(graph, order, results)
    products = lone_products(graph, order, uses) if shape.fused else frozenset[int]()
    writer = Writer(graph, shape, calls, names, products)
    writer.write(order)
    return writer


def _straight(function: Function, shape: Shape, writer: Writer) -> Iterator[str]:
    """The body of a function that calls no other rarely."""
    value = writer.names[function.root]
    yield from writer.lines
    yield f"  ret {shape.types[function.op.result]} {value}"


def _branching(function: Function, shape: Shape, writer: Writer) -> Iterator[str]:
    """The body of a function that rarely calls another: where no lane has to, none does."""
    condition, call = function.rare
    kind = shape.types[function.op.result]
    test, near = writer.names[condition], writer.names[function.graph.nodes[function.root][3]]
    yield from writer.lines
    writer.lines.clear()
    yield from _where_any(shape, test, "rare", "common")
    yield "common:"
    yield f"  ret {kind} {near}"
    yield "rare:"
    writer.write((call, function.root))
    yield from writer.lines
    yield f"  ret {kind} {writer.names[function.root]}"


def _where_any(shape: Shape, test: str, some: str, none: str) -> Iterator[str]:
    """Go to the block ``some`` if the condition holds in any lane, to ``none`` if in none."""
    if shape.lanes > 1:
        truth = shape.types["b"]
        yield f"  %any = call i1 @llvm.vector.reduce.or.v{shape.lanes}i1({truth} {test})"
        test = "%any"
    yield f"  br i1 {test}, label %{some}, label %{none}"
