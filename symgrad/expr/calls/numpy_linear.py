"""NumPy's products and norms of arrays of expressions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.linear.matrices import powers
from symgrad.expr.tracers.along import (
    add_elements,
    balanced,
    extreme_of,
    is_zero,
    matmul,
    multiply_elements,
    reals,
    reduce,
    reduce_lists,
)
from symgrad.expr.tracers.array import array, call, map_elements, plain

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


# --- norms ----------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: every norm of vectors; of matrices those that need no singular values."""
    x = reals(x)
    if axis is None and ord is None:
        return reduce_lists(_length, x, None, keepdims)
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
        return reduce_lists(_length, x, axis, keepdims)
    if ord == 0:
        is_nonzero = map_elements(lambda v: call(ops.where, v != 0.0, 1.0, 0.0), x)
        return reduce(add_elements, is_nonzero, axis, keepdims)
    size = map_elements(abs, x)
    if np.isinf(ord):
        return _extreme(ord, size, axis, keepdims)
    if ord == 1:
        return reduce(add_elements, size, axis, keepdims)
    powers = map_elements(lambda v: v**ord, size)
    return map_elements(lambda v: v ** (1.0 / ord), reduce(add_elements, powers, axis, keepdims))


def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm: over the last two axes."""
    return _matrix_norm(reals(x), (-2, -1), keepdims, ord)


def _length(elements: list[Any]) -> Any:
    """The root of the sum of squares, scaled by a power of two: none overflows or vanishes.

    The largest element stands apart from the others, the smaller ones of all pairs on its way.
    """
    elements = [v for v in elements if not is_zero(v)]
    if len(elements) <= 2 or not any(isinstance(v, Handle) for v in elements):
        return balanced(lambda a, b: call(ops.hypot, a, b), [abs(v) for v in elements], 0.0)
    smaller: list[Any] = []

    def larger(a: Any, b: Any) -> Any:
        beyond = abs(b) > abs(a)
        smaller.append(call(ops.where, beyond, a, b))
        return call(ops.where, beyond, b, a)

    largest = balanced(larger, elements)
    up, down = powers(abs(largest))
    others = balanced(add_elements, [(v * up) * (v * up) for v in smaller])
    return _root(largest * up, others) * down


def _root(a: Any, others: Any) -> Any:
    """sqrt(a**2 + others), for a small sum of others as |a| sqrt(1 + others/a**2).

    The second derivative by ``a`` is others/root**3. Of sqrt(a**2 + others) it is the difference of
    1/root and a**2/root**3, which cancels where ``a`` is large, and of the other form a sum that
    does not. It is 0 for zeros.
    """
    square = a * a
    share = others / (square + call(ops.where, square > 0.0, 0.0, 1.0))
    is_small = (others < square) | (square == 0.0)
    near, far = abs(a) * call(ops.sqrt, 1.0 + share), call(ops.sqrt, square + others)
    return call(ops.where, is_small, near, far)


def _matrix_norm(x: np.ndarray, axes: Sequence[int], keepdims: bool, ord: Any) -> Any:
    if ord == "fro":
        return reduce_lists(_length, x, tuple(axes), keepdims)
    if ord not in (1, -1, np.inf, -np.inf):
        raise TraceError(
            located(f"np.linalg.norm(ord={ord!r}) of a matrix needs its singular values")
        )
    rows, columns = (axes[0] % x.ndim, axes[1] % x.ndim)
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reduce(add_elements, map_elements(abs, x), summed, keepdims=True)
    largest = _extreme(ord, sums, other, keepdims=True)
    return largest if keepdims else array(np.squeeze(plain(largest), (rows, columns)))[()]


def _extreme(ord: float, a: Any, axis: Any, keepdims: bool) -> Any:
    """The largest elements for a positive order, else the smallest ones."""
    op = ops.maximum if ord > 0 else ops.minimum
    return reduce_lists(lambda values: extreme_of(op, values), a, axis, keepdims)
