"""The table of NumPy's functions on arrays of expressions: reductions, differences, and all others.

Functions that take more than a line stand here, in `compositions`, `numpy_choices` and `einsum`;
the ufuncs are in `numpy_calls`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls import numpy_choices as choices
from symgrad.expr.calls.compositions import COMPOSITIONS
from symgrad.expr.graph.misuse import located
from symgrad.expr.linear.einsum import einsum
from symgrad.expr.tracers.along import (
    accumulate,
    add_elements,
    extreme_of,
    extreme_of_numbers,
    matmul,
    multiply_elements,
    reals,
    reduce,
    reduce_lists,
)
from symgrad.expr.tracers.array import array, call, map_elements, plain
from symgrad.lazy import linalg

# Functions that pass over NaN.


def nanmax(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """np.nanmax: NaN where every element is."""
    return reduce_lists(lambda v: extreme_of_numbers(ops.maximum, v, initial), a, axis, keepdims)


def nanmin(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """np.nanmin."""
    return reduce_lists(lambda v: extreme_of_numbers(ops.minimum, v, initial), a, axis, keepdims)


# --- reductions -----------------------------------------------------------------------------------


def _sum(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return reduce(add_elements, a, axis, keepdims, initial)


def _prod(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return reduce(operator.mul, a, axis, keepdims, initial)


def _max(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return reduce_lists(lambda v: extreme_of(ops.maximum, v, initial), a, axis, keepdims)


def _min(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return reduce_lists(lambda v: extreme_of(ops.minimum, v, initial), a, axis, keepdims)


def _count(a: np.ndarray, axis: Any) -> int:
    """How many elements a reduction takes together."""
    return a.size if axis is None else int(np.prod([a.shape[k] for k in np.atleast_1d(axis)]))


def _mean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    a = reals(a)
    return _sum(a, axis, keepdims) / (_count(a, axis) or math.nan)


def _var(
    a: Any,
    axis: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    a = reals(a)
    ddof = ddof if correction is None else correction
    centred = array(a) - (_mean(a, axis, keepdims=True) if mean is None else mean)
    return _sum(centred * centred, axis, keepdims) / (_count(a, axis) - ddof or math.nan)


def _std(a: Any, *args: Any, **options: Any) -> Any:
    return call(ops.sqrt, _var(a, *args, **options))


def _cumulate(function: Callable[[Any, Any], Any], a: Any, axis: int | None) -> Any:
    return accumulate(function, plain(a).ravel() if axis is None else a, axis or 0)


# --- along an axis --------------------------------------------------------------------------------


def _last(a: Any, axis: int) -> Any:
    return array(np.moveaxis(plain(a), axis, -1))


def _back(a: Any, axis: int) -> Any:
    return array(np.moveaxis(plain(a), -1, axis))


def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = plain(f)
    axes = range(f.ndim) if axis is None else [int(k) % f.ndim for k in np.atleast_1d(axis)]
    steps = list(varargs) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise TraceError(
            located("np.gradient takes one spacing for each axis, and edge_order 1 or 2")
        )
    derivatives = [
        _back(_slopes(_last(f, k), np.asarray(h, dtype=float), edge_order), k)
        for k, h in zip(axes, steps, strict=True)
    ]
    return derivatives[0] if len(derivatives) == 1 else tuple(derivatives)


def _slopes(f: Any, spacing: np.ndarray, edge_order: int) -> Any:
    """Second-order differences along the last axis, at the ends of order ``edge_order``."""
    n = f.shape[-1]
    x = spacing if spacing.ndim else spacing * np.arange(n)
    weights = np.zeros((n, n))
    for k in range(n):
        near = min(max(k - 1, 0), n - 3) if edge_order == 2 or 0 < k < n - 1 else min(k, n - 2)
        points = slice(near, near + (3 if edge_order == 2 or 0 < k < n - 1 else 2))
        powers = np.vander(x[points] - x[k], increasing=True).T
        weights[k, points] = np.linalg.solve(powers, np.eye(len(powers))[1])
    return matmul(f, weights.T)


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = plain(a).ravel(), plain(v).ravel()
    if mode not in ("full", "same", "valid"):
        raise TraceError(located(f'np.convolve: mode={mode!r} is not "full", "same" or "valid"'))
    if len(v) > len(a):
        a, v = v, a
    terms = [[multiply_elements(x, y) for y in v] for x in a]
    sums = [
        _sum(
            np.array(
                [terms[i][k - i] for i in range(max(0, k - len(v) + 1), min(k + 1, len(a)))],
                dtype=object,
            )
        )
        for k in range(len(a) + len(v) - 1)
    ]
    cut = {"full": 0, "same": (len(v) - 1) // 2, "valid": len(v) - 1}[mode]
    length = {"full": len(sums), "same": len(a), "valid": len(a) - len(v) + 1}[mode]
    return array(sums[cut : cut + length])


def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = plain(a).ravel(), plain(v).ravel()
    correlation = _convolve(a, v[::-1], mode)
    return (
        correlation if len(v) <= len(a) or mode != "same" else _convolve(a, v[::-1])[_centre(a, v)]
    )


def _centre(a: np.ndarray, v: np.ndarray) -> slice:
    """The middle of a full correlation with a longer second operand, as NumPy cuts it."""
    first = len(a) // 2
    return slice(first, first + len(v))


# --- sequences of numbers and polynomials ---------------------------------------------------------


def _linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    start, stop = array(start), array(stop)
    count = num - 1 if endpoint else num
    step = (stop - start) * (1.0 / max(count, 1))
    values = [start + k * step for k in range(num)]
    if endpoint and num > 1:
        values[-1] = stop + start * np.zeros(())
    stacked = np.stack([plain(v).astype(object) for v in values]) if num else np.empty(0, object)
    points = array(np.moveaxis(stacked, 0, axis))
    return (points, array(step)[()]) if retstep else points


def _round(a: Any, decimals: int = 0) -> Any:
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return map_elements(lambda x: ops.round(x / scale) * scale, a)
    return (
        map_elements(lambda x: ops.round(x * scale) / scale, a) if decimals else call(ops.round, a)
    )


def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    rows = _last(arr, axis)
    results = [plain(func1d(rows[k], *args, **kwargs)) for k in np.ndindex(rows.shape[:-1])]
    whole = np.stack([f.astype(object) for f in results]).reshape(
        rows.shape[:-1] + results[0].shape
    )
    return array(np.moveaxis(whole, -1, axis) if results[0].ndim else whole)[()]


def _blocks(arrays: Any) -> Any:
    """The blocks that np.block puts together: its lists are places, and no arrays themselves."""
    nested = isinstance(arrays, list)
    return [_blocks(a) for a in arrays] if nested else plain(arrays)


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = COMPOSITIONS | {
    np.block: lambda arrays: array(np.block(_blocks(arrays))),
    np.sum: _sum,
    np.prod: _prod,
    np.amax: _max,
    np.amin: _min,
    np.max: _max,
    np.min: _min,
    np.mean: _mean,
    np.var: _var,
    np.std: _std,
    np.cumsum: lambda a, axis=None: _cumulate(add_elements, a, axis),
    np.cumprod: lambda a, axis=None: _cumulate(operator.mul, a, axis),
    np.any: choices.any_of,
    np.all: choices.all_of,
    np.count_nonzero: choices.count_nonzero,
    np.where: choices.where,
    np.choose: choices.choose,
    np.take: choices.take,
    np.take_along_axis: choices.take_along_axis,
    np.nanmax: nanmax,
    np.nanmin: nanmin,
    np.sort: choices.sort,
    np.interp: choices.interp,
    np.searchsorted: choices.searchsorted,
    np.gradient: _gradient,
    np.convolve: _convolve,
    np.correlate: _correlate,
    np.linspace: _linspace,
    np.round: _round,
    np.sinc: lambda x: call(ops.sinc, x),
    np.real: lambda val: val,
    np.apply_along_axis: _apply_along_axis,
    np.einsum: einsum,
    np.linalg.solve: lambda a, b: linalg.solve(a, b),
    np.linalg.inv: lambda a: linalg.inv(a),
    np.linalg.det: lambda a: linalg.det(a),
    np.linalg.slogdet: lambda a: linalg.slogdet(a),
    np.linalg.cholesky: lambda a, /, *, upper=False: linalg.cholesky(a, upper=upper),
    np.linalg.eigh: lambda a, UPLO="L": linalg.eigh(a, UPLO),
    np.linalg.eigvalsh: lambda a, UPLO="L": linalg.eigvalsh(a, UPLO),
    np.linalg.lstsq: lambda a, b, rcond=None: linalg.lstsq(a, b, rcond),
}
"""NumPy's functions, for expressions."""

JOINS: Final = {np.concatenate, np.stack, np.hstack, np.vstack, np.dstack, np.column_stack}
"""Functions that take a list of arrays."""

MOVES: Final = JOINS | {
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims,
    np.split, np.put, np.array_split, np.hsplit, np.vsplit, np.dsplit, np.atleast_1d, np.atleast_2d,
    np.atleast_3d, np.tile, np.repeat, np.roll, np.flip, np.flipud, np.fliplr, np.rot90, np.diag,
    np.diagflat, np.diagonal, np.compress, np.fill_diagonal,
    np.broadcast_to, np.broadcast_arrays, np.shape, np.ndim, np.size, np.copy, np.append,
    np.delete, np.insert, np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.tril,
    np.triu, np.meshgrid, np.array_repr, np.array_str, np.array2string, np.result_type, np.rollaxis,
    np.copyto, np.put_along_axis, np.putmask, np.may_share_memory, np.shares_memory, np.resize,
    np.pad, np.linalg.diagonal, np.linalg.matrix_transpose, np.matrix_transpose, np.iscomplexobj,
    np.isrealobj, np.lib.stride_tricks.sliding_window_view,
}  # fmt: skip
"""Functions that only move elements, and so are right for any objects."""
