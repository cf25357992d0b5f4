"""How a kernel is run: on points of the host or of a GPU, one or many, into arrays of any kind.

Points are nested or in rows, and results may go into the user's arrays. On a GPU, a kernel whose
results are single numbers stores each as an array of its own: stored point by point, every one of
them would have to be gathered from all, which takes several times as long as most kernels.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.cache import Once
from symgrad.errors import InputError, InputTypeError, counted
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.language.target import WorkgroupTarget, whole_workgroups
from symgrad.kernel.skeletons.map import map_launch
from symgrad.pipeline import Options
from symgrad.report.kernel import KernelBase, Shaders
from symgrad.targets import Device
from symgrad.values.arrays import real_numbers
from symgrad.values.nested import Array, Nested, Result, Scalar, joined, rows_of


@dataclass(frozen=True)
class Inputs:
    """The arrays that ``run`` takes, or nests of them: their names, and how each is nested."""

    names: tuple[str, ...]
    trees: tuple[Tree, ...]

    @cached_property
    def total(self) -> int:
        """The numbers that a point consists of."""
        return sum(tree.size for tree in self.trees)

    def pack(
        self, arrays: Sequence[Any], dtype: str, convert: bool = True
    ) -> tuple[np.ndarray, tuple[int, ...]]:
        """The points (B, total), C-contiguous in the kernel's dtype, and the shape of the batch.

        A single array need not be converted, for what runs the kernel to do it on the way.
        """
        self._require_count(arrays)
        values = [
            rows_of(tree, a, name)
            for a, name, tree in zip(arrays, self.names, self.trees, strict=True)
        ]
        if convert or len(values) > 1:
            values = [_converted(v, dtype) for v in values]
        if len(values) == 1:
            batch = values[0].shape[:-1]
            return values[0].reshape(math.prod(batch), self.total), batch
        batch = np.broadcast_shapes(*[v.shape[:-1] for v in values])
        wide = [np.broadcast_to(v, batch + v.shape[-1:]) for v in values]
        return np.concatenate(wide, axis=-1).reshape(-1, self.total), batch

    def are_on_device(self, arrays: Sequence[Any]) -> bool:
        """Whether one of the arrays, or of what is nested in them, is on a GPU."""
        return any(
            isinstance(part, ResidentArray)
            for a, name, tree in zip(arrays, self.names, self.trees, strict=False)
            for part in (tree.parts(a, name) if tree.is_nest(a) else (a,))
        )

    def pack_on_device(self, arrays: Sequence[Any]) -> tuple[Any, tuple[int, ...]]:
        """`pack` of arrays of which some are on a GPU, there."""
        x = arrays[0]
        if len(arrays) == 1 and isinstance(x, ResidentArray) and x.shape[1:] == (self.total,):
            return x, x.shape[:-1]
        self._require_count(arrays)
        rows = [
            rows_of(tree, a, name, read=_device_or_host)
            for a, name, tree in zip(arrays, self.names, self.trees, strict=True)
        ]
        points = rows[0] if len(rows) == 1 else joined(rows, "what is given")
        batch = points.shape[:-1]
        return points.reshape(math.prod(batch), self.total), batch

    def _require_count(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.trees):
            wanted = ", ".join(self.names)
            raise InputError(
                f"run({wanted}) takes {counted(len(self.trees), 'array')}, not {len(arrays)}"
            )


class Filler:
    """Writes a nested point, of plain arrays and floats, to an array of all its numbers."""

    def __init__(self, name: str, tree: Tree, row: np.ndarray) -> None:
        self.row, self._name, self._tree = row, name, tree
        self._views = [block.of(row) for block in tree.blocks]
        self._largest = float(np.finfo(row.dtype).max)

    def fill(self, point: Any) -> bool:
        """Whether the point was such, and has been written; others may be nested so as well."""
        for part, view in zip(self._tree.parts(point, self._name), self._views, strict=True):
            if isinstance(part, float):
                fits = view.ndim == 0 and abs(part) <= self._largest
            else:
                fits = type(part) is np.ndarray and part.dtype.kind == "f"
                fits = fits and part.shape == view.shape
            if not fits:
                return False
            if isinstance(part, float) or part.dtype == view.dtype:
                view[...] = part
            else:
                with np.errstate(over="ignore"):
                    view[...] = part
        return True


def _device_or_host(value: Any, name: str) -> Any:
    return value if isinstance(value, ResidentArray) else real_numbers(value, name)


def _converted(rows: np.ndarray, dtype: str) -> np.ndarray:
    """The rows, C-contiguous in a dtype; what is beyond it is infinite."""
    if rows.dtype == dtype:
        return np.ascontiguousarray(rows)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(rows, dtype=dtype)


@dataclass(frozen=True)
class Bound:
    """The last arrays that results were written from and to: their addresses need no check."""

    x: np.ndarray
    out: Any
    call: Callable[[], None]


def result_arrays(
    results: Sequence[Result],
    names: Sequence[str],
    outs: Any,
    batch: tuple[int, ...],
    dtype: np.dtype[Any],
) -> list[list[np.ndarray]]:
    """The user's arrays that each result is written to, checked."""
    if len(outs) != len(results):
        raise InputError(f"out takes {counted(len(results), 'array')}: {', '.join(names)}")
    arrays_of_results: list[list[np.ndarray]] = []
    for result, name, out in zip(results, names, outs, strict=True):
        arrays = list(result.parts(out, f"out for {name}"))
        for array, shape in zip(arrays, result.shapes, strict=True):
            _require_out(array, batch + shape, dtype, name)
        arrays_of_results.append(arrays)
    every = itertools.chain.from_iterable(arrays_of_results)
    if any(np.may_share_memory(a, b) for a, b in itertools.combinations(every, 2)):
        raise InputError("the arrays of out share memory: each needs its own")
    return arrays_of_results


def result_arrays_on_device(
    x: Any,
    batch: tuple[int, ...],
    columns: Sequence[int],
    names: Sequence[str],
    outs: Sequence[Any],
) -> list[Any]:
    """The user's arrays (B, columns) on a device that results at x are written to, checked."""
    if len(outs) != len(names):
        raise InputError(f"out takes {counted(len(names), 'array')}: {', '.join(names)}")
    for k, name, out in zip(columns, names, outs, strict=True):
        size = k * math.prod(batch)
        if not isinstance(out, ResidentArray) or out.dtype != x.dtype or out.gpu is not x.gpu:
            raise InputError(
                f"out for {name} is {_kind(out)}: it must be a {x.dtype} array on {x.device}, "
                "as x is"
            )
        if out.size != size or out.shape[: len(batch)] != batch:
            raise InputError(
                f"out for {name} has shape {out.shape}: it must hold {size} numbers, batch {batch}"
            )
        if out.is_shared or out.shares_memory(x):
            raise InputError(f"out for {name} shares its memory with other arrays, such as views")
    if len({id(out) for out in outs}) < len(outs):
        raise InputError("the arrays of out are the same: each needs its own memory")
    return [out.reshape(-1, k) for k, out in zip(columns, outs, strict=True)]


def _require_out(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    """Refuse an array that a kernel cannot write a result to."""
    if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
        raise InputError(
            f"out for {name} is {_kind(array)}: it must be a NumPy array of {dtype} "
            f"and shape {shape}"
        )
    if not (array.flags.c_contiguous and array.flags.writeable and array.flags.aligned):
        raise InputError(f"out for {name} must be C-contiguous, aligned and writable")


def _kind(out: Any) -> str:
    """A short description of the value that a user gave for a result."""
    if isinstance(out, np.ndarray | ResidentArray):
        kind = f"array on {out.device}" if isinstance(out, ResidentArray) else "NumPy array"
        return f"a {kind} of {out.dtype} and shape {out.shape}"
    return repr(out)


# Results that are single numbers, on a GPU.


@dataclass(frozen=True)
class ColumnResults:
    """A map that stores its results by columns, and how these are nested."""

    launched: Any
    tree: Tree

    def run(self, points: Any, batch: tuple[int, ...]) -> Any:
        """The results of points (B, n), each an array of the batch's shape; None if they are many.

        Columns begin where arrays may be bound. Between two of them are the results of points that
        there are not.
        """
        count = len(points)
        length, launched = whole_workgroups(count), self.launched
        fits = points.gpu is launched.gpu and points.dtype == self.launched.floats
        if not 0 < length <= launched.chunk or not fits:
            return None
        width = launched.launch.outputs[0].size
        columns = points.empty_beside((width, length))
        launched.submit(length, [points.rows(0, count), columns.rows(0, width)])
        return self.tree.nest(columns[k, :count].reshape(batch) for k in range(width))


def column_results(
    shaders: Shaders, results: Sequence[Result], device: Device
) -> ColumnResults | None:
    """A kernel's results as columns, if they are nested numbers, and its code is short."""
    nested = results[0] if len(results) == 1 else None
    if not isinstance(nested, Nested) or len(nested.shapes) < 2 or any(nested.shapes):
        return None
    computation = shaders.computation
    if computation.is_structured or shaders.count > 1:
        return None
    launch = map_launch(computation, WorkgroupTarget(computation.workgroup), columns_out=True)
    launched = backend_of(device).launch(launch, shaders.options, shaders.style.title)
    return ColumnResults(launched, nested.tree)


# Kernels that run on points.


@dataclass(frozen=True)
class Interface:
    """The arguments and results of a kernel's calls: a ``single`` result, or a tuple of them."""

    inputs: Inputs
    results: tuple[Result, ...]
    single: bool


class Running(KernelBase):
    """A kernel as what its calls need: the compiled launch, and what is kept from call to call."""

    _process = "_launched", "_by_columns", "_bound", "_lock", "_local"

    def __init__(self, shaders: Shaders, interface: Interface, device: targets.Device) -> None:
        self._shaders, self._computation = shaders, shaders.computation
        self._stand(interface, shaders.options, device)

    def _stand(self, interface: Interface, options: Options, device: targets.Device) -> None:
        """Note what calls take and give, and where they run."""
        self._interface, self._options, self.device = interface, options, device
        self._inputs, self._results = interface.inputs, interface.results
        self._single = interface.single
        self._dtype = self._options.floats
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
        """The `Filler` with which this thread writes nested points."""
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
        return self._inputs.pack(arrays, str(self._options.floats), self._backend.on_host)

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
