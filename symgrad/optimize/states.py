"""Where the states of many problems are while they are worked on, and what is read of them.

A state has several times as many numbers as a problem has variables, so states are made where they
are used, and only what a result shows of them is kept: on a CPU block by block, in the cache; on a
GPU in its memory, by a kernel that spreads starts into states and one that gathers results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from symgrad.backend import Backend
from symgrad.cache import Once
from symgrad.errors import DeviceMemoryError
from symgrad.expr.graph.node import INPUT, Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.host.memory import POOL, Blocks, ResidentArray
from symgrad.kernel.host.threads import by_threads
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.shapes import (
    NO_DATA,
    Computation,
    Iteration,
    Output,
    Problems,
    RowData,
    problems_of,
)
from symgrad.kernel.skeletons.map import map_launch
from symgrad.optimize.method import Bounds, Method, Tolerances
from symgrad.optimize.problem import (
    COUNT,
    FLAG,
    LIMIT,
    LOSS,
    STATUS,
    Layout,
    Problem,
    Stage,
    blind_iteration,
    final_iteration,
    iteration,
    layout_of,
)
from symgrad.pipeline import VALUES, DTypeName, Options, build
from symgrad.values.arrays import host_dtype, memory_dtype


class Runner(Protocol):
    """Runs steps of an iteration."""

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, s) after these steps."""
        ...


@dataclass(frozen=True)
class Compiled:
    """The launch of an iteration on a device, compiled once, in the form that suits the data."""

    iteration: Iteration
    options: Options
    backend: Backend

    def run(self, state: Any, steps: int, data: RowData = NO_DATA) -> Any:
        """The states (S, s) after these steps, on the host or on the device as they were.

        Raises:
            InputError: for arrays of other shapes.
        """
        problems = problems_of(self.iteration, state.shape, data)
        launched = self.launched(self.rows_together(problems))
        return launched.run(state, *data.arrays(problems.count), steps=steps)[0]

    def rows_together(self, problems: Problems) -> bool:
        """Whether invocations share the rows of a problem, for problems of these sizes."""
        return self.backend.rows_together(self.iteration, problems)

    def launched(self, together: bool = False) -> Any:
        """The launch, in which the rows of a problem are worked on ``together``, or not."""
        return self.backend.iteration(self.iteration, self.options, together)


# --- states ---------------------------------------------------------------------------------------

GATHERED_NODES: Final = 1000
"""Nodes up to which a loss is computed as results are gathered: longer shaders are cut."""

Stages = Sequence[tuple[Any, int]]
"""Runners with the steps that each is to do; all but the first do what ends a run."""


@dataclass(frozen=True)
class Task:
    """The task for each problem.

    A ``blind`` task computes the loss in the end only; ``stored`` is as for `problem.iteration`;
    ``by_gpu`` says whether a GPU's own loops do it.
    """

    problem: Problem
    method: Method
    bounds: Bounds
    stop: Tolerances
    options: Options
    steps: int
    blind: bool
    stored: bool = False
    by_gpu: bool = False

    @cached_property
    def layout(self) -> Layout:
        """Where everything stands in a state."""
        return layout_of(self.method, self.problem.n)

    @property
    def first(self) -> np.ndarray:
        """The first state (size,), but for the variables."""
        return self.layout.first(self.steps, np.nan if self.blind else 0.0)

    def compiled(self, make: Callable[[Iteration], Any]) -> Stages:
        """Runners of the stages, as ``make`` makes them of their iterations."""
        return [(make(step), count) for step, count in self.stages]

    @property
    def mode(self) -> str | None:
        """How a Jacobian or Hessian was made, if one is needed."""
        return self.stages[0][0].mode

    @cached_property
    def stages(self) -> list[Stage]:
        """The iterations, and the steps of each."""
        problem, method, options = self.problem, self.method, self.options
        if not self.blind:  # one more step evaluates the end and does not move
            step = iteration(problem, method, self.bounds, self.stop, options, self.stored)
            return [(step, self.steps + 1)]
        steps = blind_iteration(problem, method, self.bounds, options), self.steps
        return [steps] if self.gathers else [steps, (self.final, 1)]

    @cached_property
    def final(self) -> Iteration:
        """The iteration that computes the loss of a blind task."""
        return final_iteration(self.problem, self.method, self.options)

    @cached_property
    def gathers(self) -> bool:
        """Whether that is done as results are gathered, and not in a stage of its own."""
        if not (self.by_gpu and self.blind) or self.problem.columns:
            return False
        final = self.final.update
        return not final.is_structured and len(final.graph) <= GATHERED_NODES


@dataclass(frozen=True)
class Ends:
    """The fields of a result that states give: x (S, n), and (S,) each of the others.

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
        """The result at this point."""
        ...

    def memory(self) -> tuple[np.ndarray, ...]:
        """The memory of the method at this point, each part (S, ...)."""
        ...


# --- on the host ----------------------------------------------------------------------------------


class HostStates:
    """States in a NumPy array, for any runner."""

    def __init__(self, task: Task, starts: np.ndarray, data: RowData) -> None:
        self.layout, self.data = task.layout, data
        self.state = POOL.empty((len(starts), self.layout.size), starts.dtype)
        self.state[:] = task.first
        self.state[:, : self.layout.n] = starts

    def advance(self, runner: Runner, steps: int) -> None:
        """Have a runner do some steps."""
        self.state = runner.run(self.state, steps, self.data)

    def active(self) -> bool:
        """Whether any problem is not done."""
        return bool(self.state[:, FLAG].any())

    def stop(self) -> None:
        """Have the next step be the last."""
        self.state[:, LIMIT] = self.state[:, COUNT]

    def ends(self) -> Ends:
        """The result at this point."""
        collected = Collected(len(self.state), self.layout.n, self.state.dtype)
        collected.read(slice(None), self.state)
        return collected.ends()

    def memory(self) -> tuple[np.ndarray, ...]:
        """The memory of the method at this point, each part (S, ...)."""
        return self.layout.split(self.state)[1]


class Collected:
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
        status, success = self.status, POOL.empty(self.status.shape, np.dtype(bool))
        by_threads(len(status), lambda part: np.greater(status[part], 0, out=success[part]))
        return Ends(self.x, self.fun, self.nit, status, success)


def streamed(task: Task, stages: Stages, starts: np.ndarray, data: RowData) -> Ends:
    """All steps on the CPU, for some problems at a time, of which only the ends are kept."""
    n, first, count = task.problem.n, task.first.astype(starts.dtype), len(starts)
    collected = Collected(count, n, starts.dtype)
    launches = [(runner.launched(), steps) for runner, steps in stages]
    lead = launches[0][0]
    block = np.broadcast_to(first, (lead.steps.near, len(first))).copy()

    def fill(part: slice, states: np.ndarray) -> None:
        states[...] = block[: len(states)]
        for k in range(n):
            states[:, k] = starts[part, k]

    lead.stream(launches, count, fill, collected.read, RowData(*data.arrays(count)))
    return collected.ends()


# States of many problems in the memory of a GPU, and runs of which blocks are on their way.
#
# One kernel spreads starts into states, and one gathers what a result shows of them. Where each
# problem is an invocation's, the numbers of a state stand in columns, so that neighbours are read
# together.

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
