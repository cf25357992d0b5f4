"""NumPy's functions that others make up, each once: for arrays of expressions and whole arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.whole import Whole, whole_among
from symgrad.expr.tracers.along import reals
from symgrad.expr.tracers.array import array


def traced(a: Any, *others: Any) -> Any:
    """An operand: a whole array, numbers beside one of the others, or an array of expressions."""
    if isinstance(a, Whole):
        return a
    return array(a) if whole_among(others) is None else np.asarray(a)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """np.diff."""
    line = np.moveaxis(traced(a, prepend, append), axis, -1)
    before, behind = (
        [] if e is None else [_end(traced(e, a), line, axis)] for e in (prepend, append)
    )
    if before or behind:
        line = np.concatenate([*before, line, *behind], axis=-1)
    for _ in range(n):
        line = line[..., 1:] - line[..., :-1]
    return np.moveaxis(line, -1, axis)


def _end(end: Any, line: Any, axis: int) -> Any:
    """Elements before or behind the last axis, which was another one: a number stands for all."""
    if end.ndim:
        return np.moveaxis(end, axis, -1)
    return np.broadcast_to(end, (*line.shape[:-1], 1))


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """np.ediff1d."""
    steps = np.diff(np.ravel(traced(ary, to_end, to_begin)))
    parts = [to_begin, steps, to_end]
    if to_end is None and to_begin is None:
        return steps
    return np.concatenate([np.ravel(traced(p, *parts)) for p in parts if p is not None])


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """np.trapezoid."""
    line, widths = np.moveaxis(traced(y, x), axis, -1), dx
    if x is not None:
        x = traced(x, y)
        widths = np.diff(x) if x.ndim == 1 else np.moveaxis(np.diff(x, axis=axis), axis, -1)
    return np.sum((line[..., 1:] + line[..., :-1]) * widths * 0.5, axis=-1)


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    """np.cov, without weights."""
    operands = (m,) if y is None else (m, y)
    rows = [np.atleast_2d(_real(v, *operands)) for v in operands]
    rows = [r if rowvar or len(r) == 1 else r.T for r in rows]
    x = np.concatenate(rows) if len(rows) > 1 else rows[0]
    centred = x - np.mean(x, axis=-1, keepdims=True)
    result = centred @ centred.T / (x.shape[-1] - ((not bias) if ddof is None else ddof))
    return result if len(x) > 1 else result[0, 0]


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """np.average: weights of some axes are along those of the average."""
    a = _real(a, weights)
    if weights is None:
        result = np.mean(a, axis=axis, keepdims=keepdims)
        count = a.size / max(np.size(result), 1)
        return (result, np.full(np.shape(result), count)) if returned else result
    wide = _along(_real(weights, a), a, axis)
    sums = np.sum(wide, axis=axis, keepdims=keepdims)
    result = np.sum(a * wide, axis=axis, keepdims=keepdims) / sums
    return (result, sums) if returned else result


def _along(weights: Any, a: Any, axis: Any) -> Any:
    """Weights of the shape of an array, of which they have the axes of an average, or all."""
    if weights.shape == a.shape:
        return weights
    axes = [] if axis is None else [range(a.ndim)[k] for k in np.atleast_1d(axis)]
    if weights.shape != tuple(a.shape[k] for k in axes):
        raise ValueError(f"np.average: weights of shape {weights.shape} for {a.shape}")
    lines = np.transpose(weights, np.argsort(axes).tolist())
    shape = [n if k in axes else 1 for k, n in enumerate(a.shape)]
    return np.broadcast_to(np.reshape(lines, shape), a.shape)


def matrix_power(a: Any, n: int) -> Any:
    """np.linalg.matrix_power, by repeated squaring."""
    a = traced(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TraceError(located(f"linalg.matrix_power takes square matrices, not {a.shape}"))
    if n < 0:
        return matrix_power(np.linalg.inv(a), -n)
    result = None
    while n:
        if n & 1:
            result = a if result is None else result @ a
        n >>= 1
        a = a @ a if n else a
    return np.zeros_like(a) + np.eye(a.shape[-1]) if result is None else result


def _real(a: Any, *others: Any) -> Any:
    """An operand whose elements are real numbers."""
    a = traced(a, *others)
    return a if isinstance(a, Whole) or a.dtype != object else array(reals(a))


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """np.cross of vectors of three components."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(traced(a, b), axisa, -1), np.moveaxis(traced(b, a), axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise TraceError(located("np.cross of expressions takes vectors of 3 components"))
    x, y, z = (a[..., k] for k in range(3))
    u, v, w = (b[..., k] for k in range(3))
    product = np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)
    return np.moveaxis(product, -1, axisc)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """np.vander."""
    x = traced(x)
    powers = [x**k for k in range(len(x) if N is None else N)]
    return np.stack(powers if increasing else powers[::-1], axis=-1)


def polyval(p: Any, x: Any) -> Any:
    """np.polyval, by Horner's rule."""
    return functools.reduce(lambda y, c: y * x + c, p, 0.0)


COMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.diff: diff,
    np.ediff1d: ediff1d,
    np.trapezoid: trapezoid,
    np.cov: cov,
    np.average: average,
    np.cross: cross,
    np.linalg.cross: lambda x, y, axis=-1: cross(x, y, axis=axis),
    np.linalg.matrix_power: matrix_power,
    np.vander: vander,
    np.polyval: polyval,
    np.isposinf: lambda x: np.equal(x, np.inf),
    np.isneginf: lambda x: np.equal(x, -np.inf),
}
"""NumPy's functions that are made up of others."""
