"""States of many problems in the memory of a GPU, and runs of which blocks are on their way.

One kernel spreads starts into states, and one gathers what a result shows of them. Where each
problem is an invocation's, the numbers of a state stand in columns, so that neighbours are read
together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.backend import Backend
from symgrad.cache import Once
from symgrad.errors import DeviceMemoryError
from symgrad.expr.graph.node import INPUT, Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.host.memory import Blocks
from symgrad.kernel.host.resident import ResidentArray
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.shapes import Computation, Iteration, Output, Problems, RowData
from symgrad.kernel.skeletons.map import map_launch
from symgrad.optimize.method import Bounds
from symgrad.optimize.problem import COUNT, FLAG, LIMIT, LOSS, STATUS
from symgrad.optimize.states import Collected, Compiled, Ends, Task
from symgrad.pipeline import VALUES, DTypeName, Options, build
from symgrad.values.arrays import host_dtype, memory_dtype

BLOCK_BYTES: Final = 1 << 27
"""Bytes of problems, and of their results, that are worth a block of their own on a GPU."""

LEAST_PROBLEMS: Final = 64
"""Problems of a block for which a device must have memory."""

BLOCK_PROBLEMS: Final = 1 << 17
"""Problems of a block, at least, which keep a GPU busy."""


PLAIN: Final = Options("starts to states", comments=False, roll=False)
"""The options of what makes states, and of what reads them."""

Make = Callable[[Iteration], Any]
"""Makes a runner of an iteration."""


class DeviceStates:
    """States in the memory of a GPU; results stay there if starts or data were there."""

    def __init__(self, task: Task, lead: Compiled, starts: Any, data: RowData) -> None:
        self.layout, self._task, self._backend = task.layout, task, lead.backend
        self._stays = any(isinstance(a, ResidentArray) for a in (starts, data.shared, data.own))
        self._together = lead.rows_together(Problems(len(starts), data.rows))
        steps = lead.launched(self._together).steps
        self._dtype = memory_dtype(task.options.dtype)
        if isinstance(starts, ResidentArray):
            starts.require(self._dtype)
        else:
            starts = lead.backend.array(starts, self._dtype)
        self._starts = starts
        self._data = steps.hold(len(starts), data)

    @cached_property
    def state(self) -> Any:
        """The states (S, size), `placed` as the launches take them."""
        task, first = self._task, tuple(self._task.first.tolist())
        by_columns, dtype = self._data.by_columns, self._task.options.dtype
        spread = _spread(self._backend, self.layout.n, first, task.bounds, by_columns, dtype)
        (states,) = self._data.computed(spread, self._starts)
        return states

    @cached_property
    def _gather(self) -> Any:
        """The kernel that reads results."""
        final = self._task.final if self._task.gathers else None
        sizes = self.layout.n, self.layout.size
        dtype = self._task.options.dtype
        return _gather(self._backend, *sizes, final, self._data.by_columns, dtype)

    def advance(self, runner: Compiled, steps: int) -> None:
        """Have a runner do some steps; the first of them start with what makes the states."""
        with self._data.together():
            runner.launched(self._together).steps.advance(self.state, steps, self._data)

    def active(self) -> bool:
        """Whether any problem is not done."""
        return len(self.state) > 0 and float(self._gathered()[-1].max()) > 0.0

    def stop(self) -> None:
        """Have the next step be the last."""
        states = self._data.in_rows(self.state).numpy()
        states[:, LIMIT] = states[:, COUNT]
        self.state = self._data.placed(self._backend.array(states, self._dtype))

    def ends(self) -> Ends:
        """The result at this point."""
        if self._stays:
            x, *others, _ = self._gathered()
            return Ends(x, *(a.reshape(-1) for a in others))
        collected = Collected(len(self.state), self.layout.n, host_dtype(self._dtype))
        self._data.fetch(self.collected(slice(None), collected))
        return collected.ends()

    def collected(
        self, part: slice, collected: Collected
    ) -> Iterator[tuple[ResidentArray, np.ndarray]]:
        """The results, and the part of what is collected that each is to fill."""
        columns = collected.fun, collected.nit, collected.status
        targets = collected.x, *(a[:, None] for a in columns)
        for array, target in zip(self._gathered(), targets, strict=False):
            yield array, target[part]

    def memory(self) -> tuple[np.ndarray, ...]:
        """The memory of the method at this point, each part (S, ...)."""
        states = self._data.in_rows(self.state)
        return self.layout.split(states.numpy())[1]

    def _gathered(self) -> list[Any]:
        """The numbers that are read of the states."""
        return self._data.computed(self._gather, self.state)


def streamed_through(
    task: Task, make: Make, backend: Backend, starts: np.ndarray, data: RowData
) -> Ends:
    """All steps on a GPU, for some problems while others are on their way there or back.

    There are more and smaller blocks of problems if the device has no memory for these.
    """
    own = 0 if data.own is None else math.prod(data.own.shape[1:])
    itemsize, count = task.options.floats.itemsize, len(starts)
    nbytes = itemsize * (2 * task.problem.n + 3 + own)
    number = max(1, min(count * nbytes // BLOCK_BYTES, count // BLOCK_PROBLEMS))
    while True:
        size = -(-count // number) or 1
        blocks = [slice(k, k + size) for k in range(0, count, size)]
        try:
            return _streamed_in(blocks, task, make, backend, starts, data)
        except DeviceMemoryError:
            if size <= LEAST_PROBLEMS:
                raise
        number *= 2


def _streamed_in(
    blocks: Sequence[slice],
    task: Task,
    make: Make,
    backend: Backend,
    starts: np.ndarray,
    data: RowData,
) -> Ends:
    """All steps for the problems of each block; the steps are made while the first is sent."""
    dtype = task.options.dtype
    collected = Collected(len(starts), task.problem.n, task.options.floats)
    shared = data.shared
    if isinstance(shared, np.ndarray):
        shared = backend.array(shared, dtype)

    def run(part: slice, own: Any, starts: Any) -> Iterator[tuple[ResidentArray, np.ndarray]]:
        stages = task.compiled(make)
        states = DeviceStates(task, stages[0][0], starts, RowData(shared, own))
        for runner, steps in stages:
            states.advance(runner, steps)
        return states.collected(part, collected)

    work = Blocks(blocks, [data.own, starts], run, lambda: task.stages)
    backend.in_blocks(work, dtype)
    return collected.ends()


_launches: Once[Any, Any] = Once(32)


def _spread(
    backend: Backend,
    n: int,
    first: tuple[float, ...],
    box: Bounds,
    by_columns: bool,
    dtype: DTypeName,
) -> Any:
    """The launch from starts (S, n) to states (S, size)."""

    def launched() -> Any:
        computation = states_from(n, first, box, dtype)
        return _launched(backend, computation, dtype, columns_out=by_columns)

    return _launches.get((backend.owner, n, repr(first), box, by_columns, dtype), launched)


def _gather(
    backend: Backend,
    n: int,
    size: int,
    final: Iteration | None,
    by_columns: bool,
    dtype: DTypeName,
) -> Any:
    """The launch from states to x, fun, nit, status, success and the flag.

    With an iteration these are of what its step makes of the states, but for the flag.
    """

    def launched() -> Any:
        return _launched(backend, results_of(n, size, final), dtype, columns_in=by_columns)

    return _launches.get((backend.owner, n, size, final, by_columns, dtype), launched)


def _launched(
    backend: Backend, computation: Computation, dtype: DTypeName, **by_columns: bool
) -> Any:
    """A map over problems, compiled."""
    target = WorkgroupTarget(computation.workgroup)
    launch = map_launch(computation, target, **by_columns)
    return backend.launch(launch, replace(PLAIN, dtype=dtype))


def states_from(
    n: int, first: tuple[float, ...], box: Bounds, dtype: DTypeName = "float32"
) -> Computation:
    """The state that begins at a start (n,) within a box, and as ``first`` beyond it."""
    options = replace(PLAIN, dtype=dtype)
    return build(lambda v: [*box.project(v), *first[n:]], n, VALUES, options).computation


def results_of(n: int, size: int, final: Iteration | None) -> Computation:
    """The computation of a result from a state, or from a step of it: x and then single numbers.

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
