"""Many minimisations at once: a method's step, repeated for all starts until each is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from symgrad.backend import Backend, backend_of, placed
from symgrad.cache import Once
from symgrad.errors import InputError, InputTypeError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.tracers.tree import Sizes
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for
from symgrad.kernel.host.threads import by_threads
from symgrad.kernel.shapes import Iteration, RowData
from symgrad.mathlib.define import Math
from symgrad.multi_device import Arrays, DevicePool, Member
from symgrad.optimize.arguments import (
    bounds_of,
    require_method,
    takes_result,
    tolerances_of,
    whole,
)
from symgrad.optimize.curvature import examined
from symgrad.optimize.method import Method, Tolerances
from symgrad.optimize.problem import can_be_stored, needs_loss
from symgrad.optimize.result import ENDED_BY_USER, Messages, optimize_result
from symgrad.optimize.starts import (
    MOST_STEPS,
    Search,
    Starts,
    data_of,
    on_host,
    search_of,
    starts_of,
    target_of,
)
from symgrad.optimize.states import (
    Collected,
    Compiled,
    DeviceStates,
    Ends,
    HostStates,
    Runner,
    Stages,
    States,
    Task,
    streamed,
    streamed_through,
)
from symgrad.optimize.stepwise import Evaluated, Stepwise, is_worthwhile
from symgrad.pipeline import DType, dtype_name
from symgrad.report.progress import Asked, Report, reporting
from symgrad.targets import Device, DeviceChoice, Devices
from symgrad.values.nested import variables_of
from symgrad.values.tables import Reduce

# --- on several devices ---------------------------------------------------------------------------
# Many minimisations on several devices: each does all steps of the problems that it is given.

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
        told = _told_by_all(report)
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


def _told_by_all(report: Report) -> Callable[[int], bool]:
    """Reports problems that are done to a function that says whether the user ends the rest."""

    def told(done: int) -> bool:
        try:
            report(done)
        except StopIteration:
            return True
        return False

    return told


# --- on one device --------------------------------------------------------------------------------

STEPS_PER_CALLBACK: Final = 250
"""Steps between two calls of a callback."""

STEPS_BEFORE_PROGRESS: Final = 8
"""Steps after which it is first looked how far a run is whose progress is shown."""

PACE: Final = 0.05
"""Seconds between two such looks, about: more and more steps are done for that."""

MOST_GROWTH: Final = 64.0
"""How many times as many steps come before a look as before the last one, at most: each look takes
as long as many steps of a GPU."""

TOLD: Final = 2**18
"""Numbers of starts up to which the best so far is looked up for a report."""


@frozen_for(EVERY_STEP)
def minimize_from(
    loss: Callable[..., Any],
    n: Sizes,
    starts: Any,
    method: Method,
    steps: int = 1000,
    tol: float | Tolerances | None = None,
    bounds: Any = None,
    *,
    shared: Any = None,
    own: Any = None,
    reduce: Reduce = "sum",
    device: DeviceChoice = None,
    dtype: DType = "float32",
    math: Math = "accurate",
    callback: Callable[[Any], Any] | None = None,
    history: bool | int = False,
    memory: bool = False,
    progress: Asked = False,
    runner: Callable[[Iteration], Runner] | None = None,
    mode: Mode = "auto",
) -> Any:
    """Minimise a function of n variables from every start at once.

    Args:
        loss: gets an array of n symbolic scalars and returns one; for `LevenbergMarquardt` and
            `GaussNewton`, residuals, whose half sum of squares is minimised. With data it gets a
            row as well, and the loss is the sum over rows. It is traced at every call.
        n: the number of variables; or their shape, or a dict of numbers, shapes and dicts again,
            as for `fused_forward_backward`: loss then gets them so.
        starts: (S, n), or (n,) for a single start; or nested and shaped as the variables, behind
            the axis of starts or without it: then ``x`` is so too. If starts or data are a
            `DeviceArray`, the results are such arrays too.
        method: a `Method`, such as ``sg.Adam(0.05)`` or ``sg.LBFGS()``.
        steps: the most steps, each of one evaluation.
        tol: the tolerance for the gradient alone, or `Tolerances`; None is the method's own: for
            first-order rules none, so that all steps are taken.
        bounds: ``(low, high)``, each a number or (n,), which every trial is projected into; or
            SciPy's ``Bounds``, or its list of a pair for each variable, None for an open end. Two
            pairs for two variables are refused, as they might be either. Of nested variables low
            and high may be nested likewise; or a dict has the bounds of each name that has any.
        shared: columns of data that are the same for all problems, (R, ks).
        own: columns of each problem's own data, (S, R, ko); they follow the shared ones. Either may
            be a `DeviceArray`.
        reduce: "sum" over the rows, or "mean".
        device: as everywhere; None is the first real GPU, or else the CPU.
        dtype: "float32", "float32x2" or "float64": see `Device.dtypes`.
        math: as for `fused_forward_backward`.
        callback: called between dispatches with the result so far, as ``intermediate_result`` if
            it names that; a true answer or StopIteration ends the run, and problems that are not
            done have status 99 (on the host), as in SciPy.
        history: True to keep the losses of every step in ``history``, (T, S), or every how many.
        memory: whether to add ``memory``, what the method kept, each part (S, ...).
        progress: True to show how far a run is that takes longer than a second, or a function that
            is called with a `Progress` at most ten times a second from then on. What it raises ends
            the run; after StopIteration problems that are not done have status 99.
        runner: makes what runs the iteration; the device's own compiled loop by default.
        mode: how the Jacobian of residuals, or the Hessian, is made: see `fused_jacobian`.

    Returns:
        SciPy's ``OptimizeResult``: x (S, n), fun (S,), nit (S,), success (S,), status (S,) and
        message (S,), and on the host ``best``, the index of the lowest loss, or None without
        starts; ``mode`` is how a Jacobian or Hessian was made. Of a single start (n,) the result is
        not batched: x (n,), fun a float, and there is no ``best``; ``history`` is (T,) then.

        ``success`` is only where the gradient is within its tolerance, or where the loss or the
        steps no longer change by more than theirs and the gradient is small for that too: see
        `Tolerances`. Where it is not small, or not known to be, and no step is seen to lead on, the
        status is -1, for precision loss; where least squares have run into a flat part of the
        model, it is -3. Of sums of squares in float64 that end so, or at their start, second
        derivatives tell which are minima, as where a column of the Jacobian vanishes, and from a
        maximum they go on. Methods that do not need the loss compute it at the end only: from where
        it has no value they go on as long as the gradient has one.

    Raises:
        InputError: for shapes or options that do not fit. TraceError: if loss cannot be traced.

    Example:
        >>> import symgrad as sg
        >>> result = sg.minimize_from(lambda v: (v[0] - 1)**2 + v[1]**2, 2,
        ...                           [[3.0, 1.0], [0.0, 0.0]], sg.LBFGS(), 50, device="cpu")
        >>> result.x.round(5) + 0.0
        array([[1., 0.],
               [1., 0.]], dtype=float32)
    """
    require_method(method)
    dtype = dtype_name(dtype)
    every = whole(history, "history", 0, MOST_STEPS)
    target = target_of(device, starts, shared, own)
    convert = runner is not None or backend_of(target).on_host
    tree, data = variables_of(n), data_of(shared, own, dtype, convert)
    box = bounds_of(bounds, tree)
    begin = starts_of(starts, tree, data, box, dtype, convert)
    search = search_of(
        loss, tree, begin, data, box, method, target, dtype,
        steps=steps, tol=tol, math=math, reduce=reduce, mode=mode,
    )  # fmt: skip
    return minimized(search, callback, every, memory, progress, runner)


def minimized(
    search: Search,
    callback: Callable[[Any], Any] | None = None,
    every: int = 0,
    memory: bool = False,
    progress: Asked = False,
    runner: Callable[[Iteration], Runner] | None = None,
) -> Any:
    """The result of a search: see `minimize_from`; the losses of ``every`` so many steps."""
    begin, data, backend = search.begin, search.data, search.backend
    watched, on_device = bool(every) or callback is not None, search.is_on_device
    task = _task(search, watched, runner is not None)
    by_rows = None if runner or on_device else _by_rows(task, search)
    if by_rows:
        task = replace(task, by_gpu=False)
        begin = replace(begin, rows=np.asarray(begin.rows, search.options.floats))
    make = runner or by_rows or (lambda step: Compiled(step, search.options, backend))
    if isinstance(search.device, Devices) and runner is None:
        require_unwatched(watched, search.device)
        return _shared_out(search.device, task, begin, data, memory, progress)

    def looked_at(ends: Ends) -> Ends:
        """The ends, of which second derivatives tell some."""
        in_double = search.options.dtype == "float64"
        if search.method.needs != "squares" or not in_double or on_device or runner:
            return ends
        again = partial(_again, search)
        return examined(ends, begin.rows, search.box, search.steps, data.own, again)

    with reporting(progress, "steps", search.steps) as report:
        shown = partial(_shown, task, begin)
        if not (runner or by_rows or watched or progress or memory or on_device):
            return shown(looked_at(_streamed(task, make, begin.rows, data, backend)), {})
        stages = task.compiled(make)
        states = _states(task, stages, begin.rows, data)
        # where it is blind there are no losses yet
        small = begin.rows.size <= TOLD and not task.blind
        tell = _told(states, report, search.steps, small) if progress else None
        losses, ended = _run(states, stages, task.blind, _asked(callback, shown), every, tell)
        kept = _kept(states if memory else None, losses if every else None)
        ends = states.ends()
        return shown(_ended(ends) if ended else looked_at(ends), kept)


def _again(
    search: Search, starts: Any, method: Method, steps: int, own: Any, memory: bool = False
) -> Any:
    """The result from other starts, of some of the problems, to the method's own tolerances."""
    dtype, data = search.options.dtype, RowData(search.data.shared, own)
    begin = starts_of(starts, search.tree, data, search.box, dtype)
    stop = tolerances_of(None, method, dtype)
    other = replace(search, begin=begin, data=data, method=method, steps=steps, stop=stop)
    return minimized(other, memory=memory)


def _task(search: Search, watched: bool, runs_elsewhere: bool) -> Task:
    """The task for each problem, if need be by what runs steps ``elsewhere``."""
    backend, problem = search.backend, search.problem
    blind = not (watched or needs_loss(search.method, search.stop) or problem.given)
    keeps = not runs_elsewhere and backend.keeps_matrix(problem.n, search.data.rows)
    stored = keeps and can_be_stored(search.method)
    by_gpu = not backend.on_host and not runs_elsewhere
    return Task(
        problem, search.method, search.box, search.stop, search.options, search.steps, blind,
        stored, by_gpu,
    )  # fmt: skip


def _shared_out(
    devices: Devices, task: Task, begin: Starts, data: RowData, memory: bool, progress: Asked
) -> Any:
    """The result of what several devices do, each of them some problems."""
    tasks = {part: _task_for(part, task, data.rows) for part in devices.parts}
    with reporting(progress, "problems", len(begin.rows)) as report:
        asked = report if progress else None
        ends, kept = shared_out(devices, tasks, begin.rows, data, memory, _piece, asked)
    return _shown(task, begin, ends, kept)


def _by_rows(task: Task, search: Search) -> Callable[[Iteration], Runner] | None:
    """A maker of steps by passes over the rows, if starts are few, or by what else evaluates."""
    make = partial(Stepwise, options=task.options, device=search.device)
    if isinstance(search.loss, Evaluated):
        return partial(make, evaluate=search.loss.sums(task.method))
    step, count = task.stages[0][0], len(search.begin.rows)
    if isinstance(search.device, Devices) or not is_worthwhile(step, count, search.data):
        return None
    return make


def _task_for(device: Device, task: Task, rows: int) -> Task:
    """The task as one of several devices does it."""
    backend = backend_of(device)
    stored = backend.keeps_matrix(task.problem.n, rows) and can_be_stored(task.method)
    options = placed(task.options, device)
    return replace(task, options=options, stored=stored, by_gpu=not backend.on_host)


def _piece(
    task: Task, device: Device, starts: np.ndarray, data: RowData, memory: bool
) -> tuple[Ends, tuple[np.ndarray, ...]]:
    """All steps of some problems on one of several devices, and what the method keeps if wanted."""
    backend = backend_of(device)
    make = partial(Compiled, options=task.options, backend=backend)
    if not memory:
        return _streamed(task, make, starts, data, backend), ()
    stages = task.compiled(make)
    states = _states(task, stages, starts, data)
    _run(states, stages, task.blind, None, 0, None)
    return states.ends(), states.memory()


def _streamed(
    task: Task,
    make: Callable[[Iteration], Runner],
    starts: np.ndarray,
    data: RowData,
    backend: Backend,
) -> Ends:
    """All steps of problems on the host, block by block."""
    if not backend.on_host:
        return streamed_through(task, make, backend, starts, data)
    stages = task.compiled(make)
    return streamed(task, stages, starts, data)


def _states(task: Task, stages: Stages, starts: Any, data: RowData) -> States:
    """The states where the runner wants them."""
    lead = stages[0][0]
    if isinstance(lead, Compiled) and not lead.backend.on_host:
        return DeviceStates(task, lead, starts, data)
    return HostStates(task, on_host(starts), RowData(on_host(data.shared), on_host(data.own)))


def _run(
    states: States,
    stages: Stages,
    blind: bool,
    callback: Callable[[Ends], bool] | None,
    every: int,
    tell: Callable[[int], bool] | None,
) -> tuple[list[np.ndarray], bool]:
    """Do all steps: the losses after every so many of them, and whether the user ended them."""
    losses: list[np.ndarray] = []
    (lead, steps), *last = stages
    chunk, ended = every or (STEPS_PER_CALLBACK if callback else None if tell else steps), False
    for done in _advanced(states, lead, steps, chunk):
        if every:
            losses.append(np.array(states.ends().fun))
        ended = (callback is not None and callback(states.ends())) or (tell and tell(done)) or False
        if ended:
            break
    if ended and not (last or blind):  # the losses are those of an earlier step
        states.stop()
        states.advance(lead, 1)
    for runner, count in last:
        states.advance(runner, count)
    return losses, ended


def _kept(states: States | None, losses: list[np.ndarray] | None) -> dict[str, Any]:
    """The fields of the result besides where the problems ended, if they are wanted."""
    fields = {} if states is None else {"memory": states.memory()}
    return fields if losses is None else fields | {"history": np.array(losses)}


def _asked(
    callback: Callable[..., Any] | None, shown: Callable[..., Any]
) -> Callable[[Ends], bool] | None:
    """Whether a callback, called as SciPy would with what is shown of a run, ends it."""
    if callback is None:
        return None
    if not callable(callback):
        raise InputTypeError(f"callback={callback!r}: a function of the result so far is needed")
    by_name = takes_result(callback)

    def ends(now: Ends) -> bool:
        result = shown(now, {})
        try:
            return bool(callback(intermediate_result=result) if by_name else callback(result))
        except StopIteration:
            return True

    return ends


def _ended(ends: Ends) -> Ends:
    """The ends of a run that was ended early: what was not done says so, where it is the host's."""
    if not isinstance(ends.status, np.ndarray):
        return ends
    return replace(ends, status=np.where(ends.status == 0, ENDED_BY_USER, ends.status))


def _told(states: States, report: Report, count: int, losses: bool) -> Callable[[int], bool]:
    """A function that reports that steps are done, and says whether the user has ended them.

    ``losses`` says whether it reports the lowest loss too.
    """

    def best() -> float:
        values = np.asarray(on_host(states.ends().fun))
        return float(np.min(values, initial=np.inf, where=np.isfinite(values)))

    def tell(done: int) -> bool:
        try:
            done = min(done, count)  # one more than these evaluates the end
            report(done, best if losses else None)
        except StopIteration:
            return True
        return False

    return tell


def _advanced(states: States, lead: Runner, steps: int, chunk: int | None) -> Iterator[int]:
    """Do the steps chunk by chunk, as long as any problem is active: how many are done.

    None are chunks that take a while each.
    """
    done, piece, active = 0, chunk or STEPS_BEFORE_PROGRESS, True
    while active and done < steps:
        count, start = min(piece, steps - done), time.perf_counter()
        states.advance(lead, count)
        done += count
        active = done < steps and states.active()  # which waits for the steps
        if chunk is None:
            took = time.perf_counter() - start
            piece = max(1, int(count * min(MOST_GROWTH, PACE / max(took, 1e-9))))
        yield done


def _shown(task: Task, begun: Starts, ends: Ends, kept: Mapping[str, Any]) -> Any:
    """The result that states have led to: nested as the starts, and not batched if there is one."""
    fields = vars(ends) | {"message": Messages(ends.status)} | {**kept}
    if begun.single:
        fields = _unbatched(fields)
    elif isinstance(ends.fun, np.ndarray):
        fields["best"] = _best(ends.fun)
    fields["x"] = begun.nested(fields["x"])
    return optimize_result(**fields, **({"mode": task.mode} if task.mode else {}))


def _unbatched(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a result's only problem: numbers of Python's, and arrays of its own."""
    plain = {name: fields[name][0].item() for name in ("fun", "nit", "status", "success")}
    plain |= {"x": fields["x"][0], "message": fields["message"][0]}
    if "memory" in fields:
        plain["memory"] = tuple(part[0] for part in fields["memory"])
    return plain | ({"history": fields["history"][:, 0]} if "history" in fields else {})


def _best(fun: np.ndarray) -> int | None:
    """The problem with the lowest loss that is finite; None if there are no problems."""
    if not len(fun):
        return None
    lowest = by_threads(len(fun), lambda part: part.start + int(np.argmin(fun[part])))
    k = lowest[int(np.argmin(fun[lowest]))]
    if np.isfinite(fun[k]):
        return k
    return int(np.argmin(np.where(np.isfinite(fun), fun, np.inf)))
