"""Solutions, determinants and factors of small matrices of expressions, written out.

Rows are exchanged by choices, as partial pivoting would: a matrix of expressions is eliminated as
stably as one of numbers, whatever its values turn out to be. Numbers 0 cost nothing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.linear.matrices import powers
from symgrad.expr.tracers.along import add_elements, is_zero, multiply_elements, subtract_elements
from symgrad.expr.tracers.array import call

MOST_ROWS_EXPANDED: Final = 5
"""The rows of the largest matrix whose determinant is expanded rather than eliminated."""

Rows = list[list[Any]]


class StructurallySingularError(TraceError):
    """The numbers in a matrix of expressions leave it singular, whatever the expressions are."""


def solution(matrix: Rows, right: Rows) -> np.ndarray:
    """x of ``matrix @ x == right``."""
    n = len(matrix)
    if n == 2:
        return _by_cramer(matrix, right)
    rows, inverses, _ = _eliminated([[*m, *r] for m, r in zip(matrix, right, strict=True)], n)
    unknowns: dict[int, list[Any]] = {}
    for k in reversed(range(n)):
        rest = rows[k][n:]
        for j in range(k + 1, n):
            rest = _less(rest, rows[k][j], unknowns[j])
        unknowns[k] = [multiply_elements(v, inverses[k]) for v in rest]
    return np.array([unknowns[k] for k in range(n)], dtype=object)


def _by_cramer(matrix: Rows, right: Rows) -> np.ndarray:
    """Cramer's rule, which of two rows is as accurate as elimination (Higham, 2002, 1.10.1).

    Scaled by a power of two, the determinant neither overflows nor vanishes where it need not.
    """
    parts = [abs(e) for row in matrix for e in row if not is_zero(e)]
    size = functools.reduce(functools.partial(call, ops.maximum), parts, 0.0)
    up = powers(size)[0] if isinstance(size, Handle) else 1.0
    matrix = [[multiply_elements(e, up) for e in row] for row in matrix]
    (a, b), (c, d) = matrix
    inverse = _reciprocal(determinant(matrix))
    first = [_minor(x, d, y, b) for x, y in zip(*right, strict=True)]
    second = [_minor(y, a, x, c) for x, y in zip(*right, strict=True)]
    inverse = multiply_elements(inverse, up)
    unknowns = [[multiply_elements(v, inverse) for v in row] for row in (first, second)]
    return np.array(unknowns, dtype=object)


def _reciprocal(pivot: Any) -> Any:
    if is_zero(pivot):
        raise StructurallySingularError(
            located("this matrix is singular, whatever the values of its expressions are")
        )
    return 1.0 / pivot


def _minor(a: Any, b: Any, c: Any, d: Any) -> Any:
    return subtract_elements(multiply_elements(a, b), multiply_elements(c, d))


def _reciprocal_or_zero(pivot: Any) -> Any:
    """The reciprocal, or 0 of 0: then nothing below the pivot is to be eliminated."""
    if is_zero(pivot):
        return 0.0
    reciprocal = 1.0 / pivot
    return call(ops.where, pivot == 0.0, 0.0, reciprocal)


def _eliminated(
    rows: Rows, n: int, reciprocal: Callable[[Any], Any] = _reciprocal
) -> tuple[Rows, list[Any], list[Any]]:
    """Rows of which the first n columns are upper triangular, and what made them so.

    These are the reciprocals of the pivots, and the conditions under which rows were exchanged.
    """
    rows, inverses, exchanges = [list(r) for r in rows], list[Any](), list[Any]()
    for k in range(n):
        _bring_up_the_largest(rows, k, n, exchanges)
        inverses.append(reciprocal(rows[k][k]))
        for i in range(k + 1, n):
            factor = multiply_elements(rows[i][k], inverses[k])
            rows[i] = [*[0.0] * (k + 1), *_less(rows[i][k + 1 :], factor, rows[k][k + 1 :])]
    return rows, inverses, exchanges


def _less(row: list[Any], factor: Any, other: list[Any]) -> list[Any]:
    return [
        subtract_elements(a, multiply_elements(factor, b)) for a, b in zip(row, other, strict=True)
    ]


def _bring_up_the_largest(rows: Rows, k: int, n: int, exchanges: list[Any]) -> None:
    """Exchange row k with each below it that has more in column k: then it has the most."""
    most = abs(rows[k][k])
    for i in range(k + 1, n):
        size = abs(rows[i][k])
        if is_zero(size):
            continue
        above = size > most
        if isinstance(above, Handle):
            exchanges.append(above)
            pairs = list(zip(rows[k], rows[i], strict=True))
            rows[k] = [_chosen(above, b, a) for a, b in pairs]
            rows[i] = [_chosen(above, a, b) for a, b in pairs]
            most = ops.where(above, size, most)
        elif above:
            exchanges.append(True)
            rows[k], rows[i], most = rows[i], rows[k], size


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    same = a is b or not (isinstance(a, Handle) or isinstance(b, Handle)) and a == b
    return a if same else ops.where(condition, a, b)


def determinant(rows: Rows) -> Any:
    """The determinant: expanded, or the product of pivots."""
    if len(rows) <= MOST_ROWS_EXPANDED:
        return _expanded(rows)
    reduced, _, exchanges = _eliminated(rows, len(rows), _reciprocal_or_zero)
    product = _sign_of(exchanges)
    for k, row in enumerate(reduced):
        product = multiply_elements(product, row[k])
    return product


def _expanded(rows: Rows) -> Any:
    """Laplace's expansion by the first rows, each minor of the last rows made once."""
    minors: dict[tuple[int, ...], Any] = {(): 1.0}
    for size, row in enumerate(reversed(rows), 1):
        larger: dict[tuple[int, ...], Any] = {}
        for columns in itertools.combinations(range(len(rows)), size):
            total: Any = 0.0
            for position, c in enumerate(columns):
                rest = columns[:position] + columns[position + 1 :]
                term = multiply_elements(row[c], minors[rest])
                total = (subtract_elements if position % 2 else add_elements)(total, term)
            larger[columns] = total
        minors = larger
    return minors[tuple(range(len(rows)))]


def _sign_of(exchanges: Sequence[Any]) -> Any:
    """-1 for an odd number of exchanges, else 1."""
    odd: Any = False
    for exchanged in exchanges:
        odd = exchanged ^ odd if isinstance(exchanged, Handle) else odd ^ exchanged
    return ops.where(odd, -1.0, 1.0) if isinstance(odd, Handle) else 1.0 - 2.0 * odd


def sign_and_logarithm(rows: Rows) -> tuple[Any, Any]:
    """The sign of the determinant, and the logarithm of its magnitude."""
    reduced, _, exchanges = _eliminated(rows, len(rows), _reciprocal_or_zero)
    sign, total = _sign_of(exchanges), 0.0
    for k, row in enumerate(reduced):
        sign = multiply_elements(sign, call(ops.sign, row[k]))
        total = add_elements(total, call(ops.log, abs(row[k])))
    return sign, total


def factor(rows: Rows) -> np.ndarray:
    """The lower triangular L of L Lᵀ, row by row."""
    n = len(rows)
    lower = np.full((n, n), 0.0, dtype=object)
    inverses: list[Any] = []
    for i in range(n):
        for j in range(i + 1):
            products = [multiply_elements(lower[i, k], lower[j, k]) for k in range(j)]
            rest = rows[i][j]
            for p in products:
                rest = subtract_elements(rest, p)
            if i == j:
                lower[i, i] = call(ops.sqrt, rest)
                inverses.append(1.0 / lower[i, i])
            else:
                lower[i, j] = multiply_elements(rest, inverses[j])
    return lower
