"""What a loss returned becomes what a method needs of it: derivatives, or products of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr.array import array
from symgrad.expr.differentiate import deriving
from symgrad.expr.expression import Expr, lift
from symgrad.expr.node import Graph
from symgrad.expr.trace import describe
from symgrad.expr.verbs import grad, hessian, jacobian
from symgrad.optimize.method import array_of


def evaluated(
    f: Callable[..., Any], x: Any, others: tuple[Any, ...], needs: str, weight: float = 1.0
) -> list[Any]:
    """What is needed: the loss, its gradient, and the lower half of its Hessian or of JᵀJ.

    Of a "loss" it is the loss alone, of a "slope" the gradient alone.
    """
    graph = x[0].graph
    outcome = f(x, *others)
    with deriving(graph):
        if needs == "squares":
            return _squares(graph, residuals_of(graph, outcome, f), x, weight)
        loss = _scalar(graph, outcome, f)
        loss = loss if weight == 1.0 else loss * weight
        if needs == "loss":
            return [loss]
        found = [loss, *grad(loss, x)]
        if needs == "slope":
            return found[1:]
        if needs == "hessian":
            second = hessian(loss, x).toarray()
            found += [second[i, j] for i in range(len(x)) for j in range(i + 1)]
        return found


def _squares(graph: Graph, residuals: list[Expr], x: Any, weight: float) -> list[Any]:
    """Half the sum of squares, Jᵀr, and the lower half of JᵀJ, without structural zeros."""
    n, rows = len(x), _jacobian_rows(residuals, x)
    terms: list[list[Any]] = [[0.5 * r * r for r in residuals]]
    terms += [[row[i] * residuals[r] for r, row in rows.items() if i in row] for i in range(n)]
    terms += [
        [row[i] * row[j] for row in rows.values() if i in row and j in row]
        for i in range(n)
        for j in range(i + 1)
    ]
    sums = [np.sum(array(t)) if t else lift(graph, 0.0) for t in terms]
    return sums if weight == 1.0 else [s * weight for s in sums]


def _jacobian_rows(residuals: list[Expr], x: Any) -> dict[int, dict[int, Expr]]:
    """The entries of the Jacobian that are not structurally 0, by row and column."""
    matrix = jacobian(residuals, x)
    rows: dict[int, dict[int, Expr]] = {}
    for r, c, entry in zip(matrix.rows, matrix.columns, matrix.entries, strict=True):
        rows.setdefault(r, {})[c] = entry
    return rows


def _scalar(graph: Graph, outcome: Any, f: Any) -> Expr:
    if np.ndim(array_of(outcome)) != 0:
        raise TraceError(
            f"{describe(f)} returned {np.size(array_of(outcome))} values: this method minimises "
            "one scalar; LevenbergMarquardt and GaussNewton minimise a sum of squares"
        )
    return lift(graph, array_of(outcome)[()])


def residuals_of(graph: Graph, outcome: Any, f: Any) -> list[Expr]:
    """What f returned, as a list; a TraceError if that is nothing."""
    values = list(np.asarray(array_of(outcome)).flat)
    if not values:
        raise TraceError(f"{describe(f)} returned no residuals")
    return [lift(graph, v) for v in values]
