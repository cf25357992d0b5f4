"""Where the states of many problems are while they are worked on, and what is read of them.

A state has several times as many numbers as a problem has variables, so states are made where they
are used, and only what a result shows of them is kept: on a CPU block by block, in the cache; on a
GPU in its memory, by a kernel that spreads starts into states and one that gathers results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from symgrad.backend import Backend
from symgrad.kernel.host.memory import POOL
from symgrad.kernel.host.threads import by_threads
from symgrad.kernel.shapes import NO_DATA, Iteration, Problems, RowData, problems_of
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
from symgrad.pipeline import Options

# --- runners --------------------------------------------------------------------------------------
# Runners of iterations, such as a device's compiled launch.


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
