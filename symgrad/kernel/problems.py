"""The arrays that an iteration runs on: one state for each problem, and the data of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.kernel.shapes import Iteration


@dataclass(frozen=True)
class RowData:
    """The data of rows: ``shared`` (R, ks) by all problems, ``own`` (S, R, ko) of each.

    Either is None where an iteration has no such columns.
    """

    shared: Any = None
    own: Any = None

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of both kinds."""
        shared, own = (0 if a is None else a.shape[-1] for a in (self.shared, self.own))
        return shared, own

    @property
    def rows(self) -> int:
        """The rows of a problem; 0 if there are no data."""
        array = self.own if self.shared is None else self.shared
        return 0 if array is None else array.shape[-2]

    def of(self, part: slice) -> RowData:
        """The data of some of the problems."""
        return self if self.own is None else RowData(self.shared, self.own[part])

    def arrays(self, count: int) -> tuple[Any, Any]:
        """Both, of so many problems: arrays without columns in the place of None."""
        shared = np.empty((self.rows, 0)) if self.shared is None else self.shared
        return shared, np.empty((count, self.rows, 0)) if self.own is None else self.own

    def contiguous(self, dtype: Any) -> RowData:
        """The data in this dtype and in C order, on the host."""
        arrays = self.shared, self.own
        return RowData(*(a if a is None else np.ascontiguousarray(a, dtype) for a in arrays))


NO_DATA: Final = RowData()
"""The data of iterations without rows."""


@dataclass(frozen=True)
class Problems:
    """How many problems there are, and how many rows of data each has."""

    count: int
    rows: int


def problems_of(iteration: Iteration, state: tuple[int, ...], data: RowData) -> Problems:
    """The sizes of a state of this shape and of data.

    Raises:
        InputError: an array is missing, is there for nothing, or has another shape.
    """
    if len(state) != 2 or state[1] != iteration.state:
        raise InputError(f"a state of shape {state}: expected (S, {iteration.state})")
    count, rows = state[0], None
    for name, array, columns, axes in (
        ("shared", data.shared, iteration.shared, ()),
        ("own", data.own, iteration.own, (count,)),
    ):
        if (array is None) == (columns > 0):
            shown = "no array" if array is None else f"an array of shape {array.shape}"
            raise InputError(f"{shown} as {name} data: its rows have {columns} columns")
        if array is not None:
            rows = _rows(name, array.shape, (*axes, rows, columns))
    return Problems(count, rows or 0)


def _rows(name: str, shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> int:
    """The rows of an array whose shape must be the wanted one, where that is known."""
    if len(shape) != len(wanted) or any(
        w not in (None, s) for s, w in zip(shape, wanted, strict=True)
    ):
        axes = ", ".join("R" if w is None else str(w) for w in wanted)
        raise InputError(f"{name} data of shape {shape}: expected ({axes})")
    return shape[-2]
