"""NumPy's functions that arrange elements: views, joins, splits, copies along axes, choices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.indexing import WholeUpdates, index
from symgrad.arrays.tape import broadcast, size_of
from symgrad.arrays.views import broadcast_to, expand_dims, transpose, viewed
from symgrad.arrays.whole import DTYPES, WholeArray, flat, innermost
from symgrad.expr.calls.compositions import take, where
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.tracers import along

# --- arguments: arrays, axes, and options that are refused ----------------------------------------

NOT_GIVEN: Final = inspect.signature(np.sum).parameters["initial"].default
"""The default of NumPy's options that may be None."""


_NESTS: Final = WholeArray, list, tuple


def whole(value: Any, *others: Any) -> WholeArray:
    """A value as a whole array, of the tape of the first one that is among all."""
    if type(value) is WholeArray and not any(isinstance(o, _NESTS) for o in others):
        return value
    return innermost(list(flat([value, *others]))).lift(value)


def axis_of(axis: int, ndim: int) -> int:
    """The number of an axis, from the front.

    Raises:
        AxisError: if there is none.
    """
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return int(axis) % ndim


def axes_of(a: WholeArray, axis: Any) -> tuple[int, ...]:
    """The axes that a reduction is over, in order."""
    return tuple(sorted(along.axes_of(axis, a.ndim)))


def reshape(
    a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> WholeArray:
    """np.reshape."""
    a = whole(a)
    wanted = newshape if shape is None else shape
    new = [int(n) for n in (wanted if isinstance(wanted, (tuple, list)) else [wanted])]
    if order == "F":
        return transpose(reshape(transpose(a), new[::-1]))
    if new.count(-1) == 1:
        rest = -size_of(new)
        new[new.index(-1)] = a.size // rest if rest > 0 else 0
    if size_of(new) != a.size or min(new, default=0) < 0:
        raise ValueError(f"cannot reshape array of size {a.size} into shape {wanted}")
    shape = tuple(new)
    return a if shape == a.shape else a.then(rules.reshaped, None, shape)


def ravel(a: Any, order: str = "C") -> WholeArray:
    """np.ravel."""
    return reshape(a, -1, order)


# --- joining and splitting ------------------------------------------------------------------------


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> WholeArray:
    """np.concatenate."""
    parts = [whole(a, arrays) for a in arrays]
    if axis is None:
        parts, axis = [ravel(p) for p in parts], 0
    axis = axis_of(axis, parts[0].ndim)
    rests = {(*p.shape[:axis], *p.shape[axis + 1 :]) for p in parts}
    if len(rests) > 1:
        raise ValueError(f"np.concatenate of shapes {[p.shape for p in parts]} along axis {axis}")
    first = parts[0]
    length = sum(p.shape[axis] for p in parts)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    kind = max((p.kind for p in parts), key="bif".index)
    if len(parts) == 1:
        return first.copied()
    parts = [p.astype(DTYPES[kind]) for p in parts]
    return parts[0].then(rules.joined, axis, shape, *parts[1:], kind=kind)


def stack(arrays: Sequence[Any], axis: int = 0) -> WholeArray:
    """np.stack."""
    return concatenate([expand_dims(whole(a, arrays), axis) for a in arrays], axis)


def at_least(function: Any) -> Callable[..., Any]:
    """np.atleast_1d and its kin."""

    def grown(*arrays: Any) -> Any:
        results = [viewed(function, whole(a, arrays)) for a in arrays]
        return results[0] if len(results) == 1 else tuple(results)

    return grown


at_least_1d, at_least_2d, at_least_3d = map(at_least, (np.atleast_1d, np.atleast_2d, np.atleast_3d))


def hstack(tup: Sequence[Any]) -> WholeArray:
    """np.hstack."""
    parts = [at_least_1d(whole(a, tup)) for a in tup]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tup: Sequence[Any]) -> WholeArray:
    """np.vstack."""
    return concatenate([at_least_2d(whole(a, tup)) for a in tup])


def dstack(tup: Sequence[Any]) -> WholeArray:
    """np.dstack."""
    return concatenate([at_least_3d(whole(a, tup)) for a in tup], 2)


def column_stack(tup: Sequence[Any]) -> WholeArray:
    """np.column_stack."""
    parts = [whole(a, tup) for a in tup]
    return concatenate([p if p.ndim > 1 else reshape(p, (-1, 1)) for p in parts], 1)


def roll(a: Any, shift: Any, axis: Any = None) -> WholeArray:
    """np.roll, by known integers or computed ones."""
    a = whole(a)
    if axis is None:
        return reshape(roll(ravel(a), np.sum(shift), 0), a.shape)
    shifts, axes = ([*v] if np.ndim(v) else [v] for v in (shift, axis))
    many = max(len(shifts), len(axes))
    shifts, axes = (v * many if len(v) == 1 else v for v in (shifts, axes))
    for s, k in zip(shifts, axes, strict=True):
        k = axis_of(int(k), a.ndim)
        n, lead = a.shape[k], (slice(None),) * k
        if isinstance(s, WholeArray):
            a = index(a, (*lead, (np.arange(n) - s) % max(n, 1)))
        elif n and (s := int(s) % n):
            parts = [index(a, (*lead, slice(n - s, n))), index(a, (*lead, slice(0, n - s)))]
            a = concatenate(parts, k)
    return a.copied()


PADDED_BY_ELEMENTS: Final = ("constant", "edge", "reflect", "symmetric", "wrap")
"""The modes of np.pad whose new elements are constants or copies."""

STATISTICS: Final[dict[str, Callable[..., Any]]] = {
    "maximum": np.max, "minimum": np.min, "mean": np.mean, "median": np.median,
}  # fmt: skip
"""The modes of np.pad whose new elements are a statistic of the first, or the last, ones."""


def pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> WholeArray:
    """np.pad, by all modes but a function."""
    a = whole(array)
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, (0, 0)) for k in range(a.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2)).tolist()
    if mode in STATISTICS or mode == "linear_ramp":
        return _padded_by_ends(a, widths, mode, **options)
    is_odd = options.get("reflect_type", "even") != "even"
    if mode not in PADDED_BY_ELEMENTS:
        raise ElementsNeededError(f"np.pad by {mode}, {options}")
    values = np.broadcast_to(np.asarray(options.get("constant_values", 0)), (a.ndim, 2)).tolist()
    for k, (before, behind) in enumerate(widths):
        if mode == "constant":
            ends = zip((before, behind), values[k], strict=True)
            numbers = [(n, a.lift(np.full((), v, a.dtype))) for n, v in ends]
            parts = [
                broadcast_to(v, (*a.shape[:k], n, *a.shape[k + 1 :])) if n else None
                for n, v in numbers
            ]
        else:
            whole_line: Any = np.arange(a.shape[k])
            line = np.pad(whole_line, (before, behind), mode)  # type: ignore[call-overload]
            ends = [line[:before], line[len(line) - behind :]]
            parts = [take(a, e, k) if len(e) else None for e in ends]
            if is_odd:
                parts = _about_the_ends(a, k, parts, _odd_shares(a.shape[k], before, behind, mode))
        a = concatenate([p for p in (parts[0], a, parts[1]) if p is not None], k)
    return a.copied()


def _odd_shares(n: int, before: int, behind: int, mode: Any) -> list[np.ndarray]:
    """The shares of an axis' first and last element in its reflections about their values.

    The rest is the element that is reflected, since all shares are 1 together.
    """
    first, last = np.zeros((2, n), int)
    first[0] = 1
    last[-1] = int(n > 1)
    return [np.pad(x, (before, behind), mode, reflect_type="odd") for x in (first, last)]


def _about_the_ends(
    a: WholeArray, k: int, parts: Sequence[WholeArray | None], shares: Sequence[np.ndarray]
) -> list[WholeArray | None]:
    """The elements ``parts`` that stand before and behind an axis, reflected about its ends."""

    def along(x: np.ndarray) -> np.ndarray:
        return x.astype(a.dtype).reshape(-1, *[1] * (a.ndim - k - 1))

    def share_of(x: Any, share: np.ndarray) -> Any:  # of infinity no share is 0
        return x * share if np.all(share) else where(share != 0, x * share, 0.0)

    def reflected(part: WholeArray | None, places: slice) -> Any:
        if part is None:
            return None
        first, last = (x[places] for x in shares)
        terms = [(part, 1 - first - last), (take(a, [0], k), first), (take(a, [-1], k), last)]
        return sum(share_of(x, along(share)) for x, share in terms if np.any(share))

    before = 0 if parts[0] is None else parts[0].shape[k]
    return [
        reflected(parts[0], slice(before)),
        reflected(parts[1], slice(before + a.shape[k], None)),
    ]


def _padded_by_ends(
    a: WholeArray, widths: Sequence[Sequence[int]], mode: str, stat_length: Any = None,
    end_values: Any = 0,
) -> WholeArray:  # fmt: skip
    """np.pad by a statistic, or by lines to known ends, one axis after another."""
    lengths = np.broadcast_to(np.asarray(stat_length), (a.ndim, 2)).tolist()
    ends = np.broadcast_to(np.asarray(end_values), (a.ndim, 2)).tolist()
    for k, both in enumerate(widths):
        parts, lead, n = [a], (slice(None),) * k, a.shape[k]
        for side, width in enumerate(both):
            if not width:
                continue
            count = 1 if mode == "linear_ramp" else min(lengths[k][side] or n, n)
            edge = index(a, (*lead, slice(n - count, n) if side else slice(0, count)))
            if mode == "linear_ramp":
                place = np.arange(width)[:: -1 if side else 1].reshape(-1, *[1] * (a.ndim - k - 1))
                change = edge - ends[k][side]
                part = change * place // width if a.kind == "i" else change * (place / width)
                part = ends[k][side] + part
            else:
                part = STATISTICS[mode](edge, axis=k, keepdims=True)
                if a.kind == "i":
                    part = np.rint(part)
                part = broadcast_to(part, (*a.shape[:k], width, *a.shape[k + 1 :]))
            parts.insert(len(parts) if side else 0, part.astype(a.dtype))
        a = concatenate(parts, k)
    return a.copied()


def repeat(a: Any, repeats: Any, axis: int | None = None) -> WholeArray:
    """np.repeat."""
    a = ravel(a) if axis is None else whole(a)
    k = axis_of(axis or 0, a.ndim)
    if np.ndim(repeats):
        return take(a, np.repeat(np.arange(a.shape[k]), repeats), k)
    shape = (*a.shape[: k + 1], int(repeats), *a.shape[k + 1 :])
    wide = broadcast_to(expand_dims(a, k + 1), shape)
    shape = (*a.shape[:k], a.shape[k] * int(repeats), *a.shape[k + 1 :])
    return reshape(wide, shape).copied()


def tile(A: Any, reps: Any) -> WholeArray:
    """np.tile."""
    a, counts = whole(A), [int(r) for r in np.atleast_1d(reps)]
    ndim = max(a.ndim, len(counts))
    shape = (1,) * (ndim - a.ndim) + a.shape
    counts = [1] * (ndim - len(counts)) + counts
    apart = reshape(a, [m for n in shape for m in (1, n)])
    wide = broadcast_to(apart, [m for c, n in zip(counts, shape, strict=True) for m in (c, n)])
    return reshape(wide, [c * n for c, n in zip(counts, shape, strict=True)]).copied()


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> WholeArray:
    """np.take_along_axis."""
    a = whole(arr, indices)
    if axis is None:
        return take(ravel(a), indices)
    axis = axis_of(axis, a.ndim)
    at = whole(indices, a)
    shape = broadcast(
        [tuple(1 if k == axis else n for k, n in enumerate(s)) for s in (a.shape, at.shape)]
    )
    places = [
        at if k == axis else np.arange(n).reshape([-1 if d == k else 1 for d in range(a.ndim)])
        for k, n in enumerate(shape)
    ]
    return index(a, tuple(places))


def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False) -> list[WholeArray]:
    """np.meshgrid."""
    lines = [ravel(whole(x, xi)) for x in xi]
    order = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(lines)
    for place, line in zip(order, lines, strict=True):
        shape[place] = line.size
    grids = [
        reshape(line, [-1 if k == place else 1 for k in range(len(lines))])
        for place, line in zip(order, lines, strict=True)
    ]
    return grids if sparse else [broadcast_to(g, shape) for g in grids]


# --- choices: where, clip, diagonals, triangles, fillings -----------------------------------------


def like(value: float | None) -> Callable[..., Any]:
    """np.zeros_like and its kin; integers and truth values stay known, to be indices and masks."""

    def function(a: Any, fill: Any = value, dtype: Any = None, shape: Any = None) -> Any:
        if isinstance(fill, WholeArray):
            return broadcast_to(fill, shape or a.shape)
        kind = a.dtype if dtype is None else np.dtype(dtype)
        numbers = np.full(a.shape if shape is None else shape, fill, kind)
        return a.lift(numbers) if kind.kind == "f" else numbers

    return function


def diag(v: Any, k: int = 0) -> WholeArray:
    """np.diag: a diagonal of a matrix, or a matrix with this diagonal."""
    v = whole(v)
    if v.ndim == 2:
        return viewed(np.diagonal, v, k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    columns = pad(v, (max(k, 0), max(-k, 0)))
    return where(np.eye(columns.size, k=k) > 0, columns, v.lift(np.zeros((), v.dtype)))


def triangle(sign: int) -> Callable[..., WholeArray]:
    """np.tril, or np.triu with sign -1."""

    def function(m: Any, k: int = 0) -> WholeArray:
        m = whole(m)
        m = broadcast_to(m, m.shape * 2) if m.ndim == 1 else m
        rows, columns = m.shape[-2:]
        i, j = np.arange(rows)[:, None], m.lift(np.arange(columns))
        beyond = j - (i + k) if sign > 0 else (i + k) - j
        return where(beyond <= 0, m, m.lift(np.zeros((), m.dtype)))

    return function


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    "whole": whole,
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
    np.take_along_axis: take_along_axis,
    np.diag: diag,
    np.diagflat: lambda v, k=0: np.diag(ravel(whole(v)), k),
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
    np.iscomplexobj: lambda x: False,
    np.isrealobj: lambda x: True,
    np.conjugate: lambda a: a,
}
"""NumPy's functions on whole arrays."""
