"""Sums over rows in groups: an invocation adds up its rows, and a group what its invocations have.

Each invocation takes every stride-th load of the table; the first numbers of the sums are what
they are to be multiplied with, and then come those of all groups. Nothing is atomic: the same rows
give the same bits.

Rounding errors stay those of short sums: an invocation has few rows. Where there are few results it
adds them in blocks of `BLOCK`, and the sums of the blocks after that; where there are many, one by
one. What a row adds to lines of tables, its slopes, is written as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT
from symgrad.kernel.language import Kernel
from symgrad.kernel.lower import Value, inline, inlined
from symgrad.kernel.programs.lookup import GroupLines
from symgrad.kernel.row_tile import BLOCK, Tile
from symgrad.kernel.target import InGroups
from symgrad.kernel.views import View, inputs_in_a_row

KEPT: Final = 64
"""Parameters up to which they are read before the loop, rather than at every row."""

BRANCHES: Final = 16
"""Invocations that add up a group's sums of one result, and then parts that one adds up."""

FOUR: Final = 4
"""Numbers that are added up in pairs: (a + b) + (c + d)."""


def group_rows(tile: Tile, width: int, most: int) -> Kernel:
    """The kernel in which groups of so many invocations sum the results of a tile.

    An invocation has ``most`` rows at most. Buffers that are read are ``rows``, ``parameters`` and
    those of `GroupLines`; ``partials`` takes the factors of the results, and then the values of
    those that no row changes, and for each of the others the sums of all groups.
    """
    return _Sums(tile, width, most).kernel()


class Rows:
    """What programs over rows have in common: buffers, and what is known at a row."""

    def __init__(self, tile: Tile, width: int) -> None:
        whole = tile.whole
        self.tile, self.width, self.graph = tile, width, tile.reduction.graph
        self.k = k = Kernel(InGroups(width), whole.name)
        self.rows = k.buffer("rows", "read", vector=tile.load)
        arrays = self._arrays()
        self.parameters = k.buffer("parameters", "read", vector=1 if arrays else 4)
        self.known: dict[int, Value] = {
            array: View(self.parameters, k.word(c), size) for array, (c, size) in arrays.items()
        }
        """What does not change from row to row, but for parameters if they are too many."""
        self.lines = GroupLines(k, whole)
        self.partials = k.buffer("partials", "write")
        self.lines.write_to()
        self.head = 2 * len(tile.results) - len(tile.summed)
        """Where the sums of groups begin."""
        self.known |= self._fixed()

    def _arrays(self) -> dict[int, tuple[int, int]]:
        """Where arrays of parameters begin, which are read where they are, and their sizes."""
        found = inputs_in_a_row(self.graph, self.tile.reduction.outputs[0].nodes)
        return {i: (c, n) for i, (c, n) in found.items() if c + n <= self.tile.whole.parameters}

    def _fixed(self) -> dict[int, int]:
        """What rows need of the parameters, but for these themselves if they are too many."""
        nodes, carried = self.graph.nodes, self.tile.split.carried
        inputs = [i for i in carried if nodes[i][0] is INPUT]
        made = [i for i in carried if nodes[i][0] is not INPUT]
        values = inline(self.k, self.graph, made, self.known, self.parameter)
        found = dict(zip(made, values, strict=True))
        if len(inputs) <= KEPT:
            found |= {i: self.parameter(i) for i in inputs}
        return found

    def parameter(self, i: int, here: bool = False) -> int:
        """The parameter that an input is, read before all rows or ``here``."""
        number = self.graph.nodes[i][1]
        return self._named(i, self.k.load(self.parameters, self.k.word(number), here))

    def column(self, at: int, part: int, i: int) -> int:
        """What an input is in row number ``part`` of a load of the table."""
        k, columns, width = self.k, self.tile.whole.columns, self.tile.load
        number = self.graph.nodes[i][1] - self.tile.whole.parameters
        if not self._is_of_row(i):
            return self.parameter(i, here=True)
        if number >= columns:
            return self._named(i, self.lines.value(at, number - columns))
        vectors = columns // width if self.tile.rows == 1 else 1
        vector, place = divmod(part * columns + number, width)
        place = k.offset(k.offset(at, vectors, vector), width, place)
        return self._named(i, k.load(self.rows, place))

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
            known = inline(k, self.graph, values, self.known, self.parameter)
            for c, value in enumerate(known):
                k.store(self.partials, k.word(c), value)

        if values:
            k.when(k.add(ops.word_lt, k.cell, k.word(1)), store)


class _Sums(Rows):
    """A tile whose sums each invocation has for itself."""

    def __init__(self, tile: Tile, width: int, most: int) -> None:
        super().__init__(tile, width)
        self.most, k = most, self.k
        numbers = range(len(tile.summed))
        self.roots = {n: tile.roots[tile.summed[n]] for n in numbers}
        self.order = sorted(numbers, key=self.roots.__getitem__)
        """The sums, as what is added to them becomes known."""
        self.labels = [re.sub(r"\W+", "_", tile.labels[c]).strip("_") for c in tile.summed]
        self.block = max(1, min(BLOCK, most) // tile.rows)
        """Loads of a block."""
        self.jump = k.add(ops.word_mul, k.groups, k.word(width))
        up = k.add(ops.word_add, k.count, k.word(tile.rows - 1))
        loads = k.add(ops.word_div, up, k.word(tile.rows)) if tile.rows > 1 else k.count
        self.loads = self._mine(loads)
        k.names |= {self.jump: "jump", self.loads: "loads"}

    def kernel(self) -> Kernel:
        """The whole program."""
        if self.tile.has_rows:
            self._write(self._blocks() if self.tile.two_levels else self._singly())
        self.store_fixed()
        return self.k

    def _mine(self, loads: int) -> int:
        """How many of so many loads an invocation has."""
        k = self.k
        last = k.add(ops.word_add, loads, k.add(ops.word_sub, self.jump, k.word(1)))
        return k.add(ops.word_div, k.add(ops.word_sub, last, k.cell), self.jump)

    # the rows of an invocation -------------------------------------------------------------------

    def _zeros(self) -> list[int]:
        return [self.k.constant(0.0)] * len(self.roots)

    def _call(self, sums: Sequence[int], kind: str) -> None:
        named = zip(sums, self.labels, strict=True)
        self.k.names |= {x: f"{kind}_{label}" for x, label in named}

    def _blocks(self) -> list[int]:
        """The sums of blocks of rows."""
        k, block = self.k, self.k.word(self.block)

        def turn(b: int, totals: list[int]) -> list[int]:
            self._call(totals, "total")
            first = k.add(ops.word_mul, b, block)
            last = k.add(ops.word_min, k.add(ops.word_add, first, block), self.loads)
            k.names |= {b: "block", last: "last"}
            found = self._flat(first, last) if self.tile.flat else self._loads(first, last)
            return [k.add(ops.add, a, b) for a, b in zip(totals, found, strict=True)]

        up = k.add(ops.word_add, self.loads, k.word(self.block - 1))
        blocks = k.add(ops.word_div, up, block)
        k.names[blocks] = "blocks"
        most = -(-self.most // (self.block * self.tile.rows))
        return k.loop(k.word(0), blocks, self._zeros(), turn, most=most)[0]

    def _singly(self) -> list[int]:
        """The sums of rows one by one: of whole loads, and then of what the last one has."""
        k, rows, zero = self.k, self.k.word(self.tile.rows), self.k.word(0)
        if self.tile.rows == 1:
            return self._loads(zero, self.loads)
        whole = k.add(ops.word_div, k.count, rows)
        mine = self._mine(whole)
        sums = self._loads(zero, mine, whole=True)
        follows = k.add(ops.word_add, k.cell, k.add(ops.word_mul, mine, self.jump))
        first, here = k.add(ops.word_mul, whole, rows), k.add(ops.word_eq, follows, whole)

        def turn(row: int, sums: list[int]) -> list[int]:
            self._call(sums, "sum")
            return self._added(row, partial(self._picked, row), sums)

        end = k.add(ops.word_where, here, k.count, first)
        return k.loop(first, end, sums, turn, most=self.tile.rows - 1)[0]

    def _picked(self, row: int, i: int) -> int:
        """What an input is in a row, of those that are read with it."""
        k, rows = self.k, self.tile.rows
        at = k.add(ops.word_div, row, k.word(rows))
        part = k.add(ops.word_and, row, k.word(rows - 1))
        found = self.column(at, 0, i)
        for n in range(1, rows if self._is_of_row(i) else 1):
            before = k.add(ops.word_lt, part, k.word(n))
            found = k.add(ops.where, before, found, self.column(at, n, i))
        return found

    def _loads(self, first: int, last: int, whole: bool = False) -> list[int]:
        """The sums of some loads, in a loop; of ``whole`` ones all rows are there."""
        k, rows = self.k, self.tile.rows

        def turn(t: int, sums: list[int]) -> list[int]:
            self._call(sums, "sum")
            at = k.add(ops.word_add, k.cell, k.add(ops.word_mul, t, self.jump))
            k.names[at] = "row" if rows == 1 else "load"
            if self.tile.whole.is_structured:
                self._load(at)
            found = self._added(at, partial(self.column, at, 0), sums)
            for part in range(1, rows):
                if whole:
                    found = self._added(at, partial(self.column, at, part), found)
                else:
                    found = self._added_if_there(at, part, found)
            return found

        most = self.block if self.tile.two_levels else self.most // rows
        return k.loop(first, last, self._zeros(), turn, most=most)[0]

    def _added_if_there(self, at: int, part: int, sums: list[int]) -> list[int]:
        """The sums and what a row adds that may be past the end."""
        k = self.k
        there = k.add(ops.word_lt, k.offset(at, self.tile.rows, part), k.count)
        column = partial(self.column, at, part)
        return k.choose(there, lambda: self._added(at, column, sums), lambda: sums)

    def _flat(self, first: int, last: int) -> list[int]:
        """A block without the loop, all loads before the work, unless the end cuts it short."""
        k, rows = self.k, self.tile.rows
        start = k.add(ops.word_add, k.cell, k.add(ops.word_mul, first, self.jump))
        steps = [k.add(ops.word_mul, self.jump, k.word(j)) for j in range(self.block)]
        places = [k.add(ops.word_add, start, step) if j else start for j, step in enumerate(steps)]
        k.names |= {start: "start"} | {at: f"load{j}" for j, at in enumerate(places) if j}

        def whole() -> list[int]:
            sums = self._zeros()
            for at in places:
                self._load(at)
            for at in places:
                for part in range(rows):
                    sums = self._added(at, partial(self.column, at, part), sums)
            return sums

        ends = k.add(ops.word_div, k.count, k.word(rows)) if rows > 1 else k.count
        k.names[ends] = "end"
        inside = k.add(ops.word_lt, places[-1], ends)
        found = k.choose(inside, whole, lambda: self._loads(first, last))
        self._call(found, "sum")
        return found

    def _load(self, at: int) -> None:
        """Read all columns of all rows of a load."""
        for part in range(self.tile.rows):
            for i in self.tile.whole.row_inputs:
                self.column(at, part, i)

    def _added(self, at: int, column: Callable[[int], int], sums: Sequence[int]) -> list[int]:
        """The sums and what a row adds to them, of which ``column`` gives the inputs.

        Its slopes are written, if it is alone in the load ``at``.
        """
        k, found = self.k, list(sums)
        slopes = [i for quad in self.tile.written.values() for i in (s.node for s in quad)]
        wanted = [self.roots[n] for n in self.order] + slopes
        values = inlined(k, self.graph, wanted, self.known, column)
        for n in self.order:
            found[n] = k.add(ops.add, found[n], next(values))
            k.names[found[n]] = f"sum_{self.labels[n]}"
        for number, quad in self.tile.written.items():
            self.lines.write(at, number, [next(values) for _ in quad])
        return found

    # the sums of a group -------------------------------------------------------------------------

    def _write(self, sums: Sequence[int]) -> None:
        """Write the sums of the group, as many together as its memory takes."""
        together = self.width // BRANCHES
        if sums:
            size = min(together, len(sums)) * self.width
            self.tree = self.k.buffer("tile", "group", size=size)
        for start in range(0, len(sums), together):
            if start:
                self.k.barrier()
            self._write_some(start, sums[start : start + together])

    def _write_some(self, start: int, sums: Sequence[int]) -> None:
        """A tree of two levels: parts of each sum, and the sums of these."""
        k, tile, local = self.k, self.tree, self.k.local
        for c, value in enumerate(sums):
            k.store(tile, k.add(ops.word_add, local, k.word(c * self.width)), value)
        k.barrier()
        branches = k.word(BRANCHES)
        which, branch = k.add(ops.word_div, local, branches), k.add(ops.word_and, local, k.word(15))
        begin = k.add(ops.word_add, k.add(ops.word_mul, which, k.word(self.width)), branch)
        mine = k.add(ops.word_lt, local, k.word(BRANCHES * len(sums)))

        def part() -> list[int]:
            return [self._in_fours(begin, BRANCHES, self.width // BRANCHES)]

        (found,) = k.choose(mine, part, lambda: [k.constant(0.0)])
        k.barrier()
        k.when(mine, lambda: k.store(tile, local, found))
        k.barrier()
        k.when(k.add(ops.word_lt, local, k.word(len(sums))), lambda: self._write_sum(start))

    def _write_sum(self, start: int) -> None:
        """Write the sum that an invocation has to write."""
        k = self.k
        begin = k.add(ops.word_mul, k.local, k.word(BRANCHES))
        number = k.add(ops.word_add, k.local, k.word(start))
        first = k.add(ops.word_add, k.group, k.word(self.head))
        to = k.add(ops.word_add, first, k.add(ops.word_mul, number, k.groups))
        k.store(self.partials, to, self._in_fours(begin, 1, BRANCHES))

    def _in_fours(self, begin: int, step: int, count: int) -> int:
        """The sum of so many numbers of the tile, added up in fours."""
        k, tile = self.k, self.tree

        def turn(t: int, sums: list[int]) -> list[int]:
            first = k.add(ops.word_add, begin, k.add(ops.word_mul, t, k.word(FOUR * step)))
            at = [k.add(ops.word_add, first, k.word(j * step)) for j in range(FOUR)]
            a, b, c, d = [k.load(tile, i) for i in at]
            four = k.add(ops.add, k.add(ops.add, a, b), k.add(ops.add, c, d))
            return [k.add(ops.add, sums[0], four)]

        (found,), _ = k.loop(k.word(0), k.word(count // FOUR), [k.constant(0.0)], turn)
        return found
