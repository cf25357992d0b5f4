"""Every row of the op table in the body of a loop: as if the loop were written out.

Arguments move from turn to turn over the points of the row, and over the places where rows have
kinks, poles and ends of domains: 0 and ±1 are met exactly, infinity and NaN as well. Derivatives
are those of both modes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from strategies import OPS, types

from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import jvp, vjp
from symgrad.expr.graph.node import Op
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracing.trace import trace

TURNS, STEP = 5, 0.25
ROWS = [op for op in OPS if not op.parameters]
GRID = np.array([-1.25, -0.5, -0.0, 0.0, 0.5, 1.75, 3.0, 1e-30, -np.inf, np.inf, np.nan])


def starts(op: Op) -> np.ndarray:
    """Where arguments begin, (points, floats): the row's own points, and all pairs of a grid."""
    count = max(1, types(op).count("f"))
    own = (
        []
        if "f" not in types(op)
        else [
            [float(x) for x, kind in zip(point, types(op), strict=False) if kind == "f"]
            for point in op.points
        ]
    )
    grid = np.stack(np.meshgrid(*[GRID] * count), axis=-1).reshape(-1, count)[:400]
    return np.concatenate([np.reshape(own, (-1, count)), grid])


def body(op: Op) -> Callable[[Any, Any], Any]:
    """A turn: the carry is a number that is made of what the row makes, and the row's arguments."""

    def iteration(k: Any, carry: Any) -> Any:
        s, *given = carry
        floats, args = iter(given), list[Any]()
        for kind in types(op):
            args.append(
                {"f": lambda: next(floats), "b": lambda: given[0] < s, "i": lambda: 3}[kind]()
            )
        y = op(*args)
        y = ops.where(y, 1.0, 0.0) if op.result == "b" else y
        return (s * 0.5 + y, *[x + STEP for x in given])

    return iteration


def written(op: Op, looped: bool) -> Callable[[Any], Any]:
    """The last carry's first number, of a loop or of Python's."""

    def f(v: Any) -> Any:
        carry = (v[0] * 0.0 + 0.125, *v)
        if looped:
            return fori_loop(0, TURNS, body(op), carry)[0]
        for k in range(TURNS):
            carry = body(op)(k, carry)
        return carry[0]

    return f


def results(op: Op, looped: bool, at: np.ndarray) -> np.ndarray:
    """The value, and its derivatives in reverse and in forward mode, at points."""
    traced = trace(written(op, looped), at.shape[1])
    graph, (root,), inputs = traced.graph, traced.outputs, list(traced.inputs)
    one = graph.constant(1.0)
    found = [root, *vjp(graph, {root: one}, inputs)]
    found += [jvp(graph, {i: one}, [root])[0] for i in inputs]
    ids = [graph.constant(0.0) if i is None else i for i in found]
    return np.array(evaluate_graph(graph, ids, dict(zip(inputs, at.T, strict=True))))


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_a_loop_is_what_python_s_writes_out(op: Op) -> None:
    at = starts(op)
    np.testing.assert_allclose(results(op, True, at), results(op, False, at), rtol=1e-9, atol=1e-12)
