"""JᵀJ of parameters that rows look up, in blocks: what couples which entries, and its products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.kernel.threads import available, share_out
from symgrad.rows.products import Family
from symgrad.values.results import scipy_sparse


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
