"""Targets of kernels, and groups: invocations that run in step, or that wait at barriers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar, Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, Number, Numbers, loop
from symgrad.kernel.language.ir import KernelIR, Target, narrow, widen
from symgrad.kernel.language.statements import Buffer, lane_sum, wide_lane_sum

# Invocations that work on one problem together: what they share, and who does what of it.

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


POINTS_PER_WORKGROUP = 64
"""Invocations per workgroup, at least: so many points that have many numbers keep a device busy."""

POINTS_PER_LARGER_WORKGROUP = ((8, 256), (16, 128))
"""Numbers of a point up to which workgroups are larger, and how large: a device begins so many of
them in a second, and 64 points of few numbers are few bytes. On an H200 they were read and written
at 1.1 TB/s with 3 numbers, at 2.5 with 256 invocations; with 21, 64 are the best."""

LIGHT = 32
"""Operations for each number that is read or written up to which memory is the limit. Where it is
not, few points are shared by more workgroups if these are small."""

MAX_WORKGROUPS = 65_535
"""WebGPU's default limit of workgroups in one dimension of a dispatch."""

WORKGROUPS_PER_ROW = 32_768
"""Workgroups in a row of a grid that has several rows."""

GROUP_BYTES = 16_384
"""Bytes of memory that a workgroup has on every device."""

GROUP_INVOCATIONS = 256
"""Invocations that a workgroup has at most on every device."""


def whole_workgroups(points: int) -> int:
    """Points rounded up to whole workgroups of the least size."""
    return -(-points // POINTS_PER_WORKGROUP) * POINTS_PER_WORKGROUP


def invocations(numbers: int, operations: int) -> int:
    """Invocations per workgroup where a point has so many numbers, and takes so many operations."""
    if operations > LIGHT * numbers:
        return POINTS_PER_WORKGROUP
    return next(
        (size for most, size in POINTS_PER_LARGER_WORKGROUP if numbers <= most),
        POINTS_PER_WORKGROUP,
    )


def grid_of(groups: int) -> tuple[int, int]:
    """Rows of a grid with at least so many groups: how many across, and how many down."""
    down = -(-groups // MAX_WORKGROUPS)
    return -(-groups // down), down


@dataclass(frozen=True)
class Summing:
    """Where the sums over rows are while they grow."""

    carried: int = 24
    """Results whose sums are carried from row to row, at most; of more they are in memory."""
    operations: int = 3_000
    """Operations at a row up to which they are."""
    cached: int = 4_096
    """Numbers of an invocation that stay in the cache."""
    registers: int = 32
    """Numbers of an invocation that registers hold."""
    brief: bool = False
    """Whether a short program is better than one that is a little faster."""
    together: int = 3_000
    """Operations at a row up to which results so few are not taken apart, wherever they are."""
    piece: int = 0
    """Rows of a group, whole vectors of them; 0 if there is one group, which has all."""


SUMS_AT_A_TIME: Final = 16
"""Sums over a group that are added up at once: of 256 invocations they take 16,384 bytes."""

WEBGPU_BINDINGS: Final = 8
"""Arrays that kernels on a GPU bind, at most, if it grants no more than WebGPU promises."""


@dataclass(frozen=True)
class SimdTarget(Target):
    """A group is a vector, whose lanes run in step: there is nothing to wait for. See `Target`.

    Where floats are as wide as any, a wide sum is a pair of them. Of kernels that are long, a
    ``quick`` one is compiled in the quickest way at first even if it has loops.
    """

    whole: bool = True
    block: int = 8
    carried: int = 160
    wide: str = "d"
    summing: Summing = field(default_factory=Summing)
    quick: bool = False
    in_step: ClassVar[bool] = True

    @property
    def thorough(self) -> SimdTarget:
        """The target of code that takes its time to be compiled: programs may be long."""
        together = self.summing.together
        return replace(self, summing=replace(self.summing, brief=False, operations=together))

    def narrow(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """The sum of the parts, or one in float64: see `Target`."""
        if self.wide == "d":
            return k.add(narrow, total[0])
        high, low = total
        rounding = k.add(ops.where, k.add(ops.eq, low, low), low, k.constant(0.0))
        return k.add(ops.add, high, rounding)

    def over_lanes(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """The sum over a group of wide sums, as a float64, lane after lane."""
        if self.wide == "d":
            return k.add(wide_lane_sum, total[0])
        return k.add(widen, self.narrow(k, tuple(k.add(lane_sum, part) for part in total)))

    def sum_group(self, k: KernelIR, values: Sequence[int]) -> list[int]:
        """The sums over the lanes: see `Target`."""
        return [k.add(lane_sum, v) for v in values]


@dataclass(frozen=True)
class WorkgroupTarget(Target):
    """Invocations that share arrays, and wait for each other at barriers. See `Target`.

    There is no float64: a wide sum is a pair of floats, the second what rounding took. In a
    ``grid``, groups stand in several rows, as many of them as the host likes.
    """

    width: int = 64
    together: int = 4
    alone: bool = False
    bindings: int | None = WEBGPU_BINDINGS
    in_step: ClassVar[bool] = False

    def of_width(self, width: int) -> WorkgroupTarget:
        """Groups of this width: see `Target`."""
        return replace(self, width=width)

    def working_alone(self) -> WorkgroupTarget:
        """Invocations that do not share a problem: see `Target`."""
        return replace(self, alone=True)

    def in_grid(self, groups: int) -> WorkgroupTarget:
        """With a grid, if these groups need one: see `Target`."""
        return replace(self, grid=True) if groups > MAX_WORKGROUPS else self

    @property
    def threads(self) -> int:
        """A group, unless every invocation works ``alone``: see `Target`."""
        return 1 if self.alone else self.width

    @property
    def by_columns(self) -> bool:
        """Where an invocation works alone: see `Target`."""
        return self.alone

    def narrow(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """The sum of the pair; where it is infinite, what was lost is left out: see `Target`."""
        high, low = total
        return k.add(ops.where, k.add(ops.isfinite, low), k.add(ops.add, high, low), high)

    def sum_group(self, k: KernelIR, values: Sequence[int]) -> list[int]:
        """By way of the group's memory: see `Target`."""
        return known_to_all(k, values)
