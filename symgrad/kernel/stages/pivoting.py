"""LU factorisations of matrices on a GPU, with the largest of a column as its pivot.

A panel of `LU_SIDE` columns is a group's; its rows are swapped, and the rows that it has come to
stand at become those of the upper factor (Golub and Van Loan, "Matrix computations", 4th edition,
2013, section 3.4). `panels.UpdateProgram` does what is behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.index import Index, Number, Numbers, loop, where
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.stages.panels import SIDE, WIDTH, Group, fused, same

LU_SIDE: Final = 32
"""Columns of a panel, and of its rows that are substituted together."""

BANDS: Final = WIDTH // LU_SIDE
"""Rows of a panel that a group works on together."""


@paused_gc()
def lu_panel(target: Target) -> KernelIR:
    """The kernel of a panel of ``depth`` columns of ``work``, from column ``first`` on.

    Of each column, ``swaps`` gets the row of its pivot, ``flips`` -1 where that is another row;
    ``order`` is swapped as the rows are.
    """
    return _Panel(target).group.k


class _Panel:
    """An invocation has a column, and one of `BANDS` rows."""

    def __init__(self, target: Target) -> None:
        self.group = group = Group(target, "lu_panel", ("n", "first", "depth"))
        self.k, self.n, self.first = group.k, group.g["n"], group.g["first"]
        k = self.k
        self.work, self.flips = Numbers.of(k, "work", "write"), Numbers.of(k, "flips", "write")
        self.order, self.swaps = k.buffer("order", "write", "u"), k.buffer("swaps", "write", "u")
        self.values = Numbers(k, k.buffer("values", "group", size=BANDS))
        self.places = k.buffer("places", "group", "u", BANDS)
        self.band, self.lane = divmod(group.local, LU_SIDE)
        self.start, self.of_rows = group.number * (self.n * self.n), group.number * self.n
        self.exists = group.holds(self.lane.below(group.g["depth"]))
        zero = Index(k, k.word(0))
        self._publish(zero, *self._largest(self.first, lambda r: self._at(r, zero)))
        (mine,) = loop(k, 0, group.g["depth"], [1.0], self._step)
        k.barrier()
        self._rows(self.first + 1, lambda r: self._scale(r, mine))

    def _at(self, row: Index, column: Index) -> Number:
        """The number in a row, and in a column of the panel."""
        return self.work[self._place(row, column)]

    def _place(self, row: Index, column: Index) -> Index:
        last = self.n - 1
        return self.start + (row.at_most(last) * self.n + (self.first + column).at_most(last))

    def _trips(self, begin: Index) -> Index:
        return (self.n - begin).ceil_div(BANDS)

    def _rows(self, begin: Index, body: Callable[[Index], None]) -> None:
        """Does something for the band's rows from ``begin`` on; those past the end are the last."""

        def one(t: int, _: object) -> tuple[()]:
            body(begin + (Index(self.k, t) * BANDS + self.band))
            return ()

        self.k.loop(self.k.word(0), self._trips(begin).id, (), one)

    def _largest(self, begin: Index, value: Callable[[Index], Number]) -> tuple[Number, Index]:
        """The largest magnitude among the band's rows from ``begin`` on, and its row."""
        k = self.k

        def one(t: int, carried: Sequence[int]) -> Sequence[int]:
            row = begin + (Index(k, t) * BANDS + self.band)
            return self._better(carried, abs(value(row)), row)

        inits = [k.constant(-1.0), begin.id]
        (largest, row), _ = k.loop(k.word(0), self._trips(begin).id, inits, one)
        return Number(k, largest), Index(k, row)

    def _better(self, best: Sequence[int], size: Number, row: Index) -> list[int]:
        """The larger of the best so far, and a magnitude in a row, if there is such a row."""
        k = self.k
        larger = k.add(ops.lt, best[0], size.id)
        larger = k.add(ops.logical_and, larger, row.below(self.n))
        return [
            k.add(ops.where, larger, size.id, best[0]),
            k.add(ops.word_where, larger, row.id, best[1]),
        ]

    def _publish(self, column: Index, largest: Number, row: Index) -> None:
        """Tell the group the band's candidate for the pivot of a column."""

        def publish() -> None:
            self.values.store(self.band, largest)
            self.k.store(self.places, self.band.id, row.id)

        self.k.when(same(self.lane, column), publish)
        self.k.barrier()

    def _pivot(self) -> Index:
        """The row of the pivot, by the bands' candidates: the first of equal ones."""
        k = self.k
        best, row = self.values[0], Index(k, k.load(self.places, k.word(0)))
        for t in range(1, BANDS):
            value, place = self.values[t], Index(k, k.load(self.places, k.word(t)))
            larger = k.add(ops.lt, best.id, value.id)
            tie = k.add(ops.logical_and, best.equals(value), place.below(row))
            larger = k.add(ops.logical_or, larger, tie)
            best = where(larger, value, best)
            row = Index(k, k.add(ops.word_where, larger, place.id, row.id))
        return row

    def _step(self, j: Index, carried: Sequence[Number]) -> Sequence[Number]:
        """Swap the pivot's row to its place, and take it out of those below."""
        k, row = self.k, self.first + j
        pivot = self._pivot()
        upper, old = self._at(pivot, self.lane), self._at(row, self.lane)
        diagonal, old_first = self._at(pivot, j), self._at(row, j)
        orders = [k.load(self.order, (self.of_rows + r).id) for r in (pivot, row)]
        divisor = where(diagonal.equals(0.0), Number(k, k.constant(1.0)), diagonal)
        k.barrier()
        self._swap(row, pivot, upper, orders)
        later, begin = j.below(self.lane), row + 1

        def one(t: int, best: Sequence[int]) -> Sequence[int]:
            r = begin + (Index(k, t) * BANDS + self.band)
            swapped = same(r, pivot)
            value, first = self._chosen(swapped, old, old_first, r, j)
            new = where(later, fused(-(first / divisor), upper, value), value)
            changed = k.add(ops.logical_or, later, swapped)
            inside = self.group.holds(self.exists, changed, r.below(self.n))
            k.when(inside, lambda: self.work.store(self._place(r, self.lane), new))
            return self._better(best, abs(new), r)

        inits = [k.constant(-1.0), begin.id]
        (largest, place), _ = k.loop(k.word(0), self._trips(begin).id, inits, one)
        self._publish(j + 1, Number(k, largest), Index(k, place))
        return [where(same(self.lane, j), divisor, carried[0])]

    def _chosen(
        self, swapped: int, old: Number, old_first: Number, r: Index, j: Index
    ) -> tuple[Number, Number]:
        """A row's numbers in the invocation's column and in column j, behind the swap.

        What others write to, or who does not exist, is not read.
        """
        k = self.k
        read = k.add(ops.logical_and, self.exists, r.below(self.n))
        read = k.add(ops.logical_and, read, k.add(ops.logical_not, swapped))
        value, first = k.choose(
            read,
            lambda: (self._at(r, self.lane).id, self._at(r, j).id),
            lambda: (old.id, old_first.id),
        )
        return Number(self.k, value), Number(self.k, first)

    def _swap(self, row: Index, pivot: Index, upper: Number, orders: Sequence[int]) -> None:
        """Write the pivot's row to its place, and what is known of the swap."""
        k, of_rows = self.k, self.of_rows
        in_first = self.band.below(1)

        def note() -> None:
            k.store(self.order, (of_rows + pivot).id, orders[1])
            k.store(self.order, (of_rows + row).id, orders[0])
            k.store(self.swaps, (of_rows + row).id, pivot.id)
            sign = where(same(row, pivot), Number(k, k.constant(1.0)), -1.0)
            self.flips.store(of_rows + row, sign)

        def place() -> None:
            self.work.store(self._place(row, self.lane), upper)

        k.when(self.group.holds(in_first, self.exists), place)
        k.when(self.group.holds(in_first, self.lane.below(1)), note)

    def _scale(self, row: Index, divisor: Number) -> None:
        """Divide a number of the lower factor by its column's pivot."""
        below = (self.first + self.lane).below(row)
        place = self._place(row, self.lane)
        inside = self.group.holds(self.exists, below, row.below(self.n))
        self.k.when(inside, lambda: self.work.store(place, self.work[place] / divisor))


@paused_gc()
def lu_rows(target: Target) -> KernelIR:
    """The kernel of what is beside a panel: swapped rows, and on its right those of the factor.

    A group has `SIDE` columns, one of ``parts`` of a matrix.
    """
    group = Group(target, "lu_rows", ("n", "first", "depth", "parts"))
    k, g, n, first = group.k, group.g, group.g["n"], group.g["first"]
    swaps, work = k.buffer("swaps", "read", "u"), Numbers.of(k, "work", "write")
    tile = Numbers(k, k.buffer("tile", "group", size=LU_SIDE * LU_SIDE))
    solved = Numbers(k, k.buffer("solved", "group", size=2 * SIDE))
    z, part = divmod(group.number, g["parts"])
    band, lane = divmod(group.local, SIDE)
    each, start, column = LU_SIDE * SIDE // WIDTH, z * (n * n), part * SIDE + lane
    end = first + g["depth"]
    right = end.below(column + 1)
    outside = k.add(ops.logical_or, column.below(first), right)
    inside = group.holds(outside, column.below(n))

    def place(row: Index, c: Index) -> Index:
        return start + (row * n + c)

    def swap(j: int, _: object) -> tuple[()]:
        row = first + Index(k, j)
        other = Index(k, k.load(swaps, (z * n + row).id))
        a, b = work[place(row, column)], work[place(other, column)]
        work.store(place(row, column), b)
        work.store(place(other, column), a)
        return ()

    def swap_all() -> None:
        k.loop(k.word(0), g["depth"].id, (), swap)

    k.when(k.add(ops.logical_and, inside, band.below(1)), swap_all)
    for q in range(LU_SIDE * LU_SIDE // WIDTH):
        i, j = divmod(group.local + q * WIDTH, LU_SIDE)
        at = place((first + i).at_most(n - 1), (first + j).at_most(n - 1))
        tile.store(i * LU_SIDE + j, work[at])
    k.barrier()
    rows = [band * each + q for q in range(each)]
    values = [work[place((first + r).at_most(n - 1), column.at_most(n - 1))] for r in rows]

    def step(j: Index, carried: Sequence[Number]) -> Sequence[Number]:
        for r, value in zip(rows, carried, strict=True):
            k.when(same(r, j), lambda v=value: solved.store(j % 2 * SIDE + lane, v))
        k.barrier()
        x = -solved[j % 2 * SIDE + lane]
        return [
            where(j.below(r), fused(tile[r * LU_SIDE + j], x, v), v)
            for r, v in zip(rows, carried, strict=True)
        ]

    values = loop(k, 0, g["depth"], values, step)
    for r, value in zip(rows, values, strict=True):
        exists = group.holds(inside, right, r.below(g["depth"]))
        k.when(exists, lambda r=r, v=value: work.store(place(first + r, column), v))
    return k
