"""The slopes of rows that look up entries of tables: what each row adds to these, in quads.

Rows in the order of the entries that they name are cut into runs, which are added up one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.kernel.shapes import Reduction

ROWS_PER_RUN: Final = 32
"""Rows of a run, at most."""

ENOUGH: Final = 4096
"""Runs whose sums may come back whatever there are of entries: more are added on the device."""


@dataclass(frozen=True)
class TableGradient:
    """A row's part of the gradient of a table's column that a lookup reads: ``node``."""

    lookup: int
    column: int
    node: int


Quad = tuple[TableGradient, ...]
"""Up to four slopes, which are written and read together."""


def quads(reduction: Reduction) -> list[Quad]:
    """The slopes of a row, in fours of one index; what is 0 at every row is left out."""
    outputs = reduction.outputs[len(reduction.summed) :]
    by_index: list[list[TableGradient]] = [[] for _ in range(indices_of(reduction))]
    for k, (output, lookup) in enumerate(zip(outputs, reduction.lookups, strict=True)):
        for column, node in enumerate(output.nodes):
            if reduction.graph.value(node) != 0.0:
                by_index[lookup.index].append(TableGradient(k, column, node))
    return [tuple(mine[k : k + 4]) for mine in by_index for k in range(0, len(mine), 4)]


def indices_of(reduction: Reduction) -> int:
    """The number of a row's indices."""
    return max((k.index for k in reduction.lookups), default=-1) + 1


def place_of(reduction: Reduction, number: int) -> tuple[int, int]:
    """The lookup, and the column of its table, of an input, counted after the row's columns."""
    for k, lookup in enumerate(reduction.lookups):
        if number < lookup.width:
            return k, number
        number -= lookup.width
    raise AssertionError(f"no lookup has an input {number} more than all of them")


@dataclass(frozen=True)
class Runs:
    """Runs of rows in an order: run k is of ``order[starts[k] : starts[k + 1]]``."""

    order: np.ndarray
    starts: np.ndarray

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Segments:
    """How the rows that name an entry are added up.

    Invariants:
      1. The rows of ``levels[0]`` are those of the data; those of each next level are the runs of
         the level before it.
      2. Of the last level's runs, those from ``firsts[k]`` to the next of these, one at least, are
         of entry ``entries[k]``, which ascend; no other entry is named. A run may be empty.
    """

    levels: tuple[Runs, ...]
    entries: np.ndarray
    firsts: np.ndarray

    @property
    def target(self) -> Any:
        """The entries, as a slice if they are all of them up to the last."""
        count = len(self.entries)
        return slice(count) if self.entries[-1] == count - 1 else self.entries


def segments(indices: np.ndarray) -> Segments:
    """How to add up rows that name these entries (N,), of which there is at least one."""
    order, rows = sorted_order(indices), np.bincount(indices)
    entries, levels = np.flatnonzero(rows), list[Runs]()
    if 2 * len(entries) >= len(rows):  # a few without rows are no trouble, but gaps are slow
        entries = np.arange(len(rows))
    bounds = np.concatenate([[0], np.cumsum(rows[entries])])
    while True:
        starts, bounds = _cut(bounds)
        levels.append(Runs(order.astype(np.uint32), starts.astype(np.uint32)))
        if levels[-1].count <= max(len(entries), ENOUGH):
            return Segments(tuple(levels), entries, bounds[:-1])
        order = np.arange(levels[-1].count)


def sorted_order(indices: np.ndarray) -> np.ndarray:
    """The rows in the order of the entries that they name, and of one entry in their own.

    NumPy sorts words of 16 bits by their digits, much faster than longer ones.
    """
    order = np.argsort((indices & 0xFFFF).astype(np.uint16), kind="stable")
    if len(indices) and indices.max() > 0xFFFF:
        order = order[np.argsort((indices >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def in_order(
    reduction: Reduction, rows: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and indices (N, count), by the index that has most slopes.

    Then those of an entry stand side by side, and are read faster.
    """
    named = [reduction.lookups[q[0].lookup].index for q in quads(reduction)]
    column = indices[:, max(named, key=named.count)] if named else indices[:0]
    if (column[1:] >= column[:-1]).all():
        return rows, indices
    order = sorted_order(column)
    return rows[order], indices[order]


def _cut(bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where runs start: those of an entry hold the rows between two bounds, not too many in one.

    The runs of each entry lie between two of the new bounds.
    """
    number = np.maximum(-(-np.diff(bounds) // ROWS_PER_RUN), 1)
    after = np.concatenate([[0], np.cumsum(number)])
    within = np.arange(after[-1]) - np.repeat(after[:-1], number)
    return np.append(np.repeat(bounds[:-1], number) + ROWS_PER_RUN * within, bounds[-1]), after


class EntrySums:
    """Sums of runs of rows that name entries by one index, which are added to these.

    Args:
        slopes: the table gradients of the index, in quads that stand side by side.
        named: how the rows are cut into runs.
    """

    def __init__(self, slopes: Sequence[Quad], named: Segments) -> None:
        self.width = sum(len(quad) for quad in slopes)
        """Numbers of a run."""
        self.runs = named.levels[-1].count
        self._target, firsts = named.target, named.firsts
        self._entries = len(firsts)
        self._entry_of_run = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=self.runs))
        self._pieces = list(_pieces(slopes))

    def add_to(self, tables: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Add the sums of runs to the tables' entries, in a fixed order."""
        sums = numbers[: self.runs * self.width].reshape(self.runs, -1)
        if self.runs > self._entries:  # bincount adds in float64, one by one, and fast
            columns = [np.bincount(self._entry_of_run, c, self._entries) for c in sums.T]
            sums = np.stack(columns, axis=1)
        for part, lookup, columns in self._pieces:
            tables[lookup][self._target, columns] += sums[:, part]


def _pieces(quads: Sequence[Quad]) -> Iterator[tuple[slice, int, slice]]:
    """The slopes that go to neighbouring columns of a lookup's table, and to which."""
    slopes = enumerate(slope for quad in quads for slope in quad)
    start = 0
    for (lookup, first), group in itertools.groupby(
        slopes, lambda pair: (pair[1].lookup, pair[1].column - pair[0])
    ):
        end = start + sum(1 for _ in group)
        yield slice(start, end), lookup, slice(first + start, first + end)
        start = end
