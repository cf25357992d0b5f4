"""Rows of the host's buffers that lanes read or write side by side, to be transposed to columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import Buffer, For, Load, ReadRow, Scope, Store, StoreRow
from symgrad.llvm.printing.indices import LINEAR
from symgrad.llvm.printing.instruction import Shape
from symgrad.llvm.printing.needs import Needs


@dataclass(eq=False)
class Rows:
    """The rows of a buffer that the lanes are at in a scope: all columns, row after row."""

    scope: Scope
    buffer: Buffer
    row: int
    stride: int


class Rowwise(Needs):
    """A kernel, and the rows that its lanes are at.

    ``staged`` are stores that wait until all columns of their rows are there.
    """

    def __init__(self, kernel: KernelIR, shape: Shape) -> None:
        super().__init__(kernel, shape)
        self.loaded = self._loaded_again()
        """The written buffers of which something is loaded that may have been stored before."""
        self._interned: dict[tuple[Scope, Buffer, int, int], Rows] = {}
        self.staged = self._staged()
        self.whole = self._whole()
        """The rows that are read, or stored, by one statement for all columns."""
        computed = self.lazy - self.reloaded.keys() - self.row_reads.keys()
        self.operations = len(self.nodes) - len(self.products) - len(computed)
        self.columns_read: dict[int, tuple[Rows, int]] = {}
        """Where in rows each number that is read stands, if it does."""
        self.rows = self._rows()
        """The rows that lanes find, or leave, where their scope begins or ends."""
        self.columns = sum(r.stride for r in self.rows)

    def rows_of(self, scope: Scope, buffer: Buffer, index: int) -> Rows | None:
        """The rows in which an index stands, if the lanes' are side by side."""
        place = self.indices.column(index)
        return None if place is None else self._intern(scope, buffer, place.row, place.stride)

    def _intern(self, *key: Any) -> Rows:
        """The same rows for the same scope, buffer, row and stride."""
        rows = self._interned.get(key)
        if rows is None:
            rows = self._interned[key] = Rows(*key)
        return rows

    def _whole(self) -> dict[ReadRow | StoreRow, Rows]:
        main, cell = self.kernel.main, self.kernel.cell
        whole = dict[ReadRow | StoreRow, Rows]()
        for s in self.statements:
            if isinstance(s, ReadRow):
                assert s.row == cell, "lanes read the rows of their own points"
                whole[s] = self._intern(main, s.buffer, s.row, s.width)
            elif isinstance(s, StoreRow):
                whole[s] = self._intern(main, s.buffer, cell, len(s.values))
        return whole

    def _loaded_again(self) -> set[Buffer]:
        stored, loaded = set[Buffer](), set[Buffer]()
        for scope, item in self.stated:
            if isinstance(item, Store):
                stored.add(item.buffer)
            elif isinstance(item, Load) and (
                item.buffer in stored or scope is not self.kernel.main
            ):
                loaded.add(item.buffer)
        return loaded

    def rows_loaded(self, s: Load) -> Rows | None:
        """The rows of a buffer, not yet stored to, of which a statement reads a column."""
        if s.buffer.space != "write" or s.buffer.kind != "f" or s.buffer in self.loaded:
            return None
        rows = self.rows_of(self.kernel.main, s.buffer, s.index)
        return rows if rows and rows.stride > 1 else None

    def _staged(self) -> dict[Store, Rows]:
        """The stores that together write all columns of rows, and these rows.

        They are the only ones to their buffer: another one might come between them.
        """
        groups: defaultdict[Rows, list[Store]] = defaultdict(list)
        times = Counter(s.buffer for s in self.statements if isinstance(s, Store))
        tested = {s.scope for s in self.statements if isinstance(s, For) and s.test is not None}
        for scope, item in self.stated:
            if isinstance(item, Store) and _is_staged(item):
                rows = None if scope in tested else self.rows_of(scope, item.buffer, item.index)
                if rows and item.buffer not in self.loaded:
                    groups[rows].append(item)
        staged: dict[Store, Rows] = {}
        for rows, stores in groups.items():
            columns = [self.column(s.index) for s in stores]
            alone = len(stores) == times[rows.buffer]
            if alone and sorted(columns) == list(range(rows.stride)):
                staged.update((s, rows) for s in stores)
        return staged

    def column(self, index: int) -> int:
        """The column in which an index stands."""
        place = self.indices.column(index)
        assert place is not None, "the index is one of rows"
        return place.column

    def _rows(self) -> list[Rows]:
        """Rows that are read and known where their scope begins, then those that are written."""
        all_rows: dict[Rows, None] = {}
        for i in self.reads:
            read, index = self.graph.nodes[i]
            if (rows := self.rows_of(self.kernel.home[i], read.buffer, index)) is not None:
                all_rows[rows] = None
                self.columns_read[i] = rows, self.column(index)
        loads = (self.rows_loaded(s) for s in self.statements if isinstance(s, Load))
        all_rows |= dict.fromkeys(rows for rows in loads if rows is not None)
        main, cell = self.kernel.main, self.kernel.cell
        stay = [Rows(main, b, cell, stride) for b, stride in self.resident.items()]
        self.staying = {rows.buffer: rows for rows in stay}
        """Those that are columns in memory while the kernel runs, by their buffers."""
        all_rows |= dict.fromkeys(stay)
        all_rows |= dict.fromkeys(rows for s, rows in self.whole.items() if isinstance(s, ReadRow))
        self.read = set(all_rows)
        """Those that are read."""
        stored = [rows for s, rows in self.whole.items() if isinstance(s, StoreRow)]
        self.written = {*self.staged.values(), *stay, *stored}
        all_rows |= dict.fromkeys([*self.staged.values(), *stored])
        own = [rows for rows in all_rows if rows.scope is main and rows.row == cell]
        iterations = {s.scope: s.k for s in self.statements if isinstance(s, For)}
        return own + [
            rows
            for rows in all_rows
            if rows.buffer.space == "read" and self._begins(rows, iterations.get(rows.scope))
        ]

    def _begins(self, rows: Rows, iteration: int | None) -> bool:
        """Whether rows are known as soon as the number of their loop's turn is."""
        computed = [
            i for i in self.behind(rows) if self.kernel.home[i] is rows.scope and i != iteration
        ]
        return iteration is not None and all(self.graph.nodes[i][0] in LINEAR for i in computed)

    def behind(self, rows: Rows) -> Iterator[int]:
        """The words by which rows are known, as far as they are made in their scope."""
        stack = [rows.row]
        while stack:
            i = stack.pop()
            yield i
            if self.kernel.home[i] is rows.scope:
                stack += self.graph.args(i)


def _is_staged(s: Store) -> bool:
    """Whether a store may wait for others: of floats, which registers transpose."""
    return s.buffer.space == "write" and s.buffer.kind == "f" and not s.add
