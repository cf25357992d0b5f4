"""Functions composed of reductions: differences, integrals, averages, softmaxes, polynomials."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import numpy as np

from symgrad.arrays.arguments import axes_of, axis_of, whole
from symgrad.arrays.choices import where
from symgrad.arrays.reductions import count_of, largest, mean, total
from symgrad.arrays.shapes import (
    broadcast_to,
    concatenate,
    expand_dims,
    moveaxis,
    squeeze,
    transpose,
)
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> WholeArray:
    """np.diff."""
    a = moveaxis(whole(a, prepend, append), axis, -1)
    ends = [_end(a, axis, e) for e in (prepend, append)]
    a = concatenate([p for p in (ends[0], a, ends[1]) if p is not None], -1)
    for _k in range(n):
        a = a[..., 1:] - a[..., :-1]
    return moveaxis(a, -1, axis)


def _end(a: WholeArray, axis: int, value: Any) -> WholeArray | None:
    """Elements before or behind the last axis, which was another one: a number stands for all."""
    if value is None or value is NO_END:
        return None
    end = a.lift(value)
    return moveaxis(end, axis, -1) if end.ndim else broadcast_to(end, (*a.shape[:-1], 1))


NO_END: Final = inspect.signature(np.diff).parameters["prepend"].default


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> WholeArray:
    """np.trapezoid."""
    y = whole(y, x)
    widths = dx
    if x is not None:
        x = whole(x, y)
        widths = moveaxis(diff(x, axis=axis), axis, -1) if x.ndim == y.ndim else diff(x)
    line = moveaxis(y, axis, -1)
    return total((line[..., 1:] + line[..., :-1]) * widths * 0.5, -1)


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """np.average: weights of one axis are along the axis of the average."""
    a = whole(a, weights)
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        sums = broadcast_to(a.lift(count_of(a, axis, True)), result.shape)
        return (result, sums) if returned else result
    weights = a.lift(weights)
    if weights.shape != a.shape:
        if axis is None or weights.shape != tuple(a.shape[k] for k in np.atleast_1d(axis)):
            raise ValueError(f"np.average: weights of shape {weights.shape} for {a.shape}")
        order = [axis_of(k, a.ndim) for k in np.atleast_1d(axis)]
        lines = transpose(weights, np.argsort(order).tolist())
        weights = expand_dims(lines, [k for k in range(a.ndim) if k not in order])
    wide = broadcast_to(weights, a.shape)
    sums = total(wide, axis, keepdims=keepdims)
    result = total(a * wide, axis, keepdims=keepdims) / sums
    return (result, sums) if returned else result


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


def polyval(p: Any, x: Any) -> Any:
    """np.polyval."""
    return functools.reduce(lambda y, c: y * x + c, p, 0.0)
