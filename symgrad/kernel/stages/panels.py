"""Blocked factorisations and substitutions on a GPU: what a group of invocations does of them.

A matrix of a batch is factored panel by panel, of `SIDE` columns: each group of a panel has a block
of its rows. What is behind the panel is updated by products of tiles (Golub and Van Loan, "Matrix
computations", 4th edition, 2013, chapters 3 and 4). Results are those of substitution: no block is
inverted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from symgrad.arrays.scalars import Array
from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index, Number, Numbers, all_hold, loop, where
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import Program
from symgrad.kernel.stages.programs import chosen_group
from symgrad.kernel.stages.steps import Step

SIDE: Final = 64
"""Rows and columns of a block."""

WIDTH: Final = 256
"""Invocations of a group."""

FOUR: Final = 4
"""Numbers that are read together, and rows and columns of an invocation."""

DEPTH: Final = 16
"""Terms of products that pass through the group's memory together."""

PITCH: Final = SIDE // FOUR + 1
"""Fours from one term to the next in the group's memory: not all in one bank."""

STRIP: Final = 32
"""Columns of a triangular matrix that pass through the group's memory together."""

PILE: Final = SIDE + 1
"""Numbers from one of these columns to the next: not all in one bank."""

COLUMNS: Final = 8
"""Right sides that a group solves for."""

SHARES: Final = 8
"""Parts that the terms of a substitution's products are shared out in."""


def fused(a: Number, b: Number, c: Number) -> Number:
    """a b + c."""
    return Number(a.k, a.k.add(ops.fma, a.id, b.id, c.id))


def same(a: Index, b: Index) -> int:
    """Whether two indices are equal."""
    return a.k.add(ops.word_eq, a.id, b.id)


class Group:
    """A kernel, with its group's number and its arguments, and the invocation's own number."""

    def __init__(self, target: Target, name: str, arguments: Sequence[str]) -> None:
        self.k = k = KernelIR(target, name)
        self.g = {a: Index(k, k.argument(a)) for a in arguments}
        self.number, self.exists = chosen_group(k)
        self.local = Index(k, k.local)

    def holds(self, *conditions: int) -> int:
        """Whether all hold, and the group exists."""
        own = [] if self.exists is None else [self.exists]
        return all_hold(self.k, *own, *conditions)

    def store(self, to: Numbers, at: Index, value: Number, *conditions: int) -> None:
        """Write a number where conditions hold."""
        self.k.when(self.holds(*conditions), lambda: to.store(at, value))


def by_groups(
    program: Program,
    reads: Mapping[str, Array],
    writes: Mapping[str, Array],
    groups: int,
    title: str,
    words: Mapping[str, int],
) -> Step:
    """A dispatch of so many groups of `WIDTH`, whose arguments are the words."""
    target = WorkgroupTarget(WIDTH).in_grid(groups)
    arguments = (*words.items(), *([("total", groups)] if target.grid else []))
    bound = tuple(reads.items()), tuple(writes.items())
    return Step(program, target, *bound, groups * WIDTH, groups, arguments, title)


@paused_gc()
def cholesky_panel(target: Target) -> KernelIR:
    """The kernel of the panel of ``factor`` that begins at column ``first``, by the ``matrix``.

    Each group eliminates the block of the diagonal, and in the same steps one of the ``blocks`` of
    rows; above the diagonal it writes zeros. In ``last`` is the last pivot of each matrix, NaN if
    one was not positive: rows below such a pivot are NaN.
    """
    group = Group(target, "cholesky_panel", ("n", "first", "blocks"))
    k, g = group.k, group.g
    matrix, factor, last = (
        Numbers.of(k, "matrix", "read"),
        Numbers.of(k, "factor", "write"),
        Numbers.of(k, "last", "write"),
    )
    each = SIDE * SIDE // WIDTH
    fours, halves = each // FOUR, 2 * SIDE // FOUR
    rows_at = k.buffer("rows_at", "group", size=2 * 2 * SIDE, vector=FOUR)
    pivots_at = Numbers(k, k.buffer("pivots_at", "group", size=2 * SIDE))
    z, block = divmod(group.number, g["blocks"])
    down, column = divmod(group.local, SIDE)
    own, start = block * SIDE, z * (g["n"] * g["n"])
    rows = [down * each + q for q in range(each)]
    end = g["n"] - 1

    def element(row: Index) -> Number:
        at = row.at_most(end) * g["n"] + (g["first"] + column).at_most(end)
        return matrix[start + at]

    begin = [element(g["first"] + r) for r in rows] + [element(own + r) for r in rows]
    bad = Number(k, k.constant(np.nan))

    def step(j: Index, carried: Sequence[Number]) -> Sequence[Number]:
        values, mine = carried[:-1], carried[-1]
        half = j % 2

        def publish() -> None:
            for q, value in enumerate(values):
                part, at = divmod(q, each)
                four = half * halves + down * fours + (part * (SIDE // FOUR) + at // FOUR)
                k.store(rows_at, four.lanes(FOUR)[at % FOUR], value.id)
            for row, value in zip(rows, values, strict=False):
                pivots_at.store(half * SIDE + row, value)

        k.when(same(column, j), publish)
        k.barrier(results=False)
        candidate = pivots_at[half * SIDE + j]
        pivot = where(candidate.above(0.0), candidate, bad)
        zero = Number(k, k.constant(0.0))
        scale = where(j.below(column), -(pivots_at[half * SIDE + column] / pivot), zero)
        new: list[Number] = []
        for q in range(0, 2 * each, FOUR):
            part, at = divmod(q, each)
            four = half * halves + down * fours + (part * (SIDE // FOUR) + at // FOUR)
            for c, place in enumerate(four.lanes(FOUR)):
                factor_of_row = Number(k, k.load(rows_at, place))
                new.append(fused(factor_of_row, scale, values[q + c]))
        return [*new, where(same(column, j), pivot, mine)]

    count = (g["n"] - g["first"]).at_most(SIDE)
    *values, pivot = loop(k, 0, count, [*begin, 1.0], step)
    root = pivot.sqrt()
    diagonal, above = same(own, g["first"]), own.below(g["first"])
    across = g["first"] + column
    inside = across.below(g["n"])
    for q, r in enumerate(rows):
        low = r.below(column)
        top = where(low, Number(k, k.constant(0.0)), values[q] / root)
        rest = where(above, Number(k, k.constant(0.0)), values[each + q] / root)
        row = own + r
        at = start + (row * g["n"] + across)
        group.store(factor, at, where(diagonal, top, rest), inside, row.below(g["n"]))
    group.store(last, z, root, diagonal, down.below(1), same(column, count - 1))
    return k


@dataclass(frozen=True)
class UpdateProgram:
    """The kernel of ``result -= left right`` behind a panel, a tile for each group.

    Of Cholesky's panel, ``factor`` is the left side and, transposed, the right side, and only tiles
    at the diagonal and below are done; the first time numbers come from a ``matrix``. Of an LU
    ``factor`` both sides are in the result itself: the panel's columns, and its rows.

    The arguments are those of the panel, whose columns are ``depth``, and ``tiles``, those of a
    row.
    """

    first_time: bool = False
    lu: bool = False

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        group = Group(target, "update", ("n", "first", "depth", "tiles"))
        k, g = group.k, group.g
        source = Numbers.of(k, "matrix", "read") if self.first_time else None
        result = Numbers.of(k, "result", "write")
        factor = result if self.lu else Numbers.of(k, "factor", "read")
        left, right = (
            k.buffer(name, "group", size=DEPTH * PITCH * FOUR, vector=FOUR)
            for name in ("left", "right")
        )
        z, tile = divmod(group.number, g["tiles"] * g["tiles"])
        down, across = divmod(tile, g["tiles"])
        y, x = divmod(group.local, SIDE // FOUR)
        n, start = g["n"], z * (g["n"] * g["n"])
        begin = g["first"] + g["depth"]
        row, column = begin + down * SIDE, begin + across * SIDE

        def put_rows(memory: Buffer, first: Index, i: Index) -> None:
            """Numbers of the panel's columns: neighbours are of a row."""
            term = g["first"] + (i * DEPTH + x)
            for q, place in enumerate((x * PITCH + y).lanes(FOUR)):
                r = (first + (y * FOUR + q)).at_most(n - 1)
                k.store(memory, place, factor[start + (r * n + term)].id)

        def put_columns(memory: Buffer, first: Index, i: Index) -> None:
            """Numbers of the panel's rows: neighbours are of a row."""
            term = g["first"] + (i * DEPTH + y)
            for q, place in enumerate((y * PITCH + x).lanes(FOUR)):
                c = (first + (x * FOUR + q)).at_most(n - 1)
                k.store(memory, place, factor[start + (term * n + c)].id)

        def iteration(i: Index, sums: Sequence[Number]) -> Sequence[Number]:
            put_rows(left, row, i)
            (put_columns if self.lu else put_rows)(right, column, i)
            k.barrier(results=False)
            totals = list(sums)
            for t in range(DEPTH):
                a = [Number(k, k.load(left, p)) for p in y.shifted(t * PITCH).lanes(FOUR)]
                b = [Number(k, k.load(right, p)) for p in x.shifted(t * PITCH).lanes(FOUR)]
                totals = [
                    fused(a[r], b[c], totals[r * FOUR + c])
                    for r in range(FOUR)
                    for c in range(FOUR)
                ]
            k.barrier(results=False)
            return totals

        trips = g["depth"] // DEPTH
        wanted = None
        if not self.lu:
            wanted = across.below(down + 1)
            trips = Index(k, k.add(ops.word_where, wanted, trips.id, k.word(0)))
        sums = loop(k, 0, trips, [0.0] * (FOUR * FOUR), iteration)
        for r in range(FOUR):
            for c in range(FOUR):
                i, j = row + (y * FOUR + r), column + (x * FOUR + c)
                at, total = start + (i * n + j), sums[r * FOUR + c]
                conditions = [i.below(n), j.below(n), *([] if wanted is None else [wanted])]

                def store(at: Index = at, total: Number = total) -> None:
                    before = (result if source is None else source)[at]
                    result.store(at, before - total)

                k.when(group.holds(*conditions), store)
        return k


@dataclass(frozen=True)
class SubstitutionProgram:
    """The kernel of x with ``a x = right`` for triangular matrices, `COLUMNS` of x for each group.

    Blocks of rows come one after the other: products with the rows that are known, and the block's
    substitution. An ``upper`` matrix is solved from the end; ``trans`` means the transpose;
    ``unit`` is a diagonal of ones, whatever stands there.

    The arguments are ``n``, the ``columns`` of x, and ``parts``, the groups of a matrix.
    """

    upper: bool = False
    trans: bool = False
    unit: bool = False

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        return _Substitution(self, target).k


class _Substitution:
    """Writes the kernel of a substitution.

    Products are shared out so that an invocation has 4 x 4 numbers and some of the terms; in the
    substitution itself it has two numbers of a row, and four rows are solved for at a time.
    """

    def __init__(self, p: SubstitutionProgram, target: Target) -> None:
        self.p = p
        self.group = group = Group(target, "substitution", ("n", "columns", "parts"))
        self.k, self.n = group.k, group.g["n"]
        k, g = self.k, group.g
        self.a, self.right = Numbers.of(k, "a", "read"), Numbers.of(k, "right", "read")
        self.x = Numbers.of(k, "x", "write")
        self.tile = Numbers(k, k.buffer("tile", "group", size=STRIP * PILE))
        self.known = Numbers(k, k.buffer("known", "group", size=STRIP * COLUMNS))
        self.solved = Numbers(k, k.buffer("solved", "group", size=2 * FOUR * COLUMNS))
        z, part = divmod(group.number, g["parts"])
        self.first = part * COLUMNS
        self.row, self.lane = divmod(group.local, COLUMNS // 2)
        self.lanes = [self.lane + q * (COLUMNS // 2) for q in range(2)]
        self.of_a, self.of_x = z * (self.n * self.n), z * (self.n * g["columns"])
        k.loop(k.word(0), self.n.ceil_div(SIDE).id, (), self._block)

    def _place(self, i: Index) -> Index:
        """The row that is number i in the order of substitution; past the end it is the last."""
        i = i.at_most(self.n - 1)
        return self.n - 1 - i if self.p.upper != self.p.trans else i

    def _at(self, numbers: Numbers, i: Index, lane: Index) -> Number:
        """The number of a right side of the group, in row i of the order of substitution."""
        columns = self.group.g["columns"]
        at = self._place(i) * columns + (self.first + lane).at_most(columns - 1)
        return numbers[self.of_x + at]

    def _strip(self, first: Index, start: Index) -> list[Number]:
        """The invocation's numbers of the columns from ``start`` on of rows from ``first`` on."""
        local, numbers = self.group.local, list[Number]()
        for q in range(STRIP * SIDE // WIDTH):
            row, column = self._member(local, q)
            i, j = self._place(first + row), self._place(start + column)
            at = j * self.n + i if self.p.trans else i * self.n + j
            numbers.append(self.a[self.of_a + at])
        return numbers

    def _member(self, local: Index, q: int) -> tuple[Index, Index]:
        """The row and the column in a strip of an invocation's number q: neighbours in memory."""
        if self.p.trans:
            column, row = divmod(local, SIDE)
            return row, column + q * (WIDTH // SIDE)
        row, column = divmod(local, STRIP)
        return row + q * (WIDTH // STRIP), column

    def _put(self, numbers: Sequence[Number]) -> None:
        for q, number in enumerate(numbers):
            row, column = self._member(self.group.local, q)
            self.tile.store(column * PILE + row, number)

    def _block(self, number: int, _: object) -> tuple[()]:
        """Solve for the rows of a block."""
        k, b = self.k, Index(self.k, number)
        first = b * SIDE
        sums = [self._at(self.right, first + self.row, lane) for lane in self.lanes]
        sums = self._less_known(b, first, sums)
        for h in range(SIDE // STRIP):
            self._put(self._strip(first, first + h * STRIP))
            k.barrier(results=False)
            sums = self._substituted(h, sums)
            k.barrier(results=False)
        for lane, x in zip(self.lanes, sums, strict=True):
            self._store(first + self.row, lane, x)
        k.barrier()
        return ()

    def _store(self, i: Index, lane: Index, x: Number) -> None:
        """Write the solution of row i in the order of substitution, if there is one."""
        columns, column = self.group.g["columns"], self.first + lane
        place = self.of_x + (self._place(i) * columns + column)
        self.group.store(self.x, place, x, i.below(self.n), column.below(columns))

    def _less_known(self, b: Index, first: Index, sums: list[Number]) -> list[Number]:
        """The right sides without what the rows before the block add; the next strip is loaded."""
        k, strips, local = self.k, b * (SIDE // STRIP), self.group.local
        row, lane = divmod(local, COLUMNS)
        some_terms, own = divmod(local, WIDTH // SHARES)
        x, y = divmod(own, SIDE // FOUR)

        def loaded(s: Index) -> list[Number]:
            start = s * STRIP
            return [*self._strip(first, start), self._at(self.x, start + row, lane)]

        def strip(s: Index, carried: Sequence[Number]) -> Sequence[Number]:
            totals, numbers = list(carried[: FOUR * FOUR]), carried[FOUR * FOUR :]
            self._put(numbers[:-1])
            self.known.store(local, numbers[-1])
            k.barrier(results=False)
            following = loaded((s + 1).at_most(strips - 1))
            for t in range(STRIP // SHARES):
                term = some_terms * (STRIP // SHARES) + t
                left = [self.tile[term * PILE + (y + q * (SIDE // FOUR))] for q in range(FOUR)]
                right = [self.known[term * COLUMNS + (x * FOUR + q)] for q in range(FOUR)]
                pairs = zip([(u, v) for u in left for v in right], totals, strict=True)
                totals = [fused(u, v, total) for (u, v), total in pairs]
            k.barrier(results=False)
            return [*totals, *following]

        def products() -> Sequence[int]:
            zero = Index(k, k.word(0))
            totals = loop(k, zero, strips, [*[0.0] * FOUR * FOUR, *loaded(zero)], strip)
            pairs = zip(sums, range(2), strict=True)
            return [(total - self._shared(totals, x, y, some_terms, h)).id for total, h in pairs]

        is_some = k.add(ops.word_lt, k.word(0), b.id)
        return [Number(k, i) for i in k.choose(is_some, products, lambda: [s.id for s in sums])]

    def _shared(
        self, totals: Sequence[Number], x: Index, y: Index, share: Index, half: int
    ) -> Number:
        """The invocation's number of a half of the columns, of what shares of the terms add."""
        k, local = self.k, self.group.local

        def put() -> None:
            for q in range(FOUR):
                for c in range(FOUR):
                    at = share * WIDTH + ((y + q * (SIDE // FOUR)) * FOUR + c)
                    self.tile.store(at, totals[q * FOUR + c])

        k.when(same(x, Index(k, k.word(half))), put)
        k.barrier(results=False)
        numbers = [self.tile[local + n * WIDTH] for n in range(SHARES)]
        k.barrier(results=False)
        total, *others = numbers
        for number in others:
            total = total + number
        return total

    def _substituted(self, h: int, sums: Sequence[Number]) -> list[Number]:
        """The right sides without what a strip of the block adds; its own rows are solved for."""
        k, tile = self.k, self.tile
        four, within = divmod(self.row, FOUR)

        def step(j: Index, totals: Sequence[Number]) -> Sequence[Number]:
            now, columns = j + h * (STRIP // FOUR), [(j * FOUR + q) * PILE for q in range(FOUR)]
            own, start = same(four, now), j % 2 * (FOUR * COLUMNS)

            def publish() -> None:
                for lane, total in zip(self.lanes, totals, strict=True):
                    self.solved.store(start + (within * COLUMNS + lane), total)

            k.when(own, publish)
            k.barrier(results=False)
            corner = [[tile[c + (now * FOUR + p)] for p in range(FOUR)] for c in columns]
            beside = [tile[c + self.row] for c in columns]
            later, new = now.below(four), list[Number]()
            for lane, total in zip(self.lanes, totals, strict=True):
                right = [self.solved[start + (lane + p * COLUMNS)] for p in range(FOUR)]
                solved = self._solved(corner, right)
                mine = solved[-1]
                for q, x in enumerate(solved[:-1]):
                    mine = where(same(within, Index(k, k.word(q))), x, mine)
                below = total
                for factor, x in zip(beside, solved, strict=True):
                    below = fused(factor, -x, below)
                new.append(where(later, below, where(own, mine, total)))
            return new

        return loop(k, 0, STRIP // FOUR, sums, step)

    def _solved(self, corner: Sequence[Sequence[Number]], right: Sequence[Number]) -> list[Number]:
        """The solutions of four rows, by the columns of their block of the diagonal."""
        rest, solved = list(right), list[Number]()
        for q, column in enumerate(corner):
            x = rest[q] if self.p.unit else rest[q] / column[q]
            rest = [fused(a, -x, r) for a, r in zip(column, rest, strict=True)]
            solved.append(x)
        return solved
