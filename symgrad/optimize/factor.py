"""Small linear systems as expressions: Cholesky's method, unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr import functions
from symgrad.expr.array import array
from symgrad.expr.node import Handle
from symgrad.optimize.method import largest


def solve_positive(matrix: Any, right: Any, floor: float) -> Any:
    """The solution (n,) of a symmetric system, its matrix (n, n) scaled to a diagonal near 1.

    L D Lᵀ without square roots; a pivot below ``floor`` is rounding error, and becomes ``floor``.
    """
    n = len(right)
    lower, pivots = np.full((n, n), None, object), list[Any]()
    for j in range(n):
        for i in range(j, n):
            c = _entry(matrix, lower, pivots, i, j)
            if i == j:
                pivots.append(functions.maximum(c, floor))
            else:
                lower[i, j] = _quotient(c, pivots[j])
    return _substitute(lower, pivots, right)


def solve_modified(matrix: Any, right: Any, eps: float) -> Any:
    """The solution (n,) for a symmetric matrix that is made positive definite where it is not.

    Pivots are raised as Gill, Murray and Wright do (1981, "Practical optimization", 4.4.2.2); a
    matrix that is safely positive definite stays as it is.
    """
    n = len(right)
    wide = largest([matrix[i][i] for i in range(n)])
    aside = [matrix[i][j] for i in range(n) for j in range(i)]
    spread = largest(aside) * (1.0 / max(np.sqrt(n * n - 1.0), 1.0)) if aside else 0.0
    bound = functions.maximum(functions.maximum(wide, spread), eps)
    floor = eps * functions.maximum(bound, 1.0)
    lower, pivots = np.full((n, n), None, object), list[Any]()
    for j in range(n):
        column = [_entry(matrix, lower, pivots, i, j) for i in range(j, n)]
        pivot = functions.maximum(abs(column[0]), floor)
        if len(column) > 1:
            peak = largest(column[1:])
            pivot = functions.maximum(pivot, peak * peak / bound)
        pivots.append(pivot)
        lower[j + 1 :, j] = [_quotient(c, pivot) for c in column[1:]]
    return _substitute(lower, pivots, right)


def _entry(matrix: Any, lower: Any, pivots: list[Any], i: int, j: int) -> Any:
    """What is left of an entry after the columns before it."""
    c = matrix[i][j]
    for k in range(j):
        if not _is_zero(lower[i, k]) and not _is_zero(lower[j, k]):
            c = c - lower[i, k] * (lower[j, k] * pivots[k])
    return c


def _is_zero(value: Any) -> bool:
    """Whether an entry is structurally 0: such entries cost nothing."""
    return not isinstance(value, Handle) and value == 0.0


def _quotient(c: Any, pivot: Any) -> Any:
    return c if _is_zero(c) else c / pivot


def _substitute(lower: Any, pivots: list[Any], right: Any) -> Any:
    """The solution, from the factors."""
    n = len(pivots)
    y: list[Any] = []
    for i in range(n):
        parts = [lower[i, k] * y[k] for k in range(i) if not _is_zero(lower[i, k])]
        y.append(right[i] - np.sum(array(parts)) if parts else right[i])
    x = [v / d for v, d in zip(y, pivots, strict=True)]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            if not _is_zero(lower[k, i]):
                x[i] = x[i] - lower[k, i] * x[k]
    return array(x)
