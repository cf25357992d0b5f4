"""Dispatches whose invocations share nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from symgrad.kernel.language import Target
from symgrad.kernel.launch import Dispatch, Program

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
    target = device_target.of_width(ALONE_INVOCATIONS)
    target = target.in_grid(-(-count // target.width))
    return Dispatch(program, target, tuple(arrays), count, arguments=tuple(words))
