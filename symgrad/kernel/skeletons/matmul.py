"""Products of matrices: a group computes a tile of the result, and what comes after it.

Tiles of both operands pass through the group's memory, transposed so that the reduction's index is
the first; the next ones are loaded while these are multiplied. An invocation has a block of the
result in registers, to which it adds outer products (Volkov and Demmel, 2008, "Benchmarking GPUs to
tune dense linear algebra"). Operands are read as they stand, plain or transposed, in fours where
their rows allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, paused_gc
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.passes.lower import inline
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.tiles import FOUR, Loads, Operand, Share, Tiles

# --- epilogues of sums ----------------------------------------------------------------------------
# Epilogues of sums: a traced function of them, of biases and so on.


@dataclass(frozen=True)
class Epilogue:
    """A computation of each element of a result, whose first input is a sum.

    Its other inputs are buffers with a number for each element, or, ``by_column``, for each column,
    or, ``by_matrix``, for each element of a matrix of a batch, the same for all of these; its
    outputs, of a number each, are buffers too.
    """

    computation: Computation
    by_column: tuple[str, ...] = ()
    by_matrix: tuple[str, ...] = ()


Columns = Sequence[Mapping[str, int]]
"""Values that each of some columns has one of, by the names of the buffers."""


class Written:
    """The epilogue of a kernel: its buffers, and what it writes to them, in ``quads`` or not."""

    def __init__(self, k: KernelIR, epilogue: Epilogue, quads: bool) -> None:
        self.k, self.quads = k, quads
        vector = FOUR if quads else 1
        self.graph, self.outputs = epilogue.computation.graph, epilogue.computation.outputs
        names = self.graph.names[1:]
        self.reads = {n: k.buffer(n, "read", vector=vector) for n in names}
        self.by_column = [n for n in names if n in epilogue.by_column]
        self.by_matrix = [n for n in names if n in epilogue.by_matrix]
        others = {*epilogue.by_column, *epilogue.by_matrix}
        self.by_element = [n for n in names if n not in others]
        self.writes = [k.buffer(o.name, "write", vector=vector) for o in self.outputs]
        nodes = enumerate(self.graph.nodes)
        self.nodes = {self.graph.names[node[1]]: i for i, node in nodes if node[0] is INPUT}

    def columns(self, column: Index, count: Index) -> dict[str, int]:
        """The values of a column, or beyond the last of so many those of the last."""
        at = column.at_most(count - 1)
        return {name: self.k.load(self.reads[name], at.id) for name in self.by_column}

    def columns_of_four(self, four: Index, count: Index) -> list[dict[str, int]]:
        """As `columns`, for each of four columns, by their number among the fours."""
        if not self.quads:
            first = four * FOUR
            return [self.columns(first + c, count) for c in range(FOUR)]
        return [
            {name: self.k.load(self.reads[name], place) for name in self.by_column}
            for place in four.at_most(count // FOUR - 1).lanes(FOUR)
        ]

    def one(self, place: Index, within: Index, total: int, columns: Mapping[str, int]) -> None:
        """Write what is made of a sum to a place, that ``within`` the matrix of a batch."""
        loaded = {n: self.k.load(self.reads[n], place.id) for n in self.by_element}
        loaded |= {n: self.k.load(self.reads[n], within.id) for n in self.by_matrix}
        self._put([place.id], [total], [loaded | dict(columns)])

    def four(self, four: Index, within: Index, totals: Sequence[int], columns: Columns) -> None:
        """As `one`, for four sums, and a four of places."""
        places, inner = four.lanes(FOUR), within.lanes(FOUR)
        loaded = {n: [self.k.load(self.reads[n], p) for p in places] for n in self.by_element}
        loaded |= {n: [self.k.load(self.reads[n], p) for p in inner] for n in self.by_matrix}
        inputs = [{n: loaded[n][c] for n in loaded} | dict(columns[c]) for c in range(FOUR)]
        self._put(places, totals, inputs)

    def _put(
        self, places: Sequence[int], totals: Sequence[int], inputs: Sequence[Mapping[str, int]]
    ) -> None:
        """Write what is made of some sums to places."""
        results = [self._values(t, i) for t, i in zip(totals, inputs, strict=True)]
        for n, buffer in enumerate(self.writes):
            for place, values in zip(places, results, strict=True):
                self.k.store(buffer, place, values[n])

    def _values(self, total: int, inputs: Mapping[str, int]) -> list[int]:
        """The values for all buffers."""
        first = self.graph.names[0]
        arguments = {i: total if n == first else inputs[n] for n, i in self.nodes.items()}
        return inline(self.k, self.graph, [o.nodes[0] for o in self.outputs], arguments)


@dataclass(frozen=True)
class MatmulProgram:
    """The kernel of ``result[z] = epilogue(sum_k a[z, :, k] b[z, k, :])`` of matrices number z.

    Its buffers are ``a`` and ``b``, and those of the epilogue; its arguments are `ARGUMENTS`
    where operands have no digits.
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
        """The target that it is written for."""
        return WorkgroupTarget(self.tiles.width, grid=True)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments."""
        if self.a.digits is None and self.b.digits is None:
            return ARGUMENTS
        return *SHARED, *self.a.arguments("a"), *self.b.arguments("b")

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        return _Matmul(self, target).k


SHARED: Final = "m", "n", "depth", "splits", "turns", "total"
"""The arguments that say nothing of operands."""

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
        self.k = k = KernelIR(target, "matmul")
        self.g = {name: Index(k, k.argument(name)) for name in p.arguments}
        self._place()
        share = Share(self.g, self.first, self.z)
        self.loads = Loads(k, self.tiles, (p.a, p.b), share, p.ragged)
        self.written = Written(k, p.epilogue, p.quads)
        self._write()

    # where ---------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Which tile of which result the group has, which part of the reduction, and who is who."""
        g, t = self.g, self.tiles
        number = Index(self.k, self.k.group)
        if self.p.edges:
            self.exists = number.below(g["total"])
            number = number.at_most(g["total"] - 1)
        across = g["n"].ceil_div(t.columns)
        z, within = divmod(number, across * g["m"].ceil_div(t.rows))
        down, right = divmod(within, across)
        self.first = down * t.rows, right * t.columns
        self.z, self.split = divmod(z, g["splits"])
        self.result = z
        self.y, self.x = self._member()

    def _member(self) -> tuple[Index, Index]:
        """The invocation's row and column in the group.

        In a zigzag, Morton's order, neighbours are below each other as well as beside, so that
        together they read few different numbers.
        """
        t, local = self.tiles, Index(self.k, self.k.local)
        if t.x % 8 or t.y % 4:
            return divmod(local, t.x)
        warp, lane = divmod(local, 32)
        bits = [self._bit(lane, n) for n in range(5)]
        x = bits[0] + bits[2] * 2 + bits[4] * 4
        y = bits[1] + bits[3] * 2
        below, beside = divmod(warp, t.x // 8)
        return (below * 4 + y if t.y > 4 else y), (beside * 8 + x if t.x > 8 else x)

    def _bit(self, a: Index, n: int) -> Index:
        k = self.k
        shifted = k.add(ops.word_shift_right, a.id, k.word(n))
        return Index(k, k.add(ops.word_and, shifted, k.word(1)))

    # products ------------------------------------------------------------------------------------

    def _write(self) -> None:
        k, t = self.k, self.tiles
        begin = self.split * self.g["turns"]
        steps = self.g["depth"].ceil_div(t.depth)
        end = (begin + self.g["turns"]).at_most(steps)
        loaded = self.loads.load(begin.at_most(steps - 1))
        zeros = [k.constant(0.0)] * (t.down * t.across)

        def iteration(i: int, carried: Sequence[int]) -> Sequence[int]:
            sums, values = carried[: len(zeros)], carried[len(zeros) :]
            self.loads.put(values)
            k.barrier()
            following = (Index(k, i) + 1).at_most(steps - 1)
            loads = self.loads.load(following)
            sums = self._products(sums)
            k.barrier()
            return [*sums, *loads]

        totals, _ = k.loop(begin.id, end.id, [*zeros, *loaded], iteration)
        self._results(totals[: len(zeros)])

    def _products(self, sums: Sequence[int]) -> Sequence[int]:
        """The sums and what a tile adds to them."""
        t, totals = self.tiles, list(sums)
        for step in range(t.depth):
            left = self._factors(0, step, self.y, t.y, t.down)
            right = self._factors(1, step, self.x, t.x, t.across)
            for r, a in enumerate(left):
                for c, b in enumerate(right):
                    at = r * t.across + c
                    totals[at] = self.k.add(ops.fma, a, b, totals[at])
        return totals

    def _factors(self, which: int, step: int, own: Index, among: int, many: int) -> list[int]:
        """Factors of an operand that the invocation, one ``among`` so many, needs for a step."""
        rows = [own.shifted(q * among) for q in range(many // FOUR)]
        return [v for row in rows for v in self.loads.fetched(which, step, row)]

    # results -------------------------------------------------------------------------------------

    def _results(self, sums: Sequence[int]) -> None:
        """Writes what the epilogue makes of the sums, where there is a place for it."""
        t, n = self.tiles, self.g["n"]
        first = self.first[1] // FOUR
        fours = [first + (self.x + q * t.x) for q in range(t.across // FOUR)]
        shared = [self.written.columns_of_four(four, n) for four in fours]
        for r in range(t.down):
            row = self._row(r)
            before = self.result * self.g["m"] + row
            for q, four in enumerate(fours):
                start = r * t.across + q * FOUR
                self._four(row, before, four, sums[start : start + FOUR], shared[q])

    def _row(self, r: int) -> Index:
        """The row of the result that is the invocation's row number r."""
        below = self.y + r // FOUR * self.tiles.y
        return self.first[0] + (below * FOUR + r % FOUR)

    def _four(
        self, row: Index, before: Index, four: Index, sums: Sequence[int], shared: Columns
    ) -> None:
        """Four results, or as many of them as there are; so many rows are before theirs."""
        n = self.g["n"]
        conditions = self._inside(row)
        if self.p.quads:
            fours = n // FOUR
            place, within = before * fours + four, row * fours + four
            self._where(
                conditions and [*conditions, four.below(fours)],
                lambda: self.written.four(place, within, sums, shared),
            )
            return
        for c in range(FOUR):
            column = four * FOUR + c
            place, within = before * n + column, row * n + column
            self._where(
                [*conditions, column.below(n)],
                lambda places=(place, within), c=c: self.written.one(*places, sums[c], shared[c]),
            )

    def _inside(self, row: Index) -> list[int]:
        """The condition that a row exists, if it may not."""
        return [self.exists, row.below(self.g["m"])] if self.p.edges else []

    def _where(self, conditions: Sequence[int], body: Callable[[], None]) -> None:
        """Do what is to be done where all conditions hold."""
        if conditions:
            self.k.when(all_hold(self.k, *conditions), body)
        else:
            body()
