"""Sums over rows in groups: an invocation adds up its rows, and a group what its invocations have.

Each invocation takes every stride-th load of the table; the first numbers of the sums are what
they are to be multiplied with, and then come those of all groups. Nothing is atomic: the same rows
give the same bits.

Rounding errors stay those of short sums: an invocation has few rows. Where there are few results it
adds them in blocks of `ROWS_PER_BLOCK`, and then the sums of the blocks; where there are many, one
by one. What a row adds to entries of tables, its slopes, is written as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from symgrad.expr.graph.node import INPUT, reachable
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.thread_group import add_up, branches_of
from symgrad.kernel.language.views import (
    load_input,
    parameter_views,
    parameters_in_a_row,
    put_together,
    tables_of,
)
from symgrad.kernel.passes.lower import Value, inline, inlined
from symgrad.kernel.row_tile import ROWS_PER_BLOCK, Tile
from symgrad.kernel.skeletons.lookup import GroupEntries

HOISTED_PARAMETERS: Final = 64
"""Parameters up to which they are read before the loop, rather than at every row."""


def row_sums_workgroup(tile: Tile, width: int, most: int, in_words: bool = True) -> KernelIR:
    """The kernel in which groups of so many invocations sum the results of a tile.

    An invocation has ``most`` rows at most; tables are ``in_words``, or floats. Buffers that are
    read are ``rows``, ``parameters``, those of `GroupEntries`, and ``constants``, if there are
    tables of them; ``partials`` takes the factors of the results, and then the values of those
    that no row changes, and for each of the others the sums of all groups.
    """
    return _Sums(tile, width, most, in_words).kernel()


class Rows:
    """Common parts of programs over rows: buffers, and what is known at a row."""

    def __init__(self, tile: Tile, width: int, in_words: bool) -> None:
        whole = tile.whole
        self.tile, self.width, self.graph = tile, width, tile.reduction.graph
        self.k = k = KernelIR(WorkgroupTarget(width), whole.name)
        self.rows = k.buffer("rows", "read", vector=tile.load)
        put = put_together(self.graph, tile.reduction.outputs[0].nodes)
        arrays = parameters_in_a_row(self.graph, put, whole.parameters)
        self.parameters = k.buffer("parameters", "read", vector=1 if arrays else 4)
        self.invariants: dict[int, Value] = {**parameter_views(k, self.parameters, arrays)}
        """Values that do not change from row to row, but for parameters if they are too many."""
        self.entries = GroupEntries(k, whole, in_words)
        (tables,) = tables_of(k, (self.graph, put))
        self.invariants |= tables
        self.partials = k.buffer("partials", "write")
        self.entries.write_to()
        self.head = 2 * len(tile.results) - len(tile.summed)
        """Where the sums of groups begin."""
        self.invariants |= self._fixed()

    def _fixed(self) -> dict[int, int]:
        """Values of parameters that rows need, but for these themselves if they are too many."""
        nodes, carried = self.graph.nodes, self.tile.split.carried
        inputs = [i for i in carried if nodes[i][0] is INPUT]
        computed = [i for i in carried if nodes[i][0] is not INPUT]
        values = inline(self.k, self.graph, computed, self.invariants, self.parameter)
        fixed = dict(zip(computed, values, strict=True))
        if len(inputs) <= HOISTED_PARAMETERS:
            fixed |= {i: self.parameter(i) for i in inputs}
        return fixed

    def parameter(self, i: int, at_use: bool = False) -> int:
        """The parameter that an input is, read before all rows, or ``at_use``."""
        number = self.k.word(self.graph.nodes[i][1])
        return load_input(self.k, self.graph, i, self.parameters, number, at_use)

    def column(self, at: int, part: int, i: int) -> int:
        """The value of an input in row number ``part`` of a load of the table."""
        k, columns, width = self.k, self.tile.whole.columns, self.tile.load
        number = self.graph.nodes[i][1] - self.tile.whole.parameters
        if not self._is_of_row(i):
            return self.parameter(i, at_use=True)
        if number >= columns:
            return self._named(i, self.entries.value(at, number - columns))
        vectors = columns // width if self.tile.rows == 1 else 1
        vector, place = divmod(part * columns + number, width)
        place = k.offset(k.offset(at, vectors, vector), width, place)
        return load_input(k, self.graph, i, self.rows, place)

    def _is_of_row(self, i: int) -> bool:
        return self.graph.nodes[i][1] >= self.tile.whole.parameters

    def _named(self, i: int, value: int) -> int:
        self.k.names[value] = self.graph.names[self.graph.nodes[i][1]]
        return value

    def store_fixed(self) -> None:
        """Write the factors, and what no row changes."""
        k, tile = self.k, self.tile
        fixed = [i for c, i in tile.roots.items() if c not in tile.summed]
        values = [*tile.reduction.factors, *fixed]

        def store() -> None:
            computed = inline(k, self.graph, values, self.invariants, self.parameter)
            for c, value in enumerate(computed):
                k.store(self.partials, k.word(c), value)

        if values:
            k.when(Index(k, k.cell).below(1), store)


class _Sums(Rows):
    """A tile whose sums each invocation has for itself."""

    def __init__(self, tile: Tile, width: int, most: int, in_words: bool) -> None:
        super().__init__(tile, width, in_words)
        self.most, k = most, self.k
        self.count = len(tile.summed)
        self.block = max(1, min(ROWS_PER_BLOCK, most) // tile.rows)
        """Loads of a block."""
        self.sums = k.buffer("sums", "own", size=max(self.count, 1))
        two_levels = tile.two_levels
        self.totals = k.buffer("totals", "own", size=max(self.count, 1)) if two_levels else None
        """The sums of blocks, if there are any: those of rows are of a block then."""
        self.add_row = self._routine() if tile.rows > 1 or tile.flat else self._add
        self.cell, self.jump = Index(k, k.cell), Index(k, k.groups) * width
        loads = Index(k, k.count).ceil_div(tile.rows)
        self.loads = (loads + (self.jump - 1) - self.cell) // self.jump
        """How many loads of the table an invocation has."""
        k.names |= {self.jump.id: "jump", self.loads.id: "loads"}

    def kernel(self) -> KernelIR:
        """The whole program."""
        if self.tile.has_rows:
            self.k.fill(self.sums)
            if self.totals:
                self._blocks(self.totals)
            else:
                self._loads(self.k.word(0), self.loads.id)
            self._write(self.totals or self.sums)
        self.store_fixed()
        return self.k

    # the rows of an invocation -------------------------------------------------------------------

    def _blocks(self, totals: Buffer) -> None:
        """Add up blocks of rows."""
        k = self.k
        k.fill(totals)

        def iteration(b: int, start: Sequence[int]) -> Sequence[int]:
            first = Index(k, b) * self.block
            last = (first + self.block).at_most(self.loads)
            k.names |= {b: "block", last.id: "last"}
            if self.tile.flat:
                self._flat(Index(k, start[0]), first.id, last.id)
            else:
                self._loads(first.id, last.id)
            for n in map(k.word, range(self.count)):
                k.store(totals, n, k.load(self.sums, n), add=True)
            k.fill(self.sums)
            return [(Index(k, at) + self.jump * self.block).id for at in start]

        blocks = self.loads.ceil_div(self.block).id
        k.names[blocks] = "blocks"
        most = -(-self.most // (self.block * self.tile.rows))
        k.loop(k.word(0), blocks, [k.cell] * self.tile.flat, iteration, most=most)

    def _loads(self, first: int, last: int) -> None:
        """Add up some loads, in a loop."""
        k, rows = self.k, self.tile.rows

        def iteration(t: int, _: Sequence[int]) -> Sequence[int]:
            at = (self.cell + Index(k, t) * self.jump).id
            k.names[at] = "row" if rows == 1 else "load"
            if rows > 1 or self.tile.whole.is_structured:
                self._load(at)
            self.add_row(at, 0)
            for part in range(1, rows):
                exists = Index(k, k.offset(at, rows, part)).below(Index(k, k.count))
                k.when(exists, partial(self.add_row, at, part))
            return ()

        k.loop(first, last, (), iteration, most=self.block if self.totals else self.most // rows)

    def _flat(self, start: Index, first: int, last: int) -> None:
        """Add up a block without the loop, all loads before the work, unless the end cuts it.

        ``start`` is the first load, and ``first`` its number among those of the invocation.
        """
        k, rows = self.k, self.tile.rows
        steps = [self.jump * j for j in range(self.block)]
        places = [start, *((start + step) for step in steps[1:])]
        k.names |= {start.id: "start"} | {at.id: f"load{j}" for j, at in enumerate(places) if j}

        def whole() -> Sequence[int]:
            for at in places:
                self._load(at.id)
            for at in places:
                for part in range(rows):
                    self.add_row(at.id, part)
            return ()

        def cut() -> Sequence[int]:
            self._loads(first, last)
            return ()

        ends = Index(k, k.count) // rows
        k.names[ends.id] = "end"
        k.choose(places[-1].below(ends), whole, cut)

    def _load(self, at: int) -> None:
        """Read all columns of all rows of a load."""
        for part in range(self.tile.rows):
            for i in self.tile.whole.row_inputs:
                self.column(at, part, i)

    def _routine(self) -> Callable[[int, int], None]:
        """The routine that adds row number ``part`` of a load to the sums, written once."""
        k = self.k
        needed = set(reachable(self.graph, [*self.tile.roots.values()]))
        columns = [i for i in self.tile.whole.row_inputs if i in needed]

        def body(*values: int) -> None:
            value_of = dict(zip(columns, values, strict=True))
            for i, value in value_of.items():
                self._named(i, value)
            self._sum(lambda i: value_of[i] if i in value_of else self.parameter(i, at_use=True))

        routine = k.routine("add_row", "f" * len(columns), body)
        return lambda at, part: routine(*[self.column(at, part, i) for i in columns])

    def _add(self, at: int, part: int) -> None:
        """Add a row to the sums; its slopes are written, if it is alone in the load ``at``."""
        written = self.tile.written
        slopes = self._sum(
            partial(self.column, at, part), [s.node for quad in written.values() for s in quad]
        )
        for number, quad in written.items():
            self.entries.write(at, number, [next(slopes) for _ in quad])

    def _sum(self, column: Callable[[int], int], more: Sequence[int] = ()) -> Iterator[int]:
        """Add a row, of which ``column`` gives the inputs, to the sums; the values of ``more``."""
        k, roots = self.k, [self.tile.roots[c] for c in self.tile.summed]
        order = sorted(range(self.count), key=roots.__getitem__)  # as they become known
        wanted = [*(roots[n] for n in order), *more]
        values = inlined(k, self.graph, wanted, self.invariants, column)
        for n in order:
            k.store(self.sums, k.word(n), next(values), add=True)
        return values

    # the sums of a group -------------------------------------------------------------------------

    def _write(self, sums: Buffer) -> None:
        """Write the sums of the group, as many together as its memory takes."""
        k, together = self.k, self.width // branches_of(self.width)
        if self.count:
            size = min(together, self.count) * self.width
            tile = k.buffer("tile", "group", size=size)
            for start in range(0, self.count, together):
                if start:
                    k.barrier()
                some = range(start, min(start + together, self.count))
                values = [partial(k.load, sums, k.word(n)) for n in some]
                add_up(k, tile, values, partial(self._write_sum, start))

    def _write_sum(self, start: int, total: int) -> None:
        """Write the sum that an invocation has, of those from a number on."""
        k = self.k
        number, first = Index(k, k.local) + start, Index(k, k.group) + self.head
        k.store(self.partials, (first + number * Index(k, k.groups)).id, total)
