"""Computation -> LLVM IR: a function for one point, and one for a batch, block by block."""

from __future__ import annotations

from collections.abc import Mapping

from symgrad.expr.graph.node import Op, paused_gc
from symgrad.expr.graph.reach import inputs_of, reachable
from symgrad.kernel.plan import Computation
from symgrad.llvm.body import Body, Source, module, write_parts
from symgrad.llvm.instruction import Shape
from symgrad.llvm.skeletons import (
    Lines,
    load_columns,
    load_square,
    rows_of,
    store_block,
    store_square,
)
from symgrad.mathlib.define import Function

UNROLLED = 192
"""Columns of inputs, and of outputs, up to which a block is turned without loops."""


@paused_gc()
def emit(
    computation: Computation, functions: Mapping[Op, Function], shape: Shape, thorough: bool = False
) -> Source:
    """The module whose function ``run`` computes a point, or with many lanes a batch.

    For a point, ``run(x, output, .., workspace)``; for a batch, ``run(x, output, .., workspace,
    first, end, stream)`` computes the points from ``first`` to ``end``, whole blocks of them, and
    ``stream`` says that outputs are aligned to vectors and are to go past the cache.
    """
    nodes = computation.graph.nodes
    roots = [i for o in computation.outputs for i in o.nodes]
    order = [i for i in reachable(computation.graph, roots) if nodes[i][0].arity]
    body = Body(computation, order, functions, shape, thorough=thorough)
    outputs = ", ".join(f"ptr %o{k}" for k in range(len(computation.outputs)))
    if shape.lanes == 1:
        lines, vectors = _point(body, outputs)
    elif len(body.parts) == 1 and body.columns <= UNROLLED:
        lines, vectors = _unrolled(body, outputs), 0
    else:
        lines, vectors = _looped(body, outputs)
    workspace = vectors * shape.itemsize * shape.lanes
    return module([*body.definitions(), *lines], workspace, body.effort, body.hot)


# one point ----------------------------------------------------------------------------------------


def _point(body: Body, outputs: str) -> tuple[list[str], int]:
    if len(body.parts) == 1:
        return [*write_parts(body, outputs, "run", "")], 0
    lines = [
        *write_parts(body, outputs, "part", "internal "),
        *_open(f"ptr %in, {outputs}, ptr %frame"),
    ]
    lines += [*_calls(body, outputs), "  ret void", "}"]
    return lines, len(body.slots)


def _open(parameters: str) -> list[str]:
    return [f"define void @run({parameters}) #0 {{"]


def _calls(body: Body, outputs: str) -> list[str]:
    return [f"  call void @part{k}(ptr %in, {outputs}, ptr %frame)" for k in range(len(body.parts))]


# a batch ------------------------------------------------------------------------------------------


def _head(outputs: str) -> list[str]:
    return [
        *_open(f"ptr %x, {outputs}, ptr %workspace, i64 %first, i64 %end, i1 %stream"),
        "entry:",
        "  %any = icmp slt i64 %first, %end",
        "  br i1 %any, label %block, label %done",
    ]


def _begin(write: Lines, body: Body) -> list[str]:
    """The start of the loop over blocks: the addresses of the block in the outputs."""
    write.label("block")
    write.do("%b = phi i64 [ %first, %entry ], [ %b.next, %next ]")
    return [_address(write, f"%o{k}", len(o.nodes)) for k, o in enumerate(body.computation.outputs)]


def _address(write: Lines, base: str, columns: int) -> str:
    return write.element(base, write.value(f"mul i64 %b, {columns}"))


def _finish(write: Lines) -> list[str]:
    write.label("next")
    write.do(f"%b.next = add i64 %b, {write.shape.lanes}")
    write.do("%more = icmp slt i64 %b.next, %end")
    write.do("br i1 %more, label %block, label %done")
    write.label("done")
    return [*write.lines, "  ret void", "}"]


def _unrolled(body: Body, outputs: str) -> list[str]:
    """Inputs and results in registers."""
    write = Lines(body.shape)
    bases = _begin(write, body)
    n = len(body.computation.graph.names)
    columns = load_columns(write, _address(write, "%x", n), n)
    names = {
        i: columns[body.computation.graph.nodes[i][1]] for i in inputs_of(body.computation.graph)
    }
    writer = body.writer(names)
    writer.write(body.order)
    write.lines += writer.lines
    arrays = [rows_of(write, [writer.names[i] for i in o.nodes]) for o in body.computation.outputs]
    store_block(write, arrays, bases)
    return [*_head(outputs), *_finish(write)]


def _looped(body: Body, outputs: str) -> tuple[list[str], int]:
    """Inputs and results as arrays of vectors in the workspace; ``(lines, vectors of it)``."""
    n = len(body.computation.graph.names)
    sizes = [len(o.nodes) for o in body.computation.outputs]
    write = Lines(body.shape)
    bases = _begin(write, body)
    starts = [0, n, *(n + sum(sizes[: k + 1]) for k in range(len(sizes)))]
    rooms = [write.element("%workspace", s * body.shape.lanes) for s in starts]
    columns_loop(write, "in", _address(write, "%x", n), n, rooms[0], True)
    arguments = ", ".join(f"ptr {r}" for r in rooms[1:-1])
    for k in range(len(body.parts)):
        write.do(f"call void @part{k}(ptr {rooms[0]}, {arguments}, ptr {rooms[-1]})")
    for k, (room, base) in enumerate(zip(rooms[1:-1], bases, strict=True)):
        columns_loop(write, f"out{k}", base, sizes[k], room, False)
    write.do("br label %next")
    lines = [*write_parts(body, outputs, "part", "internal "), *_head(outputs), *_finish(write)]
    return lines, starts[-1] + len(body.slots)


def columns_loop(
    write: Lines, name: str, base: str, columns: int, room: str, loading: bool
) -> None:
    """Turn a block of rows into vectors in memory, or back: in squares, the last one overlapping.

    Fewer columns than a square has are turned in registers.
    """
    lanes = write.shape.lanes
    if columns < lanes:
        if loading:
            for k, column in enumerate(load_columns(write, base, columns)):
                write.store(column, room, k * lanes, True)
        else:
            vectors = rows_of(write, [write.load(room, k * lanes, True) for k in range(columns)])
            for k, vector in enumerate(vectors):
                write.store(vector, base, k * lanes, False)
        return
    before = f"{name}.before"
    write.do(f"br label %{before}")
    write.label(before)
    write.do(f"br label %{name}")
    write.label(name)
    write.do(f"%{name}.c = phi i64 [ 0, %{before} ], [ %{name}.next, %{name} ]")
    write.do(f"%{name}.over = icmp sgt i64 %{name}.c, {columns - lanes}")
    write.do(f"%{name}.start = select i1 %{name}.over, i64 {columns - lanes}, i64 %{name}.c")
    if loading:
        load_square(write, base, columns, f"%{name}.start", room)
    else:
        store_square(write, room, columns, f"%{name}.start", base)
    write.do(f"%{name}.next = add i64 %{name}.c, {lanes}")
    write.do(f"%{name}.more = icmp slt i64 %{name}.next, {columns}")
    write.do(f"br i1 %{name}.more, label %{name}, label %{name}.end")
    write.label(f"{name}.end")
