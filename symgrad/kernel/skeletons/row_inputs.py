"""The inputs of a row, as kernels of sums over rows read them: one reader for lanes and workgroups.

There are two such kernels, which add in ways of their own. In the lanes of a vector
(`sums_in_lanes`) a group has a piece of the rows and computes all results at once. Its sums stay in
registers or in the cache, and go to float64 after a few rows; to entries of tables, lanes add one
after the other. In workgroups (`row_sums_workgroup`) there is no float64 and little memory: an
invocation has few rows, sums are added in trees, results are cut into tiles, and rows leave what
they add to entries to kernels of their own (`lookup.RunSums`). What results are (products of few
factors, `products`), what rows look up, and what the host makes of it all, are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, widen
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.views import (
    load_input,
    parameter_views,
    parameters_in_a_row,
    put_together,
    tables_of,
)
from symgrad.kernel.passes.lower import Value, inline
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.lookup import QUAD, padded
from symgrad.kernel.skeletons.row_tile import place_of


class LaneEntries:
    """The entries that rows name, and what they add to them, where invocations run in step.

    Buffers are ``index`` (count, indices), the words by which rows name entries, and for each
    lookup a table (entries, width), and, where rows add anything, a table of float64 for that.
    """

    def __init__(self, k: KernelIR, reduction: Reduction, parameters: Buffer) -> None:
        self.k, self.reduction = k, reduction
        self.count = reduction.indices
        numbered = range(len(reduction.lookups))
        if self.count:
            self.index = k.buffer("index", "read", "u")
        self.tables = [k.buffer(f"table{n}", "read", padded=True) for n in numbered]
        self.added = [
            k.buffer(f"added{n}", "write", "d", atomic=True, padded=True) for n in numbered
        ]
        self.slopes = [
            {c: i for c, i in enumerate(o.nodes) if reduction.graph.value(i) != 0.0}
            for o in reduction.outputs[len(reduction.summed) :]
        ]
        """The nodes that a row adds to the columns of its entries; what is always 0 is left out."""

    @property
    def nodes(self) -> list[int]:
        """All that a row adds to entries."""
        return [i for slopes in self.slopes for i in slopes.values()]

    def _entry(self, row: int, n: int) -> int:
        place = self.k.offset(row, self.count, self.reduction.lookups[n].index)
        return self.k.load(self.index, place)

    def value(self, row: int, n: int, column: int) -> int:
        """A value that a row looks up: of lookup number n, in a column of its table."""
        place = self.k.offset(self._entry(row, n), self.reduction.lookups[n].width, column)
        return self.k.load(self.tables[n], place)

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

    The buffer ``indices`` has the words by which rows name entries, column by column, padded.
    Tables stand behind the ``parameters``, from arguments on: ``table0``, and so on. Slopes are
    added to entries afterwards: see `RunSums`.
    """

    def __init__(self, k: KernelIR, reduction: Reduction, parameters: Buffer) -> None:
        self.k, self.reduction, self.parameters = k, reduction, parameters
        if reduction.lookups:
            self.indices = k.buffer("indices", "read", "u")
            self.starts = [k.argument(f"table{n}") for n in range(len(reduction.lookups))]
            self.rows = padded(Index(k, k.count))
            k.names[self.rows.id] = "padded"

    def write_to(self) -> None:
        """Have the buffer ``slopes``, of quads that stand column by column, padded."""
        if self.reduction.lookups:
            self.slopes = self.k.buffer("slopes", "write", vector=QUAD)

    def _place(self, column: int, row: int) -> Index:
        return self.rows * column + Index(self.k, row)

    def value(self, row: int, n: int, column: int) -> int:
        """A value that a row looks up: of lookup number n, in a column of its table."""
        k, lookup = self.k, self.reduction.lookups[n]
        first = Index(k, k.load(self.indices, self._place(lookup.index, row).id)) * lookup.width
        entry = Index(k, self.starts[n]) + first
        k.names[entry.id] = f"entry{n}"
        return k.load(self.parameters, entry.shifted(column).id)

    def write(self, row: int, column: int, values: Sequence[int]) -> None:
        """Write a quad of slopes of a row, which may be fewer numbers."""
        zeros = [self.k.constant(0.0)] * (QUAD - len(values))
        places = self._place(column, row).lanes(QUAD)
        for place, value in zip(places, [*values, *zeros], strict=True):
            self.k.store(self.slopes, place, value)


Entries = TypeVar("Entries", LaneEntries, GroupEntries)


class RowInputs(Generic[Entries]):
    """The inputs of a row: parameters, its columns, and the entries that it looks up.

    Buffers are ``rows`` and ``parameters``, those of the entries, and ``constants``, if there are
    tables of them that ``roots`` need. ``load`` numbers are read at once, of a row or of several.
    """

    def __init__(
        self,
        k: KernelIR,
        reduction: Reduction,
        entries: type[Entries],
        roots: Sequence[int],
        load: int = 1,
        rows: int = 1,
    ) -> None:
        self.k, self.graph, self._reduction = k, reduction.graph, reduction
        self._vector, self._together = load, rows
        self.rows = k.buffer("rows", "read", vector=load)
        put = put_together(self.graph, roots)
        arrays = parameters_in_a_row(self.graph, put, reduction.parameters)
        in_quads = not (k.target.in_step or arrays or reduction.lookups)
        self.parameters = k.buffer("parameters", "read", vector=QUAD if in_quads else 1)
        self.entries = entries(k, reduction, self.parameters)
        (tables,) = tables_of(k, (self.graph, put))
        self.invariants: dict[int, Value] = {}
        self.invariants |= parameter_views(k, self.parameters, arrays) | tables
        """Values that do not change from row to row, but for parameters if they are too many."""

    def parameter(self, i: int, at_use: bool = False) -> int:
        """The parameter that an input is, read before all rows, or ``at_use``."""
        number = self.k.word(self.graph.nodes[i][1])
        return load_input(self.k, self.graph, i, self.parameters, number, at_use)

    def column(self, at: int, part: int, i: int) -> int:
        """The value of an input in row number ``part`` of a load of the table."""
        k, columns, width = self.k, self._reduction.columns, self._vector
        number = self.graph.nodes[i][1] - self._reduction.parameters
        if number < 0:
            return self.parameter(i, at_use=True)
        if number >= columns:
            value = self.entries.value(at, *place_of(self._reduction, number - columns))
            k.names[value] = self.graph.names[self.graph.nodes[i][1]]
            return value
        vectors = columns // width if self._together == 1 else 1
        vector, place = divmod(part * columns + number, width)
        place = k.offset(k.offset(at, vectors, vector), width, place)
        return load_input(k, self.graph, i, self.rows, place)

    def known(self, nodes: Sequence[int]) -> list[int]:
        """Values that no row changes."""
        return inline(self.k, self.graph, nodes, self.invariants, self.parameter)
