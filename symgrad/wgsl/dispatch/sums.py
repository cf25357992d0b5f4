"""Sums over rows on a GPU: the kernels, the workgroups, the blocks that a binding holds, and rows.

A call costs one write, one submit and one wait: it is that of a launch whose rows stay on the
device, and what comes back is added in float64. Where rows look up entries of tables, these go up
with the parameters, and what is added to them comes back.

Every workgroup writes a partial sum; a kernel adds these up where there are many. Many results are
products of few factors where that pays, see `group_products`; others are cut into tiles, of a
module each, that read the same rows. (Subgroup sums would need another source for each front end
and save nothing: with this tree four Gaussians over 16 million rows take 47 us on an H200, at 70 %
of a copy's bandwidth.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError, DeviceMemoryError, InputError
from symgrad.kernel.host import watch
from symgrad.kernel.host.memory import in_pieces
from symgrad.kernel.host.threads import converted
from symgrad.kernel.language.target import MAX_WORKGROUPS
from symgrad.kernel.launch import Program, RowSums
from symgrad.kernel.passes.split import MOST_ITERATIONS
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.map import Pattern
from symgrad.kernel.skeletons.row_sums_workgroup import WIDTH, Products, in_products
from symgrad.kernel.skeletons.row_tile import (
    RESULTS_PER_MODULE,
    ROWS_PER_BLOCK,
    Tile,
    cut,
    in_order,
    quads,
    tiles,
)
from symgrad.kernel.skeletons.sums_in_workgroups import (
    SUMS_FOLDED_ON_HOST,
    TileSums,
    WorkgroupSumsLaunch,
)
from symgrad.values.arrays import host_dtype
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.compiled import Compiled, require_iterations
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.dispatch.workspace import Held
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style, printable

SUM_INVOCATIONS: Final = 256
"""Invocations of a workgroup, unless something else is better."""

LONG_SUM_INVOCATIONS: Final = 64
"""Invocations of a workgroup whose rows have loops."""


@dataclass(frozen=True, eq=False)
class Summation:
    """A module that sums some of the results; entry point "main", workgroups of ``program.width``.

    Bindings: 0 is the uniform block, whose count is that of the rows; then come ``readable`` ones:
    the rows and the parameters, padded to 16 bytes, the indices and tables that rows look up, and
    constants, if any. The next takes the numbers of `Results`. Slopes and scratch memory follow, if
    there are any.
    """

    program: TileSums
    printed: Printed
    itemsize: int
    """The bytes of a number of scratch memory."""

    @property
    def source(self) -> str:
        """The WGSL."""
        (source,) = self.printed.modules
        return source

    @property
    def readable(self) -> int:
        """How many of its bindings are only read."""
        return sum(b.space == "read" for b in self.printed.bound)

    def scratch(self, groups: int) -> int:
        """Bytes of scratch memory that this many workgroups need."""
        return self.itemsize * self.printed.slots * self.program.width * groups


def emit_reduction(reduction: Reduction, style: Style) -> tuple[Summation, ...]:
    """The modules of a reduction; together they sum all results."""

    def printed(tile: Tile, width: int, most: int, products: Products | None = None) -> Summation:
        program = TileSums(tile, width, most, products)
        kernel = print_kernel(program(program.target), style, [*_header(tile, style)])
        return Summation(program, kernel, style.floats.dtype.itemsize)

    def of_loops(tile: Tile) -> Summation:
        """A module of rows with loops, whose invocations have few rows: drivers end long loops."""
        summation = printed(tile, LONG_SUM_INVOCATIONS, tile.most)
        iterations = summation.printed.iterations
        if iterations <= MOST_ITERATIONS:
            return summation
        most = tile.most * MOST_ITERATIONS // iterations // ROWS_PER_BLOCK * ROWS_PER_BLOCK
        return printed(tile, LONG_SUM_INVOCATIONS, max(1, most))

    if reduction.is_structured:
        return tuple(of_loops(tile) for tile in cut(reduction, min(RESULTS_PER_MODULE)))
    plain = tiles(reduction)
    if len(plain) > 1 and (products := in_products(reduction)):
        return tuple(printed(p.tile, WIDTH, p.tile.most, p) for p in products)
    return tuple(printed(tile, SUM_INVOCATIONS, tile.most) for tile in plain)


def _header(tile: Tile, style: Style) -> Iterator[str]:
    """The head of the kernel, for its reader."""
    r, k, labels = tile.whole, tile.whole.columns, tile.labels
    nbytes = style.floats.dtype.itemsize * k
    sums = ", ".join(f"{o.name} ({len(o.nodes)})" for o in r.summed)
    yield f"// {printable(style.title or r.name)}"
    yield f"// in: {r.parameters:,} parameters, rows (N, {k}); out: sums over rows of {sums}"
    if r.lookups:
        looked = ", ".join(f"{t.width} by index {t.index}" for t in r.lookups)
        names = ", ".join(o.name for o in r.outputs[len(r.summed) :])
        yield f"// looked up in tables: {looked}; out, for every row: slopes {names}"
    each, once = (f"{len(part):,} operations" for part in (tile.split.each, tile.split.once))
    if r.is_structured:  # how often its loops turn, no count of what stands there tells
        yield f"// {nbytes:,} bytes a row; {style.dtype}, C order; math: {style.math}"
    else:
        yield (
            f"// {each} and {nbytes:,} bytes a row, {once} once; {style.dtype}, C order; "
            f"math: {style.math}"
        )
    if len(tile.cut) < len(labels):
        first, last = labels[tile.cut[0]], labels[tile.cut[-1]]
        yield f"// this kernel sums {first} to {last}; others, from the same rows, the rest"


HOST_BYTES = 1 << 26
"""Device memory that rows of data on the host may take; more of them go through it in turn."""

ARRAYS = 3, 5
"""Bindings besides the uniform block: the rows, the parameters and the partial sums, and with
lookups the indices and the slopes."""

ROWS_ALIGNED: Final = 64
"""Rows that parts of a table which go through a device are whole multiples of."""

STREAMS: Final = 2
"""Numbers of rows for which there is memory on a device, for rows that go through it."""

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


class WorkgroupSums(RowSums):
    """Sums over rows in the workgroups of a GPU.

    Args:
        gpu: where they run.
        reduction: what is summed.
        style: the mathematics and the dtype, and what the source says beside the code.

    Raises:
        DeviceError: the GPU binds too few arrays, cannot hold a row, or refuses a module, which
            is a defect of symgrad (the message is naga's).
    """

    def __init__(self, gpu: Gpu, reduction: Reduction, style: Style) -> None:
        start = time.perf_counter()
        super().__init__(reduction)
        self.gpu, self._style = gpu, style
        self._floats = self._style.floats.dtype
        with watch.stage("emit"):
            self.modules = emit_reduction(reduction, style)
        self.busy = BUSY_SOFTWARE if gpu.info.kind == "software" else BUSY
        self.host_bytes, self.most_partials = HOST_BYTES, SUMS_FOLDED_ON_HOST
        self._scratch = {m.program: m.scratch(1) for m in self.modules}
        self._streams: dict[int, Held] = {}
        rows = (self.most_groups(p) * p.width * p.most for p in self._scratch)
        itemsize = self._floats.itemsize
        self.block = min(_checked_block(gpu, reduction, self.modules, itemsize), *rows)
        """Rows of a block."""
        require_iterations(gpu, max(m.printed.iterations for m in self.modules))
        self._kernels: Mapping[Program, Compiled] = {
            m.program: Compiled(gpu, m.printed, self._floats) for m in self.modules
        }
        self.seconds = time.perf_counter() - start

    @property
    def streamed(self) -> int:
        """Rows of the host that go through the device at a time."""
        nbytes = _row_bytes(self.reduction, self._floats.itemsize)
        most = self.host_bytes // nbytes // ROWS_ALIGNED * ROWS_ALIGNED
        return min(max(most, ROWS_ALIGNED), self.block)

    def most_groups(self, program: TileSums) -> int:
        """The workgroups that a dispatch may have: as many as there is scratch memory for."""
        nbytes = self._scratch[program]
        if not nbytes:
            return MAX_WORKGROUPS
        return max(1, min(MAX_WORKGROUPS, self.gpu.max_binding // nbytes))

    def run(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sums: rows go through the memory of the device in parts."""
        expected = (self.reduction.packed_size,)
        if numbers.shape != expected:
            raise InputError(f"parameters of shape {numbers.shape}: expected {expected}")
        self.require(rows, None)
        totals = np.zeros(self.reduction.results)

        def add(start: int, end: int) -> None:
            sums = self._over(numbers, rows[start:end])
            with np.errstate(invalid="ignore"):
                np.add(totals, sums, out=totals)

        in_pieces(len(rows), self.streamed, ROWS_ALIGNED, add)
        return totals

    def _over(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sums over rows in memory for as many, which stays for the next."""
        stream = self._streams.pop(len(rows), None)
        if stream is None:
            while len(self._streams) >= STREAMS:
                self._streams.pop(next(iter(self._streams)))
            try:
                stream = self.hold(rows)
            except DeviceMemoryError:
                self._streams.clear()
                raise
        else:
            stream.replace({"rows0": rows})
        sums = stream.run(numbers)
        self._streams[len(rows)] = stream
        return sums

    def let_go(self) -> None:
        """Give back the memory that is kept between calls."""
        self._streams.clear()

    def plan(self, count: int, indices: np.ndarray | None = None) -> WorkgroupSumsLaunch:
        """The launch that sums over so many rows."""
        counts = [min(self.block, count - k) for k in range(0, max(count, 1), self.block)]
        programs = tuple(self._scratch)
        return WorkgroupSumsLaunch(
            self.reduction, programs, counts, self._groups, indices, self.most_partials
        )

    def _groups(self, program: TileSums, count: int) -> int:
        """The workgroups of a dispatch over so many rows."""
        return groups_of(program, count, self.busy, self.most_groups(program))

    def hold(self, rows: np.ndarray | DeviceArray, indices: np.ndarray | None = None) -> Held:
        """A launch over these rows, floats, which are copied to the device if they are not there.

        There those of the host are in the order of the index with most slopes. If memory is short,
        slopes of fewer rows are kept at a time.
        """
        if isinstance(rows, DeviceArray):
            assert rows.dtype == self._floats and rows.gpu is self.gpu, f"not {self._floats}"
        else:
            host = host_dtype(self._floats)
            assert rows.dtype == host and rows.flags.c_contiguous, f"not {host}"
            if indices is not None:
                rows, indices = in_order(self.reduction, rows, indices)
        style = Style(dtype=self._style.dtype)
        while True:
            plan = self.plan(len(rows), indices)
            try:
                launched = Launched(self.gpu, plan.launch, style, self._kernels)
                return launched.hold(plan.resident(rows, indices))
            except DeviceMemoryError:
                block = min(self.block, len(rows)) // 2 // ROWS_ALIGNED * ROWS_ALIGNED
                if not self.reduction.lookups or not block:
                    raise
                self.block = block


def _row_bytes(reduction: Reduction, itemsize: int) -> int:
    return itemsize * max(reduction.columns, 1)


def _arrays(reduction: Reduction) -> int:
    """Bindings besides the uniform block, and scratch memory."""
    return ARRAYS[bool(reduction.lookups)]


def _checked_block(
    gpu: Gpu, reduction: Reduction, modules: Sequence[Summation], itemsize: int
) -> int:
    """The rows that one dispatch takes, or a DeviceError if it takes none."""
    needed = _arrays(reduction) + max(len(m.printed.tables) for m in modules)
    if gpu.max_arrays < needed:
        raise DeviceError(f"{gpu.info.name} binds {gpu.max_arrays} arrays, a sum has {needed}")
    widest = max(_row_bytes(reduction, itemsize), 4 * itemsize * len(quads(reduction)))
    fit = gpu.max_binding // widest // ROWS_ALIGNED * ROWS_ALIGNED
    if not fit:
        raise DeviceError(
            f"{gpu.info.name} holds {gpu.max_binding:,} bytes in one array, too few for "
            f"{ROWS_ALIGNED} rows of {widest // itemsize:,} numbers"
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


# Points of kernels over rows, put together on a GPU: parameters, columns, and entries of tables.
#
# So rows that stay there are not copied again, and those that do not go up as they are.

POINTS_BYTES: Final = 1 << 26
"""Memory for points that are put together: of more rows there are some at a time."""


WORD_TYPE: Final = np.dtype(np.uint32)


class Rows:
    """Rows on a GPU, of which a kernel computes something at each. Any number of threads may.

    Args:
        gpu: where they go.
        pattern: what a point consists of.
        numbers: (N, columns), which are rounded to the kernel's floats, or are there already.
        indices: (N, indices), whole numbers of 32 bits that are not negative.
    """

    def __init__(
        self,
        gpu: Gpu,
        pattern: Pattern,
        numbers: np.ndarray | DeviceArray,
        indices: np.ndarray,
    ) -> None:
        self.gpu, self.pattern, self._style = gpu, pattern, Style(dtype=pattern.dtype)
        self._floats = self._style.floats.dtype
        self._launches: Once[tuple[int, int], Launched] = Once(4)
        on_device = isinstance(numbers, DeviceArray) and numbers.size
        some = numbers if on_device else _some(np.asarray(numbers))
        on_gpu = isinstance(some, DeviceArray)
        self._numbers = some if on_gpu else DeviceArray.from_numpy(gpu, some, self._floats)
        words = converted(_some(indices), WORD_TYPE)
        self._indices = DeviceArray.from_numpy(gpu, words.view(FLOAT))

    def empty(self, shape: tuple[int, ...]) -> DeviceArray:
        """An array beside them with anything in it, for results."""
        return DeviceArray.empty(self.gpu, shape, self._floats)

    def compute(
        self, launched: Launched, parameters: np.ndarray, results: Sequence[Any], first: int
    ) -> None:
        """Fill results (count, k), here or there, of as many rows from ``first`` on.

        ``first`` is a multiple of 64.

        ``parameters`` are those of every point, and then all that entries are taken from.
        """
        count, gpu = len(results[0]), self.gpu
        gpu.check()
        sent = DeviceArray.from_numpy(gpu, _some(parameters), self._floats)
        width = self._floats.itemsize * self.pattern.width
        step = max(POINTS_BYTES // width // ROWS_ALIGNED, 1) * ROWS_ALIGNED
        with gpu.guard, gpu.transfers.download() as down:

            def run(start: int, end: int) -> None:
                points = self._points(sent, first + start, end - start)
                if isinstance(results[0], DeviceArray):
                    launched.bind([points], [result[start:end] for result in results])()
                    return
                pairs = zip(launched.run(points), results, strict=True)
                down.get(*(array.into(result[start:end]) for array, result in pairs))

            in_pieces(count, step, ROWS_ALIGNED, run)

    def _points(self, parameters: DeviceArray, start: int, count: int) -> DeviceArray:
        """The points (count, width) of some rows."""
        points = DeviceArray.empty(self.gpu, (count, self.pattern.width), self._floats)
        sources = {
            "parameters": (parameters, 0, len(parameters)),
            "numbers": (self._numbers, start, count),
            "indices": (self._indices, start, count),
        }
        ranges = [a.rows(*some) for a, *some in map(sources.__getitem__, self.pattern.sources)]
        launched = self._launches.get(
            (count, len(parameters)), partial(self._launched, count, len(parameters))
        )
        launched.submit(1, [*ranges, points.rows(0, count)])
        return points

    def _launched(self, count: int, parameters: int) -> Launched:
        """The launch that puts so many points together."""
        return Launched(self.gpu, self.pattern.launch(count, parameters), self._style)


def _some(array: np.ndarray) -> np.ndarray:
    """The array, or another that is there, for one without elements cannot be bound."""
    return array if array.size else np.zeros(1, array.dtype)
