"""The loops around a kernel's arithmetic: blocks of points, transposed from rows to columns.

A batch is an array (B, n), but a vector holds one variable of many points. So a block of as many
points as a vector has lanes is read as rows, transposed by shuffles, computed, transposed back into
rows and written. Whole lines of the cache are streamed past it where the batch is larger than it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count

from symgrad.llvm.printing.instruction import NAMES, Shape
from symgrad.llvm.printing.workspace import CACHE_LINE_BYTES

COLUMNS_PICKED = 5
"""Columns up to which lanes are picked one vector after the other, rather than in squares."""


class Lines:
    """Lines of LLVM, and fresh names for values."""

    def __init__(self, shape: Shape, names: Iterator[str] | None = None) -> None:
        self.shape = shape
        self.scalar = NAMES[shape.dtype]
        self._one, self._whole = shape.itemsize, min(CACHE_LINE_BYTES, shape.itemsize * shape.lanes)
        self.lines: list[str] = []
        self._names = names or (f"%v{k}" for k in count(1))

    def of(self, shape: Shape) -> Lines:
        """The same lines and names, for vectors of another shape."""
        reshaped = Lines(shape, self._names)
        reshaped.lines = self.lines
        return reshaped

    def value(self, text: str) -> str:
        """The name of a new value."""
        name = next(self._names)
        self.lines.append(f"  {name} = {text}")
        return name

    def taken(self) -> list[str]:
        """The lines so far; what comes begins anew."""
        lines, self.lines = self.lines, []
        return lines

    def fresh(self) -> str:
        """A name that no value has."""
        return next(self._names)

    def do(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """The start of a block of instructions."""
        self.lines.append(f"{name}:")

    def over(self, name: str, count: str, body: Callable[[str], None]) -> None:
        """A loop of what the body writes, for each number from 0 to ``count``; none for once."""
        if count == "1":
            body("0")
            return
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        self.do(f"%{name}.k = phi i64 [ 0, %{name}.before ], [ %{name}.next, %{name}.last ]")
        body(f"%{name}.k")
        self.do(f"br label %{name}.last")
        self.label(f"{name}.last")
        self.do(f"%{name}.next = add i64 %{name}.k, 1")
        self.do(f"%{name}.more = icmp slt i64 %{name}.next, {count}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.end")
        self.label(f"{name}.end")

    def element(self, base: str, index: int | str) -> str:
        """The address of a number of an array."""
        if index in (0, "0"):
            return base
        return self.value(f"getelementptr {self.scalar}, ptr {base}, i64 {index}")

    def load(self, base: str, index: int | str, aligned: bool) -> str:
        """A vector of numbers from there on."""
        address, align = self.element(base, index), self._align(aligned)
        return self.value(f"load {self.shape.float}, ptr {address}, align {align}")

    def store(self, value: str, base: str, index: int | str, aligned: bool, hint: str = "") -> None:
        """A vector of numbers to there."""
        address = self.element(base, index)
        self.do(
            f"store {self.shape.float} {value}, ptr {address}, align {self._align(aligned)}{hint}"
        )

    def _align(self, aligned: bool) -> int:
        return self._whole if aligned else self._one

    def shuffle(self, a: str, b: str, mask: Sequence[int]) -> str:
        """Lanes of two vectors; -1 for any."""
        kind = self.shape.float
        if b == "poison" and list(mask) == list(range(len(mask))):
            return a
        return self.value(f"shufflevector {kind} {a}, {kind} {b}, {_lanes(tuple(mask))}")


@lru_cache(2**10)
def _lanes(mask: tuple[int, ...]) -> str:
    """Which lanes a shuffle takes; -1 for any."""
    numbers = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in mask)
    return f"<{len(mask)} x i32> <{numbers}>"


def transpose(write: Lines, rows: Sequence[str]) -> list[str]:
    """The columns of a square of vectors; rows named "poison" cost nothing."""
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
                exchanged[r] = write.shuffle(a, b, first)
                exchanged[r + half] = write.shuffle(a, b, second)
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


def load_columns(write: Lines, base: str, columns: int) -> list[str]:
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


def rows_of(write: Lines, columns: Sequence[str]) -> list[str]:
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


def _gathered(write: Lines, wanted: Sequence[tuple[str, int]]) -> str:
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


def store_block(write: Lines, arrays: Sequence[Sequence[str]], bases: Sequence[str]) -> None:
    """Store the vectors of each array, past the cache where ``%stream`` says so."""
    write.do("br i1 %stream, label %past, label %into")
    for name, hint in (("past", ", !nontemporal !0"), ("into", "")):
        write.label(name)
        for vectors, base in zip(arrays, bases, strict=True):
            for k, vector in enumerate(vectors):
                write.store(vector, base, k * write.shape.lanes, bool(hint), hint)
        write.do("br label %next")


def load_square(write: Lines, base: str, columns: int, start: str, target: str) -> None:
    """A square of a block of rows, from the column ``start`` on, to vectors in memory."""
    lanes = write.shape.lanes
    block_at = write.element(base, start)
    rows = [write.load(block_at, r * columns, False) for r in range(lanes)]
    vectors_at = write.element(target, write.value(f"mul i64 {start}, {lanes}"))
    for k, column in enumerate(transpose(write, rows)):
        write.store(column, vectors_at, k * lanes, True)


def store_square(write: Lines, source: str, columns: int, start: str, base: str) -> None:
    """Vectors in memory, from the column ``start`` on, to a square of a block of rows."""
    lanes = write.shape.lanes
    vectors_at = write.element(source, write.value(f"mul i64 {start}, {lanes}"))
    rows = transpose(write, [write.load(vectors_at, k * lanes, True) for k in range(lanes)])
    block_at = write.element(base, start)
    for r, row in enumerate(rows):
        write.store(row, block_at, r * columns, False)


def transpose_in_memory(
    write: Lines, name: str, base: str, columns: int, memory: str, loading: bool
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
    write.label(before)
    write.do(f"br label %{name}")
    write.label(name)
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
    write.label(f"{name}.end")
