"""Rows of the host's buffers that lanes read or write side by side, to be turned to columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from symgrad.kernel.language import Buffer, For, Kernel, Load, Scope, Store, scopes_of
from symgrad.llvm.indices import LINEAR
from symgrad.llvm.instruction import Shape
from symgrad.llvm.needs import Needs


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

    def __init__(self, kernel: Kernel, shape: Shape) -> None:
        super().__init__(kernel, shape)
        self.loaded = {item.buffer for item in self.statements if isinstance(item, Load)}
        self._found: dict[tuple[Scope, Buffer, int, int], Rows] = {}
        self.staged = self._staged()
        self.operations = len(self.nodes) - len(self.products) - len(self.lazy)
        self.columns_read: dict[int, tuple[Rows, int]] = {}
        """Where in rows each number that is read stands, if it does."""
        self.rows = self._rows()
        """The rows that lanes find, or leave, where their scope begins or ends."""
        self.columns = sum(r.stride for r in self.rows)

    def rows_of(self, scope: Scope, buffer: Buffer, index: int) -> Rows | None:
        """The rows in which an index stands, if the lanes' are side by side."""
        place = self.indices.column(index)
        if place is None:
            return None
        key = scope, buffer, place.row, place.stride
        return self._found.get(key) or self._found.setdefault(key, Rows(*key))

    def _staged(self) -> dict[Store, Rows]:
        """The stores that together write all columns of rows, and these rows."""
        groups: defaultdict[Rows, list[Store]] = defaultdict(list)
        tested = {s.scope for s in self.statements if isinstance(s, For) and s.test is not None}
        inner = [scope for s in self.statements for scope in scopes_of(s)]
        for scope in (self.kernel.main, *inner):
            for item in scope.items if scope not in tested else ():
                if isinstance(item, Store) and item.buffer.space == "write" and not item.add:
                    rows = self.rows_of(scope, item.buffer, item.index)
                    if rows and item.buffer not in self.loaded:
                        groups[rows].append(item)
        found: dict[Store, Rows] = {}
        for rows, stores in groups.items():
            columns = [self.column(s.index) for s in stores]
            if sorted(columns) == list(range(rows.stride)):
                found.update((s, rows) for s in stores)
        return found

    def column(self, index: int) -> int:
        """The column in which an index stands."""
        place = self.indices.column(index)
        assert place is not None, "the index is one of rows"
        return place.column

    def _rows(self) -> list[Rows]:
        """Rows that are read and known where their scope begins, then those that are written."""
        found: dict[Rows, None] = {}
        for i in self.reads:
            read, index = self.graph.nodes[i]
            if (rows := self.rows_of(self.kernel.home[i], read.buffer, index)) is not None:
                found[rows] = None
                self.columns_read[i] = rows, self.column(index)
        found.update(dict.fromkeys(self.staged.values()))
        main, cell = self.kernel.main, self.kernel.cell
        own = [rows for rows in found if rows.scope is main and rows.row == cell]
        turns = {s.scope: s.k for s in self.items if isinstance(s, For)}
        return own + [
            rows
            for rows in found
            if rows.buffer.space == "read" and self._begins(rows, turns.get(rows.scope))
        ]

    def _begins(self, rows: Rows, turn: int | None) -> bool:
        """Whether rows are known as soon as the number of their loop's turn is."""
        made = [i for i in self.behind(rows) if self.kernel.home[i] is rows.scope and i != turn]
        return turn is not None and all(self.graph.nodes[i][0] in LINEAR for i in made)

    def behind(self, rows: Rows) -> Iterator[int]:
        """The words by which rows are known, as far as they are made in their scope."""
        stack = [rows.row]
        while stack:
            i = stack.pop()
            yield i
            if self.kernel.home[i] is rows.scope:
                stack += self.graph.args(i)
