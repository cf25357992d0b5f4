"""NumPy's functions on whole arrays: joins, searches, writes, running totals, exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.arrays import reductions, shapes, views
from symgrad.arrays.loops import mapped, scan, while_loop
from symgrad.arrays.reductions import any_of, count_nonzero
from symgrad.arrays.shapes import axes_of, axis_of, concatenate, ravel, reshape, whole
from symgrad.arrays.views import broadcast_to, moveaxis, squeeze
from symgrad.arrays.whole import WholeArray, flat, innermost
from symgrad.expr import ops
from symgrad.expr.calls.compositions import COMPOSITIONS, UFUNCS_COMPOSED, take, where
from symgrad.expr.calls.numpy_calls import EUCLID, bits_of, without_out
from symgrad.expr.calls.reductions import REDUCTIONS, largest, refuse, total
from symgrad.expr.graph.node import ElementsNeededError


def block(arrays: Any) -> WholeArray:
    """np.block: lists side by side, lists of lists below each other."""
    anchor = innermost(list(flat([arrays])))
    depth = _depth(arrays)
    ndim = max(depth, *(a.ndim for a in _leaves(arrays, anchor)))

    def joined(part: Any, level: int) -> WholeArray:
        if isinstance(part, list):
            return concatenate([joined(p, level + 1) for p in part], ndim - depth + level)
        a = anchor.lift(part)
        return reshape(a, (1,) * (ndim - a.ndim) + a.shape)

    return joined(arrays, 0)


def _depth(arrays: Any) -> int:
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) else 0


def _leaves(arrays: Any, anchor: WholeArray) -> list[WholeArray]:
    if isinstance(arrays, list):
        return [leaf for a in arrays for leaf in _leaves(a, anchor)]
    return [anchor.lift(arrays)]


def _rows(a: WholeArray, places: np.ndarray, axis: int) -> WholeArray:
    """The elements at known places along an axis."""
    return a[(*[slice(None)] * axis, places)]


def _along(arr: Any, axis: int | None, *others: Any) -> tuple[WholeArray, int]:
    """An array and an axis of it; all elements in a row where there is none."""
    a = whole(arr, *others)
    return (ravel(a), 0) if axis is None else (a, axis_of(axis, a.ndim))


def _known(obj: Any) -> Any:
    if isinstance(obj, WholeArray):
        raise ElementsNeededError("places of elements that depend on data")
    return obj


def delete(arr: Any, obj: Any, axis: int | None = None) -> WholeArray:
    """np.delete at known places."""
    a, axis = _along(arr, axis)
    return _rows(a, np.delete(np.arange(a.shape[axis]), _known(obj)), axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> WholeArray:
    """np.insert at known places."""
    a, axis = _along(arr, axis, values)
    new, n = whole(values, arr), a.shape[axis]
    new = reshape(new, (1,) * (a.ndim - new.ndim) + new.shape)
    places = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(_known(obj))
    if not places.ndim:
        new = moveaxis(new, 0, axis)
    count = places.size if places.ndim else new.shape[axis]
    new = broadcast_to(new, (*a.shape[:axis], count, *a.shape[axis + 1 :]))
    order = np.insert(np.arange(n), places, n + np.arange(count))
    return _rows(concatenate([a, new], axis), order, axis)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> WholeArray:
    """np.searchsorted: how many of the sorted numbers stand before each."""
    refuse(sorter=sorter)
    line, values = whole(a, v), whole(v, a)[..., None]
    return count_nonzero(line < values if side == "left" else line <= values, -1)


def digitize(x: Any, bins: Any, right: bool = False) -> WholeArray:
    """np.digitize, by bins whose edges are known to descend or taken to ascend."""
    side = "left" if right else "right"
    if not isinstance(bins, WholeArray) and len(bins) > 1 and bins[0] > bins[-1]:
        return len(bins) - searchsorted(np.asarray(bins)[::-1], x, side)
    return searchsorted(bins, x, side)


def isin(element: Any, test_elements: Any, *_: Any, invert: bool = False, **__: Any) -> WholeArray:
    """np.isin."""
    a, others = whole(element, test_elements), whole(test_elements, element)
    held = any_of(a[..., None] == ravel(others), -1)
    return ~held if invert else held


def gcd(x1: Any, x2: Any) -> WholeArray:
    """np.gcd, by Euclid's algorithm, of all elements at once."""
    pair = np.broadcast_arrays(np.abs(whole(x1, x2)), np.abs(whole(x2, x1)))

    def step(pair: Any) -> Any:
        a, b = pair
        return where(b == 0, a, b), a % b

    return while_loop(lambda pair: np.any(pair[1] != 0), step, tuple(pair), EUCLID)[0]


def lcm(x1: Any, x2: Any) -> WholeArray:
    """np.lcm: modulo 2**32, and 0 where one of them is."""
    a, b = abs(whole(x1, x2)), abs(whole(x2, x1))
    quotient: Any = a // gcd(a, b)
    return whole(quotient * b)


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> WholeArray:
    """np.apply_along_axis, of all lines at once."""
    a = whole(arr)
    axis = axis_of(axis, a.ndim)
    lines = moveaxis(a, axis, -1)
    outer = lines.shape[:-1]
    rows = reshape(lines, (-1, a.shape[axis]))
    result = mapped(lambda line: func1d(line, *args, **kwargs), 0, 0, [rows], rows.tape)
    result = reshape(result, (*outer, *result.shape[1:]))
    new = result.ndim - len(outer)
    return moveaxis(result, range(len(outer), result.ndim), range(axis, axis + new))


# --- writes ---------------------------------------------------------------------------------------


def copyto(dst: Any, src: Any, casting: Any = None, where: Any = True) -> None:
    """np.copyto."""
    dst.become(np.where(where, broadcast_to(whole(src, dst), dst.shape), dst).astype(dst.dtype))


def putmask(a: Any, mask: Any, values: Any) -> None:
    """np.putmask."""
    a.become(np.where(mask, resize(whole(values, a), a.shape), a).astype(a.dtype))


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put, at known places."""
    if mode != "raise" or isinstance(ind, WholeArray):
        raise ElementsNeededError("np.put at places that are computed, or in another mode")
    places = np.ravel(ind)
    a.become(ravel(a).at[places].set(resize(whole(v, a), places.shape)).reshape(a.shape))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int) -> None:
    """np.put_along_axis."""
    places: list[Any] = [*np.ogrid[tuple(map(slice, indices.shape))]]
    places[axis] = indices
    arr.become(arr.at[tuple(places)].set(values))


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal."""
    if wrap or a.ndim < 2 or (a.ndim > 2 and len(set(a.shape)) > 1):
        raise ElementsNeededError(f"the diagonal of shape {a.shape}, wrap={wrap}")
    k = np.arange(min(a.shape))
    a.become(a.at[(k,) * a.ndim].set(resize(whole(val, a), k.shape)))


def resize(a: Any, new_shape: Any) -> Any:
    """np.resize: elements in their order, again and again."""
    if not isinstance(a, WholeArray):
        return np.resize(a, new_shape)
    shape = tuple(np.atleast_1d(new_shape).tolist())
    if not a.size:
        return np.zeros(shape, a.dtype)
    return ravel(a)[np.arange(int(np.prod(shape))) % a.size].reshape(shape)


def compress(condition: Any, a: Any, axis: int | None = None) -> WholeArray:
    """np.compress, by known conditions."""
    if isinstance(condition, WholeArray):
        raise ElementsNeededError("np.compress by conditions that are computed")
    return take(a, np.flatnonzero(condition), axis)


# --- interpolation, running totals ----------------------------------------------------------------


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


def logaddexp_accumulate(array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """np.logaddexp.accumulate, one element after the other."""
    refuse(dtype=dtype)
    rows: Any = moveaxis(whole(array), axis, 0)
    step = lambda total, row: (np.logaddexp(total, row),) * 2  # noqa: E731
    _, totals = scan(step, rows[0], rows[1:], len(rows) - 1, False)
    return moveaxis(concatenate([rows[:1], totals]), 0, axis)


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


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    **COMPOSITIONS,
    **REDUCTIONS,
    **{(ufunc, "__call__"): function for ufunc, function in UFUNCS_COMPOSED.items()},
    **views.TABLE,
    **shapes.TABLE,
    **reductions.TABLE,
    np.block: block,
    np.delete: delete,
    np.insert: insert,
    np.searchsorted: searchsorted,
    np.digitize: digitize,
    np.isin: isin,
    (np.gcd, "__call__"): gcd,
    (np.lcm, "__call__"): lcm,
    np.apply_along_axis: apply_along_axis,
    np.copyto: copyto,
    np.putmask: putmask,
    np.put: put,
    np.put_along_axis: put_along_axis,
    np.fill_diagonal: fill_diagonal,
    np.resize: resize,
    np.compress: compress,
    np.result_type: lambda *a: np.result_type(*(getattr(x, "dtype", x) for x in a)),
    np.interp: interp,
    (np.logaddexp, "accumulate"): logaddexp_accumulate,
    (np.bitwise_count, "__call__"): lambda x: bits_of(abs(whole(x))),
    "logsumexp": logsumexp,
    "softmax": softmax,
    "log_softmax": log_softmax,
}
"""NumPy's functions, and methods of ufuncs, on whole arrays."""

METHODS: Final = (
    "sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "cumsum",
    "cumprod", "ravel", "squeeze", "swapaxes", "repeat", "take", "clip", "dot", "trace", "diagonal",
    "round", "conjugate",
)  # fmt: skip


def _method(func: Any) -> Callable[..., Any]:
    """The method that a NumPy function is, with the same arguments behind the array."""
    function = TABLE[func]

    def method(*args: Any, **options: Any) -> Any:
        given, named = without_out(func, args, options)
        return function(*given, **named)

    return method


def install() -> None:
    """Give whole arrays NumPy's functions, and methods of these names."""
    WholeArray.functions.update(TABLE)
    for name in METHODS:
        WholeArray.methods[name] = _method(getattr(np, name))
    WholeArray.methods["flatten"] = lambda a, order="C": ravel(a, order).copied()
    WholeArray.methods["copy"] = lambda a, order="C": a.copied()
