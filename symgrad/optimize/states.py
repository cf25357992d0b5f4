"""Where the states of many problems are while they are worked on, and what is read of them.

A state has several times as many numbers as a problem has variables, so states are made where they
are used, and only what a result shows of them is kept: on a CPU block by block, in the cache; on a
GPU in its memory, by a kernel that spreads starts into states and one that gathers results.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from symgrad.errors import DeviceMemoryError
from symgrad.expr import functions
from symgrad.expr.node import paused_gc
from symgrad.expr.trace import trace
from symgrad.kernel.memory import POOL
from symgrad.kernel.plan import Computation
from symgrad.llvm import loop as cpu
from symgrad.optimize.layout import COUNT, FLAG, LIMIT, LOSS, STATUS, Layout, layout_of
from symgrad.optimize.method import Bounds, Method, Tolerances
from symgrad.optimize.problem import (
    Problem,
    Stage,
    blind_iteration,
    final_iteration,
    iteration,
)
from symgrad.optimize.runner import Runner
from symgrad.pipeline import Options, Shaders, Wanted, simplify_outputs
from symgrad.results import Array
from symgrad.targets import Device, gpu_program
from symgrad.wgsl import loop as gpu
from symgrad.wgsl.array import DeviceArray
from symgrad.wgsl.device import Gpu
from symgrad.wgsl.dispatch import Program
from symgrad.wgsl.memory import Once
from symgrad.wgsl.transfer import Download

BLOCK_BYTES: Final = 1 << 27
"""Bytes of problems, and of their results, that are worth a block of their own on a GPU."""

LEAST_PROBLEMS: Final = 64
"""Problems of a block for which a device must have memory."""

BLOCK_PROBLEMS: Final = 1 << 17
"""Problems of a block, at least, which keep a GPU busy."""

Stages = Sequence[tuple[Any, int]]
"""Runners with the steps that each is to do; all but the first do what ends a run."""


@dataclass(frozen=True)
class Task:
    """What is done for each problem.

    A ``blind`` task computes the loss in the end only; ``stored`` is as for `problem.iteration`.
    """

    problem: Problem
    method: Method
    bounds: Bounds
    stop: Tolerances
    options: Options
    steps: int
    blind: bool
    stored: bool = False

    @cached_property
    def layout(self) -> Layout:
        """Where everything stands in a state."""
        return layout_of(self.method, self.problem.n)

    @property
    def first(self) -> np.ndarray:
        """The first state (size,), but for the variables."""
        return self.layout.first(self.steps, np.nan if self.blind else 0.0)

    def stages(self) -> list[Stage]:
        """The iterations, and the steps of each."""
        problem, method, options = self.problem, self.method, self.options
        if not self.blind:  # one more step evaluates the end and does not move
            made = iteration(problem, method, self.bounds, self.stop, options, self.stored)
            return [(made, self.steps + 1)]
        steps = blind_iteration(problem, method, self.bounds, options)
        return [(steps, self.steps), (final_iteration(problem, method, options), 1)]


@dataclass(frozen=True)
class Data:
    """The rows of a loss: ``shared`` (R, ks) by all problems, ``own`` (S, R, ko) of each."""

    shared: Any = None
    own: Any = None

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of both kinds."""
        shared, own = (0 if a is None else a.shape[-1] for a in (self.shared, self.own))
        return shared, own

    @property
    def rows(self) -> int:
        """The rows of a problem; 0 if there are no data."""
        array = self.own if self.shared is None else self.shared
        return 0 if array is None else array.shape[-2]


@dataclass(frozen=True)
class Ends:
    """What a result shows of states: x (S, n), and (S,) each of the others.

    ``nit`` and ``status`` are int32, ``success`` is bool; on a device all are float32.
    """

    x: Any
    fun: Any
    nit: Any
    status: Any
    success: Any


class States(Protocol):
    """The states of many problems, between one dispatch and the next."""

    def advance(self, runner: Any, steps: int) -> None:
        """Have a runner do some steps."""
        ...

    def active(self) -> bool:
        """Whether any problem is not done."""
        ...

    def stop(self) -> None:
        """Have the next step be the last: it evaluates the end and does not move."""
        ...

    def ends(self) -> Ends:
        """What the result is now."""
        ...

    def memory(self) -> tuple[np.ndarray, ...]:
        """What the method keeps now, each part (S, ...)."""
        ...


# --- on the host ----------------------------------------------------------------------------------


class HostStates:
    """States in a NumPy array, for any runner."""

    def __init__(self, task: Task, starts: np.ndarray, data: Data) -> None:
        self.layout, self.data = task.layout, data
        self.state = POOL.empty((len(starts), self.layout.size), starts.dtype)
        self.state[:] = task.first
        self.state[:, : self.layout.n] = starts

    def advance(self, runner: Runner, steps: int) -> None:
        """Have a runner do some steps."""
        self.state = runner.run(self.state, steps, self.data.shared, self.data.own)

    def active(self) -> bool:
        """Whether any problem is not done."""
        return bool(self.state[:, FLAG].any())

    def stop(self) -> None:
        """Have the next step be the last."""
        self.state[:, LIMIT] = self.state[:, COUNT]

    def ends(self) -> Ends:
        """What the result is now."""
        made = _Collected(len(self.state), self.layout.n, self.state.dtype)
        made.read(slice(None), self.state)
        return made.ends()

    def memory(self) -> tuple[np.ndarray, ...]:
        """What the method keeps now, each part (S, ...)."""
        return self.layout.split(self.state)[1]


class _Collected:
    """Arrays that are filled with what is read of states."""

    def __init__(self, count: int, n: int, dtype: Any) -> None:
        self.x, self.fun = POOL.empty((count, n), dtype), POOL.empty((count,), dtype)
        whole = np.dtype(np.int32)
        self.nit, self.status = POOL.empty((count,), whole), POOL.empty((count,), whole)

    def read(self, part: slice, states: np.ndarray) -> None:
        """Copy what is wanted of some problems' states (P, size)."""
        for k in range(self.x.shape[1]):
            self.x[part, k] = states[:, k]
        self.fun[part] = states[:, LOSS]
        self.nit[part], self.status[part] = states[:, COUNT], states[:, STATUS]

    def ends(self) -> Ends:
        """The arrays."""
        return Ends(self.x, self.fun, self.nit, self.status, self.status > 0)


def streamed(task: Task, stages: Stages, starts: np.ndarray, data: Data) -> Ends:
    """All steps on the CPU, for some problems at a time, of which only the ends are kept."""
    n, first = task.problem.n, task.first.astype(starts.dtype)
    found = _Collected(len(starts), n, starts.dtype)
    block = np.broadcast_to(first, (cpu.near(len(first), starts.dtype), len(first))).copy()

    def fill(part: slice, states: np.ndarray) -> None:
        states[...] = block[: len(states)]
        for k in range(n):
            states[:, k] = starts[part, k]

    cpu.run_from(stages, len(starts), fill, found.read, data.shared, data.own)
    return found.ends()


# --- on a GPU -------------------------------------------------------------------------------------


class DeviceStates:
    """States in the memory of a GPU; results are on the host unless the starts are there."""

    def __init__(self, task: Task, lead: gpu.Loop, starts: Any, data: Data, device: Device) -> None:
        self.layout, self._stays = task.layout, isinstance(starts, DeviceArray)
        self._gpu = lead.gpu
        if not isinstance(starts, DeviceArray):
            starts = DeviceArray.from_numpy(lead.gpu, starts)
        spread = _spread(lead.gpu, device, self.layout.n, tuple(task.first.tolist()), task.bounds)
        (self.state,) = spread.run_on_device(starts)
        self._gather = _gather(lead.gpu, device, self.layout.n, self.layout.size)
        self._data = lead.bind(len(starts), data.shared, data.own)

    def advance(self, runner: gpu.Loop, steps: int) -> None:
        """Have a runner do some steps."""
        runner.advance(self.state, steps, self._data)

    def active(self) -> bool:
        """Whether any problem is not done."""
        return bool(self._gather.run_on_device(self.state)[-1].numpy().any())

    def stop(self) -> None:
        """Have the next step be the last."""
        states = self.state.numpy()
        states[:, LIMIT] = states[:, COUNT]
        self.state = DeviceArray.from_numpy(self._gpu, states)

    def ends(self) -> Ends:
        """What the result is now."""
        if self._stays:
            x, *others, _ = self._gather.run_on_device(self.state)
            return Ends(x, *(a.reshape(-1) for a in others))
        found = _Collected(len(self.state), self.layout.n, np.dtype(np.float32))
        with self._gpu.guard, self._gpu.transfers.download() as down:
            self.fetch(slice(None), found, down)
        return found.ends()

    def fetch(self, part: slice, found: _Collected, down: Download) -> None:
        """Have a part of what is collected filled with these results, when the transfer ends."""
        x, fun, nit, status, *_ = self._gather.run_on_device(self.state)
        targets = found.x, found.fun[:, None], found.nit[:, None], found.status[:, None]
        pairs = zip((x, fun, nit, status), targets, strict=True)
        down.get(*(array.into(target[part]) for array, target in pairs))

    def memory(self) -> tuple[np.ndarray, ...]:
        """What the method keeps now, each part (S, ...)."""
        return self.layout.split(self.state.numpy())[1]


def streamed_through(
    task: Task, stages: Stages, starts: np.ndarray, data: Data, device: Device
) -> Ends:
    """All steps on a GPU, for some problems while others are on their way there or back.

    There are more and smaller blocks of problems if the device has no memory for these.
    """
    own = 0 if data.own is None else math.prod(data.own.shape[1:])
    nbytes, count = 4 * (2 * task.problem.n + 3 + own), len(starts)
    number = max(1, min(count * nbytes // BLOCK_BYTES, count // BLOCK_PROBLEMS))
    while True:
        size = -(-count // number) or 1
        blocks = [slice(k, k + size) for k in range(0, count, size)]
        try:
            return _streamed_in(blocks, task, stages, starts, data, device)
        except DeviceMemoryError:
            if size <= LEAST_PROBLEMS:
                raise
        number *= 2


def _streamed_in(
    blocks: Sequence[slice], task: Task, stages: Stages, starts: np.ndarray, data: Data,
    device: Device,
) -> Ends:  # fmt: skip
    """All steps for the problems of each block, of which two at a time are on the GPU."""
    lead: gpu.Loop = stages[0][0]
    owner = lead.gpu
    found = _Collected(len(starts), task.problem.n, np.dtype(np.float32))
    shared = _there(owner, data.shared)
    with owner.guard, owner.transfers.upload() as up, owner.transfers.download() as down:

        def run(part: slice, starts: DeviceArray, own: DeviceArray | None) -> None:
            states = DeviceStates(task, lead, starts, Data(shared, own), device)
            for runner, steps in stages:
                states.advance(runner, steps)
            states.fetch(part, found, down)

        there: deque[tuple[slice, DeviceArray, DeviceArray | None]] = deque()
        for part in blocks:
            own = None if data.own is None else DeviceArray.sent(owner, data.own[part], up)
            there.append((part, DeviceArray.sent(owner, starts[part], up), own))
            if len(there) > 1:  # threads copy this block meanwhile
                run(*there.popleft())
            up.flush()
        while there:
            run(*there.popleft())
    return found.ends()


def _there(owner: Gpu, array: Any) -> DeviceArray | None:
    """An array on a device, wherever it was, if there is one."""
    if array is None or isinstance(array, DeviceArray):
        return array
    return DeviceArray.from_numpy(owner, array)


_programs: Once[Any, Program] = Once(32)


def _spread(gpu: Gpu, device: Device, n: int, first: tuple[float, ...], box: Bounds) -> Program:
    """The kernel from starts (S, n) to states (S, size)."""

    def made() -> Program:
        return _mapped(device, n, lambda v: [[*box.project(v), *first[n:]]], "starts to states")

    return _programs.get((gpu, n, repr(first), box), made)


def _gather(gpu: Gpu, device: Device, n: int, size: int) -> Program:
    """The kernel from states to x, fun, nit, status, success and the flag."""

    def gathered(s: Any) -> list[list[Any]]:
        success = functions.where(s[STATUS] > 0.0, 1.0, 0.0)
        return [[*s[:n]], [s[LOSS]], [s[COUNT]], [s[STATUS]], [success], [s[FLAG]]]

    return _programs.get(
        (gpu, n, size), lambda: _mapped(device, size, gathered, "states to results")
    )


def _mapped(device: Device, n: int, f: Any, name: str) -> Program:
    """The kernel of a function that returns lists of expressions, one for each output."""
    options = Options(name, "accurate", "float32", True, False)
    lengths: list[int] = []

    def flat(v: Any) -> list[Any]:
        rows = f(v)
        lengths.extend(len(row) for row in rows)
        return [e for row in rows for e in row]

    with paused_gc():
        traced = trace(flat, n)
        ends = np.cumsum([0, *lengths]).tolist()
        cut = [traced.outputs[a:b] for a, b in itertools.pairwise(ends)]
        wanted = [Wanted(f"y{k}", tuple(c), Array((len(c),))) for k, c in enumerate(cut)]
        graph, outputs = simplify_outputs(traced, wanted, options)
    computation = Computation(name, graph, tuple(outputs))
    return gpu_program(Shaders(computation, options, name), device)
