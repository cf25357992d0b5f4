"""Matrices of expressions: their shapes, stacks of them, and small ones, factored and solved."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.arrays import GET, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import INPUT, WORD, Graph, Handle
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.tracers.along import (
    add_elements,
    is_zero,
    multiply_elements,
    reals,
    subtract_elements,
)
from symgrad.expr.tracers.array import array, call, plain
from symgrad.expr.tracers.memory import Array, array_of

MOST_WRITTEN: Final = 144
"""Elements that are not the number 0 of the largest matrix that is written out.

Of solve, slogdet and cholesky of 5 x 5 to 10 x 10, with their gradients, loops take 1.6 to 7 times
as long as what is written out on the CPU, and 2 to 8 times on an H200: registers hold what loops
keep in memory. For 12 x 12 it is 0.8 to 1.7 times on the CPU and 4 to 9 times on the H200, and the
first result comes up to 1 s earlier. The text grows with the cube of the rows.
"""

MOST_ROWS: Final = 64
"""Rows of the largest matrix: its gradient takes a few times as many numbers as it has."""


def square(a: Any, name: str) -> np.ndarray:
    """Square matrices as an array of objects.

    Raises:
        TraceError: if they are not square, or too large.
    """
    a = plain(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TraceError(located(f"linalg.{name} takes square matrices, not shape {a.shape}"))
    if a.shape[-1] > MOST_ROWS:
        raise TraceError(
            located(
                f"linalg.{name} of expressions takes matrices of up to {MOST_ROWS} rows, which "
                f"each point has in private memory, and this one has {a.shape[-1]}: use the "
                "structure that it has, as in blocks or in a recursion"
            )
        )
    return a


def sides(name: str, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, Callable[[Any], Any]]:
    """A matrix, a right side of two axes, and what shapes a solution as the right side was."""
    a, b = square(reals(a), name), reals(b)
    right = b[:, None] if b.ndim == 1 else b
    if right.ndim < 2 or right.shape[-2] != a.shape[-1]:
        raise TraceError(located(f"linalg.{name}: shapes {a.shape} and {b.shape} do not match"))
    return (
        a,
        right,
        lambda x: (array if traced(x) else np.asarray)(x[..., 0] if b.ndim == 1 else x),
    )


def traced(*values: Any) -> bool:
    """Whether there are expressions among these."""
    return any(isinstance(e, Handle) for v in values for e in _objects(plain(v)))


def _objects(a: np.ndarray) -> Iterable[Any]:
    return a.flat if a.dtype == object else ()


def numbers(a: Any) -> np.ndarray:
    """An array without expressions as one of numbers."""
    values = plain(a)
    return values.astype(np.float64) if values.dtype == object else values


def of_matrices(
    function: Callable[..., Any], of_numbers: Callable[..., Any], *stacks: np.ndarray
) -> np.ndarray:
    """The function of each matrix, along the leading axes, which broadcast; of numbers another."""

    def of_one(*matrices: np.ndarray) -> Any:
        return function(*matrices) if traced(*matrices) else of_numbers(*map(numbers, matrices))

    lead = np.broadcast_shapes(*[s.shape[:-2] for s in stacks])
    stacks = tuple(np.broadcast_to(s, lead + s.shape[-2:]) for s in stacks)
    values = [np.asarray(of_one(*[s[k] for s in stacks]), dtype=object) for k in np.ndindex(lead)]
    result = np.empty((len(values), *values[0].shape), dtype=object)
    for k, one in enumerate(values):
        result[k] = one[()]
    return result.reshape(lead + values[0].shape)


def is_small(matrix: np.ndarray) -> bool:
    """Whether it is written out: if it is small, mostly zeros, or all numbers."""
    nonzeros = sum(isinstance(e, Handle) or e != 0 for e in matrix.flat)
    return nonzeros <= MOST_WRITTEN


def is_given(matrix: np.ndarray) -> bool:
    """Whether it is of inputs alone, which cost nothing to read where they stand in a row."""
    return all(isinstance(e, Handle) and e.graph.nodes[e.id][0] is INPUT for e in matrix.flat)


def graph_of(*matrices: np.ndarray) -> Graph:
    """The graph of the expressions in them."""
    return next(e.graph for m in matrices for e in m.flat if isinstance(e, Handle))


def stored(graph: Graph, matrix: np.ndarray) -> Array:
    """The matrix in memory, row by row: where it comes from memory as it is, nothing is copied."""
    parts = list(matrix.flat)
    with OnePlace(graph):
        return _source(graph, parts) or array_of(graph, parts)


def _source(graph: Graph, elements: list[Any]) -> Array | None:
    """The array of which all elements but the numbers 0 are those of the same place."""
    source: int | None = None
    for k, e in enumerate(elements):
        if not isinstance(e, Handle):
            if e != 0:
                return None
            continue
        op, *args = graph.nodes[e.id]
        if op is not GET or graph.nodes[args[1]] != (WORD, k) or source not in (None, args[0]):
            return None
        source = args[0]
    is_whole = source is not None and length(graph, source) == len(elements)
    return Array(graph, source) if source is not None and is_whole else None


def elements(a: Array, n: int, m: int) -> np.ndarray:
    """The elements of a matrix in memory."""
    entries = np.empty(n * m, dtype=object)
    with OnePlace(a.graph):
        entries[:] = [a[k] for k in range(n * m)]
    return entries.reshape(n, m)


SUBNORMAL: Final = 52.0
"""By how many powers of two subnormal numbers stay below 1: their inverses are infinite."""


def powers(size: Any) -> tuple[Any, Any]:
    """A power of two by which a number of this size is near 1, and its inverse.

    Both are 1 where the size is 0, infinite or NaN, and constants to derivatives.
    """
    is_scalable = (size > 0.0) & ops.isfinite(size)
    exponent = ops.exponent(ops.stop_gradient(ops.where(is_scalable, size, 2.0))) - 1.0
    is_subnormal = ops.isinf(ops.scalb(1.0, -exponent))
    exponent = exponent + ops.where(is_subnormal, SUBNORMAL, 0.0)
    return tuple(ops.stop_gradient(ops.scalb(1.0, e)) for e in (-exponent, exponent))  # type: ignore[return-value]


# Solutions, determinants and factors of small matrices of expressions, written out.
#
# Rows are exchanged by choices, as partial pivoting would: a matrix of expressions is eliminated as
# stably as one of numbers, whatever its values turn out to be. Numbers 0 cost nothing.

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
