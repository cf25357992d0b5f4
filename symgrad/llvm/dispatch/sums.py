"""Sums over rows on the CPU: pieces of them on all cores, and the same bits whoever sums them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from symgrad.kernel.memory import POOL
from symgrad.kernel.partial_sums import Added
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.rows import rows_program
from symgrad.kernel.stats import weight_of
from symgrad.kernel.summing import Summing
from symgrad.kernel.target import SimdTarget
from symgrad.llvm.device.host import host
from symgrad.llvm.device.pointers import address
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.device.threads import share_out, worth
from symgrad.llvm.dispatch.points import definitions_for
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import print_kernel
from symgrad.llvm.printing.source import CACHE_LINE_BYTES, LONG_BATCH, Source

ROWS_PER_PIECE: Final = 2**15
"""Rows that are summed in one piece: what the sums are does not depend on who computes them."""

OPERATIONS_PER_PIECE: Final = 2**23
"""Operations in such a piece, at most: fewer rows, where each takes many, but some at least."""

LEAST_ROWS_PER_PIECE: Final = 2**8

ROWS_PER_LANE: Final = {"float32": 8, "float64": 32}
"""Rows of a lane after which their sum is added to float64. Rows that are all the same have errors
of one sign, which grow with it: of 8 floats up to 1.5e-7 of their sum, of 16 up to 2.7e-7."""

FACTOR_BYTES: Final = 2**18
"""Bytes of factors that blocks of rows leave behind, which have to stay in the cache."""

RESULTS_IN_REGISTERS: Final = 24
"""Results up to which accumulators stay in registers."""

LONG_ROW_OPERATIONS: Final = 3_000
"""Operations up to which they do, as these are one function then: `LONG_BATCH` of them if it is
compiled quickly."""

TABLE_COPIES: Final = 8
"""Tables that results are added to side by side, if they go to the entries of tables."""


def target_of(shape: Shape, thorough: bool = False) -> SimdTarget:
    """What sums over rows are written for."""
    size = shape.itemsize * shape.lanes
    longest = LONG_ROW_OPERATIONS if thorough else LONG_BATCH
    registers = 32 if size == CACHE_LINE_BYTES else 16
    limits = RESULTS_IN_REGISTERS, longest, FACTOR_BYTES // size
    summing = Summing(*limits, registers, not thorough, LONG_ROW_OPERATIONS)
    wide = "ff" if shape.dtype == "float64" else "d"
    return SimdTarget(shape.lanes, block=ROWS_PER_LANE[shape.dtype], wide=wide, summing=summing)


class Sums:
    """Runs a reduction on all cores: the same bits every time, whatever the number of cores."""

    def __init__(self, reduction: Reduction, math: str, dtype: str) -> None:
        start = time.perf_counter()
        self.reduction, self.dtype = reduction, np.dtype(dtype)
        self._shape = host().shape(dtype, True, math != "strict")
        self._definitions = definitions_for(math, dtype)
        self.lanes = self._shape.lanes
        self.count = sum(len(o.nodes) for o in reduction.summed)
        """How many results are summed over all rows."""
        rows, least = OPERATIONS_PER_PIECE // len(reduction.graph), LEAST_ROWS_PER_PIECE
        self.rows = max(least, min(ROWS_PER_PIECE, rows // least * least))
        """How many rows a piece has."""
        inputs = self.dtype.itemsize * reduction.columns
        self._weight = weight_of(reduction.graph) + inputs
        self.function = Function(self._source)
        self.seconds = time.perf_counter() - start

    def _source(self, thorough: bool) -> Source:
        reduction, functions, shape = self.reduction, self._definitions, self._shape
        kernel = rows_program(reduction, target_of(shape, thorough))
        quick = not reduction.is_structured
        return print_kernel(kernel, functions, shape, thorough=thorough, quick=quick)

    def run(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """parameters (n,), rows (N, columns), C-contiguous -> the sums (results,) in float64."""
        return self.run_with_tables(parameters, rows)[0]

    def bind(self, rows: np.ndarray, indices: np.ndarray | None = None) -> BoundSums:
        """The sums over these rows, for any parameters, and any tables that they look up."""
        return BoundSums(self, rows, indices)

    def run_with_tables(
        self,
        parameters: np.ndarray,
        rows: np.ndarray,
        indices: np.ndarray | None = None,
        tables: Sequence[np.ndarray] = (),
    ) -> Added:
        """The sums (results,) in float64, and for each lookup what was added to its entries.

        parameters (n,), rows (N, columns), indices (N, count) int32 and tables (entries, width) are
        C-contiguous, all but the indices of the kernel's dtype.
        """
        job = _Pass(self, parameters, rows, indices, tables)
        threads = self.threads(len(rows))
        if job.pieces and tables:
            share_out(job.fill, job.slots, 1, threads)
        elif job.pieces:
            share_out(job.sum_up, job.pieces, 1, threads)
        job.sum_rest()
        entries = [
            a.sum(axis=0)[: t.size].reshape(t.shape) for a, t in zip(job.added, tables, strict=True)
        ]
        return job.total(), entries

    def threads(self, rows: int) -> int:
        """How many threads so many rows are worth."""
        return worth(rows * self._weight, self.lanes)


class _Pass:
    """One pass over the rows: pieces of them, whose sums are rows of ``partial``.

    With tables, each of the ``slots`` has arrays of its own to which the results are ``added`` that
    go to entries of tables: for a share of the pieces, the same whoever does it.
    """

    def __init__(
        self,
        sums: Sums,
        parameters: np.ndarray,
        rows: np.ndarray,
        indices: np.ndarray | None = None,
        tables: Sequence[np.ndarray] = (),
    ) -> None:
        self.sums, self.parameters, self.rows, self.indices = sums, parameters, rows, indices
        self.tables = [np.concatenate([t.ravel(), np.zeros(sums.lanes, t.dtype)]) for t in tables]
        self._whole = len(rows) // sums.lanes * sums.lanes
        self._ends = [*range(0, self._whole, sums.rows), self._whole]
        self.pieces = len(self._ends) - 1
        self.partial = np.zeros((self.pieces + 1, sums.count))
        self.slots = min(TABLE_COPIES, self.pieces)
        shapes = [(max(1, self.slots), t.size) for t in self.tables]
        self.added = [POOL.empty(shape, self.partial.dtype) for shape in shapes]
        arrays = [a for a in (rows, indices) if a is not None]
        self._last = [_padded(a[self._whole :], sums.lanes) for a in arrays]
        """The last rows, and their indices: calls know no more than where they stand."""

    def calls(self) -> Iterator[Callable[[], None]]:
        """What sums up all rows of a pass without tables."""
        yield from self._pieces(0, self.pieces, 0)
        yield from self._rest()

    def total(self) -> np.ndarray:
        """The sums over all rows."""
        if len(self.partial) == 2:
            return self.partial[0] + self.partial[1]
        pieces = self.partial.T.copy()  # NumPy adds whole rows in turn, within a row in halves
        return pieces.sum(axis=1)

    def sum_up(self, first: int, end: int, slot: int = 0) -> None:
        """Sum up some pieces."""
        for call in self._pieces(first, end, slot):
            call()

    def _pieces(self, first: int, end: int, slot: int) -> Iterator[Callable[[], None]]:
        caller = self._caller(slot, self.rows, self.indices)
        return (caller(k, self._ends[k], self._ends[k + 1]) for k in range(first, end))

    def fill(self, first: int, end: int) -> None:
        """Sum up the pieces of some slots."""
        for slot in range(first, end):
            for a in self.added:
                a[slot] = 0.0
            begin, stop = (self.pieces * k // self.slots for k in (slot, slot + 1))
            self.sum_up(begin, stop, slot)

    def sum_rest(self) -> None:
        """Sum up the last rows, fewer than a vector has lanes."""
        if not self.pieces:
            for a in self.added:
                a[0] = 0.0
        for call in self._rest():
            call()

    def _rest(self) -> Iterator[Callable[[], None]]:
        rest = len(self.rows) - self._whole
        if rest:
            rows, *indices = self._last
            yield self._caller(0, rows, *indices)(self.pieces, 0, rest)

    def _caller(
        self, slot: int, rows: np.ndarray, indices: np.ndarray | None = None
    ) -> Callable[[int, int, int], Callable[[], None]]:
        """What makes a call that sums up some of these rows, in a row of ``partial``."""
        function, lanes, sums = self.sums.function, self.sums.lanes, self.partial
        workspace, run = function.own_workspace(), function.call
        p, x, to = address(self.parameters), address(rows), address(sums)
        size, width = sums.strides[0], rows.itemsize * rows.shape[1]
        more = [address(a) for a in (*self.tables, *(a[slot] for a in self.added))]
        at = None if indices is None else (address(indices), indices.strides[0])

        def call(row: int, first: int, end: int) -> Callable[[], None]:
            index = [] if at is None else [at[0] + first * at[1]]
            arrays = x + first * width, p, to + row * size, *index, *more, workspace
            return partial(run, *arrays, 0, lanes, False, end - first, 1)

        return call


class BoundSums:
    """A reduction and its rows. If they are few, each thread has what it works in at hand."""

    def __init__(self, sums: Sums, rows: np.ndarray, indices: np.ndarray | None) -> None:
        self.sums, self.rows, self.indices = sums, rows, indices
        self._alone = sums.threads(len(rows)) == 1
        self._local = threading.local()

    def run_with_tables(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> Added:
        """The sums, and for each lookup what was added to its table's entries, all in float64."""
        return self.sums.run_with_tables(parameters, self.rows, self.indices, tables)

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """parameters (n,) -> the sums (results,) in float64."""
        if not self._alone:
            return self.sums.run(parameters, self.rows)
        try:
            job, calls = self._local.job
        except AttributeError:
            mine = np.empty_like(parameters)
            job = _Pass(self.sums, mine, self.rows)
            calls = list(job.calls())
            self._local.job = job, calls
        job.parameters[:] = parameters
        for call in calls:
            call()
        return job.total()


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    """The rows, and the last one again as often as makes up this count: loops end there as well."""
    padded = np.empty((count if len(rows) else 0, rows.shape[1]), rows.dtype)
    padded[: len(rows)], padded[len(rows) :] = rows, rows[-1:]
    return padded
