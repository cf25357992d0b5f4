"""A tile of the results of a sum over rows: what one module computes, and how it takes the rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.kernel.shapes import Output, Reduction
from symgrad.kernel.stage import Stages, stages

# --- gradients of tables --------------------------------------------------------------------------
# The slopes of rows that look up entries of tables: what each row adds to these, in quads. Rows in
# the order of the entries that they name are cut into runs, which are added up one by one.

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
    by_index: list[list[TableGradient]] = [[] for _ in range(reduction.indices)]
    for k, (output, lookup) in enumerate(zip(outputs, reduction.lookups, strict=True)):
        for column, node in enumerate(output.nodes):
            if reduction.graph.value(node) != 0.0:
                by_index[lookup.index].append(TableGradient(k, column, node))
    return [tuple(mine[k : k + 4]) for mine in by_index for k in range(0, len(mine), 4)]


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


MOST_TERMS: Final = 16
"""Products that one result is the sum of, at most."""

NO_FACTOR: Final = -1
"""In the place of a second factor where there is none."""

Terms = tuple[tuple[int, int], ...]
"""The factors of each of the products that a result is the sum of."""


@dataclass(frozen=True)
class Products:
    """The results that are sums of products: ``terms``, of nodes, by the number of the result.

    ``kept`` are the nodes that occur in them.
    """

    terms: Mapping[int, Terms]
    kept: tuple[int, ...]


def products_of(reduction: Reduction, each: Iterable[int], most: int = MOST_TERMS) -> Products:
    """The results for which keeping factors pays: there are fewer of them than of results.

    ``each`` are the nodes that differ from row to row; a result has ``most`` products, at most.
    """
    roots, varying = [i for o in reduction.summed for i in o.nodes], set(each)
    terms = {k: t for k, i in enumerate(roots) if (t := _terms(reduction.graph, i, varying, most))}
    uses = Counter(_factors(terms))
    shared = {k: t for k, t in terms.items() if all(uses[a] + uses[b] > 2 for a, b in t)}
    taken = _needed(roots, shared)
    factors = dict.fromkeys(_factors(taken))
    if len(factors) >= len(shared):
        return Products({}, ())
    alone = {k: ((i, NO_FACTOR),) for k, i in enumerate(roots) if i in factors}
    return Products(taken | alone, tuple(factors))


def _needed(roots: Sequence[int], shared: Mapping[int, Terms]) -> dict[int, Terms]:
    """The results to be taken apart: not those that are kept anyhow, as factors of others.

    A node is a factor of later ones only, so these are looked at first.
    """
    factors: set[int] = set()
    taken: dict[int, Terms] = {}
    for k in sorted(shared, key=lambda k: -roots[k]):
        if roots[k] not in factors:
            taken[k] = shared[k]
            factors.update(a for pair in shared[k] for a in pair)
    return {k: taken[k] for k in shared if k in taken}


def _factors(products: Mapping[int, Terms]) -> Iterator[int]:
    """The factors of all products, as often as they occur."""
    return (a for terms in products.values() for pair in terms for a in pair)


def _terms(graph: Graph, i: int, varying: Container[int], most: int) -> Terms:
    """The products that a node is the sum of; none if it is something else, or the same always."""
    products: list[tuple[int, int]] = []
    stack = [i]
    while stack and len(products) + len(stack) <= most:
        at = stack.pop()
        op, *args = graph.nodes[at]
        if at not in varying:
            return ()
        if op is ops.mul:
            products.append((args[0], args[1]))
        elif op is ops.add:
            stack += reversed(args)
        else:
            return ()
    return () if stack else tuple(products)


def product_tiles(terms: Mapping[int, Terms], registers: int) -> Iterator[list[int]]:
    """The results in groups that fit the registers, and whose first products share factors.

    Three registers of four hold results. A tile is about as wide as high, so that it takes few
    factors for many products.
    """
    most, left = registers * 3 // 4, _pairs(terms)
    width = round(most**0.5) + 1
    for first in sorted(left, key=lambda a: (-len(left[a]), a)):
        while left[first]:
            columns = list(left[first])[:width]
            rows = Counter(a for c in columns for a in left[c])
            rows[first] = len(terms) + 1
            tile: list[int] = []
            for row, _ in rows.most_common():
                for c in columns:
                    if len(tile) < most and c in left[row]:
                        tile += left[row].pop(c)
                        left[c].pop(row, None)
            yield tile


def _pairs(terms: Mapping[int, Terms]) -> dict[int, dict[int, list[int]]]:
    """For each factor those that it is multiplied with in first products, and the results."""
    pairs: dict[tuple[int, int], list[int]] = {}
    for k, (first, *_) in terms.items():
        pairs.setdefault(first, []).append(k)
    partners: dict[int, dict[int, list[int]]] = {}
    for (a, b), results in pairs.items():
        partners.setdefault(a, {})[b] = results
        partners.setdefault(b, {})[a] = results
    return partners


# --- tiles ----------------------------------------------------------------------------------------

ROWS_PER_INVOCATION: Final = 32, 128
"""Rows that an invocation adds up, at most: one by one, and in blocks."""

ROWS_PER_BLOCK: Final = 8
"""Rows of a block: where there are few results, an invocation's sums are sums of blocks."""

TWO_LEVEL_RESULTS: Final = 32
"""Results up to which sums have two levels, which takes two registers for each."""

RESULTS_PER_MODULE: Final = 64, 512
"""Results of a module, at most: so many in any case, and so many where there is much to do."""

REPEATED_ROW_OPERATIONS: Final = 16
"""Operations at a row that are worth another sum in memory, for they are repeated in each tile."""

LOAD_OPERATIONS: Final = 400
"""Operations up to which the code stands there once for each row of a load."""

BLOCK_OPERATIONS: Final = 64
"""Operations up to which a whole block stands there without a loop, so that all of its loads can
be on their way together."""


def tiles(reduction: Reduction) -> list[Tile]:
    """The results, and then the quads of slopes, in tiles of about one size."""
    least, most = RESULTS_PER_MODULE
    return cut(
        reduction, min(max(len(stages(reduction).each) // REPEATED_ROW_OPERATIONS, least), most)
    )


def cut(reduction: Reduction, size: int, one_row: bool = False) -> list[Tile]:
    """The results, and then the quads of slopes, in tiles of at most this size."""
    count = sum(len(o.nodes) for o in reduction.summed) + len(quads(reduction))
    number = -(-count // size)
    ends = [count * k // number for k in range(number + 1)]
    return [Tile(reduction, range(a, b), one_row) for a, b in itertools.pairwise(ends)]


class Tile:
    """The results of a reduction that one module sums, and the slopes that it writes.

    ``reduction`` has these results alone, which ``split`` divides into what needs no row and what
    is done at every one; ``whole`` is the reduction that has all results.
    """

    def __init__(self, whole: Reduction, cut: range, one_row: bool = False) -> None:
        """``cut`` numbers the results, and from their count on the quads of slopes.

        ``one_row`` says that an invocation reads one row at a time, however narrow rows are.
        """
        self.whole, self.cut, self._one_row = whole, cut, one_row
        roots = [i for o in whole.summed for i in o.nodes]
        self.results, self.slopes = _divided(cut, len(roots))
        written = quads(whole)
        self.written: dict[int, Quad] = {k: written[k] for k in self.slopes}
        self.roots = {k: roots[k] for k in self.results}
        stored = [s.node for quad in self.written.values() for s in quad]
        outputs = (Output("tile", (*self.roots.values(), *stored)),)
        factors = whole.factors[self.results.start : self.results.stop]
        self.reduction = replace(whole, outputs=outputs, factors=factors, lookups=())

    @cached_property
    def split(self) -> Stages:
        """The stage that needs no row, and the one that is done at every row."""
        return stages(self.reduction)

    @cached_property
    def summed(self) -> list[int]:
        """The numbers of the results that depend on the rows."""
        varying = {*self.split.each, *self.whole.row_inputs}
        return [k for k in self.results if self.roots[k] in varying]

    @cached_property
    def load(self) -> int:
        """Numbers that are read at once."""
        k = self.whole.columns
        if self.rows > 1:
            return 4
        return 4 if k and k % 4 == 0 else 2 if k and k % 2 == 0 else 1

    @cached_property
    def rows(self) -> int:
        """Rows that are read at once: several, if they are narrow and there is little to do."""
        narrow = self.whole.columns in (1, 2) and len(self.split.each) <= LOAD_OPERATIONS
        alone = self.whole.lookups or self.whole.is_structured
        return 4 // self.whole.columns if narrow and not (alone or self._one_row) else 1

    @cached_property
    def labels(self) -> list[str]:
        """The names of all results, and then those of the quads of slopes: of the first of each."""
        whole, count = self.whole, len(self.whole.summed)
        looked = [slopes[0] for slopes in quads(whole)]
        return [
            *(_label(output, c) for output in whole.summed for c in range(len(output.nodes))),
            *(_label(whole.outputs[count + slope.lookup], slope.column) for slope in looked),
        ]

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to do at a row."""
        return bool(self.summed or self.slopes)

    @property
    def two_levels(self) -> bool:
        """Whether an invocation sums blocks of rows."""
        return len(self.summed) <= TWO_LEVEL_RESULTS

    @property
    def flat(self) -> bool:
        """Whether a whole block stands there without a loop."""
        little = len(self.split.each) <= BLOCK_OPERATIONS and not self.whole.is_structured
        return self.two_levels and not self.slopes and little

    @property
    def most(self) -> int:
        """Rows that an invocation may add up."""
        return ROWS_PER_INVOCATION[self.two_levels]


def _label(output: Output, column: int) -> str:
    return output.name if len(output.nodes) == 1 else f"{output.name}[{column}]"


def _divided(cut: range, count: int) -> tuple[range, range]:
    """The results among the numbers of a module, and the quads of slopes, from ``count`` on."""
    results = range(min(cut.start, count), min(cut.stop, count))
    return results, range(max(cut.start - count, 0), max(cut.stop - count, 0))
