"""Kernels: what the verbs of `symgrad.fused` make, and what a user runs, reads and keeps."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad import targets
from symgrad.errors import InputError, InputTypeError
from symgrad.expr.expression import Expr
from symgrad.expr.node import Graph, reachable
from symgrad.expr.show import latex
from symgrad.expr.simplify import simplify
from symgrad.kernel.plan import Plan
from symgrad.pipeline import Built, Clock, Options
from symgrad.results import Result
from symgrad.show_kernel import html
from symgrad.wgsl.dispatch import DeviceArray


@dataclass(frozen=True)
class Stats:
    """The size of a kernel and what it took to make it.

    ``flops`` count each operation at its cost in additions (a division 4, an exponential 10, ...);
    ``registers`` is the most values that are alive at once; ``seconds`` are those of each stage.
    """

    nodes: int
    operations_loss: int
    operations: int
    flops_loss: int
    flops: int
    bytes_per_point: int
    registers: int
    shaders: int
    seconds: dict[str, float]

    def __str__(self) -> str:
        took = ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in self.seconds.items())
        return (
            f"{self.operations:,} operations ({self.operations_loss:,} of them for the first "
            f"result), {self.bytes_per_point:,} bytes a point, {self.registers:,} values alive "
            f"at most, {self.shaders} shader{'s' * (self.shaders > 1)}; {took}"
        )


class Kernel:
    """A traced, differentiated and compiled function of n numbers.

    ``wgsl`` is the source, ``stats`` its size, ``expr`` the results as expressions, ``device``
    where it runs. It pickles: source and graph travel, and are compiled again on first use.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
        >>> loss, grads = kernel.run([2.0, 3.0])
        >>> loss, grads.tolist()
        (6.0, [3.0, 2.0])
    """

    def __init__(
        self, plan: Plan, modules: tuple[str, ...], results: tuple[Result, ...], inputs: Inputs,
        expressions: tuple[Graph, tuple[tuple[int, ...], ...]], options: Options,
        device: targets.Device, seconds: dict[str, float], single: bool,
    ) -> None:  # fmt: skip
        self._plan, self._modules, self._results = plan, modules, results
        self._inputs, self._expressions, self._options = inputs, expressions, options
        self._seconds, self._single = dict(seconds), single
        self.device = device
        self._program: Any = None
        self._lock = threading.Lock()
        if not device.is_gpu:
            self._compiled()
        else:
            targets.require_gpu_dtype(device, options.dtype)

    # running -------------------------------------------------------------------------------------

    def run(self, *arrays: Any) -> Any:
        """The results at one point or at a batch of them.

        ``arrays`` are those that the kernel was made for, in most cases one array x: of shape
        (n,), which gives Python floats and plain arrays, or (..., n), which gives the results with
        the same leading axes. Any real dtype and memory order is taken; results have the kernel's
        dtype and are fresh arrays. A `DeviceArray` gives `DeviceArray` results, and nothing is
        copied to the host. NaN and infinities pass through as IEEE arithmetic has them.

        Raises:
            InputError: for a wrong length, naming the right one. InputTypeError: for values that
            are no real numbers. DeviceError: if the device fails or runs out of memory.
        """
        program = self._program or self._compiled()
        if len(arrays) == 1 and isinstance(arrays[0], DeviceArray):
            return self._run_on_device(program, arrays[0])
        points, batch = self._inputs.pack(arrays, self._options.dtype)
        columns = program.run(points)
        found = tuple(r.of(c, batch) for r, c in zip(self._results, columns, strict=True))
        return found[0] if self._single else found

    __call__ = run

    def _run_on_device(self, program: Any, x: DeviceArray) -> Any:
        if not self.device.is_gpu:
            raise InputTypeError(f"a device array cannot be read by {self.device}: use x.numpy()")
        n = self._inputs.total
        if len(x.shape) == 0 or x.shape[-1] != n:
            raise InputError(f"expected an array of shape (..., {n}), got {x.shape}")
        batch = x.shape[:-1]
        columns = program.run_on_device(x.reshape(math.prod(batch), n))
        found = tuple(r.of(c, batch) for r, c in zip(self._results, columns, strict=True))
        return found[0] if self._single else found

    def _compiled(self) -> Any:
        with self._lock:
            if self._program is None:
                clock = Clock()
                self._program = clock.time(
                    "compile",
                    lambda: targets.build(
                        self._plan, self._modules, self.device, self._options.dtype
                    ),
                )
                self._seconds.update(clock.seconds)
            return self._program

    def to(self, device: Any) -> Kernel:
        """The same kernel on another device: "gpu", "cpu", an index, or a `Device`."""
        return Kernel(
            self._plan, self._modules, self._results, self._inputs, self._expressions,
            self._options, targets.choose(device), self._seconds, self._single,
        )  # fmt: skip

    # what it is ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name it was given, or that of the traced function."""
        return self._options.name

    @property
    def wgsl(self) -> str:
        """The source: one WGSL module, or several, in the order in which they run."""
        return "\n".join(self._modules)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules, each complete in itself, with the entry point ``main``."""
        return self._modules

    @property
    def n_inputs(self) -> int:
        """The number of variables."""
        return self._inputs.sizes[0]

    @property
    def expr(self) -> Any:
        """The results as expressions, before they are lowered: (loss, (gradients, ...))."""
        graph, groups = self._expressions
        found = tuple(tuple(Expr(graph, i) for i in ids) for ids in groups)
        parts = tuple(e[0] if len(e) == 1 and k == 0 else e for k, e in enumerate(found))
        return parts[0] if self._single else parts

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the arrays that ``run`` returns."""
        return tuple(o.name for o in self._plan.outputs)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the results."""
        return np.dtype(self._options.dtype)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the variables."""
        return tuple(self._plan.graph.names)

    @property
    def stats(self) -> Stats:
        """The kernel's size, and the seconds that each stage of making it took."""
        plan = self._plan
        first = _operations(plan.graph, plan.outputs[0].nodes)
        every = _operations(plan.graph, [i for o in plan.outputs for i in o.nodes])
        columns = len(plan.graph.names) + sum(len(o.nodes) for o in plan.outputs)
        return Stats(
            nodes=len(plan.graph),
            operations_loss=len(first),
            operations=len(every),
            flops_loss=_cost(plan.graph, first),
            flops=_cost(plan.graph, every),
            bytes_per_point=columns * np.dtype(self._options.dtype).itemsize,
            registers=_most_alive(plan.graph, every),
            shaders=len(plan.pieces),
            seconds=dict(self._seconds),
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{o.name} {len(o.nodes)}" for o in self._plan.outputs)
        return (
            f"<symgrad kernel {self.name}: {len(self._plan.graph.names)} inputs -> {shapes}; "
            f"{self._options.dtype} on {self.device}>"
        )

    def _repr_html_(self) -> str:
        return html(repr(self), str(self.stats), self.wgsl)

    def _repr_latex_(self) -> str:
        graph, groups = self._expressions
        return f"$${latex(Expr(graph, groups[0][0]))}$$"

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in vars(self).items() if k not in ("_program", "_lock")}
        graph, groups = self._expressions  # without what only differentiation needs: users' code
        clean, roots = simplify(graph, [i for ids in groups for i in ids], level=False)
        ends = iter(roots)
        return state | {
            "_expressions": (clean, tuple(tuple(next(ends) for _ in g) for g in groups))
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _program=None, _lock=threading.Lock())


@dataclass(frozen=True)
class Inputs:
    """The arrays that ``run`` takes: their names and the length of each one's last axis."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """The numbers that a point consists of."""
        return sum(self.sizes)

    def pack(self, arrays: Sequence[Any], dtype: str) -> tuple[np.ndarray, tuple[int, ...]]:
        """The points (B, total), C-contiguous in the kernel's dtype, and the shape of the batch."""
        if len(arrays) != len(self.sizes):
            wanted = ", ".join(self.names)
            raise InputError(f"run({wanted}) takes {len(self.sizes)} arrays, not {len(arrays)}")
        values = [
            real_array(a, name, size, dtype)
            for a, name, size in zip(arrays, self.names, self.sizes, strict=True)
        ]
        if len(values) == 1:
            batch = values[0].shape[:-1]
            return values[0].reshape(math.prod(batch), self.total), batch
        batch = np.broadcast_shapes(*[v.shape[:-1] for v in values])
        wide = [np.broadcast_to(v, batch + v.shape[-1:]) for v in values]
        return np.concatenate(wide, axis=-1).reshape(-1, self.total), batch


def real_array(x: Any, name: str, n: int, dtype: str) -> np.ndarray:
    """x as a C-contiguous array of shape (..., n); a clear error for what is none."""
    if type(x) is not np.ndarray:
        if np.ma.is_masked(x):
            raise InputTypeError(f"{name} has masked entries: fill them in, with x.filled(...)")
        try:
            x = np.asarray(x)
        except (ValueError, TypeError) as error:
            raise InputError(f"{name} is no rectangular array of numbers: {error}") from error
    if x.dtype.kind not in "fiub":
        x = _from_objects(x, name)
    if x.ndim == 0 or x.shape[-1] != n:
        raise InputError(f"{name} has shape {x.shape}: the kernel takes ({n},) or (..., {n})")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, dtype=dtype)


def _from_objects(x: np.ndarray, name: str) -> np.ndarray:
    if x.dtype.kind == "O" and all(isinstance(v, (int, float, np.number)) for v in x.flat):
        try:
            return x.astype(np.float64)
        except OverflowError as error:
            raise InputError(f"{name} holds an integer beyond the range of a float") from error
    what = {"c": "complex numbers", "U": "strings", "S": "bytes", "O": "objects"}
    kind = what.get(x.dtype.kind, f"{x.dtype} values")
    raise InputTypeError(f"{name} holds {kind}: a kernel takes real numbers")


def _operations(graph: Graph, roots: Sequence[int]) -> list[int]:
    return [i for i in reachable(graph, roots) if graph.nodes[i][0].arity]


def _cost(graph: Graph, operations: Sequence[int]) -> int:
    return sum(graph.nodes[i][0].cost for i in operations)


def _most_alive(graph: Graph, operations: Sequence[int]) -> int:
    """The most values alive at once, in the order of the arena."""
    last = {a: i for i in operations for a in graph.nodes[i][1:] if graph.nodes[a][0].arity}
    dying: dict[int, int] = {}
    for i in last.values():
        dying[i] = dying.get(i, 0) + 1
    alive = most = 0
    for i in operations:
        alive += 1 - dying.get(i, 0)
        most = max(most, alive)
    return most


def assemble(built: Built, inputs: Inputs, options: Options, device: Any, single: bool) -> Kernel:
    """The kernel of what the pipeline built."""
    expressions = (built.traced.graph, tuple(w.nodes for w in built.wanted))
    results = tuple(w.result for w in built.wanted)
    return Kernel(
        built.plan, built.modules, results, inputs, expressions, options,
        targets.choose(device), built.seconds, single,
    )  # fmt: skip
