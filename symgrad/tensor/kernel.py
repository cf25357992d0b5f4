"""Kernels of arrays: a shape of kernel, a traced function in it, and the derivative derived."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np

from symgrad import targets
from symgrad.arrays.kernels import traced
from symgrad.backend import Backend, backend_of
from symgrad.cache import Once
from symgrad.errors import InputError, InputTypeError, counted
from symgrad.expr.tracing.fingerprint import Unchanging
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import Launch
from symgrad.pipeline import Options
from symgrad.report.kernel import KernelBase, sources_of, style_of
from symgrad.report.profiling import Profile, profile_kernel
from symgrad.values.arrays import host_dtype, memory_dtype, name_of, real_numbers
from symgrad.web.kernels import launch_exported, require_exported

Shape = tuple[int, ...]

CACHED_SHAPES: Final = 64
"""Most shapes of arguments for which a kernel keeps what it runs."""


class Runner(Protocol):
    """Runs one kind of call for arrays of certain shapes."""

    def run(self, *arrays: Any) -> list[Any]:
        """The results, as fresh arrays: on the device where arrays are."""
        ...


class Work(Protocol):
    """The work of a kernel: immutable, hashable, and if all in it does, it pickles.

    ``arguments`` are the names of the arrays that it takes, and ``cotangents`` those of the
    cotangents of its results. A call is of a ``kind``: "run" takes the arguments and gives the
    results, "vjp" takes the cotangents behind them, and gives the gradients of all arguments
    behind the results.
    """

    @property
    def name(self) -> str:
        """The name of the kernel."""
        ...

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that it takes."""
        ...

    @property
    def cotangents(self) -> tuple[str, ...]:
        """The names of the cotangents of its results."""
        ...

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the results of arguments of these shapes.

        Raises:
            InputError: if the shapes do not go together; it names the argument.
        """
        ...

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call where there is something to compute."""
        ...

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """The runner of a call, which is nothing but the launch."""
        device_target = backend.device_target(options.dtype, options.math)
        return backend.launch(self.launch(kind, shapes, device_target), options)


@dataclass(frozen=True)
class TensorStats:
    """The size of a call: ``flops`` count operations at their cost in additions.

    ``bytes`` are those of the arrays that come and go, and ``kernels`` are run one by one.
    ``seconds`` is how long compiling took, where it has been compiled.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.linear(device="cpu")
        >>> layer.run(np.ones((1, 2)), np.ones((3, 2)), np.zeros(3)).shape
        (1, 3)
        >>> layer.stats.kernels, layer.stats.bytes  # 2 + 6 + 3 + 3 numbers of 4 bytes
        (1, 56)
    """

    flops: int
    bytes: int
    kernels: int
    seconds: dict[str, float]

    @property
    def bytes_per_point(self) -> int:
        """The bytes of a call, which is one point."""
        return self.bytes

    def __str__(self) -> str:
        return f"{self.flops:,} operations, {self.bytes:,} bytes, {self.kernels} kernels"


class TensorKernel(KernelBase, Unchanging):
    """A kernel of arrays: ``run`` computes, and ``vjp`` gives the gradients as well.

    It is compiled for the shapes of a call when these are first seen. Arrays are NumPy's, or
    `DeviceArray`s; results are of the same kind, so arrays stay on the device between kernels. It
    pickles; what it has compiled is compiled again.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.linear(lambda z: np.maximum(z, 0.0), device="cpu")
        >>> layer.run(np.ones((1, 2)), np.array([[1.0, 2.0], [-1.0, -3.0]]), np.zeros(2))
        array([[3., 0.]], dtype=float32)
    """

    _process = "_runners", "_works", "_last"

    def __init__(self, work: Work, options: Options, device: targets.DeviceChoice = None) -> None:
        self._work, self._options = work, options
        self.device = targets.choose(device)
        backend_of(self.device).require(options.dtype)
        self._begin()

    def _begin(self) -> None:
        self._runners: Once[Any, Runner] = Once(CACHED_SHAPES)
        self._works = dict[Any, Work]()
        self._last: tuple[Work, str, tuple[Shape, ...]] | None = None

    # running -------------------------------------------------------------------------------------

    def run(self, *arrays: Any) -> Any:
        """The result for these arrays, or a tuple of results.

        Raises:
            InputError: for shapes that do not go together, naming the argument.
            InputTypeError: for what holds no real numbers, or is on another device.
        """
        results = traced(self, arrays)
        if results is None:
            results = self._call("run", arrays, self._work_with(len(arrays)))
        return _single(results)

    __call__ = run

    def shapes(self, shapes: Sequence[Shape], keep: bool) -> list[Shape]:
        """The shapes of the results, and to ``keep`` them of residuals: see `ArrayKernel`."""
        work = self._work_with(len(shapes))
        self._require_names(shapes, work.arguments)
        return work.results(shapes)

    def forward(self, arrays: Sequence[Any], keep: bool) -> list[Any]:
        """The results, and to ``keep`` them the residuals: see `ArrayKernel`."""
        return self._call("run", arrays, self._work_with(len(arrays)))

    def backward(
        self, arrays: Sequence[Any], cotangents: Sequence[Any], residuals: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The gradients of all arguments: see `ArrayKernel`."""
        return self.vjp(*arrays, *cotangents)[1]

    def vjp(self, *arrays: Any) -> tuple[Any, Any]:
        """The result, and the gradients: the cotangent of the result comes behind the arguments.

        The gradients are of the sum of the result times the cotangent, one for each argument and
        of its shape, in a tuple. Of several results, each has a cotangent.

        Raises:
            InputError, InputTypeError: as ``run`` does.
        """
        work = self._work_with(len(arrays) // 2)
        results = self._call("vjp", arrays, work)
        many = len(work.cotangents)
        return _single(results[:many]), tuple(results[many:])

    def _work_with(self, count: int) -> Work:
        """The work on so many arguments."""
        return self._known(count, lambda: self._work_of(count))

    def _known(self, key: Any, make: Callable[[], Work]) -> Work:
        """A work of the kernel: the same object for all threads, as runners go by which it is."""
        work = self._works.get(key)
        return self._works.setdefault(key, make()) if work is None else work

    def _work_of(self, count: int) -> Work:
        """The work on so many arguments, where there may be more or fewer of them."""
        return self._work

    def _call(self, kind: str, arguments: Sequence[Any], work: Work) -> list[Any]:
        """The arrays that a kind of call gives."""
        names = [*work.arguments, *(work.cotangents if kind == "vjp" else ())]
        self._require_names(arguments, names)
        arrays = self._arrays(arguments, names)
        shapes = tuple(tuple(a.shape) for a in arrays)
        if not all(map(math.prod, shapes)):
            return self._empty(work, kind, arrays)
        runner = self._runner(work, kind, shapes)
        self._last = work, kind, shapes
        return runner.run(*arrays)

    def _require_names(self, arguments: Sequence[Any], names: Sequence[str]) -> None:
        """Refuse more or fewer arguments than these names."""
        if len(arguments) != len(names):
            raise InputError(
                f"{self.name} takes {counted(len(names), 'array')} ({', '.join(names)}), "
                f"not {len(arguments)}"
            )

    def _arrays(self, arguments: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """The arrays as kernels take them: all on the device if one is."""
        on_device = any(isinstance(a, ResidentArray) for a in arguments)
        backend = backend_of(self.device)
        owner = backend.owner
        wanted = memory_dtype(self.precision)
        on_host, arrays = host_dtype(wanted), list[Any]()
        for a, name in zip(arguments, names, strict=True):
            if not isinstance(a, ResidentArray):
                a = np.asarray(real_numbers(a, name), on_host, order="C")
                arrays.append(backend.array(a, wanted) if on_device and owner else a)
                continue
            if owner is None or a.gpu is not owner:
                raise InputTypeError(
                    f"{name} is on {a.device}, {self.name} on {self.device}: use x.numpy(), "
                    "or the kernel's .to(device)"
                )
            if a.dtype != wanted:
                raise InputTypeError(
                    f"{name} is of {name_of(a.dtype)}, and {self.name} takes {name_of(wanted)}"
                )
            arrays.append(a)
        return arrays

    def _runner(self, work: Work, kind: str, shapes: Sequence[Shape]) -> Runner:
        """The runner of a call of a work that the kernel keeps."""
        backend = backend_of(self.device)

        def make() -> Runner:
            _require(work, shapes)
            return work.runner(kind, shapes, backend, self._options)

        return self._runners.get((kind, id(work), shapes, backend.owner), make)

    def _empty(self, work: Work, kind: str, arrays: Sequence[Any]) -> list[Any]:
        """The results where an array has no elements: on the host, where nothing is bound."""
        shapes = tuple(tuple(a.shape) for a in arrays)
        _require(work, shapes)
        self._last = work, kind, shapes
        hosted = [a.numpy() if isinstance(a, ResidentArray) else a for a in arrays]
        results = self.to("cpu")._runner(work, kind, shapes).run(*hosted)
        if not any(isinstance(a, ResidentArray) for a in arrays):
            return results
        return [backend_of(self.device).array(a, a.dtype) for a in results]

    # what it is ----------------------------------------------------------------------------------

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that ``run`` takes."""
        return self._work.arguments

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules of the last call, in the order in which they run.

        Raises:
            InputError: if there was none, as they depend on the shapes of the arrays.
        """
        return sources_of(self._launch(), self._options, self.name)

    @property
    def stats(self) -> TensorStats:
        """The size of the last call.

        Raises:
            InputError: if there was none, as it depends on the shapes of the arrays.
        """
        launch = self._launch()
        flops = sum(d.operations * d.number_of_groups * d.target.width for d in launch.dispatches)
        numbers = sum(a.size for a in (*launch.inputs, *launch.outputs))
        seconds = getattr(self._runner(*self._last_call()), "seconds", None)
        stages = {} if seconds is None else {"compile": seconds}
        return TensorStats(flops, numbers * self.dtype.itemsize, len(launch.dispatches), stages)

    def _launch(self) -> Launch:
        """The launch of the last call on a GPU."""
        work, kind, shapes = self._last_call()
        return work.launch(kind, shapes, WorkgroupTarget())

    def _last_call(self) -> tuple[Work, str, tuple[Shape, ...]]:
        if self._last is None:
            raise InputError(
                f"what {self.name} runs depends on the shapes of its arrays: call run or vjp first"
            )
        return self._last

    def export_js(self, path: str | Path) -> None:
        """Write what the last call runs as an ES module for WebGPU, for arrays of these shapes.

        There ``run({name: array})`` takes the arrays in a row, those of the arguments and, of a
        call of `vjp`, the cotangents; and gives the results by their names.

        Args:
            path: where it goes, ending in .mjs or .js; what symgrad wrote there is replaced.

        Raises:
            InputError: if there was no call, and for a file there that symgrad did not write.

        Example:
            >>> import tempfile, numpy as np, symgrad as sg
            >>> layer = sg.linear(np.tanh, device="cpu")
            >>> output = layer.run(np.ones((5, 3)), np.ones((2, 3)), np.zeros(2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     layer.export_js(f"{folder}/layer.mjs")
        """
        require_exported(self._options.dtype)
        style = style_of(self._options, self.name)
        launch_exported(self.name, self._launch(), style).write(path)

    def profile(self, *arrays: Any, vjp: bool = False, **options: Any) -> Profile:
        """Where the time of ``run`` goes, or of ``vjp`` if that is asked for: see `Profile`.

        It takes what that call takes, and ``options`` go to it.

        Raises:
            InputError, InputTypeError: as that call does.
        """
        call = partial(self.vjp if vjp else self.run, *arrays, **options)
        call()
        return profile_kernel(call, self, 1)

    def to(self, device: targets.DeviceChoice) -> Self:
        """This kernel on another device: "gpu", "cpu", an index, or a `Device`."""
        return type(self)(self._work, self._options, device)

    def __repr__(self) -> str:
        names = ", ".join(self.arguments)
        return f"<symgrad kernel {self.name}({names}); {self.precision} on {self.device}>"


def _single(results: Sequence[Any]) -> Any:
    """The results as they are returned."""
    return results[0] if len(results) == 1 else tuple(results)


def _require(work: Work, shapes: Sequence[Shape]) -> None:
    """Refuse shapes that do not go together; a cotangent has the shape of its result."""
    many = len(work.arguments)
    for name, shape, result in zip(
        work.cotangents, shapes[many:], work.results(shapes[:many]), strict=False
    ):
        if tuple(shape) != result:
            raise InputError(f"the {name} has shape {tuple(shape)}, the result {result}")
