"""Many minimisations at once: a method's step, repeated for all starts until each is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.accumulate import Mode, require_mode
from symgrad.expr.expression import Expr
from symgrad.expr.node import INPUT, reachable
from symgrad.expr.randomness import EVERY_STEP, frozen_for
from symgrad.expr.trace import checked_count
from symgrad.kernel.plan import Iteration
from symgrad.llvm import loop as cpu
from symgrad.mathlib.define import Math
from symgrad.optimize.arguments import (
    bounds_of,
    real_columns,
    real_matrix,
    require_method,
    tolerances_of,
    whole,
)
from symgrad.optimize.evaluation import Accumulation
from symgrad.optimize.method import Bounds, Method, Tolerances
from symgrad.optimize.problem import Problem, can_be_stored, needs_loss
from symgrad.optimize.result import Messages, optimize_result
from symgrad.optimize.runner import Runner
from symgrad.optimize.states import (
    Data,
    DeviceStates,
    Ends,
    HostStates,
    Stages,
    States,
    Task,
    streamed,
)
from symgrad.pipeline import DType, DTypeName, Options, dtype_name
from symgrad.rows import Reduce
from symgrad.screen import open_screen
from symgrad.targets import Device, DeviceChoice, choose, devices, require_gpu_dtype
from symgrad.wgsl import loop as gpu
from symgrad.wgsl.array import DeviceArray
from symgrad.wgsl.device import open_gpu
from symgrad.wgsl.memory import Once
from symgrad.wgsl.solve import fits

MOST_STEPS: Final = 2**24
"""Steps that float32 can count."""

CHUNK: Final = 250
"""Steps between two calls of a callback."""

ENDED: Final = 99
"""The status of a problem that a callback ended."""

UNROLLED: Final = 12
"""Variables up to which least squares on a GPU are straight-line code: nothing is faster there.

Its length grows with their cube: with 15 variables drivers take ten seconds, with 30 a minute.
"""

STORED_ROWS: Final = 100_000
"""Rows up to which the kernel keeps their matrix: for more, its loops have too many turns."""

PARTS: Final = 20
"""Into how many parts the steps are divided at least where progress is shown."""


@frozen_for(EVERY_STEP)
def minimize_from(
    loss: Callable[..., Any], n: int, starts: Any, method: Method, steps: int = 1000,
    tol: float | Tolerances | None = None, bounds: Any = None, *, shared: Any = None,
    own: Any = None, reduce: Reduce = "sum", device: DeviceChoice = None, dtype: DType = "float32",
    math: Math = "accurate", callback: Callable[[Any], Any] | None = None,
    history: bool | int = False, memory: bool = False, progress: bool = False,
    runner: Callable[[Iteration], Runner] | None = None, mode: Mode = "auto",
) -> Any:  # fmt: skip
    """Minimise a function of n variables from every start at once.

    Args:
        loss: gets n symbolic scalars and returns one; for `LevenbergMarquardt` and `GaussNewton`,
            residuals, whose half sum of squares is minimised. With data it gets a row as well,
            and the loss is the sum over rows. It is traced at every call.
        n: the number of variables.
        starts: (S, n), or (n,) for a single start. With a `DeviceArray`, the results are such
            arrays too.
        method: a `Method`, such as ``sg.Adam(0.05)`` or ``sg.LBFGS()``.
        steps: the most steps, each of one evaluation.
        tol: the tolerance for the gradient alone, or `Tolerances`; None is the method's own: for
            first-order rules none, so that all steps are taken.
        bounds: ``(low, high)``, each a number or (n,), which every trial is projected into; or
            SciPy's ``Bounds``, or its list of a pair for each variable, None for an open end. Two
            pairs for two variables are refused, as they might be either.
        shared: columns of data that are the same for all problems, (R, ks).
        own: columns of each problem's own data, (S, R, ko); they follow the shared ones. Either may
            be a `DeviceArray`.
        reduce: "sum" over the rows, or "mean".
        device: as everywhere; None is the first real GPU, or else the CPU.
        dtype: "float32", or on the CPU "float64".
        math: as for `fused_forward_backward`.
        callback: called between dispatches with the result so far, as ``intermediate_result`` if
            it names that; a true answer or StopIteration ends the run, and problems that are not
            done have status 99 (on the host), as in SciPy.
        history: True to keep the losses of every step in ``history``, (T, S), or every how many.
        memory: whether to add ``memory``, what the method kept, each part (S, ...).
        progress: whether to show how far a long run is.
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
        model, it is -3. Methods that do not need the loss compute it at the end only: from where it
        has no value they go on as long as the gradient has one.

    Raises:
        InputError: for shapes or options that do not fit. TraceError: if loss cannot be traced.

    Example:
        >>> import symgrad as sg
        >>> found = sg.minimize_from(lambda v: (v[0] - 1)**2 + v[1]**2, 2,
        ...                          [[3.0, 1.0], [0.0, 0.0]], sg.LBFGS(), 50, device="cpu")
        >>> found.x.round(5) + 0.0
        array([[1., 0.],
               [1., 0.]], dtype=float32)
    """
    require_method(method)
    require_mode(mode)
    dtype = dtype_name(dtype)
    count = whole(steps, "steps", 0, MOST_STEPS - 1)
    every = whole(history, "history", 0, MOST_STEPS)
    target = target_of(device, starts, shared, own)
    data = _data(shared, own, dtype)
    problem = _problem(loss, n, data, reduce, mode)
    box = bounds_of(bounds, problem.n)
    begin = _starts(starts, problem.n, data, box, dtype)
    options, stop = _options(loss, math, dtype, target), tolerances_of(tol, method, dtype)
    watched = bool(every) or callback is not None
    blind = not (watched or needs_loss(method, stop))
    stored = target.is_gpu and runner is None and _stored(problem, method, data.rows)
    task = Task(problem, method, box, stop, options, count, blind, stored)
    make = runner or (lambda made: runner_for(made, options, target))
    planned = task.stages()
    told = {"mode": planned[0][0].mode} if planned[0][0].mode else {}
    stages = [(make(made), count) for made, count in planned]
    shown = partial(_shown, told, not isinstance(starts, DeviceArray) and np.ndim(starts) < 2)
    if not (target.is_gpu or runner or watched or progress or memory):
        return shown(streamed(task, stages, begin, data), {})
    states = _states(task, stages, begin, data, target)
    losses, ended = _run(states, stages, _asked(callback, shown), every, progress)
    kept = _kept(states if memory else None, losses if every else None)
    return shown(_ended(states.ends()) if ended else states.ends(), kept)


def minimize_kernel(
    kernel: Any, starts: Any, method: Method, steps: int = 1000, tol: Any = None, **options: Any
) -> Any:
    """Minimise a kernel's loss from every start; for "squares", its values are the residuals.

    The device and the dtype are the kernel's; ``options`` are more of `minimize_from`.

    Example:
        >>> import symgrad as sg
        >>> from symgrad.optimize.minimize import minimize_kernel
        >>> kernel = sg.fused_forward_backward(1, lambda v: (v[0] - 2)**2, device="cpu")
        >>> minimize_kernel(kernel, [[0.0]], sg.Newton(), 5).x
        array([[2.]], dtype=float32)
    """
    require_method(method)
    if method.needs == "squares" and kernel.outputs[0] == "loss":
        raise InputError(
            f"{type(method).__name__} minimises squares, and {kernel.name} is a loss: give it "
            "residuals, by sg.fused_jacobian, sg.fused_least_squares (of rows of data), "
            "sg.fit_many or sg.minimize_from; or use sg.LBFGS() or sg.Newton()"
        )
    where = {"device": kernel.device, "dtype": str(kernel.dtype)} | options
    return minimize_from(retraced(kernel), kernel.n_inputs, starts, method, steps, tol, **where)


def retraced(kernel: Any) -> Callable[[Any], Any]:
    """The first result of a kernel as a function, of its inputs, that can be traced again."""
    found = kernel.expr
    first = found if len(kernel.outputs) == 1 else found[0]
    roots = [first] if isinstance(first, Expr) else list(first)
    graph = roots[0].graph

    def replay(*parts: Any) -> Any:
        made: dict[int, int] = {}
        v = [e for part in parts for e in part]
        target = v[0].graph
        for i in reachable(graph, [r.id for r in roots]):
            op, *rest = graph.nodes[i]
            if op is INPUT:
                made[i] = v[rest[0]].id
            elif op.arity:
                made[i] = target.add(op, *[made[a] for a in rest])
            else:
                made[i] = target.intern(graph.nodes[i])
        values = [Expr(target, made[r.id]) for r in roots]
        return values[0] if first is roots[0] else values

    replay.__name__ = kernel.name
    return replay


def _stored(problem: Problem, method: Method, rows: int) -> bool:
    """Whether a GPU is to keep the matrix of the normal equations, rather than expressions."""
    many = 0 < rows <= STORED_ROWS and problem.n > UNROLLED and fits(problem.n)
    return many and can_be_stored(method)


_loops: Once[Any, Runner] = Once(16)


def runner_for(made: Iteration, options: Options, device: Device) -> Runner:
    """The device's own way to run an iteration, compiled once."""
    if device.is_gpu:
        owner = open_gpu(device.index)
        return _loops.get((made, options.math, owner), lambda: gpu.Loop(owner, made, options.math))
    math, dtype = options.math, options.dtype
    return _loops.get((made, math, dtype), lambda: cpu.Loop(made, math, dtype))


def target_of(device: Any, *arrays: Any) -> Device:
    """The device that is chosen, or that the arrays are on."""
    there = {id(a.gpu): a.gpu for a in arrays if isinstance(a, DeviceArray)}
    if not there:
        return choose(device)
    if device is None and len(there) == 1:
        (owner,) = there.values()
        found = [d for d in devices() if d.is_gpu and open_gpu(d.index) is owner]
        target = found[0] if found else choose(device)
    else:
        target = choose(device)
    if not target.is_gpu or {id(open_gpu(target.index))} != {*there}:
        raise InputTypeError(f"arrays on another device cannot be read by {target}: use .numpy()")
    return target


def _states(task: Task, stages: Stages, starts: Any, data: Data, target: Device) -> States:
    """The states where the runner wants them."""
    lead = stages[0][0]
    if isinstance(lead, gpu.Loop):
        return DeviceStates(task, lead, starts, data, target)
    return HostStates(task, on_host(starts), Data(on_host(data.shared), on_host(data.own)))


def on_host(array: Any) -> Any:
    """An array of NumPy's, wherever it was."""
    return array.numpy() if isinstance(array, DeviceArray) else array


def _run(
    states: States, stages: Stages, callback: Callable[[Ends], bool] | None, every: int,
    progress: bool,
) -> tuple[list[np.ndarray], bool]:  # fmt: skip
    """Do all steps: the losses after every so many of them, and whether the callback ended them."""
    losses: list[np.ndarray] = []
    (lead, steps), *last = stages
    short = max(1, min(CHUNK, -(-steps // PARTS))) if progress else CHUNK
    chunk = every or (short if callback or progress else steps)
    parts = _advanced(states, lead, steps, chunk)
    if progress:  # the last step of those that need the loss evaluates the end alone
        count = steps if last else steps - 1
        note = lambda done: f"{min(done, count):,} of {count:,} steps"  # noqa: E731
        parts = open_screen().progress(parts, -(-steps // chunk), note)
    for _ in parts:
        if every:
            losses.append(np.array(states.ends().fun))
        if callback is not None and callback(states.ends()):
            return losses, True
    for runner, count in last:
        states.advance(runner, count)
    return losses, False


def _kept(states: States | None, losses: list[np.ndarray] | None) -> dict[str, Any]:
    """What the result has besides where the problems ended, if it is wanted."""
    found = {} if states is None else {"memory": states.memory()}
    return found if losses is None else found | {"history": np.array(losses)}


def _asked(
    callback: Callable[..., Any] | None, shown: Callable[..., Any]
) -> Callable[[Ends], bool] | None:
    """Whether a callback, called as SciPy would with what is shown of a run, ends it."""
    if callback is None:
        return None
    if not callable(callback):
        raise InputTypeError(f"callback={callback!r}: a function of the result so far is needed")
    try:
        by_name = {*inspect.signature(callback).parameters} == {"intermediate_result"}
    except ValueError:  # of some built-in functions there is no signature
        by_name = False

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
    return replace(ends, status=np.where(ends.status == 0, ENDED, ends.status))


def _advanced(states: States, lead: Runner, steps: int, chunk: int) -> Iterator[int]:
    """Do the steps chunk by chunk, as long as any problem is active: how many are done."""
    done = 0
    while done < steps and (not done or states.active()):
        count = min(chunk, steps - done)
        states.advance(lead, count)
        done += count
        yield done


def _shown(told: Mapping[str, Any], single: bool, ends: Ends, kept: Mapping[str, Any]) -> Any:
    """The result that states have led to; not batched if it is that of a ``single`` start."""
    fields = vars(ends) | {"message": Messages(ends.status)} | {**kept}
    if single:
        return optimize_result(**_unbatched(fields), **told)
    if isinstance(ends.fun, np.ndarray):
        fields["best"] = _best(ends.fun)
    return optimize_result(**fields, **told)


def _unbatched(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a result has for its only problem: numbers of Python's, and arrays of its own."""
    plain = {name: fields[name][0].item() for name in ("fun", "nit", "status", "success")}
    plain |= {"x": fields["x"][0], "message": fields["message"][0]}
    if "memory" in fields:
        plain["memory"] = tuple(part[0] for part in fields["memory"])
    return plain | ({"history": fields["history"][:, 0]} if "history" in fields else {})


def _best(fun: np.ndarray) -> int | None:
    """The problem with the lowest loss that is finite; None if there are no problems."""
    if not len(fun):
        return None
    k = int(np.argmin(fun))
    if np.isfinite(fun[k]):
        return k
    return int(np.argmin(np.where(np.isfinite(fun), fun, np.inf)))


# --- arguments ------------------------------------------------------------------------------------


def _data(shared: Any, own: Any, dtype: str) -> Data:
    sides: list[Any] = []
    for name, value, ndim in (("shared", shared, 2), ("own", own, 3)):
        if value is not None:
            value = value if isinstance(value, DeviceArray) else real_columns(value, name, dtype)
            if value.ndim != ndim:
                wanted = "(rows, columns)" if ndim == 2 else "(problems, rows, columns)"
                raise InputError(f"{name} has shape {value.shape}: {wanted} is needed")
        sides.append(value)
    a, b = sides
    if a is not None and b is not None and a.shape[0] != b.shape[1]:
        raise InputError(f"shared has {a.shape[0]} rows and own {b.shape[1]}: they go together")
    return Data(a, b)


def _problem(loss: Callable[..., Any], n: int, data: Data, reduce: str, mode: Mode) -> Problem:
    if reduce not in ("sum", "mean"):
        raise InputError(f'reduce={reduce!r} is not a choice: use "sum" or "mean"')
    weight = 1.0 / max(data.rows, 1) if reduce == "mean" else 1.0
    return Problem(loss, checked_count(n), *data.columns, weight, Accumulation(mode))


def _starts(starts: Any, n: int, data: Data, bounds: Bounds, dtype: str) -> Any:
    """The starts (S, n), within the bounds unless they are on a device."""
    if isinstance(starts, DeviceArray):
        if starts.ndim != 2 or starts.shape[1] != n:
            raise InputError(f"starts has shape {starts.shape}: (S, {n}) is needed")
        found: Any = starts
    else:
        found = real_matrix(starts, "starts", n, dtype)
        if bounds.finite:
            found = np.clip(found, np.asarray(bounds.low), np.asarray(bounds.high)).astype(dtype)
    if data.own is not None and len(found) != len(data.own):
        raise InputError(f"there are {len(found)} starts for {len(data.own)} problems")
    return found


def _options(loss: Callable[..., Any], math: Math, dtype: DTypeName, target: Device) -> Options:
    if target.is_gpu:
        require_gpu_dtype(target, dtype)
    return Options(getattr(loss, "__name__", "loss"), math, dtype, True, False)
