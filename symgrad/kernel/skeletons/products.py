"""Sums over rows of all products of a row's numbers with each other, by a thread group.

A row has the numbers of one residual, or of several, which then count as rows. Those of
`ROWS_PER_TILE` rows go to the quads of a tile. Then products are added up in blocks of `SIDE` by
`SIDE`, of which those of the lower half are all there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import ThreadGroup
from symgrad.kernel.skeletons.solve import half, place

ROWS_PER_TILE: Final = 64
"""Rows that are worked on at a time."""

QUADS_PER_FOUR: Final = ROWS_PER_TILE + 1
"""Quads of the tile for each four numbers of a row: the odd one keeps reads in different banks."""

SIDE: Final = 4
"""Rows and columns of a block of products: a quad."""

ROWS_PER_PRODUCT_SUM: Final = 16
"""Rows whose products are added up before their sum is added to others."""

ROWS_UNROLLED: Final = 4
"""Rows of a block that stand there without a loop."""


@dataclass(frozen=True)
class Residuals:
    """Residuals of rows that are computed together: ``of(row)`` has n + 1 numbers for each."""

    count: int
    of: Callable[[int], Sequence[Sequence[int]]]


Place = tuple[int, int]
"""The row and the column of a block: how many are above it, and before it."""


def quads(n: int) -> int:
    """The quads of a row of n + 1 numbers."""
    return -(-(n + 1) // SIDE)


def blocks(n: int) -> int:
    """The blocks of products of the lower half."""
    return quads(n) * (quads(n) + 1) // 2


def shares(n: int, threads: int) -> int:
    """How many of a thread group share the rows of a block: a power of 2, 4 at most."""
    return max(k for k in (1, 2, 4) if k == 1 or k * blocks(n) <= threads)


def tile_numbers(n: int) -> int:
    """The numbers of the tile."""
    return SIDE * quads(n) * QUADS_PER_FOUR


def rows_per_tile(residuals: Iterable[int]) -> int:
    """The rows of a tile, of which so many residuals are computed together in each part."""
    return ROWS_PER_TILE // max(residuals)


def products_of(threads: ThreadGroup, n: int, tile: Buffer, sums: Buffer) -> Products:
    """Adds up the products of rows of n + 1 numbers, in the way that suits a thread group."""
    enough = blocks(n) <= threads.size
    return (Carried if enough else InMemory)(threads, n, tile, sums)


class Products:
    """The lower half of the matrix of sums of products, n + 1 by n + 1, which goes to ``sums``."""

    def __init__(self, threads: ThreadGroup, n: int, tile: Buffer, sums: Buffer) -> None:
        self.threads, self.k, self.n = threads, threads.k, n
        self.tile, self.sums = tile, sums

    def add_up(self, rows: int, parts: Sequence[Residuals], weight: float) -> None:
        """Write the sums, times their weight, over so many rows, of which each has all parts."""
        k = self.k
        self.threads.share(k.word(half(self.n + 1)), self._clear)
        count, most = Index(k, rows), rows_per_tile(part.count for part in parts)
        tiles = count.ceil_div(most)

        def tile(t: int, totals: list[int]) -> list[int]:
            start = Index(k, t) * most
            end = (count - start).at_most(most)
            self._call("total", totals)
            for residuals in parts:
                self._fill(start, end, residuals)
                self.threads.wait()
                totals = self._added(totals, end * residuals.count)
                self.threads.wait()
            return totals

        totals, _ = k.loop(k.word(0), tiles.id, self._first(), tile)
        self._finish(totals, weight)

    def _clear(self, i: int) -> None:
        self.k.store(self.sums, i, self.k.constant(0.0))

    def _first(self) -> list[int]:
        """The first values of what is carried from tile to tile."""
        raise NotImplementedError

    def _added(self, totals: Sequence[int], end: Index) -> list[int]:
        """Add the tile's products; what is carried to the next."""
        raise NotImplementedError

    def _finish(self, totals: Sequence[int], weight: float) -> None:
        """Write the sums."""
        raise NotImplementedError

    def _fill(self, start: Index, end: Index, residuals: Residuals) -> None:
        """Rows' numbers, and zeros behind the last row up to whole groups of `ROWS_UNROLLED`."""
        k, zero, count = self.k, self.k.constant(0.0), residuals.count
        size = SIDE * quads(self.n)

        def row(i: int) -> None:
            for r, values in enumerate(residuals.of((start + Index(k, i)).id)):
                slot = Index(k, i) * count + r
                self._put(slot.id, [*values, *[zero] * (size - len(values))])

        self.threads.share(end.id, row)
        filled = end * count
        missing = filled.ceil_div(ROWS_UNROLLED) * ROWS_UNROLLED - filled
        zeros = [zero] * size
        self.threads.share(missing.id, lambda i: self._put((filled + Index(k, i)).id, zeros))

    def _put(self, slot: int, values: Sequence[int]) -> None:
        k = self.k
        for c, value in enumerate(values):
            quad = Index(k, slot) + c // SIDE * QUADS_PER_FOUR
            k.store(self.tile, k.offset(quad.id, SIDE, c % SIDE), value)

    def _summed(self, block: Place, end: Index, share: Index, shared: int) -> list[int]:
        """The sums of a block's products over a share of the tile's rows."""
        k = self.k
        down, across = (Index(k, i) * QUADS_PER_FOUR for i in block)
        k.names |= {down.id: "left", across.id: "right"}
        step = ROWS_PER_PRODUCT_SUM * shared
        skipped = share * ROWS_PER_PRODUCT_SUM
        more = end + (step - 1) - skipped
        works = share.below(shared)
        iterations = k.add(ops.word_where, works, (more // step).id, k.word(0))
        zeros = [k.constant(0.0)] * SIDE**2

        def some(t: int, sums: list[int]) -> list[int]:
            self._call("sum", sums)
            first = skipped + Index(k, t) * step
            left = (end - first).at_most(ROWS_PER_PRODUCT_SUM)
            fours = left.ceil_div(ROWS_UNROLLED)

            def four(u: int, sums: list[int]) -> list[int]:
                self._call("part", sums)
                row = first + Index(k, u) * ROWS_UNROLLED
                for r in range(ROWS_UNROLLED):
                    sums = self._multiplied(down, across, row + r, sums)
                return sums

            parts, _ = k.loop(k.word(0), fours.id, zeros, four)
            return [k.add(ops.add, a, b) for a, b in zip(sums, parts, strict=True)]

        return k.loop(k.word(0), iterations, zeros, some)[0]

    def _call(self, name: str, values: Sequence[int]) -> None:
        """Give values a name, and numbers."""
        self.k.names |= {v: f"{name}{c}" for c, v in enumerate(values)}

    def _multiplied(self, left: Index, right: Index, row: Index, sums: Sequence[int]) -> list[int]:
        """Sums, with the products of a row of the tile."""
        k = self.k
        factors = [
            [k.load(self.tile, number) for number in (side + row).lanes(SIDE)]
            for side in (left, right)
        ]
        return [
            k.add(ops.add, total, k.add(ops.mul, a, b))
            for total, (a, b) in zip(sums, product(*factors), strict=True)
        ]

    def _write(self, block: Place, values: Sequence[int], weight: float) -> None:
        """Add the sums of a block to what is there: some are not of the lower half."""
        k = self.k
        for (i, j), value in zip(product(range(SIDE), repeat=2), values, strict=True):
            row, column = (k.offset(b, SIDE, c) for b, c in zip(block, (i, j), strict=True))
            inside = Index(k, row).below(self.n + 1)
            lower = Index(k, column).below(Index(k, row) + 1)
            weighted = value if weight == 1.0 else k.add(ops.mul, value, k.constant(weight))
            k.when(
                k.add(ops.logical_and, inside, lower),
                lambda r=row, c=column, v=weighted: k.store(
                    self.sums, place(Index(k, r), Index(k, c)).id, v, add=True
                ),
            )


class Carried(Products):
    """Each of a thread group has a block, or shares one; its sums are carried from tile to tile."""

    def __init__(self, threads: ThreadGroup, n: int, tile: Buffer, sums: Buffer) -> None:
        super().__init__(threads, n, tile, sums)
        k, member = self.k, Index(self.k, threads.member)
        self.shared = shares(n, threads.size)
        self.share, number = divmod(member, blocks(n))
        self.block = self._place(number.id)
        k.names |= {self.block[0]: "down", self.block[1]: "across"}
        if blocks(n) > 1:
            k.names[self.share.id] = "share"

    def _place(self, number: int) -> Place:
        """The block of this number, row by row."""
        k = self.k

        def next_row(_: int, carries: list[int]) -> list[int]:
            down, across = carries
            over, below = Index(k, down).below(Index(k, across)), Index(k, down) + 1
            rest = Index(k, across) - below
            sides = (below.id, down), (rest.id, across)
            return [k.add(ops.word_where, over, a, b) for a, b in sides]

        (down, across), _ = k.loop(k.word(0), k.word(quads(self.n)), [k.word(0), number], next_row)
        return down, across

    def _first(self) -> list[int]:
        return [*self.k.target.wide_zero(self.k)] * SIDE**2

    def _added(self, totals: Sequence[int], end: Index) -> list[int]:
        k, sums = self.k, self._summed(self.block, end, self.share, self.shared)
        parts = zip(k.target.grouped(totals), sums, strict=True)
        return [p for total, x in parts for p in k.target.wide_add(k, total, x)]

    def _finish(self, totals: Sequence[int], weight: float) -> None:
        """Invocations that share a block add one after the other."""
        k = self.k
        values = [k.target.narrow(k, total) for total in k.target.grouped(totals)]

        def iteration(t: int, _: object) -> tuple[()]:
            mine = Index(k, k.add(ops.word_xor, self.share.id, t)).below(1)
            k.when(mine, lambda: self._write(self.block, values, weight))
            self.threads.wait()
            return ()

        k.loop(k.word(0), k.word(self.shared), (), iteration)


class InMemory(Products):
    """One does all blocks, whose sums are in memory."""

    def __init__(self, threads: ThreadGroup, n: int, tile: Buffer, sums: Buffer) -> None:
        super().__init__(threads, n, tile, sums)
        assert threads.alone, f"there are {blocks(n)} blocks for a team of {threads.size}"
        size = SIDE**2 * blocks(n)
        self.wide = [
            threads.array(f"part{c}", size, kind) for c, kind in enumerate(self.k.target.wide)
        ]

    def _first(self) -> list[int]:
        for buffer in self.wide:
            self.k.fill(buffer)
        return []

    def _added(self, totals: Sequence[int], end: Index) -> list[int]:
        k = self.k

        def add(block: Place, at: list[int]) -> None:
            sums = self._summed(block, end, Index(k, k.word(0)), 1)
            for i, x in zip(at, sums, strict=True):
                parts = k.target.wide_add(k, self._total(i), x)
                for buffer, part in zip(self.wide, parts, strict=True):
                    k.store(buffer, i, part)

        self._each(add)
        return []

    def _finish(self, totals: Sequence[int], weight: float) -> None:
        k = self.k
        self._each(
            lambda block, at: self._write(
                block, [k.target.narrow(k, self._total(i)) for i in at], weight
            )
        )

    def _total(self, i: int) -> tuple[int, ...]:
        return tuple(self.k.load(buffer, i) for buffer in self.wide)

    def _each(self, body: Callable[[Place, list[int]], None]) -> None:
        """All blocks, with the places of their sums."""
        k = self.k

        def row(down: int, _: object) -> tuple[()]:
            def block(across: int, _: object) -> tuple[()]:
                number = place(Index(k, down), Index(k, across)).id
                body((down, across), [k.offset(number, SIDE**2, c) for c in range(SIDE**2)])
                return ()

            k.loop(k.word(0), (Index(k, down) + 1).id, (), block)
            return ()

        k.loop(k.word(0), k.word(quads(self.n)), (), row)
