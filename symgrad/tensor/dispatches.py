"""Dispatches whose invocations share nothing, and grids of many groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from symgrad.kernel.language import Target
from symgrad.kernel.launch import Dispatch, Program
from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.kernel.target import WorkgroupTarget

ALONE_INVOCATIONS: Final = 256
"""Invocations of a group that share nothing."""


def each_of(
    program: Program,
    device_target: Target,
    arrays: Sequence[tuple[str, str]],
    count: int,
    words: Sequence[tuple[str, int]],
) -> Dispatch:
    """The dispatch of a program with an invocation for each of so many numbers."""
    target = (
        replace(device_target, width=ALONE_INVOCATIONS)
        if isinstance(device_target, WorkgroupTarget)
        else device_target
    )
    target = in_grid(target, -(-count // target.width))
    return Dispatch(program, target, tuple(arrays), count, arguments=tuple(words))


def in_grid(target: Target, groups: int) -> Target:
    """The target, with groups in several rows if they are too many for one."""
    if isinstance(target, WorkgroupTarget) and groups > MAX_WORKGROUPS:
        return replace(target, grid=True)
    return target
