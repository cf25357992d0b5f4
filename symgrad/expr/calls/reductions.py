"""NumPy's reductions and statistics, each once: for arrays of expressions and whole arrays."""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls.compositions import real, traced
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ElementsNeededError, Handle, Whole, whole_among
from symgrad.expr.tracers.along import (
    accumulate,
    add_elements,
    axes_of,
    balanced,
    extreme_of,
    reduce_lists,
)
from symgrad.expr.tracers.array import call, map_elements

FOLDS: Final[dict[str, Callable[..., Any]]] = {
    "add": functools.partial(balanced, add_elements),
    "mul": functools.partial(balanced, operator.mul),
    "max": functools.partial(extreme_of, ops.maximum),
    "min": functools.partial(extreme_of, ops.minimum),
}
"""The reductions of lists of elements, and of an initial one."""

IDENTITIES: Final = {"add": 0, "mul": 1}
"""The identities of reductions."""


def refuse(**options: Any) -> None:
    """Refuse options that traced arrays do not have; of whole arrays arrays of elements may."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ElementsNeededError(f"the argument {given[0]!r} of a function of traced arrays")


def typed(a: Any, dtype: Any, of_integers: bool = True) -> Any:
    """An array as one of the type that a reduction is told to use: of real numbers, or integers."""
    if dtype is None:
        return a
    kind = np.dtype(dtype).kind
    if kind != "f" and not (of_integers and kind == "i"):
        refuse(dtype=dtype)
    return a.astype(dtype)


def _among(a: Any, condition: Any, operator: str, initial: Any) -> Any:
    """An array with the identity of a reduction where the reduction's condition is false."""
    if condition is True:
        return a
    identity = IDENTITIES.get(operator, initial)
    if identity is None:
        raise ValueError(
            f"reduction operation {operator!r} does not have an identity, so to use a where mask "
            "one has to specify 'initial'"
        )
    return np.where(condition, a, identity)


def reduction(operator: str) -> Callable[..., Any]:
    """NumPy's reduction by an operator."""

    def function(
        a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
        initial: Any = None, where: Any = True,
    ) -> Any:  # fmt: skip
        if where is not True or initial is not None or not isinstance(a, Whole):
            whole = whole_among((a, initial, where))
            a = traced(a) if whole is None else whole.functions["whole"](a, initial, where)
        a = _among(typed(a, dtype), where, operator, initial)
        if isinstance(a, Whole):
            return a.functions["reduced"](a, operator, axis, keepdims, initial)
        return reduce_lists(lambda v: FOLDS[operator](v, initial=initial), a, axis, keepdims)

    return function


total = reduction("add")
product = reduction("mul")
largest = reduction("max")
smallest = reduction("min")


def _count(a: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    """How many elements each result of a mean is of."""
    if where is True:
        axes = axes_of(axis, a.ndim)
        return np.float64(math.prod(a.shape[k] for k in axes))
    held = np.where(np.broadcast_to(where, a.shape), 1.0, 0.0)
    return np.sum(held, axis=axis, keepdims=keepdims)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    """np.mean."""
    a = typed(real(a, where), dtype, of_integers=False)
    sums = total(a, axis, keepdims=keepdims, where=where)
    with np.errstate(divide="ignore", invalid="ignore"):  # the mean of nothing is NaN
        return sums / _count(a, axis, keepdims, where)


def var(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """np.var."""
    a = typed(real(a, where), dtype, of_integers=False)
    ddof = ddof if correction is None else correction
    centred = a - (_mean(a, axis, keepdims=True, where=where) if mean is None else mean)
    squares = total(centred * centred, axis, keepdims=keepdims, where=where)
    with np.errstate(divide="ignore", invalid="ignore"):
        return squares / np.maximum(_count(a, axis, keepdims, where) - ddof, 0.0)


_mean = mean


@functools.wraps(var)
def std(a: Any, *args: Any, **options: Any) -> Any:
    """np.std."""
    return np.sqrt(var(a, *args, **options))


# --- statistics -----------------------------------------------------------------------------------


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    """np.cov, without weights."""
    operands = (m,) if y is None else (m, y)
    rows = [np.atleast_2d(real(v, *operands)) for v in operands]
    rows = [r if rowvar or len(r) == 1 else r.T for r in rows]
    x = np.concatenate(rows) if len(rows) > 1 else rows[0]
    centred = x - np.mean(x, axis=-1, keepdims=True)
    freedom = max(x.shape[-1] - ((not bias) if ddof is None else ddof), 0)
    result = centred @ centred.T / freedom
    return result if len(x) > 1 else result[0, 0]


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """np.corrcoef."""
    c: Any = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    scale = 1.0 / np.sqrt(np.diagonal(c))
    return np.clip(c * scale[:, None] * scale[None], -1.0, 1.0)


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """np.average: weights of some axes are along those of the average."""
    a = real(a, weights)
    if weights is None:
        result = np.mean(a, axis=axis, keepdims=keepdims)
        count = a.size / max(np.size(result), 1)
        return (result, np.full(np.shape(result), count)) if returned else result
    wide = _along(real(weights, a), a, axis)
    sums = np.sum(wide, axis=axis, keepdims=keepdims)
    result = np.sum(a * wide, axis=axis, keepdims=keepdims) / sums
    return (result, sums) if returned else result


def _along(weights: Any, a: Any, axis: Any) -> Any:
    """Weights of the shape of an array, of which they have the axes of an average, or all."""
    axes = () if axis is None else axes_of(axis, a.ndim)
    if weights.shape == a.shape:
        return weights
    if weights.shape != tuple(a.shape[k] for k in axes):
        raise ValueError(f"np.average: weights of shape {weights.shape} for {a.shape}")
    lines = np.transpose(weights, np.argsort(axes).tolist())
    shape = [n if k in axes else 1 for k, n in enumerate(a.shape)]
    return np.broadcast_to(np.reshape(lines, shape), a.shape)


def quantile(
    a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """np.quantile of known fractions, by linear interpolation between sorted elements.

    NaN where an element is NaN, as of NumPy.
    """
    if method != "linear" or isinstance(q, Whole):
        raise TraceError(
            located("quantiles are of known fractions, and by method='linear' in traced functions")
        )
    a, q = traced(a), np.asarray(q, float)
    axes = axes_of(axis, a.ndim)
    others = [k for k in range(a.ndim) if k not in axes]
    lines = np.reshape(np.transpose(a, [*others, *axes]), [*(a.shape[k] for k in others), -1])
    ordered, last = np.sort(lines, axis=-1), lines.shape[-1] - 1
    at = q * last
    below = np.floor(at).astype(int)
    low, high, share = ordered[..., below], ordered[..., np.minimum(below + 1, last)], at - below
    values = np.where(share == 0.0, low, (1.0 - share) * low + share * high)
    if ordered.dtype.kind not in "ib":  # NaN are the last of a line
        largest = ordered[(..., last, *[None] * q.ndim)]
        values = np.where(np.isnan(largest), np.nan, values)
    moved = [*range(len(others), len(others) + q.ndim), *range(len(others))]
    values = np.transpose(values, moved)
    if keepdims:
        kept = [1 if k in axes else n for k, n in enumerate(a.shape)]
        return np.reshape(values, (*q.shape, *kept))
    return values[()]


def percentile(a: Any, q: Any, axis: Any = None, **options: Any) -> Any:
    """np.percentile: see `quantile`."""
    return quantile(a, np.asarray(q, float) / 100.0, axis, **options)


# --- missing numbers ------------------------------------------------------------------------------


def _is_integer(x: Any) -> bool:
    return x.is_integer if isinstance(x, Handle) else isinstance(x, numbers.Integral)


def _filled(a: Any, value: float) -> Any:
    """The elements, with a number in the place of each NaN: what is not chosen has no slope."""
    if whole_among([a]) is not None:
        return a if a.dtype.kind in "ib" else np.where(np.isnan(a), value, a)
    return map_elements(
        lambda x: x if _is_integer(x) else call(ops.where, call(ops.isnan, x), value, x), a
    )


def without_nan(function: Callable[..., Any], instead: float) -> Callable[..., Any]:
    """A reduction in which NaN is another number, and has no slope, such as np.nansum."""

    def reduction(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = None) -> Any:
        more = {} if initial is None else {"initial": initial}
        return function(_filled(traced(a), instead), axis=axis, keepdims=keepdims, **more)

    return reduction


def of_numbers(
    function: Callable[..., Any], worst: float, combine: Callable[..., Any]
) -> Callable[..., Any]:
    """np.nanmax and np.nanmin: NaN only of NaN alone."""
    extreme = without_nan(function, worst)

    def reduction(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = None) -> Any:
        a = traced(a)
        if isinstance(initial, (int, float, np.number)) and not np.isnan(initial):
            return extreme(a, axis, keepdims, initial)
        value = extreme(a, axis, keepdims)
        if a.dtype.kind not in "ib" and not (a.dtype == object and all(map(_is_integer, a.flat))):
            nothing = np.all(np.isnan(a), axis=axis, keepdims=keepdims)
            value = np.where(nothing, np.nan, value)
        return value if initial is None else combine(value, initial)

    return reduction


nansum: Final = without_nan(np.sum, 0.0)


def _numbers(a: Any, axis: Any, keepdims: Any) -> Any:
    """How many elements are numbers."""
    return np.sum(np.where(np.isnan(a), 0.0, 1.0), axis=axis, keepdims=keepdims)


def nanmean(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    """np.nanmean: NaN where every element is."""
    a = real(a)
    with np.errstate(divide="ignore", invalid="ignore"):  # the mean of nothing is NaN
        return np.divide(nansum(a, axis, keepdims), _numbers(a, axis, keepdims))


def nanvar(
    a: Any, axis: Any = None, ddof: float = 0, keepdims: Any = False, mean: Any = None,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """np.nanvar: NaN where no more than ddof elements are numbers."""
    a, ddof = real(a), ddof if correction is None else correction
    centred = a - (nanmean(a, axis, True) if mean is None else mean)
    count = _numbers(a, axis, keepdims)
    free = np.where(count > ddof, count - ddof, np.nan)
    return np.divide(nansum(centred * centred, axis, keepdims), free)


@functools.wraps(nanvar)
def nanstd(*args: Any, **options: Any) -> Any:
    """np.nanstd."""
    return np.sqrt(nanvar(*args, **options))


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """np.nan_to_num, infinities as float32's largest numbers if nothing else is said."""
    if getattr(x, "dtype", np.dtype(float)).kind in "bi":
        return x
    most = float(np.finfo(np.float32).max)
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    finite = np.where(np.equal(x, np.inf), high, np.where(np.equal(x, -np.inf), low, x))
    return np.where(np.isnan(x), nan, finite)


# --- running ones ---------------------------------------------------------------------------------


def running(operator: str, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """np.cumsum and np.cumprod: the results of reductions of the elements up to each one."""

    def results(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
        line = typed(np.ravel(traced(a)) if axis is None else traced(a), dtype)
        if isinstance(line, Whole):
            return line.functions["scanned"](line, operator, axis or 0)
        return accumulate(function, line, axis or 0)

    return results


REDUCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.sum: total,
    np.prod: product,
    np.max: largest,
    np.amax: largest,
    np.min: smallest,
    np.amin: smallest,
    np.mean: mean,
    np.var: var,
    np.std: std,
    np.cumsum: running("add", add_elements),
    np.cumprod: running("mul", operator.mul),
    np.nanmax: of_numbers(np.max, -np.inf, np.fmax),
    np.nanmin: of_numbers(np.min, np.inf, np.fmin),
    np.nansum: nansum,
    np.nanprod: without_nan(np.prod, 1.0),
    np.nanmean: nanmean,
    np.nanvar: nanvar,
    np.nanstd: nanstd,
    np.cov: cov,
    np.average: average,
    np.corrcoef: corrcoef,
    np.ptp: lambda a, axis=None, keepdims=False: (
        np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)
    ),
    np.quantile: quantile,
    np.percentile: percentile,
    np.median: lambda a, axis=None, *, keepdims=False: quantile(a, 0.5, axis, keepdims=keepdims),
    np.nan_to_num: nan_to_num,
}
"""NumPy's reductions."""


def _first_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction as the method of a ufunc, which is along the first axis by default."""
    return lambda a, axis=0, **options: function(a, axis, **options)


REDUCING: Final[dict[Any, Callable[..., Any]]] = {
    np.add: _first_axis(total),
    np.multiply: _first_axis(product),
    np.maximum: _first_axis(largest),
    np.minimum: _first_axis(smallest),
    np.fmax: _first_axis(REDUCTIONS[np.nanmax]),
    np.fmin: _first_axis(REDUCTIONS[np.nanmin]),
}
"""The method reduce of ufuncs."""
