"""Tiles of matrices: how work is shared out, and the way of operands to a group's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.kernel.language import Kernel
from symgrad.kernel.statements import Buffer
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
    ``depth``, a multiple of 4, which are written out.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 16
    down: int = 8
    across: int = 8

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
        """The bytes of the group's memory in float32, with sums of columns."""
        return 4 * (self.depth * (self.rows + self.columns) + self.y * self.columns)

    def beside(self, which: int) -> int:
        """The fours in a step of an operand's tile: the first operand is 0, the second 1."""
        return (self.rows, self.columns)[which] // FOUR


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
    ``step`` is its first step of the reduction within a tile; ``row`` the four of rows. Some
    invocations may have none, which is said by ``exists``.
    """

    which: int
    starts: tuple[int, ...]
    step: int
    row: int
    exists: int | None


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
        self.memory = [self._memory(which) for which in (0, 1)]
        """Tiles in the group's memory, a row for each step."""
        self.blocks = [*self._blocks(0), *self._blocks(1)]

    def _memory(self, which: int) -> Buffer:
        beside = self.tiles.beside(which)
        size, name = FOUR * beside * self.tiles.depth, f"tile_{'ab'[which]}"
        return self.k.buffer(name, "group", size=size, vector=FOUR, row=beside)

    def _blocks(self, which: int) -> Iterator[_Block]:
        """The blocks of an operand's tile that the invocation moves, one for each turn."""
        w, t = self.w, self.tiles
        count = t.beside(which) * t.depth // FOUR
        for start in range(0, count, t.width):
            number, exists = w.plus(self.k.local, w.number(start)), None
            if start + t.width > count:
                exists = w.below(number, w.number(count))
                number = w.least(number, w.number(count - 1))
            yield self._block(which, number, exists)

    def _block(self, which: int, number: int, exists: int | None) -> _Block:
        """The block number so many of an operand's tile."""
        w, t = self.w, self.tiles
        if self.operands[which].along:
            row, step = w.parts(number, w.number(t.depth // FOUR))
        else:
            step, row = w.parts(number, w.number(t.beside(which)))
        starts = self._starts(which, w.times(row, w.number(FOUR)))
        return _Block(which, starts, w.times(step, w.number(FOUR)), row, exists)

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
        return [v for block in self.blocks for v in self._load(block, first)]

    def put(self, values: Sequence[int]) -> None:
        """Write what was loaded to the group's memory."""
        for n, block in enumerate(self.blocks):
            mine = values[16 * n : 16 * n + 16]

            def put(block: _Block = block, mine: Sequence[int] = mine) -> None:
                self._put(block, mine)

            put() if block.exists is None else self.k.when(block.exists, put)

    def _put(self, block: _Block, values: Sequence[int]) -> None:
        for c in range(FOUR):
            step = self.w.plus(block.step, self.w.number(c))
            four = self.four(block.which, step, block.row)
            for j, value in enumerate(values[FOUR * c : FOUR * c + FOUR]):
                self.k.store(self.memory[block.which], self.k.offset(four, FOUR, j), value)

    def four(self, which: int, step: int, row: int) -> int:
        """Which four of an operand's tile in the group's memory is that of a step, and of rows."""
        return self.w.plus(self.w.times(step, self.w.number(self.tiles.beside(which))), row)

    def fetched(self, which: int, step: int, row: int) -> list[int]:
        """The numbers of a known step, and of a four of rows, in the group's memory."""
        k = self.k
        four = k.shifted(row, step * self.tiles.beside(which))
        return [k.load(self.memory[which], k.offset(four, FOUR, c)) for c in range(FOUR)]
