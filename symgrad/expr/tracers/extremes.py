"""The largest and the smallest of many, whose derivative all that they equal share alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Handle, Op
from symgrad.expr.tracers.along import add_elements, balanced
from symgrad.expr.tracers.array import call
from symgrad.expr.tracers.expression import Expr, as_real


class _Extreme(Op):
    """The row of `EXTREME`."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "EXTREME"


EXTREME: Final = _Extreme(
    name="extreme",
    signature="ff->f",
    cost=0,
    reference=lambda x, _: np.array(x),
    transparent=True,
    meaning="the first argument, an extreme, with the derivative of the mean of what it equals",
    vjp=lambda g, y, extreme, mean: (None, g),
)
"""The value of the first argument with the derivative of the second: see `with_ties`."""


def with_ties(op: Op, extreme: Any, total: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """An extreme whose derivative is that of the mean of all elements that it equals.

    ``op`` is `minimum` or `maximum`, and ``total`` sums a function of the elements. NaN is equal to
    all elements here, so that its derivative is NaN.
    """

    def chosen(x: Any, value: Any) -> Any:
        beside = (x, extreme) if op is ops.maximum else (extreme, x)
        return ops.where(ops.lt(*beside), 0.0, value)

    hits = total(lambda x: ops.where(ops.eq(x, extreme), 1.0, 0.0))
    share = ops.where(hits > 0.0, 1.0 / hits, math.nan)
    return EXTREME(extreme, share * total(lambda x: chosen(x, x)))


def extreme_of(op: Op, values: list[Any], initial: Any = None) -> Any:
    """The smallest of the values by `minimum`, or the largest by `maximum`: a balanced tree."""
    return _among(op, functools.partial(call, op), values, values, initial)


def extreme_of_numbers(op: Op, values: list[Any], initial: Any = None) -> Any:
    """As `extreme_of`, of those that are not NaN; NaN where all are."""
    last = -math.inf if op is ops.maximum else math.inf
    numbers = [call(ops.where, call(ops.isnan, v), last, v) for v in values]
    return _among(op, functools.partial(unless_nan, op), values, numbers, initial)


def unless_nan(op: Op, a: Any, b: Any) -> Any:
    """The larger or the smaller of two numbers, or that one of them which is not NaN."""
    chosen = call(op, a, b)
    if isinstance(chosen, Handle) and chosen.is_integer:
        return chosen
    return call(ops.where, call(ops.isnan, a), b, call(ops.where, call(ops.isnan, b), a, chosen))


def _among(
    op: Op, combine: Callable[[Any, Any], Any], values: list[Any], ties: list[Any], initial: Any
) -> Any:
    """An extreme of the values, whose derivative ``ties`` that it equals share; then the initial.

    A tie of two, as that with an initial value, is shared by the operation itself.
    """
    if initial is not None:
        return combine(_among(op, combine, values, ties, None), initial) if values else initial
    extreme = balanced(combine, values)
    if len(values) < 3 or not isinstance(extreme, Expr):
        return extreme
    reals = [as_real(v) for v in ties]
    return with_ties(op, extreme, lambda f: balanced(add_elements, [f(v) for v in reals]))
