"""Products of array programs on a GPU, by the tile skeleton."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

from symgrad.arrays.scalars import Array, Scalars
from symgrad.kernel.skeletons import tiles
from symgrad.kernel.skeletons.epilogue import FinishProgram
from symgrad.kernel.skeletons.matmul import ARGUMENTS, MatmulProgram
from symgrad.kernel.skeletons.tiles import chosen, groups_of
from symgrad.kernel.stages.epilogues import NOTHING, Ending
from symgrad.kernel.stages.products import Contraction, Operand
from symgrad.kernel.stages.steps import Step
from symgrad.kernel.target import MAX_WORKGROUPS, WorkgroupTarget

FINISH_WIDTH: Final = 256
"""Invocations of a group that add up parts of sums."""


@dataclass(frozen=True)
class TileOperand:
    """An operand of the tile skeleton: from one row of it to the next, and one matrix to the next.

    Neighbours are numbers ``along`` the sum, or else those of one of its terms. Without a batch of
    its own the ``matrix`` step is 0. In ``quads`` all of these are multiples of 4.
    """

    along: bool
    row: int
    matrix: int
    quads: bool


def tile_operand(o: Operand, c: Contraction, own: Sequence[int]) -> TileOperand | None:
    """An operand as the tile skeleton takes it, if it stands in memory as that reads it."""
    ends = 0, len(c.batch), len(c.batch) + len(own), len(o.shape)
    parts = [slice(a, b) for a, b in pairwise(ends)]
    steps = [_step(o.shape[p], o.strides[p]) for p in parts]
    matrix, row, term = steps
    if o.first or matrix is None or row is None or term is None or 1 not in (row, term):
        return None
    along = term == 1
    step, beside = (row, parts[2]) if along else (term, parts[1])
    lengths = step, matrix, o.array.size, prod(o.shape[beside])
    return TileOperand(along, step, matrix, all(n % tiles.FOUR == 0 for n in lengths))


def _step(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The step from each element to the next through some axes, if it is one and not negative."""
    axes = list(zip(reversed(shape), reversed(strides), strict=True))
    first = axes[0][1] if axes else 0
    reached = first
    for n, stride in axes:
        if stride != reached:
            return None
        reached *= n
    return first if first >= 0 else None


def tile_product(
    s: Scalars, left: Operand, right: Operand, c: Contraction, end: Ending, itemsize: int
) -> Iterator[Step]:
    """The dispatches of products (batch, rows, columns); the operands stand as tiles read them."""
    m, n, depth, batch = (prod(map(s.extent, x)) for x in (c.rows, c.columns, c.summed, c.batch))
    a, b = tile_operand(left, c, c.rows), tile_operand(right, c, c.columns)
    assert a is not None and b is not None, "an operand is stored that tiles do not read"
    shares, splits = chosen(m, n, depth, batch, itemsize)
    groups = groups_of(shares, m, n) * batch * splits
    steps = -(-depth // shares.depth)
    edges = bool(m % shares.rows or n % shares.columns) or groups > MAX_WORKGROUPS
    first, second = (tiles.Operand(o.along, o.quads) for o in (a, b))
    ragged = bool(depth % shares.depth)
    epilogue = NOTHING if splits > 1 else end.epilogue
    program = MatmulProgram(shares, first, second, epilogue, ragged, edges, n % tiles.FOUR == 0)
    quads = [tiles.FOUR if o.quads else 1 for o in (a, b)]
    rows, sizes = (
        [getattr(o, x) // q for o, q in zip((a, b), quads, strict=True)] for x in ("row", "matrix")
    )
    counts = [batch if o.matrix else 1 for o in (a, b)]
    values = (
        m, n, depth, *rows, *sizes, 1, counts[0], 1, counts[1],
        splits, -(-steps // splits), groups,
    )  # fmt: skip
    words = tuple(zip(ARGUMENTS, values, strict=True))
    operands, title = (("a", left.array), ("b", right.array)), f"{m} x {n} x {depth}, {batch} times"
    sums = Array(shape=(splits * batch * m * n,))
    reads, writes = (*operands, *end.reads), end.writes
    if splits > 1:
        reads, writes = operands, (("result", sums),)
    count = groups * shares.width
    yield Step(program, program.target, reads, writes, count, groups, words, title)
    if splits > 1:
        size = batch * m * n
        target = WorkgroupTarget(FINISH_WIDTH).in_grid(-(-size // FINISH_WIDTH))
        finish, words = FinishProgram(end.epilogue, splits), (("n", n), ("size", m * n))
        reads = (("parts", sums), *end.reads)
        yield Step(finish, target, reads, end.writes, size, 0, words, f"{size} sums")
