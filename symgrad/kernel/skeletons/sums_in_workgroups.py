"""Sums over rows in workgroups as a launch: kernels over blocks of rows, folds, runs of slopes.

A row's kernel reads the numbers of the entries of tables that the row names by index, and writes
what it adds to them, its slopes, to an array of its own: column by column, so that neighbours write
side by side. Rows in the order of their entries are cut into runs, and a second kernel adds up each
run, in a fixed order and without atomics. Long entries have several runs, whose sums are added by
the same kernel again, or by the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.kernel.host.memory import POOL
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target, pair_add
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget, in_halves
from symgrad.kernel.launch import Array, Dispatch, Launch, Part, Size
from symgrad.kernel.row_sums import PartialSums, Read, Results
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.lookup import QUAD, RUNS_PER_GROUP, STEP, Place, RunSums, tiles_of
from symgrad.kernel.skeletons.row_sums_workgroup import Products, group_products, row_sums_workgroup
from symgrad.kernel.skeletons.row_tile import EntrySums, Quad, Segments, Tile, quads, segments


def fold_program(target: Target) -> KernelIR:
    """The kernel that adds up ``count`` partial sums for each group, whose width is a power of 2.

    ``partials`` begins with ``head`` other numbers, an argument; behind them are the partial sums
    of all results, one result after the other. ``sums`` takes the sum of each result and what that
    lacks, and then the other numbers. Each invocation adds up some partial sums by Knuth's TwoSum,
    the errors apart (Sum2 of Ogita, Rump and Oishi, 2005, "Accurate sum and dot product"), and a
    reduction tree adds up the invocations'.
    """
    k, width = KernelIR(target, "fold"), target.width
    partials, sums = k.buffer("partials", "read"), k.buffer("sums", "write")
    pairs = k.buffer("pairs", "group", size=2 * width, vector=2)
    head, count, local = (Index(k, i) for i in (k.argument("head"), k.count, k.local))
    group, groups = Index(k, k.group), Index(k, k.groups)
    start = head + group * count
    iterations = (count + (width - 1) - local) // width

    def add(t: int, total: list[int]) -> Sequence[int]:
        at = start + (Index(k, t) * width + local)
        k.names |= dict(zip(total, ("sum", "lost"), strict=True))
        return pair_add(k, tuple(total), k.load(partials, at.id))

    total, _ = k.loop(k.word(0), iterations.id, [k.constant(0.0)] * 2, add)
    _store(pairs, local, total)

    def join(half: Index) -> None:
        (high, low), (x, lost) = _load(pairs, local), _load(pairs, local + half)
        _store(pairs, local, pair_add(k, (high, k.add(ops.add, low, lost)), x))

    in_halves(k, join)
    k.names |= {start.id: "start", iterations.id: "iterations"}
    zero = Index(k, k.word(0))
    k.when(local.below(1), lambda: _store(sums, group, _load(pairs, zero)))
    cell, cells = Index(k, k.cell), groups * width

    def copy(t: int, _: list[int]) -> tuple[()]:
        at = Index(k, t) * cells + cell
        k.store(sums, (groups * 2 + at).id, k.load(partials, at.id))
        return ()

    k.loop(k.word(0), ((head + cells - 1 - cell) // cells).id, (), copy)
    return k


def _load(pairs: Buffer, number: Index) -> Sequence[int]:
    return [number.k.load(pairs, i) for i in number.lanes(2)]


def _store(pairs: Buffer, number: Index, pair: Sequence[int]) -> None:
    for i, value in zip(number.lanes(2), pair, strict=True):
        number.k.store(pairs, i, value)


FOLD_INVOCATIONS: Final = 256
"""Invocations that add up the partial sums of one result: a group."""

SUMS_FOLDED_ON_HOST: Final = 1 << 14
"""Partial sums of a dispatch beyond which they are added on the device, not on the host."""

WORDS: Final = Size("parameters that are looked up")
"""The numbers of all tables, and where they begin: as many as each call has."""

NOTHING: Final = np.empty(0, np.uint32)
"""The words of no tables."""


@dataclass(frozen=True, eq=False)
class TileSums:
    """The program of the kernel of a tile's sums over rows, in groups of ``width``.

    An invocation has ``most`` rows at most. If the results are ``products``, they are summed as
    that.
    """

    tile: Tile
    width: int
    most: int
    products: Products | None = None
    in_words: bool = True
    """Whether tables are handed over as words, or as float64: see `GroupEntries`."""

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for its target."""
        assert target == self.target, "the kernel is of groups of another width"
        if self.products:
            return group_products(self.products, self.in_words)
        return row_sums_workgroup(self.tile, self.width, self.most, self.in_words)

    @property
    def target(self) -> WorkgroupTarget:
        """The groups that the kernel is written for."""
        return WorkgroupTarget(self.width)

    @cached_property
    def results(self) -> Results:
        """The results that it sums, and where it writes them."""
        cells = self.products.cells if self.products else ()
        return Results(self.tile.results, tuple(self.tile.summed), cells)


@dataclass(frozen=True)
class WorkgroupSumsLaunch:
    """A launch that sums over rows in workgroups: see `symgrad.kernel.row_sums.SumsLaunch`.

    Its inputs are ``parameters``, with anything behind them up to whole quads, ``tables``, the
    words of `table_words` if rows look anything up, and what stays from call to call: ``rows``,
    those of each block in an array, and ``indices``.
    """

    reduction: Reduction
    launch: Launch
    rows: Mapping[str, int]
    """The inputs that are the rows of the blocks, and how many rows each has."""
    indices: Mapping[str, np.ndarray]
    """The inputs that say which rows name which entries."""
    partials: tuple[PartialSums, ...]
    entries: tuple[EntrySums, ...]
    in_words: bool = True

    def resident(self, rows: Any, indices: np.ndarray | None) -> dict[str, Any]:
        """The rows of each block, and the words of the indices, for which the launch is made."""
        ends = [0, *itertools.accumulate(self.rows.values())]
        blocks = zip(self.rows, itertools.pairwise(ends), strict=True)
        return {name: rows[start:end] for name, (start, end) in blocks} | dict(self.indices)

    def looked_up(self, tables: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The words of all tables together, if rows look anything up."""
        if not (self.reduction.lookups or tables):
            return []
        return [table_words(self.reduction, tables, self.in_words)]

    def total(self, outputs: Sequence[np.ndarray], read: Read) -> np.ndarray:
        """The sums (results,) in float64."""
        sums = np.zeros(sum(len(o.nodes) for o in self.reduction.summed))
        with np.errstate(invalid="ignore", over="ignore"):
            for part, numbers in zip(self.partials, outputs, strict=False):
                part.add_to(sums, numbers, read)
        return sums

    def added(
        self, tables: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """The sums that belong to the entries of each table, in float64."""
        totals = [POOL.empty(t.shape, np.dtype(np.float64)) for t in tables]
        for total in totals:
            total.fill(0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            for part, numbers in zip(self.entries, outputs[len(self.partials) :], strict=True):
                part.add_to(totals, numbers)
        return totals


def workgroup_sums_launch(
    reduction: Reduction,
    programs: Sequence[TileSums],
    counts: Sequence[int],
    groups: Callable[[TileSums, int], int],
    indices: np.ndarray | None = None,
    most_partials: int = SUMS_FOLDED_ON_HOST,
) -> WorkgroupSumsLaunch:
    """The launch that sums over blocks of so many rows.

    ``groups(program, count)`` is how many of them add up so many rows; the ``indices`` (N, count)
    name the entries of tables. More than ``most_partials`` of a dispatch are added on the device.
    """
    longest = max(counts, default=0)
    parts = _WorkgroupSums(reduction, programs, groups, longest, most_partials)
    return parts.over(counts, indices)


class _WorkgroupSums:
    """The parts of a launch, block by block."""

    def __init__(
        self,
        reduction: Reduction,
        programs: Sequence[TileSums],
        groups: Callable[[TileSums, int], int],
        longest: int,
        most_partials: int,
    ) -> None:
        self._reduction, self._programs, self._groups = reduction, programs, groups
        self._most_partials = most_partials
        self._in_words = all(p.in_words for p in programs)
        self._quads = quads(reduction)
        self._indices: dict[str, np.ndarray] = {}
        self._scratch: list[Array] = []
        self._partials: list[PartialSums] = []
        self._outputs: list[Array] = []
        self._entries: list[EntrySums] = []
        self._entry_outputs: list[Array] = []
        self._dispatches: list[Dispatch] = []
        if reduction.lookups:
            size = QUAD * max(len(self._quads), 1) * padded(longest)
            self._scratch.append(Array("slopes", (size,)))

    def over(self, counts: Sequence[int], indices: np.ndarray | None) -> WorkgroupSumsLaunch:
        """The launch over blocks of so many rows."""
        start = 0
        for block, count in enumerate(counts):
            if indices is None:
                self._sum(block, count)
            else:
                some = indices[start : start + count]
                self._indices[f"indices{block}"] = index_words(self._reduction, some)
                self._sum(block, count)
                self._add_to_entries(block, some)
            start += count
        rows = {f"rows{block}": count for block, count in enumerate(counts)}
        launch, parts = self._launch(rows), (tuple(self._partials), tuple(self._entries))
        known = self._reduction, launch, rows, self._indices
        return WorkgroupSumsLaunch(*known, *parts, self._in_words)

    def _launch(self, rows: Mapping[str, int]) -> Launch:
        reduction, kind = self._reduction, "u" if self._in_words else "f"
        inputs = [
            Array("parameters", (whole_quads(reduction.parameters),)),
            *([Array("tables", (WORDS,), kind)] if reduction.lookups else []),
            *(Array(name, (whole_quads(n * reduction.columns),)) for name, n in rows.items()),
            *(Array(name, (words.size,), "u") for name, words in self._indices.items()),
        ]
        outputs = *self._outputs, *self._entry_outputs
        scratch, dispatches = tuple(self._scratch), tuple(self._dispatches)
        return Launch(reduction.name, tuple(inputs), outputs, scratch, dispatches)

    def _sum(self, block: int, count: int) -> None:
        """The sums of all tiles over a block."""
        for program in self._programs:
            self._sum_tile(program, block, count)

    def _sum_tile(self, program: TileSums, block: int, count: int) -> None:
        """A tile's sums over a block, and the fold of the partial sums, if these are many."""
        r, number = program.results, len(self._partials)
        groups = self._groups(program, count) if r.summed or program.tile.slopes else 1
        name, folded = f"sums{number}", None
        if groups > 1 and groups * r.columns > self._most_partials:
            folded = f"partials{number}"
            self._scratch.append(Array(folded, (r.size(groups),)))
        part = PartialSums(r, count, groups, folded)
        self._partials.append(part)
        self._outputs.append(Array(name, (part.size,)))
        arrays = [("rows", f"rows{block}"), ("parameters", "parameters")]
        if self._reduction.lookups:
            arrays += [("indices", f"indices{block}"), ("tables", "tables"), ("slopes", "slopes")]
        bound = *arrays, ("partials", folded or name)
        self._dispatches.append(Dispatch(program, program.target, bound, count, groups))
        if folded:
            self._dispatches.append(_fold(r, groups, folded, name))

    def _add_to_entries(self, block: int, indices: np.ndarray) -> None:
        """The sums of the slopes of a block: for each index that has any, level by level."""
        named = [self._reduction.lookups[q[0].lookup].index for q in self._quads]
        for k in range(indices.shape[1]):
            mine = [q for q, index in zip(self._quads, named, strict=True) if index == k]
            if mine:
                runs = segments(np.ascontiguousarray(indices[:, k]))
                entries = EntrySums(mine, runs)
                output = Array(f"entries{block}_{k}", (padded(entries.runs * entries.width),))
                self._entries.append(entries)
                self._entry_outputs.append(output)
                self._add_runs(mine, named.index(k), runs, output.name)

    def _add_runs(self, slopes: Sequence[Quad], first: int, runs: Segments, output: str) -> None:
        """The dispatches from slopes of all rows, the first of which is a column, to an output."""
        source, last = "slopes", len(runs.levels) - 1
        for n, level in enumerate(runs.levels):
            rows = padded(len(level.order))
            order = np.zeros(rows, np.uint32)
            order[: len(level.order)] = level.order
            starts_name, order_name = f"starts_{output}_{n}", f"order_{output}_{n}"
            self._indices |= {starts_name: level.starts, order_name: order}
            kept = ("starts", starts_name), ("order", order_name)
            target, step = output, QUAD * padded(level.count)
            if n < last:
                target = f"runs_{output}_{n}"
                self._scratch.append(Array(target, (step * len(slopes),)))
            for tile in tiles_of(len(slopes)):
                column = tile.start + (first if n == 0 else 0)
                quads_read = Part(source, QUAD * rows * column, QUAD * rows * len(tile))
                place, sums = _place_of(slopes, tile), target
                if n < last:
                    place, sums = None, Part(target, step * tile.start, step * len(tile))
                arrays = *kept, ("quads", quads_read), ("sums", sums)
                program = RunSums(len(tile), place)
                group = WorkgroupTarget(RUNS_PER_GROUP, grid=True)
                self._dispatches.append(Dispatch(program, group, arrays, level.count))
            source = target


def _fold(r: Results, groups: int, partials: str, sums: str) -> Dispatch:
    """The dispatch that adds up the partial sums of each result, of so many groups."""
    target, arrays = WorkgroupTarget(FOLD_INVOCATIONS), (("partials", partials), ("sums", sums))
    return Dispatch(fold_program, target, arrays, groups, r.columns, (("head", r.head),))


def _place_of(slopes: Sequence[Quad], tile: range) -> Place:
    """Where the sums of some quads go in an entry of an output."""
    ends = np.cumsum([0, *(len(quad) for quad in slopes)]).tolist()
    first, end = ends[tile.start], ends[tile.stop]
    return Place(first, end - first, ends[-1])


def padded(count: int) -> int:
    """Numbers from one column to the next, if so many are in use."""
    return -(-count // STEP) * STEP


def whole_quads(count: int) -> int:
    """So many numbers, up to the end of the last quad."""
    return -(-count // QUAD) * QUAD


def index_words(reduction: Reduction, indices: np.ndarray) -> np.ndarray:
    """Indices (N, count) as a row's kernel reads them: column by column, padded."""
    words = np.zeros((max(reduction.indices, 1), padded(len(indices))), np.uint32)
    words[:, : len(indices)] = indices.T
    return words.ravel()


def table_words(
    reduction: Reduction, tables: Sequence[np.ndarray], in_words: bool = True
) -> np.ndarray:
    """The tables as a row's kernel reads them, one after another behind their places.

    They are words, the bits of float32, or float64, the places too: see `GroupEntries`.

    Raises:
        InputError: for other tables than the rows look up.
    """
    if not (reduction.lookups or tables):
        return NOTHING
    widths = [lookup.width for lookup in reduction.lookups]
    shapes = [t.shape for t in tables]
    if len(tables) != len(widths) or any(
        len(s) != 2 or s[1] != w for s, w in zip(shapes, widths, strict=True)
    ):
        raise InputError(f"tables of shapes {shapes}: expected (entries, width) of widths {widths}")
    ends = np.cumsum([len(tables), *(t.size for t in tables)])
    if not in_words:
        return np.concatenate([ends[:-1].astype(np.float64), *(t.ravel() for t in tables)])
    words = [np.ascontiguousarray(t, np.float32).ravel().view(np.uint32) for t in tables]
    return np.concatenate([ends[:-1].astype(np.uint32), *words])
