"""Operations on arrays of expressions along an axis: extremes, sums, products, running ones."""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle, Masked, Op
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.tracers.array import ExprArray, call, graph_of, map_elements, plain
from symgrad.expr.tracers.expression import Expr, as_real, lift

# --- extremes -------------------------------------------------------------------------------------
# The largest and the smallest of many, whose derivative all that they equal share alike.


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Extreme(Op):
    """A row that is its first argument, the extreme of the others by ``of``.

    All that it equals share its derivative; NaN, which equals nothing, has the derivative NaN.
    """

    of: Op

    def __reduce__(self) -> Any:
        return extreme_row, (self.of, self.arity - 1)


@functools.cache
def extreme_row(of: Op, count: int) -> Extreme:
    """The row of an extreme of so many values, by `minimum` or `maximum`."""

    def vjp(g: Any, _: Any, extreme: Any, *values: Any) -> tuple[Any, ...]:
        part = g * share(extreme, lambda f: balanced(add_elements, [f(v) for v in values]))
        return None, *[Masked(~beyond(of, v, extreme), part) for v in values]

    return Extreme(
        name="largest" if of is ops.maximum else "smallest",
        signature=f"{'f' * (count + 1)}->f",
        cost=0,
        reference=lambda x, *_: np.array(x),
        transparent=True,
        meaning="the first argument, with the derivative of an extreme of the others",
        vjp=vjp,
        of=of,
    )


def beyond(op: Op, x: Any, extreme: Any) -> Any:
    """Whether an element is not the extreme: smaller than the largest, say."""
    return ops.lt(x, extreme) if op is ops.maximum else ops.lt(extreme, x)


def share(extreme: Any, total: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """The share of each of the elements that equal an extreme; ``total`` sums a function of all."""
    hits = total(lambda x: ops.where(ops.eq(x, extreme), 1.0, 0.0))
    return ops.where(hits > 0.0, 1.0 / hits, math.nan)


def extreme_of(op: Op, values: list[Any], initial: Any = None) -> Any:
    """The smallest of the values by `minimum`, or the largest by `maximum`: a balanced tree.

    All values that it equals share its derivative. A tie of two, as that with an initial value, is
    shared by the operation itself.
    """
    if initial is not None:
        return call(op, extreme_of(op, values), initial) if values else initial
    extreme = balanced(functools.partial(call, op), values)
    if len(values) < 3 or not isinstance(extreme, Expr):
        return extreme
    reals = [lift(extreme.graph, v) for v in values]
    return extreme_row(op, len(reals))(extreme, *reals)


def unless_nan(op: Op, a: Any, b: Any) -> Any:
    """The larger or the smaller of two numbers, or that one of them which is not NaN."""
    chosen = call(op, a, b)
    if isinstance(chosen, Handle) and chosen.is_integer:
        return chosen
    return call(ops.where, call(ops.isnan, a), b, call(ops.where, call(ops.isnan, b), a, chosen))


# --- sums, products and matrices ------------------------------------------------------------------


def is_zero(a: Any) -> bool:
    """Whether an element of an array is the number 0, which says that nothing is there."""
    return not isinstance(a, Handle) and bool(a == 0)


def add_elements(a: Any, b: Any) -> Any:
    """a + b of elements of arrays, where a number 0 says that nothing is there."""
    return _beside(a, b) if is_zero(a) else _beside(b, a) if is_zero(b) else a + b


def subtract_elements(a: Any, b: Any) -> Any:
    """a - b of elements of arrays, where a number 0 says that nothing is there."""
    return _beside(b, a) if is_zero(b) else -_beside(a, b) if is_zero(a) else a - b


def multiply_elements(a: Any, b: Any) -> Any:
    """a * b of elements of arrays, where a number 0 says that nothing is there."""
    if is_zero(a) or is_zero(b):
        return 0 if _is_integer(a) and _is_integer(b) else 0.0
    return a * b


def _beside(zero: Any, other: Any) -> Any:
    """The other operand of a sum with the number 0, which is real if the number is."""
    return other if _is_integer(zero) else as_real(other)


def _is_integer(a: Any) -> bool:
    return a.is_integer if isinstance(a, Handle) else isinstance(a, numbers.Integral)


def reals(a: Any) -> Any:
    """Elements as an array of objects, integers among them as the real numbers that they are."""
    a = plain(a)
    integers = any(isinstance(e, Handle) and e.is_integer for e in a.flat)
    return plain(map_elements(as_real, a)) if integers else a


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes by their numbers from the front: one, several, or all of None.

    Raises:
        AxisError: for one that is not among so many.
        ValueError: for one that is given twice.
    """
    return normalize_axis_tuple(range(ndim) if axis is None else axis, ndim)


def reduce(
    function: Callable[[Any, Any], Any],
    a: Any,
    axis: Any = 0,
    keepdims: bool = False,
    initial: Any = None,
) -> Any:
    """The elements along one or several axes, or all of them, combined by ``function``."""
    return reduce_lists(lambda values: balanced(function, values, initial), a, axis, keepdims)


def reduce_lists(
    function: Callable[[list[Any]], Any], a: Any, axis: Any = 0, keepdims: bool = False
) -> Any:
    """The result of ``function`` for the elements along one or several axes, or for all of them."""
    a = plain(a)
    axes = sorted(axes_of(axis, a.ndim)) if a.ndim else []
    other_axes = [k for k in range(a.ndim) if k not in axes]
    length = math.prod(a.shape[k] for k in axes)
    rows = a.transpose(other_axes + axes).reshape([a.shape[k] for k in other_axes] + [length])
    result = np.empty(rows.shape[:-1], dtype=object)
    each = rows.reshape(result.size, rows.shape[-1])
    with OnePlace(graph_of([rows])):
        for k, values in enumerate(each):
            result.flat[k] = function(list(values))
    if keepdims:
        result = np.expand_dims(result, tuple(axes))
    return result.view(ExprArray) if result.ndim else result[()]


def balanced(function: Callable[[Any, Any], Any], values: list[Any], initial: Any = None) -> Any:
    """The values combined as a balanced tree, so that rounding errors grow with its depth only."""
    if initial is not None:
        values = [initial, *values]
    if not values:
        if function is add_elements or function is operator.mul:
            return 0.0 if function is add_elements else 1.0
        raise TraceError(located("an empty array has no largest or smallest element"))
    while len(values) > 1:
        paired = [function(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = paired + values[len(paired) * 2 :]
    return values[0]


def accumulate(function: Callable[[Any, Any], Any], a: Any, axis: int = 0) -> Any:
    """The results of `reduce` of the elements up to each one along an axis."""
    rows = np.moveaxis(plain(a).astype(object), axis, 0).copy()
    for k in range(1, len(rows)):
        rows[k] = map_elements(function, rows[k - 1], rows[k])
    return np.moveaxis(rows, 0, axis).view(ExprArray)


def matmul(a: Any, b: Any) -> Any:
    """``a @ b``, each sum a balanced tree."""
    a, b = plain(a), plain(b)
    if not a.ndim or not b.ndim:
        raise TraceError(located("matmul needs arrays: use * to multiply by a scalar"))
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise TraceError(located(f"matmul: shapes {a.shape} and {b.shape} do not match"))
    products = map_elements(multiply_elements, left[..., :, :, None], right[..., None, :, :])
    result = plain(reduce(add_elements, products, axis=-2))
    result = result[..., 0] if b.ndim == 1 else result
    if a.ndim == 1:
        result = result[..., 0, :] if b.ndim > 1 else result[..., 0]
    return result.view(ExprArray) if result.ndim else result[()]
