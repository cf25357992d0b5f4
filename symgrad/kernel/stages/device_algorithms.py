"""Algorithms on whole matrices as steps of a GPU: what a program calls for, and who does it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from symgrad.arrays.program import Call
from symgrad.arrays.scalars import Array, is_zero
from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index, Number, Numbers, loop, where
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.stages.panels import (
    COLUMNS,
    SIDE,
    WIDTH,
    Group,
    SubstitutionProgram,
    UpdateProgram,
    by_groups,
    cholesky_panel,
    fused,
    same,
)
from symgrad.kernel.stages.schedule import Scheduler
from symgrad.kernel.stages.steps import AnyStep, Step

# --- LU factorisations ----------------------------------------------------------------------------
# LU factorisations of matrices on a GPU, with the largest of a column as its pivot.
#
# A panel of `LU_SIDE` columns is a group's; its rows are swapped, and the rows that it has come to
# stand at become those of the upper factor (Golub and Van Loan, "Matrix computations", 4th edition,
# 2013, section 3.4). `panels.UpdateProgram` does what is behind.

LU_SIDE: Final = 32
"""Columns of a panel, and of its rows that are substituted together."""

AT_A_TIME: Final = 4
"""Rows that an invocation has read before it computes: they are on their way together."""

BANDS: Final = WIDTH // LU_SIDE
"""Rows of a panel that a group works on together."""


@paused_gc()
def lu_panel(target: Target) -> KernelIR:
    """The kernel of a panel of ``depth`` columns of ``work``, from column ``first`` on.

    Of each column, ``swaps`` gets the row of its pivot, ``flips`` -1 where that is another row;
    ``order`` is swapped as the rows are, and ``inverse`` says where each row has come to stand.
    """
    return _Panel(target).group.k


class _Panel:
    """An invocation has a column, and one of `BANDS` rows."""

    def __init__(self, target: Target) -> None:
        self.group = group = Group(target, "lu_panel", ("n", "first", "depth"))
        self.k, self.n, self.first = group.k, group.g["n"], group.g["first"]
        k = self.k
        self.work, self.flips = Numbers.of(k, "work", "write"), Numbers.of(k, "flips", "write")
        self.order, self.inverse, self.swaps = (
            k.buffer(name, "write", "u") for name in ("order", "inverse", "swaps")
        )
        self.values = Numbers(k, k.buffer("values", "group", size=BANDS))
        self.places = k.buffer("places", "group", "u", BANDS)
        self.band, self.lane = divmod(group.local, LU_SIDE)
        self.start, self.of_rows = group.number * (self.n * self.n), group.number * self.n
        self.exists = group.holds(self.lane.below(group.g["depth"]))
        self._publish(Index(k, k.word(0)), *self._largest(self.first))
        (mine,) = loop(k, 0, group.g["depth"], [1.0], self._step)
        self._scale(mine)

    def _at(self, row: Index, column: Index) -> Number:
        """The number in a row, and in a column of the panel."""
        return self.work[self._place(row, column)]

    def _place(self, row: Index, column: Index) -> Index:
        last = self.n - 1
        return self.start + (row.at_most(last) * self.n + (self.first + column).at_most(last))

    def _rows(
        self,
        begin: Index,
        inits: Sequence[int],
        body: Callable[[list[Index], list[int]], Sequence[int]],
    ) -> list[int]:
        """The results of a loop over the band's rows from ``begin`` on, some of them at a time.

        There may be rows past the end among them.
        """
        each = BANDS * AT_A_TIME

        def some(t: int, carried: list[int]) -> Sequence[int]:
            first = begin + (Index(self.k, t) * each + self.band)
            return body([first + q * BANDS for q in range(AT_A_TIME)], carried)

        trips = (self.n - begin).ceil_div(each)
        return self.k.loop(self.k.word(0), trips.id, inits, some)[0]

    def _largest(self, begin: Index) -> tuple[Number, Index]:
        """The largest magnitude of the panel's first column, and its row."""
        k = self.k

        def some(rows: list[Index], best: list[int]) -> Sequence[int]:
            sizes = [abs(self._at(r, Index(k, k.word(0)))) for r in rows]
            for r, size in zip(rows, sizes, strict=True):
                best = self._better(best, size, r)
            return best

        largest, row = self._rows(begin, [k.constant(-1.0), begin.id], some)
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
            tie = k.add(ops.logical_and, best.equals(value).id, place.below(row))
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
        k.barrier(results=False)
        self._note(row, pivot, orders)
        later, begin = j.below(self.lane), row + 1

        def kept(swapped: int, r: Index) -> Index:
            """A row to read: none that is swapped, whose numbers are known."""
            other = k.add(ops.word_where, swapped, row.id, self._readable(r, row).id)
            return Index(k, other)

        def some(rows: list[Index], best: list[int]) -> Sequence[int]:
            swapped = [same(r, pivot) for r in rows]
            numbers = [(self._at(r, self.lane), self._at(r, j)) for r in map(kept, swapped, rows)]
            for r, s, (own, first) in zip(rows, swapped, numbers, strict=True):
                value, factor = where(s, old, own), where(s, old_first, first) / divisor
                new = where(later, fused(-factor, upper, value), value)
                changed = k.add(ops.logical_or, later, s)
                inside = self.group.holds(self.exists, changed, r.below(self.n))
                k.when(inside, lambda r=r, x=new: self.work.store(self._place(r, self.lane), x))
                best = self._better(best, abs(new), r)
            return best

        largest, place = self._rows(begin, [k.constant(-1.0), begin.id], some)
        self._publish(j + 1, Number(k, largest), Index(k, place))
        inside = self.group.holds(self.band.below(1), self.exists)
        k.when(inside, lambda: self.work.store(self._place(row, self.lane), upper))
        return [where(same(self.lane, j), divisor, carried[0])]

    def _readable(self, r: Index, other: Index) -> Index:
        """A row, or ``other`` where it or the column is past the end, which others write to."""
        k = self.k
        exists = k.add(ops.logical_and, self.exists, r.below(self.n))
        return Index(k, k.add(ops.word_where, exists, r.id, other.id))

    def _note(self, row: Index, pivot: Index, orders: Sequence[int]) -> None:
        """Write what is known of a swap."""
        k, of_rows = self.k, self.of_rows

        def note() -> None:
            k.store(self.order, (of_rows + pivot).id, orders[1])
            k.store(self.order, (of_rows + row).id, orders[0])
            for i, original in zip((pivot, row), reversed(orders), strict=True):
                k.store(self.inverse, (of_rows + Index(k, original)).id, i.id)
            k.store(self.swaps, (of_rows + row).id, pivot.id)
            sign = where(same(row, pivot), Number(k, k.constant(1.0)), -1.0)
            self.flips.store(of_rows + row, sign)

        k.when(self.group.holds(self.band.below(1), self.lane.below(1)), note)

    def _scale(self, divisor: Number) -> None:
        """Divide the numbers of the lower factor by the pivots of their columns."""
        column = self.first + self.lane
        self.k.barrier()

        def some(rows: list[Index], _: list[int]) -> tuple[()]:
            places = [self._place(r, self.lane) for r in rows]
            values = [self._at(self._readable(r, self.first), self.lane) for r in rows]
            for r, place, value in zip(rows, places, values, strict=True):
                inside = self.group.holds(self.exists, column.below(r), r.below(self.n))
                self.k.when(inside, lambda p=place, x=value: self.work.store(p, x / divisor))
            return ()

        self._rows(self.first + 1, (), some)


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


Results = Mapping[int, Array]
"""The results of a call that are needed, by their numbers."""


@dataclass(frozen=True)
class Factors:
    """LU factors: both of them in one array, which rows they are of, and signs of swaps.

    Row i of the factors is row ``order[i]`` of the matrix, and row i of that is ``inverse[i]``.
    """

    both: Array
    order: Array
    inverse: Array
    flips: Array


class DeviceAlgorithms:
    """The algorithms of a program that a GPU does, with kernels of its own or those of arrays."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.scalars = scheduler, scheduler.scalars
        self._factored: dict[Array, Factors] = {}
        """LU factors of matrices."""

    def steps(self, call: Call, results: Results) -> Iterator[AnyStep] | None:
        """The steps of a call, or None if the host does it."""
        algorithm = ON_DEVICE.get(call.name)
        if algorithm is None or not all(o.size for o in call.operands):
            return None
        return algorithm(self, call, results)

    def _many(self, shape: Sequence[int], body: Callable[[list[int]], int], a: Array) -> _Steps:
        """The steps that compute an array of this shape, by its counters; one of length 1 is 0."""
        counters = [self.scalars.counter(n) for n in shape]
        return self.scheduler.tabulated(a, counters, body(list(map(self.scalars.plus, counters))))

    def _flat(self, counters: Sequence[int], shape: Sequence[int]) -> int:
        """The number of an element in C order."""
        strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
        return self.scalars.plus(*zip(strides, counters, strict=True))

    # Cholesky's factors and triangular systems ----------------------------------------------------

    def cholesky(self, call: Call, results: Results) -> _Steps:
        """The factors of symmetric matrices, panel by panel; NaN of one that is not definite."""
        (matrix,) = call.operands
        n, many = _sizes(matrix)
        factor, rest = Array(shape=matrix.shape), Array(shape=matrix.shape)
        last, blocks = Array(shape=(many,)), -(-n // SIDE)
        for b in range(blocks):
            source = {"matrix": rest if b else matrix}
            written, place = {"factor": factor, "last": last}, {"n": n, "first": b * SIDE}
            words = {**place, "blocks": blocks}
            title = f"panel {b} of {blocks}"
            yield by_groups(cholesky_panel, source, written, many * blocks, title, words)
            tiles = blocks - 1 - b
            if tiles:
                reads = {"factor": factor} | ({} if b else source)
                words = {**place, "depth": SIDE, "tiles": tiles}
                update, written = UpdateProgram(first_time=not b), {"result": rest}
                yield by_groups(update, reads, written, many * tiles**2, f"behind panel {b}", words)

        def element(counters: list[int]) -> int:
            graph, s = self.scalars.graph, self.scalars
            pivot = s.read(last, [self._flat(counters[:-2], matrix.shape[:-2])])
            known, nan = graph.add(ops.eq, pivot, pivot), graph.constant(np.nan)
            return graph.add(ops.where, known, s.read(factor, counters), nan)

        yield from self._many(matrix.shape, element, results[0])

    def solve_triangular(self, call: Call, results: Results) -> _Steps:
        """The solutions of triangular systems."""
        (matrix, right), (lower, trans) = call.operands, call.options
        yield _substitution(SubstitutionProgram(not lower, trans), matrix, right, results[0])

    # LU factors -----------------------------------------------------------------------------------

    def _lu(self, matrix: Array) -> Iterator[AnyStep]:
        """The steps that factor matrices, unless they are factored."""
        if matrix in self._factored:
            return
        n, many = _sizes(matrix)
        work, flips = Array(shape=matrix.shape), Array(shape=(many, n))
        order, inverse, swaps = (Array(shape=(many, n), kind="i") for _ in range(3))
        yield from self._many(matrix.shape, lambda c: self.scalars.read(matrix, c), work)
        for rows in (order, inverse):
            yield from self._many(rows.shape, lambda c: c[1], rows)
        beside = -(-n // SIDE)
        for first in range(0, n, LU_SIDE):
            depth = min(LU_SIDE, n - first)
            words, at = {"n": n, "first": first, "depth": depth}, f"{first} of {n}"
            written = {"work": work, "order": order, "inverse": inverse}
            written |= {"swaps": swaps, "flips": flips}
            yield by_groups(lu_panel, {}, written, many, f"panel at {at}", words)
            reads, sides = {"swaps": swaps}, {**words, "parts": beside}
            if n > depth:
                title = f"rows beside panel at {at}"
                yield by_groups(lu_rows, reads, {"work": work}, many * beside, title, sides)
            tiles = -(-(n - first - depth) // SIDE)
            if tiles:
                update, behind = UpdateProgram(lu=True), {**words, "tiles": tiles}
                title = f"behind panel at {at}"
                yield by_groups(update, {}, {"result": work}, many * tiles**2, title, behind)
        self._factored[matrix] = Factors(work, order, inverse, flips)

    def solve(self, call: Call, results: Results) -> _Steps:
        """The solutions of linear systems, or of those of transposed matrices."""
        (matrix, right), (trans,), s = call.operands, call.options, self.scalars
        swapped = Array(shape=right.shape) if trans else right

        def element(counters: list[int]) -> int:
            *z, i, j = counters
            return s.read(right, [*z, i if trans else self._row(matrix, z, i), j])

        def unswapped(counters: list[int]) -> int:
            *z, i, j = counters
            return s.read(swapped, [*z, self._row(matrix, z, i, inverse=True), j])

        x = swapped if trans else results[0]
        yield from self._solved(matrix, right.shape, element, x, trans)
        if trans:
            yield from self._many(right.shape, unswapped, results[0])

    def inv(self, call: Call, results: Results) -> _Steps:
        """The inverses of matrices."""
        (matrix,) = call.operands

        def element(counters: list[int]) -> int:
            *z, i, j = counters
            graph, s = self.scalars.graph, self.scalars
            apart = s.plus((1, self._row(matrix, z, i)), (-1, j))
            one, zero = graph.constant(1.0), graph.constant(0.0)
            return graph.add(ops.where, graph.add(is_zero, apart), one, zero)

        yield from self._solved(matrix, matrix.shape, element, results[0])

    def _row(self, matrix: Array, batch: Sequence[int], i: int, inverse: bool = False) -> int:
        """The row of a matrix that is number i of its factors, or the other way round."""
        factors = self._factored[matrix]
        rows = factors.inverse if inverse else factors.order
        return self.scalars.read(rows, [self._flat(batch, matrix.shape[:-2]), i])

    def _solved(
        self,
        matrix: Array,
        shape: tuple[int, ...],
        right: Callable[[list[int]], int],
        x: Array,
        trans: bool = False,
    ) -> _Steps:
        """The solutions for right sides whose rows are in the order of the factors, or become so.

        They are NaN where a pivot is 0.
        """
        yield from self._lu(matrix)
        factors, s, graph = self._factored[matrix].both, self.scalars, self.scalars.graph
        least, swapped, half = (
            Array(shape=matrix.shape[:-2]),
            Array(shape=shape),
            Array(shape=shape),
        )

        def smallest(counters: list[int]) -> int:
            i = s.counter(matrix.shape[-1])
            return s.reduction("min", [i], graph.add(ops.abs, s.read(factors, [*counters, i, i])))

        def element(counters: list[int]) -> int:
            pivot = s.read(least, counters[:-2])
            regular = graph.add(ops.lt, graph.constant(0.0), pivot)
            return graph.add(ops.where, regular, right(counters), graph.constant(np.nan))

        yield from self._many(least.shape, smallest, least)
        yield from self._many(shape, element, swapped)
        lower, upper = (
            SubstitutionProgram(unit=True, trans=trans),
            SubstitutionProgram(upper=True, trans=trans),
        )
        first, second = (upper, lower) if trans else (lower, upper)
        yield _substitution(first, factors, swapped, half)
        yield _substitution(second, factors, half, x)

    def det(self, call: Call, results: Results) -> _Steps:
        """Determinants: products of the pivots."""
        return self._over_pivots(call, {0: results[0]}, ("det",))

    def slogdet(self, call: Call, results: Results) -> _Steps:
        """The signs of determinants, and logarithms of their magnitudes."""
        return self._over_pivots(call, results, ("sign", "logarithm"))

    def _over_pivots(self, call: Call, results: Results, names: Sequence[str]) -> _Steps:
        """Products and sums over the pivots of matrices, by name."""
        (matrix,) = call.operands
        yield from self._lu(matrix)
        factors, flips = self._factored[matrix].both, self._factored[matrix].flips
        s, graph = self.scalars, self.scalars.graph

        def over_pivots(counters: list[int], name: str) -> int:
            i = s.counter(matrix.shape[-1])
            pivot = s.read(factors, [*counters, i, i])
            if name == "logarithm":
                return s.reduction("add", [i], graph.add(ops.log, graph.add(ops.abs, pivot)))
            flip = s.read(flips, [self._flat(counters, matrix.shape[:-2]), i])
            factor = pivot if name == "det" else graph.add(ops.sign, pivot)
            return s.reduction("mul", [i], graph.add(ops.mul, flip, factor))

        for number, result in results.items():
            part = functools.partial(over_pivots, name=names[number])
            yield from self._many(result.shape, part, result)


_Steps = Iterator[AnyStep]


def _sizes(matrices: Array) -> tuple[int, int]:
    """The rows of matrices, and how many matrices there are."""
    return matrices.shape[-1], prod(matrices.shape[:-2])


def _substitution(p: SubstitutionProgram, matrix: Array, right: Array, x: Array) -> Step:
    """The step of a substitution."""
    (n, many), columns = _sizes(matrix), right.shape[-1]
    parts = -(-columns // COLUMNS)
    words = {"n": n, "columns": columns, "parts": parts}
    reads, title = {"a": matrix, "right": right}, f"substitution of {n} rows"
    return by_groups(p, reads, {"x": x}, many * parts, title, words)


ON_DEVICE: Final[Mapping[str, Callable[[DeviceAlgorithms, Call, Results], _Steps]]] = {
    "cholesky": DeviceAlgorithms.cholesky,
    "solve_triangular": DeviceAlgorithms.solve_triangular,
    "solve": DeviceAlgorithms.solve,
    "inv": DeviceAlgorithms.inv,
    "slogdet": DeviceAlgorithms.slogdet,
    "det": DeviceAlgorithms.det,
}
"""The algorithms that a GPU does: all else is done by LAPACK on the host."""
