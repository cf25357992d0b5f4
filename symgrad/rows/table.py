"""A table of data as a device takes it: numbers and indices in C order, checked, and its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import InputError, warn
from symgrad.expr.tracers.tree import Block
from symgrad.rows.loss import Traced
from symgrad.rows.on_device import is_there, read_there
from symgrad.values.dtypes import memory_dtype
from symgrad.values.tables import read


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
