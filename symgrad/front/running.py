"""How a kernel is run: on points of the host or of a GPU, one or many, into arrays of any kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.cache import Once
from symgrad.errors import InputTypeError
from symgrad.front.column_results import ColumnResults, column_results
from symgrad.front.points import Bound, Filler, Inputs, result_arrays, result_arrays_on_device
from symgrad.report.kernel import KernelBase
from symgrad.report.source import Shaders
from symgrad.values.results import Array, Result, Scalar


@dataclass(frozen=True)
class Interface:
    """What calls of a kernel take and give: a ``single`` result, or a tuple of them."""

    inputs: Inputs
    results: tuple[Result, ...]
    single: bool


class Running(KernelBase):
    """A kernel as what its calls need: the compiled launch, and what is kept from call to call."""

    _process = "_launched", "_by_columns", "_bound", "_lock", "_local"

    def __init__(self, shaders: Shaders, interface: Interface, device: targets.Device) -> None:
        self._shaders, self._interface, self.device = shaders, interface, device
        self._computation, self._options = shaders.computation, shaders.options
        self._inputs, self._results = interface.inputs, interface.results
        self._single = interface.single
        self._dtype = np.dtype(self._options.dtype)
        self._backend = backend_of(device)
        self._backend.require(self._options.dtype)
        # the shape of a point that goes straight to the CPU; None where none does
        self._point_shape = (self._inputs.total,) if self._backend.on_host else None
        leaf = self._inputs.trees[0] if len(self._inputs.trees) == 1 else None
        self._array_shape = leaf.keys if self._point_shape and leaf and leaf.is_leaf else None
        """The shape of a point that goes straight there, if variables were asked for by one."""
        self._begin()

    def _begin(self) -> None:
        self._launched: Any = None
        self._by_columns: Once[None, ColumnResults | None] = Once(1)
        self._bound: Bound | None = None
        self._lock, self._local = threading.Lock(), threading.local()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the arrays that ``run`` returns."""
        return tuple(o.name for o in self._computation.outputs)

    def _run_point(self, x: np.ndarray) -> Any:
        try:
            put, call, readers = self._local.point
        except AttributeError:
            put, call, readers = self._local.point = self._point()
        put[:] = x
        call()
        results = [read() for read in readers]
        return results[0] if self._single else tuple(results)

    def _filler(self) -> Filler:
        """What this thread writes nested points with."""
        try:
            return self._local.filler
        except AttributeError:
            inputs, row = self._inputs, np.empty(self._inputs.total, self._dtype)
            filler = self._local.filler = Filler(inputs.names[0], inputs.trees[0], row)
            return filler

    def _point(self) -> tuple[np.ndarray, Callable[[], None], list[Callable[[], Any]]]:
        """Where this thread puts a point, what computes it, and what reads the results."""
        launched, sizes = self._compiled(), [len(o.nodes) for o in self._computation.outputs]
        x = np.empty(self._inputs.total, self._dtype)
        outputs = [np.empty(size, self._dtype) for size in sizes]
        call = launched.bind([x[None]], [columns[None] for columns in outputs])
        pairs = zip(self._results, outputs, strict=True)
        return x, call, [result.reader(columns) for result, columns in pairs]

    def _returned(self, columns: Sequence[Any], batch: tuple[int, ...]) -> Any:
        results = [r.of(c, batch) for r, c in zip(self._results, columns, strict=True)]
        return results[0] if self._single else tuple(results)

    def bound(self, x: np.ndarray, out: Sequence[np.ndarray]) -> Callable[[], None]:
        """A call that computes the points x (B, n) into these arrays, on the host, every time.

        All are C-contiguous, of the kernel's dtype, and share no memory.
        """
        return self._compiled().bind([x], [array.reshape(len(x), -1) for array in out])

    def _run_into(self, arrays: Sequence[Any], out: Any) -> Any:
        bound = self._bound
        if bound is not None and out is bound.out and len(arrays) == 1 and arrays[0] is bound.x:
            bound.call()
            return out
        out_arrays = (out,) if self._single else tuple(out) if np.iterable(out) else ()
        if self._are_on_device(arrays):
            self._run_on_device(arrays, out_arrays)
            return out
        points, batch = self._packed(arrays)
        outs = result_arrays(self._results, self.outputs, out_arrays, batch, self.dtype)
        if self._must_copy(points, outs):
            self._copy(self._compiled().run(points), batch, outs)
            return out
        call = self.bound(points, [array for (array,) in outs])
        call()
        self._keep(arrays, points, out, call)
        return out

    def _packed(self, arrays: Sequence[Any]) -> tuple[Any, tuple[int, ...]]:
        """The points of the host's arrays, and their batch; a GPU converts them on their way."""
        return self._inputs.pack(arrays, self._options.dtype, self._backend.on_host)

    def _must_copy(self, points: np.ndarray, outs: Sequence[list[np.ndarray]]) -> bool:
        """Whether results cannot be written to the user's arrays as they are computed."""
        plain = all(isinstance(r, (Scalar, Array)) for r in self._results)
        return not plain or any(np.may_share_memory(points, r) for mine in outs for r in mine)

    def _keep(
        self, arrays: Sequence[Any], points: np.ndarray, out: Any, call: Callable[[], None]
    ) -> None:
        """Keep a call for the same arrays, if x was taken as it is, and out is what it was.

        A list may hold other arrays next time.
        """
        fixed = isinstance(out, (tuple, np.ndarray))
        if fixed and len(arrays) == 1 and np.may_share_memory(arrays[0], points):
            self._bound = Bound(arrays[0], out, call)

    def _copy(
        self, columns: Sequence[Any], batch: tuple[int, ...], outs: Sequence[list[np.ndarray]]
    ) -> None:
        """Copy results to the user's arrays."""
        for result, mine, name, column in zip(
            self._results, outs, self.outputs, columns, strict=True
        ):
            for array, part in zip(mine, result.parts(result.of(column, batch), name), strict=True):
                np.copyto(array, part)

    def _are_on_device(self, arrays: Sequence[Any]) -> bool:
        return not self._backend.on_host and self._inputs.are_on_device(arrays)

    def _run_on_device(self, arrays: Sequence[Any], out: Sequence[Any] = ()) -> Any:
        if self._backend.on_host or isinstance(self.device, targets.Devices):
            raise InputTypeError(f"a device array cannot be read by {self.device}: use x.numpy()")
        points, batch = self._inputs.pack_on_device(arrays)
        if not out:
            make = partial(column_results, self._shaders, self._results, self.device)
            columns = self._by_columns.get(None, make)
            results = columns and columns.run(points, batch)
            if results is not None:
                return results
        launched = self._compiled()
        if not out:
            return self._returned(launched.run(points), batch)
        sizes = [len(o.nodes) for o in self._computation.outputs]
        outs = result_arrays_on_device(points, batch, sizes, self.outputs, out)
        return self._returned(launched.bind([points], outs)(), batch)

    def _compiled(self) -> Any:
        with self._lock:
            if self._launched is None:
                if not self._backend.on_host:
                    self._shaders.print()
                computed = self._computation, self._options, self._shaders.style.title
                self._launched = self._backend.map(*computed)
            return self._launched

    @property
    def _compile_seconds(self) -> dict[str, float]:
        return {} if self._launched is None else {"compile": self._launched.seconds}
