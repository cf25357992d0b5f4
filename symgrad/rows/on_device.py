"""Tables of data on a GPU: their numbers stay there, and only indices are looked at here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import DeviceError, InputError
from symgrad.expr.tracers.tree import Block
from symgrad.kernel.resident import ResidentArray
from symgrad.values.codes import require_shape
from symgrad.values.dtypes import name_of
from symgrad.values.tables import (
    Columns,
    require_columns,
    require_equal_lengths,
    warn_of_rounding,
    whole,
)


def is_there(rows: Any) -> bool:
    """Whether a table, or any of its columns, is on a GPU."""
    parts = rows.values() if isinstance(rows, Mapping) else (rows,)
    return any(isinstance(part, ResidentArray) for part in parts)


def read_there(
    rows: Any, columns: Columns, backend: Backend, policy: str, dtype: np.dtype[Any]
) -> tuple[Any, np.ndarray] | None:
    """A table as `rows.read` has it, its numbers on the GPU that some of its columns are on.

    None if rows that hold a NaN are to be found and left out, or told of.

    Raises:
        DeviceError: for arrays on another GPU. InputError, InputTypeError: as `rows.read`.
    """
    parts = list(_parts(rows, columns, backend, dtype))
    taken: list[Any] = []
    for start, part in parts:
        taken += _numbers(part, start, columns, backend, dtype)
    if policy != "propagate" and any(a.size and np.isnan(float(a.max())) for a in taken):
        return None
    count = len(parts[0][1])
    indices = np.empty((count, len(columns.indices)), np.int64)
    for start, part in parts:
        for position, k in enumerate(columns.indices):
            if start <= k < start + part.shape[1]:
                values = np.asarray(part[:, k - start])
                indices[:, position] = whole(values, columns, k, policy)
    if len(taken) == 1:
        return taken[0], indices
    numbers = np.concatenate(taken, 1) if taken else backend.array(np.empty((count, 0)), dtype)
    return numbers, indices


def _numbers(
    part: ResidentArray | np.ndarray,
    start: int,
    columns: Columns,
    backend: Backend,
    dtype: np.dtype[Any],
) -> Iterator[ResidentArray]:
    """Columns that hold no index, in a part of the table, (N, k) on the GPU."""
    places = [k for k in range(part.shape[1]) if start + k not in columns.indices]
    if not places:
        return
    if not isinstance(part, ResidentArray):
        warn_of_rounding(part, start, columns, name_of(dtype))
        yield backend.array(part[:, places], dtype)
    elif len(places) == part.shape[1]:
        yield part
    else:
        yield from (part[:, k : k + 1] for k in places)


def _parts(
    rows: Any, columns: Columns, backend: Backend, dtype: np.dtype[Any]
) -> Iterator[tuple[int, ResidentArray | np.ndarray]]:
    """The parts of a table, (N, k) each, and where they begin in a row."""
    if isinstance(rows, Mapping):
        require_columns(columns, rows)
        where = columns, backend, dtype
        parts = [_part(rows[column.name], column, *where) for column in columns.blocks]
        require_equal_lengths(columns, parts)
        yield from ((c.start, part) for c, part in zip(columns.blocks, parts, strict=True))
        return
    table = rows.reshape(-1, 1) if rows.ndim == 1 and columns.count == 1 else rows
    if table.ndim != 2 or table.shape[1] != columns.count:
        raise InputError(f"rows has shape {rows.shape}: (N, {columns.count}) is needed")
    stays = _stays(table, range(columns.count), columns, backend, dtype)
    yield 0, table if stays else table.numpy()


def _part(
    values: Any, column: Block, columns: Columns, backend: Backend, dtype: np.dtype[Any]
) -> ResidentArray | np.ndarray:
    """A column, (N, k), on the GPU if it is there in the dtype that is needed."""
    if not isinstance(values, ResidentArray):
        return columns.real(column, values)
    require_shape(column.name, values.shape, column.shape)
    places = range(column.start, column.start + column.size)
    if not _stays(values, places, columns, backend, dtype):
        return columns.real(column, values.numpy())
    return values.reshape(len(values), column.size)


def _stays(
    part: ResidentArray, places: range, columns: Columns, backend: Backend, dtype: np.dtype[Any]
) -> bool:
    """Whether an array is taken where it is: of the dtype, or numbers that are all indices."""
    if part.gpu is not backend.owner:
        raise DeviceError(f"the rows are on {part.device}, the kernel on {backend.device}")
    return part.dtype == dtype or set(places) <= set(columns.indices)
