"""Variances of parameters: the diagonal of the inverse of JᵀJ in blocks."""

from __future__ import annotations

from typing import Final

import numpy as np

from symgrad.errors import InputError
from symgrad.rows.schur import MOST_DENSE_PARAMETERS, System, linalg, rows_of
from symgrad.rows.sparse_normal import Normal

LEAST_INDEPENDENT_PART: Final = 1e-12
"""The square of a column's part that is independent of others, below which it is rounding."""

NUMBERS_AT_A_TIME: Final = 2**22
"""Numbers of the eliminated entries' couplings that are solved for at a time."""


def variances(normal: Normal) -> np.ndarray | None:
    """The diagonal (n,) of (JᵀJ)⁻¹, infinite for parameters that no row depends on.

    None if JᵀJ is singular beside these, as along a gauge freedom.

    Raises:
        InputError: if too many parameters are left for a dense matrix.
    """
    idle = normal.squares == 0.0
    try:
        system = System.of(normal, idle.astype(float))
        if len(system.kept) > MOST_DENSE_PARAMETERS:
            raise InputError(
                f"errors=True inverts a matrix of {len(system.kept):,} parameters, those that no "
                f"single index column looks up: it takes up to {MOST_DENSE_PARAMETERS:,}"
            )
        factor = np.linalg.cholesky(system.matrix())
    except np.linalg.LinAlgError:
        return None
    if _is_singular(normal, system, factor):
        return None
    diagonal = np.full(len(idle), np.inf)
    inverse = linalg().solve_triangular(factor, np.eye(len(factor)), lower=True)
    diagonal[system.kept] = np.sum(inverse * inverse, axis=0)
    if system.family is not None:
        diagonal[system.family.places] = _eliminated(system, factor)
    return np.where(idle, np.inf, diagonal)


def _is_singular(normal: Normal, system: System, factor: np.ndarray) -> bool:
    """Whether a pivot is but rounding of the square of its column."""
    squares = np.where(normal.squares > 0.0, normal.squares, 1.0)
    pivots = np.diagonal(factor) ** 2 / squares[system.kept]
    if system.family is not None:
        entries = np.einsum("lww->lw", system.inverse) ** -2 / squares[system.family.places]
        pivots = np.concatenate([pivots, entries.ravel()])
    return bool((pivots < LEAST_INDEPENDENT_PART).any())


def _eliminated(system: System, factor: np.ndarray) -> np.ndarray:
    """The variances (entries, w) of the eliminated family: L⁻ᵀ (1 + T S⁻¹ Tᵀ) L⁻¹, with links T."""
    entries, w, _ = system.inverse.shape
    diagonals, size = np.empty((entries, w)), max(1, NUMBERS_AT_A_TIME // (w * max(1, len(factor))))
    for a in range(0, entries, size):
        inverse = system.inverse[a : a + size]
        count = len(inverse)
        links = np.zeros((count * w, len(factor)))
        for link in system.links:
            part = rows_of(link.matrix, a, min(a + count, link.matrix.shape[0] // w))
            columns = system.place[system.rest.places(link)[1]]
            links[: part.shape[0], columns] += part.toarray()
        solved = linalg().solve_triangular(factor, links.T, lower=True) if len(factor) else links.T
        solved = solved.reshape(-1, count, w)
        middle = np.eye(w) + np.einsum("rcv,rcw->cvw", solved, solved)
        diagonals[a : a + count] = np.einsum("cvj,cvw,cwj->cj", inverse, middle, inverse)
    return diagonals
