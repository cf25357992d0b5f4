"""`solve_ivp` of numbers: one kernel for all problems of a batch, kept for calls like it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.expr.graph.misuse import located
from symgrad.expr.loops.open_loop import traced_graph
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.tree import Tree, apart, flatten
from symgrad.expr.tracing.fingerprint import fingerprint
from symgrad.expr.tracing.trace import trace
from symgrad.front.fused import fused_forward
from symgrad.ode.integration import OdeResult
from symgrad.ode.request import Request, Values, solved
from symgrad.pipeline import DType, dtype_name
from symgrad.targets import Device, DeviceChoice, choose_any
from symgrad.values.arrays import host_dtype

MOST_KERNELS: Final = 64
"""Kernels that are kept for further calls."""

_kernels: Once[Hashable, Any] = Once(MOST_KERNELS)


@dataclass(frozen=True)
class Numbers:
    """An argument that is made of floats: whether each problem has its own, and their shape."""

    batched: bool
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The arguments of a call, one after the other, with `Numbers` for floats and arrays of them.

    The first of them are those of `Values` without ``args``, which follow, taken apart.
    """

    leaves: tuple[Any, ...]
    tree: Tree | None

    def sizes(self) -> tuple[int, int]:
        """How many numbers all problems share, and how many each has of its own."""
        numbers = [leaf for leaf in self.leaves if isinstance(leaf, Numbers)]
        own, shared = (
            sum(math.prod(n.shape) for n in numbers if n.batched == batched)
            for batched in (True, False)
        )
        return shared, own

    def values(self, shared: Any, own: Any = None) -> Values:
        """The arguments of one problem, made of expressions."""
        starts, parts = [0, 0], list[Any]()
        for leaf in self.leaves:
            if not isinstance(leaf, Numbers):
                parts.append(leaf)
                continue
            start, numbers = starts[leaf.batched], own if leaf.batched else shared
            starts[leaf.batched] = stop = start + math.prod(leaf.shape)
            whole = numbers[start:stop].reshape(leaf.shape) if leaf.shape else numbers[start]
            parts.append(array(whole)[()] if leaf.shape else whole)
        start, end, y0, rtol, atol, first, largest, t_eval, t_stops = parts[:FIXED]
        args = tuple(parts[FIXED:])
        args = args if self.tree is None else self.tree.nest(iter(args), None)
        return Values((start, end), y0, args, rtol, atol, first, largest, t_eval, t_stops)


FIXED: Final = 9
"""The arguments of a `Layout` before those of the right-hand side."""


class Call:
    """The numbers of a call: those that all problems share, and those of each."""

    def __init__(self, values: Values) -> None:
        y0 = _floats(values.y0, "y0")
        if not y0.ndim or not y0.shape[-1]:
            raise InputError(located(f"y0 is an array of shape (..., n), not of {y0.shape}"))
        self._axes = y0.ndim - 1
        self._shared: list[float] = []
        self._own: list[np.ndarray] = []
        leaves = [self._end(t) for t in values.span]
        leaves.append(self._placed(y0, bool(self._axes)))
        leaves += [
            self._number(values.rtol, "rtol"), self._number(values.atol, "atol"),
            self._number(values.first_step, "first_step"),
            self._number(values.max_step, "max_step"),
            self._times(values.t_eval, "t_eval"), self._times(values.t_stops, "t_stops"),
        ]  # fmt: skip
        args, tree = values.args, None
        if any(type(a) is not float and apart(a) is not None for a in args):
            args, tree = flatten(args)
        self.layout = Layout((*leaves, *(self._argument(a) for a in args)), tree)

    def _number(self, value: Any, name: str) -> Any:
        if type(value) is float:
            self._shared.append(value)
            return ONE
        return None if value is None else self._placed(_floats(value, name), False)

    def _end(self, time: Any) -> Any:
        """A time of t_span: one for all problems, or one for each."""
        if type(time) is float:
            return self._number(time, END)
        numbers = _floats(time, END)
        if numbers.ndim in (0, self._axes):
            return self._placed(numbers, numbers.ndim > 0)
        raise InputError(
            located(
                f"{END} is one number, or one for each problem: of shape "
                f"{numbers.shape} it goes with no y0 that has {self._axes} axes of problems"
            )
        )

    def _times(self, times: Any, name: str) -> Any:
        if times is None:
            return None
        numbers = _floats(times, name)
        if numbers.ndim > 1 and numbers.ndim != self._axes + 1:
            raise InputError(
                located(
                    f"{name} is one array of times, or one for each problem: of shape "
                    f"{numbers.shape} it goes with no y0 that has {self._axes} axes of problems"
                )
            )
        return self._placed(numbers, numbers.ndim > 1)

    def _argument(self, leaf: Any) -> Any:
        if type(leaf) is float:
            self._shared.append(leaf)
            return ONE
        if not isinstance(leaf, (list, np.ndarray, np.floating)) and not hasattr(leaf, "__array__"):
            return leaf
        numbers = np.asarray(leaf)
        if numbers.dtype.kind != "f":
            return leaf
        return self._placed(numbers, self._axes > 0 and numbers.ndim > 0)

    def _placed(self, numbers: np.ndarray, batched: bool) -> Numbers:
        if not batched:
            self._shared.extend(numbers.ravel().tolist())
            return Numbers(False, numbers.shape)
        if numbers.ndim < self._axes:
            raise InputError(
                located(
                    f"y0 has {self._axes} axes of problems before its last, and an argument of "
                    f"shape {numbers.shape} has not: give it axes of length 1 in their place, "
                    "as a[None], if all problems share it"
                )
            )
        self._own.append(numbers)
        return Numbers(True, numbers.shape[self._axes :])

    @property
    def is_batch(self) -> bool:
        """Whether there are axes of problems."""
        return self._axes > 0

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes of problems.

        Raises:
            InputError: if those of y0 and of args differ.
        """
        shapes = [a.shape[: self._axes] for a in self._own]
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise InputError(
                located(
                    f"the axes of problems differ: y0 and the arrays of args begin with {shapes}; "
                    "give axes of length 1 to what all problems share"
                )
            ) from error

    def shared(self) -> np.ndarray:
        """The numbers that all problems share."""
        return np.array(self._shared)

    def own(self, batch: tuple[int, ...], dtype: Any) -> np.ndarray:
        """The numbers of each problem, a row for each."""
        cores = [a.shape[self._axes :] for a in self._own]
        rows, start = np.empty((math.prod(batch), sum(map(math.prod, cores))), dtype), 0
        for numbers, core in zip(self._own, cores, strict=True):
            stop = start + math.prod(core)
            spread = np.broadcast_to(numbers, (*batch, *core))
            rows[:, start:stop] = spread.reshape(len(rows), stop - start)
            start = stop
        return rows


END: Final = "a time of t_span"
ONE: Final = Numbers(False, ())
"""A number that all problems share."""


def _floats(value: Any, name: str) -> np.ndarray:
    numbers = np.asarray(value)
    if numbers.dtype.kind == "f":
        return numbers
    if numbers.dtype.kind not in "iub":
        raise InputError(located(f"{name} is made of real numbers, not of {numbers.dtype}"))
    return numbers.astype(float)


def solved_now(
    request: Request, values: Values, device: DeviceChoice, dtype: DType | None
) -> OdeResult:
    """The solution of all problems, as numbers."""
    target = choose_any("cpu" if device is None else device)
    kind = dtype or ("float64" if backend_of(target).on_host else "float32")
    call = Call(values)

    def kernel(recorded: int = 0, every: int = 1) -> Any:
        def make() -> Any:
            recording = replace(request, recorded=recorded, every=every)
            return _kernel(recording, call.layout, target, kind)

        key = _key(request, call.layout, target, kind)
        return make() if key is None else _kernels.get((key, recorded, every), make)

    if call.is_batch:
        batch = call.batch
        results = kernel().run(call.shared(), call.own(batch, host_dtype(dtype_name(kind))))
        return _of_many(request, values, results, batch)
    if values.t_eval is not None:
        return _of_one(request, values, kernel().run(call.shared()))
    results = kernel(FEW_PLACES).run(call.shared())
    if not np.isnan(results["y"][-1, 0]):
        every = 1 << (int(results["steps"]) // (MOST_PLACES - 1)).bit_length()
        results = kernel(MOST_PLACES, every).run(call.shared())
    return _of_one(request, values, results)


FEW_PLACES: Final = 256
"""Places on the way that are recorded at first."""
MOST_PLACES: Final = 2048
"""Places that are recorded of a solution of more steps, which is computed again."""


def _kernel(request: Request, layout: Layout, device: Device, dtype: DType) -> Any:
    """The kernel of one problem, or of a problem in each row."""

    def problem(shared: Any, own: Any = None) -> dict[str, Any]:
        graph = traced_graph()
        assert graph is not None, "a kernel is traced"
        result = solved(graph, request, layout.values(shared, own))
        parts = {"y": result.y.T, "status": result.status, "nfev": result.nfev,
                 "steps": result.steps}  # fmt: skip
        if result.t is not None and layout.leaves[7] is None:
            parts["t"] = result.t
        for i in range(len(request.events)):
            parts |= {f"t{i}": result.t_events[i], f"y{i}": result.y_events[i]}
        return parts

    name = getattr(request.fun, "__name__", "fun")
    options: dict[str, Any] = {"device": device, "dtype": dtype, "name": name}
    shared, own = layout.sizes()
    if not own:
        return fused_forward(shared, lambda v: problem(v), **options)
    return fused_forward(shared, problem, row=own, reduce=None, **options)


def _key(request: Request, layout: Layout, device: Device, dtype: DType) -> Hashable | None:
    """All that decides a kernel: functions by their fingerprints, or else by their traces."""
    functions = [request.fun, request.jump, *(f for e in request.events for f in (e.fun, e.jump))]
    marks = tuple([fingerprint(f) for f in functions if f is not None])
    if None in marks:
        traced = _traced(request, layout)
        if traced is None:
            return None
        marks = (traced,)
    ends = tuple([(e.direction, e.terminal, e.jump is None) for e in request.events])
    limits = request.max_steps, request.max_events, request.jump is None
    leaves = tuple([(n.batched, n.shape) if type(n) is Numbers else n for n in layout.leaves])
    key = marks, request.method, limits, ends, leaves, layout.tree
    key = *key, device, backend_of(device).owner, dtype
    try:
        hash(key)
    except TypeError:  # of an argument that is no number
        return None
    return key


def _traced(request: Request, layout: Layout) -> Hashable | None:
    """All that the functions of a call compute."""
    shared, own = layout.sizes()

    def functions(v: Any) -> Any:
        values = layout.values(v[:shared], v[shared:])
        t, y, args = values.span[0], values.y0, values.args
        request.require_arguments(len(args))
        parts = [request.fun(t, y, *args)]
        parts += [e.fun(t, y, *args) for e in request.events]
        parts += [e.jump(t, y, *args) for e in request.events if e.jump is not None]
        return parts if request.jump is None else [*parts, request.jump(t, y, t, *args)]

    return trace(functions, shared + own).key


def _of_one(request: Request, values: Values, results: dict[str, Any]) -> OdeResult:
    t, y, status = values.t_eval, results["y"].T, int(results["status"])
    if t is None:
        y[:, 0] = values.span[0], *np.ravel(values.y0)  # which the kernel leaves to the host
        path = y[:, ~np.isnan(y[0])]
        t, y = path[0], path[1:]
        if status < 0:
            t, y = np.append(t, values.span[1]), np.pad(y, ((0, 0), (0, 1)), constant_values=np.nan)
    result = OdeResult(np.asarray(t, float), y, status, int(results["nfev"]), int(results["steps"]))
    if request.events:
        counts = [np.isfinite(results[f"t{i}"]) for i in range(len(request.events))]
        result.t_events = [results[f"t{i}"][known] for i, known in enumerate(counts)]
        result.y_events = [results[f"y{i}"][known] for i, known in enumerate(counts)]
    return result


def _of_many(
    request: Request, values: Values, results: dict[str, Any], batch: tuple[int, ...]
) -> OdeResult:
    def shaped(name: str) -> np.ndarray:
        numbers = np.asarray(results[name])
        return numbers.reshape(batch + numbers.shape[1:])

    t = shaped("t") if values.t_eval is None else np.asarray(values.t_eval, float)
    whole = [shaped(name).astype(int) for name in ("status", "nfev", "steps")]
    result = OdeResult(t, shaped("y").swapaxes(-1, -2), *whole)
    if request.events:
        result.t_events = [shaped(f"t{i}") for i in range(len(request.events))]
        result.y_events = [shaped(f"y{i}") for i in range(len(request.events))]
    return result
