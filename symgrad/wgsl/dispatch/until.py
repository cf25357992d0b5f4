"""Repeats a launch on a GPU until its points are done: the states stay there.

A dispatch is short enough for a watchdog, and its loops for drivers that end them silently after
65,535 iterations. So it does some of the steps, and the next as many more as the time that it took
allows; the device tells after each how many points are still active, and none ends the run.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import DeviceError, InputError
from symgrad.kernel.language.target import WORKGROUPS_PER_ROW, WorkgroupTarget, grid_of
from symgrad.kernel.launch import Launch
from symgrad.kernel.passes.split import MOST_ITERATIONS
from symgrad.kernel.shapes import RowData
from symgrad.kernel.skeletons.steps import PROGRESS_WORDS, TILE_SIDE, transpose_program
from symgrad.values.arrays import name_of
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.compiled import Compiled, require_iterations
from symgrad.wgsl.memory.buffers import Storage
from symgrad.wgsl.memory.queue import Copy, Step
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

SECONDS_PER_DISPATCH: Final = 0.1
"""How long a dispatch should take, at most; watchdogs wait for two seconds or more."""

STEPS_GROWTH: Final = 4
"""By how much the number of steps may grow from a dispatch to the next."""

FIRST_OPERATIONS: Final = 5e8
"""Operations of the first dispatch, when nothing is known of the device's speed."""

POINTS_ALIGNED: Final = 64
"""Points that chunks are whole multiples of, so that all arrays may be bound from there on."""

TRANSPOSING: Final = WorkgroupTarget(256, grid=True)
"""The workgroups that transpose a tile each."""

PROGRESS_BYTES: Final = 4 * PROGRESS_WORDS
"""Bytes of what the device tells of the work."""


@dataclass(frozen=True)
class Chunk:
    """Points from ``start`` on whose arrays fit in bindings, and their data on the device."""

    start: int
    count: int
    own: Range
    keep: Storage | DeviceArray | None


@dataclass(frozen=True)
class PointData:
    """The data of ``count`` points on the device, for any number of runs of launches.

    ``by_columns`` says how arrays of a chunk of points stand there.
    """

    gpu: Gpu
    count: int
    rows: int
    by_columns: bool
    floats: np.dtype[Any]
    shared: DeviceArray
    chunks: Sequence[Chunk]

    def placed(self, rows: DeviceArray) -> DeviceArray:
        """A copy of an array (S, k) as launches take it: that of a chunk by columns."""
        result = DeviceArray.empty(self.gpu, rows.shape, self.floats)
        with self.gpu.guard:
            for source, target, count in self._ranges(rows, result):
                if self.by_columns:
                    transpose(self.gpu, source, target, count, self.floats)
                else:
                    self.gpu.submit_unwaited([Copy(*source[:2], *target)])
        return result

    def in_rows(self, states: DeviceArray) -> DeviceArray:
        """An array as launches have left it, (S, k)."""
        if not self.by_columns:
            return states
        result = DeviceArray.empty(self.gpu, states.shape, self.floats)
        width = states.shape[1]
        with self.gpu.guard:
            for source, target, _ in self._ranges(states, result):
                transpose(self.gpu, source, target, width, self.floats)
        return result

    def computed(self, launched: Any, source: DeviceArray) -> list[DeviceArray]:
        """The outputs of a map over the points, from an array that stands as it takes it."""
        shapes = [(self.count, a.size) for a in launched.launch.outputs]
        outputs = [DeviceArray.empty(self.gpu, shape, self.floats) for shape in shapes]
        for chunk in self.chunks:
            part = chunk.start, chunk.count
            launched.submit(chunk.count, [a.rows(*part) for a in (source, *outputs)])
        return outputs

    def fetch(self, arrays: Iterable[tuple[DeviceArray, np.ndarray]]) -> None:
        """Fill arrays of the host with arrays of the device."""
        with self.gpu.guard, self.gpu.transfers.download() as down:
            down.get(*(array.into(target) for array, target in arrays))

    def together(self) -> Any:
        """A context whose work is submitted at once."""
        return self.gpu.queue.together()

    def _ranges(
        self, source: DeviceArray, target: DeviceArray
    ) -> Iterator[tuple[Range, Range, int]]:
        """Where the points of each chunk are in two arrays, and how many."""
        for chunk in self.chunks:
            part = chunk.start, chunk.count
            yield source.rows(*part), target.rows(*part), chunk.count


class Steps:
    """A launch that is repeated, compiled for a GPU. Several threads may use it; they take turns.

    Raises:
        DeviceError: the GPU ends loops before they have ended.
    """

    most_operations = 50_000_000
    """Operations of an invocation in one dispatch, about and at most."""

    most_iterations = MOST_ITERATIONS
    """Iterations of loops of an invocation in one dispatch, at most."""

    most_groups = WORKGROUPS_PER_ROW
    """Points of a workgroup each in one dispatch, at most."""

    points_transposed = 1 << 20
    """Points of an invocation each whose arrays are transposed in one dispatch, at most."""

    def __init__(self, gpu: Gpu, launch: Launch, compiled: Compiled, floats: np.dtype[Any]) -> None:
        assert launch.until, f"{launch.name} is run once"
        self.floats = floats
        self.gpu, self.launch, self.cost = gpu, launch, launch.until.cost
        self._compiled, self._target = compiled, launch.dispatches[0].target
        self._names = launch.dispatches[0].names
        self._lock = threading.Lock()
        self._progress = gpu.storage(PROGRESS_BYTES)
        self._scratch_memory: Storage | None = None
        self._staging = gpu.staging()
        self._speed = FIRST_OPERATIONS / SECONDS_PER_DISPATCH
        require_iterations(gpu, self.cost.iterations_at(0))

    @property
    def width(self) -> int:
        """The numbers of a state."""
        return self.launch.outputs[0].size

    # data -----------------------------------------------------------------------------------------

    def hold(self, count: int, data: RowData) -> PointData:
        """The data of ``count`` points, on the device."""
        shared, own = data.arrays(count)
        for array in (shared, own):
            if isinstance(array, DeviceArray):
                array.require(self.floats)
        by_columns = self._target.by_columns
        with self._lock, self.gpu.guard:
            self.gpu.check()
            common = self._shared(shared)
            chunks = tuple(self._chunks(count, len(shared), own))
        sizes = self.gpu, count, len(shared)
        return PointData(*sizes, by_columns, self.floats, common, chunks)

    def _shared(self, array: np.ndarray | DeviceArray) -> DeviceArray:
        """Shared data on the device; something to bind if there are none."""
        if not array.size:
            return DeviceArray.empty(self.gpu, (1, 1), self.floats)
        nbytes = self.floats.itemsize * array.size
        if nbytes > self.gpu.max_binding:
            raise DeviceError(
                f"{self.gpu.info.name} holds {self.gpu.max_binding:,} bytes in one array, too few "
                f'for shared data of {nbytes:,}: use device="cpu"'
            )
        on_device = isinstance(array, DeviceArray)
        return array if on_device else DeviceArray.from_numpy(self.gpu, array, self.floats)

    def _chunks(self, points: int, rows: int, own: np.ndarray | DeviceArray) -> Iterator[Chunk]:
        width = self.floats.itemsize * rows * own.shape[2]
        step = self._chunk(width)
        for start in range(0, points, step):
            count = min(step, points - start)
            if not width:
                nbytes = self.floats.itemsize
                dummy = self.gpu.storage(nbytes)
                yield Chunk(start, count, (dummy.buffer, 0, nbytes), dummy)
            elif isinstance(own, DeviceArray):
                yield self._on_device(start, count, own.rows(start, count))
            else:
                part = DeviceArray.from_numpy(self.gpu, own[start : start + count], self.floats)
                chunk = self._on_device(start, count, part.rows(0, count))
                yield Chunk(start, count, chunk.own, chunk.keep or part)

    def _chunk(self, width: int) -> int:
        """Points whose arrays fit in bindings, and that one grid takes."""
        widest = max(width, self.floats.itemsize * self.width)
        fit = self.gpu.max_binding // widest // POINTS_ALIGNED * POINTS_ALIGNED
        if not fit:
            raise DeviceError(
                f"{self.gpu.info.name} holds {self.gpu.max_binding:,} bytes in one array, too few "
                f'for {POINTS_ALIGNED} problems of {widest:,}: use device="cpu"'
            )
        most = self.points_transposed if self._target.by_columns else self.most_groups
        return min(fit, most // POINTS_ALIGNED * POINTS_ALIGNED)

    def _on_device(self, start: int, count: int, own: Range) -> Chunk:
        """A chunk whose data are on the device as rows of points."""
        if not self._target.by_columns:
            return Chunk(start, count, own, None)
        transposed = self.gpu.storage(own[2])
        place = transposed.buffer, 0, own[2]
        transpose(self.gpu, own, place, count, self.floats)
        return Chunk(start, count, place, transposed)

    # running --------------------------------------------------------------------------------------

    def run(self, start: Any, data: RowData | PointData, steps: int) -> Any:
        """The states (S, width) after so many steps from the first ones.

        They and data may be arrays on the host or on the device; the result is as the states are.

        Raises:
            InputError: for more rows than an invocation can take. DeviceError: what is too large
                for the GPU.
        """
        held = data if isinstance(data, PointData) else self.hold(len(start), data)
        on_device = isinstance(start, DeviceArray)
        if on_device:
            start.require(self.floats)
        states = start if on_device else DeviceArray.from_numpy(self.gpu, start, self.floats)
        states = held.placed(states)
        self.advance(states, steps, held)
        result = held.in_rows(states)
        return result if on_device else result.numpy()

    def advance(self, states: DeviceArray, steps: int, data: PointData) -> None:
        """Do steps of states that nobody else has: they are changed, if not yet on return.

        They are as `PointData.placed` gives them.
        """
        assert data.by_columns == self._target.by_columns, "the data stand in another order"
        with self._lock, self.gpu.guard:
            self.gpu.check()
            for chunk in data.chunks:
                self._advance(states.rows(chunk.start, chunk.count), steps, data, chunk)

    def _advance(self, states: Range, steps: int, data: PointData, chunk: Chunk) -> None:
        """Dispatches, until all steps are done or no point is active.

        A single one that does all of them is not waited for.
        """
        operations = self.cost.operations_at(data.rows)
        most = self.most(data.rows)
        now = max(1, int(SECONDS_PER_DISPATCH * self._speed / (operations * chunk.count)))
        while steps > 0:
            now = min(now, most, steps, 2**32 // chunk.count)
            if now == steps:
                self.gpu.submit_unwaited([self._step(states, steps, data, chunk)])
                return
            took, done, active = self._dispatch(states, _even(now, steps), data, chunk)
            steps -= _even(now, steps)
            if not active:
                return
            self._speed = max(self._speed, done * operations / took)
            now = max(1, min(STEPS_GROWTH * now, int(now * SECONDS_PER_DISPATCH / took)))

    def most(self, rows: int) -> int:
        """The most steps of a dispatch."""
        iterations = self.cost.iterations_at(rows)
        if iterations > self.most_iterations:
            raise InputError(f'{rows:,} rows are too many for a problem on a GPU: use device="cpu"')
        fit = (
            self.most_iterations // iterations,
            self.most_operations // self.cost.operations_alone(rows),
        )
        return max(1, min(fit))

    def _step(self, states: Range, steps: int, data: PointData, chunk: Chunk) -> Step:
        """The dispatch of some steps."""
        compiled, target, count = self._compiled, self._target, chunk.count
        across, down = grid_of(count if target.threads > 1 else -(-count // target.width))
        places = {
            "own": chunk.own,
            "shared": data.shared.rows(0, len(data.shared)),
            "states": states,
            "progress": (self._progress.buffer, 0, PROGRESS_BYTES),
        }
        arrays = [
            (table.buffer, 0, table.nbytes)
            if (table := compiled.tables.get(b))
            else places[self._names[b.name]]
            for b in compiled.bound
        ]
        arrays += self._scratch(across * down * target.width)
        words = steps, data.rows
        bindings = self.gpu.bind(count, arrays, compiled.readable, words, self.floats)
        return Step(compiled.pipelines[0], bindings, across, down)

    def _scratch(self, invocations: int) -> list[Range]:
        """Memory for the arrays of loops, if it is needed."""
        nbytes = self.floats.itemsize * self._compiled.printed.slots * invocations
        if not nbytes:
            return []
        if self._scratch_memory is None or self._scratch_memory.nbytes < nbytes:
            self._scratch_memory = self.gpu.storage(nbytes)
        return [(self._scratch_memory.buffer, 0, nbytes)]

    def _dispatch(
        self, states: Range, steps: int, data: PointData, chunk: Chunk
    ) -> tuple[float, int, int]:
        """Do some steps: the seconds it took, the steps of all points, and those active."""
        nbytes = PROGRESS_BYTES
        self.gpu.write(self._progress.buffer, 0, np.zeros(PROGRESS_WORDS, np.uint32))
        step = self._step(states, steps, data, chunk)
        target = self._staging.claim(nbytes)
        start = time.perf_counter()
        self.gpu.submit([step, Copy(self._progress.buffer, 0, target, 0, nbytes)])
        progress = np.empty(PROGRESS_WORDS, np.uint32)
        self._staging.read(nbytes, [(0, progress, progress.dtype)])
        done, active = progress.tolist()
        return time.perf_counter() - start, done, active


def transpose(gpu: Gpu, source: Range, target: Range, count: int, floats: np.dtype[Any]) -> None:
    """Write the transpose of an array of so many rows."""
    columns = source[2] // floats.itemsize // count
    bindings = gpu.bind(count, [source, target], 1, (columns,), floats)
    grid = grid_of(-(-count // TILE_SIDE) * -(-columns // TILE_SIDE))
    source_text = printed_transpose(name_of(floats)).modules[0]
    gpu.submit_unwaited([Step(gpu.pipeline(source_text, 1), bindings, *grid)])


@functools.cache
def printed_transpose(dtype: str = "float32") -> Printed:
    """The WGSL that transposes the arrays of points: see `transpose_program`."""
    kernel = transpose_program(TRANSPOSING)
    style = Style(dtype=dtype)
    return print_kernel(kernel, style, ["// the transpose of x, tile by tile"])


def _even(now: int, steps: int) -> int:
    """The steps of a dispatch, so that the last one is no short one."""
    return -(-steps // -(-steps // now))
