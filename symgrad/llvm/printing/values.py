"""The values of a kernel within a function of LLVM: what they are called, as scalars or vectors."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from symgrad.expr.graph.node import Node, Op
from symgrad.kernel.language import narrow, wide_add, widen
from symgrad.kernel.statements import (
    OVER_LANES,
    Read,
    ReadRow,
    lane_max,
    lane_min,
    wide_mul,
)
from symgrad.llvm.printing.arrangement import Arrangement
from symgrad.llvm.printing.instruction import Shape, Writer, called, constant
from symgrad.llvm.printing.packs import LEAST_CALLS, Packed
from symgrad.llvm.printing.rows import Rows
from symgrad.llvm.printing.skeletons import Lines
from symgrad.llvm.printing.workspace import CACHE_LINE_BYTES
from symgrad.mathlib.define import Function

_SUMS: Final = frozenset({*OVER_LANES, widen, narrow, wide_add, wide_mul})
"""What is written here rather than by the op table."""


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


class Values:
    """What a function writes, and the names of the values that it has so far.

    A value that varies is a vector, a number for each lane, and any other a scalar, which is spread
    to a vector where one is needed. ``mask`` says which lanes go on, where not all do.
    """

    def __init__(self, arrangement: Arrangement, calls: Calls, names: Iterator[str]) -> None:
        self.arrangement, self.kernel = arrangement, arrangement.kernel
        self.graph, self.shape = arrangement.graph, arrangement.shape
        self.lanes = self.shape.lanes
        self.write = Lines(self.shape, names)
        scalar = arrangement.scalar
        self._types = [s.types | {"d": s.vector("double")} for s in (scalar, self.shape)]
        self.mask: str | None = None
        self._passing: list[tuple[dict[Any, Any], Any]] = []
        self._scalars = self._vectors = _Nodes(self, calls, arrangement.scalar, names)
        if self.lanes > 1:
            self._vectors = _Nodes(self, calls, self.shape, names)
        self._varying = arrangement.varying
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
        return i in self.arrangement.varying

    def type_of(self, i: int) -> str:
        """The type of a value as it is."""
        return self._types[i in self._varying][self.graph.nodes[i][0].result]

    def splat(self, kind: str, text: str) -> str:
        """The constant in every lane, with its type."""
        return f"{self.type(kind, True)} {self.shape.splat(self.type(kind, False), text)}"

    # names ---------------------------------------------------------------------------------------

    def operand(self, i: int, wide: bool | None = None) -> str:
        """The name of a value, or a constant: as it is, or ``wide``, a vector."""
        wide = i in self._varying if wide is None else wide
        return (self._vectors if wide else self._scalars).names[i]

    def known(self, i: int, name: str) -> None:
        """A value that has this name from here on."""
        self._writer(i).names[i] = name
        self.handed(i)

    def is_written(self, i: int) -> bool:
        """Whether a value has a name here."""
        return i in self._writer(i).names

    def _writer(self, i: int) -> _Nodes:
        """What writes a value as it is."""
        return self._vectors if i in self._varying else self._scalars

    def made(self, i: int, wide: bool) -> str:
        """The name of a value that has none: of one that is written where it is first needed."""
        a, writer = self.arrangement, self._vectors if wide else self._scalars
        if i in a.known and i not in a.special:
            name = constant(self.graph.nodes[i], writer.shape)
        elif wide and i not in self._varying:
            name = self.spread(self.kernel.type(i), self.operand(i, False))
            self._passing.append((writer.names, i))
        else:
            name = self._found(i)
            self._passing.append((writer.names, i))
        writer.names[i] = name
        return name

    def spread(self, kind: str, name: str) -> str:
        """A scalar in every lane."""
        if self.lanes == 1:
            return name
        one, many = self.type(kind, False), self.type(kind, True)
        first = self.write.value(f"insertelement {many} poison, {one} {name}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.write.value(f"shufflevector {many} {first}, {many} poison, {zeros}")

    @contextmanager
    def inside(self) -> Generator[None]:
        """A context whose values, if they are lazy or spread, are not known behind it."""
        mark = len(self._passing)
        yield
        for names, i in self._passing[mark:]:
            names.pop(i, None)
        del self._passing[mark:]

    def _found(self, i: int) -> str:
        """A value that has no name yet."""
        a = self.arrangement
        if i not in a.lazy:
            slot = a.slots.get(i)
            assert slot is not None or i in a.special, f"value {i} was never computed"
            return self._special(i) if slot is None else self.fetch(slot, self.type_of(i))
        if i in a.row_reads:
            return self.read_of_row(*a.row_reads[i])
        if isinstance(self.graph.nodes[i][0], Read) or i in a.reloaded:
            return self.read(i)
        writer = self._writer(i)
        writer.write((i,))
        return writer.names[i]

    def _special(self, i: int) -> str:
        """What an invocation is."""
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

    def read(self, i: int) -> str:
        """The number, or the numbers, that a node reads."""
        raise NotImplementedError

    def read_of_row(self, s: ReadRow, column: int) -> str:
        """A number of the invocation's row, or the numbers of the lanes' rows."""
        raise NotImplementedError

    # between functions ---------------------------------------------------------------------------

    def handed(self, i: int) -> None:
        """Leave a value, which is known from here on, to other functions that need it, and rows."""
        if self.arrangement.copies:
            self.copy(i)
        slot = self.arrangement.slots.get(i)
        if slot is not None:
            self.leave(slot, self.type_of(i), self.operand(i))
        for rows, column in self.arrangement.placed.get(i, ()):
            self.place(rows, column, i)

    def place(self, rows: Rows, column: int, i: int) -> None:
        """Store a value as a column of rows in memory."""
        raise NotImplementedError

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
        op = self.graph.nodes[i][0]
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
            self.known(i, self.write.value(f"extractelement {many} {results}, i64 {lane}"))

    def _each(
        self, op: Op, nodes: Sequence[int], arguments: Sequence[Sequence[int]], shape: Shape
    ) -> None:
        """Write such calls as one of a function of all the numbers: see `definitions.of_each`."""
        one, self.together = self.write.shape.float, shape
        numbers = ", ".join(f"{one} {self.operand(a)}" for column in arguments for a in column)
        self.write.do(f"call void @{called(op, shape)}.each({numbers}, ptr %results)")
        for lane, i in enumerate(nodes):
            place = self.write.element("%results", lane)
            self.known(i, self.write.value(f"load {one}, ptr {place}"))

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
            self.handed(i)
            waiting = []
        writer.write(waiting)

    def _write_of_copies(self, i: int, writer: _Nodes) -> None:
        """Write a node, with copies of its own of what it needs, where there are some."""
        copies, names = self.arrangement.copies, writer.names
        mine = [a for a in dict.fromkeys(self.arrangement.needs(i)) if (i, a) in copies]
        for a in mine:
            names[a] = self.copied(copies[i, a])
        writer.write((i,))
        for a in mine:
            del names[a]

    def sums(self, op: Op, args: Any, wide: bool) -> str:
        """What sums are made of."""
        if op in OVER_LANES:
            return self._over_lanes(op, self.operand(args[0], True))
        values = [self.operand(a, wide) for a in args]
        float_, double = self.type("f", wide), self.type("d", wide)
        if op in (wide_add, wide_mul):
            how = "fadd" if op is wide_add else "fmul"
            return self.write.value(f"{how} {double} {values[0]}, {values[1]}")
        if float_ == double:
            return values[0]
        if op is widen:
            return self.write.value(f"fpext {float_} {values[0]} to {double}")
        return self.write.value(f"fptrunc {double} {values[0]} to {float_}")

    def _over_lanes(self, op: Op, value: str) -> str:
        """What a sum, or an extreme, over all lanes is; of sums, from the first to the last."""
        if self.lanes == 1:
            return value
        one, many = self.type(op.result, False), self.type(op.result, True)
        suffix = f"v{self.lanes}{'f32' if one == 'float' else 'f64'}"
        extremes = {lane_max: "fmaximum", lane_min: "fminimum"}
        how = extremes.get(op, "fadd")
        first = "" if op in extremes else f"{one} -0.0, "
        call = f"call {one} @llvm.vector.reduce.{how}.{suffix}({first}{many} {value})"
        return self.write.value(call)


class _Nodes(Writer):
    """Writes nodes as scalars, or as vectors, among the lines of a function."""

    def __init__(self, values: Values, calls: Calls, shape: Shape, fresh: Iterator[str]) -> None:
        a, lines = values.arrangement, values.write.lines
        super().__init__(a.graph, shape, calls.functions, {}, a.products, fresh, lines)
        self._values, self.used = values, calls.used[shape]

    def missing(self, i: int) -> str:
        return self._values.made(i, self.shape.lanes > 1)

    def _form(self, op: Op) -> str:
        return "" if op in _SUMS else super()._form(op)

    def _write_long(self, i: int, op: Op, node: Node) -> None:
        if op in _SUMS:
            self.names[i] = self._values.sums(op, node[1:], self.shape.lanes > 1)
        else:
            super()._write_long(i, op, node)
