"""NumPy's functions of whole arrays, also methods and ufuncs, and those composed of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.arrays.arguments import axes_of, whole
from symgrad.arrays.choices import diag, like, triangle, where
from symgrad.arrays.indexing import diagonal, index
from symgrad.arrays.products import einsum, length, matmul
from symgrad.arrays.reductions import (
    all_of,
    any_of,
    count_nonzero,
    largest,
    mean,
    position,
    product,
    running,
    smallest,
    std,
    total,
    var,
)
from symgrad.arrays.shapes import (
    array_split,
    at_least_1d,
    at_least_2d,
    at_least_3d,
    broadcast_to,
    column_stack,
    concatenate,
    dstack,
    expand_dims,
    flip,
    hstack,
    meshgrid,
    moveaxis,
    pad,
    ravel,
    repeat,
    reshape,
    roll,
    sliding_window_view,
    split,
    squeeze,
    stack,
    swapaxes,
    take,
    take_along_axis,
    tile,
    transpose,
    vstack,
)
from symgrad.arrays.updates import WholeUpdates
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops
from symgrad.expr.calls.compositions import COMPOSITIONS


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> WholeArray:
    """log(sum(b*exp(a))): see `symgrad.logsumexp`."""
    a = whole(a)
    shift = _shift(a, axis)
    terms = np.exp(a - shift) if b is None else b * np.exp(a - shift)
    sums = np.log(total(terms, axis, keepdims=True)) + shift
    return sums if keepdims else squeeze(sums, axes_of(a, axis))


def _shift(a: WholeArray, axis: Any) -> WholeArray:
    """The largest element, a constant to differentiation; 0 where it is not finite."""
    top = largest(a, axis, keepdims=True)
    top = top.mapped(ops.stop_gradient, (top,))
    return where(np.isfinite(top), top, 0.0)


def softmax(x: Any, axis: Any = None) -> WholeArray:
    """exp(x)/sum(exp(x)): see `symgrad.softmax`."""
    x = whole(x)
    terms = np.exp(x - _shift(x, axis))
    return terms / total(terms, axis, keepdims=True)


def log_softmax(x: Any, axis: Any = None) -> WholeArray:
    """The logarithm of `softmax`."""
    x = whole(x)
    shifted = x - _shift(x, axis)
    return shifted - np.log(total(np.exp(shifted), axis, keepdims=True))


def ufunc_reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method reduce of a ufunc, which is over the first axis unless an axis is given."""

    def reduce(array: Any, axis: Any = 0, **options: Any) -> Any:
        return function(array, axis, **options)

    return reduce


def install() -> None:
    """Give whole arrays NumPy's functions, and methods of these names."""
    WholeArray.functions.update(TABLE)
    for name in METHODS:
        WholeArray.methods[name] = TABLE[getattr(np, name)]
    WholeArray.methods["flatten"] = lambda a, order="C": ravel(a, order).copied()
    WholeArray.methods["copy"] = lambda a, order="C": a.copied()


METHODS: Final = (
    "sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "cumsum",
    "cumprod", "ravel", "squeeze", "swapaxes", "repeat", "take", "clip", "dot", "trace", "diagonal",
    "round", "conjugate",
)  # fmt: skip

TABLE: Final[dict[Any, Callable[..., Any]]] = COMPOSITIONS | {
    "index": index,
    "at": WholeUpdates,
    np.transpose: transpose,
    np.permute_dims: transpose,
    np.matrix_transpose: lambda x: swapaxes(x, -1, -2),
    np.linalg.matrix_transpose: lambda x: swapaxes(x, -1, -2),
    np.swapaxes: swapaxes,
    np.moveaxis: moveaxis,
    np.rollaxis: lambda a, axis, start=0: moveaxis(a, axis, start - (start > axis % a.ndim)),
    np.reshape: reshape,
    np.ravel: ravel,
    np.broadcast_to: broadcast_to,
    np.broadcast_arrays: lambda *a: tuple(
        broadcast_to(whole(x, a), np.broadcast_shapes(*map(np.shape, a))) for x in a
    ),
    np.squeeze: squeeze,
    np.expand_dims: expand_dims,
    np.flip: flip,
    np.flipud: lambda m: flip(m, 0),
    np.fliplr: lambda m: flip(m, 1),
    np.concatenate: concatenate,
    np.concat: concatenate,
    np.append: lambda arr, values, axis=None: concatenate([arr, values], axis),
    np.stack: stack,
    np.hstack: hstack,
    np.vstack: vstack,
    np.dstack: dstack,
    np.column_stack: column_stack,
    np.atleast_1d: at_least_1d,
    np.atleast_2d: at_least_2d,
    np.atleast_3d: at_least_3d,
    np.split: split,
    np.array_split: array_split,
    np.hsplit: lambda ary, n: split(ary, n, 0 if ary.ndim == 1 else 1),
    np.vsplit: lambda ary, n: split(ary, n, 0),
    np.dsplit: lambda ary, n: split(ary, n, 2),
    np.roll: roll,
    np.pad: pad,
    np.repeat: repeat,
    np.tile: tile,
    np.take: take,
    np.take_along_axis: take_along_axis,
    np.diagonal: diagonal,
    np.diag: diag,
    np.linalg.diagonal: lambda x, offset=0: diagonal(x, offset, -2, -1),
    np.tril: triangle(1),
    np.triu: triangle(-1),
    np.meshgrid: meshgrid,
    np.lib.stride_tricks.sliding_window_view: sliding_window_view,
    np.zeros_like: like(0.0),
    np.ones_like: like(1.0),
    np.empty_like: like(0.0),
    np.full_like: like(None),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.copy: lambda a, order="K", subok=False: a.copied(),
    np.real: lambda val: val,
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
    np.where: where,
    np.sum: total,
    np.prod: product,
    np.max: largest,
    np.amax: largest,
    np.min: smallest,
    np.amin: smallest,
    np.mean: mean,
    np.var: var,
    np.std: std,
    np.any: any_of,
    np.all: all_of,
    np.count_nonzero: count_nonzero,
    np.argmax: position("argmax"),
    np.argmin: position("argmin"),
    np.cumsum: running("add"),
    np.cumprod: running("mul"),
    np.matmul: matmul,
    (np.matmul, "__call__"): matmul,
    np.einsum: einsum,
    np.round: lambda a, decimals=0, out=None: (
        np.rint(a * 10.0**decimals) / 10.0**decimals
        if decimals
        else (np.rint(a) if a.kind == "f" else a)
    ),
    np.conjugate: lambda a: a,
    (np.add, "reduce"): ufunc_reduction(total),
    (np.multiply, "reduce"): ufunc_reduction(product),
    (np.maximum, "reduce"): ufunc_reduction(largest),
    (np.minimum, "reduce"): ufunc_reduction(smallest),
    (np.logical_and, "reduce"): ufunc_reduction(all_of),
    (np.logical_or, "reduce"): ufunc_reduction(any_of),
    (np.logaddexp, "reduce"): ufunc_reduction(logsumexp),
    (np.add, "accumulate"): lambda a, axis=0, **_: running("add")(a, axis),
    (np.multiply, "accumulate"): lambda a, axis=0, **_: running("mul")(a, axis),
    (np.maximum, "accumulate"): lambda a, axis=0, **_: running("max")(a, axis),
    (np.minimum, "accumulate"): lambda a, axis=0, **_: running("min")(a, axis),
    "length": length,
    "logsumexp": logsumexp,
    "softmax": softmax,
    "log_softmax": log_softmax,
}  # fmt: skip
"""NumPy's functions, and methods of ufuncs, on whole arrays."""
