"""Sums over rows on the CPU: pieces of them on all cores, and the same bits whoever sums them."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import numpy as np

from symgrad.cache import Once
from symgrad.kernel.language.target import SimdTarget, Summing
from symgrad.kernel.launch import RowSums
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.sums_in_lanes import LaneSums, LaneSumsLaunch
from symgrad.kernel.stats import weight_of
from symgrad.llvm.device.cpu import host
from symgrad.llvm.dispatch.compiled import Compiled
from symgrad.llvm.dispatch.launch import Held, Launched
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.source import CACHE_LINE_BYTES
from symgrad.values.arrays import host_dtype

ROWS_PER_PIECE: Final = 2**15
"""Rows that are summed in one piece: what the sums are does not depend on who computes them."""

OPERATIONS_PER_PIECE: Final = 2**23
"""Operations in such a piece, at most: fewer rows, where each takes many, but some at least."""

LEAST_ROWS_PER_PIECE: Final = 2**8

ROWS_PER_LANE: Final = {"float32": 8, "float64": 32, "float32x2": 32}
"""Rows of a lane after which their sum is added to float64. Rows that are all the same have errors
of one sign, which grow with it: of 8 floats up to 1.5e-7 of their sum, of 16 up to 2.7e-7."""

LONG_ROW_OPERATIONS: Final = 3_000
"""Operations up to which accumulators stay in registers, as these are one function then:
`CodeSizes.long_batch` of them if it is compiled quickly."""

CACHED_LAUNCHES: Final = 4
"""Launches over other numbers of rows that a reduction keeps."""


def target_of(reduction: Reduction, shape: Shape) -> SimdTarget:
    """The lanes that sums over rows are written for, and the limits of what they keep."""
    size = shape.itemsize * shape.lanes
    rows, least = OPERATIONS_PER_PIECE // len(reduction.graph), LEAST_ROWS_PER_PIECE
    summing = Summing(
        carried=shape.sizes.carried_results,
        operations=shape.sizes.long_batch,
        cached=shape.sizes.factor_bytes // size,
        registers=32 if size == CACHE_LINE_BYTES else 16,
        brief=True,
        together=LONG_ROW_OPERATIONS,
        piece=max(least, min(ROWS_PER_PIECE, rows // least * least)),
    )
    return SimdTarget(
        shape.lanes,
        block=ROWS_PER_LANE[shape.dtype],
        wide="ff" if shape.dtype == "float64" else "d",
        summing=summing,
        quick=not reduction.is_structured,
    )


class SimdSums(RowSums):
    """Sums over rows in the lanes of the CPU."""

    def __init__(self, reduction: Reduction, math: str, dtype: str) -> None:
        start = time.perf_counter()
        super().__init__(reduction)
        self._math, self._name, self.dtype = math, dtype, host_dtype(dtype)
        shape = host().shape(dtype, True, math != "strict")
        self.target = target_of(reduction, shape)
        program = LaneSums(reduction)
        self.kernels = {program: Compiled(program, self.target, math, dtype)}
        inputs = self.dtype.itemsize * reduction.columns
        self._program, self._weight = program, weight_of(reduction.graph) + inputs
        self._launches: Once[int, tuple[LaneSumsLaunch, Launched]] = Once(CACHED_LAUNCHES)
        self.seconds = time.perf_counter() - start

    def plan(self, count: int, indices: np.ndarray | None = None) -> LaneSumsLaunch:
        """The launch over so many rows."""
        return LaneSumsLaunch(self._program, self.target, count, self._weight)

    def hold(self, rows: np.ndarray, indices: np.ndarray | None) -> Held:
        """A launch over these rows where they are."""
        plan, launched = self._launches.get(len(rows), partial(self._launched, len(rows)))
        return launched.hold(plan.resident(rows, indices))

    def _launched(self, count: int) -> tuple[LaneSumsLaunch, Launched]:
        plan = self.plan(count)
        return plan, Launched(plan.launch, self._math, self._name, self.kernels)
