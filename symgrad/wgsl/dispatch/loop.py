"""Runs an iteration on a GPU: as few dispatches as the device stands, the states staying there.

A dispatch is short enough for a watchdog, and its loops for drivers that end them silently after
65,535 iterations. So it does some of the steps, and the next as many more as the time that it took
allows; the device tells after each how many problems are still active, and none ends the run.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import DeviceError, InputError
from symgrad.kernel import watch
from symgrad.kernel.layout import WORKGROUPS_PER_ROW, grid_of
from symgrad.kernel.problems import NO_DATA, Problems, RowData, problems_of
from symgrad.kernel.shapes import Iteration
from symgrad.kernel.skeletons.transpose import TILE_SIDE, transpose_program
from symgrad.kernel.split import MOST_ITERATIONS
from symgrad.kernel.target import WorkgroupTarget
from symgrad.mathlib.define import functions
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.compiled import require_iterations
from symgrad.wgsl.dispatch.iteration import (
    MOST_SUMS,
    PROGRESS_WORDS,
    ROWS_PER_FLOAT_SUM,
    STEP_INVOCATIONS,
    Form,
    emit_iteration,
    iterations,
    with_matrix,
)
from symgrad.wgsl.dispatch.weights import iterations_of_loops, weights_of
from symgrad.wgsl.memory.encoding import Copy, Step
from symgrad.wgsl.memory.pool import Storage
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

MOST_OPERATIONS: Final = 50_000_000
"""Operations of an invocation in one dispatch, about and at most."""

SECONDS_PER_DISPATCH: Final = 0.1
"""How long a dispatch should take, at most; watchdogs wait for two seconds or more."""

STEPS_GROWTH: Final = 4
"""By how much the number of steps may grow from a dispatch to the next."""

FIRST_OPERATIONS: Final = 5e8
"""Operations of the first dispatch, when nothing is known of the device's speed."""

MANY_ROWS: Final = 64
"""Rows from which a workgroup may be worth while for a problem."""

FEW_PROBLEMS: Final = 8_192
"""Problems up to which it is: beyond, an invocation for each keeps the device busy."""

PROBLEMS_TRANSPOSED: Final = 1 << 20
"""Problems of an invocation each whose arrays are transposed in one dispatch, at most."""

TRANSPOSE_INVOCATIONS: Final = 256
"""Invocations of a workgroup that transposes a tile."""


@dataclass(frozen=True)
class Chunk:
    """Problems from ``start`` on whose arrays fit in bindings, and their data on the device."""

    start: int
    count: int
    own: Range
    keep: Storage | DeviceArray | None


@dataclass(frozen=True)
class Bound:
    """Data that stay on the device: ``loop.bind`` makes them, any number of runs use them."""

    sizes: Problems
    form: Form
    shared: DeviceArray
    chunks: tuple[Chunk, ...]


class Loop:
    """Does the steps of an iteration on a GPU. Several threads may use it; they take turns.

    Raises:
        InputError: the iteration is too long for a kernel.
        DeviceError: the GPU refuses the kernel, which is a defect of symgrad.
    """

    def __init__(self, gpu: Gpu, iteration: Iteration, math: str = "accurate") -> None:
        self.gpu, self.iteration = gpu, iteration
        self.seconds = 0.0
        """How long it took to compile what has been run so far."""
        self._math = math
        self._update, self._row = weights_of(iteration)
        self._sums = sum(len(o.nodes) for o in iteration.rows.outputs) if iteration.rows else 0
        self._looped, self._looped_row = iterations_of_loops(iteration)
        self._sources: dict[Form, Printed] = {}
        self._pipelines: dict[Form, Any] = {}
        self._constants: dict[Form, list[Storage]] = {}
        self._lock = threading.Lock()
        self._progress = gpu.storage(4 * PROGRESS_WORDS)
        self._scratch_memory: Storage | None = None
        self._staging = gpu.staging()
        self._speed = FIRST_OPERATIONS / SECONDS_PER_DISPATCH
        self.source(Form(False))
        require_iterations(gpu, self._iterations(Form(False), 0))

    def source(self, form: Form) -> str:
        """The WGSL of a form."""
        return self._printed(form).modules[0]

    def _printed(self, form: Form) -> Printed:
        """The source of a form."""
        arguments = self.iteration, functions(self._math)
        if form not in self._sources:
            with watch.stage("emit"):
                style = Style(self._math)
                self._sources[form] = (
                    with_matrix(*arguments, style)
                    if self.iteration.matrix
                    else emit_iteration(*arguments, form, style)
                )
        return self._sources[form]

    # data -----------------------------------------------------------------------------------------

    def bind(self, count: int, data: RowData = NO_DATA) -> Bound:
        """The data of ``count`` problems, on the device."""
        it = self.iteration
        sizes = problems_of(it, (count, it.state), data)
        form = self.form(sizes)
        with self._lock, self.gpu.guard:
            self.gpu.check()
            shared = self._stored(data.shared)
            chunks = tuple(self._chunks(sizes, form, data.own))
        return Bound(sizes, form, shared, chunks)

    def form(self, sizes: Problems) -> Form:
        """What suits problems of these sizes."""
        if self.iteration.matrix:
            return Form(True)
        few = sizes.count <= FEW_PROBLEMS and sizes.rows >= MANY_ROWS and self._sums <= MOST_SUMS
        return Form(few or self._iterations(Form(False), sizes.rows) > MOST_ITERATIONS)

    def _stored(self, array: np.ndarray | DeviceArray | None) -> DeviceArray:
        """Shared data on the device; something to bind if there are none."""
        if array is None or not array.size:
            return DeviceArray.empty(self.gpu, (1, 1))
        if 4 * array.size > self.gpu.max_binding:
            raise DeviceError(
                f"{self.gpu.info.name} holds {self.gpu.max_binding:,} bytes in one array, too few "
                f'for shared data of {4 * array.size:,}: use device="cpu"'
            )
        on_device = isinstance(array, DeviceArray)
        return array if on_device else DeviceArray.from_numpy(self.gpu, array)

    def _chunks(
        self, sizes: Problems, form: Form, own: np.ndarray | DeviceArray | None
    ) -> Iterator[Chunk]:
        width = 4 * sizes.rows * self.iteration.own
        step = self._chunk(width, form)
        for start in range(0, sizes.count, step):
            count = min(step, sizes.count - start)
            if own is None or not width:
                dummy = self.gpu.storage(4)
                yield Chunk(start, count, (dummy.buffer, 0, 4), dummy)
            elif isinstance(own, DeviceArray):
                yield self._on_device(start, count, own.rows(start, count), form)
            else:
                part = DeviceArray.from_numpy(self.gpu, own[start : start + count])
                chunk = self._on_device(start, count, part.rows(0, count), form)
                yield Chunk(start, count, chunk.own, chunk.keep or part)

    def _chunk(self, width: int, form: Form) -> int:
        """Problems whose arrays fit in bindings, and that one grid takes."""
        widest = max(width, 4 * self.iteration.state)
        fit = self.gpu.max_binding // widest // STEP_INVOCATIONS * STEP_INVOCATIONS
        if not fit:
            raise DeviceError(
                f"{self.gpu.info.name} holds {self.gpu.max_binding:,} bytes in one array, too few "
                f'for {STEP_INVOCATIONS} problems of {widest:,}: use device="cpu"'
            )
        grid = max(WORKGROUPS_PER_ROW // STEP_INVOCATIONS * STEP_INVOCATIONS, STEP_INVOCATIONS)
        return min(fit, PROBLEMS_TRANSPOSED if form.by_columns else grid)

    def _on_device(self, start: int, count: int, own: Range, form: Form) -> Chunk:
        """A chunk whose data are on the device as rows of problems."""
        if not form.by_columns:
            return Chunk(start, count, own, None)
        transposed = self.gpu.storage(own[2])
        self._transpose(own, (transposed.buffer, 0, own[2]), count)
        return Chunk(start, count, (transposed.buffer, 0, own[2]), transposed)

    def _transpose(self, source: Range, target: Range, count: int) -> None:
        """Write the transpose of an array of so many rows."""
        columns = source[2] // 4 // count
        bindings = self.gpu.bind(count, [source, target], 1, (columns,))
        grid = grid_of(-(-count // TILE_SIDE) * -(-columns // TILE_SIDE))
        self.gpu.submit_unwaited([Step(self.gpu.pipeline(transpose(), 1), bindings, *grid)])

    # running --------------------------------------------------------------------------------------

    def run(self, state: Any, steps: int, data: RowData = NO_DATA) -> Any:
        """The states (S, state) after these steps.

        They and data may be arrays on the host or on the device; the result is as the states are.

        Raises:
            InputError: for arrays of other shapes. DeviceError: what is too large for the GPU.
        """
        problems_of(self.iteration, state.shape, data)
        return self.run_bound(state, steps, self.bind(state.shape[0], data))

    def run_bound(self, state: Any, steps: int, data: Bound) -> Any:
        """``run`` with data that are on the device already."""
        if state.shape != (data.sizes.count, self.iteration.state):
            raise InputError(
                f"a state of shape {state.shape}: expected "
                f"({data.sizes.count}, {self.iteration.state})"
            )
        on_device = isinstance(state, DeviceArray)
        states = self.placed(state if on_device else DeviceArray.from_numpy(self.gpu, state), data)
        self.advance(states, steps, data)
        result = self.in_rows(states, data)
        return result if on_device else result.numpy()

    def placed(self, rows: DeviceArray, data: Bound) -> DeviceArray:
        """A copy of states (S, state) as `advance` takes them: those of a chunk by columns."""
        result = DeviceArray.empty(self.gpu, rows.shape)
        with self.gpu.guard:
            for source, target, count in _ranges(rows, result, data):
                if data.form.by_columns:
                    self._transpose(source, target, count)
                else:
                    self.gpu.submit([], [Copy(*source[:2], *target)])
        return result

    def in_rows(self, states: DeviceArray, data: Bound) -> DeviceArray:
        """States that were advanced, (S, state)."""
        if not data.form.by_columns:
            return states
        result = DeviceArray.empty(self.gpu, states.shape)
        with self.gpu.guard:
            for source, target, _ in _ranges(states, result, data):
                self._transpose(source, target, self.iteration.state)
        return result

    def advance(self, state: DeviceArray, steps: int, data: Bound) -> None:
        """Do steps of states that nobody else has: they are changed, if not yet on return.

        They are `placed`.
        """
        with self._lock, self.gpu.guard:
            self.gpu.check()
            for chunk in data.chunks:
                self._advance(state.rows(chunk.start, chunk.count), steps, data, chunk)

    def _advance(self, states: Range, steps: int, data: Bound, chunk: Chunk) -> None:
        """Dispatches, until all steps are done or no problem is active.

        A single one that does all of them is not waited for.
        """
        rows, form = data.sizes.rows, data.form
        weight = self._weight(rows)
        most = self._most(form, rows)
        now = max(1, int(SECONDS_PER_DISPATCH * self._speed / (weight * chunk.count)))
        while steps > 0:
            now = min(now, most, steps, 2**32 // chunk.count)
            if now == steps:
                self.gpu.submit_unwaited([self._step(states, steps, data, chunk)])
                return
            took, done, active = self._dispatch(states, _even(now, steps), data, chunk)
            steps -= _even(now, steps)
            if not active:
                return
            self._speed = max(self._speed, done * weight / took)
            now = max(1, min(STEPS_GROWTH * now, int(now * SECONDS_PER_DISPATCH / took)))

    def _weight(self, rows: int) -> int:
        """About the operations of a step of one problem."""
        return self._update + rows * self._row

    def _iterations(self, form: Form, rows: int) -> int:
        """The iterations of all loops that an invocation makes in a step."""
        if self.iteration.matrix and self.iteration.rows:
            return iterations(self.iteration.matrix, rows * len(self.iteration.rows.outputs))
        mine = -(-rows // STEP_INVOCATIONS) if form.workgroup else rows
        sums = STEP_INVOCATIONS // 4 if form.workgroup and rows else 0
        looped = self._looped + mine * self._looped_row
        return 1 + mine + -(-mine // ROWS_PER_FLOAT_SUM) + sums + looped

    def _most(self, form: Form, rows: int) -> int:
        """The most steps of a dispatch."""
        iterations = self._iterations(form, rows)
        if iterations > MOST_ITERATIONS:
            raise InputError(f'{rows:,} rows are too many for a problem on a GPU: use device="cpu"')
        mine = -(-rows // STEP_INVOCATIONS) if form.workgroup else rows
        return max(1, min(MOST_ITERATIONS // iterations, MOST_OPERATIONS // self._weight(mine)))

    def _step(self, states: Range, steps: int, data: Bound, chunk: Chunk) -> Step:
        """The dispatch of some steps."""
        gpu = self.gpu
        shared = data.shared.rows(0, len(data.shared))
        progress = (self._progress.buffer, 0, 4 * PROGRESS_WORDS)
        tables = [(t.buffer, 0, t.nbytes) for t in self._tables(data.form)]
        arrays = [chunk.own, shared, *tables, states, progress]
        arrays += self._scratch(data.form, chunk.count)
        bindings = gpu.bind(chunk.count, arrays, 2 + len(tables), (steps, data.sizes.rows))
        groups = -(-chunk.count // data.form.lanes)
        grid = min(groups, WORKGROUPS_PER_ROW), -(-groups // WORKGROUPS_PER_ROW)
        return Step(self._pipeline(data.form), bindings, *grid)

    def _tables(self, form: Form) -> list[Storage]:
        """The constants that a form reads."""
        if form not in self._constants:
            printed = self._printed(form)
            self._constants[form] = [self.gpu.constants(some) for some in printed.tables]
        return self._constants[form]

    def _scratch(self, form: Form, count: int) -> list[Range]:
        """Memory for the arrays of loops, if it is needed."""
        slots = self._printed(form).slots
        if not slots:
            return []
        width = STEP_INVOCATIONS
        nbytes = 4 * slots * -(-count // width) * width * (width // form.lanes)
        if self._scratch_memory is None or self._scratch_memory.nbytes < nbytes:
            self._scratch_memory = self.gpu.storage(nbytes)
        return [(self._scratch_memory.buffer, 0, nbytes)]

    def _dispatch(
        self, states: Range, steps: int, data: Bound, chunk: Chunk
    ) -> tuple[float, int, int]:
        """Do some steps: the seconds it took, the steps of all problems, and those active."""
        nbytes = 4 * PROGRESS_WORDS
        self.gpu.write(self._progress.buffer, 0, np.zeros(PROGRESS_WORDS, np.uint32))
        step = self._step(states, steps, data, chunk)
        target = self._staging.claim(nbytes)
        start = time.perf_counter()
        self.gpu.submit([step], [Copy(self._progress.buffer, 0, target, 0, nbytes)])
        progress = np.empty(PROGRESS_WORDS, np.float32)
        self._staging.read(nbytes, [(0, progress)])
        done, active = progress.view(np.uint32).tolist()
        return time.perf_counter() - start, done, active

    def _pipeline(self, form: Form) -> Any:
        """The compiled kernel of a form."""
        if form not in self._pipelines:
            start = time.perf_counter()
            printed = self._printed(form)
            read, written = 2 + len(printed.tables), 2 + bool(printed.slots)
            self._pipelines[form] = self.gpu.pipeline(printed.modules[0], written, read)
            self.seconds += time.perf_counter() - start
        return self._pipelines[form]


@functools.cache
def transpose() -> str:
    """The WGSL that transposes the arrays of problems: see `transpose_program`."""
    kernel = transpose_program(WorkgroupTarget(TRANSPOSE_INVOCATIONS, grid=True))
    return print_kernel(kernel, {}, Style(), ["// the transpose of x, tile by tile"]).modules[0]


def _ranges(
    source: DeviceArray, target: DeviceArray, data: Bound
) -> Iterator[tuple[Range, Range, int]]:
    """Where the states of each chunk are in two arrays, and how many."""
    for chunk in data.chunks:
        part = chunk.start, chunk.count
        yield source.rows(*part), target.rows(*part), chunk.count


def _even(now: int, steps: int) -> int:
    """The steps of a dispatch, so that the last one is no short one."""
    return -(-steps // -(-steps // now))
