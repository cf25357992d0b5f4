"""Sums of columns, as dispatches: what gradients of biases and of other shared arrays are."""

from __future__ import annotations

import math
from typing import Final

from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Dispatch
from symgrad.kernel.programs.epilogue import ColumnsProgram
from symgrad.tensor.dispatches import each_of

CHUNK: Final = 64
"""Rows up to which the sums of columns are made in one go."""


def sums_of(table: str, rows: int, n: int, each: int, out: str, traits: Target) -> Dispatch:
    """The sums of every so many rows of n numbers: chunks, the last of which may be shorter."""
    numbers = ("n", n), ("rows", rows), ("each", each)
    arrays, chunks = (("table", table), ("sums", out)), max(1, -(-rows // each))
    if traits.in_step:
        count = chunks * -(-n // traits.width) * traits.width
        return Dispatch(ColumnsProgram(), traits, arrays, count, 0, numbers)
    return each_of(ColumnsProgram(), traits, arrays, chunks * n, numbers)


def column_sums(
    table: str, rows: int, n: int, out: str, traits: Target
) -> tuple[list[Dispatch], list[Array]]:
    """The sums of all rows, in chunks if there are many, and the memory that this takes."""
    if rows <= CHUNK:
        return [sums_of(table, rows, n, max(rows, 1), out, traits)], []
    each = max(CHUNK // 2, math.isqrt(rows))
    chunks = -(-rows // each)
    room = Array(f"chunks_of_{out}", (chunks, n))
    first = sums_of(table, rows, n, each, room.name, traits)
    return [first, sums_of(room.name, chunks, n, chunks, out, traits)], [room]
