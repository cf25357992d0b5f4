"""NumPy's functions that are no ufuncs, on arrays of expressions and on single ones."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.array import (
    accumulate,
    add_elements,
    array,
    call,
    map_elements,
    matmul,
    multiply_elements,
    plain,
    reduce,
)
from symgrad.expr.misuse import located


def _dot(a: Any, b: Any) -> Any:
    a, b = plain(a), plain(b)
    if not a.ndim or not b.ndim:
        return map_elements(operator.mul, a, b)
    if a.ndim > 2 or b.ndim > 2:
        raise TraceError(located("np.dot of expressions takes at most 2 dimensions; use @"))
    return matmul(a, b)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = plain(x)
    if ord not in (None, 2, "fro", 1, np.inf) or (
        ord in (1, 2, np.inf) and axis is None and x.ndim > 1
    ):
        raise TraceError(located(f"np.linalg.norm(ord={ord!r}) is not defined for expressions"))
    if ord in (1, np.inf):
        function = add_elements if ord == 1 else ops.maximum
        return reduce(function, map_elements(operator.abs, x), axis, keepdims)
    total = reduce(add_elements, map_elements(lambda v: v * v, x), axis, keepdims)
    return call(ops.sqrt, total)


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise TraceError(located("np.where(condition) alone depends on values; give both branches"))
    return call(ops.where, condition, *branches)


def _mean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    a = plain(a)
    count = a.size if axis is None else np.prod([a.shape[k] for k in np.atleast_1d(axis)])
    return reduce(add_elements, a, axis, keepdims) / int(count)


def _var(a: Any, axis: Any = None, ddof: int = 0) -> Any:
    a = plain(a)
    count = a.size if axis is None else a.shape[axis]
    centred = array(a) - _mean(a, axis, keepdims=True)
    return reduce(add_elements, centred * centred, axis) / (count - ddof)


def _average(a: Any, axis: Any, weights: Any) -> Any:
    if weights is None:
        return _mean(a, axis)
    return _sum(array(a) * weights, axis) / _sum(weights, axis)


def _trapezoid(y: Any, x: Any, dx: float) -> Any:
    y = array(y)
    steps = dx if x is None else np.diff(x)
    return _sum((y[..., 1:] + y[..., :-1]) * steps * 0.5, axis=-1)


def _cross(a: Any, b: Any) -> Any:
    a, b = array(a), array(b)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise TraceError(located("np.cross of expressions takes vectors of 3 components"))
    left = a[..., [1, 2, 0]] * b[..., [2, 0, 1]]
    return left - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]


def _tensordot(a: Any, b: Any, axes: Any) -> Any:
    if not isinstance(axes, int):
        raise TraceError(
            located("np.tensordot of expressions takes a number of axes; use np.einsum")
        )
    a, b = plain(a), plain(b)
    letters = "abcdefghijklmnopqrstuvwxyz"
    left, right = letters[: a.ndim], letters[a.ndim - axes :][: b.ndim]
    return _einsum(f"{left},{right}->{left[: a.ndim - axes]}{right[axes:]}", a, b)


def _einsum(subscripts: str, *operands: Any) -> Any:
    """np.einsum with letters only: broadcast to all indices, multiply, sum as balanced trees."""
    inputs, _, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "." in subscripts or any(len(set(t)) < len(t) for t in terms):
        raise TraceError(located(f"np.einsum({subscripts!r}): no ellipsis, no repeated letter"))
    once = sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1)
    output = output if "->" in subscripts else "".join(once)
    letters = output + "".join(sorted(set(inputs) - set(output) - {","}))
    aligned = [_align(plain(a), t, letters) for a, t in zip(operands, terms, strict=True)]
    product = functools.reduce(lambda a, b: map_elements(multiply_elements, a, b), aligned)
    summed = tuple(range(len(output), len(letters)))
    return _sum(product, summed) if summed else product


def _align(a: Any, term: str, letters: str) -> Any:
    moved = a.transpose([term.index(c) for c in letters if c in term])
    return moved[tuple(slice(None) if c in term else None for c in letters)]


def clip(a: Any, low: Any = None, high: Any = None) -> Any:
    """Limits of None leave that side open."""
    a = a if low is None else call(ops.maximum, a, low)
    return a if high is None else call(ops.minimum, a, high)


def _round(a: Any, decimals: int = 0) -> Any:
    if decimals:
        raise TraceError(located("np.round of expressions rounds to whole numbers only"))
    return call(ops.round, a)


def _sum(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return reduce(add_elements, a, axis, keepdims, initial)


def _outer(column: Any, row: Any) -> Any:
    return map_elements(multiply_elements, column, row)


def _cumulate(function: Callable[[Any, Any], Any], a: Any, axis: int | None) -> Any:
    return accumulate(function, plain(a).ravel() if axis is None else a, axis or 0)


def _differences(v: Any, _: int) -> Any:
    return v[..., 1:] - v[..., :-1]


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.where: _where,
    np.sum: _sum,
    np.prod: lambda a, axis=None: reduce(operator.mul, a, axis),
    np.amax: lambda a, axis=None: reduce(ops.maximum, a, axis),
    np.amin: lambda a, axis=None: reduce(ops.minimum, a, axis),
    np.max: lambda a, axis=None: reduce(ops.maximum, a, axis),
    np.min: lambda a, axis=None: reduce(ops.minimum, a, axis),
    np.average: lambda a, axis=None, weights=None: _average(a, axis, weights),
    np.einsum: lambda *args: _einsum(*args),
    np.tensordot: lambda a, b, axes=2: _tensordot(a, b, axes),
    np.cross: lambda a, b: _cross(a, b),
    np.polyval: lambda p, x: functools.reduce(lambda y, c: y * x + c, p, 0),
    np.trapezoid: lambda y, x=None, dx=1.0: _trapezoid(y, x, dx),
    np.mean: _mean,
    np.var: _var,
    np.std: lambda a, axis=None, ddof=0: call(ops.sqrt, _var(a, axis, ddof)),
    np.dot: _dot,
    np.vdot: lambda a, b: matmul(plain(a).ravel(), plain(b).ravel()),
    np.inner: lambda a, b: _dot(a, plain(b).T),
    np.linalg.norm: _norm,
    np.clip: lambda a, *limits, **named: clip(a, *limits, **named),
    np.round: _round,
    np.cumsum: lambda a, axis=None: _cumulate(add_elements, a, axis),
    np.cumprod: lambda a, axis=None: _cumulate(operator.mul, a, axis),
    np.trace: lambda a: reduce(add_elements, np.diagonal(plain(a))),
    np.outer: lambda a, b: _outer(plain(a).reshape(-1, 1), plain(b).ravel()),
    np.diff: lambda a, n=1: functools.reduce(_differences, range(n), array(a)),
    np.sinc: lambda x: call(ops.sinc, x),
    np.real: lambda x: x,
}  # fmt: skip

MOVES: Final = {
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims,
    np.concatenate, np.stack, np.hstack, np.vstack, np.dstack, np.column_stack, np.split,
    np.array_split, np.hsplit, np.vsplit, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.tile,
    np.repeat, np.roll, np.flip, np.flipud, np.fliplr, np.rot90, np.diag, np.diagonal, np.take,
    np.broadcast_to, np.broadcast_arrays, np.shape, np.ndim, np.size, np.copy, np.append,
    np.delete, np.insert, np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.tril,
    np.triu, np.meshgrid, np.array_repr, np.array_str, np.array2string, np.result_type, np.rollaxis,
    np.copyto, np.may_share_memory, np.shares_memory, np.resize, np.pad, np.kron,
}  # fmt: skip
"""Functions that only move elements, and so are right for any objects."""
