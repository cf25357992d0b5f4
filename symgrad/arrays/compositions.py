"""NumPy's functions that others make up: of statistics, interpolation, signals, missing numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.arrays.arguments import axes_of, refuse, whole
from symgrad.arrays.choices import where
from symgrad.arrays.loops import scan
from symgrad.arrays.products import matmul
from symgrad.arrays.reductions import largest, running, smallest
from symgrad.arrays.shapes import (
    concatenate,
    flip,
    moveaxis,
    pad,
    ravel,
    reshape,
    swapaxes,
)
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops
from symgrad.expr.calls.compositions import matvec, vecdot, vecmat
from symgrad.expr.graph.node import ElementsNeededError

# --- missing numbers ------------------------------------------------------------------------------


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


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> WholeArray:
    """np.rot90."""
    m = whole(m)
    first, second = axes
    turned = {
        0: lambda: m,
        1: lambda: swapaxes(flip(m, second), first, second),
        2: lambda: flip(flip(m, first), second),
        3: lambda: flip(swapaxes(m, first, second), second),
    }
    return turned[k % 4]()


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


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    np.nanmax: extreme(largest, -np.inf),
    np.nanmin: extreme(smallest, np.inf),
    np.convolve: convolve,
    np.correlate: correlate,
    np.interp: interp,
    np.gradient: gradient,
    np.rot90: rot90,
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
