"""Arrays put one behind the other, and sums of their parts: programs around others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.statements import Buffer
from symgrad.kernel.words import Word

TOGETHER: Final = 4
"""Parts of a sum that are read before the first is added."""


@dataclass(frozen=True)
class Joined:
    """The program that writes arrays of these names to ``joined``, one behind the other.

    It has an argument for where each begins, its name with ``_start``; ``count`` is the end.
    """

    names: tuple[str, ...]

    def __call__(self, target: Target) -> Kernel:
        """The program for a target."""
        k = Kernel(target, "joined")
        arrays = [k.buffer(name, "read") for name in self.names]
        joined = k.buffer("joined", "write")
        starts = [Word(k, k.argument(f"{name}_start")) for name in self.names]
        ends = [*starts[1:], Word(k, k.count)]
        for array, start, end in zip(arrays, starts, ends, strict=True):
            self._copy(k, array, joined, start, end)
        return k

    def _copy(self, k: Kernel, array: Buffer, joined: Buffer, start: Word, end: Word) -> None:
        cell = Word(k, k.cell)
        inside = k.add(ops.logical_not, cell.below(start))
        here = k.add(ops.logical_and, inside, cell.below(end))
        at = k.add(ops.word_where, here, (cell - start).id, k.word(0))
        k.when(here, lambda: k.store(joined, k.cell, k.load(array, at)))


@dataclass(frozen=True)
class SumOfParts:
    """The program of sums over the middle axis of (outer, ``parts``, ``inner``) numbers.

    They begin in ``x`` at the argument ``start``; ``count`` is that of the sums.
    """

    def __call__(self, target: Target) -> Kernel:
        """The program for a target."""
        k = Kernel(target, "sum_of_parts")
        x, sums = k.buffer("x", "read"), k.buffer("sums", "write")
        start, parts, inner = (Word(k, k.argument(name)) for name in ("start", "parts", "inner"))
        point = Word(k, target.point(k))
        outer = point // inner
        first = start + outer * parts * inner + (point - outer * inner)

        def add(turn: int, carries: Sequence[int]) -> Sequence[int]:
            (sum_,) = carries
            for p in (Word(k, turn) * TOGETHER + i for i in range(TOGETHER)):
                value = k.load(x, (first + p.at_most(parts - 1) * inner).id)
                known = k.add(ops.where, p.below(parts), value, k.constant(0.0))
                sum_ = k.add(ops.add, sum_, known)
            return [sum_]

        turns = parts.up(TOGETHER).id
        (total,), _ = k.loop(k.word(0), turns, [k.constant(0.0)], add)
        k.when(Word(k, k.cell).below(Word(k, k.count)), lambda: k.store(sums, k.cell, total))
        return k
