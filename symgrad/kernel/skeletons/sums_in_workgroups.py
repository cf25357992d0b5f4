"""Sums over rows in workgroups as a launch: kernels over blocks of rows, folds, runs of slopes.

A row's kernel reads the numbers of the entries of tables that the row names by index, and writes
what it adds to them, its slopes, to an array of its own: column by column, so that neighbours write
side by side. Rows in the order of their entries are cut into runs, and a second kernel adds up each
run, in a fixed order and without atomics. Long entries have several runs, whose sums are added by
the same kernel again, or by the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target, pair_add
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget, in_halves
from symgrad.kernel.launch import Array, Dispatch, Launch, Part, Read
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


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a kernel that sums some of them: which they are, and where their numbers are.

    It writes ``head`` numbers, the factors of the results and then the values of those that no row
    changes, and after them, for each of the others, the partial sums of all groups.
    """

    numbers: range
    """Which of all results they are."""
    summed: tuple[int, ...]
    """The results that depend on the rows."""
    cells: tuple[int, ...] = ()
    """For each sum its number among those that are written, if these are others as well."""

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """The results that no row changes."""
        return tuple(k for k in self.numbers if k not in self.summed)

    @cached_property
    def head(self) -> int:
        """Numbers before the partial sums."""
        return len(self.numbers) + len(self.fixed)

    @cached_property
    def columns(self) -> int:
        """Sums that are written, in whole sixteens if there are others among them."""
        return max(self.cells) // 16 * 16 + 16 if self.cells else len(self.summed)

    @cached_property
    def wanted(self) -> Any:
        """Where the sums are among those that are written."""
        return np.array(self.cells) if self.cells else slice(None)

    def size(self, groups: int) -> int:
        """Numbers that this many groups write."""
        return self.head + groups * self.columns


@dataclass(frozen=True)
class PartialSums:
    """The numbers that one kernel has written of so many rows.

    Where ``folded`` names an array, that has the partial sums, and what comes back has for each sum
    a pair of numbers that make it up, and then the head.
    """

    results: Results
    rows: int
    groups: int
    folded: str | None

    @property
    def size(self) -> int:
        """Numbers that come back."""
        r = self.results
        return 2 * r.columns + r.head if self.folded else r.size(self.groups)

    def add_to(self, sums: np.ndarray, numbers: np.ndarray, read: Read) -> None:
        """Add the sums to those of all results, in a fixed order and times their factors.

        ``read`` gives the numbers of an array.
        """
        r = self.results
        if self.folded:
            pairs, head = 2 * r.columns, numbers[2 * r.columns :]
            totals = numbers[:pairs].reshape(-1, 2)[r.wanted].sum(axis=1, dtype=np.float64)
            if not np.isfinite(totals).all():  # what float32 cannot hold, float64 may
                totals = self._added(read(self.folded))
        else:
            head, totals = numbers, self._added(numbers)
        count = len(r.numbers)
        if len(r.summed) < count:
            totals = self._with_fixed(totals, head[count : r.head])
        sums[r.numbers.start : r.numbers.stop] += totals * head[:count]

    def _added(self, numbers: np.ndarray) -> np.ndarray:
        """The partial sums of each result, added up."""
        r = self.results
        partial = numbers[r.head :].reshape(-1, self.groups)
        return partial[r.wanted].sum(axis=1, dtype=np.float64)

    def _with_fixed(self, summed: np.ndarray, values: np.ndarray) -> np.ndarray:
        """All results: the sums, and those that have one value at every row."""
        start = self.results.numbers.start
        totals = np.empty(len(self.results.numbers))
        totals[np.array(self.results.summed, int) - start] = summed
        totals[np.array(self.results.fixed, int) - start] = self.rows * values.astype(np.float64)
        return totals


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

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for its target."""
        assert target == self.target, "the kernel is of groups of another width"
        if self.products:
            return group_products(self.products)
        return row_sums_workgroup(self.tile, self.width, self.most)

    @property
    def target(self) -> WorkgroupTarget:
        """The groups that the kernel is written for."""
        return WorkgroupTarget(self.width)

    @cached_property
    def results(self) -> Results:
        """The results that it sums, and where it writes them."""
        cells = self.products.cells if self.products else ()
        return Results(self.tile.results, tuple(self.tile.summed), cells)


class WorkgroupSumsLaunch:
    """A launch that sums over rows in workgroups: its total are all sums, see `RowSums.bind`.

    Its inputs are ``parameters``, with tables behind them, and anything up to whole quads, and what
    stays from call to call: ``rows``, those of each block in an array, and ``indices``.
    """

    def __init__(
        self,
        reduction: Reduction,
        programs: Sequence[TileSums],
        counts: Sequence[int],
        groups: Callable[[TileSums, int], int],
        indices: np.ndarray | None = None,
        most_partials: int = SUMS_FOLDED_ON_HOST,
    ) -> None:
        """A launch over blocks of so many rows.

        ``groups(program, count)`` is how many of them add up so many rows; the ``indices`` (N,
        count) name the entries of tables. More than ``most_partials`` of a dispatch are added on
        the device.
        """
        self._reduction, self._programs, self._groups = reduction, programs, groups
        self._most_partials, self._quads = most_partials, quads(reduction)
        self._indices: dict[str, np.ndarray] = {}
        self._scratch: list[Array] = []
        self._partials: list[PartialSums] = []
        self._outputs: list[Array] = []
        self._entries: list[EntrySums] = []
        self._entry_outputs: list[Array] = []
        self._dispatches: list[Dispatch] = []
        if reduction.lookups:
            size = QUAD * max(len(self._quads), 1) * padded(max(counts, default=0))
            self._scratch.append(Array("slopes", (size,)))
        self.rows = {f"rows{block}": count for block, count in enumerate(counts)}
        """The inputs that are the rows of the blocks, and how many rows each has."""
        start = 0
        for block, count in enumerate(counts):
            if indices is None:
                self._sum(block, count)
            else:
                some = indices[start : start + count]
                self._indices[f"indices{block}"] = index_words(reduction, some)
                self._sum(block, count)
                self._add_to_entries(block, some)
            start += count
        self.launch = self._launch()
        """The arrays and the dispatches of a call."""

    def resident(self, rows: Any, indices: np.ndarray | None) -> dict[str, Any]:
        """The rows of each block, and the words of the indices, for which the launch is made."""
        ends = [0, *itertools.accumulate(self.rows.values())]
        blocks = zip(self.rows, itertools.pairwise(ends), strict=True)
        return {name: rows[start:end] for name, (start, end) in blocks} | dict(self._indices)

    def _launch(self) -> Launch:
        reduction = self._reduction
        inputs = [
            Array("parameters", (whole_quads(reduction.packed_size),)),
            *(Array(name, (whole_quads(n * reduction.columns),)) for name, n in self.rows.items()),
            *(Array(name, (words.size,), "u") for name, words in self._indices.items()),
        ]
        outputs = *self._outputs, *self._entry_outputs
        scratch, dispatches = tuple(self._scratch), tuple(self._dispatches)
        total = partial(_total, reduction, self._partials, self._entries)
        return Launch(reduction.name, tuple(inputs), outputs, scratch, dispatches, total=total)

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
            arrays += [("indices", f"indices{block}"), ("slopes", "slopes")]
        bound, words = (*arrays, ("partials", folded or name)), table_starts(self._reduction)
        sums = Dispatch(program, program.target, bound, count, groups, words)
        self._dispatches.append(sums)
        if folded:
            self._dispatches.append(_fold(r, groups, folded, name))

    def _add_to_entries(self, block: int, indices: np.ndarray) -> None:
        """The sums of the slopes of a block: for each index that has any, level by level."""
        named = [self._reduction.lookups[q[0].lookup].index for q in self._quads]
        for k in range(indices.shape[1]):
            mine = [q for q, index in zip(self._quads, named, strict=True) if index == k]
            if mine and len(indices):
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


def _total(
    reduction: Reduction,
    partials: Sequence[PartialSums],
    entries: Sequence[EntrySums],
    outputs: Sequence[np.ndarray],
    read: Read,
) -> np.ndarray:
    """The sums in float64: of all results, and of all entries of tables."""
    sums = np.zeros(reduction.results + sum(lookup.size for lookup in reduction.lookups))
    tables = reduction.entries(sums)
    with np.errstate(invalid="ignore", over="ignore"):
        for part, numbers in zip(partials, outputs, strict=False):
            part.add_to(sums, numbers, read)
        for part, numbers in zip(entries, outputs[len(partials) :], strict=True):
            part.add_to(tables, numbers)
    return sums


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


def table_starts(reduction: Reduction) -> tuple[tuple[str, int], ...]:
    """The arguments that say where each table begins, behind the parameters."""
    sizes = [lookup.size for lookup in reduction.lookups]
    starts = itertools.accumulate(sizes[:-1], initial=reduction.parameters) if sizes else ()
    return tuple((f"table{n}", start) for n, start in enumerate(starts))
