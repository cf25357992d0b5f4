"""Normal equations of tables whose rows look up parameters: computed by rows, added by entries.

One kernel computes the products of each row's derivatives; what is added to which entry, or to
which pair of entries that meet in a row, is found once from the indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.rows.products import RowProducts
from symgrad.rows.sparse_normal import Assembly, Coupling, Normal, Pattern
from symgrad.values.results import scipy_sparse

NUMBERS_AT_A_TIME: Final = 2**20
"""Numbers that rows give at a time, so that they are summed while they are in the cache."""

Run = Callable[[np.ndarray], Sequence[np.ndarray]]
"""A compiled kernel: points (B, inputs) to arrays (B, columns)."""


@dataclass(frozen=True)
class Segments:
    """The rows of a chunk by the ``entries`` they belong to: the rows of ``matrix``.

    It is None where each row in turn is the only one of the next entry.
    """

    entries: np.ndarray | slice
    matrix: Any

    @classmethod
    def of(cls, ids: np.ndarray) -> Segments:
        """The segments of rows that belong to these entries (B,)."""
        order = np.argsort(ids, kind="stable")
        ends = np.flatnonzero(np.diff(ids[order])) + 1
        starts = np.concatenate([[0], ends, [len(ids)]])
        shape = len(starts) - 1, len(ids)
        entries: Any = ids[order[starts[:-1]]]
        if entries[-1] - entries[0] == len(entries) - 1:
            entries = slice(int(entries[0]), int(entries[-1]) + 1)
        if shape[0] == shape[1] and (order[1:] > order[:-1]).all():
            return cls(entries, None)
        ones = np.ones(len(ids))
        return cls(entries, scipy_sparse().csr_array((ones, order, starts), shape=shape))

    def add(self, values: np.ndarray, sums: np.ndarray) -> None:
        """Add the values (B, k) of rows to the sums (entries, k) of entries."""
        sums[self.entries] += values if self.matrix is None else self.matrix @ values


class RowSystem:
    """The least-squares problem of a table: `Normal` for any parameters (n,).

    ``numbers`` (N, columns) and ``indices``, (N,) by the number of a row's column, are the table.
    """

    def __init__(
        self,
        products: RowProducts,
        run: Run,
        n: int,
        numbers: np.ndarray,
        indices: dict[int, np.ndarray],
    ) -> None:
        self.products, self._run, self._n = products, run, n
        self._order = self._sorted(indices)
        self._numbers = numbers[self._order]
        self._entries = [self._entries_of(slot.column, indices) for slot in products.slots]
        met = [self._pairs(s, t) for s, t in products.pairs]
        self._patterns = [pattern for pattern, _ in met]
        belong = [*self._entries, *(ids for _, ids in met)]
        self._assembly: Assembly | None = None
        self._chunks = [(rows, [Segments.of(ids[rows]) for ids in belong]) for rows in self._cut()]

    @property
    def count(self) -> int:
        """The number of residuals."""
        return self.products.residuals * len(self._numbers)

    # which entries -------------------------------------------------------------------------------

    def _sorted(self, indices: dict[int, np.ndarray]) -> Any:
        """Rows by the entries of the largest family that one column looks up, which follow."""
        column = self.products.families[0].column
        return slice(None) if column is None else np.argsort(indices[column], kind="stable")

    def _entries_of(self, column: int | None, indices: dict[int, np.ndarray]) -> np.ndarray:
        if column is None:
            return np.zeros(len(self._numbers), np.int32)
        return indices[column][self._order].astype(np.int32)

    def _pairs(self, s: int, t: int) -> tuple[Pattern, np.ndarray]:
        """The entries of two slots that meet, and which pair of them each row belongs to."""
        slots = self.products.slots
        wide = len(self.products.families[slots[t].family].places)
        code = self._entries[s].astype(np.int64) * wide + self._entries[t]
        codes, pair = np.unique(code, return_inverse=True)
        families = slots[s].family, slots[t].family
        return Pattern(families, codes // wide, codes % wide), pair.astype(np.int32)

    def _cut(self) -> list[slice]:
        columns = len(self.products.computation.outputs[0].nodes)
        size, count = max(NUMBERS_AT_A_TIME // columns, 64), len(self._numbers)
        return [slice(a, min(a + size, count)) for a in range(0, count, size)]

    # what rows give ------------------------------------------------------------------------------

    def at(self, x: np.ndarray) -> Normal:
        """The normal equations at parameters (n,)."""
        _, total, *parts = self.products.parts
        counts = [len(self.products.families[s.family].places) for s in self.products.slots]
        counts += [len(p.first) for p in self._patterns]
        sums = [np.zeros((c, p.stop - p.start)) for c, p in zip(counts, parts, strict=True)]
        loss, entries = 0.0, self._gathered(x)
        for rows, segments in self._chunks:
            results = self._results(entries, rows)
            loss += float(results[:, total].sum(dtype=np.float64))
            for segment, part, into in zip(segments, parts, sums, strict=True):
                segment.add(results[:, part], into)
        return self._normal(0.5 * loss, sums)

    def jtj(self, x: np.ndarray) -> Any:
        """JᵀJ at parameters (n,), as a SciPy CSR array (n, n)."""
        normal = self.at(x)
        if self._assembly is None:
            self._assembly = Assembly.of(normal)
        return self._assembly.matrix(normal)

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """The residuals (N, m) in the order of the table."""
        first, *_ = self.products.parts
        entries, residuals = self._gathered(x), np.empty((len(self._numbers), first.stop))
        for rows, _ in self._chunks:
            residuals[rows] = self._results(entries, rows)[:, first]
        ordered = np.empty_like(residuals)
        ordered[self._order] = residuals
        return ordered

    def _gathered(self, x: np.ndarray) -> list[np.ndarray]:
        """The parameters of each family in entries."""
        dtype = self._numbers.dtype
        with np.errstate(over="ignore"):
            return [x[f.places].astype(dtype) for f in self.products.families]

    def _results(self, entries: list[np.ndarray], rows: slice) -> np.ndarray:
        """The kernel's results at some rows."""
        numbers = self._numbers[rows]
        inputs = len(self.products.computation.graph.names)
        points, start = np.empty((len(numbers), inputs), numbers.dtype), 0
        for slot, index in zip(self.products.slots, self._entries, strict=True):
            taken = entries[slot.family][index[rows]]
            points[:, start : start + taken.shape[1]] = taken
            start += taken.shape[1]
        points[:, start:] = numbers
        return self._run(points)[0]

    def _normal(self, cost: float, sums: Sequence[np.ndarray]) -> Normal:
        """The normal equations of sums by entries, for each slot and each pair of slots."""
        families, slots = self.products.families, self.products.slots
        gradient = np.zeros(self._n)
        diagonal = [np.zeros((*f.places.shape, f.width)) for f in families]
        for slot, entries in zip(slots, sums, strict=False):
            family = families[slot.family]
            gradient[family.places] += entries[:, : family.width]
            diagonal[slot.family] += _symmetric(entries[:, family.width :], family.width)
        couplings: list[Coupling] = []
        for pattern, entries in zip(self._patterns, sums[len(slots) :], strict=True):
            first, second = (families[f].width for f in pattern.families)
            couplings.append(Coupling(pattern, entries.reshape(-1, first, second)))
        return Normal(cost, gradient, families, tuple(diagonal), tuple(couplings))


def _symmetric(upper: np.ndarray, n: int) -> np.ndarray:
    """Matrices (entries, n, n) of their upper triangles, row by row (entries, n (n + 1) / 2)."""
    places = np.zeros((n, n), np.intp)
    places[np.triu_indices(n)] = np.arange(upper.shape[1])
    places = np.maximum(places, places.T)
    return upper[:, places]
