"""Dispatches that many calls have: of invocations that share nothing, of sums, and of parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.launch import Dispatch, Program

# Arrays put one behind the other, and sums of their parts: programs around others.

PARTS_LOADED: Final = 4
"""Parts of a sum that are read before the first is added."""


@dataclass(frozen=True)
class Joined:
    """The program that writes arrays of these names to ``joined``, one behind the other.

    It has an argument for where each begins, its name with ``_start``; ``count`` is the end.
    """

    names: tuple[str, ...]

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "joined")
        arrays = [k.buffer(name, "read") for name in self.names]
        joined = k.buffer("joined", "write")
        starts = [Index(k, k.argument(f"{name}_start")) for name in self.names]
        ends = [*starts[1:], Index(k, k.count)]
        for array, start, end in zip(arrays, starts, ends, strict=True):
            self._copy(k, array, joined, start, end)
        return k

    def _copy(self, k: KernelIR, array: Buffer, joined: Buffer, start: Index, end: Index) -> None:
        cell = Index(k, k.cell)
        inside = k.add(ops.logical_not, cell.below(start))
        within = k.add(ops.logical_and, inside, cell.below(end))
        at = k.add(ops.word_where, within, (cell - start).id, k.word(0))
        k.when(within, lambda: k.store(joined, k.cell, k.load(array, at)))


@dataclass(frozen=True)
class SumOfParts:
    """The program of sums over the middle axis of (outer, ``each``, ``n``) numbers.

    They begin in ``x`` at the argument ``start``, and are ``rows`` rows of n: the last sum may have
    fewer parts. An invocation has one sum; a group in step has neighbours of one outer index, so
    that it reads them together.
    """

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "sum_of_parts")
        x, sums = k.buffer("x", "read"), k.buffer("sums", "write")
        start, rows, each, n = (
            Index(k, k.argument(name)) for name in ("start", "rows", "each", "n")
        )

        def put(outer: Index, column: Index) -> None:
            first = outer * each
            total = _sum(k, x, start + first * n + column, n, each.at_most(rows - first))
            k.store(sums, (outer * n + column).id, total)

        cell = Index(k, k.cell)
        if not target.in_step:
            k.when(cell.below(Index(k, k.count)), lambda: put(cell // n, cell % n))
            return k
        group, width = Index(k, k.group), target.width
        blocks = n.ceil_div(width)
        outer, first = group // blocks, group % blocks * width
        column = first + Index(k, k.local)

        def whole() -> Sequence[int]:
            put(outer, column)
            return ()

        def rest() -> Sequence[int]:
            k.when(column.below(n), lambda: put(outer, column))
            return ()

        k.choose(n.below(first + width), rest, whole)
        return k


def _sum(k: KernelIR, x: Buffer, start: Index, n: Index, parts: Index) -> int:
    """The sum of so many numbers, n apart; groups that are not in step read some at once."""
    together = 1 if k.target.in_step else PARTS_LOADED

    def add(iteration: int, sums: Sequence[int]) -> Sequence[int]:
        (total,) = sums
        for i in range(together):
            part = Index(k, iteration) * together + i
            at = part.at_most(parts - 1) if together > 1 else part
            value = k.load(x, (start + at * n).id)
            if together > 1:
                value = k.add(ops.where, part.below(parts), value, k.constant(0.0))
            total = k.add(ops.add, total, value)
        return [total]

    (total,), _ = k.loop(k.word(0), parts.ceil_div(together).id, [k.constant(0.0)], add)
    return total


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
