"""Runs sums over rows on a GPU: rows go up once or with every call, parameters with every call.

A call costs one write, one submit and one wait: it is that of a launch whose rows stay on the
device, and what comes back is added in float64. Rows that no binding can hold are cut into blocks.
Where rows look up entries of tables, the tables go up with every call, and what is added to them
comes back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from symgrad.errors import DeviceError, DeviceMemoryError, InputError
from symgrad.expr.graph.node import Op
from symgrad.kernel import watch
from symgrad.kernel.launch import Program
from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.kernel.partial_sums import Added
from symgrad.kernel.row_tile import ROWS_PER_BLOCK
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.row_sums import (
    SumsLaunch,
    TileSums,
    sums_launch,
    table_words,
    whole_quads,
)
from symgrad.kernel.table_gradients import in_order, indices_of, quads
from symgrad.mathlib.define import Function
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.compiled import Compiled, require_iterations
from symgrad.wgsl.dispatch.launch import Held, Launched
from symgrad.wgsl.dispatch.summation import SUM_INVOCATIONS, Summation, emit_reduction
from symgrad.wgsl.dispatch.workspace import NUMBER_BYTES, QUAD_BYTES, Place, whole
from symgrad.wgsl.memory.pool import Storage, in_pieces
from symgrad.wgsl.printing.source import Style

HOST_BYTES = 1 << 26
"""Device memory that rows of data on the host may take; more of them go through it in turn."""

ROWS_ALIGNED = 64
"""Rows that blocks are whole multiples of, so that all are in whole loads."""

ARRAYS = 3, 6
"""Bindings besides the uniform block: the rows, the parameters and the partial sums, and with
lookups the indices, the tables and the slopes."""

SLOPE_BYTES = 1 << 29
"""Memory for the slopes of rows, which are added up before the next rows' are written."""

BUSY = 512
"""Workgroups that a GPU needs to be busy: fewer rows than these could add are shared by them."""

BUSIER = 1024
"""As `BUSY`, where they have no more than `SUMS_ADDED_ON_HOST` partial sums: four sums over 16
million rows of three columns take an H200 53 us with these, and 63 with `BUSY` ones."""

SUMS_ADDED_ON_HOST = 8_192
"""Partial sums that the host adds up in no time, about."""

BUSY_LONG = 2048
"""As `BUSY`, of smaller workgroups for rows with loops, of which an invocation may have one:
on an H200 a million rows of 80 iterations take 0.65 of the time that they take 512 workgroups."""

BUSY_SOFTWARE = 8
"""As `BUSY`, for a driver in software, for which a workgroup's tree costs as much as many rows."""


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
        self._scratch = {m.program: m.scratch(1) for m in self.modules}
        rows = (self.most_groups(p) * p.width * p.most for p in self._scratch)
        self.block = min(_checked_block(gpu, reduction, self.modules), *rows)
        require_iterations(gpu, max(m.printed.iterations for m in self.modules))
        self.kernels: Mapping[Program, Compiled] = {
            m.program: Compiled(gpu, m.printed) for m in self.modules
        }
        self._lock = threading.Lock()
        self._streams: dict[int, BoundSums] = {}
        gpu.hold(self)
        self.seconds = time.perf_counter() - start

    def most_groups(self, program: TileSums) -> int:
        """The workgroups that a dispatch may have: as many as there is scratch memory for."""
        nbytes = self._scratch[program]
        if not nbytes:
            return MAX_WORKGROUPS
        return max(1, min(MAX_WORKGROUPS, self.gpu.max_binding // nbytes))

    def launch(self, rows: int, indices: np.ndarray | None = None) -> SumsLaunch:
        """The launch that sums over so many rows."""
        counts = [min(self.block, rows - k) for k in range(0, rows, self.block)]
        return sums_launch(self.reduction, tuple(self._scratch), counts, self._groups, indices)

    def _groups(self, program: TileSums, count: int) -> int:
        """The workgroups of a dispatch over so many rows."""
        return groups_of(program, count, self.busy, self.most_groups(program))

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
    ) -> Added:
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
        self.sums, self.count, self._columns = sums, count, sums.reduction.columns
        sums.gpu.check()
        self._lock = threading.Lock()
        self._device_rows = rows if rows is not None and rows.size else None
        self._storages, self._indices = list[Storage](), list[Storage]()
        self._padded = np.zeros(whole_quads(sums.reduction.parameters), np.float32)
        launch = sums.launch(count, indices)
        resident = dict(self._resident(launch))
        self._launch = replace(launch, indices={}) if launch.indices else launch
        self._held: Held | None = None
        if count:
            launched = Launched(sums.gpu, launch.launch, Style(), sums.kernels)
            self._held = launched.hold(resident)

    def _resident(self, launch: SumsLaunch) -> Iterator[tuple[str, Place]]:
        """The places of the inputs that stay from call to call, by their names."""
        start = 0
        for name, count in launch.rows.items():
            if self._device_rows is None:
                self._storages.append(self._storage(whole_quads(count * self._columns)))
                yield name, whole(self._storages[-1])
            else:
                buffer, first, _ = self._device_rows.rows(start, count)
                yield name, (buffer, first, 0)
            start += count
        for name, words in launch.indices.items():
            self._indices.append(self._storage(words.size))
            self.sums.gpu.upload(self._indices[-1], words)
            yield name, whole(self._indices[-1])

    def _storage(self, numbers: int) -> Storage:
        return self.sums.gpu.storage(NUMBER_BYTES * numbers or QUAD_BYTES)

    def replaced(self, rows: np.ndarray) -> BoundSums:
        """These sums, after rows (count, columns) have been copied to the device."""
        assert len(rows) == self.count, "there is memory for another number of rows"
        start = 0
        for count, storage in zip(self._launch.rows.values(), self._storages, strict=True):
            self.sums.gpu.upload(storage, rows[start : start + count])
            start += count
        return self

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """parameters (n,), float32 -> sums (results,) in float64."""
        return self.begin(parameters, ())()[0]

    def run_with_tables(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> Added:
        """The sums, and for each lookup what was added to its table's entries, all in float64."""
        return self.begin(parameters, tables)()

    def begin(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> Callable[[], Added]:
        """Start `run_with_tables`, and give the function that waits for it: it has to be called."""
        run = self._running(parameters, tables)
        next(run)
        return partial(_ended, run)

    def _running(
        self, parameters: np.ndarray, tables: Sequence[np.ndarray]
    ) -> Generator[None, None, Added]:
        """`run_with_tables`, which stops once between what it submits and what it waits for."""
        sums, held, gpu = self.sums, self._held, self.sums.gpu
        sums.require_parameters(parameters)
        words = [table_words(sums.reduction, tables)] if sums.reduction.lookups or tables else []
        if held is None:
            yield
            return np.zeros(sums.results), [np.zeros(t.shape) for t in tables]
        if words:
            _require_tables(gpu, words[0].nbytes)
        gpu.check()
        with self._lock, gpu.guard:
            self._padded[: len(parameters)] = parameters
            held.begin(self._padded, *words)
            yield
            outputs = held.finish()
            with np.errstate(invalid="ignore", over="ignore"):
                total = self._launch.total(outputs, held.read)
                return total, self._launch.added(tables, outputs) if tables else []


def _ended(run: Generator[None, None, Added]) -> Added:
    """Wait for a run that has submitted its work: its sums."""
    try:
        next(run)
    except StopIteration as end:
        return end.value
    raise AssertionError("a run stops once")


def _require_tables(gpu: Gpu, nbytes: int) -> None:
    """Refuse tables that no binding holds."""
    if nbytes > gpu.max_binding:
        raise DeviceError(
            f"{gpu.info.name} holds {gpu.max_binding:,} bytes in one array: "
            f"parameters that are looked up have {nbytes:,}"
        )


def _row_bytes(reduction: Reduction) -> int:
    return 4 * max(reduction.columns, 1)


def _arrays(reduction: Reduction) -> int:
    """Bindings besides the uniform block, and scratch memory."""
    return ARRAYS[bool(reduction.lookups)]


def _checked_block(gpu: Gpu, reduction: Reduction, modules: Sequence[Summation]) -> int:
    """The rows that one dispatch takes, or a DeviceError if it takes none."""
    needed = _arrays(reduction) + max(len(m.printed.tables) for m in modules)
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


def workgroups(
    count: int, most: int, busy: int, width: int = SUM_INVOCATIONS, fewest: int = ROWS_PER_BLOCK
) -> int:
    """How many add up this many rows, of which each of ``width`` invocations may have ``most``.

    They have at least the ``fewest``, where the workgroups are no more than keep a GPU ``busy``.
    """
    needed = -(-count // (width * most))
    useful = -(-count // (width * fewest))
    return max(needed, min(busy, useful), 1)


def groups_of(program: TileSums, count: int, busy: int, most: int) -> int:
    """The workgroups of a kernel for so many rows, ``most`` unless it takes more.

    ``busy`` keep the GPU busy, by its kind.
    """
    fewest, tile = ROWS_PER_BLOCK, program.tile
    if busy == BUSY and tile.whole.is_structured:
        busy, fewest = BUSY_LONG, 1
    elif (
        busy == BUSY and BUSIER * program.results.columns <= SUMS_ADDED_ON_HOST and not tile.slopes
    ):
        busy = BUSIER
    return workgroups(count, program.most, min(busy, most), program.width, fewest)
