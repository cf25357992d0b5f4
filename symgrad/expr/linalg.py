"""Linear algebra of small dense matrices in a kernel, `symgrad.linalg`, and what NumPy's becomes.

Up to 12 x 12, matrices are written out; larger ones, up to 64 x 64 for each point, are loops over
private memory, so that source and compile time do not grow with them. Derivatives of any order go
through both. NumPy's functions of these names give the same of arrays of expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import dense, unrolled
from symgrad.expr.array import array, holds_expressions, plain
from symgrad.expr.arrays import GET, length
from symgrad.expr.misuse import located
from symgrad.expr.node import WORD, Graph, Handle
from symgrad.expr.place import OnePlace
from symgrad.expr.versions import Array, array_of

__all__ = ["cholesky", "det", "inv", "slogdet", "solve", "solve_triangular"]

MOST_WRITTEN: Final = 144
"""Elements that are not the number 0 of the largest matrix that is written out."""

MOST_ROWS: Final = 64
"""Rows of the largest matrix: its gradient takes a few times as many numbers as it has."""

_SLOGDET: Final = type(np.linalg.slogdet(np.eye(1)))


def solve(a: Any, b: Any) -> Any:
    """x of ``a @ x == b``, as np.linalg.solve: by elimination with partial pivoting.

    Args:
        a: A matrix (..., n, n) of expressions or numbers, n <= 64.
        b: A vector (n,), or a matrix (..., n, m).

    Returns:
        x, shaped as b. Where a is singular it is infinite or NaN.

    Raises:
        TraceError: for shapes that do not match, or are too large.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> a = np.diag([1.0, 2.0, 4.0, 5.0, 8.0])
        >>> f = lambda v: sg.linalg.solve(a + v[0], np.ones(5))
        >>> sg.fused_forward(1, f, device="cpu").run([0.0])
        array([1.   , 0.5  , 0.25 , 0.2  , 0.125], dtype=float32)
    """
    if not _traced(a, b):
        return np.linalg.solve(a, b)
    a, right, shaped = _sides("solve", a, b)
    return shaped(_of_matrices(_solution, a, right))


def _solution(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    if _is_small(matrix):
        return unrolled.solution(matrix.tolist(), right.tolist())
    (n, m), graph = right.shape, _graph(matrix, right)
    return _matrix(dense.solution(_stored(graph, matrix), _stored(graph, right), n, m), n, m)


def solve_triangular(
    a: Any, b: Any, trans: int = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """x of ``a @ x == b`` for a triangular a, as scipy.linalg.solve_triangular.

    Args:
        a: A matrix (..., n, n), n <= 64, of which only one triangle is looked at.
        b: A vector (n,), or a matrix (..., n, m).
        trans: Whether ``a.T @ x == b`` is solved.
        lower: Whether it is the lower triangle.
        unit_diagonal: Whether the diagonal is taken to be 1.

    Raises:
        TraceError: for shapes that do not match, or are too large.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> sg.linalg.solve_triangular(np.array([[2.0, 0.0], [1.0, 1.0]]), [2.0, 3.0], lower=True)
        array([1., 2.])
    """
    a, right, shaped = _sides("solve_triangular", a, b)
    n = a.shape[-1]
    inside = np.tri(n, k=-1 if unit_diagonal else 0, dtype=bool)
    kept = np.where(inside if lower else inside.T, plain(a), 0.0)
    kept = kept + np.eye(n) if unit_diagonal else kept
    if not _traced(a, b):
        return shaped(np.linalg.solve(np.swapaxes(kept, -1, -2) if trans else kept, right))
    down = bool(lower) == bool(trans)

    def one(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
        if _is_small(matrix):
            return unrolled.solution((matrix.T if trans else matrix).tolist(), right.tolist())
        (n, m), graph = right.shape, _graph(matrix, right)
        t, x = _stored(graph, matrix), _stored(graph, right)
        entry = (lambda i, j: t[j * n + i]) if trans else (lambda i, j: t[i * n + j])
        return _matrix(dense.substituted(entry, x, n, m, down, unit_diagonal), n, m)

    return shaped(_of_matrices(one, kept.astype(object), right))


def inv(a: Any) -> Any:
    """The inverse of matrices (..., n, n), n <= 64, as np.linalg.inv.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.linalg.inv(sg.array([[x, 1.0], [0.0, 2.0]])), {x: 4.0})
        array([[ 0.25 , -0.125],
               [ 0.   ,  0.5  ]])
    """
    if not _traced(a):
        return np.linalg.inv(a)
    a = square(a, "inv")
    return solve(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def det(a: Any) -> Any:
    """The determinants of matrices (..., n, n), n <= 64, as np.linalg.det.

    Beyond five rows it is NaN where elimination meets a column of zeros.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.linalg.det(sg.array([[x, 1.0], [2.0, x]])), {x: 3.0})
        7.0
    """
    if not _traced(a):
        return np.linalg.det(a)
    return array(_of_matrices(_determinant, square(a, "det")))[()]


def _determinant(matrix: np.ndarray) -> Any:
    if _is_small(matrix) or len(matrix) <= unrolled.MOST_ROWS_EXPANDED:
        return unrolled.determinant(matrix.tolist())
    return dense.determinant(_stored(_graph(matrix), matrix), len(matrix))


def slogdet(a: Any) -> Any:
    """The sign of the determinant and the logarithm of its magnitude, as np.linalg.slogdet.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> sg.linalg.slogdet(-np.eye(3)).sign
        np.float64(-1.0)
    """
    if not _traced(a):
        return np.linalg.slogdet(a)
    found = _of_matrices(_sign_and_logarithm, square(a, "slogdet"))
    return _SLOGDET(array(found[..., 0])[()], array(found[..., 1])[()])


def _sign_and_logarithm(matrix: np.ndarray) -> np.ndarray:
    if _is_small(matrix):
        return np.array(unrolled.sign_and_logarithm(matrix.tolist()), dtype=object)
    found = dense.sign_and_logarithm(_stored(_graph(matrix), matrix), len(matrix))
    return np.array(found, dtype=object)


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The triangular L of ``L @ L.T == a``, as np.linalg.cholesky; NaN if there is none.

    Args:
        a: A symmetric matrix (..., n, n), n <= 64, of which only one triangle is looked at.
        upper: Whether that is the upper one, and ``L.T`` is given.

    Raises:
        TraceError: for shapes that are not square, or too large.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.linalg.cholesky(sg.array([[x, 6.0], [6.0, 10.0]])), {x: 4.0})
        array([[2., 0.],
               [3., 1.]])
    """
    if not _traced(a):
        return np.linalg.cholesky(a, upper=upper)
    a = square(a, "cholesky")
    lower = _of_matrices(_factor, np.swapaxes(a, -1, -2) if upper else a)
    return array(np.swapaxes(lower, -1, -2) if upper else lower)


def _factor(matrix: np.ndarray) -> np.ndarray:
    lower = np.tril(matrix)
    if _is_small(matrix):
        return unrolled.factor(matrix.tolist())
    n, graph = len(matrix), _graph(lower)
    return np.tril(_matrix(dense.lower_factor(_stored(graph, lower), n), n, n))


# --- what they are given, and give ----------------------------------------------------------------


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


def _sides(name: str, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, Callable[[Any], Any]]:
    """A matrix, a right side of two axes, and what shapes a solution as the right side was."""
    a, b = square(a, name), plain(b)
    right = b[:, None] if b.ndim == 1 else b
    if right.ndim < 2 or right.shape[-2] != a.shape[-1]:
        raise TraceError(located(f"linalg.{name}: shapes {a.shape} and {b.shape} do not match"))
    return (
        a,
        right,
        lambda x: (array if _traced(x) else np.asarray)(x[..., 0] if b.ndim == 1 else x),
    )


def _traced(*values: Any) -> bool:
    return any(map(holds_expressions, map(plain, values)))


def _of_matrices(function: Callable[..., Any], *stacks: np.ndarray) -> np.ndarray:
    """The function of each matrix, along the leading axes, which broadcast."""
    lead = np.broadcast_shapes(*[s.shape[:-2] for s in stacks])
    stacks = tuple(np.broadcast_to(s, lead + s.shape[-2:]) for s in stacks)
    found = [np.asarray(function(*[s[k] for s in stacks]), dtype=object) for k in np.ndindex(lead)]
    result = np.empty((len(found), *found[0].shape), dtype=object)
    for k, one in enumerate(found):
        result[k] = one[()]
    return result.reshape(lead + found[0].shape)


def _is_small(matrix: np.ndarray) -> bool:
    """Whether it is written out: if it is small, mostly zeros, or all numbers."""
    there = sum(isinstance(e, Handle) or e != 0 for e in matrix.flat)
    return there <= MOST_WRITTEN


def _graph(*matrices: np.ndarray) -> Graph:
    return next(e.graph for m in matrices for e in m.flat if isinstance(e, Handle))


def _stored(graph: Graph, matrix: np.ndarray) -> Array:
    """The matrix in memory, row by row: where it comes from memory as it is, nothing is copied."""
    elements = list(matrix.flat)
    with OnePlace(graph):
        return _source(graph, elements) or array_of(graph, elements)


def _source(graph: Graph, elements: list[Any]) -> Array | None:
    """The array of which all elements but the numbers 0 are those of the same place."""
    found: int | None = None
    for k, e in enumerate(elements):
        if not isinstance(e, Handle):
            if e != 0:
                return None
            continue
        op, *args = graph.nodes[e.id]
        if op is not GET or graph.nodes[args[1]] != (WORD, k) or found not in (None, args[0]):
            return None
        found = args[0]
    is_whole = found is not None and length(graph, found) == len(elements)
    return Array(graph, found) if found is not None and is_whole else None


def _matrix(a: Array, n: int, m: int) -> np.ndarray:
    """The elements of a matrix in memory."""
    found = np.empty(n * m, dtype=object)
    with OnePlace(a.graph):
        found[:] = [a[k] for k in range(n * m)]
    return found.reshape(n, m)
