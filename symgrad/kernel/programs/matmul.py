"""Products of matrices: a group computes a tile of the result, and what comes after it.

Tiles of both operands pass through the group's memory, turned so that the reduction's index is the
first; the next ones are loaded while these are multiplied. Operands are read as they stand, plain
or transposed, in fours where their rows allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.programs.epilogue import Epilogue, Written
from symgrad.kernel.programs.tiles import FOUR, Loads, Operand, Tiles
from symgrad.kernel.statements import Buffer
from symgrad.kernel.target import InGroups
from symgrad.kernel.words import Words


@dataclass(frozen=True)
class MatmulProgram:
    """The kernel of ``result[z] = epilogue(sum_k a[z, :, k] b[z, k, :])`` of matrices number z.

    Its buffers are ``a`` and ``b``, and those of the epilogue; its arguments are `ARGUMENTS`.
    Where the reduction is not a multiple of the depth it is ``ragged``; where the result is not one
    of whole tiles, ``edges`` are guarded. Results stand in ``quads`` where their rows do.
    """

    tiles: Tiles
    a: Operand
    b: Operand
    epilogue: Epilogue
    ragged: bool = True
    edges: bool = True
    quads: bool = False

    @property
    def target(self) -> Target:
        """What it is written for."""
        return InGroups(self.tiles.width, grid=True)

    @paused_gc()
    def __call__(self, target: Target) -> Kernel:
        """The kernel."""
        return _Matmul(self, target).k


ARGUMENTS: Final = (
    "m", "n", "depth", "a_row", "b_row", "a_size", "b_size", "a_each", "a_count", "b_each",
    "b_count", "splits", "turns", "total",
)  # fmt: skip
"""The result's rows and columns, and the length of the reduction; from a row of an operand to the
next, and from a matrix to the next, in fours where the operand stands in them; the result number z
is made of matrix ``z / each % count``; in how many parts the reduction is done, each of so many
steps of a tile's depth; and the number of groups."""


class _Matmul:
    def __init__(self, p: MatmulProgram, target: Target) -> None:
        self.p, self.tiles = p, p.tiles
        self.k = k = Kernel(target, "matmul")
        self.w = Words(k)
        self.g = {name: k.argument(name) for name in ARGUMENTS}
        self._place()
        place = self.first, self.z
        self.loads = Loads(k, self.tiles, (p.a, p.b), p.ragged, self.g, *place)
        self.written = Written(k, p.epilogue, p.quads)
        self._write()

    # where ---------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Which tile of which result the group has, which part of the reduction, and who is who."""
        w, g, t = self.w, self.g, self.tiles
        number = self.k.group
        if self.p.edges:
            self.exists = w.below(number, g["total"])
            number = w.least(number, w.last(g["total"]))
        across = w.ceiling(g["n"], w.number(t.columns))
        z, within = w.parts(number, w.times(across, w.ceiling(g["m"], w.number(t.rows))))
        down, right = w.parts(within, across)
        self.first = w.times(down, w.number(t.rows)), w.times(right, w.number(t.columns))
        self.z, self.split = w.parts(z, g["splits"])
        self.result = z
        self.y, self.x = self._member()

    def _member(self) -> tuple[int, int]:
        """The invocation's row and column in the group.

        In a zigzag, neighbours are below each other as well as beside, so that together they read
        few different numbers.
        """
        w, t, local = self.w, self.tiles, self.k.local
        if t.x % 8 or t.y % 4:
            return w.parts(local, w.number(t.x))
        warp, lane = w.parts(local, w.number(32))
        bits = [self._bit(lane, n) for n in range(5)]
        x = w.plus(w.plus(bits[0], w.times(bits[2], w.number(2))), w.times(bits[4], w.number(4)))
        y = w.plus(bits[1], w.times(bits[3], w.number(2)))
        below, beside = w.parts(warp, w.number(t.x // 8))
        eight, four = w.number(8), w.number(4)
        return w.plus(w.times(below, four), y), w.plus(w.times(beside, eight), x)

    def _bit(self, a: int, n: int) -> int:
        k = self.k
        return k.add(ops.word_and, k.add(ops.word_shift_right, a, k.word(n)), k.word(1))

    # products ------------------------------------------------------------------------------------

    def _write(self) -> None:
        k, w, t = self.k, self.w, self.tiles
        begin = w.times(self.split, self.g["turns"])
        steps = w.ceiling(self.g["depth"], w.number(t.depth))
        end = w.least(w.plus(begin, self.g["turns"]), steps)
        loaded = self.loads.load(w.least(begin, w.last(steps)))
        zeros = [k.constant(0.0)] * (t.down * t.across)

        def turn(i: int, carried: Sequence[int]) -> Sequence[int]:
            sums, values = carried[: len(zeros)], carried[len(zeros) :]
            self.loads.put(values)
            k.barrier()
            following = w.least(w.plus(i, w.number(1)), w.last(steps))
            loads = self.loads.load(following)
            sums = self._products(sums)
            k.barrier()
            return [*sums, *loads]

        found, _ = k.loop(begin, end, [*zeros, *loaded], turn)
        self._results(found[: len(zeros)])

    def _products(self, sums: Sequence[int]) -> Sequence[int]:
        """The sums and what a tile adds to them."""
        t, found = self.tiles, list(sums)
        for step in range(t.depth):
            left = self._factors(0, step, self.y, t.y, t.down)
            right = self._factors(1, step, self.x, t.x, t.across)
            for r, a in enumerate(left):
                for c, b in enumerate(right):
                    at = r * t.across + c
                    found[at] = self.k.add(ops.fma, a, b, found[at])
        return found

    def _factors(self, which: int, step: int, own: int, among: int, many: int) -> list[int]:
        """What the invocation, one ``among`` so many, needs of an operand for a step."""
        rows = [self.k.shifted(own, q * among) for q in range(many // FOUR)]
        return [v for row in rows for v in self.loads.fetched(which, step, row)]

    # results -------------------------------------------------------------------------------------

    def _results(self, sums: Sequence[int]) -> None:
        """What the epilogue makes of the sums, where there is a place for it."""
        w, t, n = self.w, self.tiles, self.g["n"]
        first = w.over(self.first[1], w.number(FOUR))
        fours = [w.plus(first, w.plus(self.x, w.number(q * t.x))) for q in range(t.across // FOUR)]
        shared = [self.written.columns_of_four(four, n) for four in fours]
        columns = [[self.k.constant(0.0)] * FOUR for _ in fours]
        for r in range(t.down):
            row = self._row(r)
            before = w.plus(w.times(self.result, self.g["m"]), row)
            for q, four in enumerate(fours):
                start = r * t.across + q * FOUR
                made = self._four(row, before, four, sums[start : start + FOUR], shared[q])
                if made:
                    columns[q] = [
                        self.k.add(ops.add, a, b) for a, b in zip(columns[q], made, strict=True)
                    ]
        if self.written.summed:
            self._sum_columns(columns)

    def _sum_columns(self, columns: Sequence[Sequence[int]]) -> None:
        """Write the sums of the tile's columns, of which the invocation has some rows' share."""
        k, w, t = self.k, self.w, self.tiles
        sums = k.buffer("sums", "write", vector=FOUR if self.p.quads else 1)
        shared = k.buffer("shares", "group", size=t.y * t.columns, vector=FOUR)
        fours = w.number(t.columns // FOUR)
        for q, values in enumerate(columns):
            four = k.shifted(w.plus(w.times(self.y, fours), self.x), q * t.x)
            for c, value in enumerate(values):
                k.store(shared, k.offset(four, FOUR, c), value)
        k.barrier()
        mine = w.least(k.local, w.last(fours))

        def add(y: int, totals: Sequence[int]) -> Sequence[int]:
            four = w.plus(w.times(y, fours), mine)
            found = [k.load(shared, k.offset(four, FOUR, c)) for c in range(FOUR)]
            return [k.add(ops.add, a, b) for a, b in zip(totals, found, strict=True)]

        totals, _ = k.loop(w.number(0), w.number(t.y), [k.constant(0.0)] * FOUR, add)
        down = w.over(self.first[0], w.number(t.rows))
        tiles = w.ceiling(self.g["m"], w.number(t.rows))
        row = w.plus(w.times(self.result, tiles), down)
        four = w.plus(w.over(self.first[1], w.number(FOUR)), mine)
        first = w.below(k.local, fours)
        inside = [first, self.exists] if self.p.edges else [first]
        self._store_sums(sums, row, four, totals, inside)

    def _store_sums(
        self, sums: Buffer, row: int, four: int, totals: Sequence[int], inside: Sequence[int]
    ) -> None:
        """Write the sums of four columns, or of as many as there are."""
        k, w, n = self.k, self.w, self.g["n"]
        if self.p.quads:
            fours = w.over(n, w.number(FOUR))
            place = w.plus(w.times(row, fours), four)

            def put() -> None:
                for c, total in enumerate(totals):
                    k.store(sums, k.offset(place, FOUR, c), total)

            k.when(self._all([*inside, w.below(four, fours)]), put)
            return
        for c, total in enumerate(totals):
            column = w.plus(w.times(four, w.number(FOUR)), w.number(c))
            place = w.plus(w.times(row, n), column)
            k.when(
                self._all([*inside, w.below(column, n)]),
                lambda place=place, total=total: k.store(sums, place, total),
            )

    def _row(self, r: int) -> int:
        """The row of the result that is the invocation's row number r."""
        w = self.w
        below = w.plus(self.y, w.number(r // FOUR * self.tiles.y))
        return w.plus(self.first[0], w.plus(w.times(below, w.number(FOUR)), w.number(r % FOUR)))

    def _four(
        self, row: int, before: int, four: int, sums: Sequence[int],
        shared: Sequence[dict[str, int]],
    ) -> list[int]:  # fmt: skip
        """Four results, or as many of them as there are; so many rows are before theirs.

        What is to be summed of them.
        """
        w, n = self.w, self.g["n"]
        here = self._inside(row)
        if self.p.quads:
            fours = w.over(n, w.number(FOUR))
            place = w.plus(w.times(before, fours), four)
            return self._where(
                here and [*here, w.below(four, fours)],
                lambda: self.written.four(place, sums, shared),
            )
        found: list[int] = []
        for c in range(FOUR):
            column = w.plus(w.times(four, w.number(FOUR)), w.number(c))
            place = w.plus(w.times(before, n), column)
            found += self._where(
                [*here, w.below(column, n)],
                lambda place=place, c=c: self.written.one(place, sums[c], shared[c]),
            )
        return found

    def _inside(self, row: int) -> list[int]:
        """What says that a row is there, if it may not be."""
        return [self.exists, self.w.below(row, self.g["m"])] if self.p.edges else []

    def _where(self, conditions: Sequence[int], body: Callable[[], list[int]]) -> list[int]:
        """Do what is to be done where all conditions hold; what that gives, or zeros."""
        if not conditions:
            return body()
        many = 0 if not self.written.summed else FOUR if self.p.quads else 1
        zeros = [self.k.constant(0.0)] * many
        return self.k.choose(self._all(conditions), body, lambda: zeros)

    def _all(self, conditions: Sequence[int]) -> int:
        """Whether all hold."""
        return reduce(lambda a, b: self.k.add(ops.logical_and, a, b), conditions)
