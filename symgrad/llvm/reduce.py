"""Reduction -> LLVM IR: sums over rows, in vectors of rows, and now and then into float64.

A vector holds one column of as many rows as it has lanes. Each result has an accumulator of the
kernel's dtype, emptied into one of float64 every few blocks, so that rounding errors do not grow
with the number of rows. What depends on the parameters alone is computed once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from symgrad.expr.node import Op, paused_gc, reachable
from symgrad.kernel.plan import Computation, Output, Reduction
from symgrad.kernel.products import Products, products_of
from symgrad.kernel.stage import Stages, stages
from symgrad.llvm.body import LONG_BATCH, Body, Masked, Source, module, write_parts
from symgrad.llvm.emit import columns_loop
from symgrad.llvm.instruction import NAMES, Shape
from symgrad.llvm.lookup import PARAMETERS, add_lookups, load_lookups
from symgrad.llvm.skeletons import Lines, add_wide, load_columns
from symgrad.llvm.tiles import write_tiles
from symgrad.llvm.workspace import LINE, Workspace
from symgrad.mathlib.define import Function

EMPTIED = {"float32": 8, "float64": 32}
"""Blocks of rows after which accumulators are added to float64. Rows that are all the same have
errors of one sign, which grow with it: of 8 floats up to 1.5e-7 of their sum, of 16 up to 2.7e-7.
"""

KEPT = 2**18
"""Bytes of factors that blocks leave behind, which have to stay in the cache."""

FEWEST = 4
"""Blocks whose factors have to stay there, or results are not taken apart: to read factors from
memory again takes longer than to add to results."""

GROUP = 4
"""Blocks of rows that a part is run over before the next: its code, and the results that it adds
to, come to the processor once for all of them."""

IN_REGISTERS = 24
"""Results up to which accumulators stay in registers."""

LONG_ROW = 3_000
"""Operations up to which they do, as these are one function then: `LONG_BATCH` of them if it is
compiled quickly."""


@paused_gc()
def emit_reduction(
    reduction: Reduction, functions: Mapping[Op, Function], shape: Shape, thorough: bool = False
) -> Source:
    """The module whose function ``run`` sums the results over rows.

    ``run(parameters, rows, sums, workspace, first, end)`` writes to ``sums`` (results,), float64,
    the sums over the rows from ``first`` to ``end``. It reads whole blocks of rows. With lookups,
    ``indices`` (rows, count) int32 and ``tables`` follow: for each lookup the addresses of its
    table, of the kernel's dtype, and of the one that results are added to, float64; both have a
    vector's room behind them.
    """
    assert shape.lanes > 1, "rows are summed in vectors"
    split = stages(reduction)
    few = len(split.each) <= LONG_ROW and len(reduction.factors) <= IN_REGISTERS
    if few:
        body = Body(reduction, split.each, functions, shape, thorough=thorough)
        if thorough or len(body.order) <= LONG_BATCH:
            once = _Once(reduction, split, split.carried, functions, shape)
            return _in_registers(reduction, body, once)
    products = Products({}, ()) if few else _products(reduction, split, shape)
    body = _kept(reduction, split, products, functions, shape, thorough)
    once = _Once(reduction, split, [i for _, i in body.copies], functions, shape)
    return _in_memory(reduction, body, products, once)


def _products(reduction: Reduction, split: Stages, shape: Shape) -> Products:
    """The results that are taken apart: none, if their factors do not stay in the cache."""
    found = products_of(reduction, split.each)
    overflow = len(found.kept) * _size(shape) * FEWEST > KEPT
    return Products({}, ()) if overflow else found


def _kept(
    reduction: Reduction, split: Stages, products: Products, functions: Mapping[Op, Function],
    shape: Shape, thorough: bool,
) -> Body:  # fmt: skip
    """What is done for a block of rows in memory.

    Outputs are the results that are added up there, factors of others, and what lookups get.
    """
    roots = [i for o in reduction.summed for i in o.nodes]
    columns = [k for k in range(len(roots)) if k not in products.terms]
    outputs = [Output("sums", tuple(roots[k] for k in columns)), Output("kept", products.kept)]
    outputs += reduction.outputs[len(reduction.summed) :]
    graph = reduction.graph
    needed = set(reachable(graph, [i for o in outputs for i in o.nodes]))
    order = [i for i in split.each if i in needed]
    places = {i: k for k, i in enumerate(reduction.row_inputs)}
    carried = set(split.carried)
    made = Computation(reduction.name, graph, tuple(outputs))
    return Body(made, order, functions, shape, places, carried, Masked(columns), thorough)


class _Once:
    """What needs no row: functions, on single numbers, that write it and the factors to memory."""

    def __init__(
        self, reduction: Reduction, split: Stages, carried: Sequence[int],
        functions: Mapping[Op, Function], shape: Shape,
    ) -> None:  # fmt: skip
        single = Shape(shape.dtype, 1, shape.fused)
        outputs = Output("carried", tuple(carried)), Output("factors", reduction.factors)
        made = Computation("once", reduction.graph, outputs)
        self.body = Body(made, split.once, functions, single)
        self.carried = carried
        parts = write_parts(self.body, "ptr %o0, ptr %o1", "once", "internal ")
        self.lines = [*self.body.definitions(), *parts]
        self.calls = [
            f"  call void @once{k}(ptr %p, ptr %carried, ptr %factors, ptr %once)"
            for k in range(len(self.body.parts))
        ]

    def rooms(self) -> dict[str, int]:
        """The bytes that its memory takes: of what is carried, of factors, and between parts."""
        size = self.body.shape.itemsize
        counts = len(self.carried), len(self.body.roots) - len(self.carried), len(self.body.slots)
        return dict(zip(("carried", "factors", "once"), (size * c for c in counts), strict=True))


def _sums(count: int, shape: Shape) -> dict[str, int]:
    """The bytes of the accumulators: a stretch's, those of float64, and what these have lost."""
    size, wide = shape.itemsize * shape.lanes * count, 8 * shape.lanes * count
    return {"acc": size, "wide": wide, "lost": wide if shape.dtype == "float64" else 0}


def _in_registers(reduction: Reduction, body: Body, once: _Once) -> Source:
    """Columns, results and accumulators as values, for which the compiler finds room."""
    shape, lanes, count = body.shape, body.shape.lanes, len(reduction.factors)
    write = Lines(shape)
    _register_block(write, reduction, body, once.carried)
    block = write.taken()
    for k in range(count):
        write.store(f"%a{k}.next", "%acc", k * lanes, True)
    rooms = Workspace(once.rooms() | _sums(count, shape))
    spread = [_splat(f"c{i}", "%carried", str(k), shape) for k, i in enumerate(once.carried)]
    prepared = [*once.calls, *itertools.chain.from_iterable(spread)]
    blocks = EMPTIED[shape.dtype]
    lines = _function(reduction, write, rooms, prepared, block, blocks, range(count))
    return module([*once.lines, *body.definitions(), *lines], rooms.size, body.effort)


def _register_block(write: Lines, reduction: Reduction, body: Body, carried: Sequence[int]) -> None:
    """What is done for a block of rows: results are added to values that the loop hands on."""
    shape = write.shape
    roots = [i for o in reduction.summed for i in o.nodes]
    for k in range(len(roots)):
        write.do(f"%a{k} = phi {shape.float} [ {shape.number(0.0)}, %outer ], "
                 f"[ %a{k}.next, %next ]")  # fmt: skip
    mask = _mask(write)
    value = _computed(write, reduction, body, carried)
    for k, i in enumerate(roots):
        total = write.value(f"fadd {shape.float} %a{k}, {value(i)}")
        write.do(f"%a{k}.next = select <{shape.lanes} x i1> {mask}, {shape.float} {total}, "
                 f"{shape.float} %a{k}")  # fmt: skip
    added = [value(i) for o in reduction.outputs[len(reduction.summed) :] for i in o.nodes]
    add_lookups(write, reduction, mask, added)
    write.do("br label %next")


def _computed(
    write: Lines, reduction: Reduction, body: Body, carried: Sequence[int]
) -> Callable[[int], str]:
    """Write what is computed at the rows of a block; what is returned knows each value's name."""
    columns = load_columns(write, _block(write, reduction.columns), reduction.columns)
    columns += load_lookups(write, reduction)
    names = {i: f"%c{i}" for i in carried}
    names |= dict(zip(reduction.row_inputs, columns, strict=True))
    writer = body.writer(names)
    writer.write(body.order)
    write.lines += writer.lines
    return writer.names.__getitem__


def _splat(name: str, base: str, index: str, shape: Shape) -> list[str]:
    """A number of an array, in every lane of ``%NAME``."""
    scalar, vector = NAMES[shape.dtype], shape.float
    return [
        f"  %{name}.at = getelementptr {scalar}, ptr {base}, i64 {index}",
        f"  %{name}.x = load {scalar}, ptr %{name}.at",
        f"  %{name}.one = insertelement {vector} poison, {scalar} %{name}.x, i64 0",
        f"  %{name} = shufflevector {vector} %{name}.one, {vector} poison, "
        f"<{shape.lanes} x i32> zeroinitializer",
    ]


def _in_memory(reduction: Reduction, body: Body, products: Products, once: _Once) -> Source:
    """Inputs, results and accumulators as arrays of vectors in the workspace."""
    shape, lanes = body.shape, body.shape.lanes
    size = shape.itemsize * lanes
    stride = size * len(products.kept)
    blocks = EMPTIED[shape.dtype]
    if stride:
        blocks = min(blocks, KEPT // stride)
    group = GROUP if len(body.parts) > 1 else 1
    rooms = _memory_rooms(reduction, body, once, blocks * stride, group)
    write = Lines(shape)
    _memory_block(write, reduction, body, stride, group)
    block = write.taken()
    write_tiles(write, products, stride, _blocks(write, "%o"), 32 if size == LINE else 16)
    others = [k for k in range(len(reduction.factors)) if k not in products.terms]
    lines = _function(reduction, write, rooms, once.calls, block, blocks, others, group)
    parameters = ", ".join(f"ptr %o{k}" for k in range(len(body.computation.outputs)))
    parameters += f", <{lanes} x i1> %mask, ptr %carried"
    parts = write_parts(body, parameters, "part", "internal ")
    text = [*once.lines, *body.definitions(), *parts, *lines]
    return module(text, rooms.size, body.effort, body.hot)


def _memory_block(write: Lines, reduction: Reduction, body: Body, stride: int, group: int) -> None:
    """What is done for some blocks of rows: their columns to memory, and calls of the parts."""
    lanes, columns, size = write.shape.lanes, reduction.columns, _size(write.shape)
    ends = [len(o.nodes) for o in body.computation.outputs[2:]]
    here = "1"
    if group > 1:
        here = write.value(f"call i64 @llvm.smin.i64(i64 {_blocks(write, '%b')}, i64 {group})")

    def begin(k: str) -> tuple[str, str]:
        """The first row of block k, and its columns."""
        b = write.value(f"add i64 %b, {write.value(f'mul i64 {k}, {lanes}')}")
        return b, _room(write, "%in", k, len(reduction.row_inputs) * size)

    def load(k: str) -> None:
        b, room = begin(k)
        if columns:
            columns_loop(write, "rows", _block(write, columns, b), columns, room, True)
        for n, column in enumerate(load_lookups(write, reduction, b)):
            write.store(column, room, (columns + n) * lanes, True)

    def call(part: int, k: str) -> None:
        b, room = begin(k)
        done = write.value(f"sub i64 {b}, %o")
        at = write.value(f"mul i64 {done}, {stride // lanes}")
        kept = write.value(f"getelementptr i8, ptr %kept, i64 {at}")
        mine = _room(write, "%ends", k, sum(ends) * size)
        starts = itertools.accumulate(ends[:-1], initial=0) if ends else ()
        outputs = ["%acc", kept, *(write.element(mine, s * lanes) for s in starts)]
        arguments = ", ".join(f"ptr {o}" for o in outputs)
        frame = _room(write, "%frame", k, len(body.slots) * size)
        write.do(f"call void @part{part}(ptr {room}, {arguments}, <{lanes} x i1> "
                 f"{_mask(write, b)}, ptr %carried, ptr {frame})")  # fmt: skip

    def add(k: str) -> None:
        b, _ = begin(k)
        mine = _room(write, "%ends", k, sum(ends) * size)
        values = [write.load(mine, n * lanes, True) for n in range(sum(ends))]
        add_lookups(write, reduction, _mask(write, b), values, b)

    write.over("load", here, load)
    for part in range(len(body.parts)):
        write.over(f"call{part}", here, partial(call, part))
    if reduction.lookups:
        write.over("add", here, add)
    write.do("br label %next")


def _size(shape: Shape) -> int:
    """The bytes of a vector."""
    return shape.itemsize * shape.lanes


def _room(write: Lines, base: str, k: str, nbytes: int) -> str:
    """The address of the k-th of several rooms of so many bytes."""
    at = write.value(f"mul i64 {k}, {nbytes}")
    return write.value(f"getelementptr i8, ptr {base}, i64 {at}")


def _blocks(write: Lines, start: str) -> str:
    """How many blocks of rows there are from ``start`` to the end of a stretch."""
    lanes = write.shape.lanes
    left = write.value(f"sub i64 %limit, {start}")
    return write.value(f"sdiv i64 {write.value(f'add i64 {left}, {lanes - 1}')}, {lanes}")


def _memory_rooms(
    reduction: Reduction, body: Body, once: _Once, kept: int, group: int
) -> Workspace:
    """Where everything stands."""
    size, count = _size(body.shape), len(reduction.factors)
    ends = sum(len(o.nodes) for o in reduction.outputs[len(reduction.summed) :])
    return Workspace({
        "in": len(reduction.row_inputs) * size * group, **once.rooms(),
        **_sums(count, body.shape), "kept": kept, "ends": ends * size * group,
        "frame": len(body.slots) * size * group,
    })  # fmt: skip


def _each(write: Lines, name: str, count: int, after: str) -> list[str]:
    """A loop of what is written in which ``%NAME.k`` runs from 0 to ``count``, then ``after``."""
    return [
        f"  br label %{name}.before",
        f"{name}.before:",
        f"  br label %{name}",
        f"{name}:",
        f"  %{name}.k = phi i64 [ 0, %{name}.before ], [ %{name}.next, %{name} ]",
        *write.taken(),
        f"  %{name}.next = add i64 %{name}.k, 1",
        f"  %{name}.more = icmp slt i64 %{name}.next, {count}",
        f"  br i1 %{name}.more, label %{name}, label %{after}",
    ]


def _block(write: Lines, columns: int, b: str = "%b") -> str:
    """The address of the block's first row."""
    return write.element("%x", write.value(f"mul i64 {b}, {columns}"))


def _mask(write: Lines, b: str = "%b") -> str:
    """Which lanes of the block are rows."""
    lanes = write.shape.lanes
    kind = f"<{lanes} x i32>"
    left = write.value(f"sub i64 %end, {b}")
    few = write.value(f"call i64 @llvm.smin.i64(i64 {left}, i64 {lanes})")
    count = write.value(f"trunc i64 {few} to i32")
    one = write.value(f"insertelement {kind} poison, i32 {count}, i64 0")
    every = write.value(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
    numbers = ", ".join(f"i32 {k}" for k in range(lanes))
    return write.value(f"icmp slt {kind} <{numbers}>, {every}")


def _function(
    reduction: Reduction, write: Lines, rooms: Workspace, prepared: Sequence[str],
    block: Sequence[str], blocks: int, others: Sequence[int], group: int = 1,
) -> list[str]:  # fmt: skip
    """The loops over stretches of some blocks and over blocks, and the sums of lanes in the end.

    The lines that are written end a stretch; then a loop adds to float64 the sums at ``%acc``,
    which are those of the ``others``.
    """
    lookups = f", {PARAMETERS}" if reduction.lookups else ""
    count, ended = len(reduction.factors), write.taken()
    numbers = ", ".join(f"i64 {k}" for k in others)
    return [
        f"@others = private constant [{len(others)} x i64] [{numbers}]",
        "define void @run(ptr %p, ptr %x, ptr %sums, ptr %workspace, i64 %first, i64 %end"
        f"{lookups}) #0 {{",
        *rooms.addresses(),
        *prepared,
        *_cleared(write, count),
        *_stretches(write.shape, block, blocks, group),
        "full:",
        *ended,
        *_emptied(write, len(others)),
        *_totals(write, count),
        "  ret void",
        "}",
    ]


def _cleared(write: Lines, count: int) -> list[str]:
    """Accumulators of 0."""
    shape = write.shape
    at = write.value(f"mul i64 %clear.k, {shape.lanes}")
    write.store(shape.number(0.0), "%acc", at, True)
    for room in ("wide", "lost")[: 1 + (shape.dtype == "float64")]:
        place = write.value(f"getelementptr double, ptr %{room}, i64 {at}")
        write.do(f"store <{shape.lanes} x double> zeroinitializer, ptr {place}")
    return [*_each(write, "clear", count, "clear.end"), "clear.end:", "  br label %outer"]


def _stretches(shape: Shape, block: Sequence[str], blocks: int, group: int) -> list[str]:
    """The loop over stretches of rows, and in it that over their blocks, in groups."""
    return [
        "outer:",
        "  %o = phi i64 [ %first, %clear.end ], [ %o.next, %empty.end ]",
        f"  %o.next = add i64 %o, {blocks * shape.lanes}",
        "  %limit = call i64 @llvm.smin.i64(i64 %o.next, i64 %end)",
        "  br label %block",
        "block:",
        "  %b = phi i64 [ %o, %outer ], [ %b.next, %next ]",
        *block,
        "next:",
        f"  %b.next = add i64 %b, {shape.lanes * group}",
        "  %inside = icmp slt i64 %b.next, %limit",
        "  br i1 %inside, label %block, label %full",
    ]


def _emptied(write: Lines, count: int) -> list[str]:
    """The accumulators of ``count`` others, added to those of float64 after a stretch."""
    number = write.value("getelementptr i64, ptr @others, i64 %empty.k")
    number = write.value(f"load i64, ptr {number}")
    at = write.value(f"mul i64 {number}, {write.shape.lanes}")
    total = write.load("%acc", at, True)
    write.store(write.shape.number(0.0), "%acc", at, True)
    add_wide(write, total, at)
    loop = _each(write, "empty", count, "empty.end")
    return [
        *(loop if count else ["  br label %empty.end"]),
        "empty.end:",
        "  %again = icmp slt i64 %o.next, %end",
        "  br i1 %again, label %outer, label %finish",
    ]


def _totals(write: Lines, count: int) -> list[str]:
    """The sums of the lanes, times the factors."""
    at = write.value(f"mul i64 %total.k, {write.shape.lanes}")
    total = _across(write, "wide", at)
    factor = write.value(f"load {write.scalar}, ptr {write.element('%factors', '%total.k')}")
    if write.shape.dtype == "float32":
        factor = write.value(f"fpext float {factor} to double")
    else:
        total = write.value(f"fadd double {total}, {_lost(write, at)}")
    total = write.value(f"fmul double {total}, {factor}")
    place = write.value("getelementptr double, ptr %sums, i64 %total.k")
    write.do(f"store double {total}, ptr {place}")
    return ["finish:", *_each(write, "total", count, "done"), "done:"]


def _lost(write: Lines, at: str) -> str:
    """What roundings have taken of a sum; of an infinite one they have NaN, which is left out."""
    lost = _across(write, "lost", at)
    known = write.value(f"fcmp ord double {lost}, 0.0")
    return write.value(f"select i1 {known}, double {lost}, double 0.0")


def _across(write: Lines, room: str, at: str) -> str:
    """The sum of the lanes of an accumulator of float64."""
    lanes = write.shape.lanes
    place = write.value(f"getelementptr double, ptr %{room}, i64 {at}")
    wide = write.value(f"load <{lanes} x double>, ptr {place}")
    return write.value(
        f"call double @llvm.vector.reduce.fadd.v{lanes}f64(double -0.0, <{lanes} x double> {wide})"
    )
