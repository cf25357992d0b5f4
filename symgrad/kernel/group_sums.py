"""Sums over a group of invocations, in its memory: a tree of two levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Final

from symgrad.expr import ops
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
    width, count = k.target.width, len(values)
    branches = branches_of(width)
    assert branches * count <= width, f"{count} sums are too many for a group of {width}"
    for c, value in enumerate(values):
        k.store(tile, k.add(ops.word_add, k.local, k.word(c * width)), value())
    k.barrier()
    which = k.add(ops.word_div, k.local, k.word(branches))
    branch = k.add(ops.word_and, k.local, k.word(branches - 1))
    begin = k.add(ops.word_add, k.add(ops.word_mul, which, k.word(width)), branch)
    mine = k.add(ops.word_lt, k.local, k.word(branches * count))

    def part() -> list[int]:
        return [_in_fours(k, tile, begin, branches, width // branches)]

    (partial,) = k.choose(mine, part, lambda: [k.constant(0.0)])
    k.barrier()
    k.when(mine, lambda: k.store(tile, k.local, partial))
    k.barrier()

    def finish() -> None:
        first = k.add(ops.word_mul, k.local, k.word(branches))
        then(_in_fours(k, tile, first, 1, branches))

    k.when(k.add(ops.word_lt, k.local, k.word(count)), finish)


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
            k.store(tile, k.add(ops.word_add, k.local, k.word(behind)), total)

        add_up(k, tile, [lambda v=v: v for v in some], keep)
        k.barrier()
        totals += [k.load(tile, k.word(behind + c)) for c in range(len(some))]
        k.barrier()
    return totals


def _in_fours(k: KernelIR, tile: Buffer, begin: int, step: int, count: int) -> int:
    """The sum of ``count`` numbers of a tile, added up in fours."""
    if count < FOUR:
        return _sum(k, [k.load(tile, i) for i in _places(k, begin, step, count)])

    def iteration(t: int, sums: list[int]) -> list[int]:
        first = k.add(ops.word_add, begin, k.add(ops.word_mul, t, k.word(FOUR * step)))
        a, b, c, d = [k.load(tile, i) for i in _places(k, first, step, FOUR)]
        four = k.add(ops.add, k.add(ops.add, a, b), k.add(ops.add, c, d))
        return [k.add(ops.add, sums[0], four)]

    (total,), _ = k.loop(k.word(0), k.word(count // FOUR), [k.constant(0.0)], iteration)
    return total


def _places(k: KernelIR, first: int, step: int, count: int) -> list[int]:
    return [k.add(ops.word_add, first, k.word(j * step)) for j in range(count)]


def _sum(k: KernelIR, values: Iterable[int]) -> int:
    return reduce(lambda a, b: k.add(ops.add, a, b), values)
