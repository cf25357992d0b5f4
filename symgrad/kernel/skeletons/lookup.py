"""Entries of tables that rows look up, and what rows add to them: at once, or in runs of rows.

Rows in the order of their entries are cut into runs. A group adds up neighbouring runs: it reads
the quads of some rows into a tile, neighbours what neighbouring rows of the order have, and each
invocation adds up some quads of its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT
from symgrad.kernel.language import KernelIR, Target, widen
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.table_gradients import ROWS_PER_RUN, indices_of, place_of

ROWS_PER_PARTIAL_SUM: Final = 8
"""Rows of a block: a run's sums are sums of blocks, whose rounding errors are smaller."""

QUADS_TOGETHER: Final = 4
"""Quads that are added up together, at most."""

ROWS_PER_TILE: Final = 16_384 // 16 // QUADS_TOGETHER
"""Rows whose quads a group's memory holds at a time."""

RUNS_PER_GROUP: Final = 64
"""Runs that a group adds up, and its invocations."""

STEP: Final = 64
"""Columns of quads are padded to whole multiples of so many rows, where bindings may start."""

QUAD: Final = 4
"""The numbers of a quad."""


@dataclass(frozen=True)
class Place:
    """Where the sums of a run go: an entry of ``width`` numbers, ``count`` from ``first`` on."""

    first: int
    count: int
    width: int


def tiles_of(count: int) -> list[range]:
    """The quads that are added up side by side, in tiles of about one size."""
    number = -(-count // QUADS_TOGETHER)
    return [range(count * k // number, count * (k + 1) // number) for k in range(number)]


def padded(k: KernelIR, count: int) -> int:
    """Rows from one column to the next, of so many rows."""
    up = k.add(ops.word_add, count, k.word(STEP - 1))
    return k.add(ops.word_mul, k.add(ops.word_div, up, k.word(STEP)), k.word(STEP))


@dataclass(frozen=True)
class RunSums:
    """The program of the kernel of runs of at most `ROWS_PER_RUN` rows: see `runs_program`."""

    columns: int
    place: Place | None

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        return runs_program(self.columns, self.place, target, ROWS_PER_RUN)


def runs_program(
    columns: int, place: Place | None, target: Target, longest: int | None = None
) -> KernelIR:
    """The kernel that adds up so many columns of quads over ``count`` runs, a group's width each.

    Its buffers are ``starts``, the place at which each run starts in the order, and the end of the
    last; ``order``, the rows in their order, padded; ``quads``, as many columns of them as rows are
    padded to; and ``sums``, as many columns for the runs, padded likewise, or else, at a place,
    entries of numbers. The ``longest`` run has so many rows, if that is known.
    """
    return _Runs(columns, place, target, longest).k


class _Runs:
    def __init__(
        self, columns: int, place: Place | None, target: Target, longest: int | None
    ) -> None:
        self.columns, self.place, self.width, self.longest = columns, place, target.width, longest
        self.k = k = KernelIR(target, "runs")
        self.starts, self.order = k.buffer("starts", "read", "u"), k.buffer("order", "read", "u")
        self.quads = k.buffer("quads", "read", vector=QUAD)
        self.sums = k.buffer("sums", "write", vector=1 if place else QUAD)
        self.tile = k.buffer("some", "group", size=QUAD * columns * ROWS_PER_TILE, vector=QUAD)
        start = k.add(ops.word_mul, k.group, k.word(self.width))
        self.first = k.add(ops.word_min, start, k.count)
        self.last = k.add(
            ops.word_min, k.add(ops.word_add, self.first, k.word(self.width)), k.count
        )
        self.begin, self.end = k.load(self.starts, self.first), k.load(self.starts, self.last)
        k.names |= {self.first: "first_run", self.last: "last_run", self.end: "end"}
        self.mine = [_Mine(self, j) for j in range(columns)]
        self._write()

    def _write(self) -> None:
        k, zero = self.k, self.k.constant(0.0)
        up = k.add(
            ops.word_sub, k.add(ops.word_add, self.end, k.word(ROWS_PER_TILE - 1)), self.begin
        )

        def tile(t: int, sums: list[int]) -> list[int]:
            base = k.add(ops.word_add, self.begin, k.add(ops.word_mul, t, k.word(ROWS_PER_TILE)))
            k.names |= {base: "base", **{x: f"sum{n}" for n, x in enumerate(sums)}}
            self._fill(base)
            k.barrier()
            added = [
                x
                for j, mine in enumerate(self.mine)
                for x in mine.added(base, sums[QUAD * j : QUAD * (j + 1)])
            ]
            k.barrier()
            return added

        tiles = k.add(ops.word_div, up, k.word(ROWS_PER_TILE))
        most = None if self.longest is None else -(-self.width * self.longest // ROWS_PER_TILE)
        sums, _ = k.loop(k.word(0), tiles, [zero] * (QUAD * self.columns), tile, most=most)
        for j, mine in enumerate(self.mine):
            mine.store(sums[QUAD * j : QUAD * (j + 1)])

    def _fill(self, base: int) -> None:
        """Read the quads of some rows; past the end, those of the last row again."""
        k = self.k
        last, rows = k.add(ops.word_sub, self.end, k.word(1)), k.length(self.order)
        cells = [
            k.add(ops.word_add, k.word(n * self.width), k.local)
            for n in range(ROWS_PER_TILE // self.width)
        ]
        order = [
            k.load(self.order, k.add(ops.word_min, k.add(ops.word_add, base, cell), last))
            for cell in cells
        ]
        for c in range(self.columns):
            column = k.add(ops.word_mul, k.word(c), rows)
            for cell, row in zip(cells, order, strict=True):
                quad = k.add(ops.word_add, column, row)
                at = k.add(ops.word_add, k.word(c * ROWS_PER_TILE), cell)
                for n in range(QUAD):
                    value = k.load(self.quads, k.offset(quad, QUAD, n))
                    k.store(self.tile, k.offset(at, QUAD, n), value)


class _Mine:
    """The sums of an invocation as number j: one of the quads of one of the group's runs."""

    def __init__(self, runs: _Runs, j: int) -> None:
        self.runs, self.k = runs, runs.k
        k, columns = self.k, self.k.word(runs.columns)
        number = k.add(ops.word_add, k.word(runs.width * j), k.local)
        row = k.add(ops.word_div, number, columns)
        self.quad = k.add(ops.word_sub, number, k.add(ops.word_mul, row, columns))
        self.run = k.add(ops.word_add, runs.first, row)
        self.start = k.load(runs.starts, k.add(ops.word_min, self.run, runs.last))
        after = k.add(ops.word_add, self.run, k.word(1))
        self.end = k.load(runs.starts, k.add(ops.word_min, after, runs.last))
        k.names |= {self.quad: f"quad{j}", self.run: f"run{j}"}
        k.names |= {self.start: f"from{j}", self.end: f"to{j}"}

    def added(self, base: int, sums: list[int]) -> list[int]:
        """The sums, and what of the run is in the tile that begins at ``base``."""
        k, block = self.k, self.k.word(ROWS_PER_PARTIAL_SUM)
        high = k.add(ops.word_min, self.end, k.add(ops.word_add, base, k.word(ROWS_PER_TILE)))
        low = k.add(ops.word_where, k.add(ops.word_lt, self.start, base), base, self.start)
        some = k.add(
            ops.word_where, k.add(ops.word_lt, low, high), k.add(ops.word_sub, high, low), k.word(0)
        )
        blocks = k.add(
            ops.word_div, k.add(ops.word_add, some, k.word(ROWS_PER_PARTIAL_SUM - 1)), block
        )
        column = k.add(ops.word_mul, self.quad, k.word(ROWS_PER_TILE))

        def add_block(b: int, sums: list[int]) -> list[int]:
            first = k.add(ops.word_add, low, k.add(ops.word_mul, b, block))
            last = k.add(ops.word_min, k.add(ops.word_add, first, block), high)

            def add_row(i: int, part: list[int]) -> list[int]:
                k.names |= {x: f"part{n}" for n, x in enumerate(part)}
                at = k.add(ops.word_sub, k.add(ops.word_add, column, i), base)
                numbers = [k.load(self.runs.tile, k.offset(at, QUAD, n)) for n in range(QUAD)]
                return [k.add(ops.add, a, b) for a, b in zip(part, numbers, strict=True)]

            zeros, most = [k.constant(0.0)] * QUAD, ROWS_PER_PARTIAL_SUM
            part, _ = k.loop(first, last, zeros, add_row, most=most)
            return [k.add(ops.add, a, b) for a, b in zip(sums, part, strict=True)]

        most = ROWS_PER_TILE // ROWS_PER_PARTIAL_SUM
        return k.loop(k.word(0), blocks, sums, add_block, most=most)[0]

    def store(self, sums: list[int]) -> None:
        """Write the quad of the run, if there is one."""
        k, place = self.k, self.runs.place

        def column() -> None:
            step = k.add(ops.word_mul, self.quad, padded(k, k.count))
            at = k.add(ops.word_add, step, self.run)
            for n, value in enumerate(sums):
                k.store(self.runs.sums, k.offset(at, QUAD, n), value)

        def entry(place: Place) -> None:
            first = k.offset(self.run, place.width, place.first)
            at = k.add(ops.word_add, first, k.add(ops.word_mul, self.quad, k.word(QUAD)))
            for n, value in enumerate(sums):
                inside = k.add(ops.word_lt, k.offset(self.quad, QUAD, n), k.word(place.count))
                index = k.add(ops.word_add, at, k.word(n))
                k.when(inside, lambda a=index, v=value: k.store(self.runs.sums, a, v))

        exists = k.add(ops.word_lt, self.run, self.runs.last)
        k.when(exists, (lambda: entry(place)) if place else column)


class Entries:
    """The entries that rows name, and what they add to them, where invocations run in step.

    Buffers are ``index`` (count, indices), the words by which rows name entries, and for each
    lookup a table (entries, width), and, where rows add anything, a table of float64 for that.
    """

    def __init__(self, k: KernelIR, reduction: Reduction) -> None:
        self.k, self.reduction = k, reduction
        self.count = indices_of(reduction)
        numbered = range(len(reduction.lookups))
        self.index = k.buffer("index", "read", "u") if self.count else None
        self.tables = [k.buffer(f"table{n}", "read", padded=True) for n in numbered]
        self.added = [
            k.buffer(f"added{n}", "write", "d", atomic=True, padded=True) for n in numbered
        ]
        outputs = reduction.outputs[len(reduction.summed) :]
        self.slopes = [
            {c: i for c, i in enumerate(o.nodes) if reduction.graph.value(i) != 0.0}
            for o in outputs
        ]
        """The nodes that a row adds to the columns of its entries; what is always 0 is left out."""
        self._inputs = {n[1]: i for i, n in enumerate(reduction.graph.nodes) if n[0] is INPUT}

    @property
    def nodes(self) -> list[int]:
        """All that a row adds to entries."""
        return [i for slopes in self.slopes for i in slopes.values()]

    def _entry(self, row: int, n: int) -> int:
        assert self.index, "there are lookups"
        place = self.k.offset(row, self.count, self.reduction.lookups[n].index)
        return self.k.load(self.index, place)

    def values(self, row: int) -> dict[int, int]:
        """The values that a row looks up, by the nodes of the inputs that they are."""
        k, values = self.k, dict[int, int]()
        number = self.reduction.parameters + self.reduction.columns
        for n, lookup in enumerate(self.reduction.lookups):
            for c in range(lookup.width):
                if number + c in self._inputs:
                    place = k.offset(self._entry(row, n), lookup.width, c)
                    values[self._inputs[number + c]] = k.load(self.tables[n], place)
            number += lookup.width
        return values

    def add(self, row: int, values: Sequence[int]) -> None:
        """Add the values of `nodes` to the entries of a row."""
        k, rest = self.k, iter(values)
        for n, slopes in enumerate(self.slopes):
            width = self.reduction.lookups[n].width
            for c in slopes:
                place = k.offset(self._entry(row, n), width, c)
                k.store(self.added[n], place, k.add(widen, next(rest)), add=True)


class GroupEntries:
    """The entries that rows name, and the slopes that they write, where invocations share none.

    Buffers are ``indices``, the words by which rows name entries, column by column, padded; and
    ``tables``, which are the places where the tables begin and then their numbers: ``in_words``, as
    small words are no normal float32, or all as float64, which has every word. Slopes are added to
    entries afterwards: see `runs_program`.
    """

    def __init__(self, k: KernelIR, reduction: Reduction, in_words: bool = True) -> None:
        self.k, self.reduction, self.in_words = k, reduction, in_words
        if reduction.lookups:
            self.indices = k.buffer("indices", "read", "u")
            self.tables = k.buffer("tables", "read", "u" if in_words else "f")
            self.rows = padded(k, k.count)
            k.names[self.rows] = "padded"

    def write_to(self) -> None:
        """Have the buffer ``slopes``, of quads that stand column by column, padded."""
        if self.reduction.lookups:
            self.slopes = self.k.buffer("slopes", "write", vector=QUAD)

    def _place(self, column: int, row: int) -> int:
        k = self.k
        return k.add(ops.word_add, k.add(ops.word_mul, self.rows, k.word(column)), row)

    def value(self, row: int, number: int) -> int:
        """A value that a row looks up, as the input with this number among those of all lookups."""
        k, (n, column) = self.k, place_of(self.reduction, number)
        lookup = self.reduction.lookups[n]
        index = k.load(self.indices, self._place(lookup.index, row))
        first = k.add(ops.word_mul, index, k.word(lookup.width))
        start = k.load(self.tables, k.word(n))
        start = start if self.in_words else k.add(ops.nearest_word, start)
        entry = k.add(ops.word_add, start, first)
        k.names[entry] = f"entry{n}"
        number_there = k.load(self.tables, k.shifted(entry, column))
        return k.add(ops.bits_float, number_there) if self.in_words else number_there

    def write(self, row: int, column: int, values: Sequence[int]) -> None:
        """Write a quad of slopes of a row, which may be fewer numbers."""
        k, zeros = self.k, [self.k.constant(0.0)] * (QUAD - len(values))
        quad = self._place(column, row)
        for n, value in enumerate([*values, *zeros]):
            k.store(self.slopes, k.offset(quad, QUAD, n), value)
