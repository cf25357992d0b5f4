"""Sums of long arrays in memory: a loop adds their elements up."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr import ops
from symgrad.expr.derivatives.compensate import compensated
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.graph.region import hole
from symgrad.expr.handles.array import TracedArray, swept
from symgrad.expr.handles.expression import Expr
from symgrad.expr.handles.sweep import LEAST_SWEPT
from symgrad.expr.handles.sweep import swept as swept_over


def total(a: Any, axis: Any = None) -> Expr | None:
    """The sum of all elements of a long array in memory; None of anything else."""
    if not isinstance(a, TracedArray) or a.size < LEAST_SWEPT or axis is not None:
        return None
    graph, element = a.graph, a.element()
    if element is None:
        return None
    with OnePlace(graph):
        so_far = hole(graph, "f", name="total")
        new = graph.add(ops.add, so_far, element.as_float().id)
        inits = {so_far: graph.constant(0.0)}
        (end,) = swept_over(graph, a.size, inits, [new], compensated)
    return Expr(graph, end)


def inner(a: Any, b: Any) -> Expr | None:
    """``a @ b`` of long arrays with one axis, of which one is in memory; None of anything else."""
    both = isinstance(a, TracedArray) and len(a.shape) == 1
    products = swept(lambda x, y: x * y, [a, b]) if both and np.shape(b) == a.shape else None
    return total(products)
