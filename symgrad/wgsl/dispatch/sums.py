"""Runs sums over rows on a GPU: rows go up once or with every call, parameters with every call.

A call costs one write, one submit and one wait; the partial sums of all workgroups come back
together and are added in float64. Very many are added on the device before, with their rounding
errors. Rows that no binding can hold are cut into blocks. Where rows look up entries
of tables, the tables go up with every call, and what is added to them comes back.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.errors import DeviceError, DeviceMemoryError, InputError
from symgrad.expr.graph.node import Op
from symgrad.kernel import watch
from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.kernel.memory import POOL
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.lookup import Place
from symgrad.kernel.table_gradients import indices_of, quads
from symgrad.mathlib.define import Function
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.groups import BUSY, BUSY_SOFTWARE, groups_of
from symgrad.wgsl.dispatch.launch import require_iterations
from symgrad.wgsl.dispatch.slopes import Lookups, in_order, table_words
from symgrad.wgsl.dispatch.sum_dispatch import SumDispatch
from symgrad.wgsl.dispatch.summation import READ, Summation, emit_reduction, runs_module
from symgrad.wgsl.memory.encoding import Copy, Step
from symgrad.wgsl.memory.pool import in_pieces
from symgrad.wgsl.printing.source import Style

HOST_BYTES = 1 << 26
"""Device memory that rows of data on the host may take; more of them go through it in turn."""

PADDING = 16
"""Bytes that bindings are whole multiples of: those of a vec4<f32>."""

ROWS_ALIGNED = 64
"""Rows that blocks are whole multiples of, so that all are in whole loads."""

ARRAYS = 3, 6
"""Bindings besides the uniform block: the rows, the parameters and the partial sums, and with
lookups the indices, the tables and the slopes."""

Found = tuple[np.ndarray, list[np.ndarray]]
"""Sums, and for each lookup what was added to its table's entries."""

SLOPE_BYTES = 1 << 29
"""Memory for the slopes of rows, which are added up before the next rows' are written."""

SUMS_FOLDED_ON_HOST = 1 << 14
"""Partial sums of a dispatch beyond which they are added on the device, not on the host."""


class Sums:
    """A compiled reduction. Any number of threads may use it; they take turns.

    Args:
        gpu: where it runs.
        reduction: what is summed.
        functions: the library's functions, for the choice of mathematics.
        style: what the source says beside the code.

    Raises:
        DeviceError: the GPU binds too few arrays, cannot hold a row, or refuses a module, which
            is a defect of symgrad (the message is naga's).
    """

    def __init__(
        self,
        gpu: Gpu,
        reduction: Reduction,
        functions: Mapping[Op, Function],
        style: Style | None = None,
    ) -> None:
        start = time.perf_counter()
        self.gpu, self.reduction = gpu, reduction
        with watch.stage("emit"):
            self.modules = emit_reduction(reduction, functions, style)
        self.busy = BUSY_SOFTWARE if gpu.info.kind == "software" else BUSY
        rows = (self.most_groups(m) * m.width * m.most for m in self.modules)
        self.block = min(_checked_block(gpu, reduction, self.modules), *rows)
        require_iterations(gpu, max(m.iterations for m in self.modules))
        self.pipelines = [self._pipeline(m) for m in self.modules]
        self.tables = {m: [gpu.constants(some) for some in m.tables] for m in self.modules}
        """The constants of each module."""
        self._lock = threading.Lock()
        self._streams: dict[int, BoundSums] = {}
        gpu.hold(self)
        self.seconds = time.perf_counter() - start

    def _pipeline(self, module: Summation) -> Any:
        """A compiled module, which binds the rows and then as much as all do."""
        arrays = _arrays(self.reduction) + len(module.tables)
        writable = arrays - module.readable + (module.slots > 0)
        return self.gpu.pipeline(module.source, writable, module.readable)

    def most_groups(self, module: Summation) -> int:
        """The workgroups that a dispatch may have: as many as there is scratch memory for."""
        if not module.slots:
            return MAX_WORKGROUPS
        return max(1, min(MAX_WORKGROUPS, self.gpu.max_binding // module.scratch(1)))

    @cached_property
    def results(self) -> int:
        """The number of sums."""
        return sum(len(o.nodes) for o in self.reduction.summed)

    def run(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """parameters (n,), rows (N, columns), float32 in C order -> sums (results,) in float64.

        The rows go through a part of the device's memory in blocks.
        """
        self.require(rows)
        self.require_parameters(parameters)
        totals = np.zeros(self.results)
        step = max(
            HOST_BYTES // _row_bytes(self.reduction) // ROWS_ALIGNED * ROWS_ALIGNED, ROWS_ALIGNED
        )

        def add(start: int, end: int) -> None:
            sums = self._stream(end - start).replaced(rows[start:end]).run(parameters)
            np.add(totals, sums, out=totals)

        with self._lock, np.errstate(invalid="ignore"):
            in_pieces(len(rows), min(step, self.block), ROWS_ALIGNED, add)
        return totals

    def run_with_tables(
        self,
        parameters: np.ndarray,
        rows: np.ndarray,
        indices: np.ndarray,
        tables: Sequence[np.ndarray],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The sums, and for each lookup what was added to its table's entries, all in float64.

        indices (N, count) are integers that name entries of the tables (entries, width), float32.
        """
        return self.bind(rows, indices).run_with_tables(parameters, tables)

    def bind(self, rows: np.ndarray | DeviceArray, indices: np.ndarray | None = None) -> BoundSums:
        """Sums over these rows (N, columns), float32 in C order, which are copied to the device.

        Those that are there already are taken as they are.

        So are the indices (N, count) of the entries that they look up, and the order of these.
        There the rows are in the order of the index with most slopes.
        """
        self.require(rows)
        count = indices_of(self.reduction)
        if count and (indices is None or indices.shape != (len(rows), count)):
            raise InputError(f"indices for {len(rows)} rows: expected ({len(rows)}, {count})")
        if isinstance(rows, DeviceArray):
            return self._allocated(len(rows), indices, rows)
        if indices is not None:
            rows, indices = in_order(self.reduction, rows, indices)
        return self._allocated(len(rows), indices).replaced(rows)

    def _allocated(self, count: int, indices: np.ndarray | None, *rows: DeviceArray) -> BoundSums:
        """Memory for rows; if there is too little, slopes of fewer of them are kept at a time."""
        while True:
            try:
                return BoundSums(self, count, indices, *rows)
            except DeviceMemoryError:
                block = min(self.block, count) // 2 // ROWS_ALIGNED * ROWS_ALIGNED
                if not self.reduction.lookups or not block:
                    raise
                self.block = block

    def pipeline_of_runs(self, count: int, place: Place | None) -> Any:
        """What adds up runs of so many quads of slopes, compiled once for the device."""
        return self.gpu.pipeline(runs_module(count, place), 1, READ)

    def require(self, rows: np.ndarray | DeviceArray) -> None:
        """Refuse rows of another width."""
        if rows.ndim != 2 or rows.shape[1] != self.reduction.columns:
            raise InputError(f"rows of shape {rows.shape}: expected (N, {self.reduction.columns})")
        if isinstance(rows, DeviceArray):
            assert rows.dtype == np.float32 and rows.gpu is self.gpu, "not float32 on this GPU"
        else:
            assert rows.dtype == np.float32 and rows.flags.c_contiguous, "not float32 in C order"

    def require_parameters(self, parameters: np.ndarray) -> None:
        """Refuse another number of parameters."""
        n = self.reduction.parameters
        if parameters.shape != (n,):
            raise InputError(f"parameters of shape {parameters.shape}: expected ({n},)")

    def _stream(self, count: int) -> BoundSums:
        """Memory for this many rows on the device, the last two sizes kept."""
        bound = self._streams.pop(count, None)
        if bound is None:
            while len(self._streams) > 1:
                self._streams.pop(next(iter(self._streams)))
            try:
                bound = BoundSums(self, count)
            except DeviceMemoryError:
                self._streams.clear()
                raise
        self._streams[count] = bound
        return bound

    def let_go(self) -> None:
        """Give back the memory that is kept between calls, unless one is under way."""
        if self._lock.acquire(blocking=False):
            self._streams.clear()
            self._lock.release()


class BoundSums:
    """Sums over rows that stay on the device. Any number of threads may use it; they take turns."""

    def __init__(
        self,
        sums: Sums,
        count: int,
        indices: np.ndarray | None = None,
        rows: DeviceArray | None = None,
    ) -> None:
        """Takes memory for ``count`` rows, which `replaced` fills, unless they are there."""
        self.sums, self.count = sums, count
        gpu, width = sums.gpu, _row_bytes(sums.reduction)
        gpu.check()
        self._lock = threading.Lock()
        self._device_rows = rows if rows is not None and rows.size else None
        counts = [min(sums.block, count - k) for k in range(0, count, sums.block)]
        copied = counts if self._device_rows is None else []
        self._storages = [gpu.storage(_padded(n * width)) for n in copied]
        self._blocks = list(zip(counts, self._places(counts), strict=True))
        self._parameters = gpu.storage(self._parameter_bytes)
        self._padded = np.zeros(self._parameter_bytes // 4, np.float32)
        self._parts = list(self._planned())
        end = max((part.end for part in self._parts), default=0)
        self._lookups: Lookups | None = None
        if sums.reduction.lookups and indices is not None:
            self._lookups = Lookups(
                gpu, sums.reduction, indices, counts, end, sums.pipeline_of_runs
            )
            end = self._lookups.end
        self._nbytes = 4 * end
        self._results = gpu.storage(self._nbytes)
        self._staging = gpu.staging()
        self._steps: list[Step] = []

    @property
    def _parameter_bytes(self) -> int:
        return _padded(4 * self.sums.reduction.parameters)

    def _places(self, counts: Sequence[int]) -> Iterator[Range]:
        """Where the rows of each block are: in whole vectors, of which the last may go beyond."""
        width = _row_bytes(self.sums.reduction)
        for block, count in enumerate(counts):
            if self._device_rows is None:
                buffer, first = self._storages[block].buffer, 0
            else:
                buffer, first, _ = self._device_rows.rows(block * self.sums.block, count)
            yield buffer, first, _padded(count * width)

    def _planned(self) -> Iterator[SumDispatch]:
        """Every module over every block of rows."""
        first = 0
        for block, (count, rows) in enumerate(self._blocks):
            for module, pipeline in zip(self.sums.modules, self.sums.pipelines, strict=True):
                dispatch = self._part(module, pipeline, rows, block, count, first)
                first = dispatch.end
                yield dispatch

    def _part(
        self, module: Summation, pipeline: Any, rows: Range, block: int, count: int, first: int
    ) -> SumDispatch:
        """A module over a block of so many rows."""
        groups = self._groups(module, count) if module.summed or module.slopes else 1
        partials = None
        if groups > 1 and groups * module.columns > SUMS_FOLDED_ON_HOST:
            partials = self.sums.gpu.storage(4 * module.size(groups))
        scratch = None
        if module.slots:
            scratch = self.sums.gpu.storage(module.scratch(groups))
        return SumDispatch(module, pipeline, rows, block, count, groups, first, partials, scratch)

    def _groups(self, module: Summation, count: int) -> int:
        """The workgroups of a module for so many rows."""
        most = self.sums.most_groups(module)
        return groups_of(module, count, self.sums.busy, most)

    def replaced(self, rows: np.ndarray) -> BoundSums:
        """These sums, after rows (count, columns) have been copied to the device."""
        assert len(rows) == self.count, "there is memory for another number of rows"
        start = 0
        for (count, _), storage in zip(self._blocks, self._storages, strict=True):
            self.sums.gpu.upload(storage, rows[start : start + count])
            start += count
        return self

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """parameters (n,), float32 -> sums (results,) in float64."""
        return self.run_with_tables(parameters, ())[0]

    def run_with_tables(
        self, parameters: np.ndarray, tables: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The sums, and for each lookup what was added to its table's entries, all in float64."""
        run = self.running(parameters, tables)
        next(run)
        return ended(run)

    def running(
        self, parameters: np.ndarray, tables: Sequence[np.ndarray]
    ) -> Generator[None, None, Found]:
        """`run_with_tables`, which stops once between what it submits and what it waits for."""
        self.sums.require_parameters(parameters)
        words = table_words(self.sums.reduction, tables)
        totals = np.zeros(self.sums.results)
        if not self.count:
            yield
            return totals, [np.zeros(t.shape) for t in tables]
        gpu = self.sums.gpu
        gpu.check()
        with self._lock, gpu.guard:
            self._submit(parameters, words)
            yield
            numbers = POOL.empty((self._nbytes // 4,), np.dtype(np.float32), aligned=False)
            self._staging.read(self._nbytes, [(0, numbers)])
            with np.errstate(invalid="ignore", over="ignore"):
                for part in self._parts:
                    part.add_to(totals, numbers, gpu)
                return totals, self._lookups.entries(tables, numbers) if self._lookups else []

    def _submit(self, parameters: np.ndarray, words: np.ndarray) -> None:
        """Start the dispatches, and the copy of all that they write."""
        gpu = self.sums.gpu
        self._padded[: len(parameters)] = parameters
        gpu.write(self._parameters.buffer, 0, self._padded)
        moved = self._lookups.load(words) if self._lookups else False
        if moved or not self._steps:
            self._steps = list(self._planned_steps())
        target = self._staging.claim(self._nbytes)
        gpu.submit(self._steps, self._copies(target))

    def _copies(self, target: Any) -> list[Copy]:
        """The results, and what stands before partial sums that were added up."""
        return [Copy(self._results.buffer, 0, target, 0, self._nbytes)] + [
            Copy(
                part.partials.buffer, 0, target, 4 * (part.first + part.pairs), 4 * part.module.head
            )
            for part in self._parts
            if part.partials
        ]

    def _planned_steps(self) -> Iterator[Step]:
        """Block by block what is computed at its rows, and then what is added to entries."""
        for block, group in itertools.groupby(self._parts, lambda part: part.block):
            for part in group:
                yield Step(part.pipeline, self._bound(part), part.groups)
                yield from part.folded(self.sums.gpu, self._results)
            if self._lookups:
                yield from self._lookups.steps(block, self._results)

    def _bound(self, part: SumDispatch) -> Any:
        """The arrays of a part's dispatch."""
        looked, block = self._lookups, part.block
        arrays = [part.source, (self._parameters.buffer, 0, self._parameter_bytes)]
        arrays += looked.read(block) if looked else []
        arrays += [(t.buffer, 0, t.nbytes) for t in self.sums.tables[part.module]]
        arrays.append(part.target(self._results))
        arrays += [looked.slopes(block)] if looked else []
        if part.scratch:
            arrays.append((part.scratch.buffer, 0, part.scratch.buffer.size))
        return self.sums.gpu.bind(part.rows, arrays, part.module.readable)


def ended(run: Generator[None, None, Found]) -> Found:
    """What a run gives that has submitted its work."""
    try:
        next(run)
    except StopIteration as end:
        return end.value
    raise AssertionError("a run stops once")


def _row_bytes(reduction: Reduction) -> int:
    return 4 * max(reduction.columns, 1)


def _padded(nbytes: int) -> int:
    return max(-(-nbytes // PADDING) * PADDING, PADDING)


def _arrays(reduction: Reduction) -> int:
    """Bindings besides the uniform block, and scratch memory."""
    return ARRAYS[bool(reduction.lookups)]


def _checked_block(gpu: Gpu, reduction: Reduction, modules: Sequence[Summation]) -> int:
    """The rows that one dispatch takes, or a DeviceError if it takes none."""
    needed = _arrays(reduction) + max(len(m.tables) for m in modules)
    if gpu.max_arrays < needed:
        raise DeviceError(f"{gpu.info.name} binds {gpu.max_arrays} arrays, a sum has {needed}")
    widest = max(_row_bytes(reduction), 16 * len(quads(reduction)))
    fit = gpu.max_binding // widest // ROWS_ALIGNED * ROWS_ALIGNED
    if not fit:
        raise DeviceError(
            f"{gpu.info.name} holds {gpu.max_binding:,} bytes in one array, too few for "
            f"{ROWS_ALIGNED} rows of {widest // 4:,} numbers"
        )
    if not reduction.lookups:
        return fit
    scratch = SLOPE_BYTES // widest // ROWS_ALIGNED * ROWS_ALIGNED
    return min(fit, max(scratch, ROWS_ALIGNED))
