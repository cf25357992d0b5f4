"""Where float32 loses precision: a graph evaluated in float32 and float64, node beside node.

Three questions, each answered for all nodes or for one: how wrong is a node, what does it do to
the errors that come in, and what of the error of the results is its doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, Graph, inputs_of, reachable
from symgrad.expr.semantics.evaluate import evaluate_graph, leaf

DIGITS: Final = 24
"""Significant bits of a float32."""

SMALLEST: Final = 2.0**-149
"""The smallest float32 above 0."""

NORMAL: Final = 2.0**-126
"""The smallest float32 with all its bits."""

TIMES: Final = 4.0
"""How much larger than the errors that come in an error is that its node is asked about."""

KINDS: Final = (
    "NaN",
    "overflow",
    "infinity",
    "decision",
    "underflow",
    "cancellation",
    "amplification",
)
"""The kinds of loss of precision at a node, of which the first that fits is named."""

SUMS: Final = (ops.add, ops.sub, ops.fma)

Floats = Any
"""A NumPy array of float64."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every node that the roots need, in float32 and in float64.

    Invariants:
      1. Row k of ``single`` and ``double`` is node ``order[k]``; columns are points.
      2. Both are float64; ``single`` holds what was computed in float32, conditions are 1 and 0.
      3. ``error`` is the difference in ULP of ``double``, as if exponents had no limits.
      4. ``rows[k]`` are the rows of the arguments of row k.
    """

    graph: Graph
    order: list[int]
    rows: list[list[int]]
    roots: list[int]
    single: Floats
    double: Floats
    error: Floats

    @property
    def outcome(self) -> Floats:
        """The errors of the roots (roots, points) in ULP of float32; infinite where not finite."""
        single, double = self.single[self.roots], self.double[self.roots]
        return np.where(np.isfinite(single), ulps(single, double, SMALLEST), np.inf)


def compare(graph: Graph, roots: Sequence[int], points: Any) -> Comparison:
    """The graph at points (B, n), which float32 holds exactly."""
    order = reachable(graph, roots)
    row = {i: k for k, i in enumerate(order)}
    runs: list[Floats] = []
    for dtype in (np.float32, np.float64):
        inputs = {i: points[:, k].astype(dtype) for k, i in enumerate(inputs_of(graph))}
        values = evaluate_graph(graph, order, inputs, dtype)
        runs.append(np.array([v.astype(np.float64) for v in values]))
    single, double = runs
    return Comparison(
        graph,
        order,
        [[row[a] for a in graph.args(i)] for i in order],
        [row[i] for i in roots],
        single,
        double,
        ulps(single, double),
    )


def ulps(single: Floats, double: Floats, smallest: float = 0.0) -> Floats:
    """The differences in ULP of a float32; infinite if one is NaN or infinite, the other not.

    ``smallest`` is the least that a ULP may be: 0 for exponents without limits.
    """
    with np.errstate(all="ignore"):
        exponent = np.frexp(double)[1]
        ulp = np.maximum(np.where(double == 0.0, 0.0, np.ldexp(1.0, exponent - DIGITS)), smallest)
        error = np.abs(single - double) / ulp
    same = (single == double) | (np.isnan(single) & np.isnan(double))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def incoming(comparison: Comparison) -> Floats:
    """The largest error of the arguments of each node, in their ULP.

    For a sum it is measured in ULP of the larger argument: noise in a small one does no harm.
    """
    result = np.zeros_like(comparison.error)
    for k, arguments in enumerate(comparison.rows):
        if comparison.graph.nodes[comparison.order[k]][0] in SUMS:
            single, double = comparison.single[arguments], comparison.double[arguments]
            largest = np.max(np.abs(double), axis=0)
            with np.errstate(invalid="ignore"):
                result[k] = np.max(ulps(largest + np.abs(single - double), largest), axis=0)
        elif arguments:
            result[k] = np.max(comparison.error[arguments], axis=0)
    return result


def kinds(comparison: Comparison, least: float) -> Any:
    """The kind of loss at each node and point, as an index of KINDS, or -1.

    ``least`` is the error in ULP from which a node is asked about. What is wrong already when it
    comes in is not the node's doing.
    """
    operations = [comparison.graph.nodes[i][0] for i in comparison.order]
    nan, infinite = np.isnan(comparison.single), np.isinf(comparison.single)
    nan_in, infinite_in = _any_argument(comparison, nan), _any_argument(comparison, nan | infinite)
    computed = np.array([[bool(op.arity)] for op in operations])
    worse = (comparison.error >= least) & (
        comparison.error >= TIMES * np.maximum(incoming(comparison), 1.0)
    )
    worse &= ~(nan | infinite) & np.array([[op is not INPUT] for op in operations])
    born = infinite & ~infinite_in & computed
    tiny = (np.abs(comparison.double) < NORMAL) & (comparison.double != 0.0)
    tests = [
        nan & ~nan_in & computed,
        born & np.isfinite(comparison.double),
        born,
        worse & np.array([[op.result == "b"] for op in operations]),
        worse & tiny,
        worse & np.array([[op in SUMS] for op in operations]),
        worse & np.array([[op is not CONST] for op in operations]),
    ]
    return np.select(tests, range(len(tests)), -1)


def _any_argument(comparison: Comparison, mask: Any) -> Any:
    rows = [mask[a].any(axis=0) if a else np.zeros(mask.shape[1], bool) for a in comparison.rows]
    return np.array(rows).reshape(mask.shape)


def effect(comparison: Comparison, row: int, columns: Any) -> Floats:
    """The errors in ULP (roots, columns) of results whose only error is that of one node.

    Everything else is computed in float64. A node that is not finite in float64 either is charged
    with every result that is not finite because of it.
    """
    if not np.isfinite(comparison.double[row, columns]).all():
        return np.where(_spread(comparison, row, columns)[comparison.roots], np.inf, 0.0)
    injected = _injected(comparison, row, columns)
    return ulps(injected, comparison.double[np.ix_(comparison.roots, columns)], SMALLEST)


def _spread(comparison: Comparison, row: int, columns: Any) -> Any:
    """Where (rows, columns) nodes are not finite because one of them is not."""
    broken = ~np.isfinite(comparison.single[:, columns])
    broken[:row] = False
    for k in range(row + 1, len(comparison.rows)):
        if broken[k].any():
            broken[k] &= broken[comparison.rows[k]].any(axis=0)
    return broken


def _injected(comparison: Comparison, row: int, columns: Any) -> Floats:
    """The roots in float64, after one node was given its float32 value."""
    nodes, order = comparison.graph.nodes, comparison.order
    changed = {row: _typed(comparison, row, comparison.single[row, columns])}
    for k in range(row + 1, len(order)):
        arguments = comparison.rows[k]
        if not changed.keys().isdisjoint(arguments):
            inputs = [
                changed[a] if a in changed else _value(comparison, a, columns) for a in arguments
            ]
            with np.errstate(all="ignore"):
                changed[k] = nodes[order[k]][0].reference(*inputs)
    return np.array(
        [
            np.asarray(changed.get(r, comparison.double[r, columns]), np.float64)
            for r in comparison.roots
        ]
    )


def _value(comparison: Comparison, row: int, columns: Any) -> Any:
    node = comparison.graph.nodes[comparison.order[row]]
    if not node[0].arity and node[0] is not INPUT:
        return leaf(node, np.float64)
    return _typed(comparison, row, comparison.double[row, columns])


def _typed(comparison: Comparison, row: int, values: Floats) -> Any:
    """Values as the type of a node: conditions are kept as numbers."""
    kind = comparison.graph.type(comparison.order[row])
    return values.astype({"f": np.float64, "b": np.bool_, "i": np.int32, "u": np.uint32}[kind])
