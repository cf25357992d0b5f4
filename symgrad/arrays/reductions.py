"""NumPy's reductions of whole arrays, and running ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.shapes import (
    NOT_GIVEN,
    axes_of,
    axis_of,
    ravel,
    refuse,
    where,
    whole,
)
from symgrad.arrays.tape import size_of
from symgrad.arrays.views import broadcast_to, expand_dims, squeeze
from symgrad.arrays.whole import WholeArray


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
        refuse(out=out)
        array = _among(_as(whole(a, initial, where), dtype), where, operator, initial)
        axes = axes_of(array, _of_number(array, axis))
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
        if initial is not NOT_GIVEN and initial is not None:
            result = combine(result, initial)
        is_truth = array.kind == "b" and operator in ("max", "min") and result.kind == "i"
        return _truths(result) if is_truth else result

    return function


def _of_number(a: WholeArray, axis: Any) -> Any:
    """The axis that a number is reduced along: NumPy lets it have one for that."""
    return () if not a.ndim and type(axis) is int and axis in (0, -1) else axis


def _as(a: WholeArray, dtype: Any, of_integers: bool = True) -> WholeArray:
    """An array as one of the type that a reduction is told to use: of real numbers, or integers."""
    if dtype is None or dtype is NOT_GIVEN:
        return a
    kind = np.dtype(dtype).kind
    if kind != "f" and not (of_integers and kind == "i"):
        refuse(dtype=dtype)
    return a.astype(dtype)


def _among(a: WholeArray, condition: Any, operator: str, initial: Any) -> WholeArray:
    """An array with the identity of a reduction where the reduction's condition is false."""
    if condition is NOT_GIVEN or condition is True:
        return a
    if operator in IDENTITIES:
        return where(condition, a, a.lift(np.asarray(IDENTITIES[operator], a.dtype)))
    if initial is NOT_GIVEN:
        raise ValueError(
            f"reduction operation {operator!r} does not have an identity, so to use a where mask "
            "one has to specify 'initial'"
        )
    return where(condition, a, initial)


IDENTITIES: Final = {"add": 0, "mul": 1}
"""The identities of reductions."""

total = reduction("add", np.add)
product = reduction("mul", np.multiply)
largest = reduction("max", np.maximum)
smallest = reduction("min", np.minimum)


def count_of(a: WholeArray, axis: Any, where: Any) -> Any:
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
    refuse(out=out)
    a = _as(whole(a, where), dtype, of_integers=False)
    if where is NOT_GIVEN or where is True:
        return total(a, axis, keepdims=keepdims) / count_of(a, axis, where)
    result = total(a, axis, keepdims=True, where=where) / count_of(a, axis, where)
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
    refuse(out=out)
    a = _as(whole(a, where), dtype, of_integers=False)
    ddof = ddof if correction is NOT_GIVEN else correction
    centre = _mean(a, axis, keepdims=True, where=where) if mean is NOT_GIVEN else mean
    squares = total((a - centre) ** 2, axis, keepdims=True, where=where)
    freedom = np.maximum(count_of(a, axis, where) - ddof, 0.0)
    return _without(squares / freedom, axes_of(a, axis), keepdims)


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
    return largest(truths, axis, keepdims=keepdims, initial=False)


def all_of(
    a: Any, axis: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True
) -> WholeArray:
    """np.all."""
    refuse(out=out)
    truths = _truths(a) if where is True else _truths(a) | np.logical_not(where)
    return smallest(truths, axis, keepdims=keepdims, initial=True)


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
        line = ravel(array) if axis is None or not array.ndim else array
        k = axis_of(int(axis or 0), line.ndim)
        if not line.shape[k]:
            raise ValueError(f"attempt to get {operator} of an empty sequence")
        shape = (*line.shape[:k], *line.shape[k + 1 :])
        result = line.then(rules.positioned, (operator, k), shape, kind="i")
        return kept_dimensions(result, axes_of(array, _of_number(array, axis)), keepdims)

    return function


def running(operator: str) -> Callable[..., WholeArray]:
    """np.cumsum, np.cumprod and their kin."""

    def function(
        a: Any, axis: int | None = None, dtype: Any = None, out: None = None
    ) -> WholeArray:
        refuse(out=out)
        line = _as(ravel(a) if axis is None else whole(a), dtype)
        k = axis_of(axis or 0, line.ndim)
        kind = "i" if line.kind == "b" else line.kind
        return line.then(rules.scanned, (operator, k, False), line.shape, kind=kind)

    return function
