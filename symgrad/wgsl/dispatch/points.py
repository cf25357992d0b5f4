"""Runs compiled kernels: host arrays or arrays on the device in, the same kind out.

A small call costs one write, one submit and one wait. A large one goes through in chunks, which are
computed while other points and results are on their way; so do batches that no dispatch or binding
can hold. Chunks are of whole workgroups, with the results in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError, InputError
from symgrad.kernel.layout import POINTS_PER_WORKGROUP, Layout
from symgrad.kernel.memory import POOL
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.arrays.strided import ALIGNMENT
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.memory.copying import converted
from symgrad.wgsl.memory.encoding import Copy, Step
from symgrad.wgsl.memory.pool import Storage, in_pieces
from symgrad.wgsl.memory.transfer import QUEUED_BYTES, Download, Segment, Upload

HOST_BYTES = 1 << 26
"""Device memory that rows of data on the host may take; more of them go through it in turn."""

STREAMED_BYTES = 1 << 24
"""Device memory that points on the host and their results may take, which go through in turn."""

SCRATCH_BYTES = 1 << 31
"""Scratch memory that runs may take; larger batches go through it in turn."""

SOFTWARE_BYTES = 1 << 28
"""As `SCRATCH_BYTES`, for a driver in software, which is no faster with more."""


@dataclass(frozen=True)
class _Frame:
    """How ``count`` points run in a workspace: the bindings, and where results stand in bytes."""

    bindings: Any
    starts: tuple[int, ...]
    nbytes: int


class _Workspace:
    """The buffers of host runs of up to ``capacity`` points, all results in one of them."""

    def __init__(self, gpu: Gpu, layout: Layout, capacity: int) -> None:
        self.capacity = capacity
        self.points = gpu.storage(4 * layout.n_inputs * capacity)
        self.results = gpu.storage(sum(_aligned(4 * k * capacity) for k in layout.outputs))
        self.scratch = gpu.storage(16 * layout.scratch * capacity) if layout.scratch else None
        self.staging = gpu.staging()
        self.frames: Once[int, _Frame] = Once(16)


class Program:
    """A compiled sequence of WGSL modules, entry point "main" each, run one after another.

    All modules see the bindings of ``layout``: the uniform block, the points, the outputs and, if
    there is one, the scratch array. Several threads may run one Program; they take turns.

    Args:
        gpu: where it runs.
        modules: WGSL sources, at least one.
        layout: the arrays.
        iterations: how often an invocation iterates in all loops of a module together, at most.
        tables: constants that modules read, bound behind the points.

    Raises:
        DeviceError: the GPU takes no kernel with such wide points or so many outputs, or ends
            loops before that, or refuses a module, which is a defect of symgrad (the message is
            naga's).
    """

    def __init__(
        self,
        gpu: Gpu,
        modules: Sequence[str],
        layout: Layout,
        iterations: int = 0,
        tables: Sequence[Sequence[float]] = (),
    ) -> None:
        start = time.perf_counter()
        require_iterations(gpu, iterations)
        self.gpu = gpu
        self.layout = layout
        self.chunk = _checked_chunk(gpu, layout, len(tables))
        self._tables = [gpu.constants(numbers) for numbers in tables]
        writable = len(layout.outputs) + (layout.scratch > 0)
        self._pipelines = [gpu.pipeline(source, writable, 1 + len(tables)) for source in modules]
        self._lock = threading.Lock()
        self._workspace: _Workspace | None = None
        self._scratch: Storage | None = None
        gpu.hold(self)
        self.seconds = time.perf_counter() - start

    def run(self, points: np.ndarray) -> list[np.ndarray]:
        """Results (B, k) of points (B, n_inputs), which are rounded; fresh, writable arrays."""
        batch = self._batch(points.shape)
        results = [POOL.empty((batch, k), FLOAT, aligned=False) for k in self.layout.outputs]
        self.run_into(points, results)
        return results

    def run_into(self, points: np.ndarray, results: Sequence[np.ndarray]) -> None:
        """Write the results of points (B, n_inputs) to arrays (B, k).

        Up to a few MiB a call is one write, one submit and one wait; more is computed while other
        points and results are on their way.
        """
        batch = len(points)
        if not batch:
            return
        self.gpu.check()
        row = 4 * (self.layout.n_inputs + sum(self.layout.outputs))
        with self._lock, self.gpu.guard:
            if row * batch <= QUEUED_BYTES:
                step = self._step(QUEUED_BYTES, row)
                in_pieces(batch, step, POINTS_PER_WORKGROUP, self._in_turn(points, results))
                return
            with self.gpu.transfers.upload() as up, self.gpu.transfers.download() as down:
                run = self._in_turn(points, results, up, down)
                in_pieces(batch, self._step(STREAMED_BYTES, row), POINTS_PER_WORKGROUP, run)

    def bind(self, points: Any, results: Sequence[Any]) -> Callable[[], Any]:
        """A call that computes these points into these arrays, all here or all there, every time.

        Those that are there it does not wait for.
        """
        on_device = isinstance(points, DeviceArray)
        return partial(self.run_on_device if on_device else self.run_into, points, results)

    def run_filled(
        self, fill: Callable[[slice], np.ndarray], step: int, results: Sequence[np.ndarray]
    ) -> None:
        """Write to arrays (B, k) what is computed of points, of which ``fill`` makes ``step``."""
        count = len(results[0])
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            self.run_into(fill(some), [result[some] for result in results])

    def _in_turn(
        self, points: np.ndarray, results: Sequence[np.ndarray], *transfers: Any
    ) -> Callable[[int, int], None]:
        """What runs some of the points, by these transfers if there are any."""
        run = self._stream_chunk if transfers else self._run_chunk

        def some(start: int, end: int) -> None:
            run(points[start:end], [result[start:end] for result in results], *transfers)

        return some

    def run_on_device(
        self, points: DeviceArray, into: Sequence[DeviceArray] | None = None
    ) -> Sequence[DeviceArray]:
        """Results (B, k) of points (B, n_inputs) on the device; returns before they are computed.

        Reading a result waits for it, and so does nothing else. ``into`` are arrays for them.
        """
        batch = self._batch(points.shape)
        if points.gpu is not self.gpu:
            raise DeviceError(f"the points are on {points.device}, the kernel on {self.gpu.info}")
        results = into or [DeviceArray.empty(self.gpu, (batch, k)) for k in self.layout.outputs]
        arrays = [points, *results]
        with self._lock, self.gpu.guard:
            in_pieces(
                batch,
                self.chunk,
                POINTS_PER_WORKGROUP,
                lambda start, end: self._submit_rows(arrays, start, end - start),
            )
        return results

    def submit(self, count: int, arrays: Sequence[Range]) -> None:
        """Start what is computed for so many points, in one piece; arrays stand as modules say.

        They are the points and where the results go; there are at most ``chunk`` points.
        """
        assert count <= self.chunk, "there are too many points for a dispatch"
        with self._lock, self.gpu.guard:
            self._submit_chunk(arrays, count)

    def let_go(self) -> None:
        """Give back the memory that is kept between calls, unless one is under way."""
        if self._lock.acquire(blocking=False):
            self._workspace = self._scratch = None
            self._lock.release()

    def _batch(self, shape: tuple[int, ...]) -> int:
        """The number of points in an array of that shape."""
        if len(shape) != 2 or shape[1] != self.layout.n_inputs:
            raise InputError(f"points of shape {shape}: expected (B, {self.layout.n_inputs})")
        return shape[0]

    def _step(self, nbytes: int, row: int) -> int:
        """Points per chunk if ``row`` bytes each are to fit in ``nbytes``."""
        fit = nbytes // row // POINTS_PER_WORKGROUP * POINTS_PER_WORKGROUP
        return min(self.chunk, max(fit, POINTS_PER_WORKGROUP))

    def _run_chunk(self, points: np.ndarray, results: list[np.ndarray]) -> None:
        """One write, one submit, one wait."""
        count = len(points)
        space = self._reserve(count)
        frame = space.frames.get(count, lambda: self._make_frame(space, count))
        self.gpu.write(space.points.buffer, 0, converted(points, FLOAT))
        target = space.staging.claim(frame.nbytes)
        copy = Copy(space.results.buffer, 0, target, 0, frame.nbytes)
        self.gpu.submit(self._steps(count, frame.bindings), [copy])
        floats = (start // 4 for start in frame.starts)
        space.staging.read(frame.nbytes, zip(floats, results, strict=True))

    def _stream_chunk(
        self, points: np.ndarray, results: list[np.ndarray], up: Upload, down: Download
    ) -> None:
        """Points go up, are computed, and results come down when the transfer has time for them."""
        count = len(points)
        space = self._reserve(count)
        frame = space.frames.get(count, lambda: self._make_frame(space, count))
        up.put(points, space.points.buffer, dtype=FLOAT)
        up.flush()
        self.gpu.submit(self._steps(count, frame.bindings))
        pairs = zip(results, frame.starts, strict=True)
        down.get(*(Segment(result, space.results.buffer, start, FLOAT) for result, start in pairs))

    def _reserve(self, count: int) -> _Workspace:
        """A workspace for ``count`` points; it doubles, so a growing batch costs little."""
        space = self._workspace
        if space is None or space.capacity < count:
            grown = max(count, 2 * space.capacity if space else 0)
            capacity = Layout.stride(min(grown, max(count, self.chunk)))
            self._workspace = None
            space = self._workspace = _Workspace(self.gpu, self.layout, capacity)
        return space

    def _make_frame(self, space: _Workspace, count: int) -> _Frame:
        """Results stand one after another, so that one copy brings them all back."""
        sizes = [4 * k * count for k in self.layout.outputs]
        ends = np.cumsum([_aligned(size) for size in sizes]).tolist()
        starts = (0, *ends[:-1])
        arrays = [(space.points.buffer, 0, 4 * self.layout.n_inputs * count)]
        arrays += [
            (space.results.buffer, start, size) for start, size in zip(starts, sizes, strict=True)
        ]
        bindings = self._bindings(arrays, space.scratch, count)
        return _Frame(bindings, starts, starts[-1] + sizes[-1])

    def _submit_rows(self, arrays: Sequence[DeviceArray], start: int, count: int) -> None:
        """Start what is computed for some points, of which each array has rows."""
        self._submit_chunk([array.rows(start, count) for array in arrays], count)

    def _submit_chunk(self, arrays: Sequence[Range], count: int) -> None:
        """Start what is computed for some points."""
        scratch = self._reserve_scratch(count)
        bindings = self._bindings(arrays, scratch, count)
        self.gpu.submit_unwaited(self._steps(count, bindings))

    def _reserve_scratch(self, count: int) -> Storage | None:
        """The scratch array of runs on the device, for ``count`` points or more."""
        nbytes = self._scratch_bytes(count)
        if nbytes and (self._scratch is None or self._scratch.nbytes < nbytes):
            self._scratch = None
            self._scratch = self.gpu.storage(nbytes)
        return self._scratch

    def _bindings(self, arrays: Sequence[Range], scratch: Storage | None, count: int) -> Any:
        """The points and results of ``count`` points, with tables and scratch as modules see them.

        A table stands behind the points, the scratch array last of all.
        """
        nbytes = self._scratch_bytes(count)
        last = [(scratch.buffer, 0, nbytes)] if scratch and nbytes else []
        tables = [(table.buffer, 0, table.nbytes) for table in self._tables]
        return self.gpu.bind(count, [arrays[0], *tables, *arrays[1:], *last], 1 + len(tables))

    def _scratch_bytes(self, count: int) -> int:
        return 16 * self.layout.scratch * Layout.stride(count)

    def _steps(self, count: int, bindings: Any) -> list[Step]:
        """Every module for so many points."""
        groups = -(-count // self.layout.workgroup)
        return [Step(pipeline, bindings, groups) for pipeline in self._pipelines]


def require_iterations(gpu: Gpu, iterations: int) -> None:
    """Refuse loops that the GPU would end, and give wrong results."""
    most = gpu.info.iterations
    if most is not None and iterations > most:
        raise DeviceError(
            f"{gpu.info.name} ends the loops of a kernel after {most:,} iterations, and those of "
            "this one may take more within one of the outermost, or an unknown number: give "
            "max_steps= to a loop whose bounds are computed and to sg.while_loop, or use "
            'device="cpu"'
        )


def _checked_chunk(gpu: Gpu, layout: Layout, tables: int) -> int:
    """The points that one dispatch takes, or a DeviceError if it takes none."""
    bound = 1 + tables + len(layout.outputs) + (layout.scratch > 0)
    if bound > gpu.max_arrays:
        raise DeviceError(f"{gpu.info.name} binds {gpu.max_arrays} arrays, the kernel has {bound}")
    chunk = layout.chunk(gpu.max_binding)
    if not chunk:
        raise DeviceError(
            f"{gpu.info.name} holds {gpu.max_binding:,} bytes in one array, too few for "
            f"{POINTS_PER_WORKGROUP} points of {layout}"
        )
    if layout.scratch:
        software = gpu.info.kind == "software"
        most = min(SCRATCH_BYTES, SOFTWARE_BYTES) if software else SCRATCH_BYTES
        fit = most // (16 * layout.scratch) // POINTS_PER_WORKGROUP * POINTS_PER_WORKGROUP
        chunk = min(chunk, max(fit, POINTS_PER_WORKGROUP))
    return chunk


def _aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to where the next array may start."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
