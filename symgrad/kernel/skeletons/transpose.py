"""The transpose of a matrix, tile by tile: both are read and written line by line.

Tiles stand in the group's memory, whose lines have a number more than they hold, so that columns of
it are in different banks (Ruetsch and Micikevicius, 2009, "Optimizing matrix transpose in CUDA").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR, Target

TILE_SIDE: Final = 32
"""Rows and columns that a group transposes at a time: a line of memory for each."""


def transpose_program(target: Target) -> KernelIR:
    """The kernel from x (count, columns) to y (columns, count), a tile for each group.

    Groups go down the tiles of the first columns, then of the next; ``columns`` is its argument.
    """
    k = KernelIR(target, "transpose")
    x, y = k.buffer("x", "read"), k.buffer("y", "write")
    square = k.buffer("square", "group", size=TILE_SIDE * (TILE_SIDE + 1))
    count, columns = Index(k, k.count), Index(k, k.argument("columns"))
    local, group, tiles = Index(k, k.local), Index(k, k.group), count.ceil_div(TILE_SIDE)
    row, column = group % tiles * TILE_SIDE, group // tiles * TILE_SIDE
    lane, line = local % TILE_SIDE, local // TILE_SIDE
    k.names |= {row.id: "row", column.id: "column", lane.id: "lane", line.id: "line"}

    def each(inside: Callable[[Index], int], move: Callable[[Index], None]) -> None:
        """Do something for the group's lines, as many at a time as it has invocations for."""
        abreast = target.width // TILE_SIDE

        def some(i: int, _: list[int]) -> tuple[()]:
            own_line = line + Index(k, i) * abreast
            k.when(inside(own_line), lambda: move(own_line))
            return ()

        k.loop(k.word(0), k.word(TILE_SIDE // abreast), (), some)

    def both(a: int, b: int) -> int:
        return k.add(ops.logical_and, a, b)

    def read(i: Index) -> None:
        at = (row + i) * columns + (column + lane)
        k.store(square, (i * (TILE_SIDE + 1) + lane).id, k.load(x, at.id))

    def write(i: Index) -> None:
        at = (column + i) * count + (row + lane)
        k.store(y, at.id, k.load(square, (lane * (TILE_SIDE + 1) + i).id))

    each(lambda i: both((row + i).below(count), (column + lane).below(columns)), read)
    k.barrier()
    each(lambda i: both((row + lane).below(count), (column + i).below(columns)), write)
    return k
