"""The primitives of NumPy's reductions of whole arrays, and those that elements lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.shapes import NOT_GIVEN, axes_of, axis_of, ravel, whole
from symgrad.arrays.tape import size_of
from symgrad.arrays.views import expand_dims
from symgrad.arrays.whole import WholeArray
from symgrad.expr.calls.numpy_calls import REDUCE
from symgrad.expr.calls.reductions import largest, refuse, smallest, total, typed

COMBINING: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
"""The ufuncs that reductions are of."""


def kept_dimensions(result: WholeArray, axes: Sequence[int], keepdims: Any) -> WholeArray:
    """The result of a reduction with its axes, of length 1, where they are kept."""
    if keepdims is NOT_GIVEN or not keepdims:
        return result
    return expand_dims(result, tuple(axes))


def reduced(array: WholeArray, operator: str, axis: Any, keepdims: Any, initial: Any) -> WholeArray:
    """A reduction by an operator, and of an initial number."""
    axes = axes_of(array, _of_number(array, axis))
    is_extreme = operator in ("max", "min")
    if is_extreme and initial is None and not size_of([array.shape[k] for k in axes]):
        raise ValueError("zero-size array to reduction operation which has no identity")
    shape = tuple(n for k, n in enumerate(array.shape) if k not in axes)
    kind = "i" if array.kind == "b" else array.kind
    result = (
        array.then(rules.reduced, (operator, axes), shape, kind=kind) if axes else array.copied()
    )
    result = kept_dimensions(result, axes, keepdims)
    if initial is not None:
        result = COMBINING[operator](result, initial)
    return _truths(result) if array.kind == "b" and is_extreme and result.kind == "i" else result


def _of_number(a: WholeArray, axis: Any) -> Any:
    """The axis that a number is reduced along: NumPy lets it have one for that."""
    return () if not a.ndim and type(axis) is int and axis in (0, -1) else axis


def any_of(a: Any, axis: Any = None, keepdims: Any = False, *, where: Any = True) -> WholeArray:
    """np.any."""
    truths = _truths(a) if where is True else _truths(a) & where
    return largest(truths, axis, keepdims=keepdims, initial=False)


def all_of(a: Any, axis: Any = None, keepdims: Any = False, *, where: Any = True) -> WholeArray:
    """np.all."""
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

    def function(a: Any, axis: Any = None, *, keepdims: Any = False) -> WholeArray:
        array = whole(a)
        line = ravel(array) if axis is None or not array.ndim else array
        k = axis_of(int(axis or 0), line.ndim)
        if not line.shape[k]:
            raise ValueError(f"attempt to get {operator} of an empty sequence")
        shape = (*line.shape[:k], *line.shape[k + 1 :])
        result = line.then(rules.positioned, (operator, k), shape, kind="i")
        return kept_dimensions(result, axes_of(array, _of_number(array, axis)), keepdims)

    return function


def scanned(line: Any, operator: str, axis: int) -> WholeArray:
    """The reductions of the elements up to each one along an axis."""
    kind = "i" if line.kind == "b" else line.kind
    attribute = operator, axis_of(axis, line.ndim), False
    return line.then(rules.scanned, attribute, line.shape, kind=kind)


def accumulate(operator: str) -> Callable[..., Any]:
    """The method accumulate of a ufunc, which is along the first axis by default."""
    return lambda array, axis=0, dtype=None: scanned(typed(whole(array), dtype), operator, axis)


def truths_accumulated(operator: str) -> Callable[..., Any]:
    """The method accumulate of logical_and, the smallest truth so far, or of logical_or."""

    def results(array: Any, axis: int = 0, dtype: Any = None) -> Any:
        if dtype is not None and np.dtype(dtype) != bool:
            refuse(dtype=dtype)
        return scanned(_truths(array), operator, axis) != 0

    return results


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    "reduced": reduced,
    "scanned": scanned,
    np.any: any_of,
    np.all: all_of,
    np.count_nonzero: count_nonzero,
    np.argmax: position("argmax"),
    np.argmin: position("argmin"),
    **{(ufunc, "reduce"): function for ufunc, function in REDUCE.items()},
    (np.logical_and, "reduce"): lambda a, axis=0, **options: all_of(a, axis, **options),
    (np.logical_or, "reduce"): lambda a, axis=0, **options: any_of(a, axis, **options),
    (np.logical_and, "accumulate"): truths_accumulated("min"),
    (np.logical_or, "accumulate"): truths_accumulated("max"),
    **{(ufunc, "accumulate"): accumulate(name) for name, ufunc in COMBINING.items()},
}
"""NumPy's functions on whole arrays."""
