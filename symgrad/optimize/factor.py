"""Small linear systems as expressions: Cholesky's method, unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.optimize.method import largest
from symgrad.values.dtypes import smallest_of

LEAST_BOUND: Final = 1e-23
"""Elements below this are taken to be 0: their rounding in float32 has no inverse."""

LEAST_PIVOT: Final = 16.0
"""The least pivot, in units of the smallest normal number: its inverse is finite."""

PIVOT_ROUNDINGS: Final = 4.0
"""How many rounding errors of a diagonal element a negative pivot may stem from."""


def solve_positive(matrix: Any, right: Any, floors: Sequence[Any]) -> Any:
    """The solution (n,) of a symmetric system with a positive definite matrix (n, n).

    L D Lᵀ with one division for each variable; a pivot below its floor is rounding error, and
    becomes the floor.
    """
    n = len(right)
    columns, lower, inverses = _empty(n), _empty(n), list[Any]()
    for j in range(n):
        pivot = functions.maximum(_entry(matrix, columns, lower, j, j), floors[j])
        columns[j + 1 :, j] = [_entry(matrix, columns, lower, i, j) for i in range(j + 1, n)]
        inverses.append(1.0 / pivot)
        lower[j + 1 :, j] = [_product(c, inverses[j]) for c in columns[j + 1 :, j]]
    y = _forward(lower, right)
    return _backward(lower, [v * d for v, d in zip(y, inverses, strict=True)])


def solve_modified(
    matrix: Any, right: Any, eps: float, least: Sequence[Any] | None = None
) -> tuple[Any, Any]:
    """The solution (n,) for a symmetric matrix that is made positive definite where it is not.

    Pivots are raised as Gill, Murray and Wright do (1981, "Practical optimization", 4.4.2.2); a
    matrix that is safely positive definite stays as it is. With ``least``, a length for each
    variable, the solution goes at least that far along a direction of negative curvature: that of
    the first pivot which is negative beyond rounding (there, 4.4.2.3). The second result says where
    there is one.
    """
    n = len(right)
    sizes = [abs(matrix[i][i]) for i in range(n)]
    aside = [matrix[i][j] for i in range(n) for j in range(i)]
    wide = largest(sizes)
    spread = largest(aside) * (1.0 / max(np.sqrt(n * n - 1.0), 1.0)) if aside else wide
    bound = functions.maximum(functions.maximum(wide, spread), eps * largest(right))
    bound = functions.maximum(bound, LEAST_BOUND)
    floor, bends = eps * eps * bound, list[Any]()
    columns, lower, inverses = _empty(n), _empty(n), list[Any]()
    for j in range(n):
        column = [_entry(matrix, columns, lower, i, j) for i in range(j, n)]
        rounding = PIVOT_ROUNDINGS * eps * sizes[j]
        lowest = functions.where(rounding > 0.0, rounding, floor)
        lowest = functions.maximum(lowest, LEAST_PIVOT * smallest_of(eps))
        pivot = functions.maximum(abs(column[0]), lowest)
        if len(column) > 1:
            peak = largest(column[1:])
            pivot = functions.maximum(pivot, peak * (peak / bound))
        bends.append(column[0] + rounding < 0.0)
        inverses.append(1.0 / pivot)
        columns[j + 1 :, j] = column[1:]
        lower[j + 1 :, j] = [_product(c, inverses[j]) for c in column[1:]]
    z = [v * d for v, d in zip(_forward(lower, right), inverses, strict=True)]
    bent = False if least is None else _bent(z, bends, least)
    return _backward(lower, z), bent


def _bent(z: list[Any], bends: Sequence[Any], least: Sequence[Any]) -> Any:
    """Move the first that bends on as far as it has to go; where there is one.

    Those after it do not change it any more, so the curvature along the solution of the transposed
    system from it alone is not above its own.
    """
    bent: Any = bends[0]
    for j, bend in enumerate(bends):
        first = bend & functions.logical_not(bent) if j else bend
        far = functions.copysign(functions.maximum(abs(z[j]), least[j]), z[j])
        z[j], bent = functions.where(first, far, z[j]), bent | bend
    return bent


def _empty(n: int) -> Any:
    return np.full((n, n), None, object)


def _entry(matrix: Any, columns: Any, lower: Any, i: int, j: int) -> Any:
    """The rest of an entry after the columns before it, which are those of L times pivots."""
    c = matrix[i][j]
    for k in range(j):
        if not _is_zero(lower[i, k]) and not _is_zero(columns[j, k]):
            c = c - lower[i, k] * columns[j, k]
    return c


def _is_zero(value: Any) -> bool:
    """Whether an entry is structurally 0: such entries cost nothing."""
    return not isinstance(value, Handle) and value == 0.0


def _product(c: Any, inverse: Any) -> Any:
    return c if _is_zero(c) else c * inverse


def _forward(lower: Any, right: Any) -> list[Any]:
    """The solution of the triangular system of the factor."""
    y: list[Any] = []
    for i in range(len(right)):
        parts = [lower[i, k] * y[k] for k in range(i) if not _is_zero(lower[i, k])]
        y.append(right[i] - np.sum(array(parts)) if parts else right[i])
    return y


def _backward(lower: Any, z: Sequence[Any]) -> Any:
    """The solution of the transposed system."""
    n, x = len(z), list(z)
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            if not _is_zero(lower[k, i]):
                x[i] = x[i] - lower[k, i] * x[k]
    return array(x)
