"""NumPy's functions of whole arrays: views, reductions, products, and what is composed of these."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.indexing import Updates, diagonal, index
from symgrad.arrays.tape import broadcast, size_of
from symgrad.arrays.whole import DTYPES, WholeArray, flat, innermost
from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.linear.einsum import letters_of, pairs_of
from symgrad.expr.tracers.whole import ElementsNeededError, whole_among

NOT_GIVEN: Final = inspect.signature(np.sum).parameters["initial"].default


def whole(value: Any, *others: Any) -> WholeArray:
    """A value as a whole array, of the tape of the first one that is among all."""
    return innermost(list(flat([value, *others]))).lift(value)


# --- views ----------------------------------------------------------------------------------------


def transpose(a: Any, axes: Any = None) -> WholeArray:
    """np.transpose."""
    a = whole(a)
    order = tuple(range(a.ndim))[::-1] if axes is None else tuple(_axis(k, a.ndim) for k in axes)
    if sorted(order) != list(range(a.ndim)):
        raise ValueError(f"axes {axes} do not fit an array of {a.ndim} axes")
    if order == tuple(range(a.ndim)):
        return a
    return a.then(rules.transposed, order, tuple(a.shape[k] for k in order))


def swapaxes(a: Any, axis1: int, axis2: int) -> WholeArray:
    """np.swapaxes."""
    order = list(range(whole(a).ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(a, order)


def moveaxis(a: Any, source: Any, destination: Any) -> WholeArray:
    """np.moveaxis."""
    a = whole(a)
    sources = [_axis(k, a.ndim) for k in np.atleast_1d(source)]
    places = [_axis(k, a.ndim) for k in np.atleast_1d(destination)]
    order = [k for k in range(a.ndim) if k not in sources]
    for place, k in sorted(zip(places, sources, strict=True)):
        order.insert(place, k)
    return transpose(a, order)


def reshape(
    a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> WholeArray:
    """np.reshape."""
    a = whole(a)
    wanted = newshape if shape is None else shape
    new = [int(n) for n in (wanted if isinstance(wanted, (tuple, list)) else [wanted])]
    if order == "F":
        return transpose(reshape(transpose(a), new[::-1]))
    if -1 in new:
        rest = -size_of(new)
        new[new.index(-1)] = a.size // rest if rest else 0
    if size_of(new) != a.size:
        raise ValueError(f"cannot reshape array of size {a.size} into shape {tuple(new)}")
    shape = tuple(new)
    return a if shape == a.shape else a.then(rules.reshaped, None, shape)


def ravel(a: Any, order: str = "C") -> WholeArray:
    """np.ravel."""
    return reshape(a, -1, order)


def broadcast_to(a: Any, shape: Any, subok: bool = False) -> WholeArray:
    """np.broadcast_to."""
    a = whole(a)
    shape = tuple(int(n) for n in (shape if isinstance(shape, (tuple, list)) else [shape]))
    np.broadcast_to(np.empty(()), shape)
    if np.broadcast_shapes(a.shape, shape) != shape:
        raise ValueError(f"shape {a.shape} does not broadcast to {shape}")
    return a if shape == a.shape else a.then(rules.broadcast_to, None, shape)


def squeeze(a: Any, axis: Any = None) -> WholeArray:
    """np.squeeze."""
    a = whole(a)
    axes = {_axis(k, a.ndim) for k in np.atleast_1d(axis)} if axis is not None else None
    if axes is None:
        axes = {k for k, n in enumerate(a.shape) if n == 1}
    if any(a.shape[k] != 1 for k in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return index(a, tuple(0 if k in axes else slice(None) for k in range(a.ndim)))


def expand_dims(a: Any, axis: Any) -> WholeArray:
    """np.expand_dims."""
    a = whole(a)
    count = a.ndim + np.size(axis)
    axes = {_axis(k, count) for k in np.atleast_1d(axis)}
    return index(a, tuple(None if k in axes else slice(None) for k in range(count)))


def flip(m: Any, axis: Any = None) -> WholeArray:
    """np.flip."""
    m = whole(m)
    axes = range(m.ndim) if axis is None else [_axis(k, m.ndim) for k in np.atleast_1d(axis)]
    return index(m, tuple(slice(None, None, -1 if k in axes else 1) for k in range(m.ndim)))


# --- joining and splitting ------------------------------------------------------------------------


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> WholeArray:
    """np.concatenate."""
    parts = [whole(a, arrays) for a in arrays]
    if axis is None:
        parts, axis = [ravel(p) for p in parts], 0
    axis = _axis(axis, parts[0].ndim)
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


def _of_rank(count: int) -> Callable[..., Any]:
    def grown(a: WholeArray) -> WholeArray:
        if a.ndim >= count:
            return a
        if count == 3 and a.ndim == 2:
            return reshape(a, (*a.shape, 1))
        shape = {1: (a.size,), 2: (1, a.size), 3: (1, a.size, 1)}[count]
        return reshape(a, shape)

    def function(*arrays: Any) -> Any:
        results = [grown(whole(a, arrays)) for a in arrays]
        return results[0] if len(results) == 1 else tuple(results)

    return function


at_least_1d, at_least_2d, at_least_3d = map(_of_rank, (1, 2, 3))


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


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[WholeArray]:
    """np.split."""
    ary = whole(ary)
    axis = _axis(axis, ary.ndim)
    sections = indices_or_sections
    if isinstance(sections, (int, np.integer)) and ary.shape[axis] % sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, sections, axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[WholeArray]:
    """np.array_split."""
    ary = whole(ary)
    axis = _axis(axis, ary.ndim)
    pieces = np.array_split(np.arange(ary.shape[axis]), indices_or_sections)
    return [
        index(
            ary, (*[slice(None)] * axis, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0))
        )
        for p in pieces
    ]


def roll(a: Any, shift: Any, axis: Any = None) -> WholeArray:
    """np.roll."""
    a = whole(a)
    if axis is None:
        return reshape(roll(ravel(a), int(np.sum(shift)), 0), a.shape)
    for s, k in zip(*np.broadcast_arrays(np.atleast_1d(shift), np.atleast_1d(axis)), strict=True):
        k = _axis(int(k), a.ndim)
        n = a.shape[k]
        s = int(s) % n if n else 0
        if s:
            lead = (slice(None),) * k
            parts = [index(a, (*lead, slice(n - s, n))), index(a, (*lead, slice(0, n - s)))]
            a = concatenate(parts, k)
    return a.copied()


PADDED_BY_ELEMENTS: Final = ("constant", "edge", "reflect", "symmetric", "wrap")
"""The modes of np.pad whose new elements are constants or copies."""


def pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> WholeArray:
    """np.pad, with constants, the edges, or what stands there mirrored or at the other end."""
    a = whole(array)
    if mode not in PADDED_BY_ELEMENTS or options.get("reflect_type", "even") != "even":
        raise ElementsNeededError(f"np.pad by {mode}, {options}")
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, (0, 0)) for k in range(a.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2)).tolist()
    values = np.broadcast_to(np.asarray(options.get("constant_values", 0)), (a.ndim, 2)).tolist()
    for k, (before, behind) in enumerate(widths):
        if mode == "constant":
            ends = [
                np.full((*a.shape[:k], n, *a.shape[k + 1 :]), v, a.dtype)
                for n, v in zip((before, behind), values[k], strict=True)
            ]
            parts = [a.lift(e) if e.shape[k] else None for e in ends]
        else:
            whole_line: Any = np.arange(a.shape[k])
            line = np.pad(whole_line, (before, behind), mode, **options)  # type: ignore[call-overload]
            ends = [line[:before], line[len(line) - behind :]]
            parts = [take(a, e, k) if len(e) else None for e in ends]
        a = concatenate([p for p in (parts[0], a, parts[1]) if p is not None], k)
    return a.copied()


def repeat(a: Any, repeats: Any, axis: int | None = None) -> WholeArray:
    """np.repeat."""
    a = ravel(a) if axis is None else whole(a)
    k = _axis(axis or 0, a.ndim)
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


def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise"
) -> WholeArray:
    """np.take."""
    array = whole(a, indices)
    if axis is None:
        array, axis = ravel(array), 0
    axis = _axis(axis, array.ndim)
    n = array.shape[axis]
    if mode == "clip":
        indices = np.clip(indices, 0, n - 1)
    elif mode == "wrap":
        indices = indices % n
    at = indices if isinstance(indices, WholeArray) else np.asarray(indices)
    return index(array, (*[slice(None)] * axis, at))


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> WholeArray:
    """np.take_along_axis."""
    a = whole(arr, indices)
    if axis is None:
        return take(ravel(a), indices)
    axis = _axis(axis, a.ndim)
    at = whole(indices, a)
    shape = broadcast(
        [tuple(1 if k == axis else n for k, n in enumerate(s)) for s in (a.shape, at.shape)]
    )
    places = [
        at if k == axis else np.arange(n).reshape([-1 if d == k else 1 for d in range(a.ndim)])
        for k, n in enumerate(shape)
    ]
    return index(a, tuple(places))


# --- elements -------------------------------------------------------------------------------------


def where(condition: Any, *branches: Any) -> WholeArray:
    """np.where with both branches."""
    if len(branches) != 2:
        raise TraceError(located("np.where(condition) alone depends on values; give both branches"))
    first = whole_among((condition, *branches))
    assert first is not None, "an array is among them"
    return first.mapped(ops.where, (condition, *branches))


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip; limits of None leave that side open."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    a = a if low is None else np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


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


# --- reductions -----------------------------------------------------------------------------------


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return int(axis) % ndim


def axes_of(a: WholeArray, axis: Any) -> tuple[int, ...]:
    """The axes that a reduction is over, in order."""
    if axis is None:
        return tuple(range(a.ndim))
    if isinstance(axis, (int, np.integer)):
        return (_axis(int(axis), a.ndim),)
    return tuple(sorted({_axis(int(k), a.ndim) for k in axis}))


def kept_dimensions(result: WholeArray, axes: Sequence[int], keepdims: Any) -> WholeArray:
    """The result of a reduction with its axes, of length 1, where they are kept."""
    if keepdims is NOT_GIVEN or not keepdims:
        return result
    return expand_dims(result, tuple(axes))


def reduction(operator: str, combine: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's reduction by an operator."""

    def function(
        a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False,
        initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN,
    ) -> WholeArray:  # fmt: skip
        refuse(dtype=dtype, out=out)
        array = _among(whole(a, initial, where), where, operator)
        axes = axes_of(array, axis)
        if (
            operator in ("max", "min")
            and not size_of([array.shape[k] for k in axes])
            and initial is NOT_GIVEN
        ):
            raise ValueError("zero-size array to reduction operation which has no identity")
        shape = tuple(n for k, n in enumerate(array.shape) if k not in axes)
        kind = "i" if array.kind == "b" else array.kind
        result = array.then(rules.reduced, (operator, axes), shape, kind=kind) if axes else array
        result = kept_dimensions(result, axes, keepdims)
        return result if initial is NOT_GIVEN or initial is None else combine(result, initial)

    return function


def refuse(**options: Any) -> None:
    """Leave a call with options that are not here to the trace by elements."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ElementsNeededError(f"the option {given[0]}= of a function of whole arrays")


def _among(a: WholeArray, condition: Any, operator: str) -> WholeArray:
    """An array with the identity of a reduction where the reduction's condition is false."""
    if condition is NOT_GIVEN or condition is True:
        return a
    if operator not in IDENTITIES:
        raise ElementsNeededError(f"a reduction by {operator} with where=")
    return where(condition, a, a.lift(np.asarray(IDENTITIES[operator], a.dtype)))


IDENTITIES: Final = {"add": 0, "mul": 1}
"""The identities of reductions."""

total = reduction("add", np.add)
product = reduction("mul", np.multiply)
largest = reduction("max", np.maximum)
smallest = reduction("min", np.minimum)


def _count(a: WholeArray, axis: Any, where: Any) -> Any:
    """How many elements each result of a mean is of."""
    if where is NOT_GIVEN or where is True:
        return float(size_of([a.shape[k] for k in axes_of(a, axis)]))
    counted = broadcast_to(a.lift(where), a.shape).astype(np.float64)
    return total(counted, axis, keepdims=True)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False, *,
    where: Any = NOT_GIVEN,
) -> WholeArray:  # fmt: skip
    """np.mean."""
    refuse(dtype=dtype, out=out)
    a = whole(a, where)
    result = total(a, axis, keepdims=True, where=where) / _count(a, axis, where)
    return _without(result, axes_of(a, axis), keepdims)


def _without(result: WholeArray, axes: Sequence[int], keepdims: Any) -> WholeArray:
    """The result of a reduction that kept its axes, without them unless they are to be kept."""
    return squeeze(result, axes) if keepdims is NOT_GIVEN or not keepdims else result


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: Any = False, *, where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN,
    correction: Any = NOT_GIVEN,
) -> WholeArray:  # fmt: skip
    """np.var."""
    refuse(dtype=dtype, out=out)
    a = whole(a, where)
    ddof = ddof if correction is NOT_GIVEN else correction
    centre = _mean(a, axis, keepdims=True, where=where) if mean is NOT_GIVEN else mean
    squares = total((a - centre) ** 2, axis, keepdims=True, where=where)
    return _without(squares / (_count(a, axis, where) - ddof), axes_of(a, axis), keepdims)


_mean = mean


def std(a: Any, *args: Any, **options: Any) -> WholeArray:
    """np.std."""
    root: Any = np.sqrt(var(a, *args, **options))
    return root


def any_of(
    a: Any, axis: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True
) -> WholeArray:
    """np.any."""
    refuse(out=out)
    truths = _truths(a) if where is True else _truths(a) & where
    return largest(truths, axis, keepdims=keepdims, initial=False) != 0


def all_of(
    a: Any, axis: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True
) -> WholeArray:
    """np.all."""
    refuse(out=out)
    truths = _truths(a) if where is True else _truths(a) | np.logical_not(where)
    return smallest(truths, axis, keepdims=keepdims, initial=True) != 0


def _truths(a: Any) -> WholeArray:
    a = whole(a)
    return a if a.kind == "b" else a != 0


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> WholeArray:
    """np.count_nonzero."""
    return total(_truths(a), axis, keepdims=keepdims)


def position(operator: str) -> Callable[..., WholeArray]:
    """np.argmax or np.argmin."""

    def function(
        a: Any, axis: Any = None, out: None = None, *, keepdims: Any = False
    ) -> WholeArray:
        refuse(out=out)
        array = whole(a)
        line = ravel(array) if axis is None else array
        k = _axis(int(axis or 0), line.ndim)
        shape = (*line.shape[:k], *line.shape[k + 1 :])
        result = line.then(rules.positioned, (operator, k), shape, kind="i")
        return kept_dimensions(result, axes_of(array, axis), keepdims)

    return function


def running(operator: str) -> Callable[..., WholeArray]:
    """np.cumsum, np.cumprod and their kin."""

    def function(
        a: Any, axis: int | None = None, dtype: Any = None, out: None = None
    ) -> WholeArray:
        refuse(dtype=dtype, out=out)
        line = ravel(a) if axis is None else whole(a)
        k = _axis(axis or 0, line.ndim)
        kind = "i" if line.kind == "b" else line.kind
        return line.then(rules.scanned, (operator, k, False), line.shape, kind=kind)

    return function


# --- products -------------------------------------------------------------------------------------


def contract(inputs: Sequence[str], output: str, *operands: Any) -> WholeArray:
    """A sum of products, by the letters of the operands' axes and of the result's."""
    arrays = [whole(a, operands) for a in operands]
    sizes: dict[str, int] = {}
    for letters, a in zip(inputs, arrays, strict=True):
        for c, n in zip(letters, a.shape, strict=True):
            if sizes.get(c, 1) not in (1, n) and n != 1:
                raise ValueError(f"axis {c} of a product is {sizes[c]} and {n} long")
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    shape = tuple(sizes[c] for c in output)
    return arrays[0].then(rules.contracted, (tuple(inputs), output), shape, *arrays[1:], kind="f")


def matmul(a: Any, b: Any, /, out: None = None) -> WholeArray:
    """``a @ b``."""
    refuse(out=out)
    a, b = whole(a, b), whole(b, a)
    if not a.ndim or not b.ndim:
        raise ValueError("matmul needs arrays: use * to multiply by a number")
    if a.shape[-1] != b.shape[max(0, b.ndim - 2)]:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not match")
    lead = "abcdefghij"
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if a.ndim > 1 and b.ndim > 1 else ()
    first = (
        lead[len(batch) - max(0, a.ndim - 2) : len(batch)] if batch else lead[: max(0, a.ndim - 2)]
    )
    second = (
        lead[len(batch) - max(0, b.ndim - 2) : len(batch)] if batch else lead[: max(0, b.ndim - 2)]
    )
    rows, columns = "x" * (a.ndim > 1), "z" * (b.ndim > 1)
    output = (first if len(first) > len(second) else second) + rows + columns
    return contract([f"{first}{rows}y", f"{second}y{columns}"], output, a, b)


def dot(a: Any, b: Any, out: None = None) -> WholeArray:
    """np.dot."""
    refuse(out=out)
    a, b = whole(a, b), whole(b, a)
    if not a.ndim or not b.ndim:
        return a * b
    if b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, ([-1], [-2]))


def tensordot(a: Any, b: Any, axes: Any = 2) -> WholeArray:
    """np.tensordot."""
    a, b = whole(a, b), whole(b, a)
    if isinstance(axes, (int, np.integer)):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = (np.atleast_1d(k).tolist() for k in axes)
    own = {k % a.ndim: c for k, c in zip(left, "abcdefghij", strict=False)}
    other = {k % b.ndim: c for k, c in zip(right, "abcdefghij", strict=False)}
    free = iter("klmnopqrstuvwxyzABCDEF")
    first = "".join(own.get(k) or next(free) for k in range(a.ndim))
    second = "".join(other.get(k) or next(free) for k in range(b.ndim))
    output = "".join(c for c in first + second if c not in (*own.values(), *other.values()))
    return contract([first, second], output, a, b)


def einsum(*operands: Any, optimize: Any = True) -> WholeArray:
    """np.einsum: pairs of operands are contracted in a good order."""
    text, arrays = pairs_of(operands)
    arrays = [whole(a, operands) for a in arrays]
    inputs, output = letters_of(text, [a.ndim for a in arrays])
    inputs = list(inputs)
    if len(arrays) > 2 and optimize is not False:
        whole_text = f"{','.join(inputs)}->{output}"
        dummies = [np.broadcast_to(np.empty(()), a.shape) for a in arrays]
        order = np.einsum_path(whole_text, *dummies, optimize="greedy")[0]
        for group in order[1:-1]:
            chosen = sorted(group, reverse=True)
            taken = [(inputs.pop(k), arrays.pop(k)) for k in chosen]
            needed = set(output).union(*inputs)
            letters = "".join(sorted(set("".join(c for c, _ in taken)) & needed))
            arrays.append(contract([c for c, _ in taken], letters, *[a for _, a in taken]))
            inputs.append(letters)
    return contract(inputs, output, *arrays)


def products_of_all(a: Any, b: Any) -> WholeArray:
    """np.multiply.outer: each element of a with each of b, of the shape of a and then of b."""
    a, b = whole(a, b), whole(b, a)
    return a.reshape((*a.shape, *[1] * b.ndim)) * b


def outer(a: Any, b: Any, out: None = None) -> WholeArray:
    """np.outer."""
    refuse(out=out)
    return contract(["x", "y"], "xy", ravel(whole(a, b)), ravel(whole(b, a)))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> WholeArray:
    """np.trace."""
    return total(diagonal(whole(a), offset, axis1, axis2), -1)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> WholeArray:
    """np.linalg.norm of vectors, and of matrices those that need no singular values."""
    x = whole(x)
    if axis is None and ord is None:
        return _root(total(x * x, None, keepdims=keepdims))
    axes = axes_of(x, axis)
    if len(axes) == 1:
        return _vector_norm(x, axes, keepdims, 2 if ord is None else ord)
    if ord not in (None, "fro"):
        raise ElementsNeededError("a norm of matrices")
    return _root(total(x * x, axes, keepdims=keepdims))


def _root(squares: WholeArray) -> WholeArray:
    """A square root whose derivative is 0 at 0, as that of `numpy.linalg.norm` is here."""
    nothing = squares == 0.0
    return where(nothing, 0.0, np.sqrt(where(nothing, 1.0, squares)))


def _vector_norm(x: WholeArray, axes: Any, keepdims: bool, ord: Any) -> WholeArray:
    if ord == 2:
        return _root(total(x * x, axes, keepdims=keepdims))
    if ord in (np.inf, -np.inf):
        return (largest if ord > 0 else smallest)(abs(x), axes, keepdims=keepdims)
    if ord == 0:
        return total(where(x != 0, 1.0, 0.0), axes, keepdims=keepdims)
    if ord == 1:
        return total(abs(x), axes, keepdims=keepdims)
    return total(abs(x) ** ord, axes, keepdims=keepdims) ** (1.0 / ord)


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
        sums = broadcast_to(a.lift(_count(a, axis, True)), result.shape)
        return (result, sums) if returned else result
    weights = a.lift(weights)
    if weights.shape != a.shape:
        if axis is None or weights.shape != tuple(a.shape[k] for k in np.atleast_1d(axis)):
            raise ValueError(f"np.average: weights of shape {weights.shape} for {a.shape}")
        order = [_axis(k, a.ndim) for k in np.atleast_1d(axis)]
        lines = transpose(weights, np.argsort(order).tolist())
        weights = expand_dims(lines, [k for k in range(a.ndim) if k not in order])
    wide = broadcast_to(weights, a.shape)
    sums = total(wide, axis, keepdims=keepdims)
    result = total(a * wide, axis, keepdims=keepdims) / sums
    return (result, sums) if returned else result


# --- exponentials ---------------------------------------------------------------------------------


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


def polyval(p: Any, x: Any) -> Any:
    """np.polyval."""
    return functools.reduce(lambda y, c: y * x + c, p, 0.0)


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

TABLE: Final[dict[Any, Callable[..., Any]]] = {
    "index": index,
    "at": Updates,
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
    np.clip: clip,
    np.sum: total,
    np.prod: product,
    np.max: largest,
    np.amax: largest,
    np.min: smallest,
    np.amin: smallest,
    np.ptp: lambda a, axis=None, out=None, keepdims=False: (
        largest(a, axis, keepdims=keepdims) - smallest(a, axis, keepdims=keepdims)
    ),
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
    np.linalg.matmul: matmul,
    np.dot: dot,
    np.vdot: lambda a, b: dot(ravel(whole(a, b)), ravel(whole(b, a))),
    np.inner: lambda a, b: tensordot(a, b, ([-1], [-1])),
    np.outer: outer,
    np.linalg.outer: outer,
    np.tensordot: tensordot,
    np.linalg.tensordot: tensordot,
    np.einsum: einsum,
    np.trace: trace,
    np.linalg.trace: lambda x, offset=0: trace(x, offset, -2, -1),
    np.linalg.norm: norm,
    np.linalg.vector_norm: lambda x, *, axis=None, keepdims=False, ord=2: norm(
        x if axis is not None else ravel(x), ord, 0 if axis is None else axis, keepdims
    ),
    np.linalg.multi_dot: lambda arrays: functools.reduce(matmul, arrays),
    np.diff: diff,
    np.trapezoid: trapezoid,
    np.polyval: polyval,
    np.round: lambda a, decimals=0, out=None: (
        np.rint(a * 10.0**decimals) / 10.0**decimals if decimals else np.rint(a)
    ),
    np.conjugate: lambda a: a,
    np.average: average,
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
    (np.multiply, "outer"): products_of_all,
    "logsumexp": logsumexp,
    "softmax": softmax,
    "log_softmax": log_softmax,
}  # fmt: skip
"""NumPy's functions, and methods of ufuncs, on whole arrays."""
