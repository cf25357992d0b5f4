"""Kernel of the language -> LLVM IR: a function for one invocation, or for many, block by block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from symgrad.expr.graph.node import Op, paused_gc, reachable
from symgrad.expr.graph.verify import is_verified
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import For, If, Statement, StoreRow, everything
from symgrad.kernel.language.verify import verify
from symgrad.llvm.compiler import SWEEPING
from symgrad.llvm.printing.functions import Arrangement, Outlined
from symgrad.llvm.printing.operations import NAMES, Shape, Writer, called, lone_products, uses_of
from symgrad.llvm.printing.source import ENTRY, MOST_THOROUGH, USUAL_SIZES, Source, module
from symgrad.llvm.printing.statements import Body
from symgrad.llvm.printing.values import Calls
from symgrad.mathlib.define import Function

# --- the library's functions ----------------------------------------------------------------------
# The library's own functions, as LLVM functions: each once.


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


# --- kernels --------------------------------------------------------------------------------------

MOST_BLOCK_BYTES: Final = 2**20
"""Bytes that a block of several registers works in, at most: the cache has to hold it."""

LOOPED: Final = 8_000
"""Operations of a kernel with loops up to which its batches are not compiled in the quickest way:
that takes half as long, and loops that take three times as long, which is much for many points."""

STORED: Final = 1_000
"""Results of a point up to which its kernel is not compiled in the quickest way: the others take a
time that grows with their square, 20 s for 8,000 of 800 operations."""

MOST_STORED: Final = 4_000
"""Results of a point up to which its kernel is compiled thoroughly once it has run for long."""

LOOPS_GAIN: Final = 4
"""How many times sooner it pays to compile one point's loops thoroughly than what is straight."""

SIDE_BY_SIDE: Final = {4: 128, 2: USUAL_SIZES.long_batch}
"""Registers that lie side by side in kernels of so many operations, at most: more of them take
longer to compile, and need more registers for what is known."""

SWEPT_ITERATIONS: Final = 64
"""Iterations from which it pays to do several of a loop over an array at once."""

_BATCH: Final = ("i64 %first", "i64 %end", "i1 %stream", "i32 %count", "i32 %groups")


def block_of(kernel: KernelIR, vector: Shape) -> Shape:
    """The shape of the blocks in which a kernel is best done, by the shape of a register.

    An iteration waits for the one before it: while one register waits others have their iterations.
    """
    if any(isinstance(item, For) for item in everything(kernel.main.items)):
        for many, most in SIDE_BY_SIDE.items():
            block = replace(vector, lanes=many * vector.lanes)
            arrangement = Arrangement(kernel, block)
            is_short = arrangement.analysis.operations <= most
            fits = is_short and arrangement.workspace.size <= MOST_BLOCK_BYTES
            if fits and not arrangement.in_memory:
                return block
    return vector


@paused_gc()
def print_kernel(
    kernel: KernelIR,
    functions: Mapping[Op, Function],
    shape: Shape,
    vector: Shape | None = None,
    thorough: bool = False,
    quick: bool = False,
    packed: bool = False,
) -> Source:
    """The module whose function ``run`` does a kernel, which is written for whole groups.

    For one invocation, ``run(buffer, .., workspace)``; with many lanes, ``run(buffer, ..,
    workspace, first, end, stream, count, groups)`` does those from ``first`` to ``end``, whole
    blocks of them. ``stream`` says that results are aligned to vectors and are to go past the
    cache; there are ``count`` invocations to do, and so many ``groups``. The kernel's arguments
    follow. An own array of unknown size stands behind the workspace. ``vector`` is the shape of
    a register, if a block has several, and the one in which calls of an invocation alone are done.
    What is long is compiled ``thorough``-ly, or, with ``quick``, in the quickest way even if it
    has loops. If it is ``packed`` its function is `ENTRY` instead, which takes buffers, and what
    follows ``stream``, as words in memory: ``packed(words, workspace, first, end)``.
    """
    if is_verified(len(kernel.graph)):
        verify(kernel)
    assert not any(b.floats for b in kernel.buffers), "the host converts what the CPU computes with"
    return _Module(kernel, functions, shape, vector or shape, thorough, quick, packed).source()


class _Module:
    def __init__(
        self,
        kernel: KernelIR,
        functions: Mapping[Op, Function],
        shape: Shape,
        vector: Shape,
        thorough: bool,
        quick: bool,
        packed: bool,
    ) -> None:
        self.quick, self.packed = quick, packed
        self.kernel, self.shape, self.vector, self.thorough = kernel, shape, vector, thorough
        beside = vector if shape.lanes == 1 < vector.lanes else None
        together = functions if beside else frozenset[Op]()
        self.arrangement = Arrangement(kernel, shape, thorough, together)
        scalar, quickest = self.arrangement.analysis.scalar, self._effort == 0
        self.calls = Calls(functions, shape, scalar, beside=beside, through_memory=quickest)
        assert shape == vector or not self.arrangement.in_memory, "a block is one register wide"

    def source(self) -> Source:
        """The whole text."""
        a = self.arrangement
        lines = [*self._parts(), *(self._batch() if self.shape.lanes > 1 else self._point())]
        text = [*self._constants(), *self._definitions(), *lines]
        return module(text, self._parameters, a.workspace.size, self._effort, self._hot)

    @property
    def _effort(self) -> int:
        """The level of optimisation that compiles it in reasonable time.

        The second makes vectors of short kernels 2 to 4 % faster, and takes 10 % longer. It is
        never 0 where loops have little beside them, or each is done for many points.
        """
        a = self.arrangement
        if len(a.parts) > 1:
            single = a.analysis.is_straight or self.quick or self.shape.lanes == 1
            return 1 if self.thorough or (not single and a.analysis.operations <= LOOPED) else 0
        if self._stored > STORED and not self.thorough:
            return 0
        if a.analysis.operations > self.shape.sizes.long_batch:
            return 1
        items = everything(self.kernel.main.items)
        swept = self.shape.lanes == 1 and any(map(_sweeps, items))
        return SWEEPING if swept else 2 if self.shape.lanes > 1 else 1

    @property
    def _stored(self) -> int:
        """How many results are stored in rows by a kernel for one point."""
        items = self.kernel.main.items if self.shape.lanes == 1 else ()
        return sum(len(item.values) for item in items if isinstance(item, StoreRow))

    @property
    def _hot(self) -> float:
        """The seconds of running after which it pays to compile it thoroughly."""
        operations = self.arrangement.analysis.operations
        is_quick = len(self.arrangement.parts) > 1 or self._stored > STORED
        is_short = operations <= MOST_THOROUGH and self._stored <= MOST_STORED
        quick = is_quick and is_short and not self.thorough
        sooner = (
            LOOPS_GAIN if self.shape.lanes == 1 and not self.arrangement.analysis.is_straight else 1
        )
        return self.shape.sizes.hot * operations / sooner if quick else math.inf

    def _constants(self) -> Iterator[str]:
        """The numbers that the kernel knows, and reads at any index."""
        one = replace(self.shape, lanes=1)
        for b in self.kernel.buffers:
            if b.data is not None:
                numbers = ", ".join(f"{one.float} {one.number(x)}" for x in b.data)
                array = f"[{len(b.data)} x {one.float}] [{numbers}]"
                yield f"@{self.arrangement.names[b]} = private unnamed_addr constant {array}"

    def _definitions(self) -> Iterator[str]:
        """The library's functions, to be written where they are called if that is short."""
        calls, total = self.calls, 0
        for used in calls.used.values():
            sizes = {op: len(calls.functions[op].graph) for op in closure(used, calls.functions)}
            total += sum(size * used.get(op, 1) for op, size in sizes.items())
        for shape, used in calls.used.items():
            inline = total <= self.shape.sizes.inlined and shape != calls.beside
            yield from definitions(used, calls.functions, shape, inline)
        if calls.beside and calls.through_memory:
            for op in calls.used[calls.beside]:
                yield from of_each(op, calls.beside)

    def _body(self) -> Body:
        """The writer of a function."""
        names = map("%%%d".__mod__, itertools.count())
        vector = self.vector if self.shape.lanes > 1 else self.shape
        return Body(self.arrangement, self.calls, names, vector)

    @property
    def _arguments(self) -> list[str]:
        return [f"i32 %{name}" for name in self.kernel.arguments.values()]

    @property
    def _buffers(self) -> list[str]:
        return [f"ptr %{self.arrangement.names[b]}" for b in self.arrangement.bound]

    @property
    def _parameters(self) -> list[str]:
        if self.packed:
            return ["ptr %packed", "ptr %workspace", *_BATCH[:2]]
        batch = _BATCH if self.shape.lanes > 1 else ()
        return [*self._buffers, "ptr %workspace", *batch, *self._arguments]

    def _head(self) -> list[str]:
        name = ENTRY if self.packed else "run"
        return [
            f"define void @{name}({', '.join(self._parameters)}) #0 {{",
            "entry:",
            *(self._unpacked() if self.packed else ()),
            *self.arrangement.workspace.addresses(),
        ]

    def _unpacked(self) -> Iterator[str]:
        """The words that `ENTRY` takes in memory; its results go past no cache."""
        for n, word in enumerate([*self._buffers, *_BATCH[3:], *self._arguments]):
            kind, name = word.split()
            yield f"  {name}.at = getelementptr i64, ptr %packed, i64 {n}"
            yield f"  {name} = load {kind}, ptr {name}.at"
        yield "  %stream = icmp ne i32 0, 0"

    # functions -----------------------------------------------------------------------------------

    def _parts(self) -> Iterable[str]:
        return itertools.chain.from_iterable(map(self._part, self.arrangement.parts))

    def _part(self, part: Outlined) -> list[str]:
        body = self._body()
        values = body.values
        if part.masked:
            values.mask = values.fetch(len(self.arrangement.slots), values.type("b", True))
        body.items(part.items)
        parameters = ", ".join(self.arrangement.handed)
        head = f"define internal void @part{part.number}({parameters}) noinline #0 {{"
        return [head, "entry:", *_own_memory(body), *body.write.lines, "  ret void", "}", ""]

    def _point(self) -> list[str]:
        """All of a kernel for the invocation 0 of 1."""
        body = self._body()
        body.scope(self.kernel.main)
        return [
            *self._head(),
            *_own_memory(body),
            *body.write.lines,
            "  ret void",
            "}",
        ]

    def _batch(self) -> list[str]:
        body = self._body()
        body.write.block = "block"
        analysis = self.arrangement.analysis
        later = set[int]().union(*analysis.wanted.values())
        for i in self.arrangement.copied:
            if i in analysis.lazy and i not in later:
                body.values.copy(i)
        body.scope(self.kernel.main)
        body.memory.records.finish()
        return [
            *self._head(),
            "  %any = icmp slt i64 %first, %end",
            "  br i1 %any, label %block, label %done",
            "block:",
            "  %b = phi i64 [ %first, %entry ], [ %b.next, %next ]",
            "  %cell = trunc i64 %b to i32",
            *body.write.lines,
            "next:",
            f"  %b.next = add i64 %b, {self.shape.lanes}",
            "  %more = icmp slt i64 %b.next, %end",
            "  br i1 %more, label %block, label %done",
            "done:",
            "  ret void",
            "}",
        ]


def _own_memory(body: Body) -> list[str]:
    """Where functions of several numbers leave their results, if a function calls any."""
    together = body.values.together
    return [f"  %results = alloca {together.float}"] if together else []


def _sweeps(item: int | Statement) -> bool:
    """Whether an item is a loop over arrays that carries no number from iteration to iteration."""
    if not isinstance(item, For) or item.params or (item.most or 0) < SWEPT_ITERATIONS:
        return False
    return not any(isinstance(inner, (For, If)) for inner in item.scope.items)
