"""The values of a kernel within a function of LLVM: what they are called, as scalars or vectors."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from symgrad.expr import ops
from symgrad.expr.graph.node import Node, Op
from symgrad.kernel.language.ir import narrow, wide_add, widen
from symgrad.kernel.language.statements import (
    BOUND,
    OVER_LANES,
    Buffer,
    Read,
    ReadRow,
    lane_max,
    lane_min,
    wide_mul,
)
from symgrad.llvm.printing.analysis import Records
from symgrad.llvm.printing.builder import Builder
from symgrad.llvm.printing.functions import LEAST_CALLS, Arrangement, Packed
from symgrad.llvm.printing.operations import (
    PUT_TOGETHER,
    TAKEN_APART,
    Shape,
    Writer,
    called,
    constant,
)
from symgrad.llvm.printing.source import CACHE_LINE_BYTES
from symgrad.mathlib.define import Function

_SUMS: Final = frozenset({*OVER_LANES, widen, narrow, wide_add, wide_mul})
"""Operations that are written in this module rather than by the op table."""


class Calls:
    """The library's functions for scalars and for vectors, and how often each is called.

    ``beside`` is the shape in which calls of scalars are done side by side, if they are; with
    ``through_memory``, functions of numbers do them, and leave the results in memory.
    """

    def __init__(
        self,
        functions: Mapping[Op, Function],
        *shapes: Shape,
        beside: Shape | None = None,
        through_memory: bool = False,
    ) -> None:
        self.functions, self.beside = functions, beside
        self.through_memory, self.packed = through_memory, Packed(functions)
        self.used = {s: Counter[Op]() for s in (*shapes, beside) if s is not None}


class Lazy(Protocol):
    """Reads a number where it is first needed, and stores one as soon as it is known."""

    def read(self, i: int) -> str:
        """The number, or the numbers, that a node reads."""
        ...

    def read_of_row(self, s: ReadRow, column: int) -> str:
        """A number of the invocation's row, or the numbers of the lanes' rows."""
        ...

    def place(self, records: Records, column: int, i: int) -> None:
        """Store a value as a column of records in memory."""
        ...


class Values:
    """The state of a function that is being written: instructions, names of values, a mask.

    A value that varies is a vector, a number for each lane, and any other a scalar, which is spread
    to a vector where one is needed. ``mask`` says which lanes go on, where not all do.
    ``lazy`` reads what is written where it is first needed.
    """

    lazy: Lazy

    def __init__(self, arrangement: Arrangement, calls: Calls, names: Iterator[str]) -> None:
        self.arrangement, self.analysis = arrangement, arrangement.analysis
        self.kernel, self.graph = arrangement.kernel, self.analysis.graph
        self.shape, scalar = arrangement.shape, self.analysis.scalar
        self.lanes = self.shape.lanes
        self.write = Builder(self.shape, names)
        self._types = [s.types | {"d": s.vector("double")} for s in (scalar, self.shape)]
        self.mask: str | None = None
        self._passing: list[tuple[dict[Any, Any], Any]] = []
        self._scalars = self._vectors = _Nodes(self, calls, scalar, names)
        if self.lanes > 1:
            self._vectors = _Nodes(self, calls, self.shape, names)
        self._varying = self.analysis.varying
        self._calls = calls
        self._aligned: dict[str, int] = {}
        self._size = arrangement.slot
        self.together: Shape | None = None
        """The vector that functions of several numbers leave in memory, if any is called."""

    # types ---------------------------------------------------------------------------------------

    def type(self, kind: str, wide: bool) -> str:
        """The type of a value of this kind, or of a vector of them."""
        return self._types[wide][kind]

    def varies(self, i: int) -> bool:
        """Whether a value is a vector."""
        return i in self._varying

    def type_of(self, i: int) -> str:
        """The type of a value as it is."""
        return self._types[i in self._varying][self.graph.nodes[i][0].result]

    # names ---------------------------------------------------------------------------------------

    def operand(self, i: int, wide: bool | None = None) -> str:
        """The name of a value, or a constant: as it is, or ``wide``, a vector."""
        wide = i in self._varying if wide is None else wide
        return (self._vectors if wide else self._scalars).names[i]

    def taken(self, buffer: Buffer, name: str, wide: bool) -> str:
        """A number, or a vector of them, that was read from a buffer, as a value."""
        if not self._is_converted(buffer):
            return name
        return self._made(TAKEN_APART, wide, name)

    def given(self, buffer: Buffer, i: int, wide: bool | None = None) -> str:
        """The name of a value as a buffer has it: see `operand`."""
        wide = self.varies(i) if wide is None else wide
        name = self.operand(i, wide)
        return self._made(PUT_TOGETHER, wide, name) if self._is_converted(buffer) else name

    def _is_converted(self, buffer: Buffer) -> bool:
        """Whether the numbers of a buffer are the host's, and float64 rather than pairs."""
        host = buffer.space in BOUND and buffer.data is None
        return self.shape.in_pairs and host and buffer.kind == "f"

    def _made(self, op: Op, wide: bool, *arguments: str) -> str:
        """The value of an operation that has instructions."""
        writer = self._vectors if wide else self._scalars
        return writer.made(op, *arguments)

    def sum(self, buffer: Buffer, wide: bool, a: str, b: str) -> str:
        """The sum of two numbers as a buffer has them."""
        kind = buffer.kind
        if kind == "f" and self.shape.in_pairs and not self._is_converted(buffer):
            writer = self._vectors if wide else self._scalars
            writer.used[self.shape.operation(ops.add)] += 1
            return writer.made(ops.add, a, b)
        how = "fadd" if kind in "fd" else "add"
        return self.write.value(f"{how} {self.type(kind, wide)} {a}, {b}")

    def in_float64(self, i: int, wide: bool) -> str:
        """A pair as a number of float64; any other value as it is."""
        name = self.operand(i, wide)
        return self._made(PUT_TOGETHER, wide, name) if self.shape.in_pairs else name

    def define(self, i: int, name: str) -> None:
        """Give a value its name, and leave it to whatever else needs it."""
        self._writer(i).names[i] = name
        self.hand_on(i)

    def is_written(self, i: int) -> bool:
        """Whether a value has a name here."""
        return i in self._writer(i).names

    def _writer(self, i: int) -> _Nodes:
        """The writer of a value as it is."""
        return self._vectors if i in self._varying else self._scalars

    def spread(self, kind: str, name: str) -> str:
        """A scalar in every lane."""
        if self.lanes == 1:
            return name
        one, many = self.type(kind, False), self.type(kind, True)
        first = self.write.value(f"insertelement {many} poison, {one} {name}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.write.value(f"shufflevector {many} {first}, {many} poison, {zeros}")

    def alike(self, ids: Iterable[int], others: Iterable[int]) -> list[str]:
        """The names of values, of each as a vector if the other that goes with it is one."""
        return [self.operand(i, self.varies(o)) for i, o in zip(ids, others, strict=True)]

    @contextmanager
    def inside(self) -> Generator[None]:
        """A context whose values, if they are lazy or spread, are not known behind it."""
        mark = len(self._passing)
        yield
        for names, i in self._passing[mark:]:
            names.pop(i, None)
        del self._passing[mark:]

    def expire(self, names: dict[Any, Any], key: Any) -> None:
        """Have what some names say of a key forgotten behind the context that is `inside`."""
        self._passing.append((names, key))

    # masks ---------------------------------------------------------------------------------------

    def both(self, a: str | None, b: str) -> str:
        """The lanes of two masks; None is all lanes."""
        return b if a is None else self.write.value(f"and {self.type('b', True)} {a}, {b}")

    def any_lane(self, mask: str, how: str = "or") -> str:
        """Whether a mask has a lane; or, by "and", whether it has all of them."""
        name, truths = f"@llvm.vector.reduce.{how}.v{self.lanes}i1", self.type("b", True)
        return self.write.value(f"call i1 {name}({truths} {mask})")

    def extreme(self, how: str, words: str) -> str:
        """The largest word of all lanes, by "umax", or the smallest, by "umin"."""
        name = f"@llvm.vector.reduce.{how}.v{self.lanes}i32"
        return self.write.value(f"call i32 {name}({self.type('u', True)} {words})")

    def chosen(self, mask: str, kind: str, a: str, b: str) -> str:
        """a in the lanes of a mask, b in the others."""
        return self.write.value(f"select <{self.lanes} x i1> {mask}, {kind} {a}, {kind} {b}")

    # what is written where it is first needed ----------------------------------------------------

    def first_needed(self, i: int, wide: bool) -> str:
        """The name of a value that has none: of one that is written where it is first needed."""
        a, writer = self.analysis, self._vectors if wide else self._scalars
        if i in a.known and i not in a.special:
            name = constant(self.graph.nodes[i], writer.shape)
        elif wide and i not in self._varying:
            name = self.spread(self.kernel.type(i), self.operand(i, False))
            self.expire(writer.names, i)
        else:
            name = self._written_late(i)
            self.expire(writer.names, i)
        writer.names[i] = name
        return name

    def _written_late(self, i: int) -> str:
        """A value that has no name yet."""
        a = self.analysis
        if i not in a.lazy:
            slot = self.arrangement.slots.get(i)
            assert slot is not None or i in a.special, f"value {i} was never computed"
            return self._special(i) if slot is None else self.fetch(slot, self.type_of(i))
        if i in a.row_reads:
            s, column = a.row_reads[i]
            return self.taken(s.buffer, self.lazy.read_of_row(s, column), self.varies(i))
        op = self.graph.nodes[i][0]
        if isinstance(op, Read) or i in a.reloaded:
            buffer = op.buffer if isinstance(op, Read) else a.reloaded[i].buffer
            return self.taken(buffer, self.lazy.read(i), self.varies(i))
        writer = self._writer(i)
        writer.write((i,))
        return writer.names[i]

    def _special(self, i: int) -> str:
        """A value that tells an invocation."""
        k, words = self.kernel, self.type("u", True)
        if i in k.arguments:
            return f"%{k.arguments[i]}"
        if self.lanes == 1:
            return "1" if i in (k.count, k.groups) else "0"
        numbers = f"<{', '.join(f'i32 {n}' for n in range(self.lanes))}>"
        if i == k.local:
            return numbers
        if i == k.cell:
            return self.write.value(f"add {words} {self.spread('u', '%cell')}, {numbers}")
        if i == k.group:
            return self.write.value(f"udiv i32 %cell, {self.lanes}")
        return "%count" if i == k.count else "%groups"

    # between functions ---------------------------------------------------------------------------

    def hand_on(self, i: int) -> None:
        """Leave a value, which is known from here on, to other functions, and to records."""
        if self.arrangement.copies:
            self.copy(i)
        slot = self.arrangement.slots.get(i)
        if slot is not None:
            self.leave(slot, self.type_of(i), self.operand(i))
        for records, column in self.arrangement.placed.get(i, ()):
            self.lazy.place(records, column, i)

    def copy(self, i: int) -> None:
        """Write the copies of a number, one for each use."""
        for at in self.arrangement.copied.get(i, ()):
            place = self.write.element("%copies", at)
            self.write.do(f"store {self.type('f', False)} {self.operand(i)}, ptr {place}")

    def copied(self, at: int) -> str:
        """A number of which there is a copy, in every lane."""
        place = self.write.element("%copies", at)
        return self.spread("f", self.write.value(f"load {self.type('f', False)}, ptr {place}"))

    def leave(self, slot: int, kind: str, name: str) -> None:
        """Store a value of this type to a slot of the frame."""
        at = self._slot(slot)
        self.write.lines.append(f"  store {kind} {name}, ptr {at}, align {self._align(kind)}")

    def fetch(self, slot: int, kind: str) -> str:
        """The value of this type in a slot of the frame."""
        return self.write.value(f"load {kind}, ptr {self._slot(slot)}, align {self._align(kind)}")

    def _slot(self, slot: int) -> str:
        """The address of a slot."""
        return self.write.value(f"getelementptr i8, ptr %frame, i64 {slot * self._size}")

    def _align(self, kind: str) -> int:
        """How a value of a type is aligned in its slot."""
        alignment = self._aligned.get(kind)
        if alignment is None:
            whole = min(CACHE_LINE_BYTES, self.arrangement.slot)
            alignment = self._aligned[kind] = 1 if kind.endswith(("i1", "i1>")) else whole
        return alignment

    # nodes ---------------------------------------------------------------------------------------

    def compute(self, nodes: Sequence[int]) -> None:
        """Write the instructions of some nodes."""
        beside = self._calls.beside
        if beside is None:
            self._compute(nodes)
            return
        for op, run in itertools.groupby(nodes, self._packed):
            if op is None:
                self._compute(run)
                continue
            together: list[int] = []
            for i in run:
                if len(together) == beside.lanes or not {*together}.isdisjoint(self.graph.args(i)):
                    self._as_one(op, together, beside)
                    together = []
                together.append(i)
            self._as_one(op, together, beside)

    def _packed(self, i: int) -> Op | None:
        """The function that a node calls, if it may be called in a vector."""
        op = self.shape.operation(self.graph.nodes[i][0])
        return op if self._calls.packed[op] else None

    def _as_one(self, op: Op, nodes: Sequence[int], shape: Shape) -> None:
        """Write calls of one function that need none of each other, as one if they are several."""
        if len(nodes) < LEAST_CALLS:
            self._compute(nodes)
            return
        self._calls.used[shape][op] += 1
        last = len(nodes) - 1  # what is left over of a vector does it again
        lanes = [self.graph.args(nodes[min(lane, last)]) for lane in range(shape.lanes)]
        if self._calls.through_memory:
            self._each(op, nodes, list(zip(*lanes, strict=True)), shape)
            return
        one, many = self.write.shape.float, shape.float
        vectors: list[str] = []
        for arguments in zip(*lanes, strict=True):
            vector = "poison"
            for lane, a in enumerate(arguments):
                vector = self.write.value(
                    f"insertelement {many} {vector}, {one} {self.operand(a)}, i64 {lane}"
                )
            vectors.append(f"{many} {vector}")
        results = self.write.value(f"call {many} @{called(op, shape)}({', '.join(vectors)})")
        for lane, i in enumerate(nodes):
            self.define(i, self.write.value(f"extractelement {many} {results}, i64 {lane}"))

    def _each(
        self, op: Op, nodes: Sequence[int], arguments: Sequence[Sequence[int]], shape: Shape
    ) -> None:
        """Write such calls as one of a function of all the numbers: see `definitions.of_each`."""
        one, self.together = self.write.shape.float, shape
        numbers = ", ".join(f"{one} {self.operand(a)}" for column in arguments for a in column)
        self.write.do(f"call void @{called(op, shape)}.each({numbers}, ptr %results)")
        for lane, i in enumerate(nodes):
            place = self.write.element("%results", lane)
            self.define(i, self.write.value(f"load {one}, ptr {place}"))

    def _compute(self, nodes: Iterable[int]) -> None:
        if not self._varying:
            self._write_all(nodes, self._scalars)
            return
        for are_vectors, run in itertools.groupby(nodes, self._varying.__contains__):
            self._write_all(run, self._vectors if are_vectors else self._scalars)

    def _write_all(self, nodes: Iterable[int], writer: _Nodes) -> None:
        """Write nodes, and leave those to other functions that these need."""
        left, copies = self.arrangement.left, self.arrangement.copies
        if not left:
            writer.write(nodes)
            return
        waiting: list[int] = []
        for i in nodes:
            waiting.append(i)
            if copies:
                self._write_of_copies(i, writer)
            elif i in left:
                writer.write(waiting)
            else:
                continue
            self.hand_on(i)
            waiting = []
        writer.write(waiting)

    def _write_of_copies(self, i: int, writer: _Nodes) -> None:
        """Write a node, with copies of its own of what it needs, where there are some."""
        copies, names = self.arrangement.copies, writer.names
        mine = [a for a in dict.fromkeys(self.analysis.needs(i)) if (i, a) in copies]
        for a in mine:
            names[a] = self.copied(copies[i, a])
        writer.write((i,))
        for a in mine:
            del names[a]

    def sums(self, op: Op, args: Any, wide: bool) -> str:
        """The operations of sums."""
        if op in OVER_LANES:
            return self._over_lanes(op, args[0])
        values = [self.operand(a, wide) for a in args]
        float_, double = self.type("f", wide), self.type("d", wide)
        if op in (wide_add, wide_mul):
            how = "fadd" if op is wide_add else "fmul"
            return self.write.value(f"{how} {double} {values[0]}, {values[1]}")
        if self.shape.in_pairs:
            return self._made(PUT_TOGETHER if op is widen else TAKEN_APART, wide, values[0])
        if float_ == double:
            return values[0]
        if op is widen:
            return self.write.value(f"fpext {float_} {values[0]} to {double}")
        return self.write.value(f"fptrunc {double} {values[0]} to {float_}")

    def _over_lanes(self, op: Op, i: int) -> str:
        """A sum, or an extreme, over all lanes; of sums, from the first to the last."""
        if self.lanes == 1:
            return self.operand(i, True)
        in_pairs = self.shape.in_pairs and op.result == "f"
        value = self.in_float64(i, True) if in_pairs else self.operand(i, True)
        one, many = self.type(op.result, False), self.type(op.result, True)
        suffix = f"v{self.lanes}{'f32' if one == 'float' else 'f64'}"
        extremes = {lane_max: "fmaximum", lane_min: "fminimum"}
        how = extremes.get(op, "fadd")
        first = "" if op in extremes else f"{one} -0.0, "
        call = f"call {one} @llvm.vector.reduce.{how}.{suffix}({first}{many} {value})"
        total = self.write.value(call)
        return self._made(TAKEN_APART, False, total) if in_pairs else total


class _Nodes(Writer):
    """Writes nodes as scalars, or as vectors, among the lines of a function."""

    def __init__(self, values: Values, calls: Calls, shape: Shape, fresh: Iterator[str]) -> None:
        a, lines = values.analysis, values.write.lines
        super().__init__(a.graph, shape, calls.functions, {}, a.products, fresh, lines)
        self._values, self.used = values, calls.used[shape]

    def missing(self, i: int) -> str:
        return self._values.first_needed(i, self.shape.lanes > 1)

    def _form(self, op: Op) -> str:
        return "" if op in _SUMS else super()._form(op)

    def _write_long(self, i: int, op: Op, node: Node) -> None:
        if op in _SUMS:
            self.names[i] = self._values.sums(op, node[1:], self.shape.lanes > 1)
        else:
            super()._write_long(i, op, node)
