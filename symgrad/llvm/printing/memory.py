"""Reads and writes of buffers and tables: one number for all lanes, lanes in order, or anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD
from symgrad.kernel.language.ir import widen
from symgrad.kernel.language.statements import (
    Buffer,
    Fill,
    Load,
    Read,
    ReadRow,
    Scope,
    Store,
    scopes_of,
)
from symgrad.llvm.printing.analysis import Records
from symgrad.llvm.printing.indices import Bounded
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.records import Addresses, Transposed, tiles, transpose
from symgrad.llvm.printing.values import Values


@dataclass(frozen=True)
class Entry:
    """The entries of a table, so many numbers long, that the lanes are at."""

    buffer: Buffer
    number: int
    width: int


class Tables:
    """Reads of entries, and adds to them.

    Of an entry that is read all columns are read: a vector of it at a time, also beyond its end.
    What is added to several columns of an entry goes there at once. Two lanes may name the same
    entry.
    """

    def __init__(self, values: Values, addresses: Addresses) -> None:
        self._values, self._addresses, self._write = values, addresses, values.write
        self._shape, self._lanes, self._nodes = values.shape, values.lanes, values.graph.nodes
        self._step = values.analysis.indices.step
        self._entries: dict[Entry, Sequence[str]] = {}
        self._together: dict[Store, tuple[Store, ...]] = {}
        if self._lanes > 1 and any(b.atomic for b in values.kernel.buffers):
            self._join(values.kernel.main)

    def _entry_at(self, buffer: Buffer, index: int) -> tuple[Entry, int] | None:
        """The entry in which an index stands, and its column, if lanes are at entries anywhere."""
        if not buffer.padded or not self._values.varies(index) or self._step(index) is not None:
            return None
        first, column = self._values.kernel.columns.get(index, (index, 0))
        op, *args = self._nodes[first]
        for number, width in (args, args[::-1]) if op is ops.word_mul else ():
            kind, *size = self._nodes[width]
            if kind is WORD and self._step(number) is None:
                return Entry(buffer, number, size[0]), column
        return Entry(buffer, first, 1), column

    # reads ---------------------------------------------------------------------------------------

    def read(self, i: int) -> str | None:
        """The numbers that a node reads, if it reads an entry for each lane."""
        op, *args = self._nodes[i]
        anywhere = isinstance(op, Read) and self._lanes > 1 and not self._values.mask
        place = self._entry_at(op.buffer, args[0]) if anywhere else None
        if place is None:
            return None
        entry, column = place
        if entry not in self._entries:
            self._entries[entry] = self._columns_of(entry)
            self._values.expire(self._entries, entry)
        return self._entries[entry][column]

    def _columns_of(self, entry: Entry) -> Sequence[str]:
        """A vector for each column of the lanes' entries."""
        write, lanes, vectors = self._write, self._lanes, list[str]()
        table, starts = self._addresses.of(entry.buffer), self._offsets(entry)
        for start, new in tiles(entry.width, lanes):
            rows = [write.load(write.element(table, at), start, False) for at in starts]
            columns = transpose(write, rows)
            vectors += columns[new - start : min(lanes, entry.width - start)]
        return vectors

    def _offsets(self, entry: Entry) -> Sequence[str]:
        """Where the entry of each lane begins, counted in numbers.

        To find that anew is quicker than to keep it.
        """
        write = self._write
        numbers = [write.value(f"zext i32 {n} to i64") for n in self._words_of(entry.number)]
        return [write.value(f"mul i64 {n}, {entry.width}") for n in numbers]

    def _words_of(self, i: int) -> Iterator[str]:
        """The word of each lane."""
        op, *args = self._nodes[i]
        step = self._step(args[0]) if isinstance(op, Read) else None
        if step is None or not isinstance(op, Read):
            words = f"{self._values.type('u', True)} {self._values.operand(i)}"
            for lane in range(self._lanes):
                yield self._write.value(f"extractelement {words}, i64 {lane}")
            return
        first = self._addresses.element(
            self._addresses.of(op.buffer), "i32", self._addresses.first(args[0])
        )
        for lane in range(self._lanes):
            at = self._write.value(f"getelementptr i32, ptr {first}, i64 {lane * step}")
            yield self._write.value(f"load i32, ptr {at}")

    # adds ----------------------------------------------------------------------------------------

    def _join(self, scope: Scope) -> None:
        """Find what is added to one entry, by statements that follow each other."""
        run: list[Store] = []
        for item in scope.items:
            if isinstance(item, int):
                continue
            is_add = isinstance(item, Store) and item.buffer.atomic and item.add
            if run and not (is_add and self._goes_with(run[-1], item)):
                self._together[run[-1]] = tuple(run)
                run = []
            if isinstance(item, Store) and is_add:
                run.append(item)
            for inner in scopes_of(item):
                self._join(inner)
        if run:
            self._together[run[-1]] = tuple(run)

    def _goes_with(self, a: Store, b: Any) -> bool:
        entries = [self._entry_at(s.buffer, s.index) for s in (a, b)]
        first, second = entries
        same = first is not None and second is not None and first[0] == second[0]
        return same and self._values.arrangement.part_of(a) == self._values.arrangement.part_of(b)

    def add(self, s: Store) -> None:
        """Write a statement that adds, with those before it that add to the same entry."""
        if s in self._together:
            self._add(self._together[s])

    def _add(self, stores: Sequence[Store]) -> None:
        """Add to the columns of one entry, by runs of columns that follow each other."""
        located = [self._entry_at(s.buffer, s.index) for s in stores]
        places = [place for place in located if place is not None]
        assert len(places) == len(stores), "what several lanes add to is a table"
        entry, values = places[0][0], [self._added(s.value) for s in stores]
        columns = [column for _, column in places]
        start = 0
        for k in range(1, len(columns) + 1):
            if k == len(columns) or columns[k] != columns[k - 1] + 1:
                self._add_columns(entry, columns[start], values[start:k])
                start = k

    def _added(self, i: int) -> str:
        """A float that is added, 0 where its lane does not go on."""
        op, *args = self._nodes[i]
        assert op is widen, "floats are added to tables of wide ones"
        value = self._values.in_float64(args[0], True)
        if self._values.mask is None:
            return value
        return self._values.chosen(
            self._values.mask, self._shape.float, value, self._shape.number(0.0)
        )

    def _add_columns(self, entry: Entry, first: int, values: Sequence[str]) -> None:
        """Add to neighbouring columns, in vectors that may reach beyond: they add zeros there."""
        write, lanes, starts = self._write, self._lanes, self._offsets(entry)
        for k in range(0, len(values), lanes):
            part = list(values[k : k + lanes])
            sizes = _sizes(len(part), self._shape)
            part += [self._shape.number(0.0)] * (sum(sizes) - len(part))
            rows = transpose(write, part + ["poison"] * (lanes - len(part)))
            for start, row in zip(starts, rows, strict=True):
                at = write.value(f"add i64 {start}, {first + k}")
                self._add_row(self._addresses.of(entry.buffer), at, row, sizes)

    def _add_row(self, table: str, at: str, row: str, sizes: Sequence[int]) -> None:
        """Add the numbers of a vector to those of a table, in pieces."""
        write, kind, taken = self._write, self._shape.float, 0
        cast = "fpext" if self._shape.dtype == "float32" else "bitcast"
        for size in sizes:
            wide = f"<{size} x double>"
            mask = ", ".join(f"i32 {k}" for k in range(taken, taken + size))
            mask = f"<{size} x i32> <{mask}>"
            part = write.value(f"shufflevector {kind} {row}, {kind} poison, {mask}")
            more = write.value(f"{cast} <{size} x {write.scalar}> {part} to {wide}")
            position = write.value(f"add i64 {at}, {taken}")
            address = write.value(f"getelementptr double, ptr {table}, i64 {position}")
            old = write.value(f"load {wide}, ptr {address}, align 8")
            new = write.value(f"fadd {wide} {old}, {more}")
            write.do(f"store {wide} {new}, ptr {address}, align 8")
            taken += size


def _sizes(width: int, shape: Shape) -> list[int]:
    """The vectors of float64 that hold so many numbers, the last one no wider than it has to be."""
    most = shape.lanes * shape.itemsize // 8
    whole, rest = divmod(width, most)
    return [most] * whole + ([1 << (rest - 1).bit_length()] if rest else [])


SMALL = 16
"""Bytes of vectors of which no lanes alone are read from memory by one instruction."""

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
        bounded = self._analysis.indices.bounded(index) if self._is_masked(buffer) else None
        if bounded is not None:
            return self._within(buffer, bounded)
        at = self._addresses.anywhere(buffer, index)
        call = f"call {wide} @llvm.masked.gather.{name}.v{self._lanes}p0(<{self._lanes} x ptr> {at}"
        return write.value(f"{call}, i32 {align}, {mask}, {zeros})")

    def _is_masked(self, buffer: Buffer) -> bool:
        """Whether lanes of a vector may be read from memory and others not, by one instruction."""
        return buffer.space != "own" and self._lanes * self._arrangement.size(buffer.kind) > SMALL

    def _within(self, buffer: Buffer, index: Bounded) -> str:
        """The numbers side by side up to a limit, and beyond it the one that stands at the limit.

        Where all lanes go on, few vectors are at the limit: the others take another branch.
        """
        values, write, wide = self._values, self._write, self._values.type(buffer.kind, True)
        if values.mask:
            return self._edge(buffer, index)
        name, limit = write.label("read"), values.operand(index.limit, False)
        first, lanes = self._addresses.first(index.word), self._lanes
        least = write.value(f"call i32 @llvm.usub.sat.i32(i32 {limit}, i32 {lanes - 2})")
        below = write.value(f"icmp ult i32 {first}, {least}")
        write.do(f"br i1 {below}, label %{name}.side, label %{name}.edge")
        write.begin(f"{name}.side")
        base, unit = self._addresses.of(buffer), values.type(buffer.kind, False)
        with values.inside():
            at = self._addresses.element(base, unit, self._summed(first, index.rest))
        side = write.value(f"load {wide}, ptr {at}, align {self._arrangement.size(buffer.kind)}")
        incoming = [(write.block, [side])]
        write.do(f"br label %{name}.end")
        write.begin(f"{name}.edge")
        with values.inside():
            edge = self._edge(buffer, index)
        incoming.append((write.block, [edge]))
        write.do(f"br label %{name}.end")
        write.begin(f"{name}.end")
        return write.phis([wide], incoming)[0]

    def _edge(self, buffer: Buffer, index: Bounded) -> str:
        """Such numbers of lanes of which some are beyond the limit, or none of those that go on.

        What no lane is to have is read from the beginning.
        """
        values, write, kind = self._values, self._write, buffer.kind
        one, wide, words = values.type(kind, False), values.type(kind, True), values.type("u", True)
        word, limit = (values.operand(i, True) for i in (index.word, index.limit))

        def where(mask: str, place: str) -> str:
            """The address of a place that some lane of a mask has."""
            return write.value(f"select i1 {values.any_lane(mask)}, i64 {place}, i64 0")

        last = self._summed(values.operand(index.limit, False), index.rest)
        last = write.value(f"zext i32 {last} to i64")
        inside = write.value(f"icmp ule {words} {word}, {limit}")
        if values.mask:
            beyond = write.value(f"icmp ugt {words} {word}, {limit}")
            last = where(values.both(values.mask, beyond), last)
            inside = values.both(values.mask, inside)
        base = self._addresses.of(buffer)
        at = write.value(f"getelementptr {one}, ptr {base}, i64 {last}")
        others = values.spread(kind, write.value(f"load {one}, ptr {at}"))
        first = where(inside, self._addresses.counted_back(index.word, index.rest))
        at = write.value(f"getelementptr {one}, ptr {base}, i64 {first}")
        align, name = self._arrangement.size(kind), f"v{self._lanes}{self._scalar(kind)}"
        call = f"call {wide} @llvm.masked.load.{name}.p0(ptr {at}, i32 {align}"
        return write.value(f"{call}, <{self._lanes} x i1> {inside}, {wide} {others})")

    def _summed(self, word: str, more: Sequence[int]) -> str:
        """A scalar word, and others that all lanes have."""
        for i in more:
            word = self._write.folded("add", word, self._values.operand(i, False))
        return word

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
