"""Records of lanes as columns, and back: transposed in registers, or to memory.

A batch is an array (B, n), but a vector holds one variable of many points. So a block of as many
points as a vector has lanes is read as rows, transposed by shuffles, computed, transposed back into
rows and written. Whole lines of the cache are streamed past it where the batch is larger than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symgrad.expr.graph.node import WORD
from symgrad.kernel.language.statements import Buffer, ReadRow, Scope, Store, StoreRow
from symgrad.llvm.printing.analysis import Records
from symgrad.llvm.printing.builder import Builder
from symgrad.llvm.printing.indices import LINEAR
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.source import CACHE_LINE_BYTES
from symgrad.llvm.printing.values import Values

# --- addresses ------------------------------------------------------------------------------------
# Where the numbers of a buffer are: one for all lanes, lanes side by side, or anywhere.


class Addresses:
    """The addresses of numbers of buffers.

    A buffer of an invocation's own is an array of vectors, which hold the same number of each lane.
    """

    def __init__(self, values: Values) -> None:
        self._values, self._write, self._kernel = values, values.write, values.kernel
        self._arrangement, self._records = values.arrangement, values.arrangement.records
        self._step = values.analysis.indices.step
        self._numbers: dict[int, str] = {}
        """The words of the first lane that are known numbers."""

    def of(self, buffer: Buffer) -> str:
        """The address of a buffer."""
        return f"{'%' if buffer.data is None else '@'}{self._arrangement.names[buffer]}"

    # words ---------------------------------------------------------------------------------------

    def first(self, i: int) -> str:
        """A word of the first lane, or of all, where the step to the next is known."""
        if i in self._numbers:
            return self._numbers[i]
        kernel, write = self._kernel, self._write
        if i in kernel.columns and self._step(i):
            row, column = kernel.columns[i]
            return write.folded("add", self.first(row), str(column))
        op, *args = kernel.graph.nodes[i]
        if i in (kernel.cell, kernel.local):
            return "0" if self._values.lanes == 1 or i == kernel.local else "%cell"
        if op is WORD or not self._step(i):
            word = self._values.operand(i, False)
        else:
            word = write.folded(op.llvm.split()[0], *map(self.first, args))
        if word.isdigit():
            self._numbers[i] = word
        return word

    def at_start(self, i: int, scope: Scope) -> str:
        """The first lane's word where a scope begins, of which nothing is computed yet."""
        kernel = self._kernel
        op, *args = kernel.graph.nodes[i]
        if op in LINEAR and kernel.home[i] is scope and not self._values.is_written(i):
            words = (self.at_start(a, scope) for a in args)
            return self._write.folded(op.llvm.split()[0], *words)
        return self.first(i)

    # addresses -----------------------------------------------------------------------------------

    def element(self, base: str, unit: str, index: str) -> str:
        """The address of an element of an array of some type, by a word."""
        if index == "0":
            return base
        if not index.isdigit():
            index = self._write.value(f"zext i32 {index} to i64")
        return self._write.value(f"getelementptr {unit}, ptr {base}, i64 {index}")

    def column(self, base: str, column: int) -> str:
        """The address of a column of a record of floats, or of vectors of them."""
        size = self._values.shape.itemsize * self._values.lanes
        return self._write.value(f"getelementptr i8, ptr {base}, i64 {size * column}")

    def one(self, buffer: Buffer, index: int) -> str:
        """The address of the first lane's number, or of that of all."""
        base, unit = self.of(buffer), self._values.type(buffer.kind, False)
        if index in self._kernel.columns and not self._values.varies(index):
            index, column = self._kernel.columns[index]
            base = self.element(base, unit, str(column))
        return self.element(base, unit, self.first(index))

    def side_by_side(self, buffer: Buffer, index: int) -> str:
        """The address of the first lane's number, where those of the others follow.

        Of lanes that are masked a word may be below 0.
        """
        values, write = self._values, self._write
        if not values.mask or values.graph.nodes[index][0] not in LINEAR:
            return self.one(buffer, index)
        at = self.counted_back(index)
        unit = values.type(buffer.kind, False)
        return write.value(f"getelementptr {unit}, ptr {self.of(buffer)}, i64 {at}")

    def counted_back(self, index: int, more: Sequence[int] = ()) -> str:
        """The first lane's word, and ``more`` of all lanes, in 64 bits.

        One below 0 is among the largest: so it is counted back from the lane behind the last, whose
        word is then small.
        """
        write, lanes = self._write, self._values.lanes
        behind = write.value(f"add i32 {self.first(index)}, {lanes}")
        for i in more:
            behind = write.folded("add", behind, self._values.operand(i, False))
        wide = write.value(f"zext i32 {behind} to i64")
        return write.value(f"sub i64 {wide}, {lanes}")

    def anywhere(self, buffer: Buffer, index: int) -> str:
        """The addresses of the lanes' numbers."""
        values, write = self._values, self._write
        words, many = values.type("u", True), f"<{values.lanes} x i64>"
        at = write.value(f"zext {words} {values.operand(index, True)} to {many}")
        if buffer.space == "own":
            numbers = ", ".join(f"i64 {n}" for n in range(values.lanes))
            at = write.value(f"mul {many} {at}, splat (i64 {values.lanes})")
            at = write.value(f"add {many} {at}, <{numbers}>")
        unit = values.type(buffer.kind, False)
        return write.value(f"getelementptr {unit}, ptr {self.of(buffer)}, {many} {at}")

    # vectors -------------------------------------------------------------------------------------

    def is_vector(self, buffer: Buffer, index: int) -> bool:
        """Whether the lanes' numbers are one vector: of an array of their own, or of columns."""
        own = buffer.space == "own" and not self._values.varies(index)
        return own or buffer in self._records.resident

    def vector(self, buffer: Buffer, index: int) -> str:
        """The address of such a vector."""
        kernel, write = self._kernel, self._write
        if records := self._records.resident.get(buffer):
            memory, place = self._arrangement.transposed[records], self._records.column(index)
            return self.element(memory, self._values.type(buffer.kind, True), str(place))
        unit = self._values.type(buffer.kind, True)
        first, column = kernel.columns.get(index, (0, 0))
        if column and not kernel.graph.nodes[first][0].constant:
            row = self.element(self.of(buffer), unit, self.first(first))
            return write.value(f"getelementptr {unit}, ptr {row}, i64 {column}")
        return self.element(self.of(buffer), unit, self.first(index))

    def alignment(self, buffer: Buffer) -> int:
        """How such a vector is aligned."""
        size = self._arrangement.size(buffer.kind)
        return min(CACHE_LINE_BYTES, size * self._values.lanes)


# --- records --------------------------------------------------------------------------------------

COLUMNS_PICKED = 5
"""Columns up to which lanes are picked one vector after the other, rather than in squares."""


class Transposed:
    """The records of a function's lanes: read as columns, and written when all columns are known.

    ``vector`` is the shape of a register, of which several may lie side by side.
    """

    def __init__(self, values: Values, addresses: Addresses, vector: Shape) -> None:
        self._values, self._addresses, self._vector = values, addresses, vector
        self._write, self._lanes = values.write, values.lanes
        self._arrangement, self._records = values.arrangement, values.arrangement.records
        self.results: dict[Records, dict[int, str]] = {}
        """The columns of records that are to be stored."""
        self._columns: dict[Records, Sequence[str]] = {}

    # reads ---------------------------------------------------------------------------------------

    def column(self, records: Records, column: int) -> str:
        """A column of records that are read whole."""
        if records in self._columns:
            return self._columns[records][column]
        memory = self._arrangement.transposed.get(records)
        if memory is not None:
            kind, align = self._values.shape.float, self._addresses.alignment(records.buffer)
            at = self._addresses.column(memory, column)
            return self._write.value(f"load {kind}, ptr {at}, align {align}")
        self._columns[records] = self._in_columns(records)
        self._values.expire(self._columns, records)
        return self._columns[records][column]

    def _in_columns(self, records: Records) -> Sequence[str]:
        """The columns of records, a register's lanes at a time."""
        base, write, lanes = self._base(records), self._write.of(self._vector), self._vector.lanes
        pieces = [
            load_columns(write, write.element(base, start * records.stride), records.stride)
            for start in range(0, self._lanes, lanes)
        ]
        return [_joined(self._write, parts, lanes) for parts in zip(*pieces, strict=True)]

    def of_row(self, s: ReadRow, column: int) -> str:
        """A column of the records that a statement reads, or of the only invocation's row."""
        if self._lanes > 1:
            return self.column(self._records.whole[s], column)
        one = self._values.type(s.buffer.kind, False)
        at = self._addresses.column(self._addresses.of(s.buffer), column)
        return self._write.value(f"load {one}, ptr {at}")

    def transpose_read(self, scope: Scope) -> None:
        """Transpose the records that a scope reads, if their columns are in memory."""
        for records in self._arrangement.transposed:
            if records.scope is scope and records in self._records.read:
                self._transpose(records, True)

    def _transpose(self, records: Records, loading: bool) -> None:
        """Transpose records to columns in memory, or back."""
        name, memory = self._write.label("columns"), self._arrangement.transposed[records]
        base = self._base(records)
        transpose_in_memory(self._write, name, base, records.stride, memory, loading)

    def _base(self, records: Records) -> str:
        """The address of the first lane's record."""
        first = "%b"  # the cell as a wide word, from which LLVM makes addresses that only grow
        if records.row != self._values.kernel.cell:
            word = self._addresses.at_start(records.row, records.scope)
            first = self._write.value(f"zext i32 {word} to i64")
        place = self._write.value(f"mul i64 {first}, {records.stride}")
        return self._write.element(self._addresses.of(records.buffer), place)

    # writes --------------------------------------------------------------------------------------

    def store_row(self, s: StoreRow) -> None:
        """Write what stores all columns: what is computed may stand in memory already."""
        values, records = self._values, self._records.whole[s]
        assert values.mask is None, "all lanes store their rows"
        if self._lanes > 1 and not self._arrangement.in_memory:
            columns = {c: values.given(s.buffer, i, True) for c, i in enumerate(s.values)}
            self.results[records] = columns
            return
        for c, i in enumerate(s.values):
            if i not in self._arrangement.placed:
                self.place(records, c, i)

    def place(self, records: Records, column: int, i: int) -> None:
        """Store a value as a column of records in memory, or of the only invocation's row."""
        wide, itemsize = self._lanes > 1, self._values.shape.itemsize
        align = self._addresses.alignment(records.buffer) if wide else itemsize
        memory = self._arrangement.transposed
        base = memory[records] if wide else self._addresses.of(records.buffer)
        value = f"{self._values.shape.float} {self._values.given(records.buffer, i, wide)}"
        at = self._addresses.column(base, column)
        self._write.do(f"store {value}, ptr {at}, align {align}")

    def stage(self, records: Records, s: Store) -> bool:
        """Put a value where it waits for the other columns of its records, if that can be."""
        column, memory = self._records.column(s.index), self._arrangement.transposed.get(records)
        if memory is not None:
            value = self._values.given(s.buffer, s.value, True)
            self._write.store(value, memory, column * self._lanes, True)
            return True
        if self._values.mask is not None or self._arrangement.part_of(s) is not None:
            return False
        columns = self.results.setdefault(records, {})
        columns[column] = self._values.given(s.buffer, s.value, True)
        if len(columns) == records.stride and records not in self._records.known:
            base, write = self._base(records), self._write.of(self._vector)
            for k, vector in enumerate(self._rows(records)):
                write.store(vector, base, k * write.shape.lanes, False)
        return True

    def _rows(self, records: Records) -> list[str]:
        """The vectors of records whose columns are all known, one record behind the other."""
        columns = self.results.pop(records)
        write, vectors, lanes = self._write.of(self._vector), list[str](), self._vector.lanes
        for start in range(0, self._lanes, lanes):
            parts = [_part(self._write, columns[c], start, lanes) for c in sorted(columns)]
            vectors += rows_of(write, parts)
        return vectors

    def finish(self) -> None:
        """Store the records of results, and go to the block "next"."""
        for records in self._arrangement.transposed:
            if records in self._records.written:
                self._transpose(records, False)
        waiting = [r for r in self._records.known if r in self.results]
        if not waiting:
            self._write.do("br label %next")
            return
        bases = [self._base(r) for r in waiting]
        store_block(self._write.of(self._vector), [self._rows(r) for r in waiting], bases)


def transpose(write: Builder, rows: Sequence[str], together: bool = False) -> list[str]:
    """The columns of a square of vectors; rows named "poison" cost nothing.

    A loop does it fastest if all its instructions stand ``together`` in one block.
    """
    lanes = write.shape.lanes
    rows = list(rows)
    half = 1
    while half < lanes:
        low = [k % (2 * half) < half for k in range(lanes)]
        first = [k if low[k] else lanes + k - half for k in range(lanes)]
        second = [k + half if low[k] else lanes + k for k in range(lanes)]
        exchanged = list(rows)
        for r in range(lanes):
            if not r & half:
                a, b = rows[r], rows[r + half]
                if a == b == "poison":
                    continue
                exchanged[r] = write.shuffle(a, b, first, together)
                exchanged[r + half] = write.shuffle(a, b, second, together)
        rows = exchanged
        half *= 2
    return rows


def tiles(columns: int, lanes: int) -> Iterator[tuple[int, int]]:
    """The first column of each square, and the first of its columns that no earlier one has."""
    for start in range(0, columns, lanes):
        if start and start + lanes > columns:
            yield columns - lanes, start
        else:
            yield start, start


def load_columns(write: Builder, base: str, columns: int) -> list[str]:
    """A vector for each column of a block of rows, read where no byte lies beyond the block."""
    lanes = write.shape.lanes
    if columns <= COLUMNS_PICKED:
        vectors = [write.load(base, k * lanes, False) for k in range(columns)]
        cells = [[divmod(r * columns + c, lanes) for r in range(lanes)] for c in range(columns)]
        return [_gathered(write, [(vectors[v], lane) for v, lane in cell]) for cell in cells]
    loaded: list[str] = []
    for start, new in tiles(columns, lanes):
        rows: list[str] = []
        for r in range(lanes):
            at = r * columns + start
            late = max(0, at + lanes - lanes * columns)
            row = write.load(base, at - late, False)
            if late:
                mask = [k + late if k + late < lanes else -1 for k in range(lanes)]
                row = write.shuffle(row, "poison", mask)
            rows.append(row)
        loaded.extend(transpose(write, rows)[new - start : columns - start])
    return loaded


def rows_of(write: Builder, columns: Sequence[str]) -> list[str]:
    """The block's rows, one behind the other, as vectors: as many as there are columns."""
    lanes, count = write.shape.lanes, len(columns)
    if count <= COLUMNS_PICKED:
        cells = [[divmod(lanes * k + j, count) for j in range(lanes)] for k in range(count)]
        return [_gathered(write, [(columns[c], row) for row, c in cell]) for cell in cells]
    where: dict[tuple[int, int], tuple[str, int]] = {}
    for start, new in tiles(count, lanes):
        mine = list(columns[start : start + lanes])
        rows = transpose(write, mine + ["poison"] * (lanes - len(mine)))
        where.update(
            ((r, c), (rows[r], c - start))
            for r in range(lanes)
            for c in range(new, start + len(mine))
        )
    return [
        _gathered(write, [where[divmod(lanes * k + j, count)] for j in range(lanes)])
        for k in range(count)
    ]


def _gathered(write: Builder, wanted: Sequence[tuple[str, int]]) -> str:
    """A vector whose lanes are these lanes of other vectors."""
    lanes = len(wanted)
    first, *others = dict.fromkeys(name for name, _ in wanted)
    mask = [lane if name == first else -1 for name, lane in wanted]
    if not others:
        return write.shuffle(first, "poison", mask)
    vector = first
    for k, other in enumerate(others):
        taken = [
            lanes + lane if name == other else (mask[j] if k == 0 else j if mask[j] >= 0 else -1)
            for j, (name, lane) in enumerate(wanted)
        ]
        vector = write.shuffle(vector, other, taken)
        mask = taken
    return vector


def store_block(write: Builder, arrays: Sequence[Sequence[str]], bases: Sequence[str]) -> None:
    """Store the vectors of each array, past the cache where ``%stream`` says so."""
    write.do("br i1 %stream, label %past, label %into")
    for name, hint in (("past", ", !nontemporal !0"), ("into", "")):
        write.begin(name)
        for vectors, base in zip(arrays, bases, strict=True):
            for k, vector in enumerate(vectors):
                write.store(vector, base, k * write.shape.lanes, bool(hint), hint)
        write.do("br label %next")


def load_square(write: Builder, base: str, columns: int, start: str, target: str) -> None:
    """A square of a block of rows, from the column ``start`` on, to vectors in memory."""
    lanes = write.shape.lanes
    block_at = write.element(base, start)
    rows = [write.load(block_at, r * columns, False) for r in range(lanes)]
    vectors_at = write.element(target, write.value(f"mul i64 {start}, {lanes}"))
    for k, column in enumerate(transpose(write, rows, together=True)):
        write.store(column, vectors_at, k * lanes, True)


def store_square(write: Builder, source: str, columns: int, start: str, base: str) -> None:
    """Vectors in memory, from the column ``start`` on, to a square of a block of rows."""
    lanes = write.shape.lanes
    vectors_at = write.element(source, write.value(f"mul i64 {start}, {lanes}"))
    vectors = [write.load(vectors_at, k * lanes, True) for k in range(lanes)]
    rows = transpose(write, vectors, together=True)
    block_at = write.element(base, start)
    for r, row in enumerate(rows):
        write.store(row, block_at, r * columns, False)


def transpose_in_memory(
    write: Builder, name: str, base: str, columns: int, memory: str, loading: bool
) -> None:
    """Transpose a block of rows into vectors in memory, or back: in squares that may overlap.

    Fewer columns than a square has are transposed in registers.
    """
    lanes = write.shape.lanes
    if columns < lanes:
        if loading:
            for k, column in enumerate(load_columns(write, base, columns)):
                write.store(column, memory, k * lanes, True)
        else:
            vectors = rows_of(write, [write.load(memory, k * lanes, True) for k in range(columns)])
            for k, vector in enumerate(vectors):
                write.store(vector, base, k * lanes, False)
        return
    before = f"{name}.before"
    write.do(f"br label %{before}")
    write.begin(before)
    write.do(f"br label %{name}")
    write.begin(name)
    write.do(f"%{name}.c = phi i64 [ 0, %{before} ], [ %{name}.next, %{name} ]")
    write.do(f"%{name}.over = icmp sgt i64 %{name}.c, {columns - lanes}")
    write.do(f"%{name}.start = select i1 %{name}.over, i64 {columns - lanes}, i64 %{name}.c")
    if loading:
        load_square(write, base, columns, f"%{name}.start", memory)
    else:
        store_square(write, memory, columns, f"%{name}.start", base)
    write.do(f"%{name}.next = add i64 %{name}.c, {lanes}")
    write.do(f"%{name}.more = icmp slt i64 %{name}.next, {columns}")
    write.do(f"br i1 %{name}.more, label %{name}, label %{name}.end")
    write.begin(f"{name}.end")


def _joined(write: Builder, parts: Sequence[str], lanes: int) -> str:
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


def _part(write: Builder, value: str, start: int, lanes: int) -> str:
    """Some of the numbers of a vector."""
    if lanes == write.shape.lanes:
        return value
    numbers, kind = ", ".join(f"i32 {start + k}" for k in range(lanes)), write.shape.float
    return write.value(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{numbers}>")
