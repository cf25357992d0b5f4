"""The arrays that an iteration runs on: one state for each problem, and the data of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.kernel.plan import Iteration


@dataclass(frozen=True)
class Problems:
    """How many problems there are, and how many rows of data each has."""

    count: int
    rows: int


def problems_of(iteration: Iteration, state: tuple[int, ...], shared: Any, own: Any) -> Problems:
    """The sizes of a state of this shape and of data, which are None where an iteration has none.

    Raises:
        InputError: an array is missing, is there for nothing, or has another shape.
    """
    if len(state) != 2 or state[1] != iteration.state:
        raise InputError(f"a state of shape {state}: expected (S, {iteration.state})")
    count, rows = state[0], None
    for name, array, columns, axes in (
        ("shared", shared, iteration.shared, ()),
        ("own", own, iteration.own, (count,)),
    ):
        if (array is None) == (columns > 0):
            found = "no array" if array is None else f"an array of shape {array.shape}"
            raise InputError(f"{found} as {name} data: its rows have {columns} columns")
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


def contiguous(array: np.ndarray | None, dtype: Any) -> np.ndarray | None:
    """The array in this dtype and in C order."""
    return None if array is None else np.ascontiguousarray(array, dtype)
