"""Dispatches that many calls have: of invocations that share nothing, and of sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Dispatch, Program
from symgrad.kernel.skeletons.parts import SumOfParts

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


def sums_of(
    table: str, rows: int, n: int, each: int, out: str, device_target: Target, start: int = 0
) -> Dispatch:
    """The sums of every so many rows of n numbers: chunks, the last of which may be shorter.

    The first row begins at number ``start`` of the table.
    """
    numbers = ("n", n), ("rows", rows), ("each", each), ("start", start)
    chunks, arrays = max(1, -(-rows // each)), (("x", table), ("sums", out))
    if device_target.in_step:
        count = chunks * -(-n // device_target.width) * device_target.width
        return Dispatch(SumOfParts(), device_target, arrays, count, 0, numbers)
    return each_of(SumOfParts(), device_target, arrays, chunks * n, numbers)
