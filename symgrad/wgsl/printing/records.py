"""Rows of points: read in fours, and stored so that neighbours write neighbouring numbers.

An invocation's results stand side by side, those of its neighbours a row further on. So it hands
them to the workgroup's tile, from which neighbours write neighbouring floats: on an H200 this
reaches 99 % of the copy bandwidth, direct stores 22 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from symgrad.expr import ops
from symgrad.kernel.language.index import Vector, in_row
from symgrad.kernel.language.statements import Buffer, ReadRow
from symgrad.kernel.passes.schedule import Column
from symgrad.values.arrays import PAIRS
from symgrad.wgsl.printing.analysis import Own, Vectors
from symgrad.wgsl.printing.operations import PRIMARY, PRODUCT, SUM, Floats, Text, wrapped
from symgrad.wgsl.printing.values import Values

# --- addresses ------------------------------------------------------------------------------------
# Where the numbers of a buffer are: its indices, of numbers, of vectors and in rows.


class Addresses:
    """The texts of indices."""

    def __init__(self, values: Values, vectors: Vectors) -> None:
        self._values, self._vectors = values, vectors

    def index(self, buffer: Buffer, i: int) -> tuple[Text, str]:
        """An index of a buffer, and the component of what stands there."""
        if buffer.vector == 1:
            return self.of_vector(buffer, Vector(i, 0)), ""
        vector, component = self._vectors.of(buffer, i)
        return self.of_vector(buffer, vector), self._values.floats.component(component)

    def of_vector(self, buffer: Buffer, vector: Vector) -> Text:
        """The index of a vector of a buffer."""
        number, node = vector.number, vector.node
        if buffer.row:
            return self._in_rows(buffer.row, vector), PRIMARY
        return (f"{number}u", PRIMARY) if node is None else self._values.word(node)

    def _in_rows(self, row: int, vector: Vector) -> str:
        """The two indices of a vector in an array of rows.

        What WGSL checks of an index, it does once for all rows where they are known numbers.
        """
        values = self._values
        if vector.node is None:
            return f"{vector.number // row}u][{vector.number % row}u"
        location = in_row(values.graph, vector.node, row)
        if location is None:
            text = wrapped(values.word(vector.node), PRODUCT)
            return f"{text} / {row}u][{text} % {row}u"
        which = f"{location.number}u" if location.row is None else values.text(location.row)
        column = values.word(location.node)
        more = f" + {location.first}u" if location.first else ""
        return f"{which}][{wrapped(column, SUM) if more else column[0]}{more}"


# --- records --------------------------------------------------------------------------------------

FEW_COLUMNS = 16
"""Columns of a tile below which it is as well that rows of an even length share memory banks."""

TILE_COLUMNS = 63
"""The most columns of a tile: an odd row length of at most 64 floats keeps the 64 rows within
WebGPU's 16,384 bytes and in different memory banks."""

QUAD_COLUMNS = 16
"""Columns of an array from which they are stored in fours, if they are whole fours."""


class Records:
    """The rows of points that a kernel reads, and those that it ends with storing.

    ``stores`` are the columns that are stored. They go through a tile if they are ``staged``, and
    no other memory is shared.
    """

    def __init__(
        self, values: Values, own: Own, staged: bool, stores: Sequence[Column] | None = None
    ) -> None:
        self._values, self._names, self._uses = values, own.names, values.uses
        self._by_columns = values.style.columns_in
        self.unread = len(self._uses.columns)
        """How many numbers of rows are yet to be read."""
        self._quads: dict[tuple[Buffer, int], str] = {}
        """Names of fours of numbers of rows, by their buffers and places."""
        kernel, stored = values.kernel, {s.buffer: s.values for s in self._uses.stored}
        shared = any(b.space == "group" for b in kernel.buffers)
        rows = enumerate(stored.values())
        self.stores = Stores(
            [own.names[b] for b in stored],
            [len(ids) for ids in stored.values()],
            [Column(n, c, i) for n, ids in rows for c, i in enumerate(ids)]
            if stores is None
            else stores,
            values.text,
            kernel.target.width,
            values.floats,
            values.style.columns_out,
            staged and not shared,
        )
        values.taken.update(self.stores.saved)

    @cached_property
    def in_quads(self) -> set[Buffer]:
        """The buffers of rows that consist of vectors of four numbers."""
        buffers = {self._uses.stored[n].buffer for n in self.stores.quads}
        if not self._by_columns:
            buffers |= {s.buffer for s in self._uses.read if s.width % 4 == 0}
        return buffers

    def in_row(self, i: int) -> str:
        """Where a number of a row stands."""
        s, column = self._uses.columns[i]
        if s.buffer in self.in_quads:
            return self._quad(s, column // 4) + self._values.floats.component(column % 4)
        at = place(column, s.width, self._values.text(s.row), self._by_columns)
        return f"{self._names[s.buffer]}[{at}]"

    def _quad(self, s: ReadRow, number: int) -> str:
        """Four numbers of a row that stand side by side: where, or how they are called."""
        at = place(number, s.width // 4, self._values.text(s.row))
        return self._quads.get((s.buffer, number), f"{self._names[s.buffer]}[{at}]")

    def read(self, ids: Iterable[int]) -> Iterator[str]:
        """The lines that read those of some numbers that are yet to be read."""
        values = self._values
        for i in ids:
            if i in self._uses.columns and i not in values.texts:
                self.unread -= 1
                yield from self._read_quad(*self._uses.columns[i])
                text = self.in_row(i)
                yield f"{values.indent}{values.declare(i)} = {text};"

    def _read_quad(self, s: ReadRow, column: int) -> Iterator[str]:
        """The line that reads four numbers of a row, if nobody has read them yet."""
        if s.buffer in self.in_quads and (s.buffer, column // 4) not in self._quads:
            name = self._values.free(f"{self._names[s.buffer]}_quad")
            yield f"{self._values.indent}let {name} = {self._quad(s, column // 4)};"
            self._quads[s.buffer, column // 4] = name

    def begin(self) -> None:
        """Begin a function, which has no quads of others."""
        self._quads.clear()


@dataclass(frozen=True)
class Stores:
    """The stores at the end of a shader, whose numbers ``text`` gives.

    ``columns`` says whether arrays stand column by column: then neighbours write side by side. The
    shader has ``first``, the number of its workgroup's first invocation, ``local``, that of its own
    among them, and ``cell``, the sum, which is the row of the invocation's results.
    """

    names: Sequence[str]
    """Names of the arrays."""
    widths: Sequence[int]
    """How many columns they have."""
    stores: Sequence[Column]
    text: Callable[[int], str]
    workgroup: int
    """The invocations of a workgroup."""
    floats: Floats
    columns: bool = False
    staged: bool = True
    """Whether they go through a tile at all."""

    @property
    def most(self) -> int:
        """The most columns of its tile: half as many of pairs, which any device has to take."""
        return TILE_COLUMNS // 2 if self.floats.dtype == PAIRS else TILE_COLUMNS

    @cached_property
    def rounds(self) -> list[list[list[Column]]]:
        """The stores that go through the tile: runs of neighbouring columns, cut to its size.

        What fits in it together is one round, which needs one barrier.
        """
        cut = [
            run[k : k + most]
            for run in _runs(self.stores)
            if self._is_wide(run)
            for most in [self.most // 4 * 4 if run[0].output in self.quads else self.most]
            for k in range(0, len(run), most)
        ]
        rounds: list[list[list[Column]]] = []
        for run in cut:
            if not rounds or sum(map(len, rounds[-1])) + len(run) > self.most:
                rounds.append([])
            rounds[-1].append(run)
        return rounds

    @cached_property
    def quads(self) -> set[int]:
        """The arrays whose numbers are stored in fours, which they consist of."""
        outputs = {s.output for s in self.stores if self.widths[s.output] >= QUAD_COLUMNS}
        for run in _runs(self.stores):
            places = self.widths[run[0].output], run[0].column, len(run)
            if not self._is_wide(run) or any(place % 4 for place in places):
                outputs.discard(run[0].output)
        return outputs

    @property
    def saved(self) -> list[str]:
        """The names of values that wait for a barrier."""
        return [_saved_name(s) for runs in self.rounds[1:] for run in runs for s in run]

    @cached_property
    def direct(self) -> list[Column]:
        """The stores that do without: single columns."""
        return [s for run in _runs(self.stores) if not self._is_wide(run) for s in run]

    def _is_wide(self, run: Sequence[Column]) -> bool:
        return len(run) > 1 and self.staged and not self.columns

    @cached_property
    def row_length(self) -> int:
        """Floats from one row of the tile to the next: no multiple of 4, for the banks' sake."""
        columns = max((sum(map(len, runs)) for runs in self.rounds), default=0)
        return columns if columns % 4 and columns < FEW_COLUMNS else columns | 1

    def declaration(self) -> Iterator[str]:
        """The tile, if there is one."""
        kind = self.floats.type
        if self.rounds:
            yield f"var<workgroup> tile: array<{kind}, {self.workgroup * self.row_length}>;"
        if self.quads:
            numbers = ", ".join(f"tile[at{f' + {c}u' if c else ''}]" for c in range(4))
            quad = self.floats.vector(4)
            yield f"fn tile_quad(at: u32) -> {quad} {{ return {quad}({numbers}); }}"

    def lines(self) -> Iterator[str]:
        """The statements."""
        direct = list(self._direct())
        if direct:
            yield "  if (cell < params.count) {"
            yield from direct
            yield "  }"
        if self.rounds:
            yield f"  let rows = min({self.workgroup}u, params.count - first);"
        for runs in self.rounds[1:]:
            yield from (self._saved(s) for run in runs for s in run)
        for number, runs in enumerate(self.rounds):
            if number:
                yield "  workgroupBarrier();"
            yield from self._fill(runs, saved=number > 0)
            yield "  workgroupBarrier();"
            start = 0
            for run in runs:
                yield from self._drain(run, start)
                start += len(run)

    def _fill(self, runs: Iterable[Sequence[Column]], saved: bool) -> Iterator[str]:
        """The lines that write the columns of a round to the tile."""
        for c, s in enumerate(s for run in runs for s in run):
            value = _saved_name(s) if saved else self.text(s.node)
            yield f"  tile[{place(c, self.row_length, 'local')}] = {value};"

    def _saved(self, s: Column) -> str:
        """A value that is needed behind a barrier, as a value that compilers cannot take apart.

        llvmpipe otherwise moves half of its operations behind the barrier, and gets them wrong.
        """
        value = self.floats.pattern(ops.opaque).format(self.text(s.node))
        return f"  let {_saved_name(s)} = {value};"

    def _direct(self) -> Iterator[str]:
        for s in self.direct:
            at = place(s.column, self.widths[s.output], "cell", self.columns)
            yield f"    {self.names[s.output]}[{at}] = {self.text(s.node)};"

    def _drain(self, run: Sequence[Column], start: int) -> Iterator[str]:
        """The workgroup writes columns of the tile, from ``start`` on, neighbours to neighbours.

        All of its points but in the last workgroup: then no store has to ask.
        """
        quads, size = run[0].output in self.quads, self.workgroup
        count, copy = (len(run) // 4, self._quad) if quads else (len(run), self._number)
        yield f"  if (rows == {size}u) {{"
        places = (f"{k * size}u + local" if k else "local" for k in range(count))
        yield from (f"    {copy(k, run, start)}" for k in places)
        yield "  } else {"
        each = f"for (var k = local; k < rows * {count}u; k += {size}u)"
        yield f"    {each} {{ {copy('k', run, start)} }}"
        yield "  }"

    def _number(self, k: str, run: Sequence[Column], start: int) -> str:
        """Number k of those in the columns of a run goes from the tile to its array."""
        name, width = self.names[run[0].output], self.widths[run[0].output]
        target = _spread(k, len(run), width, run[0].column)
        source = _spread(k, len(run), self.row_length, start)
        return f"{name}[first * {width}u + {target}] = tile[{source}];"

    def _quad(self, k: str, run: Sequence[Column], start: int) -> str:
        """The k-th four numbers that stand side by side go there."""
        name, quads = self.names[run[0].output], self.widths[run[0].output] // 4
        target = _spread(k, len(run) // 4, quads, run[0].column // 4)
        number = f"({k})" if " " in k else k
        longer = self.row_length - len(run)
        source = f"4u * {number} + {number} / {len(run) // 4}u" + f" * {longer}u" * (longer > 1)
        source += f" + {start}u" if start else ""
        return f"{name}[first * {quads}u + {target}] = tile_quad({source});"


def _spread(k: str, columns: int, length: int, start: int) -> str:
    """Where number k of rows of so many columns is in longer rows, of which it takes a part.

    That is ``k / columns * length + start + k % columns``, with fewer operations.
    """
    more = "" if length == columns else f" + {f'({k})' if ' ' in k else k} / {columns}u"
    more += f" * {length - columns}u" if length > columns + 1 else ""
    return f"{start}u + {k}{more}" if start else f"{k}{more}"


def _saved_name(s: Column) -> str:
    return f"saved_{s.output}_{s.column}"


def _runs(stores: Sequence[Column]) -> list[list[Column]]:
    runs: list[list[Column]] = []
    for s in stores:
        last = runs[-1][-1] if runs else None
        if last and (last.output, last.column + 1) == (s.output, s.column):
            runs[-1].append(s)
        else:
            runs.append([s])
    return runs


def place(column: int, width: int, row: str, by_columns: bool = False) -> str:
    """Where a column of a row is in an array (B, width)."""
    if by_columns:
        return f"{column}u * params.count + {row}" if column else row
    first = row if width == 1 else f"{row} * {width}u"
    return f"{first} + {column}u" if column else first
