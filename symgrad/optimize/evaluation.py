"""Evaluations of losses: the derivatives, or products of them, that a method needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr.calls.verbs import Jacobian, grad, hessian, jacobian
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.derivatives.differentiate import deriving
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Condition, Expr, lift
from symgrad.expr.tracers.integers import Word, refuse_integer
from symgrad.expr.tracing.trace import refuse_condition
from symgrad.optimize.method import array_of


@dataclass(frozen=True)
class Weighted:
    """A result of a row's function: its value times a weight, and that weight.

    A row of weight 0 contributes nothing, whatever its value and derivatives are, but for what is
    ``also`` to be added to the loss, or to the residuals, at every row.
    """

    value: Any
    weight: Any
    """None if every row counts."""
    also: Any = None

    @property
    def parts(self) -> dict[str, Any]:
        """All that it consists of."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def kept(self, results: Sequence[Any]) -> list[Any]:
        """The results of the value, 0 where the weight is 0."""
        if self.weight is None:
            return list(results)
        idle = self.weight == 0.0
        return [functions.where(idle, 0.0, v) for v in results]


@dataclass(frozen=True)
class Accumulation:
    """The mode that matrices of derivatives are to be made in, and those they were made in."""

    mode: Mode = "auto"
    modes: list[Mode] = field(default_factory=list[Mode], compare=False)

    def noted(self, matrix: Jacobian) -> Jacobian:
        """The matrix, whose mode is noted."""
        self.modes.append(matrix.mode)
        return matrix

    def jacobian(self, exprs: Any, x: Any) -> Jacobian:
        """The Jacobian, in this mode."""
        return self.noted(jacobian(exprs, x, self.mode))

    def hessian(self, loss: Any, x: Any) -> Jacobian:
        """The Hessian, in this mode."""
        return self.noted(hessian(loss, x, self.mode))


def evaluated(
    f: Callable[..., Any],
    x: Any,
    others: tuple[Any, ...],
    needs: str,
    by: Accumulation,
    weight: float = 1.0,
) -> list[Any]:
    """The loss, its gradient, and the lower half of its Hessian or of JᵀJ, as far as needed.

    Of a "loss" it is the loss alone, of a "slope" the gradient alone. f may return `Weighted`.
    """
    graph = x[0].graph
    outcome = f(x, *others)
    row = outcome if isinstance(outcome, Weighted) else Weighted(outcome, None)
    with deriving(graph):
        if needs == "squares":
            return _squares(*slopes_of(row, x, f, by), x, weight)
        terms = row.kept(_derivatives(_scalar(graph, row.value, f), x, needs, by, weight))
        if row.also is None:
            return terms
        more = _derivatives(lift(graph, row.also), x, needs, by, weight)
        return [a + b for a, b in zip(terms, more, strict=True)]


def _derivatives(loss: Expr, x: Any, needs: str, by: Accumulation, weight: float) -> list[Any]:
    """The loss and its derivatives, as far as needed."""
    loss = loss if weight == 1.0 else loss * weight
    if needs == "loss":
        return [loss]
    results = [loss, *grad(loss, x)]
    if needs == "slope":
        return results[1:]
    if needs == "hessian":
        second = by.hessian(loss, x).toarray()
        results += [second[i, j] for i in range(len(x)) for j in range(i + 1)]
    return results


def _squares(residuals: list[Any], rows: list[dict[int, Any]], x: Any, weight: float) -> list[Any]:
    """Half the sum of squares, Jᵀr, and the lower half of JᵀJ, without structural zeros."""
    n, pairs = len(x), [*zip(residuals, rows, strict=True)]
    terms: list[list[Any]] = [[0.5 * r * r for r in residuals]]
    terms += [[row[i] * r for r, row in pairs if i in row] for i in range(n)]
    terms += [
        [row[i] * row[j] for row in rows if i in row and j in row]
        for i in range(n)
        for j in range(i + 1)
    ]
    sums = [np.sum(array(t)) if t else lift(x[0].graph, 0.0) for t in terms]
    return sums if weight == 1.0 else [s * weight for s in sums]


def slopes_of(row: Any, x: Any, f: Any, by: Accumulation) -> tuple[list[Any], list[dict[int, Any]]]:
    """The residuals of a row, and the entries of their Jacobian that are not structurally 0."""
    row = row if isinstance(row, Weighted) else Weighted(row, None)
    residuals, rows = _kept_slopes(row, x, f, by)
    if row.also is not None:
        more, below = _kept_slopes(Weighted(row.also, None), x, f, by)
        residuals, rows = residuals + more, rows + below
    return residuals, rows


def _kept_slopes(
    row: Weighted, x: Any, f: Any, by: Accumulation
) -> tuple[list[Any], list[dict[int, Any]]]:
    """The residuals and rows of the Jacobian of the row's own value."""
    residuals = _residuals(x[0].graph, row.value, f)
    matrix = by.jacobian(residuals, x)
    rows: list[dict[int, Any]] = [{} for _ in residuals]
    entries = row.kept(matrix.entries)
    for r, c, entry in zip(matrix.rows, matrix.columns, entries, strict=True):
        rows[r][c] = entry
    return row.kept(residuals), rows


def _scalar(graph: Graph, outcome: Any, f: Any) -> Expr:
    if np.ndim(array_of(outcome)) != 0:
        raise TraceError(
            f"{describe(f)} returned {np.size(array_of(outcome))} values: this method minimises "
            "one scalar; LevenbergMarquardt and GaussNewton minimise a sum of squares"
        )
    loss = array_of(outcome)[()]
    if isinstance(loss, (Condition, bool, np.bool_)):
        refuse_condition(f)
    if isinstance(loss, Word):
        refuse_integer(loss, f"what {describe(f)} returned")
    return lift(graph, loss)


def _residuals(graph: Graph, outcome: Any, f: Any) -> list[Expr]:
    """The residuals that f returned, as a list; a TraceError if there are none."""
    values = list(np.asarray(array_of(outcome)).flat)
    if any(isinstance(v, (Condition, bool, np.bool_)) for v in values):
        refuse_condition(f)
    if not values:
        raise TraceError(f"{describe(f)} returned no residuals")
    return [lift(graph, v) for v in values]
