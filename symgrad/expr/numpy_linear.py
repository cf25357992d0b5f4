"""NumPy's linear algebra on arrays of expressions; solutions and determinants are unrolled.

Rows are exchanged by choices, as partial pivoting would: a matrix of expressions is eliminated as
stably as one of numbers, whatever its values turn out to be.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.along import (
    add_elements,
    is_zero,
    matmul,
    multiply_elements,
    reduce,
    subtract_elements,
)
from symgrad.expr.array import ExprArray, array, call, map_elements, plain
from symgrad.expr.misuse import located
from symgrad.expr.node import Handle

MOST_ROWS_ELIMINATED: Final = 12
"""The rows of the largest matrix that is eliminated."""

MOST_ROWS_EXPANDED: Final = 5
"""The rows of the largest matrix whose determinant is expanded rather than eliminated."""

_SLOGDET: Final = type(np.linalg.slogdet(np.eye(1)))

Rows = list[list[Any]]


class StructurallySingularError(TraceError):
    """The numbers in a matrix of expressions leave it singular, whatever the expressions are."""


# --- products -------------------------------------------------------------------------------------


def dot(a: Any, b: Any) -> Any:
    """np.dot of at most two dimensions."""
    a, b = plain(a), plain(b)
    if not a.ndim or not b.ndim:
        return map_elements(operator.mul, a, b)
    if a.ndim > 2 or b.ndim > 2:
        raise TraceError(located("np.dot of expressions takes at most 2 dimensions; use @"))
    return matmul(a, b)


def outer(a: Any, b: Any) -> Any:
    """np.outer: of all elements, whatever the shapes."""
    return map_elements(multiply_elements, plain(a).reshape(-1, 1), plain(b).ravel())


def vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    """np.vecdot: the sums of products along an axis."""
    return reduce(add_elements, map_elements(multiply_elements, a, b), axis)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.trace."""
    return reduce(add_elements, np.diagonal(plain(a), offset, axis1, axis2), axis=-1)


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """np.cross of vectors of three components."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (array(np.moveaxis(plain(v), k, -1)) for v, k in ((a, axisa), (b, axisb)))
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise TraceError(located("np.cross of expressions takes vectors of 3 components"))
    left = a[..., [1, 2, 0]] * b[..., [2, 0, 1]]
    product = left - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]
    return np.moveaxis(np.asarray(product), -1, axisc).view(ExprArray)


def matrix_power(a: Any, n: int) -> Any:
    """np.linalg.matrix_power, by repeated squaring."""
    a = _square(a, "matrix_power")
    if n < 0:
        return matrix_power(inv(a), -n)
    result: Any = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    while n:
        result = matmul(result, a) if n & 1 else result
        n >>= 1
        a = matmul(a, a) if n else a
    return array(result)


# --- norms ----------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: every norm of vectors; of matrices those that need no singular values."""
    x = plain(x)
    if axis is None and ord is None:
        return _magnitude(x, None, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis).tolist())
    if len(axes) > 2:
        raise TraceError(located("np.linalg.norm takes one axis, or two of a matrix"))
    if len(axes) < 2:
        return vector_norm(x, axis=axes or None, keepdims=keepdims, ord=2 if ord is None else ord)
    return _matrix_norm(x, axes, keepdims, "fro" if ord is None else ord)


def vector_norm(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm, of any order."""
    x = plain(x)
    if ord == 2:
        return _magnitude(x, axis, keepdims)
    if ord == 0:
        there = map_elements(lambda v: call(ops.where, v != 0.0, 1.0, 0.0), x)
        return reduce(add_elements, there, axis, keepdims)
    size = map_elements(abs, x)
    if np.isinf(ord):
        return reduce(_larger if ord > 0 else _smaller, size, axis, keepdims)
    if ord == 1:
        return reduce(add_elements, size, axis, keepdims)
    powers = map_elements(lambda v: v**ord, size)
    return map_elements(lambda v: v ** (1.0 / ord), reduce(add_elements, powers, axis, keepdims))


def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm: over the last two axes."""
    return _matrix_norm(plain(x), (-2, -1), keepdims, ord)


def _magnitude(x: Any, axis: Any, keepdims: bool) -> Any:
    squares = map_elements(lambda v: v * v, x)
    return call(ops.sqrt, reduce(add_elements, squares, axis, keepdims))


def _matrix_norm(x: np.ndarray, axes: Sequence[int], keepdims: bool, ord: Any) -> Any:
    if ord == "fro":
        return _magnitude(x, tuple(axes), keepdims)
    if ord not in (1, -1, np.inf, -np.inf):
        raise TraceError(
            located(f"np.linalg.norm(ord={ord!r}) of a matrix needs its singular values")
        )
    rows, columns = (axes[0] % x.ndim, axes[1] % x.ndim)
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reduce(add_elements, map_elements(abs, x), summed, keepdims=True)
    found = reduce(_larger if ord > 0 else _smaller, sums, other, keepdims=True)
    return found if keepdims else array(np.squeeze(plain(found), (rows, columns)))[()]


def _larger(a: Any, b: Any) -> Any:
    return call(ops.maximum, a, b)


def _smaller(a: Any, b: Any) -> Any:
    return call(ops.minimum, a, b)


# --- elimination ----------------------------------------------------------------------------------


def solve(a: Any, b: Any) -> Any:
    """np.linalg.solve: x of ``a @ x == b``, by elimination with partial pivoting.

    Of a singular matrix the solution is infinite or NaN.
    """
    a, b = _square(a, "solve"), plain(b)
    n = a.shape[-1]
    right = b[:, None] if b.ndim == 1 else b
    if right.shape[-2] != n:
        raise TraceError(located(f"np.linalg.solve: shapes {a.shape} and {b.shape} do not match"))
    found = _of_matrices(lambda m, r: _solution(m.tolist(), r.tolist()), a, right)
    return array(found[..., 0] if b.ndim == 1 else found)


def inv(a: Any) -> Any:
    """np.linalg.inv."""
    a = _square(a, "inv")
    return solve(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def det(a: Any) -> Any:
    """np.linalg.det; beyond five rows NaN where elimination meets a column of zeros."""
    a = _square(a, "det")
    return array(_of_matrices(lambda m: _determinant(m.tolist()), a))[()]


def slogdet(a: Any) -> Any:
    """np.linalg.slogdet: the sign of the determinant and the logarithm of its magnitude."""
    a = _square(a, "slogdet")
    found = _of_matrices(lambda m: np.array(_sign_and_logarithm(m.tolist()), dtype=object), a)
    return _SLOGDET(array(found[..., 0])[()], array(found[..., 1])[()])


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """np.linalg.cholesky, of the lower (or upper) triangle; NaN if it is not positive definite."""
    a = _square(a, "cholesky")
    lower = _of_matrices(lambda m: _factor(m.tolist()), np.swapaxes(a, -1, -2) if upper else a)
    return array(np.swapaxes(lower, -1, -2) if upper else lower)


def _square(a: Any, name: str) -> np.ndarray:
    a = plain(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TraceError(located(f"np.linalg.{name} takes square matrices, not shape {a.shape}"))
    if a.shape[-1] > MOST_ROWS_ELIMINATED:
        raise TraceError(
            located(
                f"np.linalg.{name} of expressions is unrolled up to {MOST_ROWS_ELIMINATED} rows, "
                f"and this matrix has {a.shape[-1]}: use the structure that it has, as in blocks "
                "or in a recursion"
            )
        )
    return a


def _of_matrices(function: Callable[..., Any], *stacks: np.ndarray) -> np.ndarray:
    """The function of each matrix, along the leading axes, which broadcast."""
    lead = np.broadcast_shapes(*[s.shape[:-2] for s in stacks])
    stacks = tuple(np.broadcast_to(s, lead + s.shape[-2:]) for s in stacks)
    found = [np.asarray(function(*[s[k] for s in stacks]), dtype=object) for k in np.ndindex(lead)]
    result = np.empty((len(found), *found[0].shape), dtype=object)
    for k, one in enumerate(found):
        result[k] = one[()]
    return result.reshape(lead + found[0].shape)


def _solution(matrix: Rows, right: Rows) -> np.ndarray:
    n = len(matrix)
    if n == 2:
        return _by_cramer(matrix, right)
    rows, inverses, _ = _eliminated([[*m, *r] for m, r in zip(matrix, right, strict=True)], n)
    found: dict[int, list[Any]] = {}
    for k in reversed(range(n)):
        rest = rows[k][n:]
        for j in range(k + 1, n):
            rest = _less(rest, rows[k][j], found[j])
        found[k] = [multiply_elements(v, inverses[k]) for v in rest]
    return np.array([found[k] for k in range(n)], dtype=object)


def _by_cramer(matrix: Rows, right: Rows) -> np.ndarray:
    """Cramer's rule, which of two rows is as accurate as elimination (Higham, 2002, 1.10.1)."""
    (a, b), (c, d) = matrix
    inverse = _reciprocal(_determinant(matrix))
    first = [_minor(x, d, y, b) for x, y in zip(*right, strict=True)]
    second = [_minor(y, a, x, c) for x, y in zip(*right, strict=True)]
    found = [[multiply_elements(v, inverse) for v in row] for row in (first, second)]
    return np.array(found, dtype=object)


def _reciprocal(pivot: Any) -> Any:
    if is_zero(pivot):
        raise StructurallySingularError(
            located("this matrix is singular, whatever the values of its expressions are")
        )
    return 1.0 / pivot


def _minor(a: Any, b: Any, c: Any, d: Any) -> Any:
    return subtract_elements(multiply_elements(a, b), multiply_elements(c, d))


def _eliminated(rows: Rows, n: int) -> tuple[Rows, list[Any], list[Any]]:
    """Rows of which the first n columns are upper triangular, and what made them so.

    These are the reciprocals of the pivots, and the conditions under which rows were exchanged.
    """
    rows, inverses, exchanges = [list(r) for r in rows], list[Any](), list[Any]()
    for k in range(n):
        _bring_up_the_largest(rows, k, n, exchanges)
        inverses.append(_reciprocal(rows[k][k]))
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


def _determinant(rows: Rows) -> Any:
    if len(rows) <= MOST_ROWS_EXPANDED:
        return _expanded(rows)
    try:
        reduced, _, exchanges = _eliminated(rows, len(rows))
    except StructurallySingularError:
        return 0.0
    found = _sign_of(exchanges)
    for k, row in enumerate(reduced):
        found = multiply_elements(found, row[k])
    return found


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


def _sign_and_logarithm(rows: Rows) -> tuple[Any, Any]:
    reduced, _, exchanges = _eliminated(rows, len(rows))
    sign, total = _sign_of(exchanges), 0.0
    for k, row in enumerate(reduced):
        sign = multiply_elements(sign, call(ops.sign, row[k]))
        total = add_elements(total, call(ops.log, abs(row[k])))
    return sign, total


def _factor(rows: Rows) -> np.ndarray:
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
