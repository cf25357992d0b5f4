"""The memory of a launch's calls: what is bound to its dispatches, and where results stand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.kernel.host.memory import POOL, Blocks
from symgrad.kernel.host.threads import converted
from symgrad.kernel.launch import Launch
from symgrad.values.arrays import host_dtype
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import ALIGNMENT
from symgrad.wgsl.device.gpu import lifted
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.compiled import Compiled
from symgrad.wgsl.memory.buffers import Storage
from symgrad.wgsl.memory.queue import Copy, Step

# --- blocks of arrays of the host -----------------------------------------------------------------
# Arrays of the host that are worked on block by block, of which two at a time are on their way.


def in_blocks(gpu: Gpu, work: Blocks, dtype: np.dtype[Any]) -> None:
    """Do the work on each block, with the parts of the arrays on the device, in the ``dtype``.

    What it returns is filled when the transfer has time for it, and the work is prepared while
    threads copy the first block.
    """
    with gpu.guard, gpu.transfers.upload() as up, gpu.transfers.download() as down:

        def worked_on(block: slice, parts: Sequence[DeviceArray | None]) -> None:
            down.get(*(array.into(target) for array, target in work.run(block, *parts)))

        queue: deque[tuple[slice, list[DeviceArray | None]]] = deque()
        for block in work.blocks:
            parts = [
                a if a is None else DeviceArray.sent(gpu, a, up, dtype) for a in work.parts(block)
            ]
            queue.append((block, parts))
            with lifted():
                work.prepare()
            if len(queue) > 1:  # threads copy this block meanwhile
                worked_on(*queue.popleft())
            up.flush()
        while queue:
            worked_on(*queue.popleft())


# --- the memory of a launch -----------------------------------------------------------------------

QUAD_BYTES: Final = 32
"""Bytes of four numbers, of the widest, of which arrays of quads are whole multiples."""

BYTE: Final = np.dtype(np.uint8)

Place = Range
"""Where an array stands, and how many of its bytes are bound: 0 where these are all that it has."""


@dataclass(frozen=True)
class Slot:
    """A slot of a buffer: a table of the kernel's, or an array of a call."""

    table: Range | None
    array: int
    """Its number among the arrays of a call: inputs, outputs, scratch and temporary ones."""
    nbytes: int
    start: int | None = None
    """Where a part of the array begins, in bytes."""

    def range(self, places: Sequence[Place]) -> Range:
        """The range to bind, where the arrays of a call stand at these places."""
        if self.table:
            return self.table
        buffer, start, nbytes = places[self.array]
        if self.start is not None:
            return buffer, start + self.start, self.nbytes
        return buffer, start, nbytes or self.nbytes


@dataclass(frozen=True)
class Planned:
    """A dispatch of known sizes."""

    compiled: Compiled
    slots: Sequence[Slot]
    numbers: Sequence[int]
    """How many invocations there are, and the arguments."""
    across: int
    down: int


@dataclass(frozen=True)
class Plan:
    """A launch of known sizes: the bytes of its arrays, and its dispatches."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    others: Sequence[int]
    """Scratch arrays and temporary ones, which are scratch memory of a kernel, or stand for an
    array without numbers."""
    dispatches: Sequence[Planned]

    @property
    def reads_outputs(self) -> bool:
        """Whether a dispatch reads what another has written for the caller."""
        first, end = len(self.inputs), len(self.inputs) + len(self.outputs)
        return any(
            slot.table is None and first <= slot.array < end
            for d in self.dispatches
            for slot in d.slots[: d.compiled.readable]
        )


@dataclass(frozen=True)
class Frame:
    """How a call runs in a workspace: its steps, and where outputs stand there and on their way."""

    steps: Sequence[Step]
    places: Sequence[Place]
    starts: Sequence[int]
    nbytes: int
    together: bool
    """Whether one copy brings all outputs back."""

    @cached_property
    def spans(self) -> list[slice]:
        """Where the bytes of each output are among those that come back."""
        pairs = zip(self.starts, self.places, strict=True)
        return [slice(start, start + nbytes) for start, (_, _, nbytes) in pairs]

    def copies(self, target: Any) -> list[Copy]:
        """The copies of all outputs to a buffer."""
        if self.together:
            return [Copy(self.places[0][0], 0, target, 0, self.nbytes)]
        places = zip(self.places, self.starts, strict=True)
        return [Copy(b, 0, target, start, n) for (b, _, n), start in places if n]


def shared_memory(
    uses: Sequence[Iterable[str]], nbytes: Mapping[str, int]
) -> tuple[dict[str, int], list[int]]:
    """Memory for arrays: the number of the part that each has, and the bytes of each part.

    ``uses`` are the names of the arrays of each dispatch, in their order. Arrays of which one is
    done with before the other begins may have the same part: the smallest that is large enough,
    else the largest of the idle ones, which grows (best fit).
    """
    last = {name: k for k, names in enumerate(uses) for name in names}
    parts, sizes, idle = dict[str, int](), list[int](), list[int]()
    for k, names in enumerate(uses):
        for name in names:
            if name in parts or not nbytes.get(name):
                continue
            size = nbytes[name]
            fit = min((n for n in idle if sizes[n] >= size), key=sizes.__getitem__, default=None)
            part = max(idle, key=sizes.__getitem__, default=None) if fit is None else fit
            if part is None:
                part = len(sizes)
                sizes.append(size)
            else:
                idle.remove(part)
                sizes[part] = max(sizes[part], size)
            parts[name] = part
        idle += {parts[name] for name in names if name in parts and last[name] == k}
    return parts, sizes


MakeFrame = Callable[["Workspace", int], Frame]
"""Says how a call of so many points runs in a workspace."""


class Workspace:
    """The memory of calls on the host's arrays, of up to ``capacity`` points.

    ``results`` is one array for all outputs, unless a dispatch reads one of them: no buffer is read
    and written in the same. Some inputs may be ``resident``: of these the caller knows the places.
    """

    def __init__(
        self, gpu: Gpu, plan: Plan, capacity: int, resident: Mapping[int, Place] | None = None
    ) -> None:
        self.capacity, places = capacity, resident or {}
        self.storages = {
            n: gpu.storage(nbytes or QUAD_BYTES)
            for n, nbytes in enumerate(plan.inputs)
            if n not in places
        }
        """The memory of the inputs that are not resident, by their numbers."""
        self.inputs = [
            places[n] if n in places else whole(self.storages[n]) for n in range(len(plan.inputs))
        ]
        total = sum(map(aligned, plan.outputs))
        self.together = not plan.reads_outputs and total <= gpu.max_buffer
        sizes = [total] if self.together else plan.outputs
        self.results = [gpu.storage(n or QUAD_BYTES) for n in sizes]
        self.others = [gpu.storage(n) for n in plan.others]
        self.staging = gpu.staging()
        self.frames: Once[int, Frame] = Once(16)


class Held:
    """A launch some of whose inputs stay on the device; the others come from the host at each call.

    A call is one write for each of these, one submit, and one wait. Any number of threads may call
    it; they take turns.
    """

    def __init__(
        self,
        gpu: Gpu,
        launch: Launch,
        plan: Plan,
        resident: Mapping[str, Any],
        make_frame: MakeFrame,
        floats: np.dtype[Any],
    ) -> None:
        """Has a copy of each ``resident`` array of the host; what is on the device stays there."""
        self._gpu, self._launch, self._floats = gpu, launch, floats
        self._names = [a.name for a in launch.inputs]
        self._taken = {a.name: a.dtype(floats) for a in launch.inputs}
        nbytes = [a.dtype(floats).itemsize * a.size for a in launch.inputs]
        places = dict[int, Place]()
        self._storages = dict[str, Storage]()
        """The memory of what has come from the host."""
        for name, array in resident.items():
            n = self._names.index(name)
            if isinstance(array, DeviceArray) and array.size:
                places[n] = *array.place, 0
            else:
                storage = self._storages[name] = gpu.storage(nbytes[n] or QUAD_BYTES)
                places[n] = whole(storage)
        self._space = Workspace(gpu, plan, 1, places)
        self._make_frame = partial(make_frame, self._space, 1)
        self._sent = {n: nbytes[n] for n in self._space.storages}
        """The bytes of the inputs that come from the host, by their numbers."""
        self._kinds = [a.dtype(floats) for a in launch.outputs]
        self._frame: Frame | None = None
        self._lock = threading.Lock()
        self.replace(resident)

    def replace(self, resident: Mapping[str, Any]) -> None:
        """Copy other arrays of the host to the device, which may be shorter than what they are."""
        for name, array in resident.items():
            if name in self._storages and array.size:
                self._gpu.upload(self._storages[name], array, self._taken[name])

    def run(self, *inputs: np.ndarray) -> Any:
        """The outputs, each a row of numbers, or their total if the launch has one.

        The inputs are those that do not stay: contiguous, of the numbers that the launch says, or
        fewer.
        """
        return self.begin(*inputs)()

    def begin(self, *inputs: np.ndarray) -> Callable[[], Any]:
        """Start `run`, and give the function that waits for it: it has to be called."""
        run = self._running(inputs)
        next(run)
        return partial(_ended, run)

    def _running(self, inputs: Sequence[np.ndarray]) -> Generator[None, None, Any]:
        """A run, which stops once between what it submits and what it waits for."""
        gpu, space = self._gpu, self._space
        gpu.check()
        with self._lock, gpu.guard:
            frame = self._filled(inputs)
            gpu.submit([*frame.steps, *frame.copies(space.staging.claim(frame.nbytes))])
            yield
            data = POOL.empty((frame.nbytes,), BYTE, aligned=False)
            space.staging.read(frame.nbytes, [(0, data, BYTE)])
            pairs = zip(frame.spans, self._kinds, strict=True)
            numbers = [data[span].view(kind) for span, kind in pairs]
            outputs = [converted(x, host_dtype(x.dtype)) for x in numbers]
            total = self._launch.total
            return total(outputs, self._read) if total else outputs

    def _filled(self, inputs: Sequence[np.ndarray]) -> Frame:
        """How the call runs, after its inputs have been sent."""
        space, frame = self._space, self._frame
        for (n, nbytes), x in zip(self._sent.items(), inputs, strict=True):
            if x.nbytes > nbytes:
                name = self._names[n]
                raise AssertionError(f"{name} has {nbytes} bytes, and not {x.nbytes}")
            if x.nbytes:
                kind = self._taken[self._names[n]]
                self._gpu.write(space.inputs[n][0], 0, converted(x, kind))
        if frame is None:
            frame = self._frame = self._make_frame()
        return frame

    def _read(self, name: str) -> np.ndarray:
        """The numbers of a scratch array, as the last call has left them."""
        scratch = self._launch.scratch
        n = [a.name for a in scratch].index(name)
        kind = scratch[n].dtype(self._floats)
        numbers = np.empty(scratch[n].size, host_dtype(kind))
        self._gpu.download(self._space.others[n], numbers, dtype=kind)
        return numbers


def _ended(run: Generator[None, None, Any]) -> Any:
    """Wait for a run that has submitted its work: what it gives."""
    try:
        next(run)
    except StopIteration as end:
        return end.value
    raise AssertionError("a run stops once")


def whole(storage: Storage) -> Place:
    """All that an array has of a storage of its own."""
    return storage.buffer, 0, 0


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to where the next array may start."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
