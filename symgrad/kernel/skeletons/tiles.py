"""Tiles of matrices: which a product takes, and the way of operands to a group's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import GROUP_BYTES, GROUP_INVOCATIONS

# --- digits of a place ----------------------------------------------------------------------------
# Operands of products whose rows, columns or terms go through several axes of an array.
#
# A window of an image has its own columns and terms, of which none is copied: the number of a row,
# a column, a term or a matrix has a digit for each axis, and each digit has a step through memory.


class Digits(NamedTuple):
    """How many digits the number of a matrix has, that of a row or column, and that of a term.

    Fours of rows or columns are ``beside`` each other in memory, if so. Where a tile's terms are
    ``even``, they have the same digits but the lowest.
    """

    matrix: int
    own: int
    term: int
    beside: bool = True
    even: bool = True

    def arguments(self, name: str) -> Iterator[str]:
        """The arguments of an operand: where it begins, and the counts and steps of digits.

        The lowest digit is the first; the highest one needs no count.
        """
        yield f"{name}_first"
        for part in ("matrix", "own", "term"):
            many = getattr(self, part)
            yield from (f"{name}_{part}_count_{k}" for k in range(many - 1))
            yield from (f"{name}_{part}_step_{k}" for k in range(many))

    def place(self, g: Mapping[str, Index], name: str, part: str, number: Index) -> Index:
        """How far a number is through memory."""
        place, last = Index(number.k, number.k.word(0)), getattr(self, part) - 1
        for k in range(last + 1):
            digit = number
            if k < last:
                number, digit = divmod(number, g[f"{name}_{part}_count_{k}"])
            step = digit * g[f"{name}_{part}_step_{k}"]
            place = place + step if k else step
        return place


FOUR: Final = 4
"""Numbers that are read, and written, together."""


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
        assert self.nbytes <= GROUP_BYTES, f"{self.nbytes:,} bytes are more than a group has"
        assert self.width <= GROUP_INVOCATIONS, f"a group has no {self.width} invocations"

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
    what stands in a row is a multiple of 4 numbers. It may go through several axes of an array, as
    ``digits`` say.
    """

    along: bool
    quads: bool
    digits: Digits | None = None

    def arguments(self, name: str) -> Iterator[str]:
        """The arguments of a kernel that are this operand's."""
        plain = (f"{name}_{what}" for what in ("row", "size", "each", "count"))
        return plain if self.digits is None else self.digits.arguments(name)


class Share(NamedTuple):
    """A group's share of the work: a tile of the result that is number ``z``.

    ``arguments`` are those of the kernel, ``first`` are the tile's first row and column.
    """

    arguments: Mapping[str, Index]
    first: tuple[Index, Index]
    z: Index


class _Block(NamedTuple):
    """Four by four numbers of an operand that an invocation moves.

    ``starts`` are where its rows begin, if these are along the reduction, or else the one column;
    ``step`` is its first step of the reduction within a tile; ``row`` the four of rows. Some
    invocations may have none, which is said by ``exists``.
    """

    which: int
    starts: tuple[Index, ...]
    step: Index
    row: Index
    exists: int | None


class Loads:
    """Moves tiles of both operands of a product to the group's memory, steps of it behind steps.

    A block of four rows and four steps goes through registers, and is transposed there if
    neighbours are along the reduction.
    """

    def __init__(
        self, k: KernelIR, tiles: Tiles, operands: Sequence[Operand], share: Share, ragged: bool
    ) -> None:
        self.k, self.tiles, self.operands, self.ragged = k, tiles, operands, ragged
        self.g, self.first, self.z = share
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
        t = self.tiles
        count = t.beside(which) * t.depth // FOUR
        for start in range(0, count, t.width):
            number, exists = Index(self.k, self.k.local) + start, None
            if start + t.width > count:
                exists = number.below(count)
                number = number.at_most(count - 1)
            yield self._block(which, number, exists)

    def _block(self, which: int, number: Index, exists: int | None) -> _Block:
        """The block number so many of an operand's tile."""
        t = self.tiles
        if self.operands[which].along:
            row, step = divmod(number, t.depth // FOUR)
        else:
            step, row = divmod(number, t.beside(which))
        starts = self._starts(which, row * FOUR)
        return _Block(which, starts, step * FOUR, row, exists)

    def _starts(self, which: int, row: Index) -> tuple[Index, ...]:
        """Where the block's rows begin, or its columns: four, or one where these are a quad.

        What is beyond the last one is that again.
        """
        name, operand = "ab"[which], self.operands[which]
        length = self.g["mn"[which]]
        if operand.digits is not None:
            return self._digit_starts(which, operand.digits, row)
        matrix = self.z // self.g[f"{name}_each"] % self.g[f"{name}_count"]
        start = matrix * self.g[f"{name}_size"]
        row = self.first[which] + row
        if operand.quads and not operand.along:
            return (start + (row // FOUR).at_most(length // FOUR - 1),)
        rows = [(row + j).at_most(length - 1) for j in range(FOUR)]
        if operand.along:
            rows = [r * self.g[f"{name}_row"] for r in rows]
        return tuple(start + r for r in rows)

    def _digit_starts(self, which: int, digits: Digits, row: Index) -> tuple[Index, ...]:
        """As `_starts`, of an operand with digits; one where neighbours are columns."""
        g, name, operand = self.g, "ab"[which], self.operands[which]
        start = g[f"{name}_first"] + digits.place(g, name, "matrix", self.z)
        row, length = self.first[which] + row, g["mn"[which]]
        if operand.along or not digits.beside:
            rows = [(row + j).at_most(length - 1) for j in range(FOUR)]
        elif operand.quads:
            rows = [(row // FOUR).at_most(length // FOUR - 1)]
        else:
            rows = [row.at_most(length - FOUR)]
        return tuple(start + digits.place(g, name, "own", r) for r in rows)

    def _load_digits(self, block: _Block, digits: Digits, first: Index) -> list[int]:
        """As `_load`, of an operand with digits."""
        which, starts, g, name = block.which, block.starts, self.g, "ab"[block.which]
        operand = self.operands[which]
        if not digits.even:
            steps = [self._clamped(first + block.step + c, 1) for c in range(FOUR)]
            inside = [each for each, _ in steps for _ in range(FOUR)]
            terms = [digits.place(g, name, "term", step) for _, step in steps]
            values = [v for term in terms for v in self._of_starts(which, starts, term)]
            return [self._kept(*pair) for pair in zip(inside, values, strict=True)]
        if not operand.along:
            term, by = digits.place(g, name, "term", first), g[f"{name}_term_step_0"]
            terms = [term + (block.step + c) * by for c in range(FOUR)]
            return [v for term in terms for v in self._of_starts(which, starts, term)]
        if operand.quads:
            term = digits.place(g, name, "term", first // FOUR) + block.step // FOUR
        else:
            term = digits.place(g, name, "term", first) + block.step
        rows = [self._beside(which, s + term) for s in starts]
        return [row[c] for c in range(FOUR) for row in rows]

    def _of_starts(self, which: int, starts: Sequence[Index], term: Index) -> list[int]:
        """The four numbers of a term."""
        if len(starts) == 1:
            return self._beside(which, starts[0] + term)
        return self._numbers(which, [s + term for s in starts])

    def _beside(self, which: int, place: Index) -> list[int]:
        """Four numbers from a place on, or those of the quad that it is."""
        if self.operands[which].quads:
            return self._quad(which, place)
        return self._numbers(which, [place.shifted(j) for j in range(FOUR)])

    def _load(self, block: _Block, first: Index) -> list[int]:
        """The numbers of a block whose tile begins at a step: four for each of four steps."""
        operand = self.operands[block.which]
        if operand.digits is not None:
            return self._load_digits(block, operand.digits, first)
        step = first + block.step
        if operand.along and operand.quads:
            inside, step = self._clamped(step, FOUR)
            quad = step // FOUR
            rows = [self._quad(block.which, s + quad) for s in block.starts]
            return [self._kept(inside, row[c]) for c in range(FOUR) for row in rows]
        numbers: list[int] = []
        for c in range(FOUR):
            inside, at = self._clamped(step + c, 1)
            if not operand.along:
                at = at * self.g[f"{'ab'[block.which]}_row"]
            indices = [s + at for s in block.starts]
            numbers += [self._kept(inside, i) for i in self._numbers(block.which, indices)]
        return numbers

    def _clamped(self, step: Index, many: int) -> tuple[int, Index]:
        """Whether so many steps are there, and the steps, or the last ones instead of them."""
        depth = self.g["depth"]
        if not self.ragged:
            return self.k.truth(True), step
        return step.below(depth), step.at_most(depth - many)

    def _numbers(self, which: int, indices: Sequence[Index]) -> list[int]:
        if len(indices) == 1:
            return self._quad(which, indices[0])
        return [self.k.load(self.buffers[which], i.id) for i in indices]

    def _quad(self, which: int, quad: Index) -> list[int]:
        return [self.k.load(self.buffers[which], place) for place in quad.lanes(FOUR)]

    def _kept(self, inside: int, value: int) -> int:
        """A number, or zero where the reduction has ended."""
        if not self.ragged:
            return value
        return self.k.add(ops.where, inside, value, self.k.constant(0.0))

    def load(self, iteration: Index) -> list[int]:
        """The numbers that the invocation moves in a turn."""
        first = iteration * self.tiles.depth
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
            step = block.step + c
            four = self.four(block.which, step, block.row)
            mine = values[FOUR * c : FOUR * c + FOUR]
            for place, value in zip(four.lanes(FOUR), mine, strict=True):
                self.k.store(self.memory[block.which], place, value)

    def four(self, which: int, step: Index, row: Index) -> Index:
        """Which four of an operand's tile in the group's memory is that of a step, and of rows."""
        return step * self.tiles.beside(which) + row

    def fetched(self, which: int, step: int, row: Index) -> list[int]:
        """The numbers of a known step, and of a four of rows, in the group's memory."""
        four = row.shifted(step * self.tiles.beside(which))
        return [self.k.load(self.memory[which], place) for place in four.lanes(FOUR)]


CHOICES: Final = (
    (Tiles(), 1.0),
    (Tiles(32, 32, 32, 4, 4), 0.5),
    (Tiles(128, 16, 16, 4, 4), 0.3),
    (Tiles(16, 128, 16, 4, 4), 0.3),
)
"""Tiles, and about how much of a device's rate they reach, compared to the first."""

WIDE_CHOICES: Final = (
    (Tiles(64, 32, 16, 4, 4), 1.0),
    (Tiles(64, 64, 16, 4, 4), 0.95),
    (Tiles(16, 128, 16, 4, 4), 0.9),
    (Tiles(128, 16, 16, 4, 4), 0.8),
    (Tiles(32, 32, 32, 4, 4), 0.8),
)
"""Tiles of numbers of 8 bytes, of which registers hold half as many; rates are of an H200."""

AT_ONCE: Final = 264
"""Groups of 256 invocations that large devices run at once."""

FEWEST_STEPS: Final = 128
"""The shortest reduction that is worth a group of its own."""

SPLITS: Final = (*range(1, 9), *range(10, 17, 2), *range(20, 33, 4), *range(40, 65, 8), 80, 96, 112)
"""Parts that a reduction may be done in."""

ROUNDS: Final = 4
"""How often a device's groups begin anew, at most, for products whose reductions are in parts."""


def chosen(
    m: int, n: int, k: int, batch: int, itemsize: int = 4, even: int = 0
) -> tuple[Tiles, int]:
    """The tiles for a product of such numbers, and in how many parts its reduction is done.

    The depth divides ``even``, if that is not 0.
    """
    choices = CHOICES if itemsize == 4 else WIDE_CHOICES
    rates = {tiles: rate for tiles, rate in choices if even % tiles.depth == 0}
    return min(
        ((tiles, splits) for tiles in rates for splits in _splits(tiles, m, n, k, batch)),
        key=lambda choice: _seconds(*choice, m, n, k, batch) / rates[choice[0]],
    )


def _splits(tiles: Tiles, m: int, n: int, k: int, batch: int) -> Sequence[int]:
    groups = groups_of(tiles, m, n) * batch
    most = min(k // FEWEST_STEPS, ROUNDS * AT_ONCE * 256 // tiles.width // groups)
    return [splits for splits in SPLITS if splits <= max(most, 1)]


def groups_of(tiles: Tiles, m: int, n: int) -> int:
    """The tiles of a matrix."""
    return -(-m // tiles.rows) * -(-n // tiles.columns)


def _seconds(tiles: Tiles, splits: int, m: int, n: int, k: int, batch: int) -> float:
    """About how long a product takes, in no unit: rounds of groups, and the sums of the parts."""
    groups = groups_of(tiles, m, n) * batch * splits
    rounds = -(-groups // (AT_ONCE * 256 // tiles.width))
    each = tiles.rows * tiles.columns * (-(-k // splits) + 4 * tiles.depth)
    return rounds * each * 256 / tiles.width + (splits > 1) * batch * m * n * splits / 2
