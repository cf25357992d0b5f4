"""Reverse mode through loops and choices."""

from __future__ import annotations

import numpy as np
import pytest

from symgrad.errors import DifferentiationError
from symgrad.expr import ops
from symgrad.expr.differentiate import vjp
from symgrad.expr.evaluate import evaluate_graph
from symgrad.expr.node import WORD, Graph
from symgrad.expr.region import close, hole, loop_op, pick
from symgrad.expr.verify import verify


def squarings(most: int | None) -> tuple[Graph, int, int]:
    """x <- x * x for n turns, where n is a whole number that is an input, and the result."""
    graph = Graph()
    graph.tracing = False
    x, n = graph.input("x"), graph.input("n")
    k, y = hole(graph, "u", name="k"), hole(graph, "f", name="y")
    region, _ = close(graph, [k, y], [graph.add(ops.mul, y, y)])
    turns = graph.add(ops.nearest_word, n)
    loop = graph.add(loop_op(region, 1, most=most), graph.intern((WORD, 0)), turns, x)
    return graph, x, pick(graph, loop, 0, "f")


def test_a_loop_with_its_own_number_of_turns_at_each_point() -> None:
    graph, x, y = squarings(5)
    (slope,) = vjp(graph, {y: graph.constant(1.0)}, [x])
    assert slope is not None
    verify(graph, [slope])
    points, turns = np.linspace(0.8, 1.2, 6), np.arange(6.0)
    got = evaluate_graph(graph, [y, slope], {x: points, x + 1: turns})
    np.testing.assert_allclose(got[0], points**2**turns, rtol=1e-12)
    np.testing.assert_allclose(got[1], 2**turns * points ** (2**turns - 1), rtol=1e-12)


def test_turns_that_nobody_knows_how_many_are_refused() -> None:
    graph, x, y = squarings(None)
    with pytest.raises(DifferentiationError, match="most=100"):
        vjp(graph, {y: graph.constant(1.0)}, [x])
