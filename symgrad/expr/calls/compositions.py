"""NumPy's functions that others make up, each once: for arrays of expressions and whole arrays."""

from __future__ import annotations

import functools
import operator
import string
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle, Whole, whole_among
from symgrad.expr.linear.einsum import einsum
from symgrad.expr.linear.matrices import powers
from symgrad.expr.tracers.along import add_elements, axes_of, balanced, is_zero, reals, reduce_lists
from symgrad.expr.tracers.array import array, call, holds_expressions


def traced(a: Any, *others: Any) -> Any:
    """An operand: a whole array, numbers beside one of the others, or an array of expressions."""
    if isinstance(a, Whole):
        return a
    return array(a) if whole_among(others) is None else np.asarray(a)


def operands(*values: Any) -> list[Any]:
    """Operands that are whole arrays, if one of them is, or arrays of expressions."""
    whole = whole_among(values)
    return [array(v) if whole is None else whole.functions["whole"](v, *values) for v in values]


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


def real(a: Any, *others: Any) -> Any:
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


def kron(a: Any, b: Any) -> Any:
    """np.kron: every element of a times all of b."""
    a, b = traced(a, b), traced(b, a)
    rank = max(a.ndim, b.ndim)
    a, b = (np.reshape(x, (*[1] * (rank - x.ndim), *x.shape)) for x in (a, b))
    left = np.reshape(a, [k for n in a.shape for k in (n, 1)])
    right = np.reshape(b, [k for n in b.shape for k in (1, n)])
    return np.reshape(left * right, [m * n for m, n in zip(a.shape, b.shape, strict=True)])


# --- along an axis --------------------------------------------------------------------------------


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient: second-order differences, at the ends of order ``edge_order``."""
    f = traced(f, *varargs)
    axes = axes_of(axis, f.ndim)
    steps = list(varargs) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise TraceError(
            located("np.gradient takes one spacing for each axis, and edge_order 1 or 2")
        )
    slopes = [
        np.moveaxis(_slopes(np.moveaxis(f, k, 0), h, edge_order), 0, k)
        for k, h in zip(axes, steps, strict=True)
    ]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slopes(f: Any, spacing: Any, edge_order: int) -> Any:
    """The differences along the first axis, of points at a distance or at these places."""
    n, is_even = len(f), not np.ndim(spacing)
    if n < edge_order + 1:
        raise TraceError(located(f"np.gradient of {n} points: edge_order={edge_order} needs more"))
    if not is_even and np.shape(spacing) != (n,):
        raise TraceError(
            located(f"np.gradient of {n} points along an axis: places of shape {np.shape(spacing)}")
        )
    gaps = [spacing] * (n - 1) if is_even else np.diff(np.asarray(spacing, float))
    rows = [f[k % n : k % n + 1] for k in (0, 1, 2, -3, -2, -1) if -n <= k < n]
    if edge_order == 1:
        first, last = (rows[1] - rows[0]) / gaps[0], (rows[-1] - rows[-2]) / gaps[-1]
    else:
        first, last = _slope(rows[:3], gaps[:2], 0), _slope(rows[-3:], gaps[-2:], 2)
    if is_even:
        inner = (f[2:] - f[:-2]) / (2.0 * spacing)
    else:
        columns = [np.reshape(g, (-1, *[1] * (f.ndim - 1))) for g in (gaps[:-1], gaps[1:])]
        inner = _slope([f[:-2], f[1:-1], f[2:]], columns, 1)
    return np.concatenate([first, inner, last])


def _slope(values: Any, gaps: Any, at: int) -> Any:
    """The slope of the parabola through three points, by the distances between them, at one."""
    p, q = gaps
    weights = (
        (-(2.0 * p + q) / (p * (p + q)), (p + q) / (p * q), -p / (q * (p + q))),
        (-q / (p * (p + q)), (q - p) / (p * q), p / (q * (p + q))),
        (q / (p * (p + q)), -(p + q) / (p * q), (p + 2.0 * q) / (q * (p + q))),
    )[at]
    return weights[0] * values[0] + weights[1] * values[1] + weights[2] * values[2]


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """np.convolve: sums of products with windows of the longer array, between zeros."""
    a, v = map(np.atleast_1d, operands(a, v))
    if mode not in ("full", "same", "valid"):
        raise TraceError(located(f'np.convolve: mode={mode!r} is not "full", "same" or "valid"'))
    if a.ndim > 1 or v.ndim > 1 or not a.size or not v.size:
        raise TraceError(
            located(f"np.convolve takes rows that are not empty, not shapes {a.shape}, {v.shape}")
        )
    long, short = (a, v) if len(a) >= len(v) else (v, a)
    n, m = len(long), len(short)
    parts = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}
    first, size = parts[mode]
    zeros = np.zeros(m - 1, bool if a.dtype == v.dtype == bool else int)
    padded = np.concatenate([zeros, long, zeros])
    windows = padded[np.arange(first, first + size)[:, None] + np.arange(m)]
    return windows @ np.flip(short)


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """np.correlate."""
    a, v = map(np.atleast_1d, operands(a, v))
    if len(a) < len(v):
        return np.flip(correlate(v, a, mode))
    return convolve(a, np.flip(v), mode)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """np.linspace between numbers or arrays."""
    num = operator.index(num)
    if num < 0:
        raise TraceError(located(f"np.linspace of {num} points: they are 0 or more"))
    start, stop = np.broadcast_arrays(*operands(start, stop))
    step = (stop - start) * (1.0 / max(num - 1 if endpoint else num, 1))
    points = start + np.arange(num).reshape(-1, *[1] * start.ndim) * step
    if endpoint and num > 1:
        points = np.concatenate([points[:-1], stop[None]])
    if dtype is not None:
        points = (np.floor(points) if np.dtype(dtype).kind in "iu" else points).astype(dtype)
    points = np.moveaxis(points, 0, axis)
    return (points, step) if retstep else points


def rounded(a: Any, decimals: int = 0) -> Any:
    """np.round."""
    dtype, scale = getattr(a, "dtype", np.dtype(object)), 10.0 ** abs(decimals)
    if dtype.kind in "ib" and decimals >= 0:
        return a
    if not decimals:
        return np.rint(a)
    result = np.rint(a * scale) / scale if decimals > 0 else np.rint(a / scale) * scale
    return result if dtype.kind == "O" else result.astype(dtype)


def _places(indices: Any) -> Any:
    """Indices along one axis: truth values are the numbers 0 and 1, and no masks."""
    if isinstance(indices, (list, tuple, bool, slice)):
        indices = (array if holds_expressions(indices) else np.asarray)(indices)
        indices = indices if indices.size else indices.astype(np.intp)
    dtype = getattr(indices, "dtype", np.dtype(np.intp))
    if dtype.kind not in "biu" and not holds_expressions(indices):
        raise TypeError(f"np.take: indices are integers, not {indices!r}")
    return indices.astype(np.intp) if dtype.kind == "b" else indices


def take(a: Any, indices: Any, axis: int | None = None, mode: Any = "raise") -> Any:
    """np.take, also at computed indices: what is out of range is the nearest then."""
    whole = whole_among([a, indices])
    a = array(a) if whole is None else whole.functions["whole"](a, indices)
    a = a if a.ndim else np.ravel(a)
    a, axis = (np.ravel(a), 0) if axis is None else (a, *axes_of(axis, a.ndim))
    indices = _places(indices)
    if mode == "wrap":
        indices = np.remainder(indices, a.shape[axis])
    elif mode == "clip":
        indices = np.clip(indices, 0, a.shape[axis] - 1)
    if not axis or whole is not None or not holds_expressions(indices):
        return a[(*[slice(None)] * axis, indices)]
    lines, lead = np.moveaxis(a, axis, 0)[indices], range(np.ndim(indices))
    return np.moveaxis(lines, lead, [axis + k for k in lead])


# --- products -------------------------------------------------------------------------------------


def dot(a: Any, b: Any) -> Any:
    """np.dot."""
    a, b = traced(a, b), traced(b, a)
    if not a.ndim or not b.ndim:
        return a * b
    return a @ b if b.ndim <= 2 else np.tensordot(a, b, ([-1], [-2]))


def inner(a: Any, b: Any) -> Any:
    """np.inner: along the last axes of both."""
    a, b = traced(a, b), traced(b, a)
    return np.tensordot(a, b, ([-1], [-1])) if a.ndim and b.ndim else a * b


def outer(a: Any, b: Any) -> Any:
    """np.outer: of all elements, whatever the shapes."""
    return np.reshape(traced(a, b), (-1, 1)) * np.ravel(traced(b, a))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """np.tensordot."""
    a, b = traced(a, b), traced(b, a)
    if isinstance(axes, (int, np.integer)):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = (np.atleast_1d(k).tolist() for k in axes)
    left, right = axes_of(left, a.ndim), axes_of(right, b.ndim)
    if [a.shape[k] for k in left] != [b.shape[k] for k in right]:
        raise TraceError(located(f"np.tensordot: shapes {a.shape} and {b.shape} do not match"))
    summed, free = string.ascii_letters[: len(left)], iter(string.ascii_letters[len(left) :])
    first, second = (dict(zip(axes, summed, strict=True)) for axes in (left, right))
    letters = [
        "".join(own.get(k) or next(free) for k in range(x.ndim))
        for own, x in ((first, a), (second, b))
    ]
    output = "".join(c for c in "".join(letters) if c not in summed)
    return np.einsum(f"{','.join(letters)}->{output}", a, b)


def vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    """np.vecdot: the sums of products along an axis."""
    return np.sum(traced(a, b) * traced(b, a), axis=axis)


def matvec(a: Any, x: Any) -> Any:
    """np.matvec: matrices times vectors, along the last axes."""
    return (traced(a, x) @ traced(x, a)[..., :, None])[..., 0]


def vecmat(x: Any, a: Any) -> Any:
    """np.vecmat: vectors times matrices, along the last axes."""
    return (traced(x, a)[..., None, :] @ traced(a, x))[..., 0, :]


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.trace."""
    return np.sum(np.diagonal(traced(a), offset, axis1, axis2), axis=-1)


# --- norms ----------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: every norm of vectors; of matrices of expressions those without svd."""
    x = real(x)
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis).tolist())
    if axis is None and ord is None:
        return _length(x, axes, keepdims)
    if len(axes) > 2:
        raise TraceError(located("np.linalg.norm takes one axis, or two of a matrix"))
    if len(axes) < 2:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    return _matrix_norm(x, axes, keepdims, "fro" if ord is None else ord)


def vector_norm(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm, of any order."""
    x = real(x)
    if ord == 2:
        return _length(x, axis, keepdims)
    if ord == 0:
        return np.sum(np.where(x != 0.0, 1.0, 0.0), axis=axis, keepdims=keepdims)
    size = np.abs(x)
    if np.isinf(ord):
        return (np.max if ord > 0 else np.min)(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x: Any, axes: tuple[int, ...], keepdims: bool, ord: Any) -> Any:
    if ord == "fro":
        return _length(x, axes, keepdims)
    if ord in (1, -1, np.inf, -np.inf):
        summed, other = axes if abs(ord) == 1 else axes[::-1]
        sums = np.sum(np.abs(x), axis=summed, keepdims=True)
        result = (np.max if ord > 0 else np.min)(sums, axis=other, keepdims=True)
        return result if keepdims else np.squeeze(result, axes)[()]
    if ord not in ("nuc", 2, -2):
        raise ValueError("Invalid norm order for matrices.")
    if not isinstance(x, Whole):
        raise TraceError(
            located(f"np.linalg.norm(ord={ord!r}) of a matrix needs its singular values")
        )
    values = np.linalg.svdvals(np.moveaxis(x, axes, (-2, -1)))  # type: ignore[arg-type]
    result = np.sum(values, axis=-1) if ord == "nuc" else values[..., 0 if ord > 0 else -1]
    return np.expand_dims(result, axes) if keepdims else result


def _length(x: Any, axis: Any, keepdims: bool) -> Any:
    """The root of the sum of squares, of which none overflows or vanishes."""
    if isinstance(x, Whole):
        return x.functions["length"](x, axis, keepdims)
    return reduce_lists(length_of, x, axis, keepdims)


def length_of(elements: list[Any]) -> Any:
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


# --- choices --------------------------------------------------------------------------------------


def where(condition: Any, *branches: Any) -> Any:
    """np.where with both branches."""
    if len(branches) != 2:
        raise TraceError(located("np.where(condition) alone depends on values; give both branches"))
    return call(ops.where, condition, *branches)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip; limits of None leave that side open."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    a = a if low is None else np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """np.choose, by a computed index the choice that is nearest to it."""
    count, index = len(choices), traced(a, *choices)
    if mode == "wrap":
        index = np.remainder(index, count)
    elif mode == "clip":
        index = np.clip(index, 0, count - 1)
    elif not (isinstance(a, Whole) or holds_expressions(a) or np.isin(a, range(count)).all()):
        raise TraceError(located(f"np.choose of {count} takes none of number {a}"))
    half = 0 if index.dtype.kind in "bi" else 0.5
    result = choices[-1]
    for k in reversed(range(max(count - 1, 1))):
        result = np.where(index <= k + half, choices[k], result)
    return result


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """np.select: the choice of the first condition that holds."""
    if len(condlist) != len(choicelist):
        raise TraceError(located("np.select takes as many choices as conditions"))
    pairs = list(zip(condlist, choicelist, strict=True))
    return functools.reduce(lambda rest, pair: np.where(*pair, rest), reversed(pairs), default)


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """np.piecewise: of conditions that hold together the last one counts."""
    x = traced(x, condlist)[()]
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    if not len(conditions) <= len(funclist) <= len(conditions) + 1:
        raise TraceError(
            located("np.piecewise takes one function for each condition, and one more for the rest")
        )
    values: list[Any] = [f(x, *args, **kw) if callable(f) else f for f in funclist]
    result: Any = values.pop() if len(values) > len(conditions) else 0.0
    for condition, value in zip(conditions, values, strict=True):
        result = np.where(condition, value, result)
    return result


def modf(x: Any) -> tuple[Any, Any]:
    """np.modf."""
    x = real(x)
    integral = np.trunc(x)
    return x - integral, integral


UFUNCS_COMPOSED: Final[dict[Any, Callable[..., Any]]] = {
    np.divmod: lambda a, b: (np.floor_divide(a, b), np.remainder(a, b)),
    np.modf: modf,
    np.vecdot: vecdot,
    np.matvec: matvec,
    np.vecmat: vecmat,
}
"""NumPy's ufuncs that are made up of others."""

COMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.gradient: gradient,
    np.convolve: convolve,
    np.correlate: correlate,
    np.linspace: linspace,
    np.round: rounded,
    np.take: take,
    np.unstack: lambda x, /, *, axis=0: tuple(np.moveaxis(traced(x), axis, 0)),
    np.diff: diff,
    np.ediff1d: ediff1d,
    np.trapezoid: trapezoid,
    np.cross: cross,
    np.linalg.cross: lambda x, y, axis=-1: cross(x, y, axis=axis),
    np.linalg.matrix_power: matrix_power,
    np.vander: vander,
    np.polyval: polyval,
    np.kron: kron,
    np.choose: choose,
    np.select: select,
    np.piecewise: piecewise,
    np.clip: clip,
    np.where: where,
    np.sinc: lambda x: call(ops.sinc, x),
    np.real: lambda val: val,
    np.dot: dot,
    np.inner: inner,
    np.outer: outer,
    np.tensordot: tensordot,
    np.einsum: einsum,
    np.trace: trace,
    np.linalg.norm: norm,
    np.linalg.vector_norm: vector_norm,
    np.linalg.matrix_norm: lambda x, *, keepdims=False, ord="fro": norm(x, ord, (-2, -1), keepdims),
    np.vdot: lambda a, b: np.dot(np.ravel(traced(a, b)), np.ravel(traced(b, a))),
    np.linalg.multi_dot: lambda arrays: functools.reduce(np.matmul, arrays),
    np.linalg.matmul: lambda x1, x2: np.matmul(x1, x2),
    np.linalg.outer: lambda x1, x2: np.outer(x1, x2),
    np.linalg.tensordot: lambda x1, x2, *, axes=2: np.tensordot(x1, x2, axes),
    np.linalg.trace: lambda x, offset=0: np.trace(x, offset, -2, -1),
    np.isposinf: lambda x: np.equal(x, np.inf),
    np.isneginf: lambda x: np.equal(x, -np.inf),
}
"""NumPy's functions that are made up of others."""
