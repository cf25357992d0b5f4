"""Plans sums over rows on a GPU: the kernels, the workgroups, and the blocks that a binding holds.

A call costs one write, one submit and one wait: it is that of a launch whose rows stay on the
device, and what comes back is added in float64. Where rows look up entries of tables, the tables go
up with every call, and what is added to them comes back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from symgrad.errors import DeviceError
from symgrad.expr.graph.node import Op
from symgrad.kernel import watch
from symgrad.kernel.launch import Program
from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.kernel.row_tile import ROWS_PER_BLOCK
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.sums_in_workgroups import (
    TileSums,
    WorkgroupSumsLaunch,
    workgroup_sums_launch,
)
from symgrad.kernel.table_gradients import in_order, quads
from symgrad.mathlib.define import Function
from symgrad.values.dtypes import host_dtype
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.compiled import Compiled, require_iterations
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.dispatch.summation import SUM_INVOCATIONS, Summation, emit_reduction
from symgrad.wgsl.dispatch.workspace import Held
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


class WorkgroupSums:
    """Plans sums over rows for the workgroups of a GPU: see `symgrad.sums.Planner`.

    Args:
        gpu: where they run.
        reduction: what is summed.
        functions: the library's functions, for the choice of mathematics.
        style: what the source says beside the code.

    Raises:
        DeviceError: the GPU binds too few arrays, cannot hold a row, or refuses a module, which
            is a defect of symgrad (the message is naga's).
    """

    needs_sizes = False

    def __init__(
        self,
        gpu: Gpu,
        reduction: Reduction,
        functions: Mapping[Op, Function],
        style: Style | None = None,
    ) -> None:
        start = time.perf_counter()
        self.gpu, self.reduction, self._style = gpu, reduction, style or Style()
        self._floats = self._style.floats.dtype
        with watch.stage("emit"):
            self.modules = emit_reduction(reduction, functions, self._style)
        self.busy = BUSY_SOFTWARE if gpu.info.kind == "software" else BUSY
        self._scratch = {m.program: m.scratch(1) for m in self.modules}
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
        most = HOST_BYTES // nbytes // ROWS_ALIGNED * ROWS_ALIGNED
        return min(max(most, ROWS_ALIGNED), self.block)

    def most_groups(self, program: TileSums) -> int:
        """The workgroups that a dispatch may have: as many as there is scratch memory for."""
        nbytes = self._scratch[program]
        if not nbytes:
            return MAX_WORKGROUPS
        return max(1, min(MAX_WORKGROUPS, self.gpu.max_binding // nbytes))

    def plan(
        self, count: int, indices: np.ndarray | None = None, sizes: Sequence[int] = ()
    ) -> WorkgroupSumsLaunch:
        """The launch that sums over so many rows, whatever the sizes of tables are."""
        counts = [min(self.block, count - k) for k in range(0, count, self.block)]
        programs = tuple(self._scratch)
        return workgroup_sums_launch(self.reduction, programs, counts, self._groups, indices)

    def _groups(self, program: TileSums, count: int) -> int:
        """The workgroups of a dispatch over so many rows."""
        return groups_of(program, count, self.busy, self.most_groups(program))

    def hold(
        self,
        rows: np.ndarray | DeviceArray,
        indices: np.ndarray | None = None,
        sizes: Sequence[int] = (),
    ) -> tuple[WorkgroupSumsLaunch, Held]:
        """A launch over these rows, floats, which are copied to the device if they are not there.

        There those of the host are in the order of the index with most slopes.
        """
        if isinstance(rows, DeviceArray):
            assert rows.dtype == self._floats and rows.gpu is self.gpu, f"not {self._floats}"
        else:
            host = host_dtype(self._floats)
            assert rows.dtype == host and rows.flags.c_contiguous, f"not {host}"
            if indices is not None:
                rows, indices = in_order(self.reduction, rows, indices)
        plan = self.plan(len(rows), indices)
        style = Style(dtype=self._style.dtype)
        launched = Launched(self.gpu, plan.launch, style, self._kernels)
        held = launched.hold(plan.resident(rows, indices))
        return replace(plan, indices={}), held  # it has them

    def shrink(self, count: int) -> bool:
        """Whether so many rows may take less memory, as slopes of fewer are kept at a time."""
        block = min(self.block, count) // 2 // ROWS_ALIGNED * ROWS_ALIGNED
        if not self.reduction.lookups or not block:
            return False
        self.block = block
        return True


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
