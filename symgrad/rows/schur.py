"""Damped normal equations in blocks, solved by the Schur complement of a block-diagonal part.

Where no row couples two entries of a family, its part of JᵀJ is block-diagonal: it is eliminated,
and what is left of the others is solved by Cholesky's method, or, where there are many, by
conjugate gradients that never form it (Triggs et al., 2000, "Bundle adjustment: a modern
synthesis"; Agarwal et al., 2010, "Bundle adjustment in the large").
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from symgrad.errors import SymgradError
from symgrad.kernel.threads import available, share_out
from symgrad.rows.products import Family
from symgrad.rows.sparse_normal import Coupling, Normal, block_matrix, on_all_cores

MOST_DENSE_PARAMETERS: Final = 8000
"""Parameters up to which what is left is solved as a dense matrix, of half a GiB."""

RELATIVE_RESIDUAL: Final = 1e-8
"""The part of the right side at which conjugate gradients end."""

MOST_ITERATIONS: Final = 500
"""The most of them."""


NUMBERS_AT_A_TIME: Final = 2**20
"""Numbers of the complement that are computed at a time, so that they stay in the cache."""


PARTS: Final = 2
"""Parts of the complement's entries; each has no more columns than its last entry needs."""


def linalg() -> Any:
    """SciPy's LAPACK."""
    try:
        return importlib.import_module("scipy.linalg")
    except ImportError as error:
        raise SymgradError("fits need SciPy: pip install 'symgrad[fit]'") from error


def solve(normal: Normal, added: np.ndarray, dense: int = MOST_DENSE_PARAMETERS) -> np.ndarray:
    """The step h (n,) of ``(JᵀJ + diag(added)) h = -Jᵀr``, with a positive ``added`` (n,).

    What is left of up to ``dense`` parameters is solved by Cholesky's method.

    Raises:
        LinAlgError: NumPy's, if rounding leaves the matrix not positive definite.
    """
    system = System.of(normal, added)
    right = system.reduced(-normal.gradient)
    if len(system.kept) > dense:
        x = conjugate_gradients(system, right)
    else:
        x = np.zeros(len(right))
        x[system.kept] = cholesky(system.matrix(), right[system.kept])
    return system.completed(x, -normal.gradient)


def cholesky(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution for a symmetric matrix, given by its lower half, which is overwritten."""
    if not len(matrix):
        return right
    lapack = linalg()
    factor = lapack.cho_factor(matrix.T, overwrite_a=True, check_finite=False)  # of its columns
    return lapack.cho_solve(factor, right, check_finite=False)


def conjugate_gradients(system: System, right: np.ndarray) -> np.ndarray:
    """The solution of what is left, nearly, from its diagonal blocks as a preconditioner."""
    inverses = system.preconditioner()

    def conditioned(r: np.ndarray) -> np.ndarray:
        z = np.zeros(len(r))
        for family, blocks in inverses:
            z[family.places] += times(blocks, r[family.places])
        return z

    x, r = np.zeros(len(right)), right.copy()
    p = z = conditioned(r)
    start = size = float(r @ z)
    for _ in range(MOST_ITERATIONS):
        if size <= RELATIVE_RESIDUAL**2 * start:
            break
        image = system @ p
        step = size / float(p @ image)
        x, r = x + step * p, r - step * image
        z = conditioned(r)
        size, before = float(r @ z), size
        p = z + (size / before) * p
    return x


def times(blocks: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Matrices (entries, w, w) times vectors (entries, w)."""
    return (blocks @ entries[:, :, None])[:, :, 0]


@dataclass(frozen=True, eq=False)
class System:
    """The rest of a damped system when the first family is eliminated, where it can be.

    ``rest`` is the system without that family. ``inverse`` (entries, w, w) are the inverses L⁻¹ of
    the Cholesky factors of its diagonal blocks, and ``links`` the couplings of its entries with
    others, multiplied by L⁻¹: the complement is ``rest - Σ linksᵀ links``.
    """

    rest: Normal
    added: np.ndarray
    family: Family | None
    inverse: np.ndarray
    links: tuple[Coupling, ...]

    @classmethod
    def of(cls, normal: Normal, added: np.ndarray) -> System:
        """The system of normal equations, with positive numbers (n,) added to the diagonal."""
        family, w = normal.families[0], normal.families[0].width
        if family.column is None:
            return cls(normal, added, None, np.empty((0, 0, 0)), ())
        blocks = normal.diagonal[0].copy()
        blocks[:, range(w), range(w)] += added[family.places]
        inverse = np.linalg.inv(np.linalg.cholesky(blocks))
        mine = [c for c in normal.couplings if c.pattern.families[0] == 0]
        others = tuple(c for c in normal.couplings if c.pattern.families[0] != 0)
        links = tuple(_linked(c, inverse) for c in mine)
        diagonal = (np.zeros_like(blocks), *normal.diagonal[1:])
        rest = replace(normal, diagonal=diagonal, couplings=others)
        return cls(rest, added, family, inverse, links)

    @property
    def others(self) -> list[int]:
        """The numbers of the families that are left."""
        return list(range(0 if self.family is None else 1, len(self.rest.families)))

    @cached_property
    def kept(self) -> np.ndarray:
        """The parameters that are left, family by family, each of them once."""
        if not self.others:
            return np.empty(0, np.intp)
        every = np.concatenate([self.rest.families[k].places.ravel() for k in self.others])
        _, first = np.unique(every, return_index=True)
        return every[np.sort(first)]

    @cached_property
    def place(self) -> np.ndarray:
        """Where each parameter (n,) is among those that are left."""
        places = np.zeros(len(self.added), np.intp)
        places[self.kept] = np.arange(len(self.kept))
        return places

    # vectors -------------------------------------------------------------------------------------

    def reduced(self, right: np.ndarray) -> np.ndarray:
        """The right side (n,) of what is left; 0 for the parameters of the eliminated family."""
        if self.family is None:
            return right
        reduced = right.copy()
        reduced[self.family.places] = 0.0
        self._subtract(times(self.inverse, right[self.family.places]), reduced)
        return reduced

    def completed(self, x: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The whole solution, from that of what is left."""
        if self.family is None:
            return x
        solution, places = x.copy(), self.family.places
        part = times(self.inverse, right[places]) - self._linked(x)
        solution[places] = times(self.inverse.transpose(0, 2, 1), part)
        return solution

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """The complement times x (n,), which is 0 where the eliminated family is."""
        product = self.rest @ x + self.added * x
        if self.family is not None:
            self._subtract(self._linked(x), product)
        return product

    def _linked(self, x: np.ndarray) -> np.ndarray:
        """The links times x, for each eliminated entry."""
        total = np.zeros(self.inverse.shape[:2])
        for link in self.links:
            product = link.matrix @ x[self.rest.places(link)[1]]
            total.reshape(-1)[: len(product)] += product
        return total

    def _subtract(self, values: np.ndarray, vector: np.ndarray) -> None:
        """Subtract what the links make of values of the eliminated entries."""
        for link in self.links:
            first, second = self.rest.places(link)
            vector[second] -= link.transposed @ values.reshape(-1)[: len(first)]

    # matrices ------------------------------------------------------------------------------------

    def matrix(self) -> np.ndarray:
        """The lower half of the complement as a matrix of the parameters that are left."""
        size, place = len(self.kept), self.place
        matrix = np.zeros((size, size))
        for rows, columns, values in self.rest.triplets(self.others):
            matrix[place[rows], place[columns]] += values
        matrix[range(size), range(size)] += self.added[self.kept]
        for k, link in enumerate(self.links):
            second = place[self.rest.places(link)[1]]
            for other in self.links[k:]:
                columns = place[self.rest.places(other)[1]]
                if other is link and second[-1] - second[0] == len(second) - 1:
                    _subtract_square(matrix, int(second[0]), link)
                    continue
                product = (link.transposed @ other.matrix).toarray()
                matrix[np.ix_(second, columns)] -= product
                if other is not link:
                    matrix[np.ix_(columns, second)] -= product.T
        return matrix

    def preconditioner(self) -> list[tuple[Family, np.ndarray]]:
        """The inverses of the complement's diagonal blocks, family by family.

        Where two slots share a family, that of its blocks before the elimination.
        """
        inverses: list[tuple[Family, np.ndarray]] = []
        for k in self.others:
            family, w = self.rest.families[k], self.rest.families[k].width
            blocks = self.rest.diagonal[k].copy()
            blocks[:, range(w), range(w)] += self.added[family.places]
            mine = [link for link in self.links if link.pattern.families[1] == k]
            if len(mine) == 1:
                _subtract_squares(blocks, mine[0])
            inverses.append((family, np.linalg.inv(blocks)))
        return inverses


def _linked(coupling: Coupling, inverse: np.ndarray) -> Coupling:
    """A coupling whose first entries are multiplied by matrices (entries, w, w)."""
    blocks = np.empty_like(coupling.blocks)

    def multiply(a: int, b: int) -> None:
        np.matmul(inverse[coupling.pattern.first[a:b]], coupling.blocks[a:b], out=blocks[a:b])

    on_all_cores(multiply, len(blocks))
    return replace(coupling, blocks=blocks)


def _subtract_squares(blocks: np.ndarray, link: Coupling) -> None:
    """Subtract the squares of a link's blocks from the blocks of its second entries."""
    order = link.pattern.transposed
    squares = np.einsum("nev,new->nvw", link.blocks, link.blocks)[order]
    entries, starts = np.unique(link.pattern.second[order], return_index=True)
    blocks[entries] -= np.add.reduceat(squares, starts, axis=0)


def _subtract_square(matrix: np.ndarray, start: int, link: Coupling) -> None:
    """Subtract ``linkᵀ link`` from the lower half of a matrix at ``start``, some on each core."""
    left, width = link.transposed, link.blocks.shape[2]
    entries = left.shape[0] // width
    end = start + entries * width
    blocks = matrix[start:end, start:end].reshape(entries, width, entries, width).swapaxes(1, 2)
    size = max(1, NUMBERS_AT_A_TIME // (width * width * entries))
    for first, last in pairwise(sorted({entries * k // PARTS for k in range(PARTS + 1)})):
        right = _before(link, last)

        def strip(a: int, b: int, right: Any = right) -> None:
            part = rows_of(left, a, b) @ right
            row = np.repeat(np.arange(a, b), np.diff(part.indptr))
            blocks[row, part.indices] -= part.data

        def strips(a: int, b: int, first: int = first, strip: Any = strip) -> None:
            for k in range(first + a, first + b, size):
                strip(k, min(k + size, first + b))

        share_out(strips, last - first, 1, available())


def _before(link: Coupling, last: int) -> Any:
    """A link's matrix without what is coupled with second entries from ``last`` on."""
    pattern, entries = link.pattern, len(link.pattern.starts[0]) - 1
    if last == len(pattern.starts[1]) - 1:
        return link.matrix
    kept = np.flatnonzero(pattern.second < last)
    starts = np.searchsorted(kept, pattern.starts[0])
    blocks = np.take(link.blocks, kept, axis=0)
    return block_matrix(blocks, pattern.second[kept], starts, (entries, last))


def rows_of(matrix: Any, first: int, end: int) -> Any:
    """Some entries of a matrix in blocks."""
    mine = slice(matrix.indptr[first], matrix.indptr[end])
    starts = matrix.indptr[first : end + 1] - matrix.indptr[first]
    counts = end - first, matrix.shape[1] // matrix.blocksize[1]
    return block_matrix(matrix.data[mine], matrix.indices[mine], starts, counts)
