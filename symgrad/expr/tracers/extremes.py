"""The largest and the smallest of many, whose derivative all that they equal share alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Handle, Masked, Op
from symgrad.expr.tracers.along import add_elements, balanced
from symgrad.expr.tracers.array import call
from symgrad.expr.tracers.expression import Expr, lift


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
    reals = [lift(extreme.graph, v) for v in ties]
    return extreme_row(op, len(reals))(extreme, *reals)
