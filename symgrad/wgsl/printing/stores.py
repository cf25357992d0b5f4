"""What is stored at the end of a shader: neighbouring invocations write neighbouring numbers.

An invocation's results stand side by side, those of its neighbours a row further on. So it hands
them to the workgroup's tile, from which neighbours write neighbouring floats: on an H200 this
reaches 99 % of the copy bandwidth, direct stores 22 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from symgrad.kernel.schedule import Column

FEW_COLUMNS = 16
"""Columns of a tile below which it is as well that rows of an even length share memory banks."""

TILE_COLUMNS = 63
"""The most columns of a tile: an odd row length of at most 64 floats keeps the 64 rows within
WebGPU's 16,384 bytes and in different memory banks."""


@dataclass(frozen=True)
class Stores:
    """The stores at the end of a shader, whose numbers ``text`` gives.

    ``columns`` says whether arrays stand column by column: then neighbours write side by side. The
    shader has ``first``, the number of its workgroup's first invocation, ``local``, that of its own
    among them, and ``cell``, the sum, which is the row of the invocation's results.
    """

    names: Sequence[str]
    """What the arrays are called."""
    widths: Sequence[int]
    """How many columns they have."""
    stores: Sequence[Column]
    text: Callable[[int], str]
    workgroup: int
    """The invocations of a workgroup."""
    columns: bool = False
    staged: bool = True
    """Whether they go through a tile at all."""

    @cached_property
    def rounds(self) -> list[list[list[Column]]]:
        """The stores that go through the tile: runs of neighbouring columns, cut to its size.

        What fits in it together is one round, which needs one barrier.
        """
        runs = [run for run in _runs(self.stores) if self._is_wide(run)]
        cut = [run[k : k + TILE_COLUMNS] for run in runs for k in range(0, len(run), TILE_COLUMNS)]
        rounds: list[list[list[Column]]] = []
        for run in cut:
            if not rounds or sum(map(len, rounds[-1])) + len(run) > TILE_COLUMNS:
                rounds.append([])
            rounds[-1].append(run)
        return rounds

    @property
    def held(self) -> list[str]:
        """The names of values that wait for a barrier."""
        return [_held_name(s) for runs in self.rounds[1:] for run in runs for s in run]

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
        if self.rounds:
            yield f"var<workgroup> tile: array<f32, {self.workgroup * self.row_length}>;"

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
            yield from (self._held(s) for run in runs for s in run)
        for number, runs in enumerate(self.rounds):
            if number:
                yield "  workgroupBarrier();"
            yield from self._fill(runs, held=number > 0)
            yield "  workgroupBarrier();"
            start = 0
            for run in runs:
                yield from self._drain(run, start)
                start += len(run)

    def _fill(self, runs: Iterable[Sequence[Column]], held: bool) -> Iterator[str]:
        """The lines that write the columns of a round to the tile."""
        for c, s in enumerate(s for run in runs for s in run):
            value = _held_name(s) if held else self.text(s.node)
            yield f"  tile[{place(c, self.row_length, 'local')}] = {value};"

    def _held(self, s: Column) -> str:
        """A value that is needed behind a barrier, as a value that compilers cannot take apart.

        llvmpipe otherwise moves half of its operations behind the barrier, and gets them wrong.
        """
        value = f"bitcast<f32>(bitcast<u32>({self.text(s.node)}) ^ params.zero)"
        return f"  let {_held_name(s)} = {value};"

    def _direct(self) -> Iterator[str]:
        for s in self.direct:
            at = place(s.column, self.widths[s.output], "cell", self.columns)
            yield f"    {self.names[s.output]}[{at}] = {self.text(s.node)};"

    def _drain(self, run: Sequence[Column], start: int) -> Iterator[str]:
        """The workgroup writes columns of the tile, from ``start`` on, neighbours to neighbours.

        All of its points but in the last workgroup: then no store has to ask.
        """
        columns, width = len(run), self.widths[run[0].output]
        name, size = self.names[run[0].output], self.workgroup

        def copy(k: str) -> str:
            target = _spread(k, columns, width, run[0].column)
            source = _spread(k, columns, self.row_length, start)
            return f"{name}[first * {width}u + {target}] = tile[{source}];"

        yield f"  if (rows == {size}u) {{"
        yield from (f"    {copy(f'{k * size}u + local' if k else 'local')}" for k in range(columns))
        yield "  } else {"
        yield f"    for (var k = local; k < rows * {columns}u; k += {size}u) {{ {copy('k')} }}"
        yield "  }"


def _spread(k: str, columns: int, length: int, start: int) -> str:
    """Where number k of rows of so many columns is in longer rows, of which it takes a part.

    That is ``k / columns * length + start + k % columns``, with fewer operations.
    """
    more = "" if length == columns else f" + {f'({k})' if ' ' in k else k} / {columns}u"
    more += f" * {length - columns}u" if length > columns + 1 else ""
    return f"{start}u + {k}{more}" if start else f"{k}{more}"


def _held_name(s: Column) -> str:
    return f"held_{s.output}_{s.column}"


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
