"""Runs launches on a GPU: host arrays or arrays on the device in, the same kind out.

All dispatches of a launch are in one submit. A small call on the host's arrays costs one write for
each input, one submit and one wait. A large batch goes through in chunks, which are computed while
other points and results are on their way; so do batches that no dispatch or binding can hold.
Chunks are of whole workgroups, with the results in order.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError
from symgrad.expr.graph.verify import is_verified
from symgrad.kernel.host.memory import POOL, in_pieces
from symgrad.kernel.host.threads import converted
from symgrad.kernel.language.target import MAX_WORKGROUPS, POINTS_PER_WORKGROUP, grid_of
from symgrad.kernel.launch import Dispatch, Launch, Part, Program
from symgrad.kernel.shapes import RowData
from symgrad.kernel.skeletons.map import Map
from symgrad.values.arrays import host_dtype
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import ALIGNMENT
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.compiled import (
    Compiled,
    can_end,
    compiled_kernel,
    printed_kernel,
    require_iterations,
)
from symgrad.wgsl.dispatch.until import Steps
from symgrad.wgsl.dispatch.workspace import (
    QUAD_BYTES,
    Frame,
    Held,
    Place,
    Plan,
    Planned,
    Slot,
    Workspace,
    aligned,
    shared_memory,
    whole,
)
from symgrad.wgsl.memory.buffers import Storage
from symgrad.wgsl.memory.queue import Step
from symgrad.wgsl.memory.transfer import Download, Segment, Upload
from symgrad.wgsl.printing.source import Style

KEPT_BYTES: Final = 1 << 20
"""The bytes of a scratch array that is kept between calls on arrays of the device, at most."""


class Launched:
    """A launch that is compiled for a GPU. Several threads may run it; they take turns.

    Raises:
        DeviceError: the GPU takes no such wide points or so many arrays, or ends loops before they
            have ended, or refuses a module, which is a defect of symgrad (the message is naga's).
    """

    def __init__(
        self,
        gpu: Gpu,
        launch: Launch,
        style: Style,
        kernels: Mapping[Program, Compiled] | None = None,
        moving: Collection[str] = (),
    ) -> None:
        """Some programs' kernels may be compiled already, of a launch that is known to be right.

        Arrays of the names ``moving`` stand where each step says: see `moving_steps`.
        """
        start = time.perf_counter()
        if launch.has_batch:
            by_columns = launch.inputs[0].by_columns, launch.outputs[0].by_columns
            style = replace(style, columns_in=by_columns[0], columns_out=by_columns[1])
        self.gpu, self.launch, self._style = gpu, launch, style
        self._kernels, self._moving = kernels or {}, moving
        self.floats = floats = style.floats.dtype
        """The dtype that it computes in."""
        self._kinds = [a.dtype(floats) for a in launch.inputs]
        self._output_kinds = [a.dtype(floats) for a in launch.outputs]
        self._shapes = [a.shape for a in launch.inputs]
        self._output_shapes = [a.shape for a in launch.outputs]
        self._itemsizes = {a.name: a.dtype(floats).itemsize for a in launch.arrays}
        self._sizes = {a.name: a.size for a in launch.arrays}
        moved = (*launch.inputs, *launch.outputs)
        self._nbytes = sum([self._bytes_of(a.name) for a in moved])
        """Bytes that a call moves, or that it moves for each point of a batch."""
        self._key = object()
        self._dispatches = [
            (d, self._kernel(d))
            for d in launch.dispatches
            if launch.has_batch or d.number_of_groups
        ]
        repeated = launch.until and Steps(gpu, launch, self._dispatches[0][1], floats)
        self._repeated: Steps | None = repeated
        single = not launch.has_batch or self._repeated
        self.chunk = 1 if single else self._checked_chunk()
        """The points that one dispatch takes, at most."""
        self._plans: Once[int, Plan] = Once(16)
        self._workspace: Workspace | None = None
        self._scratch: tuple[object, list[Storage | None]] | None = None
        self._lock = threading.Lock()
        if not launch.has_batch:
            if kernels is None:
                launch.verify()
            self._require_sizes()
            self._plan(1)
        for _, kernel in self._dispatches:
            kernel.wait()
        self.seconds = time.perf_counter() - start
        """How long it took to compile."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The WGSL of all kernels, each once, in the order in which they run."""
        modules = (source for _, c in self._dispatches for source in c.printed.modules)
        return tuple(dict.fromkeys(modules))

    def _bytes_of(self, name: str) -> int:
        """The bytes of an array, or those of a point of a batch."""
        return self._itemsizes[name] * self._sizes[name]

    # compiling ------------------------------------------------------------------------------------

    def _kernel(self, d: Dispatch) -> Compiled:
        gpu, style = self.gpu, self._style
        if d.program in self._kernels:
            return self._kernels[d.program]
        if self.launch.has_batch:  # only what has the launch keeps it
            if not isinstance(d.program, Map) or is_verified(len(d.program.computation.graph)):
                self.launch.verify()
            kernel = Compiled(gpu, printed_kernel(d, style), self.floats)
            if not self.launch.until:
                require_iterations(gpu, kernel.printed.iterations)
            return kernel
        moving = frozenset(b for b, array in d.names.items() if array in self._moving)
        return compiled_kernel(gpu, d, style, len(self.launch.dispatches) > 1, moving)

    def _checked_chunk(self) -> int:
        """The points that one dispatch takes, or a DeviceError if it takes none."""
        gpu, info = self.gpu, self.gpu.info
        printed = [c.printed for _, c in self._dispatches]
        unit = max(p.width for p in printed)
        slots = max(self.floats.itemsize * p.slots for p in printed)
        widest = max(slots, *(self._bytes_of(a.name) for a in self.launch.arrays))
        fit = min(gpu.max_binding // widest // unit * unit, MAX_WORKGROUPS * unit)
        if not fit:
            raise DeviceError(
                f"{info.name} holds {gpu.max_binding:,} bytes in one array, too few for {unit} "
                f"points of {widest:,} bytes"
            )
        if not slots:
            return fit
        return min(fit, max(gpu.scratch_bytes // slots // unit * unit, unit))

    def _require_sizes(self) -> None:
        """Refuse arrays that no binding holds."""
        for a in self.launch.arrays:
            if self._bytes_of(a.name) > self.gpu.max_binding:
                raise DeviceError(
                    f"{self.gpu.info.name} holds {self.gpu.max_binding:,} bytes in one array, too "
                    f'few for {a.name} of shape {a.shape}: use device="cpu"'
                )

    def _plan(self, batch: int) -> Plan:
        """The launch for so many points."""
        return self._plans.get(batch, partial(self._make_plan, batch))

    def _make_plan(self, batch: int, apart: bool = False) -> Plan:
        """A plan of memory; ``apart`` if scratch arrays are read when the launch has ended."""
        launch, itemsizes, itemsize = self.launch, self._itemsizes, self.floats.itemsize
        sizes = self._sizes
        if launch.has_batch:
            sizes = {a.name: math.prod(a.of(batch)) for a in launch.arrays}
        inputs, outputs, others = (
            [itemsizes[a.name] * sizes[a.name] for a in group]
            for group in (launch.inputs, launch.outputs, launch.scratch)
        )
        before = len(inputs) + len(outputs)
        places = {name: n for n, name in enumerate(sizes)}
        if not apart:
            nbytes = {a.name: n for a, n in zip(launch.scratch, others, strict=True)}
            homes, others = shared_memory([d.names.values() for d, _ in self._dispatches], nbytes)
            places |= {name: before + n for name, n in homes.items()}

        def temporary(nbytes: int) -> Slot:
            others.append(nbytes)
            return Slot(None, before + len(others) - 1, nbytes)

        def planned(compiled: Compiled, d: Dispatch) -> Planned:
            width, arrays = compiled.printed.width, dict(d.arrays)
            assert isinstance(d.groups, int), f"the size of the {d.groups} is not known"
            groups = d.groups or -(-d.invocations // width)
            across, down = grid_of(groups) if d.target.grid else (groups, 1)
            assert max(across, down) <= MAX_WORKGROUPS, f"{groups:,} groups, and no grid of them"
            slots: list[Slot] = []
            for b in compiled.bound:
                array = arrays.get(b.name)
                if array is None:
                    table = compiled.tables[b]
                    slots.append(Slot((table.buffer, 0, table.nbytes), 0, 0))
                elif isinstance(array, Part):
                    each = itemsizes[array.array]
                    start, nbytes = each * array.first, each * array.size
                    assert start % ALIGNMENT == 0, f"nothing is bound from {array} on"
                    slots.append(Slot(None, places[array.array], nbytes, start))
                elif not sizes[array]:
                    slots.append(temporary(QUAD_BYTES))
                else:  # all of it, to the end of the last of its vectors
                    vectors = -(-sizes[array] // b.vector)
                    nbytes = itemsizes[array] * b.vector * vectors
                    slots.append(Slot(None, places[array], nbytes))
            if compiled.printed.slots:
                slots.append(temporary(itemsize * compiled.printed.slots * across * down * width))
            words = d.words if d.arguments else []
            return Planned(compiled, slots, (d.invocations, *words), across, down)

        dispatches: list[Planned] = []
        for d, compiled in self._dispatches:
            if not launch.has_batch and not can_end(self.gpu, compiled.printed.iterations):
                require_iterations(self.gpu, d.iterations)
            dispatches.append(planned(compiled, d.at(batch)))
        return Plan(inputs, outputs, others, dispatches)

    # arrays of the host ---------------------------------------------------------------------------

    @property
    def steps(self) -> Steps:
        """The steps that are repeated."""
        assert self._repeated, f"{self.launch.name} is run once"
        return self._repeated

    def run(self, *inputs: Any, steps: int = 0) -> list[Any]:
        """The outputs: fresh arrays, on the device if one of the inputs is, else of the host.

        Inputs have the shapes that the launch says; numbers of the host are rounded on their way.
        Those on the device are returned before they are computed. So many ``steps`` are done of
        what is repeated, whose points come first in all arrays: see `Steps.run`.
        """
        if self._repeated:
            start, shared, own = inputs
            return [self._repeated.run(start, RowData(shared, own), steps)]
        if any(isinstance(x, DeviceArray) for x in inputs):
            return self._run_on_device(inputs)
        batch = self._batch(inputs)
        results = [
            POOL.empty(shape, host_dtype(kind), aligned=False)
            for shape, kind in zip(self._results(batch), self._output_kinds, strict=True)
        ]
        self._run_into(inputs, results)
        return results

    def bind(self, inputs: Sequence[Any], results: Sequence[Any]) -> Callable[[], Any]:
        """A call that computes these inputs into these arrays, every time.

        All are on the host, or all on the device: these it does not wait for.
        """
        on_device = any(isinstance(x, DeviceArray) for x in inputs)
        return partial(self._run_on_device if on_device else self._run_into, inputs, results)

    def run_filled(
        self, fill: Callable[[slice], np.ndarray], step: int, results: Sequence[np.ndarray]
    ) -> None:
        """Write to arrays (B, k) what is computed of points, of which ``fill`` makes ``step``."""
        count = len(results[0])
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            self._run_into([fill(some)], [result[some] for result in results])

    def _batch(self, inputs: Sequence[Any]) -> int:
        """How many points there are, or 1 without a batch."""
        if not self.launch.has_batch:
            for x, a in zip(inputs, self.launch.inputs, strict=True):
                size = self._sizes[a.name]
                assert x.size == size, f"an array of {x.size} numbers, not {size}"
            return 1
        batch = len(inputs[0])
        for x, shape in zip(inputs, self._shapes, strict=True):
            assert x.shape[1:] == shape[1:] and len(x) == batch, f"{x.shape}, not {shape}"
        return batch

    def _results(self, batch: int) -> list[Any]:
        """The shapes of the outputs."""
        if not self.launch.has_batch:
            return self._output_shapes
        return [(batch, *rest) for _, *rest in self._output_shapes]

    def _run_into(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Write the results of arrays of the host to others.

        Up to a few MiB a call is one submit and one wait; more is computed while other points and
        results are on their way.
        """
        batch = self._batch(inputs)
        if not batch:
            return
        self.gpu.check()
        with self._lock, self.gpu.guard:
            queued = self.gpu.queued_bytes
            if self._nbytes * batch <= queued:
                run = self._cut(self._run_chunk, inputs, results)
                in_pieces(batch, *self._step(queued), run)
                return
            with self.gpu.transfers.upload() as up, self.gpu.transfers.download() as down:
                run = self._cut(self._stream_chunk, inputs, results, up, down)
                in_pieces(batch, *self._step(self.gpu.streamed_bytes), run)
            if not self.launch.has_batch:
                self._workspace = None  # it is as large as all arrays

    def _step(self, nbytes: int) -> tuple[int, int]:
        """Points of a chunk of at most so many bytes, and of which number they are multiples."""
        if not self.launch.has_batch:
            return 1, 1
        fit = nbytes // self._nbytes // POINTS_PER_WORKGROUP * POINTS_PER_WORKGROUP
        return min(self.chunk, max(fit, POINTS_PER_WORKGROUP)), POINTS_PER_WORKGROUP

    def _cut(
        self,
        run: Callable[..., None],
        inputs: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        *transfers: Any,
    ) -> Callable[[int, int], None]:
        """A function that runs some of the points, by these transfers if there are any."""
        if not self.launch.has_batch:
            return lambda start, end: run(1, inputs, results, *transfers)

        def some(start: int, end: int) -> None:
            parts = ([a[start:end] for a in arrays] for arrays in (inputs, results))
            run(end - start, *parts, *transfers)

        return some

    def _run_chunk(
        self, count: int, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> None:
        """A write for each input, one submit, one wait."""
        space = self._reserve(count)
        frame = self._frame(space, count)
        for x, (buffer, *_), kind in zip(inputs, space.inputs, self._kinds, strict=True):
            if x.size:
                self.gpu.write(buffer, 0, converted(x, kind))
        target = space.staging.claim(frame.nbytes)
        self.gpu.submit([*frame.steps, *frame.copies(target)])
        parts = zip(frame.starts, results, self._output_kinds, strict=True)
        space.staging.read(frame.nbytes, parts)

    def _stream_chunk(
        self,
        count: int,
        inputs: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        up: Upload,
        down: Download,
    ) -> None:
        """Inputs go up, are computed, and results come down when the transfer has time for them."""
        space = self._reserve(count)
        frame = self._frame(space, count)
        for x, (buffer, *_), kind in zip(inputs, space.inputs, self._kinds, strict=True):
            if x.size:
                up.put(x, buffer, dtype=kind)
        up.flush()
        self.gpu.submit(frame.steps)
        parts = zip(results, frame.places, self._output_kinds, strict=True)
        down.get(*(Segment(r, buffer, at, kind) for r, (buffer, at, _), kind in parts if r.size))

    def _reserve(self, count: int) -> Workspace:
        """A workspace for ``count`` points; it doubles, so a growing batch costs little."""
        space = self._workspace
        if space is None or space.capacity < count:
            grown = max(count, 2 * space.capacity if space else 0)
            unit = POINTS_PER_WORKGROUP if self.launch.has_batch else 1
            capacity = -(-min(grown, max(count, self.chunk)) // unit) * unit
            self._workspace = None
            plan = self._make_plan(capacity)
            space = self._workspace = Workspace(self.gpu, plan, capacity)
            self.gpu.hold(self)
        return space

    def _frame(self, space: Workspace, count: int) -> Frame:
        return space.frames.get(count, partial(self._make_frame, space, count))

    def _make_frame(self, space: Workspace, count: int) -> Frame:
        """Results stand one after another, so that one copy brings them all back."""
        plan = self._plan(count)
        ends = list(itertools.accumulate(map(aligned, plan.outputs)))
        starts = [0, *ends[:-1]]
        if space.together:
            outputs = [(space.results[0].buffer, start) for start in starts]
        else:
            outputs = [(storage.buffer, 0) for storage in space.results]
        places = [
            *space.inputs,
            *((buffer, start, 0) for buffer, start in outputs),
            *(whole(s) for s in space.others),
        ]
        nbytes = max(starts[-1] + plan.outputs[-1], QUAD_BYTES)
        pairs = zip(outputs, plan.outputs, strict=True)
        ranges = [(buffer, start, n) for (buffer, start), n in pairs]
        key = self._key, count, *map(_identity, places)
        steps = self._steps(key, plan, lambda: places)
        return Frame(steps, ranges, starts, nbytes, space.together)

    def hold(self, resident: Mapping[str, Any]) -> Held:
        """The launch with inputs that stay on the device, by their names: see `Held`."""
        assert not self.launch.has_batch, f"{self.launch.name} is of a batch"
        plan, floats = self._make_plan(1, apart=True), self.floats
        return Held(self.gpu, self.launch, plan, resident, self._make_frame, floats)

    def let_go(self) -> None:
        """Give back the memory that is kept between calls, unless one is under way."""
        if self._lock.acquire(blocking=False):
            self._workspace = self._scratch = None
            self._lock.release()

    # arrays on the device -------------------------------------------------------------------------

    def _run_on_device(
        self, inputs: Sequence[Any], into: Sequence[DeviceArray] = ()
    ) -> list[DeviceArray]:
        """The outputs on the device, before they are computed; ``into`` are arrays for them."""
        gpu, launch = self.gpu, self.launch
        gpu.check()
        with gpu.guard:
            arrays = self._sent(inputs)
            batch = self._batch(arrays)
            results = list(into) or [
                DeviceArray.empty(gpu, shape, kind)
                for shape, kind in zip(self._results(batch), self._output_kinds, strict=True)
            ]
            if not launch.has_batch:
                self._submit(1, [(*a.place, 0) for a in (*arrays, *results)])
                return results

            def some(start: int, end: int) -> None:
                ranges = [a.rows(start, end - start) for a in (*arrays, *results)]
                self.submit(end - start, ranges)

            in_pieces(batch, self.chunk, POINTS_PER_WORKGROUP, some)
        return results

    def submit(self, batch: int, arrays: Sequence[Range]) -> None:
        """Start what is computed for a batch, of at most ``chunk`` points, and wait for nothing.

        The arrays are the inputs and the outputs, and stand as the launch says.
        """
        assert batch <= self.chunk, "there are too many points for a dispatch"
        with self.gpu.guard:
            self._submit(batch, arrays)

    def _submit(self, batch: int, places: Sequence[Place]) -> None:
        gpu = self.gpu
        plan = self._plan(batch)
        if self.launch.has_batch:
            key, kept = self._key, list[Storage | None]([None] * len(plan.others))
        else:
            key, kept = self._kept_scratch(plan)
        others = [k or gpu.storage(n or QUAD_BYTES) for k, n in zip(kept, plan.others, strict=True)]
        taken = [whole(s) for s, k in zip(others, kept, strict=True) if k is None]
        gpu.submit_unwaited(
            self._steps(
                (key, batch, *map(_identity, places), *map(_identity, taken)),
                plan,
                lambda: [*places, *(whole(s) for s in others)],
            )
        )

    def _kept_scratch(self, plan: Plan) -> tuple[object, list[Storage | None]]:
        """The small scratch arrays, which are kept between calls, and a key for these.

        The device runs what is submitted in order, so that calls may share them.
        """
        if self._scratch is None:
            small = [self.gpu.storage(n) if 0 < n <= KEPT_BYTES else None for n in plan.others]
            self._scratch = object(), small
            self.gpu.hold(self)
        return self._scratch

    def _sent(self, inputs: Sequence[Any]) -> list[DeviceArray]:
        """The inputs on the device."""
        arrays = list(inputs)
        hosted = list[int]()
        for n, (a, x) in enumerate(zip(self.launch.inputs, inputs, strict=True)):
            if not isinstance(x, DeviceArray):
                hosted.append(n)
                continue
            if x.gpu is not self.gpu:
                raise DeviceError(f"{a.name} is on {x.device}, the kernel on {self.gpu.info}")
            x.require(self._kinds[n])
        if hosted:
            with self.gpu.transfers.upload() as up:
                for n in hosted:
                    arrays[n] = DeviceArray.sent(self.gpu, inputs[n], up, self._kinds[n])
                up.flush()
        return arrays

    # steps ----------------------------------------------------------------------------------------

    def _steps(
        self, key: tuple[Any, ...], plan: Plan, places: Callable[[], Sequence[Place]]
    ) -> list[Step]:
        """The dispatches with arrays at places that a key says."""

        def bound() -> list[Step]:
            at = places()
            return [
                Step(pipeline, group, p.across, p.down)
                for p in plan.dispatches
                for group in (self._bound(p, at),)
                for pipeline in p.compiled.pipelines
            ]

        steps: list[Step] = self.gpu.bound(key, bound)
        return steps

    def _bound(self, p: Planned, places: Sequence[Place]) -> Any:
        """The bind group of a dispatch."""
        ranges = [s.range(places) for s in p.slots]
        count, *arguments = p.numbers
        c = p.compiled
        return self.gpu.bind(count, ranges, c.readable, arguments, self.floats, c.moving)

    @property
    def scratch(self) -> Sequence[int]:
        """The bytes of the scratch arrays of a launch without a batch."""
        return self._plan(1).others

    @property
    def count(self) -> int:
        """The steps of a launch without a batch."""
        return sum(len(p.compiled.pipelines) for p in self._plan(1).dispatches)

    def moving_steps(self, places: Sequence[Place]) -> list[tuple[Step, list[int]]]:
        """The dispatches of a launch without a batch, with inputs, outputs and scratch at places.

        Beside each are the numbers of the arrays whose offsets from there it is to be given.
        """
        return [
            (Step(pipeline, group, p.across, p.down), moved)
            for p in self._plan(1).dispatches
            for group in (self._bound(p, places),)
            for moved in ([p.slots[n].array for n in p.compiled.moving],)
            for pipeline in p.compiled.pipelines
        ]


def _identity(place: Place) -> tuple[int, ...]:
    """Where an array is, as a part of keys."""
    buffer, *where = place
    return id(buffer), *where
