"""A table of data as a device takes it: numbers and indices in C order, checked, and its weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import DeviceError, InputError, warn
from symgrad.expr.tracers.tree import Block
from symgrad.expr.tracing.gather import Gather
from symgrad.kernel.host.memory import ResidentArray
from symgrad.rows.loss import Traced
from symgrad.values.arrays import memory_dtype, name_of
from symgrad.values.tables import (
    Columns,
    read,
    require_columns,
    require_equal_lengths,
    require_shape,
    warn_of_rounding,
    whole,
)

# --- rows as points -------------------------------------------------------------------------------
# Where a loss of one row is evaluated: at the rows of a table, with their parameters.


@dataclass(frozen=True)
class RowPoints:
    """Values for the expressions of a row at each of them: parts of an array (N, inputs).

    ``flat`` are all parameters, ``numbers`` (N, columns) and ``indices`` (N, count) the table, and
    ``divisor`` is what sums over the rows are divided by. ``uniform`` is what is the same at all
    rows and comes first: the parameters that rows read, unless it is given.
    """

    traced: Traced
    flat: np.ndarray
    numbers: np.ndarray
    indices: np.ndarray
    divisor: float
    uniform: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.filled(self.points(len(self.numbers[rows])), rows)

    def points(self, count: int) -> np.ndarray:
        """An array (count, inputs) that has what is the same at all rows."""
        looked = sum(g.block.width for g in self.traced.gathers)
        same = self.same
        points = np.empty((count, len(same) + self.numbers.shape[1] + looked), self.flat.dtype)
        points[:, : len(same)] = same
        return points

    @property
    def same(self) -> np.ndarray:
        """The values that are the same at all rows."""
        return self.flat[list(self.traced.read)] if self.uniform is None else self.uniform

    def filled(self, points: np.ndarray, rows: slice) -> np.ndarray:
        """The first of some `points`, with what differs at some rows."""
        numbers, indices = self.numbers[rows], self.indices[rows]
        assert numbers.dtype == points.dtype, "columns and parameters have one dtype"
        filled, start = points[: len(numbers)], len(self.same)
        end = start + numbers.shape[1]
        _items(filled[:, start:end])[...] = _items(numbers)
        for gather in self.traced.gathers:
            block, start = gather.block, end
            end = start + block.width
            entries = self.flat[block.start : block.start + block.size].reshape(-1, block.width)
            _items(filled[:, start:end])[...] = _items(entries)[indices[:, self._position(gather)]]
        return filled

    def table(self) -> np.ndarray:
        """The table as one array (N, columns) of float64, indices among them."""
        columns = self.traced.columns
        table = np.empty((len(self), columns.count))
        table[:, list(columns.indices)] = self.indices
        table[:, columns.numbers] = self.numbers
        return table

    def summed(self, slopes: np.ndarray) -> np.ndarray:
        """The derivatives for all parameters, of those of each row (N, wrt), as `Traced` has them.

        They are added in float64, or as Python's numbers if they are objects.
        """
        count = len(self.traced.read)
        kind = object if slopes.dtype == object else np.float64
        gradient = np.zeros(len(self.flat), kind)
        gradient[list(self.traced.read)] = slopes[:, :count].sum(axis=0, dtype=kind)
        for gather in self.traced.gathers:
            block, end = gather.block, count + gather.block.width
            index = self.indices[:, self._position(gather)]
            entries = gradient[block.start : block.start + block.size].reshape(-1, block.width)
            np.add.at(entries, index, slopes[:, count:end].astype(kind))
            count = end
        return gradient

    def _position(self, gather: Gather) -> int:
        """The column of ``indices`` that an index stands in."""
        return self.traced.columns.indices.index(gather.column)


def _items(rows: np.ndarray) -> np.ndarray:
    """The rows as one item each: NumPy copies them up to ten times as fast as so many numbers."""
    if rows.strides[-1] != rows.itemsize or not rows.size:
        return rows
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))


# Tables of data on a GPU: their numbers stay there, and only indices are looked at here.


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


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Numbers (N, columns) and indices (N, count) of rows, and what these weigh together.

    The numbers are NumPy's, or a `ResidentArray`.

    ``derived`` is what a kernel has computed from the indices alone, and may take again: those of a
    bound table never change.
    """

    numbers: Any
    indices: np.ndarray
    count: int
    weight: float
    derived: dict[str, Any] = field(default_factory=dict)


def read_table(
    rows: Any,
    traced: Traced,
    dtype: str,
    policy: str,
    own: bool,
    backend: Backend | None = None,
) -> Table:
    """The table of rows of a traced loss; ``own`` if nothing may be shared with the user.

    With a backend, numbers that are on its device already stay there.

    Raises:
        InputError, InputTypeError: as `rows.read` does, and for an index that is out of range.
    """
    columns = traced.columns
    resident, coded = None, set(columns.codes)
    if backend and is_there(rows):
        resident = read_there(rows, columns, backend, policy, memory_dtype(dtype))
    numbers, indices = resident or read(rows, columns, dtype, policy, own)
    if len(coded) < len(columns.codes):
        _warn_of_few(traced, set(columns.codes) - coded)
    for position, k in enumerate(columns.indices):
        blocks = [g.block for g in traced.gathers if g.column == k]
        indices[:, position] = _in_range(indices[:, position], blocks, columns.describe(k))
    if columns.indices and isinstance(numbers, np.ndarray):
        numbers = np.ascontiguousarray(numbers[:, columns.numbers])
    small = np.ascontiguousarray(indices, np.int32)
    return Table(numbers, small, len(numbers), weight_of(numbers, traced))


def _warn_of_few(traced: Traced, names: set[str]) -> None:
    """Warn of labels that a kernel has just met, and that are fewer than what they look up."""
    read = set(traced.read)
    for gather in traced.gathers:
        block, name = gather.block, traced.columns.holding(gather.column).name
        if name not in names:
            continue
        places = range(block.start, block.start + block.size)
        entries = (block.size - sum(k in read for k in places)) // block.width
        labels = len(traced.columns.codes[name])
        if labels < entries:
            warn(
                f"{name} holds {labels} labels, and {block.name} has {entries} entries: label k of "
                "these, in order, takes entry k; if a kernel was fitted to more labels, give its "
                "codes as codes= to this one, or name all labels by columns=",
                UserWarning,
            )


def weight_of(numbers: Any, traced: Traced) -> float:
    """The weight of all rows, or their number."""
    if traced.weight is None:
        return float(len(numbers))
    column = traced.columns.numbers.index(traced.weight)
    return float(np.asarray(numbers[:, column]).sum(dtype=np.float64))


def _in_range(indices: np.ndarray, blocks: Sequence[Block], column: str) -> np.ndarray:
    """The indices, negative ones counted from the end as in NumPy; an error beyond a block."""
    smallest = min(blocks, key=lambda b: b.shape[0])
    entries = smallest.shape[0]
    wrong = (indices < -entries) | (indices >= entries)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{column} is {indices[row]} at row {row}: {smallest.name} has {entries} entries"
        )
    negative = indices < 0
    if negative.any() and len({b.shape[0] for b in blocks}) > 1:
        names = ", ".join(b.name for b in blocks)
        raise InputError(
            f"{column} is {indices[negative][0]} at row {int(np.argmax(negative))}, and {names} "
            "have different numbers of entries: count from the start"
        )
    return np.where(negative, indices + entries, indices)
