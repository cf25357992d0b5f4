"""What a kernel reads and writes: points, nested or in rows, and the user's arrays for results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.errors import InputError, counted
from symgrad.expr.tracers.tree import Tree
from symgrad.values.arrays import real_numbers
from symgrad.values.parameters import joined, rows_of
from symgrad.values.results import Result
from symgrad.wgsl.arrays.array import DeviceArray


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
            isinstance(part, DeviceArray)
            for a, name, tree in zip(arrays, self.names, self.trees, strict=False)
            for part in (tree.parts(a, name) if tree.is_nest(a) else (a,))
        )

    def pack_on_device(self, arrays: Sequence[Any]) -> tuple[DeviceArray, tuple[int, ...]]:
        """`pack` of arrays of which some are on a GPU, there."""
        x = arrays[0]
        if len(arrays) == 1 and isinstance(x, DeviceArray) and x.shape[1:] == (self.total,):
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
            if type(part) is float:
                fits = view.ndim == 0 and abs(part) <= self._largest
            else:
                fits = type(part) is np.ndarray and part.dtype == view.dtype
                fits = fits and part.shape == view.shape
            if not fits:
                return False
            view[...] = part
        return True


def _device_or_host(value: Any, name: str) -> Any:
    return value if isinstance(value, DeviceArray) else real_numbers(value, name)


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
    x: DeviceArray,
    batch: tuple[int, ...],
    columns: Sequence[int],
    names: Sequence[str],
    outs: Sequence[Any],
) -> list[DeviceArray]:
    """The user's arrays (B, columns) on a device that results at x are written to, checked."""
    if len(outs) != len(names):
        raise InputError(f"out takes {counted(len(names), 'array')}: {', '.join(names)}")
    for k, name, out in zip(columns, names, outs, strict=True):
        size = k * math.prod(batch)
        if not isinstance(out, DeviceArray) or out.dtype != x.dtype or out.gpu is not x.gpu:
            raise InputError(
                f"out for {name} is {_kind(out)}: it must be a float32 array on {x.device}, as x is"
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
    """What a user gave for a result, in short."""
    if isinstance(out, np.ndarray | DeviceArray):
        kind = f"array on {out.device}" if isinstance(out, DeviceArray) else "NumPy array"
        return f"a {kind} of {out.dtype} and shape {out.shape}"
    return repr(out)
