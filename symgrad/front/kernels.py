"""Kernels: what the verbs of `symgrad.front.fused` make, and what a user runs, reads and keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.bridges.cluster import run_blocks
from symgrad.bridges.frameworks import Loss, PointLoss, RowFunction, as_jax, as_torch
from symgrad.bridges.tables import in_blocks
from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.expr.semantics.show import formula
from symgrad.expr.tracers.tree import Tree
from symgrad.front.running import Inputs, Interface, Running
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.stats import Derived, Stats, measured
from symgrad.optimize.over_data import minimize_kernel, minimized
from symgrad.optimize.result import as_scipy
from symgrad.pipeline import CACHED_NODES, Built, Options, weight
from symgrad.report.audit import Audit, Expressions, labels
from symgrad.report.exhausted import WhenExhausted, flags, is_asked, report
from symgrad.report.kernel import Shaders
from symgrad.report.profiling import Profile, profile_kernel
from symgrad.report.progress import Asked, staged
from symgrad.values.nested import Result, Scalar, rows_of
from symgrad.web.kernels import Minimization, Steps, points_exported


class Kernel(Running):
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

    _process = (*Running._process, "_flags")

    def __init__(
        self,
        shaders: Shaders,
        interface: Interface,
        device: targets.Device,
        expressions: Expressions,
        seconds: dict[str, float],
        derived: Derived | None = None,
    ) -> None:
        super().__init__(shaders, interface, device)
        self._expressions = expressions
        self._seconds, self._derived = dict(seconds), derived or Derived()

    def _begin(self) -> None:
        super()._begin()
        self._flags: Once[None, Kernel | None] = Once(1)

    # running -------------------------------------------------------------------------------------

    def run(
        self,
        *arrays: Any,
        out: Any = None,
        progress: Asked = False,
        exhausted: WhenExhausted | None = None,
    ) -> Any:
        """The results at one point or at a batch of them.

        ``arrays`` are those that the kernel was made for, in most cases one array x: of shape
        (n,), which gives Python floats and plain arrays, or (..., n), which gives the results with
        the same leading axes; for n = 1 also a number. Any real dtype and memory order is taken;
        results have the kernel's dtype and are fresh arrays. A `DeviceArray` gives `DeviceArray`
        results, and nothing is copied to the host. NaN and infinities pass through as IEEE
        arithmetic has them.

        ``out`` takes the results instead: an array for each of them, in a tuple if there are
        several, C-contiguous and of the kernel's dtype, with the shape that the result would have
        (() for a number), and nested as it would be; arrays on the device where x is one, whose
        memory no view shares. It is returned. On the CPU, calls with the
        very same x and out cost least.

        Variables that were asked for by shapes or names are given so too, behind the axes of the
        batch if there is one, or all of them in a row as the last axis.

        ``progress`` is as for `fused_forward_backward`: the first run compiles, which may take
        long. ``exhausted``, "warn" or "raise", says what to do about problems whose loops needed
        more iterations than their ``max_steps``, which another kernel finds out; their
        results are NaN in any case.

        Raises:
            InputError: for a wrong length or a wrong ``out``, naming the right one.
            InputTypeError: for values that are no real numbers. DeviceError: if the device fails
            or runs out of memory. ExhaustedError: if a loop did not end, and that is asked for.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
            >>> out = np.empty((), "float32"), np.empty(2, "float32")
            >>> kernel.run([2.0, 3.0], out=out)[1].tolist()
            [3.0, 2.0]
        """
        if progress:
            with staged(progress, "runs"):
                return self.run(*arrays, out=out, exhausted=exhausted)
        if exhausted is not None and is_asked(exhausted):
            results = self.run(*arrays, out=out)
            flagging = self._flagging()
            if flagging is not None:
                report(flagging.run(*arrays), exhausted)
            return results
        if out is not None:
            return self._run_into(arrays, out)
        x = arrays[0] if len(arrays) == 1 else None
        launched = self._launched or self._compiled()
        if type(x) is np.ndarray and x.dtype is self._dtype:
            if x.shape == self._point_shape:
                return self._run_point(x)
            if x.shape == self._array_shape:
                return self._run_point(x.reshape(-1))
            if x.shape[1:] == self._point_shape and x.flags.c_contiguous:
                return self._returned(launched.run(x), x.shape[:1])
        elif type(x) is np.ndarray and x.dtype == np.float64:
            if x.shape in (self._point_shape, self._array_shape):
                with np.errstate(over="ignore"):
                    return self._run_point(x.reshape(-1))
        elif type(x) is dict and self._point_shape is not None:
            filler = self._filler()
            if filler.fill(x):
                return self._run_point(filler.row)
        if isinstance(x, ResidentArray) or self._are_on_device(arrays):
            return self._run_on_device(arrays)
        if in_blocks(x):
            return run_blocks(self, x)
        points, batch = self._packed(arrays)
        if not batch and self._point_shape is not None:
            return self._run_point(points[0])
        return self._returned(launched.run(points), batch)

    __call__ = run

    def _flagging(self) -> Kernel | None:
        """The kernel that says of which problems loops have not ended, if there can be any."""
        return self._flags.get(None, self._make_flagging)

    def _make_flagging(self) -> Kernel | None:
        computation = flags(self._expressions, self._options)
        if computation is None:
            return None
        shaders = Shaders(computation, self._options, f"{self.name}: loops that have not ended")
        interface = Interface(self._inputs, (Scalar(),), single=True)
        return Kernel(shaders, interface, self.device, self._expressions, {})

    def minimize(
        self, starts: Any, method: Any, steps: int = 1000, tol: Any = None, **options: Any
    ) -> Any:
        """Minimise the loss from many starts (S, n) at once, all steps inside one kernel.

        See `minimize_from` for the options and for the result, SciPy's, batched. Starts may be
        nested as variables with names or shapes are, behind the axis of starts or without it: then
        ``x`` is so too, and a single start gives a result that is not batched.

        Example:
            >>> import symgrad as sg
            >>> bowl = lambda v: (v[0] - 1)**2 + v[1]**2
            >>> kernel = sg.fused_forward_backward(2, bowl, device="cpu")
            >>> kernel.minimize([[0.0, 2.0], [3.0, 1.0]], sg.LBFGS()).x.round(3).tolist()
            [[1.0, 0.0], [1.0, 0.0]]
        """
        return minimize_kernel(self, starts, method, steps, tol, **options)

    def as_scipy(self) -> Callable[[Any], tuple[float, np.ndarray]]:
        """``fun(x) -> (loss, gradient)`` in float64, for ``scipy.optimize.minimize(jac=True)``."""
        if self.outputs != ("loss", "grad"):
            raise InputError("as_scipy needs a kernel of sg.fused_forward_backward")
        return as_scipy(self)

    def as_torch(self) -> Callable[[Any], Any]:
        """The loss, or the values of `fused_forward`, as a function of PyTorch's tensors.

        It takes a tensor (..., n), or tensors nested as the variables are, of any floating dtype
        and on any device, and gives tensors like it. Autograd goes through it in reverse and
        forward mode, any number of times, and so does ``torch.func``: ``grad``, ``jvp``, ``vmap``,
        ``hessian``. ``torch.compile`` calls it as it is. What is on the host and of the kernel's
        dtype is read and returned without copies; tensors on other devices go through the host.

        Raises:
            InputError: for other kernels. SymgradError: where PyTorch is missing.

        Example:
            >>> import symgrad as sg
            >>> import torch
            >>> loss = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu").as_torch()
            >>> x = torch.tensor([[2.0, 3.0]], requires_grad=True)
            >>> loss(x).sum().backward(); x.grad
            tensor([[3., 2.]])
        """
        return as_torch(*self._differentiable("as_torch"))

    def as_jax(self) -> Callable[[Any], Any]:
        """The loss, or the values of `fused_forward`, as a function of JAX's arrays.

        It takes an array (..., n), or arrays nested as the variables are, and may stand in
        functions under ``jit``, ``vmap`` and ``grad``, any number of times in reverse mode: a
        Hessian is ``jax.jacrev(jax.grad(f))``, as ``jax.hessian`` uses forward mode. JAX calls the
        kernel on the host.

        Raises:
            InputError: for other kernels. SymgradError: where JAX is missing.

        Example:
            >>> import symgrad as sg
            >>> import jax
            >>> loss = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu").as_jax()
            >>> jax.jit(jax.grad(loss))(jax.numpy.array([2.0, 3.0]))
            Array([3., 2.], dtype=float32)
        """
        return as_jax(*self._differentiable("as_jax"))

    def export_js(
        self,
        path: str | Path,
        method: Any = None,
        *,
        steps: int = 1000,
        tol: Any = None,
        bounds: Any = None,
    ) -> None:
        """Write the kernel as an ES module for WebGPU, and the types of that beside it.

        The module is one file without dependencies; see the page on browsers in the documentation.
        There ``run(points)`` takes the points in a row, and gives the arrays of `run` in a row by
        their names, those of sparse results without their zeros. With a method `minimize` is there
        too.

        Args:
            path: where it goes, ending in .mjs or .js; what symgrad wrote there is replaced.
            method: as for `minimize`.
            steps: the most steps.
            tol: as for `minimize_from`.
            bounds: as for `minimize_from`.

        Raises:
            InputError: for a file there that symgrad did not write, and for float64.

        Example:
            >>> import tempfile, symgrad as sg
            >>> kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     kernel.export_js(f"{folder}/product.mjs", sg.Adam(0.05), steps=200)
        """
        minimization = None
        if method is not None:
            by = Steps(method, steps, tol, bounds)
            minimization = Minimization(minimized(self, method), self.tree, by, self._options)
        points_exported(self._shaders, self.inputs, minimization).write(path)

    def _differentiable(self, verb: str) -> tuple[Loss | RowFunction, Tree, Result]:
        """The function that other frameworks differentiate, how it is nested, and what it gives."""
        expressions, kinds = self._expressions, {("loss", "grad"): 1, ("values",): 0}
        if self.outputs not in kinds:
            raise InputError(f"{verb} needs a kernel of fused_forward_backward or fused_forward")
        roots = expressions.groups[kinds[self.outputs]]
        function = RowFunction(expressions.graph, roots, self._options, self.device)
        if self.outputs == ("values",):
            return function, self.tree, self._results[0]
        return PointLoss(self._columns, function), self.tree, self._results[0]

    def _columns(self, points: np.ndarray) -> Sequence[np.ndarray]:
        """The results at points (B, n), by columns."""
        return (self._launched or self._compiled()).run(points)

    def in_a_row(self, x: Any, name: str = "x") -> np.ndarray:
        """Nested variables, or a gradient, as one array (..., n_inputs); errors call it by name."""
        return rows_of(self.tree, x, name)

    def to(self, device: targets.DeviceChoice) -> Kernel:
        """This kernel on another device: "gpu", "cpu", an index, or a `Device`.

        With "gpus", or a list of devices, these share batches of points; see `devices`.

        Example:
            >>> import symgrad as sg
            >>> kernel = sg.fused_forward(1, lambda v: v[0]**2, device="cpu").to(sg.devices())
            >>> kernel.run([[2.0], [3.0]]).tolist()
            [4.0, 9.0]
        """
        target = targets.choose_any(device)
        derivations = self._expressions, self._seconds, self._derived
        return Kernel(self._shaders, self._interface, target, *derivations)

    def audit(self, *arrays: Any, least: float = 64.0, progress: Asked = False) -> Audit:
        """Which operations lose precision in float32, with your lines: see `Audit`.

        The expressions of the results, derivatives included, are evaluated by NumPy in float32
        and in float64 at the points, which are rounded to float32 first. Where a result is off by
        ``least`` ULP or more, an operation is named if it is where errors grow, or where an
        infinity or a NaN is born, and if its error alone would spoil the result. float64 is taken
        for the truth: what it loses too, as in ``log(1 + 1e-20)``, stays unseen. ``progress`` is as
        for `DataKernel.run`.

        Raises:
            InputError, InputTypeError: as ``run`` does.

        Example:
            >>> import symgrad as sg
            >>> kernel = sg.fused_forward(1, lambda v: sg.log(1 + sg.exp(v[0])), device="cpu")
            >>> audit = kernel.audit([[-15.0], [100.0]])
            >>> [(s.kind, s.operation) for s in audit.suspects]
            [('overflow', 'exp(x0)'), ('amplification', 'log(exp(x0) + 1)')]
        """
        points, _ = self._inputs.pack(arrays, "float32")
        expressions = self._expressions
        named = zip(self.outputs, expressions.groups, self._results, strict=True)
        names = [name for group in named for name in labels(expressions.graph.names, *group)]
        level = self._options.simplify
        return expressions.audit(self.name, names, points, level, least, progress)

    def profile(self, *arrays: Any) -> Profile:
        """Where the time of ``run(*arrays)`` goes, beside the limits of the device: see `Profile`.

        Raises:
            InputError, InputTypeError: as ``run`` does.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
            >>> profile = kernel.profile(np.ones((1000, 2)))
            >>> list(profile.seconds), profile.points, profile.bytes
            (['host', 'kernel'], 1000, 20000)
        """
        on_device = self._are_on_device(arrays)
        _, batch = self._inputs.pack_on_device(arrays) if on_device else self._packed(arrays)
        return profile_kernel(lambda: self.run(*arrays), self, math.prod(batch))

    # what it is ----------------------------------------------------------------------------------

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules, each complete in itself, with the entry point ``main``."""
        return self._shaders.modules

    @property
    def tree(self) -> Tree:
        """How the variables are nested and shaped."""
        return self._inputs.trees[0]

    @property
    def n_inputs(self) -> int:
        """The number of variables."""
        return self.tree.size

    @property
    def expr(self) -> Any:
        """The results as expressions, before they are lowered: (loss, (gradients, ...))."""
        groups = self._expressions.in_groups()
        parts = tuple(e[0] if len(e) == 1 and k == 0 else e for k, e in enumerate(groups))
        return parts[0] if self._single else parts

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the variables."""
        return tuple(self._computation.graph.names)

    @property
    def stats(self) -> Stats:
        """The kernel's size, and the seconds that each stage of making it took."""
        shaders, c = self._shaders, self._shaders.computation
        columns = len(c.graph.names) + sum(len(o.nodes) for o in c.outputs)
        on_host = backend_of(self.device).on_host
        nbytes, count = columns * self._dtype.itemsize, 1 if on_host else shaders.count
        seconds = self._seconds | shaders.seconds | self._compile_seconds
        return measured(
            c.graph, c.outputs, nbytes, count, seconds, self._derived, self._dtype.itemsize
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{o.name} {len(o.nodes)}" for o in self._computation.outputs)
        return (
            f"<symgrad kernel {self.name}: {len(self.inputs)} inputs -> {shapes}; "
            f"{self._options.dtype} on {self.device}>"
        )

    def _repr_latex_(self) -> str | None:
        return formula(self._expressions.in_groups()[0][0])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_expressions": self._expressions.without_code()}


_shared: Once[Any, Kernel] = Once(CACHED_NODES)


def shared(
    built: Built, inputs: Inputs, options: Options, title: str, device: Any, single: bool
) -> Kernel:
    """The kernel of what the pipeline built, one for all equal traces: only for use within."""
    target = targets.choose_any(device)
    owner = backend_of(target).owner  # another if one was lost
    make = partial(assemble, built, inputs, options, title, target, single)
    key = built, inputs, target, owner, single
    return _shared.get(key, make, weight(built.computation.graph))


def assemble(
    built: Built, inputs: Inputs, options: Options, title: str, device: Any, single: bool
) -> Kernel:
    """The kernel of what the pipeline built."""
    # others share the trace, and who asks for its expressions builds on it
    graph, groups = built.traced.copied().graph, tuple(w.nodes for w in built.wanted)
    expressions = Expressions(graph, groups)
    interface = Interface(inputs, tuple(w.result for w in built.wanted), single)
    shaders, target = Shaders(built.computation, options, title), targets.choose_any(device)
    return Kernel(shaders, interface, target, expressions, built.seconds, built.derived)
