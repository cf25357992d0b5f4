"""Targets of kernels: invocations that run in step, or groups with barriers, and sizes of grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, Number
from symgrad.kernel.language.ir import KernelIR, narrow, wide_add, widen
from symgrad.kernel.language.statements import lane_sum, wide_lane_sum
from symgrad.kernel.language.thread_group import known_to_all

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


def in_pairs(totals: Sequence[int]) -> list[tuple[int, ...]]:
    """Values in twos."""
    return list(zip(totals[::2], totals[1::2], strict=True))


def pair_add(k: KernelIR, total: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Knuth's TwoSum: the sum of a pair's first float and another, with its rounding error."""
    high, low, term = (Number(k, i) for i in (*total, x))
    after = (high + term).opaque()
    part = (after - high).opaque()
    before = (after - part).opaque()
    error = (high - before) + (term - part)
    return after.id, (low + error).id


def last_or_before(k: KernelIR) -> int:
    """The number of the invocation's point, or past the end that of the last."""
    point = Index(k, k.cell).at_most(Index(k, k.count) - 1).id
    k.names[point] = "point"
    return point


@dataclass(frozen=True)
class SimdTarget:
    """A group is a vector, whose lanes run in step: there is nothing to wait for. See `Target`.

    Where floats are as wide as any, a wide sum is a pair of them. Of kernels that are long, a
    ``quick`` one is compiled in the quickest way at first even if it has loops.
    """

    width: int
    whole: bool = True
    block: int = 8
    carried: int = 160
    together: int = 1
    by_columns: bool = False
    wide: str = "d"
    in_step: bool = True
    threads: int = 1
    grid: bool = False
    summing: Summing = field(default_factory=Summing)
    bindings: int | None = None
    itemsize: int = 4
    quick: bool = False

    @property
    def thorough(self) -> SimdTarget:
        """The target of code that takes its time to be compiled: programs may be long."""
        together = self.summing.together
        return replace(self, summing=replace(self.summing, brief=False, operations=together))

    def of_width(self, width: int) -> SimdTarget:
        """Itself: see `Target`."""
        return self

    def working_alone(self) -> SimdTarget:
        """Itself: see `Target`."""
        return self

    def in_grid(self, groups: int) -> SimdTarget:
        """Itself: see `Target`."""
        return self

    def point(self, k: KernelIR) -> int:
        """The number of the invocation's point: see `Target`."""
        return k.cell if self.whole else last_or_before(k)

    def grouped(self, totals: Sequence[int]) -> list[tuple[int, ...]]:
        """The parts of each: see `Target`."""
        return in_pairs(totals) if self.wide == "ff" else [(t,) for t in totals]

    def wide_add(self, k: KernelIR, total: tuple[int, ...], x: int) -> tuple[int, ...]:
        """A sum in float64: see `Target`."""
        if self.wide == "ff":
            return pair_add(k, total, x)
        return (k.add(wide_add, total[0], k.add(widen, x)),)

    def wide_zero(self, k: KernelIR) -> tuple[int, ...]:
        """Zero in float64: see `Target`."""
        zero = k.constant(0.0)
        return (zero, zero) if self.wide == "ff" else (k.add(widen, zero),)

    def narrow(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """A wide sum as a float; what an infinite one has lost is no number: see `Target`."""
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
class WorkgroupTarget:
    """Invocations that share arrays, and wait for each other at barriers. See `Target`.

    There is no float64: a wide sum is a pair of floats, the second what rounding took. In a
    ``grid``, groups stand in several rows, as many of them as the host likes.
    """

    width: int = 64
    whole: bool = False
    block: int = 16
    carried: int = 1024
    together: int = 4
    alone: bool = False
    wide: str = "ff"
    in_step: bool = False
    grid: bool = False
    bindings: int | None = WEBGPU_BINDINGS
    itemsize: int = 4

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

    def point(self, k: KernelIR) -> int:
        """The invocation's point, or past the end the last one again: see `Target`."""
        return last_or_before(k)

    def grouped(self, totals: Sequence[int]) -> list[tuple[int, ...]]:
        """The pairs: see `Target`."""
        return in_pairs(totals)

    def wide_add(self, k: KernelIR, total: tuple[int, ...], x: int) -> tuple[int, ...]:
        """A sum in two floats: see `Target`."""
        return pair_add(k, total, x)

    def wide_zero(self, k: KernelIR) -> tuple[int, ...]:
        """Two zeros: see `Target`."""
        return (k.constant(0.0),) * 2

    def narrow(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """A wide sum as a float; where it is infinite, what was lost is no number: see `Target`."""
        high, low = total
        return k.add(ops.where, k.add(ops.isfinite, low), k.add(ops.add, high, low), high)

    def sum_group(self, k: KernelIR, values: Sequence[int]) -> list[int]:
        """By way of the group's memory: see `Target`."""
        return known_to_all(k, values)
