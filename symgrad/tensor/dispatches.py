"""Dispatches that many calls have: of invocations that share nothing, and of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Dispatch, Program
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


ROWS_PER_CHUNK: Final = 64
"""Rows up to which the sums of columns are made in one go."""


def sums_of(
    table: str, rows: int, n: int, each: int, out: str, device_target: Target, start: int = 0
) -> Dispatch:
    """The sums of every so many rows of n numbers: chunks, the last of which may be shorter.

    The first row begins at number ``start`` of the table.
    """
    return _sums(table, rows, n, each, [out], device_target, start)


def _sums(
    table: str,
    rows: int,
    n: int,
    each: int,
    outs: Sequence[str],
    device_target: Target,
    start: int = 0,
) -> Dispatch:
    """A dispatch as above; several results each have some of the columns of the only chunk."""
    numbers = ("n", n), ("rows", rows), ("each", each), ("start", start)
    program, chunks = SumOfParts(len(outs)), max(1, -(-rows // each))
    arrays = ("x", table), *((f"sums{i or ''}", out) for i, out in enumerate(outs))
    if device_target.in_step:
        count = chunks * -(-n // device_target.width) * device_target.width
        return Dispatch(program, device_target, arrays, count, 0, numbers)
    return each_of(program, device_target, arrays, chunks * n, numbers)


def column_sums(
    table: str, rows: int, n: int, outs: Sequence[str], device_target: Target
) -> tuple[list[Dispatch], list[Array]]:
    """The sums of all rows, in chunks if there are many, and the memory that this takes.

    Rows are of numbers for each of several results, one behind the other.
    """
    if rows <= ROWS_PER_CHUNK:
        return [_sums(table, rows, n, max(rows, 1), outs, device_target)], []
    each = max(ROWS_PER_CHUNK // 2, math.isqrt(rows))
    chunks = -(-rows // each)
    partial = Array(f"chunks_of_{outs[0]}", (chunks, n))
    first = sums_of(table, rows, n, each, partial.name, device_target)
    return [first, _sums(partial.name, chunks, n, chunks, outs, device_target)], [partial]
