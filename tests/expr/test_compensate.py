"""Sums of many terms in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symgrad.expr.derivatives.cotangents import LEAST_ITERATIONS
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.derivatives.transpose import CheckpointPolicy, MemoryBudget
from symgrad.expr.graph.node import inputs_of
from symgrad.expr.graph.region import Loop
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracing.trace import trace

TURNS = 5_000


def grown(v: Any) -> Any:
    """Sums of small terms: one of terms that depend on it, and one that is subtracted from."""

    def body(_: Any, c: Any) -> Any:
        return c[0] + v[0] * 1e-3 / c[0], c[1] - v[1] * 1e-3

    x, y = fori_loop(0, TURNS, body, (v[0] + 100.0, v[1] + 200.0))
    return x * y


def nested(v: Any) -> Any:
    """Sums of small terms that go on from loop to loop."""

    def body(_: Any, x: Any) -> Any:
        return fori_loop(0, 64, lambda _, x: x + v[0] * 1e-3 / x + v[1] * 1e-3, x)

    return fori_loop(0, LEAST_ITERATIONS // 64, body, v[0] + 100.0)


def results(dtype: Any, kept: int, f: Callable[[Any], Any] = grown) -> np.ndarray:
    """The value and the gradient, in another precision."""
    made = trace(f, 2)
    graph = made.graph
    graph.notes[CheckpointPolicy] = CheckpointPolicy(budget=MemoryBudget(kept, kept))
    slopes = vjp(graph, {made.outputs[0]: graph.constant(1.0)}, made.inputs)
    roots = [*made.outputs, *[i for i in slopes if i is not None]]
    graph, roots = simplify(graph, roots)
    at = np.array([[0.3, 0.7], [1.3, 0.9]], dtype)
    given = dict(zip(inputs_of(graph), at, strict=True))
    return np.array(evaluate_graph(graph, roots, given, dtype), np.float64)


@pytest.mark.parametrize("kept", [10**6, 200])
def test_sums_of_many_terms_keep_the_precision_of_a_few(kept: int) -> None:
    """Half an ULP of the sums a turn would be an error of 1e-4; in strips, too."""
    np.testing.assert_allclose(results(np.float32, kept), results(np.float64, kept), rtol=1e-6)


def test_sums_that_go_on_from_loop_to_loop_are_compensated() -> None:
    """Half an ULP of the sum at each iteration would be some 1e-4."""
    got, want = results(np.float32, 10**6, nested), results(np.float64, 10**6, nested)
    np.testing.assert_allclose(got, want, rtol=5e-6)


def test_loops_that_begin_anew_are_as_long_as_they_are() -> None:
    def f(v: Any) -> Any:
        def body(_: Any, x: Any) -> Any:
            return x * fori_loop(0, 100, lambda _, y: y + v[0], v[0])

        return fori_loop(0, 100, body, v[0])

    made = trace(f, 1)
    loops = [node[0] for node in made.graph.nodes if isinstance(node[0], Loop)]
    assert [loop.carries for loop in loops] == [1, 1]


def test_sums_without_end_are_infinite() -> None:
    made = trace(lambda v: fori_loop(0, LEAST_ITERATIONS, lambda _, x: x + v[0], v[0]), 1)
    at = {made.inputs[0]: np.array([1e305, -np.inf, np.nan])}
    got = evaluate_graph(made.graph, made.outputs, at)[0]
    np.testing.assert_array_equal(got, [np.inf, -np.inf, np.nan])


@pytest.mark.parametrize(
    ("iterations", "carries"), [(LEAST_ITERATIONS - 1, 3), (LEAST_ITERATIONS, 4)]
)
def test_what_is_compensated(iterations: int, carries: int) -> None:
    """Neither what is multiplied, nor what is counted; nor a loop of fewer iterations."""

    def f(v: Any) -> Any:
        def body(_: Any, c: Any) -> Any:
            return c[0] + v[0], c[1] * 0.5, c[2] + 1.0

        return sum(fori_loop(0, iterations, body, (v[0], v[0], v[0])))

    made = trace(f, 1)
    found = [node[0] for node in made.graph.nodes if isinstance(node[0], Loop)]
    assert [loop.carries for loop in found] == [carries]


def test_what_is_lost_by_rounding_has_no_cotangents() -> None:
    made = trace(grown, 2)
    graph = made.graph
    graph.notes[CheckpointPolicy] = CheckpointPolicy("keep")
    vjp(graph, {made.outputs[0]: graph.constant(1.0)}, made.inputs)
    (back,) = [node[0] for node in graph.nodes if isinstance(node[0], Loop) and node[0].down]
    assert not any("error_bar" in name for name in back.body.graph.names)
