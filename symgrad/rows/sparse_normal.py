"""JᵀJ of parameters that rows look up, in blocks: what couples which entries, and its products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.kernel.host.threads import available, share_out
from symgrad.rows.products import Family, RowProducts
from symgrad.values.nested import scipy_sparse

# --- what each row adds ---------------------------------------------------------------------------
# Normal equations of tables whose rows look up parameters: computed by rows, added by entries.
#
# One kernel computes the products of each row's derivatives; what is added to which entry, or to
# which pair of entries that meet in a row, is found once from the indices.

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


# --- the blocks -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pattern:
    """Which entries of two slots meet in some row: ``first`` and ``second`` (count,), pairs once.

    Pairs are sorted by the first entry, then by the second.
    """

    families: tuple[int, int]
    first: np.ndarray
    second: np.ndarray

    @cached_property
    def transposed(self) -> np.ndarray:
        """The order of the pairs by the second entry."""
        return np.argsort(self.second, kind="stable")

    @cached_property
    def starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each first entry begins, up to the last that is met; and each second one."""
        return _starts(self.first), _starts(self.second)


def _starts(entries: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(entries))]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Coupling:
    """A matrix between two families: ``blocks`` (count, width of the first, of the second)."""

    pattern: Pattern
    blocks: np.ndarray

    @cached_property
    def matrix(self) -> Any:
        """Entries of the first family by those of the second, as far as they are met."""
        return block_matrix(self.blocks, self.pattern.second, self.pattern.starts[0], self._counts)

    @cached_property
    def transposed(self) -> Any:
        """Entries of the second family by those of the first."""
        order, (count, m, n) = self.pattern.transposed, self.blocks.shape
        blocks = np.empty((count, n, m))

        def iteration(a: int, b: int) -> None:
            blocks[a:b] = np.take(self.blocks, order[a:b], axis=0).transpose(0, 2, 1)

        on_all_cores(iteration, count)
        first, second = self._counts
        return block_matrix(
            blocks, self.pattern.first[order], self.pattern.starts[1], (second, first)
        )

    @property
    def _counts(self) -> tuple[int, int]:
        first, second = self.pattern.starts
        return len(first) - 1, len(second) - 1


def on_all_cores(work: Callable[[int, int], None], count: int) -> None:
    """Call ``work(first, end)`` for all of ``count`` blocks, some at a time."""
    share_out(work, count, 1, available())


def block_matrix(
    blocks: np.ndarray, columns: np.ndarray, starts: np.ndarray, counts: tuple[int, int]
) -> Any:
    """A SciPy matrix of ``counts`` blocks in either direction."""
    _, m, n = blocks.shape
    shape = counts[0] * m, counts[1] * n
    return scipy_sparse().bsr_array((blocks, columns.astype(np.int32), starts), shape=shape)


@dataclass(frozen=True, eq=False)
class Normal:
    """Half the loss of residuals, its gradient Jᵀr (n,), and JᵀJ in blocks.

    ``diagonal`` has for each family matrices (entries, width, width), and ``couplings`` are between
    slots: also between two entries of one family, where two indices look up the same block.
    """

    cost: float
    gradient: np.ndarray
    families: tuple[Family, ...]
    diagonal: tuple[np.ndarray, ...]
    couplings: tuple[Coupling, ...]

    @cached_property
    def squares(self) -> np.ndarray:
        """The squares of J's columns (n,), where no two slots of a row hold the same parameter."""
        squares = np.zeros(len(self.gradient))
        for family, blocks in zip(self.families, self.diagonal, strict=True):
            squares[family.places] += np.einsum("lww->lw", blocks)
        return squares

    @property
    def is_finite(self) -> bool:
        """Whether loss, gradient and the squares of J's columns are."""
        return bool(
            np.isfinite(self.cost)
            and np.isfinite(self.gradient).all()
            and np.isfinite(self.squares).all()
        )

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """JᵀJ x."""
        product = np.zeros(len(x))
        for family, blocks in zip(self.families, self.diagonal, strict=True):
            product[family.places] += (blocks @ x[family.places][:, :, None])[:, :, 0]
        for coupling in self.couplings:
            first, second = self.places(coupling)
            product[first] += coupling.matrix @ x[second]
            product[second] += coupling.transposed @ x[first]
        return product

    def square(self, h: np.ndarray) -> float:
        """The square of the length of J h."""
        square = 0.0
        for family, blocks in zip(self.families, self.diagonal, strict=True):
            entries = h[family.places]
            square += float(np.einsum("lv,lvw,lw->", entries, blocks, entries, optimize=True))
        for coupling in self.couplings:
            first, second = self.places(coupling)
            square += 2.0 * float(h[first] @ (coupling.matrix @ h[second]))
        return square

    def places(self, coupling: Coupling) -> tuple[np.ndarray, np.ndarray]:
        """The parameters that stand at the rows and at the columns of a coupling's matrix."""
        families = [self.families[f] for f in coupling.pattern.families]
        counts = [len(starts) - 1 for starts in coupling.pattern.starts]
        first, second = (f.places[:k].ravel() for f, k in zip(families, counts, strict=True))
        return first, second

    def fixed(self, free: np.ndarray) -> Normal:
        """The equations with parameters outside ``free`` (n,) fixed: rows and columns of 0."""
        keep = free.astype(float)
        diagonal = [
            blocks * keep[f.places][:, :, None] * keep[f.places][:, None, :]
            for f, blocks in zip(self.families, self.diagonal, strict=True)
        ]
        couplings = [self._fixed_coupling(c, keep) for c in self.couplings]
        return replace(
            self,
            gradient=self.gradient * keep,
            diagonal=tuple(diagonal),
            couplings=tuple(couplings),
        )

    def _fixed_coupling(self, coupling: Coupling, keep: np.ndarray) -> Coupling:
        a, b = (self.families[f] for f in coupling.pattern.families)
        first = keep[a.places[coupling.pattern.first]][:, :, None]
        second = keep[b.places[coupling.pattern.second]][:, None, :]
        return replace(coupling, blocks=coupling.blocks * first * second)

    def triplets(
        self, families: Sequence[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, columns and values of JᵀJ, in arrays of one shape; what comes twice adds up.

        All couplings are among them, and the diagonal blocks of these families.
        """
        for k in families:
            places = self.families[k].places
            rows, columns = _cells(places, places)
            yield rows, columns, self.diagonal[k]
        for coupling in self.couplings:
            a, b = (self.families[f] for f in coupling.pattern.families)
            first, second = a.places[coupling.pattern.first], b.places[coupling.pattern.second]
            rows, columns = _cells(first, second)
            yield rows, columns, coupling.blocks
            yield columns, rows, coupling.blocks


@dataclass(frozen=True, eq=False)
class Assembly:
    """How JᵀJ is put together as a SciPy CSR array (n, n): the same for all parameters.

    Entries in this ``order`` are added up from each of ``starts`` to the next.
    """

    order: np.ndarray
    starts: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    @classmethod
    def of(cls, normal: Normal) -> Assembly:
        """The assembly of normal equations."""
        rows, columns, _ = _every(normal)
        n = len(normal.gradient)
        code = rows.astype(np.int64) * n + columns
        order = np.argsort(code, kind="stable")
        places, starts = np.unique(code[order], return_index=True)
        indptr = np.searchsorted(places, n * np.arange(n + 1, dtype=np.int64))
        return cls(order, starts, places % n, indptr)

    def matrix(self, normal: Normal) -> Any:
        """JᵀJ, whose arrays are its own."""
        _, _, values = _every(normal)
        data = np.add.reduceat(values[self.order], self.starts)
        n = len(self.indptr) - 1
        return scipy_sparse().csr_array((data, self.indices, self.indptr), shape=(n, n), copy=True)


def _every(normal: Normal) -> list[np.ndarray]:
    """Rows, columns and values of all numbers of JᵀJ."""
    parts = [[p.ravel() for p in entry] for entry in normal.triplets(range(len(normal.families)))]
    return [np.concatenate(p) for p in zip(*parts, strict=True)]


def _cells(first: np.ndarray, second: np.ndarray) -> Sequence[np.ndarray]:
    """The rows and columns of blocks (count, m, n) between places (count, m) and (count, n)."""
    return np.broadcast_arrays(first[:, :, None], second[:, None, :])
