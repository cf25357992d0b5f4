"""Tiles of matrices: how work is shared out, and the way of operands to a group's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.kernel.language import Kernel
from symgrad.kernel.words import Words

FOUR: Final = 4
"""Numbers that are read, and written, together."""

MEMORY: Final = 16_384
"""Bytes of memory that a group has on every device."""

WIDEST: Final = 256
"""Invocations that a group has at most on every device."""


@dataclass(frozen=True)
class Tiles:
    """How the work is shared out: a group has ``rows`` x ``columns`` numbers of the result.

    An invocation has ``down`` x ``across`` of them, multiples of 4. The reduction goes in steps of
    ``depth``, a multiple of 4, and ``unrolled`` of it are written out.
    """

    rows: int = 128
    columns: int = 128
    depth: int = 16
    down: int = 8
    across: int = 8
    unrolled: int = 16
    zigzag: bool = True

    def __post_init__(self) -> None:
        assert self.nbytes <= MEMORY, f"{self.nbytes:,} bytes are more than a group has"
        assert self.width <= WIDEST, f"{self.width} invocations are more than a group has"

    @property
    def y(self) -> int:
        """Invocations of a column."""
        return self.rows // self.down

    @property
    def x(self) -> int:
        """Invocations of a row."""
        return self.columns // self.across

    @property
    def width(self) -> int:
        """The invocations of a group."""
        return self.x * self.y

    @property
    def nbytes(self) -> int:
        """The bytes of the group's memory in float32."""
        return 4 * self.depth * (self.rows + self.columns)


@dataclass(frozen=True)
class Operand:
    """How an operand stands in memory.

    Neighbours are numbers ``along`` the reduction, or else those of one of its steps; in ``quads``,
    what stands in a row is a multiple of 4 numbers.
    """

    along: bool
    quads: bool


class _Block(NamedTuple):
    """Four by four numbers of an operand that an invocation moves.

    ``starts`` are where its rows begin, if these are along the reduction, or else the one column;
    ``step`` is its first step of the reduction within a tile; ``put`` the fours in the group's
    memory where its steps go.
    """

    which: int
    starts: tuple[int, ...]
    step: int
    put: tuple[int, ...]


class Loads:
    """Moves tiles of both operands of a product to the group's memory, steps of it behind steps.

    A block of four rows and four steps goes through registers, and is turned there if neighbours
    are along the reduction. ``arguments`` are those of the kernel, ``first`` the first row and
    column of the group's tile of the result, which is number ``z``.
    """

    def __init__(
        self, k: Kernel, tiles: Tiles, operands: tuple[Operand, Operand], ragged: bool,
        arguments: Mapping[str, int], first: tuple[int, int], z: int,
    ) -> None:  # fmt: skip
        self.k, self.w, self.tiles, self.operands = k, Words(k), tiles, operands
        self.ragged, self.g, self.first, self.z = ragged, arguments, first, z
        self.buffers = [
            k.buffer(n, "read", vector=FOUR if o.quads else 1)
            for n, o in zip("ab", operands, strict=True)
        ]
        size = tiles.depth * (tiles.rows + tiles.columns)
        self.tile = k.buffer("tile", "group", size=size, vector=FOUR)
        self.blocks = self._blocks()

    def _counts(self) -> tuple[int, int]:
        """The blocks of a tile of each operand."""
        t = self.tiles
        return t.rows * t.depth // 16, t.columns * t.depth // 16

    def _blocks(self) -> list[list[_Block]]:
        """The blocks that the invocation moves: of either operand, one for each turn.

        Where a turn is for blocks of both, some invocations have this and some that.
        """
        ends = self._counts()[0], sum(self._counts())
        width, found = self.tiles.width, list[list[_Block]]()
        for start in range(0, ends[1], width):
            here: list[_Block] = []
            number = self.w.plus(self.k.local, self.w.number(start))
            if start < ends[0]:
                here.append(self._block(0, self.w.least(number, self.w.number(ends[0] - 1))))
            if start + width > ends[0]:
                rest = self.w.minus(number, self.w.number(ends[0]))
                if start < ends[0]:
                    rest = self.w.where(
                        self.w.below(number, self.w.number(ends[0])), self.w.number(0), rest
                    )
                here.append(
                    self._block(1, self.w.least(rest, self.w.number(ends[1] - ends[0] - 1)))
                )
            found.append(here)
        return found

    def _block(self, which: int, number: int) -> _Block:
        """The block number so many of an operand's tile."""
        w, t, operand = self.w, self.tiles, self.operands[which]
        beside = (t.rows, t.columns)[which] // FOUR
        if operand.along:
            row, step = w.parts(number, w.number(t.depth // FOUR))
        else:
            step, row = w.parts(number, w.number(beside))
        base = 0 if which == 0 else t.rows * t.depth // FOUR
        put = w.plus(w.times(step, w.number(FOUR * beside)), w.plus(row, w.number(base)))
        puts = tuple(self.k.shifted(put, c * beside) for c in range(FOUR))
        starts = self._starts(which, w.times(row, w.number(FOUR)))
        return _Block(which, starts, w.times(step, w.number(FOUR)), puts)

    def _starts(self, which: int, row: int) -> tuple[int, ...]:
        """Where the block's rows begin, or its columns: four, or one where these are a quad.

        What is beyond the last one is that again.
        """
        w, name, operand = self.w, "ab"[which], self.operands[which]
        length = self.g["mn"[which]]
        matrix = w.over(self.z, self.g[f"{name}_each"])
        matrix = w.parts(matrix, self.g[f"{name}_count"])[1]
        start = w.times(matrix, self.g[f"{name}_size"])
        row = w.plus(self.first[which], row)
        if operand.quads and not operand.along:
            four = w.number(FOUR)
            column = w.least(w.over(row, four), w.last(w.over(length, four)))
            return (w.plus(start, column),)
        rows = [w.least(w.plus(row, w.number(j)), w.last(length)) for j in range(FOUR)]
        if operand.along:
            rows = [w.times(r, self.g[f"{name}_row"]) for r in rows]
        return tuple(w.plus(start, r) for r in rows)

    def _load(self, block: _Block, first: int) -> list[int]:
        """The numbers of a block whose tile begins at a step: four for each of four steps."""
        w, operand = self.w, self.operands[block.which]
        step = w.plus(first, block.step)
        if operand.along and operand.quads:
            inside, step = self._clamped(step, FOUR)
            quad = w.over(step, w.number(FOUR))
            rows = [self._quad(block.which, w.plus(s, quad)) for s in block.starts]
            return [self._kept(inside, row[c]) for c in range(FOUR) for row in rows]
        found: list[int] = []
        for c in range(FOUR):
            inside, at = self._clamped(w.plus(step, w.number(c)), 1)
            if not operand.along:
                at = w.times(at, self.g[f"{'ab'[block.which]}_row"])
            indices = [w.plus(s, at) for s in block.starts]
            found += [self._kept(inside, i) for i in self._numbers(block.which, indices)]
        return found

    def _clamped(self, step: int, many: int) -> tuple[int, int]:
        """Whether so many steps are there, and the steps, or the last ones instead of them."""
        w, depth = self.w, self.g["depth"]
        if not self.ragged:
            return self.k.truth(True), step
        return w.below(step, depth), w.least(step, w.minus(depth, w.number(many)))

    def _numbers(self, which: int, indices: Sequence[int]) -> list[int]:
        if len(indices) == 1:
            return self._quad(which, indices[0])
        return [self.k.load(self.buffers[which], i) for i in indices]

    def _quad(self, which: int, quad: int) -> list[int]:
        k = self.k
        return [k.load(self.buffers[which], k.offset(quad, FOUR, c)) for c in range(FOUR)]

    def _kept(self, inside: int, value: int) -> int:
        """A number, or zero where the reduction has ended."""
        if not self.ragged:
            return value
        return self.k.add(ops.where, inside, value, self.k.constant(0.0))

    def load(self, turn: int) -> list[int]:
        """The numbers that the invocation moves in a turn."""
        first = self.w.times(turn, self.w.number(self.tiles.depth))
        found: list[int] = []
        for n, here in enumerate(self.blocks):
            if len(here) == 1:
                found += self._load(here[0], first)
            else:
                is_first = self._is_of_a(n)
                found += self.k.choose(
                    is_first, lambda h=here: self._load(h[0], first),
                    lambda h=here: self._load(h[1], first),
                )  # fmt: skip
        return found

    def _is_of_a(self, turn: int) -> int:
        number = self.w.plus(self.k.local, self.w.number(turn * self.tiles.width))
        return self.w.below(number, self.w.number(self._counts()[0]))

    def put(self, values: Sequence[int]) -> None:
        """Write what was loaded to the group's memory."""
        w, total = self.w, sum(self._counts())
        for n, here in enumerate(self.blocks):
            puts = here[0].put
            if len(here) > 1:
                both = zip(here[0].put, here[1].put, strict=True)
                puts = tuple(w.where(self._is_of_a(n), a, b) for a, b in both)
            mine = values[16 * n : 16 * n + 16]
            if (n + 1) * self.tiles.width > total:
                number = w.plus(self.k.local, w.number(n * self.tiles.width))
                self.k.when(
                    w.below(number, w.number(total)),
                    lambda puts=puts, mine=mine: self._put_block(puts, mine),
                )
            else:
                self._put_block(puts, mine)

    def _put_block(self, puts: Sequence[int], values: Sequence[int]) -> None:
        for c, put in enumerate(puts):
            self.put_four(put, values[FOUR * c : FOUR * c + FOUR])

    def put_four(self, put: int, values: Sequence[int]) -> None:
        """Write four numbers to a four of the group's memory."""
        for j, value in enumerate(values):
            self.k.store(self.tile, self.k.offset(put, FOUR, j), value)
