"""How many workgroups add up rows: as many as keep a GPU busy, if there are rows for them."""

from __future__ import annotations

from symgrad.kernel.row_tile import ROWS_PER_BLOCK
from symgrad.kernel.skeletons.row_sums import TileSums
from symgrad.wgsl.dispatch.summation import SUM_INVOCATIONS

BUSY = 512
"""Workgroups that a GPU needs to be busy: fewer rows than these could add are shared by them."""

BUSIER = 1024
"""As `BUSY`, where they have no more than `SUMS_ADDED_ON_HOST` partial sums: four sums over 16
million rows of three columns take an H200 53 us with these, and 63 with `BUSY` ones."""

SUMS_ADDED_ON_HOST = 8_192
"""Partial sums that the host adds up in no time, about."""

BUSY_LONG = 2048
"""As `BUSY`, of smaller workgroups for rows with loops, of which an invocation may have one:
on an H200 a million rows of 80 iterations take 0.65 of the time that they take 512 workgroups."""

BUSY_SOFTWARE = 8
"""As `BUSY`, for a driver in software, for which a workgroup's tree costs as much as many rows."""


def workgroups(
    count: int, most: int, busy: int, width: int = SUM_INVOCATIONS, fewest: int = ROWS_PER_BLOCK
) -> int:
    """How many add up this many rows, of which each of ``width`` invocations may have ``most``.

    They have at least the ``fewest``, where the workgroups are no more than keep a GPU ``busy``.
    """
    needed = -(-count // (width * most))
    useful = -(-count // (width * fewest))
    return max(needed, min(busy, useful), 1)


def groups_of(program: TileSums, count: int, busy: int, most: int) -> int:
    """The workgroups of a kernel for so many rows, ``most`` unless it takes more.

    ``busy`` keep the GPU busy, by its kind.
    """
    fewest, tile = ROWS_PER_BLOCK, program.tile
    if busy == BUSY and tile.whole.is_structured:
        busy, fewest = BUSY_LONG, 1
    elif (
        busy == BUSY and BUSIER * program.results.columns <= SUMS_ADDED_ON_HOST and not tile.slopes
    ):
        busy = BUSIER
    return workgroups(count, program.most, min(busy, most), program.width, fewest)
