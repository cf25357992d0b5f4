"""Negations that move into constants and sums: no bit changes, and no kernel gets dearer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import Drawn, graphs, points, values

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, reachable
from symgrad.mathlib.signs import place_signs

SIGNED = (ops.add, ops.sub, ops.mul, ops.mul, ops.div, ops.neg, ops.neg, ops.exp, ops.maximum)


def operations(graph: Graph, roots: list[int]) -> int:
    return sum(1 for i in reachable(graph, roots) if graph.nodes[i][0].arity)


@given(drawn=graphs(size=30, table=SIGNED))
def test_every_bit_is_kept_and_nothing_is_added(drawn: Drawn) -> None:
    roots = [x.id for x in drawn.floats[-4:]]
    graph, placed = place_signs(drawn.graph, roots)
    assert operations(graph, placed) <= operations(drawn.graph, roots)
    at = points(len(drawn.inputs))
    before, after = values(drawn.graph, roots, at), values(graph, placed, at)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
        known = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


@pytest.mark.parametrize(
    ("name", "made", "count"),
    [
        ("both signs of a product", lambda x, y: [-(2.0 * x), -(y * (2.0 * x))], 2),
        ("a sum takes it", lambda x, y: [-(2.0 * x * y), x - 2.0 * x * y], 3),
        ("a factor far away", lambda x, y: [-(y * (3.0 * x) / (x + y))], 4),
        ("a factor of several", lambda x, y: [-(y * (2.0 * x)), -((x + y) * (2.0 * x))], 4),
        (
            "a factor of several, and of one that needs it",
            lambda x, y: [-(y * (2.0 * x)), -((x + y) * (2.0 * x)), sg.exp(2.0 * x)],
            6,
        ),
        ("a square needs no sign", lambda x, y: [-(2.0 * x), (2.0 * x) * (2.0 * x)], 2),
        ("needed with both signs", lambda x, y: [-(2.0 * x), sg.exp(2.0 * x)], 3),
        ("nothing to take it", lambda x, y: [-(x * y), sg.exp(-(x * y))], 3),
    ],
)
def test_counts(name: str, made: Any, count: int) -> None:
    x, y = sg.symbols("x y")
    roots = [e.id for e in made(x, y)]
    graph, placed = place_signs(x.graph, roots)
    assert operations(graph, placed) == count, name
