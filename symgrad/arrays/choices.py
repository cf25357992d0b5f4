"""NumPy's functions that choose elements: where, clip, diagonals, triangles, fillings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.arrays.arguments import whole
from symgrad.arrays.indexing import diagonal
from symgrad.arrays.shapes import broadcast_to, pad
from symgrad.arrays.whole import WholeArray
from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import whole_among


def where(condition: Any, *branches: Any) -> WholeArray:
    """np.where with both branches."""
    if len(branches) != 2:
        raise TraceError(located("np.where(condition) alone depends on values; give both branches"))
    first = whole_among((condition, *branches))
    assert first is not None, "an array is among them"
    return first.mapped(ops.where, (condition, *branches))


def like(value: float | None) -> Callable[..., Any]:
    """np.zeros_like and its kin: an array of numbers."""

    def function(a: Any, fill: Any = value, dtype: Any = None, shape: Any = None) -> Any:
        if isinstance(fill, WholeArray):
            return broadcast_to(fill, shape or a.shape)
        kind = a.dtype if dtype is None else dtype
        return np.full(a.shape if shape is None else shape, fill, kind)

    return function


def diag(v: Any, k: int = 0) -> WholeArray:
    """np.diag: a diagonal of a matrix, or a matrix with this diagonal."""
    v = whole(v)
    if v.ndim != 1:
        return diagonal(v, k)
    columns = pad(v, (max(k, 0), max(-k, 0)))
    return where(np.eye(columns.size, k=k) > 0, columns, v.lift(np.zeros((), v.dtype)))


def triangle(sign: int) -> Callable[..., WholeArray]:
    """np.tril, or np.triu with sign -1."""

    def function(m: Any, k: int = 0) -> WholeArray:
        m = whole(m)
        rows, columns = m.shape[-2:]
        i, j = np.arange(rows)[:, None], m.lift(np.arange(columns))
        beyond = j - (i + k) if sign > 0 else (i + k) - j
        return where(beyond <= 0, m, m.lift(np.zeros((), m.dtype)))

    return function
