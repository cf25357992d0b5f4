"""Adds the slopes of rows to the entries of tables: which rows name which, and in which order.

The host sorts the rows of each index once and cuts them into runs. What the runs add up to comes
back with the other results; the few sums of an entry are added in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import DeviceError, InputError
from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.kernel.memory import POOL
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.lookup import STEP, Place
from symgrad.kernel.table_gradients import Quad, indices_of, quads
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.summation import READ, RUN, RUNS_PER_WORKGROUP, tiles_of
from symgrad.wgsl.memory.encoding import Step
from symgrad.wgsl.memory.pool import Storage

ENOUGH: Final = 4096
"""Runs whose sums may come back whatever there are of entries: more are added on the device."""

NOTHING: Final = np.empty(0, np.uint32)
"""The words of no tables."""

Pipelines = Callable[[int, Place | None], Any]
"""The pipeline that adds up runs of so many quads, and writes the sums at a place."""


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
    """Where runs start, if no entry's rows, between two bounds, may be more than `RUN` in one.

    The runs of each entry lie between two of the new bounds.
    """
    number = np.maximum(-(-np.diff(bounds) // RUN), 1)
    after = np.concatenate([[0], np.cumsum(number)])
    within = np.arange(after[-1]) - np.repeat(after[:-1], number)
    return np.append(np.repeat(bounds[:-1], number) + RUN * within, bounds[-1]), after


class Scatter:
    """The slopes of a block of rows that go to the entries which one of the indices names.

    Args:
        gpu: where the rows are.
        slopes: those of the index, in quads that stand side by side.
        first: the number of the first of them among all quads.
        indices: the entries that the rows name.
        place: the float of the results at which the sums of these slopes begin.
    """

    def __init__(
        self, gpu: Gpu, slopes: Sequence[Quad], first: int, indices: np.ndarray, place: int
    ) -> None:
        self._gpu, self._slopes, self._first, self._place = gpu, slopes, first, place
        self._width = sum(len(quad) for quad in slopes)
        self._segments = segments(indices)
        firsts = self._segments.firsts
        runs = np.diff(firsts, append=self._segments.levels[-1].count)
        self._entry_of_run = np.repeat(np.arange(len(firsts)), runs)
        self._pieces = list(_pieces(slopes))
        self._levels = [_Level(gpu, runs) for runs in self._segments.levels]
        self._between = [gpu.storage(self._bytes(v)) for v in self._levels[:-1]]

    @property
    def size(self) -> int:
        """Numbers that it writes to the results, and up to where others may begin."""
        return padded(self._levels[-1].count * self._width)

    def _bytes(self, level: _Level) -> int:
        return 16 * padded(level.count) * len(self._slopes)

    def steps(self, slopes: Storage, results: Storage, pipelines: Pipelines) -> Iterator[Step]:
        """The dispatches, from slopes of all rows to the results."""
        sources = [(slopes, 16 * self._first * self._levels[0].rows)]
        sources += [(storage, 0) for storage in self._between]
        last = results.buffer, 4 * self._place, 4 * self.size
        for k, (level, source) in enumerate(zip(self._levels, sources, strict=True)):
            for tile in tiles_of(len(self._slopes)):
                target, place = last, self._place_of(tile)
                if k < len(self._between):
                    target = _columns(self._between[k], 0, padded(level.count), tile)
                    place = None
                arrays = [*level.arrays, _columns(*source, level.rows, tile), target]
                bound = self._gpu.bind(level.count, arrays, READ)
                groups = -(-level.count // RUNS_PER_WORKGROUP)
                down = -(-groups // MAX_WORKGROUPS)
                yield Step(pipelines(len(tile), place), bound, -(-groups // down), down)

    def _place_of(self, tile: range) -> Place:
        """Where the sums of some quads go in an entry of the results."""
        ends = np.cumsum([0, *(len(quad) for quad in self._slopes)]).tolist()
        first, end = ends[tile.start], ends[tile.stop]
        return Place(first, end - first, self._width)

    def add_to(self, tables: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Add what is among all results to the tables' entries, in a fixed order."""
        count, entries = self._levels[-1].count, len(self._segments.firsts)
        sums = numbers[self._place : self._place + count * self._width].reshape(count, -1)
        if count > entries:  # bincount adds in float64, one by one, faster than reduceat
            sums = np.stack([np.bincount(self._entry_of_run, c, entries) for c in sums.T], axis=1)
        for part, lookup, columns in self._pieces:
            tables[lookup][self._segments.target, columns] += sums[:, part]


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


def _columns(storage: Storage, start: int, step: int, tile: range) -> Range:
    """Some columns of an array that starts at this byte, and has so many quads in a column."""
    return storage.buffer, start + 16 * step * tile.start, 16 * step * len(tile)


class Lookups:
    """What the rows of a table look up, and where it goes: all but the rows, on the device.

    Args:
        gpu: where the rows are.
        reduction: what is computed at each row.
        indices: the entries that the rows name (N, indices).
        counts: the rows of each block.
        place: the float of the results at which the sums of slopes begin.
        pipelines: what adds up runs.
    """

    def __init__(
        self,
        gpu: Gpu,
        reduction: Reduction,
        indices: np.ndarray,
        counts: Sequence[int],
        place: int,
        pipelines: Pipelines,
    ) -> None:
        self._gpu, self._reduction, self._pipelines = gpu, reduction, pipelines
        ends = np.cumsum([0, *counts]).tolist()
        blocks = [indices[a:b] for a, b in itertools.pairwise(ends)]
        self._indices = [uploaded(gpu, index_words(reduction, block)) for block in blocks]
        self._scatters: list[list[Scatter]] = []
        self.end = place
        for block in blocks:
            self._scatters.append(list(self._scattered(block)))
        self._rows = [padded(count) for count in counts]
        self._width = 16 * max(len(quads(reduction)), 1)
        self._slopes = gpu.storage(self._width * max(self._rows, default=STEP))
        self._tables: Storage | None = None

    def _scattered(self, indices: np.ndarray) -> Iterator[Scatter]:
        """A scatter for each index that has slopes."""
        all_quads = quads(self._reduction)
        named = [self._reduction.lookups[q[0].lookup].index for q in all_quads]
        for k in range(indices.shape[1]):
            mine = [q for q, index in zip(all_quads, named, strict=True) if index == k]
            if mine:
                chosen = np.ascontiguousarray(indices[:, k])
                scatter = Scatter(self._gpu, mine, named.index(k), chosen, self.end)
                self.end += scatter.size
                yield scatter

    def load(self, words: np.ndarray) -> bool:
        """Write tables to the device; whether they have a new place there."""
        moved = self._tables is None or self._tables.nbytes != words.nbytes
        if self._tables is None or moved:
            if words.nbytes > self._gpu.max_binding:
                raise DeviceError(
                    f"{self._gpu.info.name} holds {self._gpu.max_binding:,} bytes in one array: "
                    f"parameters that are looked up have {words.nbytes:,}"
                )
            self._tables = self._gpu.storage(words.nbytes)
        self._gpu.write(self._tables.buffer, 0, words)
        return moved

    def read(self, block: int) -> list[Range]:
        """The indices and the tables, which the kernel of a block's rows reads."""
        assert self._tables is not None, "no tables have been loaded"
        indices = self._indices[block]
        return [(indices.buffer, 0, indices.nbytes), (self._tables.buffer, 0, self._tables.nbytes)]

    def slopes(self, block: int) -> Range:
        """Where that kernel writes slopes."""
        return self._slopes.buffer, 0, self._width * self._rows[block]

    def steps(self, block: int, results: Storage) -> Iterator[Step]:
        """The dispatches after those of a block's rows."""
        for scatter in self._scatters[block]:
            yield from scatter.steps(self._slopes, results, self._pipelines)

    def entries(self, tables: Sequence[np.ndarray], numbers: np.ndarray) -> list[np.ndarray]:
        """What was added to the entries of each table, from all results."""
        totals = [POOL.empty(t.shape, np.dtype(np.float64)) for t in tables]
        for entries in totals:
            entries.fill(0.0)
        for scatters in self._scatters:
            for scatter in scatters:
                scatter.add_to(totals, numbers)
        return totals


class _Level:
    """Runs on the device."""

    def __init__(self, gpu: Gpu, runs: Runs) -> None:
        self.count, self.rows = runs.count, padded(len(runs.order))
        order = np.zeros(self.rows, np.uint32)
        order[: len(runs.order)] = runs.order
        self._storages = [uploaded(gpu, array) for array in (runs.starts, order)]
        sizes = [4 * len(runs.starts), 4 * self.rows]
        self.arrays: list[Range] = [
            (s.buffer, 0, size) for s, size in zip(self._storages, sizes, strict=True)
        ]


def padded(count: int) -> int:
    """Numbers from one column to the next, if so many are in use."""
    return -(-count // STEP) * STEP


def index_words(reduction: Reduction, indices: np.ndarray) -> np.ndarray:
    """Indices (N, count) as a row's kernel reads them: column by column, padded."""
    words = np.zeros((max(indices_of(reduction), 1), padded(len(indices))), np.uint32)
    words[:, : len(indices)] = indices.T
    return words.ravel()


def table_words(reduction: Reduction, tables: Sequence[np.ndarray]) -> np.ndarray:
    """The tables as a row's kernel reads them, one after another behind their places."""
    if not (reduction.lookups or tables):
        return NOTHING
    widths = [lookup.width for lookup in reduction.lookups]
    shapes = [t.shape for t in tables]
    if len(tables) != len(widths) or any(
        len(s) != 2 or s[1] != w for s, w in zip(shapes, widths, strict=True)
    ):
        raise InputError(f"tables of shapes {shapes}: expected (entries, width) of widths {widths}")
    ends = np.cumsum([len(tables), *(t.size for t in tables)])
    words = [np.ascontiguousarray(t, np.float32).ravel().view(np.uint32) for t in tables]
    return np.concatenate([ends[:-1].astype(np.uint32), *words])


def uploaded(gpu: Gpu, array: np.ndarray) -> Storage:
    """A copy of the array on the device."""
    storage = gpu.storage(array.nbytes)
    gpu.upload(storage, array)
    return storage
