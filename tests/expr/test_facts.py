"""Facts: what is proven holds for every value, in float32 as well."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import ARITHMETIC, EDGES, OPS, Drawn, graphs, points, random_graph, values

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.laws.facts import Facts
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.loops.control import cond
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracing.trace import trace


def check(drawn: Drawn) -> None:
    facts = Facts(drawn.graph)
    found = values(drawn.graph, [x.id for x in drawn.floats], points(3))
    for x, row in zip(drawn.floats, found, strict=True):
        low, high = facts.interval(x.id)
        row = row[~np.isnan(row)]
        with np.errstate(over="ignore"):
            low, high = np.float32(low), np.float32(high)  # bounds are rounded as values are
        assert (row >= low).all(), f"{x.id} has {row.min()} < {low}"
        assert (row <= high).all(), f"{x.id} has {row.max()} > {high}"
        finite = np.abs(row[np.isfinite(row)])
        assert (finite <= np.float32(facts.largest(x.id))).all(), f"{x.id} has {finite.max()}"
        if facts.nonnegative(x.id):
            assert not np.signbit(row).any(), f"{x.id} can be -0.0"
        if facts.positive(x.id):
            assert (row > 0).all(), f"{x.id} can be 0"


@given(graphs(10))
def test_intervals_of_random_graphs(drawn: Drawn) -> None:
    check(drawn)


@pytest.mark.parametrize("seed", range(40))
def test_intervals_of_larger_graphs(seed: int) -> None:
    check(random_graph(seed, size=60, table=ARITHMETIC if seed % 2 else OPS))


def expression(build: Callable[..., Any]) -> tuple[Graph, int]:
    graph = Graph()
    graph.tracing = False
    x, y = Expr(graph, graph.input("x")), Expr(graph, graph.input("y"))
    return graph, build(x, y).id


@pytest.mark.parametrize(
    ("build", "below"),
    [
        (lambda x, y: ops.sqrt(x) + 1e-8, 2e19),
        (lambda x, y: 3.0 * ops.sqrt(x * x + y * y) - ops.sqrt(y), 8e19),
        (lambda x, y: -ops.abs(ops.sin(x) * ops.sqrt(y)), 2e19),
    ],
)
def test_roots_are_small_where_they_are_finite(build: Callable[..., Any], below: float) -> None:
    graph, i = expression(build)
    assert Facts(graph).largest(i) < below


@pytest.mark.parametrize("build", [lambda x, y: x, lambda x, y: ops.minimum(ops.sqrt(x), y)])
def test_what_has_no_bound(build: Callable[..., Any]) -> None:
    graph, i = expression(build)
    assert Facts(graph).largest(i) > 3.4e38


NONNEGATIVE: list[Callable[..., Any]] = [
    lambda x, y: x * x,
    lambda x, y: ops.exp(x) + y**2,
    lambda x, y: ops.sqrt(1 + x**2),
    lambda x, y: ops.abs(x) * ops.abs(y),
    lambda x, y: x**2 / (1 + y**2),
    lambda x, y: ops.hypot(x, y),
    lambda x, y: ops.where(x < y, 2.0, y**4),
    lambda x, y: 1 / (1 + ops.exp(-x)),
    lambda x, y: ops.softplus(x) * ops.sigmoid(y),
    lambda x, y: ops.minimum(x * x, 4.0),
    lambda x, y: 2.0 * x * x,
    lambda x, y: x * y * x * y,
    lambda x, y: x * (y * (x * y)) * ops.exp(x),
    lambda x, y: ops.pow(x * x, y),
    lambda x, y: ops.log(2.0 + x * x),
    lambda x, y: 1e-6 + ops.log1p(ops.exp(x)),
]


@pytest.mark.parametrize("k", range(len(NONNEGATIVE)))
def test_what_must_be_known_nonnegative(k: int) -> None:
    graph, i = expression(NONNEGATIVE[k])
    assert Facts(graph).nonnegative(i)


UNKNOWN: list[Callable[..., Any]] = [
    lambda x, y: x,
    lambda x, y: x * y,
    lambda x, y: -(x * x),
    lambda x, y: x**3,
    lambda x, y: x * x - 1.0,
    lambda x, y: ops.sqrt(x),
    lambda x, y: x * 0.0,
    lambda x, y: ops.log(x * x),
    lambda x, y: ops.maximum(x * x, -(y * y)),
    lambda x, y: ops.where(x < y, 0.0, -0.0),
    lambda x, y: x * x * y,
    lambda x, y: -2.0 * x * x,
    lambda x, y: x * y * x,
    lambda x, y: ops.pow(x, y),
    lambda x, y: ops.log(x),
    lambda x, y: ops.log(ops.exp(x)),
    lambda x, y: ops.log1p(-ops.exp(x)),
]


@pytest.mark.parametrize("k", range(len(UNKNOWN)))
def test_what_is_not_nonnegative(k: int) -> None:
    graph, i = expression(UNKNOWN[k])
    assert not Facts(graph).nonnegative(i)


DECIDED: list[Callable[..., Any]] = [
    lambda x, y: ops.where(x * x < 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.maximum(x, 1e-30) * ops.maximum(y, 1e-30) <= 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.sqrt(ops.maximum(x, 2.0)) <= 1.4142135, 1.0, 2.0),
    lambda x, y: ops.where(ops.maximum(x, 1.0) + 1e-9 <= 1.0, 1.0, 2.0),
    lambda x, y: ops.where((ops.maximum(x, 1.0) + 5e-8) + 5e-8 < 1.0000001, 1.0, 2.0),
    lambda x, y: ops.where(ops.abs(x) < 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.sin(x) <= 1.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.tanh(x) > 1.0, 1.0, 2.0),
    lambda x, y: ops.where(-(x * x) > 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.exp(x) <= 0.0, 1.0, 2.0),
    lambda x, y: ops.where(x * y * x * y < 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.log(ops.maximum(x, 1.0)) < 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.log(ops.maximum(x, 0.5)) < -0.6931472, 1.0, 2.0),
    lambda x, y: ops.where(ops.log1p(x * x) < 0.0, 1.0, 2.0),
    lambda x, y: ops.where(ops.pow(x * x, y) < 0.0, 1.0, 2.0),
]


@pytest.mark.parametrize("k", range(len(DECIDED)))
def test_decided_comparisons_are_those_of_float32(k: int) -> None:
    graph, i = expression(DECIDED[k])
    at = np.array([a.ravel() for a in np.meshgrid(EDGES, EDGES)])
    simpler, roots = simplify(graph, [i])
    np.testing.assert_array_equal(values(graph, [i], at), values(simpler, roots, at))


def test_a_comparison_that_can_be_true_is_kept() -> None:
    graph, i = expression(lambda x, y: ops.where(x * x <= 0.0, 1.0, 2.0))
    simpler, (root,) = simplify(graph, [i])
    assert simpler.nodes[root][0] is ops.where


def test_constants() -> None:
    graph = Graph()
    facts = Facts(graph)
    assert facts.interval(graph.constant(math.nan)) == (-math.inf, math.inf)
    assert facts.nonnegative(graph.constant(0.0)) and not facts.nonnegative(graph.constant(-0.0))
    assert facts.positive(graph.constant(2.0)) and not facts.positive(graph.constant(0.0))
    assert facts.nonzero(graph.constant(-2.0)) and not facts.nonzero(graph.constant(math.inf))
    assert facts.finite(graph.constant(0.0)) and not facts.finite(graph.constant(math.nan))


def test_choices_among_finite_constants_are_finite() -> None:
    graph, i = expression(lambda x, y: ops.where(x < y, 1.0, 0.0))
    assert Facts(graph).finite(i)


def test_a_deep_chain_needs_no_recursion() -> None:
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    for _ in range(5000):
        x = ops.sqrt(1.0 + x * x)
    assert Facts(graph).nonnegative(x.id)


# --- loops and choices ----------------------------------------------------------------------------


def proven(f: Callable[[Any, Any], Any]) -> list[tuple[float, float]]:
    """The intervals of what a function of two variables gives."""
    made = trace(lambda v: f(v[0], v[1]), 2)
    facts = Facts(made.graph)
    return [facts.interval(i) for i in made.outputs]


def test_what_every_turn_keeps_is_proven_of_a_loop() -> None:
    everything, positive = (-math.inf, math.inf), (0.0, math.inf)
    for f, want in [
        (lambda x, y: sg.fori_loop(0, 9, lambda k, s: s + x * x, 0.0), [positive]),
        (lambda x, y: sg.fori_loop(0, 9, lambda k, s: s - x * x, 0.0), [(-math.inf, 0.0)]),
        (lambda x, y: sg.fori_loop(0, 9, lambda k, s: s + x, 0.0), [everything]),
        (lambda x, y: sg.fori_loop(0, 9, lambda k, s: s * s + k, -0.0), [(-5e-324, math.inf)]),
        (lambda x, y: sg.fori_loop(0, 9, lambda k, c: c[::-1], (x * x, sg.exp(y))), [positive] * 2),
        (
            lambda x, y: sg.fori_loop(0, 9, lambda k, c: (c[1], c[0] - 1), (x * x, sg.exp(y))),
            [everything] * 2,
        ),
    ]:
        assert proven(f) == want


def test_a_counter_is_between_its_bounds() -> None:
    """Also where the one of another loop is its bound."""
    ((low, high),) = proven(lambda x, y: sg.fori_loop(2, 9, lambda k, s: 0.5 * k, sg.sin(x)))
    assert low <= -1.0
    assert high >= 4.0

    def nested(x: Any, y: Any) -> Any:
        return sg.fori_loop(
            3, 9, lambda i, s: sg.fori_loop(2, i, lambda k, t: sg.log(k), sg.exp(s)), x * x
        )

    assert proven(nested) == [(0.0, math.inf)]


def test_a_choice_is_between_its_sides() -> None:
    ((low, high),) = proven(lambda x, y: cond(x > 0, lambda: sg.sin(x), lambda: 2.0))
    assert -1.01 < low <= -1.0
    assert 2.0 <= high < 2.01


def test_loops_one_behind_another_are_as_many_as_one_likes() -> None:
    """Of what lies too far behind nothing is concluded, whoever asks first."""

    def f(x: Any, y: Any) -> Any:
        for _ in range(300):
            y = sg.fori_loop(0, 9, lambda k, s: s + x * x, y)
        return y

    assert proven(f) == [(-math.inf, math.inf)]
