"""A dispatch of the sums over rows: what it adds up, and where its numbers stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.wgsl.arrays.strided import ALIGNMENT
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.summation import Summation, fold_module
from symgrad.wgsl.memory.encoding import Step
from symgrad.wgsl.memory.pool import Storage


@dataclass(frozen=True)
class SumDispatch:
    """One module over one block of rows, whose numbers start at float ``first`` of the results.

    ``partials`` takes them if there are many, to be added up first. Then the results have two
    numbers for each sum, and the first of the partial numbers. ``scratch`` is memory in which the
    module works, if it needs any.
    """

    module: Summation
    pipeline: Any
    source: Range
    block: int
    rows: int
    groups: int
    first: int
    partials: Storage | None
    scratch: Storage | None

    @cached_property
    def size(self) -> int:
        """Numbers that the module writes."""
        return self.module.size(self.groups)

    @cached_property
    def pairs(self) -> int:
        """Numbers that those of the sums become."""
        return 2 * self.module.columns

    @cached_property
    def end(self) -> int:
        """The float of the results at which others may begin."""
        size = self.pairs + self.module.head if self.partials else self.size
        return self.first + -(-4 * max(size, 1) // ALIGNMENT) * ALIGNMENT // 4

    def target(self, results: Storage) -> Range:
        """Where the module writes."""
        nbytes = 4 * max(self.size, 1)
        if self.partials:
            return self.partials.buffer, 0, nbytes
        return results.buffer, 4 * self.first, nbytes

    def folded(self, gpu: Gpu, results: Storage) -> Iterator[Step]:
        """The dispatch that adds up partial sums, if there are many."""
        if self.partials:
            arrays = [
                (self.partials.buffer, 0, 4 * self.size),
                (results.buffer, 4 * self.first, 4 * self.pairs),
            ]
            bound = gpu.bind(self.groups, arrays)
            yield Step(gpu.pipeline(fold_module(), 1), bound, self.module.columns)

    def add_to(self, sums: np.ndarray, numbers: np.ndarray, gpu: Gpu) -> None:
        """Add the sums among all numbers, in a fixed order and times their factors."""
        mine, module = numbers[self.first : self.end], self.module
        if self.partials:
            head = mine[self.pairs :]
            pairs = mine[: self.pairs].reshape(-1, 2)[module.wanted]
            totals = pairs.sum(axis=1, dtype=np.float64)
            if not np.isfinite(totals).all():  # what float32 cannot hold, float64 may
                totals = self._added(self._downloaded(gpu))
        else:
            head, totals = mine, self._added(mine)
        count = len(module.results)
        if len(module.summed) < count:
            totals = self._with_fixed(totals, head[count : module.head])
        sums[module.results.start : module.results.stop] += totals * head[:count]

    def _added(self, numbers: np.ndarray) -> np.ndarray:
        """The partial sums of each result, added up."""
        partial = numbers[self.module.head : self.size].reshape(-1, self.groups)
        return partial[self.module.wanted].sum(axis=1, dtype=np.float64)

    def _downloaded(self, gpu: Gpu) -> np.ndarray:
        assert self.partials, "the partial sums are among the results"
        numbers = np.empty(self.size, np.float32)
        gpu.download(self.partials, numbers)
        return numbers

    def _with_fixed(self, summed: np.ndarray, values: np.ndarray) -> np.ndarray:
        """All results: the sums, and those that have one value at every row."""
        start = self.module.results.start
        totals = np.empty(len(self.module.results))
        totals[np.array(self.module.summed, int) - start] = summed
        totals[np.array(self.module.fixed, int) - start] = self.rows * values.astype(np.float64)
        return totals
