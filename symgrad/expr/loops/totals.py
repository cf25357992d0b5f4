"""Sums, means and other reductions of long arrays in memory: a loop takes their elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import compensated
from symgrad.expr.graph.node import Op
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.graph.region import hole
from symgrad.expr.tracers.along import beyond, share
from symgrad.expr.tracers.array import TracedArray, swept
from symgrad.expr.tracers.expression import Expr, as_real
from symgrad.expr.tracers.integers import BITS, Word
from symgrad.expr.tracers.memory import LEAST_SWEPT, Finish
from symgrad.expr.tracers.memory import swept as swept_over


def total(a: Any, axis: Any = None, **more: Any) -> Any:
    """The sum of all elements of a long array in memory; None of anything else."""
    return _folded(a, ops.add, 0.0, axis is None and not more, compensated)


def product(a: Any, axis: Any = None, **more: Any) -> Any:
    """The product of all elements of a long array in memory; None of anything else."""
    return _folded(a, ops.mul, 1.0, axis is None and not more)


def largest(a: Any, axis: Any = None, **more: Any) -> Any:
    """The largest element of a long array in memory; None of anything else."""
    return _extreme(a, ops.maximum, -math.inf, axis is None and not more)


def smallest(a: Any, axis: Any = None, **more: Any) -> Any:
    """The smallest element of a long array in memory; None of anything else."""
    return _extreme(a, ops.minimum, math.inf, axis is None and not more)


class _Valued(Op):
    """The row of `EXTREME`."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "EXTREME"


EXTREME: Final = _Valued(
    name="extreme",
    signature="ff->f",
    cost=0,
    reference=lambda x, _: np.array(x),
    transparent=True,
    meaning="the first argument, with the derivative of the second",
    vjp=lambda g, y, extreme, mean: (None, g),
)
"""The extreme of an array, with the derivative of the mean of all elements that it equals."""


def _extreme(a: Any, op: Op, start: float, whole: bool) -> Any:
    """The fold of `minimum` or `maximum`, whose derivative all ties share: see `share`."""
    extreme = _folded(a, op, start, whole)
    if not isinstance(extreme, Expr):
        return extreme

    def of_all(f: Callable[[Any], Any]) -> Any:
        return total(swept(lambda x: f(as_real(x)), [a]))

    ties = of_all(lambda x: ops.where(beyond(op, x, extreme), 0.0, x))
    return EXTREME(extreme, share(extreme, of_all) * ties)


def mean(a: Any, axis: Any = None, **more: Any) -> Expr | None:
    """The mean of all elements of a long array in memory; None of anything else."""
    sum_of_all = total(swept(as_real, [a]), axis, **more)
    return None if sum_of_all is None else sum_of_all / float(a.size)


def variance(a: Any, axis: Any = None, ddof: float = 0, **more: Any) -> Expr | None:
    """The variance of all elements of a long array in memory; None of anything else."""
    middle = mean(a, axis, **more)
    squares = None if middle is None else swept(lambda x: (x - middle) * (x - middle), [a])
    squared = total(squares)
    return None if squared is None else squared / float(a.size - ddof)


def deviation(a: Any, axis: Any = None, ddof: float = 0, **more: Any) -> Expr | None:
    """The standard deviation of a long array in memory; None of anything else."""
    spread = variance(a, axis, ddof, **more)
    return None if spread is None else ops.sqrt(spread)


def _folded(a: Any, op: Op, start: float, whole: bool, finish: Finish = lambda op: (op, 0)) -> Any:
    """The fold of an operation over all elements, one after the other, from a start."""
    if not isinstance(a, TracedArray) or a.size < LEAST_SWEPT or not whole:
        return None
    graph, element = a.graph, a.element()
    if element is None:
        return None
    if isinstance(element, Word):
        return _folded_integers(a, op, element)
    with OnePlace(graph):
        so_far = hole(graph, "f", name="so_far" if op is not ops.add else "total")
        new = graph.add(op, so_far, element.as_float().id)
        inits = {so_far: graph.constant(start)}
        (end,) = swept_over(graph, a.size, inits, [new], finish)
    return Expr(graph, end)


def _folded_integers(a: TracedArray, op: Op, element: Word) -> Word:
    """As `_folded`, of integers modulo 2**32."""
    graph, kind = a.graph, type(element)
    low, high = kind.least, kind.least - 1 + 2**BITS
    starts = {ops.add: 0, ops.mul: 1, ops.maximum: low, ops.minimum: high}
    with OnePlace(graph):
        so_far = hole(graph, "u", name="so_far")
        new = op(kind(graph, so_far), element)
        (end,) = swept_over(graph, a.size, {so_far: kind.of(graph, starts[op]).id}, [new.id])
    return kind(graph, end)


def inner(a: Any, b: Any, **more: Any) -> Any:
    """``a @ b`` of long arrays with one axis, of which one is in memory; None of anything else."""
    both = isinstance(a, TracedArray) and len(a.shape) == 1 and not more
    products = swept(lambda x, y: x * y, [a, b]) if both and np.shape(b) == a.shape else None
    return total(products)
