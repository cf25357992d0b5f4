"""Targets of kernels: invocations that run in step, or groups with barriers, and sizes of grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR, Target, narrow, widen
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
