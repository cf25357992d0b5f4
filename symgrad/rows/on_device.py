"""Tables of data on a GPU: their numbers stay there, and only indices are looked at here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from symgrad.errors import DeviceError, InputError
from symgrad.values.rounding import warn_if_rounded
from symgrad.values.tables import Columns, whole
from symgrad.wgsl.arrays.array import DeviceArray, stack
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.device.gpus import Gpu


def is_there(rows: Any) -> bool:
    """Whether a table, or any of its columns, is on a GPU."""
    parts = rows.values() if isinstance(rows, Mapping) else (rows,)
    return any(isinstance(part, DeviceArray) for part in parts)


def read_there(
    rows: Any, columns: Columns, gpu: Gpu, policy: str
) -> tuple[DeviceArray, np.ndarray] | None:
    """A table as `rows.read` has it, its numbers on the GPU that some of its columns are on.

    None if rows that hold a NaN are to be found and left out, or told of.

    Raises:
        DeviceError: for arrays on another GPU. InputError, InputTypeError: as `rows.read`.
    """
    each = list(_columns(rows, columns, gpu))
    taken = [each[k] for k in columns.numbers]
    if isinstance(rows, DeviceArray) and rows.ndim == 2 and not columns.indices:
        numbers = rows
    else:
        empty = DeviceArray.empty(gpu, (len(each[0]), 0))
        numbers = stack(taken, axis=1) if taken else empty
    if policy != "propagate" and any(a.size and np.isnan(float(a.max())) for a in taken):
        return None
    found = [whole(each[k].numpy(), columns, k, policy) for k in columns.indices]
    indices = np.stack(found, axis=1) if found else np.empty((len(numbers), 0), np.int64)
    return numbers, indices


def _columns(rows: Any, columns: Columns, gpu: Gpu) -> Iterator[DeviceArray]:
    """The columns, each (N,), on the GPU: those of numbers are float32."""
    if isinstance(rows, Mapping):
        assert columns.names, "rows of numbered columns are an array"
        missing = [name for name in columns.names if name not in rows]
        if missing:
            known = ", ".join(map(str, rows))
            raise InputError(f"rows has no column {missing[0]!r}: it has {known}")
        found = [rows[name] for name in columns.names]
    else:
        table = rows.reshape(-1, 1) if rows.ndim == 1 and columns.count == 1 else rows
        if table.ndim != 2 or table.shape[1] != columns.count:
            raise InputError(f"rows has shape {rows.shape}: (N, {columns.count}) is needed")
        found = [table[:, k] for k in range(columns.count)]
    shapes = [np.shape(a) if not isinstance(a, DeviceArray) else a.shape for a in found]
    if any(len(shape) != 1 for shape in shapes) or len(set(shapes)) > 1:
        named = dict(zip(columns.names or (), shapes, strict=True))
        raise InputError(f"columns differ in shape: {named}")
    for k, column in enumerate(found):
        yield _there(column, columns, k, gpu)


def _there(column: Any, columns: Columns, k: int, gpu: Gpu) -> DeviceArray:
    """A column on the GPU."""
    if isinstance(column, DeviceArray):
        if column.gpu is not gpu:
            raise DeviceError(f"the rows are on {column.device}, the kernel on {gpu.info}")
        if k in columns.indices or column.dtype == FLOAT:
            return column
        column = column.numpy()
    name = columns.names[k] if columns.names else columns.describe(k)
    values = columns.codes.numbers(name, column, k in columns.quantities)
    warn_if_rounded(values, columns.describe(k), "float32")
    return DeviceArray.from_numpy(gpu, values)
