"""States of many problems in the memory of a GPU, and runs of which blocks are on their way.

One kernel spreads starts into states, and one gathers what a result shows of them. Where each
problem is an invocation's, the numbers of a state stand in columns, so that neighbours are read
together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceMemoryError
from symgrad.expr.graph.node import INPUT, Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.problems import Problems, RowData
from symgrad.kernel.shapes import Computation, Iteration, Output
from symgrad.kernel.skeletons.map import map_launch
from symgrad.kernel.target import WorkgroupTarget
from symgrad.optimize.layout import COUNT, FLAG, LIMIT, LOSS, STATUS
from symgrad.optimize.method import Bounds
from symgrad.optimize.runner import Compiled
from symgrad.optimize.states import Collected, Ends, Task
from symgrad.pipeline import VALUES, Options, build
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.device.guard import lifted
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.memory.transfer import Download
from symgrad.wgsl.printing.source import Style

BLOCK_BYTES: Final = 1 << 27
"""Bytes of problems, and of their results, that are worth a block of their own on a GPU."""

LEAST_PROBLEMS: Final = 64
"""Problems of a block for which a device must have memory."""

BLOCK_PROBLEMS: Final = 1 << 17
"""Problems of a block, at least, which keep a GPU busy."""


Make = Callable[[Iteration], Any]
"""What makes a runner of an iteration."""


class DeviceStates:
    """States in the memory of a GPU; results stay there if starts or data were there."""

    def __init__(self, task: Task, lead: Compiled, starts: Any, data: RowData) -> None:
        self.layout = task.layout
        self._stays = any(isinstance(a, DeviceArray) for a in (starts, data.shared, data.own))
        self._together = lead.rows_together(Problems(len(starts), data.rows))
        steps = lead.launched(self._together).steps
        self._gpu, self._task = steps.gpu, task
        if not isinstance(starts, DeviceArray):
            starts = DeviceArray.from_numpy(self._gpu, starts)
        self._starts, self._data = starts, steps.hold(len(starts), data)

    @cached_property
    def state(self) -> DeviceArray:
        """The states (S, size), `placed` as the launches take them."""
        task, starts = self._task, self._starts
        states = DeviceArray.empty(self._gpu, (len(starts), self.layout.size))
        first = tuple(task.first.tolist())
        spread = _spread(self._gpu, self.layout.n, first, task.bounds, self._data.by_columns)
        self._map(spread, starts, [states])
        return states

    @cached_property
    def _gather(self) -> Launched:
        """What reads results."""
        final = self._task.final if self._task.gathers else None
        by_columns = self._data.by_columns
        return _gather(self._gpu, self.layout.n, self.layout.size, final, by_columns)

    def advance(self, runner: Compiled, steps: int) -> None:
        """Have a runner do some steps; the first of them start with what makes the states."""
        with self._gpu.queue.together():
            runner.launched(self._together).steps.advance(self.state, steps, self._data)

    def active(self) -> bool:
        """Whether any problem is not done."""
        return len(self.state) > 0 and float(self._gathered()[-1].max()) > 0.0

    def stop(self) -> None:
        """Have the next step be the last."""
        states = self._data.in_rows(self.state).numpy()
        states[:, LIMIT] = states[:, COUNT]
        self.state = self._data.placed(DeviceArray.from_numpy(self._gpu, states))

    def ends(self) -> Ends:
        """What the result is now."""
        if self._stays:
            x, *others, _ = self._gathered()
            return Ends(x, *(a.reshape(-1) for a in others))
        collected = Collected(len(self.state), self.layout.n, np.dtype(np.float32))
        with self._gpu.guard, self._gpu.transfers.download() as down:
            self.fetch(slice(None), collected, down)
        return collected.ends()

    def fetch(self, part: slice, collected: Collected, down: Download) -> None:
        """Have a part of what is collected filled with these results, when the transfer ends."""
        x, fun, nit, status, *_ = self._gathered()
        targets = (
            collected.x,
            collected.fun[:, None],
            collected.nit[:, None],
            collected.status[:, None],
        )
        pairs = zip((x, fun, nit, status), targets, strict=True)
        down.get(*(array.into(target[part]) for array, target in pairs))

    def memory(self) -> tuple[np.ndarray, ...]:
        """What the method keeps now, each part (S, ...)."""
        states = self._data.in_rows(self.state)
        return self.layout.split(states.numpy())[1]

    def _gathered(self) -> list[DeviceArray]:
        """What is read of the states."""
        count, arrays = len(self.state), self._gather.launch.outputs
        outputs = [DeviceArray.empty(self._gpu, (count, a.size)) for a in arrays]
        self._map(self._gather, self.state, outputs)
        return outputs

    def _map(self, launched: Launched, source: DeviceArray, targets: Sequence[DeviceArray]) -> None:
        """Compute some arrays of another, of which a chunk may stand by columns."""
        for chunk in self._data.chunks:
            part = chunk.start, chunk.count
            launched.submit(chunk.count, [a.rows(*part) for a in (source, *targets)])


def streamed_through(task: Task, make: Make, owner: Gpu, starts: np.ndarray, data: RowData) -> Ends:
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
            return _streamed_in(blocks, task, make, owner, starts, data)
        except DeviceMemoryError:
            if size <= LEAST_PROBLEMS:
                raise
        number *= 2


def _streamed_in(
    blocks: Sequence[slice], task: Task, make: Make, owner: Gpu, starts: np.ndarray, data: RowData
) -> Ends:
    """All steps for the problems of each block, of which two at a time are on the GPU.

    While threads copy the first of them, the steps are made.
    """
    collected = Collected(len(starts), task.problem.n, np.dtype(np.float32))
    shared = _there(owner, data.shared)
    with owner.guard, owner.transfers.upload() as up, owner.transfers.download() as down:

        def run(part: slice, starts: DeviceArray, own: DeviceArray | None) -> None:
            stages = task.compiled(make)
            states = DeviceStates(task, stages[0][0], starts, RowData(shared, own))
            for runner, steps in stages:
                states.advance(runner, steps)
            states.fetch(part, collected, down)

        queue: deque[tuple[slice, DeviceArray, DeviceArray | None]] = deque()
        for part in blocks:
            own = None if data.own is None else DeviceArray.sent(owner, data.own[part], up)
            queue.append((part, DeviceArray.sent(owner, starts[part], up), own))
            with lifted():
                _ = task.stages
            if len(queue) > 1:  # threads copy this block meanwhile
                run(*queue.popleft())
            up.flush()
        while queue:
            run(*queue.popleft())
    return collected.ends()


def _there(owner: Gpu, array: Any) -> DeviceArray | None:
    """An array on a device, wherever it was, if there is one."""
    if array is None or isinstance(array, DeviceArray):
        return array
    return DeviceArray.from_numpy(owner, array)


_launches: Once[Any, Launched] = Once(32)


def _spread(gpu: Gpu, n: int, first: tuple[float, ...], box: Bounds, by_columns: bool) -> Launched:
    """The kernel from starts (S, n) to states (S, size)."""

    def launched() -> Launched:
        style = Style(comments=False, columns_out=by_columns)
        return _launched(gpu, states_from(n, first, box), style)

    return _launches.get((gpu, n, repr(first), box, by_columns), launched)


def _gather(gpu: Gpu, n: int, size: int, final: Iteration | None, by_columns: bool) -> Launched:
    """The kernel from states to x, fun, nit, status, success and the flag.

    With an iteration these are of what its step makes of the states, but for the flag.
    """

    def launched() -> Launched:
        style = Style(comments=False, columns_in=by_columns)
        return _launched(gpu, results_of(n, size, final), style)

    return _launches.get((gpu, n, size, final, by_columns), launched)


def states_from(n: int, first: tuple[float, ...], box: Bounds) -> Computation:
    """The state that begins at a start (n,) within a box, and as ``first`` beyond it."""
    options = Options("starts to states", comments=False, roll=False)
    return build(lambda v: [*box.project(v), *first[n:]], n, VALUES, options).computation


def results_of(n: int, size: int, final: Iteration | None) -> Computation:
    """What a result shows of a state, or of what a step makes of it: x and then single numbers.

    They are the loss, the steps, the status, whether it is a success, and the flag.
    """
    graph = final.update.graph.copy() if final else Graph()
    graph.names = [f"s{k}" for k in range(size)]
    before = [graph.intern((INPUT, k)) for k in range(size)]
    after = final.update.outputs[0].nodes if final else before
    success = functions.where(Expr(graph, after[STATUS]) > 0.0, 1.0, 0.0)
    columns = after[LOSS], after[COUNT], after[STATUS], success.id, before[FLAG]
    parts = [tuple(after[:n]), *((i,) for i in columns)]
    outputs = tuple(Output(f"y{k}", part) for k, part in enumerate(parts))
    return Computation("states to results", graph, outputs)


def _launched(gpu: Gpu, computation: Computation, style: Style) -> Launched:
    """A map over problems, compiled."""
    target = WorkgroupTarget(computation.workgroup)
    return Launched(
        gpu, map_launch(computation, target, style.columns_in, style.columns_out), style
    )
