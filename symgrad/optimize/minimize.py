"""Many minimisations at once: a method's step, repeated for all starts until each is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.expression import Expr
from symgrad.expr.node import INPUT, reachable
from symgrad.expr.trace import checked_count
from symgrad.kernel.plan import Iteration
from symgrad.llvm import loop as cpu
from symgrad.optimize.arguments import real, real_matrix
from symgrad.optimize.method import Bounds, Method, Tolerances
from symgrad.optimize.problem import Layout, Problem, iteration, layout_of
from symgrad.optimize.result import MESSAGES, optimize_result
from symgrad.optimize.runner import Runner
from symgrad.pipeline import Options
from symgrad.targets import Device, choose, require_gpu_dtype
from symgrad.wgsl import loop as gpu
from symgrad.wgsl.device import open_gpu

MOST_STEPS: Final = 2**24
"""Steps that float32 can count."""

CHUNK: Final = 250
"""Steps between two calls of a callback."""


@dataclass(frozen=True)
class Data:
    """The rows of a loss: ``shared`` (R, ks) by all problems, ``own`` (S, R, ko) of each."""

    shared: np.ndarray | None = None
    own: np.ndarray | None = None

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of both kinds."""
        sides = (self.shared, self.own)
        return tuple(0 if a is None else a.shape[-1] for a in sides)  # type: ignore[return-value]

    @property
    def rows(self) -> int:
        """The rows of a problem; 0 if there are no data."""
        array = self.own if self.shared is None else self.shared
        return 0 if array is None else array.shape[-2]


def minimize_from(
    loss: Callable[..., Any], n: int, starts: Any, method: Method, steps: int = 1000,
    tol: float | Tolerances | None = None, bounds: Any = None, *, shared: Any = None,
    own: Any = None, reduce: str = "sum", device: Any = None, dtype: str = "float32",
    math: str = "accurate", callback: Callable[[Any], Any] | None = None,
    history: bool | int = False, runner: Callable[[Iteration], Runner] | None = None,
) -> Any:  # fmt: skip
    """Minimise a function of n variables from every start at once.

    Args:
        loss: gets n symbolic scalars and returns one; for `LevenbergMarquardt` and `GaussNewton`,
            residuals, whose half sum of squares is minimised. With data it gets a row as well,
            and the loss is the sum over rows.
        n: the number of variables.
        starts: (S, n), or (n,) for a single start.
        method: a `Method`, such as ``sg.Adam(0.05)`` or ``sg.LBFGS()``.
        steps: the most steps, each of one evaluation.
        tol: the tolerance for the gradient alone, or `Tolerances`; None is the method's own: for
            first-order rules none, so that all steps are taken.
        bounds: ``(low, high)``, each a number or (n,), which every trial is projected into.
        shared: columns of data that are the same for all problems, (R, ks).
        own: columns of each problem's own data, (S, R, ko); they follow the shared ones.
        reduce: "sum" over the rows, or "mean".
        device: as everywhere; None is the first real GPU, or else the CPU.
        dtype: "float32", or on the CPU "float64".
        math: as for `fused_forward_backward`.
        callback: called between dispatches with the result so far; a true answer ends the run.
        history: True to keep the losses of every step in ``history``, (T, S), or every how many.
        runner: makes what runs the iteration; the device's own compiled loop by default.

    Returns:
        SciPy's ``OptimizeResult``: x (S, n), fun (S,), best, nit (S,), success (S,), status (S,)
        and message (S,); ``memory`` is what the method kept, each part (S, ...).

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
    data = _data(shared, own, dtype)
    problem = _problem(loss, n, data, reduce)
    box = _bounds(bounds, problem.n)
    first = _starts(starts, problem.n, data, box, dtype)
    target = choose(device)
    options = _options(loss, math, dtype, target)
    stop = _tolerances(tol, method, dtype)
    made = iteration(problem, method, box, stop, options)
    chosen = runner(made) if runner else runner_for(made, options, target)
    layout = layout_of(method, problem.n)
    state = layout.states(first, _steps(steps)).astype(dtype)
    state, losses = _run(chosen, layout, state, data, callback, int(history), int(steps))
    result = result_of(layout, state)
    if history:
        result.history = np.array(losses)
    return result


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


def runner_for(made: Iteration, options: Options, device: Device) -> Runner:
    """The device's own way to run an iteration."""
    if device.is_gpu:
        return gpu.Loop(open_gpu(device.index), made, options.math)
    return cpu.Loop(made, options.math, options.dtype)


def _run(
    runner: Runner, layout: Layout, state: np.ndarray, data: Data,
    callback: Callable[[Any], Any] | None, every: int, steps: int,
) -> tuple[np.ndarray, list[np.ndarray]]:  # fmt: skip
    """The last state, and the losses after every so many steps."""
    losses: list[np.ndarray] = []
    left = steps + 1  # the last one evaluates the end and does not move
    while left > 0 and state[:, -1].any():
        count = min(left, every or (CHUNK if callback else left))
        state = runner.run(state, count, data.shared, data.own)
        left -= count
        if every:
            losses.append(state[:, -3].copy())
        if callback is not None and callback(result_of(layout, state)):
            break
    return state, losses


def result_of(layout: Layout, state: np.ndarray) -> Any:
    """The result that states (S, size) hold."""
    x, memory, tail = layout.split(state)
    fun, status = tail[:, 2].copy(), tail[:, 3].astype(int)
    comparable = np.where(np.isfinite(fun), fun, np.inf)
    return optimize_result(
        x=x.copy(), fun=fun, best=int(np.argmin(comparable)) if len(fun) else 0,
        nit=tail[:, 0].astype(int), success=status > 0, status=status,
        message=np.array([MESSAGES[s] for s in range(-2, 4)], object)[status + 2], memory=memory,
    )  # fmt: skip


# --- arguments ------------------------------------------------------------------------------------


def _data(shared: Any, own: Any, dtype: str) -> Data:
    sides: list[np.ndarray | None] = []
    for name, value, ndim in (("shared", shared, 2), ("own", own, 3)):
        if value is not None:
            value = real(value, name, dtype)
            if value.ndim != ndim:
                wanted = "(rows, columns)" if ndim == 2 else "(problems, rows, columns)"
                raise InputError(f"{name} has shape {value.shape}: {wanted} is needed")
        sides.append(value)
    a, b = sides
    if a is not None and b is not None and a.shape[0] != b.shape[1]:
        raise InputError(f"shared has {a.shape[0]} rows and own {b.shape[1]}: they go together")
    return Data(a, b)


def _problem(loss: Callable[..., Any], n: int, data: Data, reduce: str) -> Problem:
    if reduce not in ("sum", "mean"):
        raise InputError(f'reduce={reduce!r} is not a choice: use "sum" or "mean"')
    weight = 1.0 / max(data.rows, 1) if reduce == "mean" else 1.0
    return Problem(loss, checked_count(n), *data.columns, weight)


def _bounds(bounds: Any, n: int) -> Bounds:
    if bounds is None:
        return Bounds.of(-np.inf, np.inf, n)
    try:
        low, high = bounds
        made = Bounds.of(low, high, n)
    except (TypeError, ValueError) as error:
        raise InputError(f"bounds are (low, high), numbers or arrays of {n}: {error}") from error
    if not np.all(np.asarray(made.low) <= np.asarray(made.high)):
        raise InputError("bounds: a lower bound is above the upper one, or is not a number")
    return made


def _starts(starts: Any, n: int, data: Data, bounds: Bounds, dtype: str) -> np.ndarray:
    found = real_matrix(starts, "starts", n, dtype)
    if data.own is not None and len(found) != len(data.own):
        raise InputError(f"there are {len(found)} starts for {len(data.own)} problems")
    return np.clip(found, np.asarray(bounds.low), np.asarray(bounds.high)).astype(dtype)


def _options(loss: Callable[..., Any], math: str, dtype: str, target: Device) -> Options:
    if target.is_gpu:
        require_gpu_dtype(target, dtype)
    return Options(getattr(loss, "__name__", "loss"), math, str(np.dtype(dtype)), True, False)


def _tolerances(tol: float | Tolerances | None, method: Method, dtype: str) -> Tolerances:
    if isinstance(tol, Tolerances):
        return tol
    own = method.tolerances(float(np.finfo(dtype).eps))
    return own if tol is None else Tolerances(float(tol), own.loss, own.step)


def _steps(steps: int) -> int:
    if not 0 <= steps < MOST_STEPS:
        raise InputError(f"steps={steps}: between 0 and {MOST_STEPS - 1} can be counted")
    return int(steps)
