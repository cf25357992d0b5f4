"""Reads and writes of buffers: one number for all lanes, lanes side by side, or anywhere."""

from __future__ import annotations

from symgrad.kernel.statements import Buffer, Fill, Load, ReadRow, Store
from symgrad.llvm.printing.addresses import Addresses
from symgrad.llvm.printing.analysis import Records
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.records import Transposed
from symgrad.llvm.printing.tables import Tables
from symgrad.llvm.printing.values import Values

FILLED = 8
"""Numbers of an array that are set to zero without a loop."""


class Memory:
    """Reads and writes within a function: by lanes, of ``records``, and of entries of ``tables``.

    ``vector`` is the shape of a register, of which several may lie side by side.
    """

    def __init__(self, values: Values, vector: Shape) -> None:
        self._values, self._write, self._lanes = values, values.write, values.lanes
        self._arrangement, self._analysis = values.arrangement, values.analysis
        self._addresses = Addresses(values)
        self.records = Transposed(values, self._addresses, vector)
        self.tables = Tables(values, self._addresses)

    # reads ---------------------------------------------------------------------------------------

    def read(self, i: int) -> str:
        """The number, or the numbers, that a node reads, or a statement whose result is late."""
        entry = self.tables.read(i)
        if entry is not None:
            return entry
        values = self._values
        if i in self._analysis.reloaded:
            s = self._analysis.reloaded[i]
            return self._loaded(s.buffer, s.index)
        read, index = values.graph.nodes[i]
        columns = self._arrangement.records.columns_read
        if read.buffer.kind == "f" and i in columns and values.varies(index):
            records, column = columns[i]
            if records.stride > 1 and (values.mask is None or records.row == values.kernel.cell):
                return self.records.column(records, column)
        return self._loaded(read.buffer, index)

    def read_of_row(self, s: ReadRow, column: int) -> str:
        """A number of the invocation's row, or the numbers of the lanes' rows."""
        return self.records.of_row(s, column)

    def load(self, s: Load) -> None:
        """Write a statement that reads, unless that is done where the number is needed."""
        if s.result in self._analysis.reloaded:
            return
        records = self._arrangement.records.loaded(s) if self._lanes > 1 else None
        if records is None or self._values.mask is not None:
            number = self._loaded(s.buffer, s.index)
        else:
            column = self._arrangement.records.column(s.index)
            number = self.records.column(records, column)
        wide = self._values.varies(s.result)
        self._values.define(s.result, self._values.taken(s.buffer, number, wide))

    def _loaded(self, buffer: Buffer, index: int) -> str:
        values, write, kind = self._values, self._write, buffer.kind
        wide = values.type(kind, True)
        if self._addresses.is_vector(buffer, index):
            return self._whole_vector(buffer, self._addresses.vector(buffer, index))
        if not values.varies(index):
            one = values.type(kind, False)
            return write.value(f"load {one}, ptr {self._addresses.one(buffer, index)}")
        mask, zeros = self._mask(), f"{wide} zeroinitializer"
        align, name = self._arrangement.size(kind), f"v{self._lanes}{self._scalar(kind)}"
        if buffer.space != "own" and self._analysis.indices.step(index) == 1:
            at = self._addresses.side_by_side(buffer, index)
            if values.mask is None:
                return write.value(f"load {wide}, ptr {at}, align {align}")
            call = f"call {wide} @llvm.masked.load.{name}.p0(ptr {at}, i32 {align}"
            return write.value(f"{call}, {mask}, {zeros})")
        at = self._addresses.anywhere(buffer, index)
        call = f"call {wide} @llvm.masked.gather.{name}.v{self._lanes}p0(<{self._lanes} x ptr> {at}"
        return write.value(f"{call}, i32 {align}, {mask}, {zeros})")

    def _whole_vector(self, buffer: Buffer, at: str) -> str:
        wide, align = self._values.type(buffer.kind, True), self._addresses.alignment(buffer)
        return self._write.value(f"load {wide}, ptr {at}, align {align}")

    def _scalar(self, kind: str) -> str:
        """How the names of intrinsics call numbers of a kind."""
        bits = 8 * self._arrangement.size(kind)
        return f"f{bits}" if kind in "fd" else f"i{bits}"

    def _mask(self) -> str:
        mask = self._values.mask or self._values.shape.splat("i1", "true")
        return f"<{self._lanes} x i1> {mask}"

    # writes --------------------------------------------------------------------------------------

    def place(self, records: Records, column: int, i: int) -> None:
        """Store a value as a column of records in memory."""
        self.records.place(records, column, i)

    def store(self, s: Store) -> None:
        """Write a statement that stores."""
        if s.buffer.atomic and self._lanes > 1:
            self.tables.add(s)
            return
        records = self._arrangement.records.staged.get(s) if self._lanes > 1 else None
        if records is not None and self.records.stage(records, s):
            return
        if self._addresses.is_vector(s.buffer, s.index):
            self._store_vector(s)
        elif not self._values.varies(s.index):
            self._store_one(s)
        else:
            self._store_many(s)

    def _store_vector(self, s: Store) -> None:
        values, at = self._values, self._addresses.vector(s.buffer, s.index)
        wide, value = values.type(s.buffer.kind, True), values.given(s.buffer, s.value, True)
        old = self._whole_vector(s.buffer, at) if s.add or values.mask else ""
        if s.add:
            value = values.sum(s.buffer, True, old, value)
        if values.mask:
            value = values.chosen(values.mask, wide, value, old)
        align = self._addresses.alignment(s.buffer)
        self._write.do(f"store {wide} {value}, ptr {at}, align {align}")

    def _store_one(self, s: Store) -> None:
        values, at = self._values, self._addresses.one(s.buffer, s.index)
        one, value = values.type(s.buffer.kind, False), values.given(s.buffer, s.value)
        if values.varies(s.value):
            value = self._of_first_lane(values.type(s.buffer.kind, True), value)
        if s.add:
            old = self._write.value(f"load {one}, ptr {at}")
            value = values.sum(s.buffer, False, old, value)
        self._write.do(f"store {one} {value}, ptr {at}")

    def _of_first_lane(self, kind: str, value: str) -> str:
        """The value of the first of the lanes that go on."""
        lanes, write, lane = self._lanes, self._write, "0"
        if self._values.mask:
            bits = f"i{lanes}"
            mask = write.value(f"bitcast <{lanes} x i1> {self._values.mask} to {bits}")
            lane = write.value(f"call {bits} @llvm.cttz.{bits}({bits} {mask}, i1 true)")
            if lanes != 64:
                cast = "zext" if lanes < 64 else "trunc"
                lane = write.value(f"{cast} {bits} {lane} to i64")
        return write.value(f"extractelement {kind} {value}, i64 {lane}")

    def _store_many(self, s: Store) -> None:
        values, kind = self._values, s.buffer.kind
        wide, align = values.type(kind, True), self._arrangement.size(kind)
        name, value = f"v{self._lanes}{self._scalar(kind)}", values.given(s.buffer, s.value, True)
        if s.add:
            value = values.sum(s.buffer, True, self._loaded(s.buffer, s.index), value)
        if s.buffer.space == "own" or self._analysis.indices.step(s.index) != 1:
            at = self._addresses.anywhere(s.buffer, s.index)
            call = f"call void @llvm.masked.scatter.{name}.v{self._lanes}p0({wide} {value}"
            self._write.do(f"{call}, <{self._lanes} x ptr> {at}, i32 {align}, {self._mask()})")
            return
        at = self._addresses.side_by_side(s.buffer, s.index)
        if values.mask is None:
            self._write.do(f"store {wide} {value}, ptr {at}, align {align}")
            return
        call = f"call void @llvm.masked.store.{name}.p0({wide} {value}, ptr {at}"
        self._write.do(f"{call}, i32 {align}, {self._mask()})")

    def fill(self, s: Fill) -> None:
        """Write a statement that sets an array to zero."""
        if s.buffer.size <= FILLED:
            for k in range(s.buffer.size):
                self._clear(s.buffer, str(k))
            return
        name = self._write.label("fill")
        self._write.over(name, str(s.buffer.size), lambda k: self._clear(s.buffer, k))

    def _clear(self, buffer: Buffer, k: str) -> None:
        values, wide = self._values, self._values.type(buffer.kind, True)
        base = self._addresses.of(buffer)
        at = self._write.value(f"getelementptr {wide}, ptr {base}, i64 {k}")
        value = "zeroinitializer"
        if values.mask:
            value = values.chosen(values.mask, wide, value, self._whole_vector(buffer, at))
        align = self._addresses.alignment(buffer)
        self._write.do(f"store {wide} {value}, ptr {at}, align {align}")
