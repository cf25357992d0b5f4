"""Reads and writes of buffers: one number for all lanes, lanes side by side, rows, or anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from symgrad.expr.graph.node import WORD
from symgrad.kernel.statements import Buffer, Fill, Load, ReadRow, Scope, Store, StoreRow
from symgrad.llvm.printing.arrangement import Arrangement
from symgrad.llvm.printing.indices import LINEAR
from symgrad.llvm.printing.instruction import Shape
from symgrad.llvm.printing.rows import Rows
from symgrad.llvm.printing.skeletons import Lines, load_columns, rows_of, transpose_in_memory
from symgrad.llvm.printing.values import Calls, Values

FILLED = 8
"""Numbers of an array that are set to zero without a loop."""


class Memory(Values):
    """Reads and writes within a function.

    A buffer of an invocation's own is an array of vectors, which hold the same number of each lane.
    ``vector`` is the shape of a register, of which several may lie side by side.
    """

    def __init__(
        self, arrangement: Arrangement, calls: Calls, names: Iterator[str], vector: Shape
    ) -> None:
        super().__init__(arrangement, calls, names)
        self.vector = vector
        self.results: dict[Rows, dict[int, str]] = {}
        """The columns of rows that are to be stored."""
        self._columns: dict[Rows, Sequence[str]] = {}
        self._numbers: dict[int, str] = {}
        """The words of the first lane that are known numbers."""
        self.block = "entry"
        """The name of the block of instructions that is being written."""
        self._labels = count()

    def label(self, name: str) -> str:
        """A name for blocks that no other has."""
        return f"{name}{next(self._labels)}"

    def memory(self, buffer: Buffer) -> str:
        """The address of a buffer."""
        return f"{'%' if buffer.data is None else '@'}{self.arrangement.names[buffer]}"

    # addresses -----------------------------------------------------------------------------------

    def first(self, i: int) -> str:
        """A word of the first lane, or of all, where the step to the next is known."""
        if i in self._numbers:
            return self._numbers[i]
        if i in self.kernel.columns and self.arrangement.indices.step(i):
            row, column = self.kernel.columns[i]
            return self.folded("add", self.first(row), str(column))
        op, *args = self.graph.nodes[i]
        if i in (self.kernel.cell, self.kernel.local):
            return "0" if self.lanes == 1 or i == self.kernel.local else "%cell"
        if op is WORD or not self.arrangement.indices.step(i):
            word = self.operand(i, False)
        else:
            word = self.folded(op.llvm.split()[0], *map(self.first, args))
        if word.isdigit():
            self._numbers[i] = word
        return word

    def _start(self, i: int, scope: Scope) -> str:
        """The same where a scope begins, of which nothing is computed yet."""
        op, *args = self.graph.nodes[i]
        if op in LINEAR and self.kernel.home[i] is scope and not self.is_written(i):
            return self.folded(op.llvm.split()[0], *(self._start(a, scope) for a in args))
        return self.first(i)

    def folded(self, operation: str, a: str, b: str) -> str:
        """A sum, a difference or a product of scalar words."""
        if a.isdigit() and b.isdigit():
            x, y = int(a), int(b)
            return str({"add": x + y, "sub": x - y, "mul": x * y}[operation] % 2**32)
        if operation == "add" and "0" in (a, b):
            return b if a == "0" else a
        return self.write.value(f"{operation} i32 {a}, {b}")

    def _at(self, base: str, unit: str, index: str) -> str:
        """The address of an element of an array of these, by a word."""
        if index == "0":
            return base
        if not index.isdigit():
            index = self.write.value(f"zext i32 {index} to i64")
        return self.write.value(f"getelementptr {unit}, ptr {base}, i64 {index}")

    def _anywhere(self, buffer: Buffer, index: int) -> str:
        """The addresses of the lanes' elements."""
        words, many = self.type("u", True), f"<{self.lanes} x i64>"
        at = self.write.value(f"zext {words} {self.operand(index, True)} to {many}")
        if buffer.space == "own":
            numbers = ", ".join(f"i64 {n}" for n in range(self.lanes))
            at = self.write.value(f"mul {many} {at}, splat (i64 {self.lanes})")
            at = self.write.value(f"add {many} {at}, <{numbers}>")
        unit = self.type(buffer.kind, False)
        return self.write.value(f"getelementptr {unit}, ptr {self.memory(buffer)}, {many} {at}")

    def _is_own_line(self, buffer: Buffer, index: int) -> bool:
        """Whether the lanes' numbers are one vector of a buffer of their own, or of rows there."""
        own = buffer.space == "own" and not self.varies(index)
        return own or buffer in self.arrangement.staying

    # reads ---------------------------------------------------------------------------------------

    def read(self, i: int) -> str:
        """The number, or the numbers, that a node reads."""
        if i in self.arrangement.reloaded:
            s = self.arrangement.reloaded[i]
            return self._loaded(s.buffer, s.index)
        read, index = self.graph.nodes[i]
        if read.buffer.kind == "f" and i in self.arrangement.columns_read and self.varies(index):
            rows, column = self.arrangement.columns_read[i]
            if rows.stride > 1 and (self.mask is None or rows.row == self.kernel.cell):
                return self._column(rows, column)
        return self._loaded(read.buffer, index)

    def read_of_row(self, s: ReadRow, column: int) -> str:
        """A column of the lanes' rows, or of the only invocation's."""
        if self.lanes > 1:
            return self._column(self.arrangement.whole[s], column)
        one = self.type(s.buffer.kind, False)
        return self.write.value(f"load {one}, ptr {self._of_row(self.memory(s.buffer), column)}")

    def _of_row(self, base: str, column: int) -> str:
        """The address of a column of a row of floats, or of vectors of them."""
        size = self.shape.itemsize * self.lanes
        return self.write.value(f"getelementptr i8, ptr {base}, i64 {size * column}")

    def _column(self, rows: Rows, column: int) -> str:
        """A column of rows that are read whole."""
        if rows in self._columns:
            return self._columns[rows][column]
        memory = self.arrangement.transposed.get(rows)
        if memory is not None:
            kind, align = self.shape.float, self._line_align(rows.buffer)
            at = self._of_row(memory, column)
            return self.write.value(f"load {kind}, ptr {at}, align {align}")
        self._columns[rows] = self._in_columns(rows)
        self._passing.append((self._columns, rows))
        return self._columns[rows][column]

    def transpose_rows(self, scope: Scope) -> None:
        """Transpose the rows that a scope reads to columns in memory, if that is where they are."""
        for rows in self.arrangement.transposed:
            if rows.scope is scope and rows in self.arrangement.read:
                self.transpose(rows, True)

    def transpose(self, rows: Rows, loading: bool) -> None:
        """Transpose rows to columns in memory, or back."""
        name = self.label("columns")
        memory, before = self.arrangement.transposed[rows], len(self.write.lines)
        transpose_in_memory(self.write, name, self.base(rows), rows.stride, memory, loading)
        if any(line == f"{name}.end:" for line in self.write.lines[before:]):
            self.block = f"{name}.end"

    def base(self, rows: Rows) -> str:
        """The address of the first row."""
        first = "%b"  # the cell as a wide word, from which LLVM makes addresses that only grow
        if rows.row != self.kernel.cell:
            first = self.write.value(f"zext i32 {self._start(rows.row, rows.scope)} to i64")
        return self.write.element(
            self.memory(rows.buffer), self.write.value(f"mul i64 {first}, {rows.stride}")
        )

    def _in_columns(self, rows: Rows) -> Sequence[str]:
        """The columns of rows, a register's lanes at a time."""
        base, write = self.base(rows), self.write.of(self.vector)
        pieces = [
            load_columns(write, write.element(base, start * rows.stride), rows.stride)
            for start in range(0, self.lanes, self.vector.lanes)
        ]
        return [
            _joined(self.write, parts, self.vector.lanes) for parts in zip(*pieces, strict=True)
        ]

    def load(self, s: Load) -> None:
        """Write a statement that reads, unless that is done where the number is needed."""
        if s.result in self.arrangement.reloaded:
            return
        rows = self.arrangement.rows_loaded(s) if self.lanes > 1 else None
        if rows is None or self.mask is not None:
            self.known(s.result, self._loaded(s.buffer, s.index))
        else:
            self.known(s.result, self._column(rows, self.arrangement.column(s.index)))

    def _loaded(self, buffer: Buffer, index: int) -> str:
        kind, wide = buffer.kind, self.type(buffer.kind, True)
        if self._is_own_line(buffer, index):
            return self._whole_line(buffer, self._line(buffer, index))
        if not self.varies(index):
            one = self.type(kind, False)
            return self.write.value(f"load {one}, ptr {self._one(buffer, index)}")
        mask, zeros = self._mask(), f"{wide} zeroinitializer"
        align, name = self.arrangement.size(kind), f"v{self.lanes}{self._scalar(kind)}"
        if buffer.space != "own" and self.arrangement.indices.step(index) == 1:
            at = self._first_of_lanes(buffer, index)
            if self.mask is None:
                return self.write.value(f"load {wide}, ptr {at}, align {align}")
            call = f"call {wide} @llvm.masked.load.{name}.p0(ptr {at}, i32 {align}"
            return self.write.value(f"{call}, {mask}, {zeros})")
        at = self._anywhere(buffer, index)
        call = f"call {wide} @llvm.masked.gather.{name}.v{self.lanes}p0(<{self.lanes} x ptr> {at}"
        return self.write.value(f"{call}, i32 {align}, {mask}, {zeros})")

    def _scalar(self, kind: str) -> str:
        """How the names of intrinsics call numbers of a kind."""
        bits = 8 * self.arrangement.size(kind)
        return f"f{bits}" if kind in "fd" else f"i{bits}"

    def _mask(self) -> str:
        mask = self.mask or self.shape.splat("i1", "true")
        return f"<{self.lanes} x i1> {mask}"

    def _one(self, buffer: Buffer, index: int) -> str:
        """The address of the first lane's number, or of that of all."""
        base, unit = self.memory(buffer), self.type(buffer.kind, False)
        if index in self.kernel.columns and not self.varies(index):
            index, column = self.kernel.columns[index]
            base = self._at(base, unit, str(column))
        return self._at(base, unit, self.first(index))

    def _first_of_lanes(self, buffer: Buffer, index: int) -> str:
        """The address of the first lane's number, where those of the others follow.

        Of lanes that are masked a word may be below 0, where it is the largest ones: so it is
        counted back from the lane behind the last, whose word is then small.
        """
        if not self.mask or self.graph.nodes[index][0] not in LINEAR:
            return self._one(buffer, index)
        behind = self.write.value(f"add i32 {self.first(index)}, {self.lanes}")
        wide = self.write.value(f"zext i32 {behind} to i64")
        at = self.write.value(f"sub i64 {wide}, {self.lanes}")
        unit = self.type(buffer.kind, False)
        return self.write.value(f"getelementptr {unit}, ptr {self.memory(buffer)}, i64 {at}")

    def _line(self, buffer: Buffer, index: int) -> str:
        """The address of a vector of a buffer of the invocations' own."""
        if rows := self.arrangement.staying.get(buffer):
            place = str(self.arrangement.column(index))
            return self._at(self.arrangement.transposed[rows], self.type(buffer.kind, True), place)
        unit, (first, column) = self.type(buffer.kind, True), self.kernel.columns.get(index, (0, 0))
        if column and not self.graph.nodes[first][0].constant:
            row = self._at(self.memory(buffer), unit, self.first(first))
            return self.write.value(f"getelementptr {unit}, ptr {row}, i64 {column}")
        return self._at(self.memory(buffer), unit, self.first(index))

    def _whole_line(self, buffer: Buffer, at: str) -> str:
        wide = self.type(buffer.kind, True)
        return self.write.value(f"load {wide}, ptr {at}, align {self._line_align(buffer)}")

    def _line_align(self, buffer: Buffer) -> int:
        size = self.arrangement.size(buffer.kind)
        return min(64, size * self.lanes)

    # writes --------------------------------------------------------------------------------------

    def store(self, s: Store) -> None:
        """Write a statement that stores."""
        rows = self.arrangement.staged.get(s) if self.lanes > 1 else None
        if rows is None or not self._stage(rows, s):
            self._store(s)

    def store_row(self, s: StoreRow) -> None:
        """Write what stores the rows: what is computed may stand in memory already."""
        rows, placed = self.arrangement.whole[s], self.arrangement.placed
        assert self.mask is None, "all lanes store their rows"
        if self.lanes > 1 and not self.arrangement.in_memory:
            self.results[rows] = {c: self.operand(i, True) for c, i in enumerate(s.values)}
            return
        for c, i in enumerate(s.values):
            if i not in placed:
                self.place(rows, c, i)

    def place(self, rows: Rows, column: int, i: int) -> None:
        """Store a value as a column of rows in memory, or of the only invocation's row."""
        wide = self.lanes > 1
        align = self._line_align(rows.buffer) if wide else self.shape.itemsize
        base = self.arrangement.transposed[rows] if wide else self.memory(rows.buffer)
        value = f"{self.shape.float} {self.operand(i, wide)}"
        self.write.do(f"store {value}, ptr {self._of_row(base, column)}, align {align}")

    def _stage(self, rows: Rows, s: Store) -> bool:
        """Put a value where it waits for the other columns of its rows; whether that can be."""
        column, memory = self.arrangement.column(s.index), self.arrangement.transposed.get(rows)
        if memory is not None:
            self.write.store(self.operand(s.value, True), memory, column * self.lanes, True)
            return True
        if self.mask is not None or self.arrangement.is_cut(s):
            return False
        columns = self.results.setdefault(rows, {})
        columns[column] = self.operand(s.value, True)
        if len(columns) == rows.stride and rows not in self.arrangement.rows:
            base, write = self.base(rows), self.write.of(self.vector)
            for k, vector in enumerate(self.rows(rows)):
                write.store(vector, base, k * write.shape.lanes, False)
        return True

    def rows(self, rows: Rows) -> list[str]:
        """The vectors of rows whose columns are all there, one row behind the other."""
        columns = self.results.pop(rows)
        write, vectors = self.write.of(self.vector), list[str]()
        for start in range(0, self.lanes, self.vector.lanes):
            parts = [
                _part(self.write, columns[c], start, self.vector.lanes) for c in sorted(columns)
            ]
            vectors += rows_of(write, parts)
        return vectors

    def _store(self, s: Store) -> None:
        if self._is_own_line(s.buffer, s.index):
            self._store_line(s)
        elif not self.varies(s.index):
            self._store_one(s)
        else:
            self._store_many(s)

    def _store_line(self, s: Store) -> None:
        at, wide, value = self._line(s.buffer, s.index), self.type(s.buffer.kind, True), ""
        value = self.operand(s.value, True)
        old = self._whole_line(s.buffer, at) if s.add or self.mask else ""
        if s.add:
            value = self._sum(s.buffer, wide, old, value)
        if self.mask:
            value = self.chosen(self.mask, wide, value, old)
        self.write.do(f"store {wide} {value}, ptr {at}, align {self._line_align(s.buffer)}")

    def _sum(self, buffer: Buffer, kind: str, a: str, b: str) -> str:
        return self.write.value(f"{'fadd' if buffer.kind in 'fd' else 'add'} {kind} {a}, {b}")

    def chosen(self, mask: str, kind: str, a: str, b: str) -> str:
        """a in the lanes of a mask, b in the others."""
        return self.write.value(f"select <{self.lanes} x i1> {mask}, {kind} {a}, {kind} {b}")

    def _store_one(self, s: Store) -> None:
        at, one = self._one(s.buffer, s.index), self.type(s.buffer.kind, False)
        value = self.operand(s.value)
        if self.varies(s.value):
            value = self._of_first_lane(self.type(s.buffer.kind, True), value)
        if s.add:
            value = self._sum(s.buffer, one, self.write.value(f"load {one}, ptr {at}"), value)
        self.write.do(f"store {one} {value}, ptr {at}")

    def _of_first_lane(self, kind: str, value: str) -> str:
        """What the first of the lanes that go on has."""
        lane = "0"
        if self.mask:
            bits = f"i{self.lanes}"
            mask = self.write.value(f"bitcast <{self.lanes} x i1> {self.mask} to {bits}")
            lane = self.write.value(f"call {bits} @llvm.cttz.{bits}({bits} {mask}, i1 true)")
            if self.lanes != 64:
                cast = "zext" if self.lanes < 64 else "trunc"
                lane = self.write.value(f"{cast} {bits} {lane} to i64")
        return self.write.value(f"extractelement {kind} {value}, i64 {lane}")

    def _store_many(self, s: Store) -> None:
        wide, align = self.type(s.buffer.kind, True), self.arrangement.size(s.buffer.kind)
        name, value = f"v{self.lanes}{self._scalar(s.buffer.kind)}", self.operand(s.value, True)
        if s.add:
            value = self._sum(s.buffer, wide, self._loaded(s.buffer, s.index), value)
        if s.buffer.space == "own" or self.arrangement.indices.step(s.index) != 1:
            at = self._anywhere(s.buffer, s.index)
            call = f"call void @llvm.masked.scatter.{name}.v{self.lanes}p0({wide} {value}"
            self.write.do(f"{call}, <{self.lanes} x ptr> {at}, i32 {align}, {self._mask()})")
            return
        at = self._first_of_lanes(s.buffer, s.index)
        if self.mask is None:
            self.write.do(f"store {wide} {value}, ptr {at}, align {align}")
            return
        call = f"call void @llvm.masked.store.{name}.p0({wide} {value}, ptr {at}"
        self.write.do(f"{call}, i32 {align}, {self._mask()})")

    def fill(self, s: Fill) -> None:
        """Write a statement that sets an array to zero."""
        if s.buffer.size <= FILLED:
            for k in range(s.buffer.size):
                self._clear(s.buffer, str(k))
            return
        name = self.label("fill")
        self.write.over(name, str(s.buffer.size), lambda k: self._clear(s.buffer, k))
        self.block = f"{name}.end"

    def _clear(self, buffer: Buffer, k: str) -> None:
        wide = self.type(buffer.kind, True)
        at = self.write.value(f"getelementptr {wide}, ptr {self.memory(buffer)}, i64 {k}")
        value = "zeroinitializer"
        if self.mask:
            value = self.chosen(self.mask, wide, value, self._whole_line(buffer, at))
        self.write.do(f"store {wide} {value}, ptr {at}, align {self._line_align(buffer)}")


def _joined(write: Lines, parts: Sequence[str], lanes: int) -> str:
    """A vector of the numbers of several, which have so many each."""
    scalar, vectors, size = write.scalar, list(parts), lanes
    while len(vectors) > 1:
        kind, size = f"<{size} x {scalar}>", 2 * size
        numbers = ", ".join(f"i32 {k}" for k in range(size))
        vectors = [
            write.value(f"shufflevector {kind} {a}, {kind} {b}, <{size} x i32> <{numbers}>")
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _part(write: Lines, value: str, start: int, lanes: int) -> str:
    """Some of the numbers of a vector."""
    if lanes == write.shape.lanes:
        return value
    numbers, kind = ", ".join(f"i32 {start + k}" for k in range(lanes)), write.shape.float
    return write.value(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{numbers}>")
