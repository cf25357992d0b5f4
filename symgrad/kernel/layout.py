"""The sizes of workgroups and of grids, and what every device has for them."""

from __future__ import annotations

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
