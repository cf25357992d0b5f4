"""Sums over a group of invocations, in its memory: a tree of two levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.index import Index, Number, Numbers, loop
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import Buffer

BRANCHES: Final = 16
"""Invocations that add up a group's numbers for one sum, at most: one adds up their parts."""

FOUR: Final = 4
"""Numbers that are added up in pairs: (a + b) + (c + d)."""


def branches_of(width: int) -> int:
    """The invocations that add up the numbers of a group of this width for one sum."""
    return min(BRANCHES, max(1, width // FOUR))


def add_up(
    k: KernelIR, tile: Buffer, values: Sequence[Callable[[], int]], then: Callable[[int], None]
) -> None:
    """Add up a number of each invocation, for a few sums: a reduction tree of two levels.

    Args:
        k: the kernel, which is where all invocations of a group come.
        tile: memory of the group, of a number of each invocation for each sum.
        values: write the numbers, one for each sum: no more of them than there are invocations for
            the branches of all. The group waits before it has the memory again.
        then: does something with the sum that an invocation has, whose number is ``k.local``; only
            those have one whose number is below that of the sums.
    """
    width, count, local = k.target.width, len(values), Index(k, k.local)
    branches = branches_of(width)
    assert branches * count <= width, f"{count} sums are too many for a group of {width}"
    for c, value in enumerate(values):
        k.store(tile, (local + c * width).id, value())
    k.barrier()
    which, branch = local // branches, Index(k, k.add(ops.word_and, k.local, k.word(branches - 1)))
    begin, mine = which * width + branch, local.below(branches * count)

    def part() -> list[int]:
        return [_in_fours(Numbers(k, tile), begin, branches, width // branches).id]

    (partial,) = k.choose(mine, part, lambda: [k.constant(0.0)])
    k.barrier()
    k.when(mine, lambda: k.store(tile, k.local, partial))
    k.barrier()

    def finish() -> None:
        then(_in_fours(Numbers(k, tile), local * branches, 1, branches).id)

    k.when(local.below(count), finish)


def known_to_all(k: KernelIR, values: Sequence[int]) -> list[int]:
    """The sums of values over a group, which all of its invocations get to know."""
    width = k.target.width
    branches = branches_of(width)
    together = max(1, min(len(values), width // branches))
    size = together * max(width, branches + 1)
    tile, totals = k.buffer(f"tile{len(k.buffers)}", "group", size=size), list[int]()
    for start in range(0, len(values), together):
        some = values[start : start + together]
        behind = branches * len(some)

        def keep(total: int, behind: int = behind) -> None:
            k.store(tile, (Index(k, k.local) + behind).id, total)

        add_up(k, tile, [lambda v=v: v for v in some], keep)
        k.barrier()
        totals += [k.load(tile, k.word(behind + c)) for c in range(len(some))]
        k.barrier()
    return totals


def _in_fours(tile: Numbers, begin: Index, step: int, count: int) -> Number:
    """The sum of ``count`` numbers of a tile, added up in fours."""
    if count < FOUR:
        return reduce(Number.__add__, _loaded(tile, begin, step, count))

    def iteration(t: Index, sums: Sequence[Number]) -> list[Number]:
        a, b, c, d = _loaded(tile, begin + t * (FOUR * step), step, FOUR)
        return [sums[0] + ((a + b) + (c + d))]

    return loop(tile.k, 0, count // FOUR, [0.0], iteration)[0]


def _loaded(tile: Numbers, first: Index, step: int, count: int) -> list[Number]:
    places = [first + j * step for j in range(count)]
    return [tile[i] for i in places]
