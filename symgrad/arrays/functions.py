"""NumPy's functions of whole arrays, also methods and ufuncs, and those composed of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.arrays import views
from symgrad.arrays.indexing import WholeUpdates, index
from symgrad.arrays.linear import einsum, length, matmul
from symgrad.arrays.loops import scan
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
    at_least_1d,
    at_least_2d,
    at_least_3d,
    axes_of,
    column_stack,
    concatenate,
    diag,
    dstack,
    hstack,
    like,
    meshgrid,
    pad,
    ravel,
    refuse,
    repeat,
    reshape,
    roll,
    stack,
    take,
    take_along_axis,
    tile,
    triangle,
    vstack,
    where,
    whole,
)
from symgrad.arrays.views import broadcast_to, flip, moveaxis, squeeze
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops
from symgrad.expr.calls.compositions import COMPOSITIONS, matvec, vecdot, vecmat
from symgrad.expr.graph.node import ElementsNeededError

# NumPy's functions that others make up: of statistics, interpolation, signals, missing numbers.


def extreme(function: Callable[..., Any], worst: float) -> Callable[..., Any]:
    """np.nanmax, np.nanmin: NaN only of NaN alone."""

    def reduction(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        a = whole(a)
        missing = np.isnan(a)
        value = function(where(missing, worst, a), axis, keepdims=keepdims)
        return where(np.all(missing, axis, keepdims=keepdims), np.nan, value)

    return reduction


# --- signals and interpolation --------------------------------------------------------------------


def convolve(a: Any, v: Any, mode: str = "full") -> WholeArray:
    """np.convolve: a sum of products with windows of the padded longer array."""
    a, v = whole(a, v), whole(v, a)
    long, short = (a, v) if len(a) >= len(v) else (v, a)
    n, m = len(long), len(short)
    padded = pad(long, m - 1)
    windows = padded[np.arange(n + m - 1)[:, None] + np.arange(m)]
    full = matmul(windows, flip(short))
    parts = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}
    first, size = parts[mode]
    return full[first : first + size]


def correlate(a: Any, v: Any, mode: str = "valid") -> WholeArray:
    """np.correlate."""
    a, v = whole(a, v), whole(v, a)
    if len(a) < len(v):
        return flip(correlate(v, a, mode))
    return convolve(a, flip(v), mode)


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """np.interp at any x, over nodes that are known or not."""
    if period is not None:
        raise ElementsNeededError("np.interp(..., period=)")
    x, xp, fp = whole(x, xp, fp), whole(xp, x, fp), whole(fp, x, xp)
    flat = ravel(x)
    k = np.clip(np.sum((xp[None] <= flat[:, None]).astype(int), axis=1) - 1, 0, len(xp) - 2)
    start, width = xp[k], xp[k + 1] - xp[k]
    line = fp[k] + (fp[k + 1] - fp[k]) * ((flat - start) / width)
    line = where(flat < xp[0], fp[0] if left is None else left, line)
    line = where(flat > xp[-1], fp[-1] if right is None else right, line)
    return reshape(where(flat == xp[-1], fp[-1], line), x.shape)


def gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient on an even grid."""
    f = whole(f)
    axes = axes_of(f, axis)
    steps = spacing or (1.0,)
    steps = steps * len(axes) if len(steps) == 1 else steps
    if edge_order != 1 or any(np.ndim(h) for h in steps):
        raise ElementsNeededError("np.gradient on a grid that is not even")
    slopes = []
    for k, h in zip(axes, steps, strict=True):
        g = moveaxis(f, k, 0)
        parts = [(g[1:2] - g[:1]) / h, (g[2:] - g[:-2]) / (2.0 * h), (g[-1:] - g[-2:-1]) / h]
        slopes.append(moveaxis(concatenate(parts, 0), 0, k))
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def logaddexp_accumulate(array: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
    """np.logaddexp.accumulate, one element after the other."""
    refuse(dtype=dtype, out=out)
    rows: Any = moveaxis(whole(array), axis, 0)
    step = lambda total, row: (np.logaddexp(total, row),) * 2  # noqa: E731
    _, totals = scan(step, rows[0], rows[1:], len(rows) - 1, False)
    return moveaxis(concatenate([rows[:1], totals]), 0, axis)


def truths_accumulate(operator: str) -> Callable[..., Any]:
    """The method accumulate of np.logical_and and np.logical_or, extremes of truth values."""

    def accumulate(array: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        refuse(dtype=dtype, out=out)
        return running(operator)(whole(array) != 0, axis) != 0

    return accumulate


# --- products, powers, choices --------------------------------------------------------------------


def divmod_(a: Any, b: Any) -> tuple[Any, Any]:
    """np.divmod."""
    return np.floor_divide(a, b), np.remainder(a, b)


def bitwise_count(x: Any) -> WholeArray:
    """np.bitwise_count, as `symgrad.expr.calls.numpy_calls.bitwise_count` adds the bits up."""
    x = abs(whole(x))
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101) >> 24


def modf(a: Any) -> tuple[Any, Any]:
    """np.modf."""
    integral = np.trunc(a)
    return a - integral, integral


COMPOSED: Final[dict[Any, Callable[..., Any]]] = {
    np.nanmax: extreme(largest, -np.inf),
    np.nanmin: extreme(smallest, np.inf),
    np.convolve: convolve,
    np.correlate: correlate,
    np.interp: interp,
    np.gradient: gradient,
    np.sinc: lambda x: whole(x).mapped(ops.sinc, (x,)),
    np.diagflat: lambda v, k=0: np.diag(ravel(whole(v)), k),
    (np.logaddexp, "accumulate"): logaddexp_accumulate,
    (np.logical_and, "accumulate"): truths_accumulate("min"),
    (np.logical_or, "accumulate"): truths_accumulate("max"),
    (np.bitwise_count, "__call__"): bitwise_count,
    (np.divmod, "__call__"): divmod_,
    (np.modf, "__call__"): modf,
    (np.vecdot, "__call__"): vecdot,
    (np.matvec, "__call__"): matvec,
    (np.vecmat, "__call__"): vecmat,
}
"""NumPy's functions, and ufuncs of their own, on whole arrays."""


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> WholeArray:
    """log(sum(b*exp(a))): see `symgrad.logsumexp`."""
    a = whole(a)
    shift = _shift(a, axis)
    terms = np.exp(a - shift) if b is None else b * np.exp(a - shift)
    sums = np.log(total(terms, axis, keepdims=True)) + shift
    return sums if keepdims else squeeze(sums, axes_of(a, axis))


def _shift(a: WholeArray, axis: Any) -> WholeArray:
    """The largest element, a constant to differentiation; 0 where it is not finite."""
    top = largest(a, axis, keepdims=True) if a.size else total(a, axis, keepdims=True)
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


def rounded(a: Any, decimals: int = 0, out: None = None) -> Any:
    """np.round."""
    refuse(out=out)
    if a.kind != "f" and decimals >= 0:
        return a
    unit = 10.0**decimals
    result = np.rint(a * unit) / unit if decimals else np.rint(a)
    return result.astype(a.dtype)


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

TABLE: Final[dict[Any, Callable[..., Any]]] = COMPOSITIONS | COMPOSED | views.TABLE | {
    "index": index,
    "at": WholeUpdates,
    np.reshape: reshape,
    np.ravel: ravel,
    np.broadcast_arrays: lambda *a: tuple(
        broadcast_to(whole(x, a), np.broadcast_shapes(*map(np.shape, a))) for x in a
    ),
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
    np.roll: roll,
    np.pad: pad,
    np.repeat: repeat,
    np.tile: tile,
    np.take: take,
    np.take_along_axis: take_along_axis,
    np.diag: diag,
    np.tril: triangle(1),
    np.triu: triangle(-1),
    np.meshgrid: meshgrid,
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
    np.round: rounded,
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
