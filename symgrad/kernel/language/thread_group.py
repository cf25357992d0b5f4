"""Invocations that work on one problem together: what they share, and who does what of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, Number, Numbers, loop
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer

# --- sums over a group: a tree of two levels ------------------------------------------------------
# Sums over a group of invocations, in its memory: a tree of two levels.

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


def in_halves(k: KernelIR, join: Callable[[Index], None]) -> None:
    """A reduction tree over a group whose width is a power of 2, in its memory.

    ``join(half)`` is what each invocation below ``half`` does with what the one ``half`` further on
    has; what the group has stored before is there, and at the end invocation 0 has all.
    """
    width = k.target.width
    assert width & (width - 1) == 0, "the tree halves the group"

    def halve(t: int, _: object) -> tuple[()]:
        half = Index(k, k.add(ops.word_shift_right, k.word(width // 2), t))
        k.names[half.id] = "half"
        k.barrier()
        k.when(Index(k, k.local).below(half), lambda: join(half))
        return ()

    k.loop(k.word(0), k.word(width.bit_length() - 1), (), halve)


# --- loops that a group shares --------------------------------------------------------------------


class ThreadGroup:
    """The invocations that share a problem: a group, or a single one that shares with nobody.

    ``number`` is that of the problem, ``member`` that of the invocation in its thread group.
    """

    def __init__(self, k: KernelIR) -> None:
        self.k, self.size = k, k.target.threads
        self.alone = self.size == 1
        self.member = k.word(0) if self.alone else k.local
        self.number = k.cell if self.alone else k.group

    def array(self, name: str, size: int, kind: str = "f", vector: int = 1) -> Buffer:
        """An array that they share."""
        space = "own" if self.alone else "group"
        return self.k.buffer(name, space, kind, -(-size // vector) * vector, vector=vector)

    def wait(self) -> None:
        """Wait for the others, and see what they have stored."""
        if not self.alone:
            self.k.barrier()

    def first(self, body: Callable[[], None]) -> None:
        """Writes what the first of them does alone."""
        if self.alone:
            body()
        else:
            self.k.when(self.k.add(ops.word_lt, self.member, self.k.word(1)), body)

    def agreed(self, name: str, word: Callable[[], int]) -> int:
        """A word that the first of them finds and all get to know, in an array of this name."""
        if self.alone:
            return word()
        place, k = self.k.buffer(name, "group", "u", 1), self.k
        self.first(lambda: k.store(place, k.word(0), word()))
        return k.agreed(place, k.word(0))

    def share(self, count: int, body: Callable[[int], None]) -> None:
        """Do ``body(i)`` for all i below a word, each of them by one of the thread group."""
        self.every(self.size, self.member, count, body)

    def every(
        self, step: int, first: int, end: int, body: Callable[[int], None], start: int | None = None
    ) -> None:
        """Do ``body(i)`` for i = first, first + step, .. below the end, which is a word.

        With a ``start`` both count from there; ``first`` is below the step.
        """
        k = self.k
        iterations = end if start is None else k.add(ops.word_sub, end, start)
        if step > 1:
            up = k.add(ops.word_sub, k.add(ops.word_add, iterations, k.word(step - 1)), first)
            iterations = k.add(ops.word_div, up, k.word(step))

        def iteration(t: int, _: object) -> tuple[()]:
            i = k.add(ops.word_add, k.add(ops.word_mul, t, k.word(step)), first)
            body(i if start is None else k.add(ops.word_add, i, start))
            return ()

        k.loop(k.word(0), iterations, (), iteration)
