"""NumPy's functions that pass over NaN, and those that tell infinities apart."""

from __future__ import annotations

import functools
import math
import numbers
import operator
from typing import Any

from symgrad.expr import ops
from symgrad.expr.graph.node import Handle, Op
from symgrad.expr.tracers.along import reals, reduce
from symgrad.expr.tracers.array import array, call, map_elements


def unless_nan(op: Op, a: Any, b: Any) -> Any:
    """The larger or the smaller of two numbers, or that one of them which is not NaN."""
    chosen = call(op, a, b)
    if _is_integer(chosen):
        return chosen
    return call(ops.where, call(ops.isnan, a), b, call(ops.where, call(ops.isnan, b), a, chosen))


def _filled(a: Any, value: float) -> Any:
    """The elements, with a number in the place of each NaN: what is not chosen has no slope."""

    def filled(x: Any) -> Any:
        return x if _is_integer(x) else call(ops.where, call(ops.isnan, x), value, x)

    return map_elements(filled, a)


def _is_integer(x: Any) -> bool:
    return x.is_integer if isinstance(x, Handle) else isinstance(x, numbers.Integral)


def nansum(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """np.nansum: NaN counts as 0, and has no slope."""
    return reduce(operator.add, _filled(a, 0.0), axis, keepdims, initial)


def nanprod(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """np.nanprod: NaN counts as 1, and has no slope."""
    return reduce(operator.mul, _filled(a, 1.0), axis, keepdims, initial)


def _count(a: Any, axis: Any, keepdims: bool) -> Any:
    """How many elements are numbers."""
    ones = map_elements(lambda x: call(ops.where, call(ops.isnan, x), 0.0, 1.0), a)
    return reduce(operator.add, ones, axis, keepdims)


def nanmean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """np.nanmean: NaN where every element is."""
    a = reals(a)
    return _divided(nansum(a, axis, keepdims), _count(a, axis, keepdims))


def nanvar(
    a: Any,
    axis: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """np.nanvar: NaN where no more than ddof elements are numbers."""
    a = reals(a)
    ddof = ddof if correction is None else correction
    centred = array(a) - (nanmean(a, axis, keepdims=True) if mean is None else mean)
    count = _count(a, axis, keepdims)
    free = map_elements(lambda n: call(ops.where, n > ddof, n - ddof, math.nan), count)
    return _divided(nansum(centred * centred, axis, keepdims), free)


def _divided(a: Any, b: Any) -> Any:
    return map_elements(functools.partial(call, ops.div), a, b)


def nanstd(a: Any, *args: Any, **options: Any) -> Any:
    """np.nanstd."""
    return call(ops.sqrt, nanvar(a, *args, **options))


def nanmax(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """np.nanmax: NaN where every element is."""
    return reduce(functools.partial(unless_nan, ops.maximum), a, axis, keepdims, initial)


def nanmin(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """np.nanmin."""
    return reduce(functools.partial(unless_nan, ops.minimum), a, axis, keepdims, initial)


def isposinf(x: Any) -> Any:
    """np.isposinf."""
    return call(ops.eq, x, math.inf)


def isneginf(x: Any) -> Any:
    """np.isneginf."""
    return call(ops.eq, x, -math.inf)
