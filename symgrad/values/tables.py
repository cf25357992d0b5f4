"""Tables of data: arrays, structured arrays, dicts and data frames, whole or block by block."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.tracers.tree import Block, Tree
from symgrad.expr.tracing.trace import require_feasible
from symgrad.values.arrays import host_dtype, real_numbers, warn_if_rounded
from symgrad.values.codes import Codes, declared

NanPolicy = Literal["propagate", "raise", "omit"]

NAN_POLICIES: Final = get_args(NanPolicy)
"""The policies for rows in which a number is NaN, in SciPy's words."""


Reduce = Literal["sum", "mean"]
"""The reductions of the losses of all rows."""

ColumnNames = Sequence[str] | Mapping[str, Any]
"""Names of columns; or for each of them the shape of its array at a row, what its codes stand for,
see `Codes`, or None."""


@dataclass(frozen=True)
class Columns:
    """The columns of a row, and where its ``count`` numbers stand in them.

    Without names each number is a column. A column with a name may be an array, of the shape that
    ``tree`` has: its numbers stand in C order. ``indices`` are the numbers that are indices.
    """

    count: int
    tree: Tree | None = None
    indices: tuple[int, ...] = ()
    codes: Codes = field(default_factory=Codes, compare=False)
    """The codes of the labels and dates of columns that hold no numbers."""
    quantities: tuple[int, ...] = ()
    """The numbers that are computed with, other than by comparisons and as indices."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of columns, if they have any."""
        return self.tree.keys if self.tree else None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns with names, and where the numbers of each stand."""
        return self.tree.blocks if self.tree else ()

    @property
    def numbers(self) -> list[int]:
        """The numbers that are no indices."""
        return [k for k in range(self.count) if k not in self.indices]

    def column(self, name: str) -> Block:
        """The column of this name."""
        return self.blocks[(self.names or ()).index(name)]

    def holding(self, k: int) -> Block:
        """The column with a name that a number stands in."""
        return next(b for b in self.blocks if b.start <= k < b.start + b.size)

    def describe(self, k: int) -> str:
        """How a user knows a number of a row."""
        return self._described[k]

    @cached_property
    def _described(self) -> tuple[str, ...]:
        """How a user knows each number of a row."""
        if not self.tree:
            return tuple(f"column {k}" for k in range(self.count))
        names: list[str] = []
        for column in self.blocks:
            for place in np.ndindex(column.shape):
                where = f"[{', '.join(map(str, place))}]" if place else ""
                names.append(repr(column.name) + where)
        return tuple(names)

    def real(self, column: Block, values: Any) -> np.ndarray:
        """A column of a table, as an array (N, numbers): see `Codes.numbers`."""
        is_quantity = any(0 <= k - column.start < column.size for k in self.quantities)
        numbers = self.codes.numbers(column.name, values, is_quantity, column.shape)
        return numbers.reshape(len(numbers), column.size)


def columns_of(row: Any, columns: Any, codes: Any = None) -> Columns:
    """The columns for ``row=`` or ``columns=``, of which one is given, and ``codes=``."""
    if columns is None:
        if codes is not None:
            raise InputError("codes= are of columns with names: give columns= too")
        if row is None:
            raise InputError("a loss over data needs row=, the number of columns, or columns=")
        if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or row < 1:
            raise InputError(f"row={row!r}: a row has at least 1 column")
        require_feasible(int(row))
        return Columns(int(row))
    if row is not None:
        raise InputError("row= and columns= say the same: give one of them")
    return _named_columns(columns, codes)


def _named_columns(columns: Any, codes: Any) -> Columns:
    """The columns of ``columns=``, each an identifier, once."""
    names, shapes, codes = declared(columns, codes)
    if not names or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise InputError(f"columns={columns!r}: names of columns, each an identifier")
    if len(set(names)) != len(names):
        raise InputError(f"columns={columns!r}: a name comes twice")
    arrays = [shapes.get(name, ()) for name in names]
    tree = Tree("dict", tuple(names), tuple(Tree("array", s) if s else Tree() for s in arrays))
    require_feasible(tree.size)
    return Columns(tree.size, tree, codes=codes)


def _is_block(rows: Any) -> bool:
    """Whether it is a table itself, in a list of them."""
    if isinstance(rows, Mapping):
        return any(np.ndim(values) for values in rows.values())
    return isinstance(rows, np.ndarray) and rows.ndim > 1 or hasattr(rows, "columns")


def is_table(rows: Any) -> bool:
    """Whether it is one table, rather than an iterator of blocks."""
    return (
        isinstance(rows, (np.ndarray, Mapping, list, tuple))
        or hasattr(rows, "columns")
        or hasattr(rows, "__array__")
    )


def blocks_of(rows: Any, size: int) -> Iterator[Any]:
    """The blocks of an iterator of tables, or of one table, ``size`` rows each at most."""
    if not is_table(rows):
        if not hasattr(rows, "__iter__"):
            raise InputTypeError(f"rows is a table, or an iterator of tables, not {rows!r}")
        yield from rows
        return
    count = len_of(rows)
    for start in range(0, count, size):
        yield rows if count <= size else take(rows, start, start + size)
    if not count:
        yield rows


def len_of(rows: Any) -> int:
    """The number of rows of a table."""
    first = next(iter(rows.values()), ()) if isinstance(rows, Mapping) else rows
    try:
        return len(first)
    except TypeError as error:
        hint = "collect() it first" if hasattr(rows, "collect") else "arrays are needed"
        raise InputTypeError(f"rows, {type(rows).__name__}, has no length: {hint}") from error


def take(rows: Any, start: int, end: int) -> Any:
    """Some rows of a table."""
    if isinstance(rows, Mapping):
        return {name: values[start:end] for name, values in rows.items()}
    return rows[start:end]


def read(
    rows: Any, columns: Columns, dtype: str, policy: str, own: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A table as arrays: numbers (N, count) of this dtype, and indices (N, indices) of int64.

    The numbers are the user's own array if it is fit for it, or always a copy if ``own``. Rows that
    hold a NaN are as the policy says.

    Warns of columns that this dtype rounds coarsely beside their spread: see `PrecisionWarning`.

    Raises:
        InputError: for columns that are missing, too many or of different lengths, for indices that
        are no whole numbers, and, by the policy, for a NaN.
        InputTypeError: for what holds no real numbers.
    """
    len_of(rows)  # refuses what only promises a table
    kind = host_dtype(dtype)
    parts = _columns_by_name(rows, columns) if columns.names else [_by_number(rows, columns)]
    starts = list(itertools.accumulate((part.shape[1] for part in parts), initial=0))
    indices = [
        whole(part[:, k - start], columns, k, policy)
        for k in columns.indices
        for start, part in zip(starts, parts, strict=False)
        if start <= k < start + part.shape[1]
    ]
    for start, part in zip(starts, parts, strict=False):
        warn_of_rounding(part, start, columns, dtype)
    with np.errstate(over="ignore"):
        if len(parts) > 1:
            numbers = np.empty((len(parts[0]), columns.count), kind)
            np.concatenate(parts, axis=1, out=numbers, casting="unsafe")
        elif own:
            numbers = np.array(parts[0], dtype=kind, order="C")
        else:
            numbers = np.ascontiguousarray(parts[0], dtype=kind)
    index_columns = np.stack(indices, axis=1) if indices else np.empty((len(numbers), 0), np.int64)
    return _screened(numbers, index_columns, policy, columns)


def warn_of_rounding(part: np.ndarray, start: int, columns: Columns, dtype: str) -> None:
    """Warn of numbers (N, k), those from ``start`` on, that this dtype rounds by much.

    There is one warning for a column.
    """
    if dtype != "float32" or part.dtype == np.float32:
        return
    warned = range(0)
    for k, values in enumerate(part.T, start):
        if k in warned or k in columns.indices:
            continue
        if warn_if_rounded(values, columns.describe(k), dtype) and columns.tree:
            column = columns.holding(k)
            warned = range(column.start, column.start + column.size)


def _by_number(rows: Any, columns: Columns) -> np.ndarray:
    """A table without names as an array of its columns."""
    if isinstance(rows, (list, tuple)) and len(rows) and _is_block(rows[0]):
        raise InputTypeError("rows is a list of tables: iter(rows) gives them one after another")
    try:
        table = real_numbers(rows, "rows", missing=True)
    except InputTypeError as error:
        raise InputTypeError(
            f"{error}; labels and dates are coded in columns with names: a dict or a data frame, "
            "and columns=[...]"
        ) from error
    if table.ndim == 1 and columns.count == 1:
        table = table[:, None]
    if table.ndim != 2 or table.shape[1] != columns.count:
        raise InputError(f"rows has shape {table.shape}: (N, {columns.count}) is needed")
    return table


def _columns_by_name(rows: Any, columns: Columns) -> Sequence[np.ndarray]:
    """The columns of a table with names, or all of them in one array without."""
    names = names_in(rows)
    if names is None:
        return [_by_number(rows, columns)]
    require_columns(columns, names)
    parts = [columns.real(column, rows[column.name]) for column in columns.blocks]
    require_equal_lengths(columns, parts)
    return parts


def require_columns(columns: Columns, names: Collection[Any]) -> None:
    """Refuse a table, with columns of these names, where one is missing."""
    for name in columns.names or ():
        if name not in names:
            has = ", ".join(map(str, names))
            raise InputError(f"rows has no column {name!r}: it has {has}")


def require_equal_lengths(columns: Columns, parts: Sequence[Any]) -> None:
    """Refuse columns of which some have more rows than others."""
    lengths = [len(part) for part in parts]
    if len(set(lengths)) > 1:
        named = dict(zip(columns.names or (), lengths, strict=True))
        raise InputError(f"columns differ in length: {named}")


def names_in(rows: Any) -> Sequence[str] | None:
    """The names of a table's columns; None if it has none."""
    if isinstance(rows, Mapping):
        return list(rows)
    if isinstance(rows, np.ndarray):
        return rows.dtype.names
    return list(rows.columns) if hasattr(rows, "columns") else None


def whole(values: np.ndarray, columns: Columns, k: int, policy: str) -> np.ndarray:
    """A column of indices; 0 for a NaN that the policy will meet with its row."""
    missing = np.isnan(values) if values.dtype.kind == "f" else np.False_
    if missing.any():
        if policy == "propagate":
            raise InputError(
                f"{columns.describe(k)} is an index, and NaN at row {int(np.argmax(missing))}: "
                'mend it, or use nan_policy="omit"'
            )
        values = np.where(missing, 0, values)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise InputError(f"{columns.describe(k)} is an index: whole numbers are needed")
    return whole


def _screened(
    numbers: np.ndarray, indices: np.ndarray, policy: str, columns: Columns
) -> tuple[np.ndarray, np.ndarray]:
    """The rows, with those that hold a NaN, indices among them, as the policy says."""
    if policy == "propagate":
        return numbers, indices
    bad = np.isnan(numbers).any(axis=1)
    if not bad.any():
        return numbers, indices
    if policy == "raise":
        row = int(np.argmax(bad))
        column = columns.describe(int(np.argmax(np.isnan(numbers[row]))))
        raise InputError(
            f"{int(bad.sum())} rows hold a NaN, the first at row {row}, {column}: mend them, or "
            'use nan_policy="omit" or "propagate"'
        )
    return np.ascontiguousarray(numbers[~bad]), np.ascontiguousarray(indices[~bad])
