"""Loops over whole arrays on a GPU: an iteration is bound once, and started again and again.

Nothing but encoded steps is between one iteration and the next. A carry stands in some buffers in
turns, so that what an iteration begins with is bound where the last one has written it; what is
kept of all iterations is written where it stays, row by row, at offsets that the steps say.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import lcm
from typing import Any, Final

import numpy as np

from symgrad.arrays.array_loop import AROUND, CARRY, COUNTER, ROW, ArrayLoop
from symgrad.arrays.program import ArrayProgram, Constant
from symgrad.arrays.scalars import Array
from symgrad.cache import Once
from symgrad.errors import DeviceError
from symgrad.kernel.stages.plan import Plan, Segment
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.rows import Rows, pitch_of
from symgrad.wgsl.arrays.stored import ALIGNMENT
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.dispatch.workspace import QUAD_BYTES, Place, whole
from symgrad.wgsl.memory.queue import SUBMITTED_STEPS, Copy, Step
from symgrad.wgsl.printing.source import Style

LARGEST_OFFSET: Final = 2**32 - 1
"""The largest offset of a step, in bytes."""

COUNTED: Final = 1024
"""Numbers of iterations that stand together on a device."""

KEPT_STEPS: Final = 4096
"""Steps of a loop on certain buffers that are kept with their offsets, at most."""

RECENT_CALLS: Final = 4
"""Choices of buffers on which a loop keeps its steps: results that are held change the choice."""

FIRST_BLOCK: Final = 8
"""Iterations that are started before it is asked whether there is another one."""

BLOCK_SECONDS: Final = 0.1
"""How long a block of iterations should take, at most."""

INTEGER: Final = np.dtype(np.int32)

# --- where arrays stand ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Home:
    """Where what the body computes stands: one buffer more than it is carried iterations.

    They have it in turns, so many ``slots`` in each where it is kept.
    """

    depth: int
    slots: int


@dataclass(frozen=True)
class Homes:
    """Where the arrays of a loop's body stand, by their ``roles``."""

    roles: Mapping[Array, str]
    of: Mapping[Array, Home]
    """Arrays that the body computes, which are carried or kept."""
    carried: Mapping[Array, tuple[Array, int]]
    """Carries: what the body computes for them, and how many iterations before."""
    constant: Collection[Array]
    """Carries that stay as they are, or have no elements."""

    def moves(self, array: Array) -> bool:
        """Whether steps say where an array of the body stands in its buffer."""
        home = self.of.get(self.carried.get(array, (array, 0))[0])
        kept = home is not None and home.slots > 1
        return kept or self.roles.get(array) in (ROW, COUNTER)


def homes_of(loop: ArrayLoop, program: ArrayProgram, written: Collection[Array]) -> Homes | None:
    """The homes of what a body has ``written``; None if it gives on what no kernel writes."""
    outputs, n = program.outputs, loop.carries
    roles = dict[Array, str](zip(program.inputs, loop.roles, strict=True))
    source = dict(zip((x for x in roles if roles[x] == CARRY), outputs[:n], strict=True))
    constant = {x for x, y in source.items() if y is x or not x.size}
    carried = dict[Array, tuple[Array, int]]()
    for x in (x for x in source if x not in constant):
        depth, y = 1, source[x]
        while y in source and depth <= n:
            depth, y = depth + 1, source[y]
        carried[x] = y, depth
    rows = {carried.get(y, (y, 0))[0] for y in outputs[n:] if y.size}
    standing = {*written, *constant, *(x for x in roles if roles[x] in (ROW, AROUND))}
    known = all(y in standing or isinstance(y, Constant) for y in rows)
    alone = len({*carried.values()}) == len(carried)
    if not (known and alone and all(y in written for y, _ in carried.values())):
        return None
    of = dict[Array, Home]()
    for y in dict.fromkeys((*(y for y, _ in carried.values()), *rows)):
        if y in written:
            depth = max((d for x, d in carried.values() if x is y), default=0)
            of[y] = Home(depth, -(-(loop.count + depth) // (depth + 1)) if y in rows else 1)
    return Homes(roles, of, carried, constant)


class Counters:
    """Numbers of iterations on a GPU, where each can be bound."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._pages: Once[int, Rows] = Once(16)

    def rows(self, page: int) -> Rows:
        """The numbers of `COUNTED` iterations, each in the row of its number."""
        return self._pages.get(page, partial(self._made, page))

    def _made(self, page: int) -> Rows:
        numbers = np.zeros((COUNTED, ALIGNMENT // INTEGER.itemsize), INTEGER)
        numbers[:, 0] = np.arange(page * COUNTED, (page + 1) * COUNTED)
        array = DeviceArray.from_numpy(self._gpu, numbers, INTEGER)
        return Rows(self._gpu, (), INTEGER, (array,), ALIGNMENT, -page * COUNTED)


# --- a call ---------------------------------------------------------------------------------------

Moved = tuple[Step, list[tuple[int, int, int]]]
"""A step, and for each offset that it is given a shift, how many buffers take turns, and a pitch.

It has no array, which would keep its memory."""


class Iterations:
    """The steps of a loop's iterations on certain buffers, which come again after a ``period``.

    Where they read the number of the iteration, bind groups have a page of such numbers, as well.
    """

    def __init__(self, period: int, paged: bool) -> None:
        self._period, self._paged = period, paged
        self._patterns = dict[tuple[int, int], list[Moved]]()
        self._kept = dict[range, list[Step]]()

    def steps(self, numbers: range, bind: Callable[[int], list[Moved]]) -> list[Step]:
        """The steps of some iterations: those that ``bind`` gives, where there are none like it."""
        steps = self._kept.get(numbers)
        if steps is None:
            steps = [step for k in numbers for step in self._moved(k, bind)]
            if (len(self._kept) + 1) * len(steps) <= KEPT_STEPS:
                self._kept[numbers] = steps
        return steps

    def _moved(self, k: int, bind: Callable[[int], list[Moved]]) -> Iterator[Step]:
        """The steps of an iteration."""
        key = k % self._period, k // COUNTED if self._paged else 0
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = bind(k)
        for step, moved in pattern:
            offsets = tuple([(k + shift) // n * pitch for shift, n, pitch in moved])
            yield Step(step.pipeline, step.bindings, step.across, step.down, offsets)

    def forget(self) -> None:
        """Keep no steps with their offsets."""
        self._kept.clear()


class Run:
    """A run of a loop: where its arrays stand, and the memory that it takes.

    What it begins with, ``sent``, is kept until it is copied: others would get its memory.
    """

    def __init__(
        self, loop: RecordedLoop, places: dict[Array, Rows], sent: Sequence[DeviceArray]
    ) -> None:
        self._loop, self._gpu, self.places, self._sent = loop, loop.gpu, places, sent
        self._scratch = [
            [self._gpu.storage(n or QUAD_BYTES) for n in launched.scratch]
            for _, launched in loop.segments
        ]
        held = (n for s in self._scratch for storage in s for n in (id(storage.buffer),))
        period = lcm(*(len(r.homes) for r in places.values()))
        key = loop, *(n for r in places.values() for n in r.key), *held
        paged = loop.counter is not None
        self._iterations: Iterations = self._gpu.bound(key, partial(Iterations, period, paged))
        loop.keep(self._iterations)
        self._counters: Counters = self._gpu.tool(Counters)

    def start(self, numbers: range, first: Sequence[Copy] = ()) -> None:
        """Start iterations, behind some copies."""
        together = self._loop.together
        for at in range(0, len(numbers), together):
            steps = self._iterations.steps(numbers[at : at + together], self._bound)
            self._gpu.submit_unwaited([*first, *steps] if first else steps)
            first = ()
        if first:
            self._gpu.submit_unwaited(first)

    def _bound(self, k: int) -> list[Moved]:
        """The steps of an iteration with what is bound to them."""
        bound, counter = list[Moved](), self._loop.counter
        if counter is not None:
            self.places[counter] = self._counters.rows(k // COUNTED)
        for (segment, launched), scratch in zip(self._loop.segments, self._scratch, strict=True):
            arrays = *segment.inputs, *segment.outputs
            rows = [self.places[x] if x.size else None for x in arrays]
            places: list[Place] = [(*r.place(k), 0) if r else (None, 0, 0) for r in rows]
            places += map(whole, scratch)
            for step, numbers in launched.moving_steps(places):
                moved = [r for n in numbers if (r := rows[n]) is not None]
                bound.append((step, [(r.shift, len(r.homes), r.pitch) for r in moved]))
        return bound


class RecordedLoop:
    """A loop that is compiled for a GPU, of a body that is kernels alone.

    Any number of threads may run it.
    """

    def __init__(self, gpu: Gpu, loop: ArrayLoop, plan: Plan, style: Style, homes: Homes) -> None:
        self.gpu, self._loop, self._homes, self._program = gpu, loop, homes, plan.program
        self._dtypes = {"f": style.floats.dtype, "i": INTEGER}
        self.segments = [
            (part, self._launched(part, style)) for part in plan.parts if isinstance(part, Segment)
        ]
        """The kernels of an iteration."""
        read = {x for segment, _ in self.segments for x in segment.inputs}
        self.counter = next((x for x in read if homes.roles.get(x) == COUNTER), None)
        """The number of the iteration, if it is read."""
        self._carries = [x for x, role in homes.roles.items() if role == CARRY]
        steps = sum(launched.count for _, launched in self.segments)
        self.together = -(-SUBMITTED_STEPS // max(steps, 1))
        """Iterations that are submitted together."""
        self._recent: list[weakref.ref[Iterations]] = []
        self._fixed: dict[Array, Rows] = {
            c: self._alone(self._sent(c.data, c)) for c in plan.program.constants if c.size
        }

    def _launched(self, segment: Segment, style: Style) -> Launched:
        arrays = zip((*segment.inputs, *segment.outputs), segment.launch.arrays, strict=False)
        moving = {a.name for x, a in arrays if self._homes.moves(x)}
        return Launched(self.gpu, segment.launch, style, moving=moving)

    def keep(self, iterations: Iterations) -> None:
        """Have these iterations keep steps, and those on the buffers of the last other calls."""
        others = [it for ref in self._recent if (it := ref()) not in (None, iterations)]
        recent = [*others, iterations]
        self._recent = [weakref.ref(it) for it in recent[-RECENT_CALLS:]]
        for it in recent[:-RECENT_CALLS]:
            it.forget()

    def run(self, operands: Sequence[Any], rows: Collection[int] = ()) -> list[Any]:
        """The last carries, and stacked rows: those of the numbers ``rows`` as `Rows`."""
        gpu, loop = self.gpu, self._loop
        gpu.check()
        with gpu.guard:
            given = dict(zip(self._homes.roles, operands, strict=True))
            run, copies = self._begun(given)
            if loop.tested:
                end = self._until(run, copies)
            else:
                order = range(loop.count)
                run.start(order[::-1] if loop.reverse else order, copies)
                end = -1 if loop.reverse else loop.count
            results: list[Any] = [
                run.places[x].row(end) if x.size else given[x] for x in self._carries
            ]
            for n, y in enumerate(self._program.outputs[loop.carries :], loop.carries):
                if not y.size:
                    results.append(np.empty(loop.shapes[n], self._dtypes[y.kind]))
                elif n in rows:
                    results.append(run.places[y])
                else:
                    results.append(run.places[y].joined(loop.count, loop.axis))
        return results

    def _begun(self, given: Mapping[Array, Any]) -> tuple[Run, list[Copy]]:
        """A run of these inputs, and the copies that it begins with."""
        homes, loop = self._homes, self._loop
        places = {**self._fixed}
        inits, copies = dict[Array, DeviceArray](), list[Copy]()
        for x, value in given.items():
            if isinstance(value, Rows):
                places[x] = value
            elif x.size and homes.roles[x] != COUNTER:
                array = inits[x] = self._sent(value, x)
                row = homes.roles[x] == ROW
                places[x] = Rows.of(array, loop.axis) if row else self._alone(array)
        for y in (y for segment, _ in self.segments for y in segment.outputs if y.size):
            home = homes.of.get(y, Home(0, 1))
            pitch = pitch_of(y.shape, self._dtypes[y.kind])
            storages = tuple(self.gpu.storage(home.slots * pitch) for _ in range(home.depth + 1))
            moves = pitch if home.slots > 1 else 0
            shift = 0 if loop.reverse else home.depth
            places[y] = Rows(self.gpu, y.shape, self._dtypes[y.kind], storages, moves, shift)
            if moves:
                self.gpu.clear(storages)
        first = loop.count - 1 if loop.reverse else 0
        for x, (y, depth) in homes.carried.items():
            rows = places[y]
            places[x] = rows.shifted(rows.shift + (depth if loop.reverse else -depth))
            copies.append(places[x].filled(first, inits[x]))
        return Run(self, places, [*inits.values()]), copies

    def _alone(self, array: DeviceArray) -> Rows:
        """An array that is the same in all iterations."""
        return Rows(self.gpu, array.shape, array.dtype, (array,))

    def _sent(self, value: Any, like: Array) -> DeviceArray:
        """An operand on the GPU."""
        dtype = self._dtypes[like.kind]
        if not isinstance(value, DeviceArray):
            return DeviceArray.from_numpy(self.gpu, np.asarray(value), dtype)
        if value.gpu is not self.gpu:
            raise DeviceError(
                f"an array is on {value.device}, the loop on {self.gpu.info}: move the array with "
                "sg.device_array(x.numpy(), device)"
            )
        value.require(dtype)
        return value

    def _until(self, run: Run, copies: Sequence[Copy]) -> int:
        """Run blocks of iterations until the first carry says that there is none: how many.

        Carries stay as they are from then on, so that a block may have some too many.
        """
        going, count, done, block = self._carries[0], self._loop.count, 0, FIRST_BLOCK
        run.start(range(0), copies)
        while done < count and run.places[going].row(done).numpy().any():
            begin, end = time.perf_counter(), min(done + block, count)
            run.start(range(done, end))
            done = end
            self.gpu.wait()
            if time.perf_counter() - begin < BLOCK_SECONDS:
                block = max(block, done // 2)
        return done


def recorded(gpu: Gpu, loop: ArrayLoop, plan: Plan, style: Style) -> RecordedLoop | None:
    """A loop, compiled for a GPU; None where the host has a part in its body."""
    segments = [part for part in plan.parts if isinstance(part, Segment)]
    if len(segments) < len(plan.parts) or not loop.count:
        return None
    homes = homes_of(loop, plan.program, {y for s in segments for y in s.outputs})
    if homes is None:
        return None
    pitches = {y: pitch_of(y.shape, style.floats.dtype) for y in homes.of}
    room = max((h.slots * pitches[y] for y, h in homes.of.items()), default=0)
    steps = (step for segment in segments for step in segment.steps)
    moving = (sum(homes.moves(x) for _, x in (*s.reads, *s.writes)) for s in steps)
    if room > min(gpu.max_buffer, LARGEST_OFFSET) or max(moving, default=0) > gpu.max_moving:
        return None
    return RecordedLoop(gpu, loop, plan, style, homes)
