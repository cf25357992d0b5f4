"""NumPy's products and norms of arrays of expressions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.linear.matrices import powers, square
from symgrad.expr.tracers.along import (
    add_elements,
    is_zero,
    matmul,
    multiply_elements,
    reals,
    reduce,
)
from symgrad.expr.tracers.array import ExprArray, array, call, map_elements, plain
from symgrad.lazy import linalg

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


def matvec(a: Any, x: Any) -> Any:
    """np.matvec: matrices times vectors, along the last axes."""
    return array(plain(matmul(a, plain(x)[..., :, None]))[..., 0])[()]


def vecmat(x: Any, a: Any) -> Any:
    """np.vecmat: vectors times matrices, along the last axes."""
    return array(plain(matmul(plain(x)[..., None, :], a))[..., 0, :])[()]


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
    if n < 0:
        return matrix_power(linalg.inv(a), -n)
    a = square(a, "matrix_power")
    result: Any = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    while n:
        result = matmul(result, a) if n & 1 else result
        n >>= 1
        a = matmul(a, a) if n else a
    return array(result)


MOST_BY_HYPOT: Final = 8
"""Elements of vectors whose norms are those of norms of two."""


# --- norms ----------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: every norm of vectors; of matrices those that need no singular values."""
    x = reals(x)
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
    x = reals(x)
    if ord == 2:
        return _magnitude(x, axis, keepdims)
    if ord == 0:
        is_nonzero = map_elements(lambda v: call(ops.where, v != 0.0, 1.0, 0.0), x)
        return reduce(add_elements, is_nonzero, axis, keepdims)
    size = map_elements(abs, x)
    if np.isinf(ord):
        return reduce(_larger if ord > 0 else _smaller, size, axis, keepdims)
    if ord == 1:
        return reduce(add_elements, size, axis, keepdims)
    powers = map_elements(lambda v: v**ord, size)
    return map_elements(lambda v: v ** (1.0 / ord), reduce(add_elements, powers, axis, keepdims))


def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm: over the last two axes."""
    return _matrix_norm(reals(x), (-2, -1), keepdims, ord)


def _magnitude(x: Any, axis: Any, keepdims: bool) -> Any:
    """The root of the sum of squares: of few by hypot, whose second derivatives are exact too.

    More are scaled by a power of two, so that no square overflows or vanishes.
    """
    x = plain(x)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    count = int(np.prod([x.shape[k] for k in axes]))
    sizes = map_elements(abs, x)
    if 0 < count <= MOST_BY_HYPOT:
        return reduce(_hypot, sizes, axis, keepdims)
    if not count:
        return call(ops.sqrt, reduce(add_elements, sizes, axis, keepdims))
    largest = reduce(_larger, sizes, axis, keepdims=True)
    pairs = [powers(e) if isinstance(e, Handle) else (1.0, 1.0) for e in plain(largest).flat]
    up, down = (
        np.array(part, dtype=object).reshape(np.shape(largest)) for part in zip(*pairs, strict=True)
    )
    squares = map_elements(lambda v, scale: (v * scale) * (v * scale), x, up)
    magnitudes = map_elements(
        operator.mul, call(ops.sqrt, reduce(add_elements, squares, axis, True)), down
    )
    shape = np.shape(reduce(add_elements, sizes, axis, keepdims))
    return array(plain(magnitudes).reshape(shape))[()]


def _hypot(a: Any, b: Any) -> Any:
    return b if is_zero(a) else a if is_zero(b) else call(ops.hypot, a, b)


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
    largest = reduce(_larger if ord > 0 else _smaller, sums, other, keepdims=True)
    return largest if keepdims else array(np.squeeze(plain(largest), (rows, columns)))[()]


def _larger(a: Any, b: Any) -> Any:
    return call(ops.maximum, a, b)


def _smaller(a: Any, b: Any) -> Any:
    return call(ops.minimum, a, b)
