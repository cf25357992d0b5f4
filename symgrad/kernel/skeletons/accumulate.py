"""Scans by an associative operation, part by part, each by a group or by an invocation alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.skeletons.accumulation import Accumulation, Pass
from symgrad.kernel.skeletons.group_scan import Together


@dataclass(frozen=True)
class Accumulate(Pass):
    """The program of a pass."""

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "totals" if self.totals else "scan")
        return (Together if self.chunk else Alone)(k, self).kernel()


class Alone(Accumulation):
    """An invocation has a part of a sequence, and goes from element to element."""

    def kernel(self) -> KernelIR:
        """The whole program."""
        k = self.k
        cell, count = Index(k, k.cell), Index(k, k.count)
        point = Index(k, k.target.point(k))
        inside = cell.below(count)
        rest = point // self.columns
        column, row = point - rest * self.columns, rest // self.parts
        part = rest - row * self.parts
        start = part * self.span
        end = (start + self.span).at_most(self.length)

        def iteration(place: int, carried: Sequence[int]) -> Sequence[int]:
            at = Index(k, place)
            element = self.element(lambda i: self.read(row, at, column, i))
            if self.program.totals:
                return self.after(start.below(at), carried, element)
            scanned = self.after(Index(k, k.word(0)).below(at), carried, element)
            self.store(row, at, column, scanned, inside)
            return scanned

        first = self.nothing()
        if self.program.several:
            first = self.load_total(row, part - part.at_most(1), column)
        total, _ = k.loop(start.id, end.id, first, iteration)
        if self.program.totals:
            self.store_total(row, part, column, total, inside)
        return k
