"""Linear algebra of small dense matrices in a kernel, `symgrad.linalg`, and what NumPy's becomes.

Up to 12 x 12, matrices are written out; larger ones, up to 64 x 64 for each point, are loops over
private memory, so that source and compile time do not grow with them. Derivatives of any order go
through both. NumPy's functions of these names give the same of arrays of expressions.

Example:
    >>> import symgrad as sg
    >>> solved = lambda v: sg.linalg.solve(v[:4].reshape(2, 2), v[4:])
    >>> sg.fused_forward(6, solved, device="cpu").run([2.0, 0.0, 0.0, 4.0, 1.0, 1.0])
    array([0.5 , 0.25], dtype=float32)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import whole_among
from symgrad.expr.graph.written_out import prefer_algorithm
from symgrad.expr.linear import dense, matrices
from symgrad.expr.linear.least_squares import least_squares
from symgrad.expr.linear.matrices import (
    MOST_ROWS,
    elements,
    graph_of,
    is_given,
    is_small,
    numbers,
    of_matrices,
    sides,
    square,
    stored,
    traced,
)
from symgrad.expr.tracers.along import matmul, reals
from symgrad.expr.tracers.array import array, plain

__all__ = [
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "slogdet",
    "solve",
    "solve_triangular",
]

_SLOGDET: Final = type(np.linalg.slogdet(np.eye(1)))

Function = TypeVar("Function", bound=Callable[..., Any])


def _on_whole(key: Any) -> Callable[[Function], Function]:
    """Of arrays that are traced as a whole, a function is theirs of this key."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def either(*args: Any, **options: Any) -> Any:
            whole = whole_among(args)
            return (function if whole is None else whole.functions[key])(*args, **options)

        return cast(Function, either)

    return decorate


@_on_whole(np.linalg.solve)
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
    if not traced(a, b):
        return np.linalg.solve(numbers(a), numbers(b))
    a, right, shaped = sides("solve", a, b)
    return shaped(of_matrices(_solution, np.linalg.solve, a, right))


def _solution(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    if is_small(matrix):
        return matrices.solution(matrix.tolist(), right.tolist())
    (n, m), graph = right.shape, graph_of(matrix, right)
    return elements(dense.solution(stored(graph, matrix), stored(graph, right)), n, m)


@_on_whole("solve_triangular")
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
    a, right, shaped = sides("solve_triangular", a, b)
    n = a.shape[-1]
    inside = np.tri(n, k=-1 if unit_diagonal else 0, dtype=bool)
    triangle = np.where(inside if lower else inside.T, plain(a), 0.0)
    triangle = triangle + np.eye(n) if unit_diagonal else triangle
    if not traced(a, b):
        triangle = numbers(np.swapaxes(triangle, -1, -2) if trans else triangle)
        return shaped(np.linalg.solve(triangle, numbers(right)))
    down = bool(lower) == bool(trans)

    def one(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
        if is_small(matrix):
            return matrices.solution((matrix.T if trans else matrix).tolist(), right.tolist())
        (n, m), graph = right.shape, graph_of(matrix, right)
        t, x = stored(graph, matrix), stored(graph, right)
        entry = (lambda i, j: t[j * n + i]) if trans else (lambda i, j: t[i * n + j])
        return elements(dense.substituted(entry, x, n, m, down, unit_diagonal), n, m)

    return shaped(of_matrices(one, _triangular(trans), triangle.astype(object), right))


def _triangular(trans: int) -> Any:
    return lambda a, b: np.linalg.solve(a.T if trans else a, b)


@_on_whole(np.linalg.inv)
def inv(a: Any) -> Any:
    """The inverse of matrices (..., n, n), n <= 64, as np.linalg.inv.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.linalg.inv(sg.array([[x, 1.0], [0.0, 2.0]])), {x: 4.0})
        array([[ 0.25 , -0.125],
               [ 0.   ,  0.5  ]])
    """
    if not traced(a):
        return np.linalg.inv(numbers(a))
    a = square(reals(a), "inv")
    return solve(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


@_on_whole(np.linalg.det)
def det(a: Any) -> Any:
    """The determinants of matrices (..., n, n), n <= 64, as np.linalg.det.

    In kernels of points, beyond five rows, it is NaN where elimination meets a column of zeros.
    Second derivatives of arrays that are traced as a whole are NaN where a matrix is singular.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.linalg.det(sg.array([[x, 1.0], [2.0, x]])), {x: 3.0})
        7.0
    """
    if not traced(a):
        return np.linalg.det(numbers(a))
    if np.shape(a)[-1:] > (matrices.MOST_ROWS_EXPANDED,):
        prefer_algorithm("det")
    return array(of_matrices(_determinant, np.linalg.det, square(reals(a), "det")))[()]


def _determinant(matrix: np.ndarray) -> Any:
    if is_small(matrix) or len(matrix) <= matrices.MOST_ROWS_EXPANDED:
        return matrices.determinant(matrix.tolist())
    return dense.determinant(stored(graph_of(matrix), matrix), len(matrix))


@_on_whole(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """The sign of the determinant and the logarithm of its magnitude, as np.linalg.slogdet.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> sg.linalg.slogdet(-np.eye(3)).sign
        np.float64(-1.0)
    """
    if not traced(a):
        return np.linalg.slogdet(numbers(a))
    pairs = of_matrices(_sign_and_logarithm, np.linalg.slogdet, square(reals(a), "slogdet"))
    return _SLOGDET(array(pairs[..., 0])[()], array(pairs[..., 1])[()])


def _sign_and_logarithm(matrix: np.ndarray) -> np.ndarray:
    if is_small(matrix):
        return np.array(matrices.sign_and_logarithm(matrix.tolist()), dtype=object)
    pair = dense.sign_and_logarithm(stored(graph_of(matrix), matrix))
    return np.array(pair, dtype=object)


@_on_whole(np.linalg.cholesky)
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
    if not traced(a):
        return np.linalg.cholesky(numbers(a), upper=upper)
    a = square(reals(a), "cholesky")
    lower = of_matrices(_factor, np.linalg.cholesky, np.swapaxes(a, -1, -2) if upper else a)
    return array(np.swapaxes(lower, -1, -2) if upper else lower)


def _factor(matrix: np.ndarray) -> np.ndarray:
    if not traced(np.tril(matrix)):
        return np.linalg.cholesky(numbers(np.tril(matrix)))
    if is_small(matrix):
        return matrices.factor(matrix.tolist())
    n, graph = len(matrix), graph_of(np.tril(matrix))
    read = matrix if is_given(matrix) else np.tril(matrix)
    return np.tril(elements(dense.lower_factor(stored(graph, read), n), n, n))


@_on_whole("expm")
def expm(A: Any, /) -> Any:
    """The exponential of a matrix (..., n, n), as scipy.linalg.expm.

    By scaling and squaring (Higham, 2005, "The scaling and squaring method for the matrix
    exponential revisited").

    Raises:
        TraceError: for expressions in what is no square matrix, or one of more than 64 rows.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> turn = lambda v: sg.linalg.expm(np.array([[0.0, -1.0], [1.0, 0.0]]) * v[0])[0]
        >>> kernel = sg.fused_forward(1, turn, device="cpu", dtype="float64")
        >>> np.allclose(kernel.run([0.5]), [np.cos(0.5), -np.sin(0.5)], atol=1e-15)
        True
    """
    if not traced(A):
        return dense.of_numbers(numbers(A))
    a = square(reals(A), "expm")
    return array(of_matrices(_exponential, dense.of_numbers, a))


def _exponential(matrix: np.ndarray) -> np.ndarray:
    return plain(dense.of_expressions(matrix, solve))


class Eigen(NamedTuple):
    """Eigenvalues (..., n), ascending, and eigenvectors (..., n, n), one in each column.

    Example:
        >>> import symgrad as sg
        >>> def largest(v):
        ...     pairs = sg.linalg.eigh(v.reshape(2, 2))
        ...     assert isinstance(pairs, sg.linalg.Eigen)
        ...     return pairs.eigenvalues[-1]
        >>> sg.fused_forward(4, largest, device="cpu").run([2.0, 0.0, 0.0, 3.0])
        3.0
    """

    eigenvalues: Any
    eigenvectors: Any


@_on_whole(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues and eigenvectors of a symmetric matrix, as np.linalg.eigh.

    They are found by Jacobi's method.

    Derivatives, of any order, are those of eigenpairs, however they were found. A derivative of
    eigenvectors that belong to equal eigenvalues does not exist: where it is asked for, it is
    infinite or NaN, and beside nearly equal ones it is as large as their distance is small. Those
    of eigenvalues are right there for sums over equal ones. The sign of an eigenvector is any.

    Args:
        a: A symmetric matrix (..., n, n), 2 <= n <= 64, of which one triangle is looked at.
        UPLO: "L" or "U", the lower or the upper one.

    Raises:
        TraceError: for shapes that are not square, or too large.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> values, _ = sg.linalg.eigh(sg.array([[x, 1.0], [1.0, x]]))
        >>> sg.evaluate(values, {x: 3.0})
        array([2., 4.])
    """
    if not traced(a):
        return np.linalg.eigh(numbers(a), UPLO=UPLO)  # type: ignore[arg-type]
    a = square(reals(a), "eigh")
    n = a.shape[-1]
    whole = _symmetric(np.swapaxes(a, -1, -2) if UPLO in "Uu" else a)
    pairs = of_matrices(_eigenpairs, _eigenpairs_of_numbers, whole)
    values, vectors = pairs[..., :n], pairs[..., n:]
    return Eigen(array(values), array(vectors.reshape((*values.shape, n))))


def _eigenpairs(matrix: np.ndarray) -> np.ndarray:
    n, graph = len(matrix), graph_of(matrix)
    pairs = dense.eigenpairs(stored(graph, matrix), n)
    return elements(pairs, 1, n + n * n)[0]


def _eigenpairs_of_numbers(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return np.concatenate([values, vectors.ravel()])


def _symmetric(a: np.ndarray) -> np.ndarray:
    """The matrices of which the lower triangle is that of these."""
    return np.where(np.tri(a.shape[-1], dtype=bool), a, np.swapaxes(a, -1, -2))


@_on_whole(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of a symmetric matrix, ascending, as np.linalg.eigvalsh: see `eigh`.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> sg.linalg.eigvalsh(np.diag([3.0, 1.0]))
        array([1., 3.])
    """
    return eigh(a, UPLO)[0]


@_on_whole(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """The x of least ``sum((a @ x - b) ** 2)``, as np.linalg.lstsq.

    Of arrays that `jit` and `value_and_grad` trace it is the least such x, by singular values, for
    a of any shape and rank. Of a matrix of expressions, in a loss over data or a kernel of points,
    it is by an orthogonal factorization, for a of full rank with m >= n rows, up to 64; where the
    rank is less, x, the sums and their derivatives are NaN.

    Args:
        a: A matrix (m, n).
        b: A vector (m,) or a matrix (m, p).
        rcond: A singular value up to this part of the largest one counts as 0; if it is not given,
            up to what roundings make. Of expressions it is what is left of a column without those
            before it, as a part of it.

    Returns:
        x, the sums of squares that are left (none for m <= n; NumPy has none of less than full
        rank either), the rank, and the singular values of a, descending; of expressions those that
        are smaller than the largest one by the root of the kernel's precision are not accurate.

    Raises:
        TraceError: for shapes that do not match, that are too large, or for m < n.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> y = sg.array(sg.symbols("y0:3"))
        >>> line, *_ = sg.linalg.lstsq(np.array([[0.0, 1], [1, 1], [2, 1]]), y)
        >>> sg.evaluate(line, {"y0": 1.0, "y1": 3.0, "y2": 5.0}).round(12)
        array([2., 1.])
    """
    if not traced(a, b):
        x, left, rank, values = np.linalg.lstsq(numbers(a), numbers(b), rcond=rcond)
        return x, left, int(rank), values
    prefer_algorithm("lstsq")
    a, b = reals(a), reals(b)
    right = b[:, None] if b.ndim == 1 else b
    if a.ndim != 2 or right.ndim != 2 or len(a) != len(right):
        raise TraceError(located(f"linalg.lstsq: shapes {a.shape} and {b.shape} do not match"))
    (m, n), p, graph = a.shape, right.shape[1], graph_of(a, right)
    if not n <= m <= MOST_ROWS:
        raise TraceError(
            located(f"linalg.lstsq takes n columns of n to {MOST_ROWS} rows, not {a.shape}")
        )
    matrix, sides = stored(graph, a), stored(graph, right)
    least = None if rcond is None or rcond < 0 else float(rcond)
    x, squares = least_squares(matrix, sides, m, n, p, least)
    up, down = dense.column_powers(matrix, m * n, 1)
    upper, *_ = dense.orthogonalized(dense.scaled(matrix, up), sides, m, n, p)
    upper = np.triu(elements(upper, n, n))
    solution = array(elements(x, n, p)[:, 0] if b.ndim == 1 else elements(x, n, p))
    left = array(elements(squares, 1, p)[0]) if m > n else np.empty(0)
    return solution, left, n, _singular_values(upper) * down[0]


def _singular_values(upper: np.ndarray) -> Any:
    if len(upper) == 1:
        return array([abs(upper[0, 0])])
    squares = eigvalsh(array(matmul(upper.T, upper)))
    return array([ops.sqrt(ops.maximum(s, 0.0)) for s in reversed(squares)])


def __dir__() -> list[str]:
    return sorted(__all__)
