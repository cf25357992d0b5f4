"""Many minimisations on several devices: each does all steps of the problems that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from symgrad.backend import backend_of
from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.kernel.problems import RowData
from symgrad.multi_device.pool import Arrays, DevicePool, Member
from symgrad.optimize.result import ENDED_BY_USER
from symgrad.optimize.states import Collected, Ends, Task
from symgrad.report.progress import Report
from symgrad.targets import Device, Devices

LEAST_PROBLEMS: Final = 2**11
"""Problems that are worth a piece."""

_pools: Once[Any, DevicePool] = Once(64)
"""How fast devices are at iterations that have run."""


class Piece(Protocol):
    """Does all steps of some problems on a device, and says what the method keeps if wanted."""

    def __call__(
        self, task: Task, device: Device, starts: np.ndarray, data: RowData, memory: bool
    ) -> tuple[Ends, tuple[np.ndarray, ...]]:
        """Where they ended, and each part (S, ...) of that."""
        ...


def require_unwatched(watched: bool, devices: Devices) -> None:
    """Refuse what sees all problems between steps."""
    if watched:
        raise InputError(
            f"callback= and history= see all problems between steps, and {devices} do theirs each "
            "for itself: give one device, or use progress="
        )


def shared_out(
    devices: Devices,
    tasks: Mapping[Device, Task],
    starts: np.ndarray,
    data: RowData,
    memory: bool,
    piece: Piece,
    report: Report | None,
) -> tuple[Ends, dict[str, Any]]:
    """All steps of all problems, and the ``memory`` of the result if it is wanted."""
    tasks = _alike(tasks)
    lead = tasks[devices.parts[0]]
    pool = _pools.get((lead.stages[0][0], devices), lambda: _pool(devices))
    collected = Collected(len(starts), lead.problem.n, lead.options.floats)
    memories: list[np.ndarray] = []
    if memory:
        states = np.empty((len(starts), lead.layout.size), collected.x.dtype)
        memories += lead.layout.split(states)[1]
    told = None
    if report is not None:
        _begin(collected, starts)
        told = _told(report)
    work = _Work(tasks, starts, data, memory, piece)
    collected.x, collected.fun, collected.nit, collected.status, *memories = pool.fill(
        len(starts),
        [collected.x, collected.fun, collected.nit, collected.status, *memories],
        work,
        told,
    )
    return collected.ends(), {"memory": tuple(memories)} if memory else {}


@dataclass(frozen=True)
class _Work:
    """Has a device do all steps of the problems of a part, and write where they ended."""

    tasks: Mapping[Device, Task]
    starts: np.ndarray
    data: RowData
    memory: bool
    piece: Piece

    def __call__(self, member: Member, part: slice, arrays: Arrays) -> None:
        task, device = self.tasks[member.device], member.device
        starts, data = self.starts[part], self.data.of(part)
        if backend_of(device).on_host:
            kind = task.options.floats
            starts, data = np.ascontiguousarray(starts, kind), data.contiguous(kind)
        ends, kept = self.piece(task, device, starts, data, self.memory)
        values = ends.x, ends.fun, ends.nit, ends.status, *kept
        for array, mine in zip(arrays, values, strict=True):
            array[part] = mine


def _alike(tasks: Mapping[Device, Task]) -> dict[Device, Task]:
    """The tasks, one for all devices that do it in the same way, made ready."""
    distinct: dict[Any, Task] = {}
    shared: dict[Device, Task] = {}
    for device, task in tasks.items():
        shared[device] = distinct.setdefault((task.options, task.stored, task.by_gpu), task)
    for task in distinct.values():
        _ = task.stages
    return shared


def _pool(devices: Devices) -> DevicePool:
    return DevicePool([Member(part, None) for part in devices.parts], LEAST_PROBLEMS)


def _begin(collected: Collected, starts: np.ndarray) -> None:
    """Write what results are of problems that are never begun."""
    collected.x[:], collected.fun[:] = starts, np.nan
    collected.nit[:], collected.status[:] = 0, ENDED_BY_USER


def _told(report: Report) -> Callable[[int], bool]:
    """Reports problems that are done to a function that says whether the user ends the rest."""

    def told(done: int) -> bool:
        try:
            report(done)
        except StopIteration:
            return True
        return False

    return told
