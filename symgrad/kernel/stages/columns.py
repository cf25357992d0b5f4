"""Sums over all rows that are computed with the rows, which are then read once.

    s = for i { reduce j; add { x[i, j] * w[j] } }
    y = for j { reduce i; add { x[i, j] * tanh(s[i]) } }

A group has some rows, one after the other, and adds up the terms of each column as it goes; the
sums of what groups have are another kernel's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Reduce, Scalars
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.rescaling import axes_of, moving


@dataclass(frozen=True, eq=False)
class ColumnSum:
    """An array whose elements are made of sums over all rows: ``terms`` are what these are of."""

    array: Tabulate
    reductions: tuple[int, ...]
    terms: tuple[int, ...]
    column: int
    """The counter of the columns."""
    outer: tuple[tuple[int, ...], ...]
    """The counters of the rows, of each reduction."""


def column_sum(
    s: Scalars,
    array: Array,
    outer: Sequence[int],
    length: int,
    members: Collection[Array],
    known: Collection[Array],
) -> ColumnSum | None:
    """An array as sums over rows of what is ``known`` or a member of the same row, if it is such.

    Rows have axes of these lengths, and a ``length`` of their own.
    """
    if not isinstance(array, Tabulate) or axes_of(array) != [length]:
        return None
    (column,), access = moving(s, array), Access(s, (array.body,), tuple(array.counters))
    reductions = tuple(access.reductions)
    inside = {i for r in reductions for i in s.walk([r])}
    others = [op.array for i, op in s.reads([array.body]) if i not in inside]
    if not reductions or not set(known).issuperset(others):
        return None
    for r in reductions:
        if not _is_over_rows(s, r, column, outer, members, known):
            return None
    counters = tuple(access.counters(r) for r in reductions)
    terms = tuple(s.args(r)[0] for r in reductions)
    return ColumnSum(array, reductions, terms, column, counters)


def _is_over_rows(
    s: Scalars,
    reduction: int,
    column: int,
    outer: Sequence[int],
    members: Collection[Array],
    known: Collection[Array],
) -> bool:
    op, (term, *more) = s.op(reduction), s.args(reduction)
    assert isinstance(op, Reduce), "a reduction"
    if op.operator != "add" or more or s.graph.type(term) != "f":
        return False
    free = {*s.free(term)}
    if [*map(s.extent, op.counters)] != [*outer] or free != {column, *op.counters}:
        return False
    if any(isinstance(s.op(i), Reduce) for i in s.walk([term])):
        return False
    reads, wanted = list(s.reads([term])), [*op.counters, column]
    for i, read in reads:
        if read.array in members:
            pairs = zip(s.args(i), read.array.shape, strict=True)
            index = [a for a, n in pairs if n > 1]
            if index != wanted[: len(index)] or len(index) < len(outer):
                return False
        elif read.array not in known:
            return False
    elements = any(axes_of(read.array) == [*outer, s.extent(column)] for _, read in reads)
    return elements and Access(s, (term,), ()).moves_along(column)


def rows_each(count: int, width: int) -> int:
    """How many rows a group of so many invocations has, which leave a GPU busy."""
    return max(sizes.LEAST_ROWS_EACH, -(-count * width // sizes.ROW_INVOCATIONS))


def are_many(outer: Sequence[int], length: int) -> bool:
    """Whether reading all rows once more takes longer than what groups leave to be added up."""
    return bool(outer) and prod(outer) * length > sizes.BESIDE_READS and prod(outer) > length // 8
