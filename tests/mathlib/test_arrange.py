"""Sines and cosines of multiples of pi: which are recognized, and that no digit is lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, inputs_of, reachable
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.arrange import in_turns, merge_constants
from symgrad.mathlib.define import Math

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]
Formula = Callable[[Any, Any], Any]

MULTIPLES: dict[str, Formula] = {
    "pi": lambda x, t: ops.sin(math.pi * x),
    "two pi": lambda x, t: ops.cos(x * (2 * math.pi)),
    "degrees": lambda x, t: ops.sin(x * (math.pi / 180)),
    "half a degree": lambda x, t: ops.sin(x * (math.pi / 360)),
    "negative": lambda x, t: ops.cos(-math.pi / 3 * x),
    "of a product": lambda x, t: ops.sin(2 * math.pi * x * t),
    "of a product of products": lambda x, t: ops.sin(t * (x * (t * math.pi))),
    "over a period": lambda x, t: ops.cos(2 * math.pi * x / t),
    "a frequency": lambda x, t: ops.sin(2 * math.pi / t * x),
    "negated": lambda x, t: ops.sin(-(t * (math.pi * x))),
}
OTHERS: dict[str, Formula] = {
    "a constant next to it": lambda x, t: ops.sin(3.14159 * x),
    "the float32 next to it": lambda x, t: ops.sin(float(np.float32(math.pi)) * x),
    "a third of a degree": lambda x, t: ops.sin(math.pi / 540 * x),
    "a whole number": lambda x, t: ops.cos(3.0 * x),
    "a sum": lambda x, t: ops.sin(math.pi * x + t),
    "a divisor": lambda x, t: ops.sin(x / (math.pi * t)),
    "a tangent": lambda x, t: ops.tan(math.pi * x),
    "very many turns": lambda x, t: ops.sin(1e5 * math.pi * x),
}


def traced(formula: Formula) -> tuple[Graph, int]:
    graph = Graph()
    graph.tracing = False
    return graph, formula(*[Expr(graph, graph.input(name)) for name in "xt"]).id


def heads(graph: Graph, roots: list[int]) -> list[str]:
    return [graph.nodes[i][0].name for i in reachable(graph, roots)]


@pytest.mark.parametrize("name", MULTIPLES)
def test_a_multiple_of_pi_is_recognized_and_means_the_same(name: str) -> None:
    graph, root = traced(MULTIPLES[name])
    found, roots = in_turns(graph, [root])
    left = heads(found, roots)
    assert {"sin_turns", "cos_turns"} & set(left) and not {"sin", "cos"} & set(left)
    given = np.random.default_rng(3).uniform(-4, 4, (2, 1000))
    values = []
    for g, r in ((graph, root), (found, roots[0])):
        inputs = dict(zip(inputs_of(g), given, strict=True))
        values.append(evaluate_graph(g, reachable(g, [r]), inputs, np.float64)[-1])
    np.testing.assert_allclose(values[1], values[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_else_is(name: str) -> None:
    graph, root = traced(OTHERS[name])
    assert not {"sin_turns", "cos_turns"} & set(heads(*in_turns(graph, [root])))


@pytest.mark.parametrize("math_", ["accurate", "strict"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_sine_of_whole_turns_keeps_its_digits(device: Any, math_: Math) -> None:
    """Up to 16 million turns: 2*pi*x in float32 would leave not one digit of it."""
    kernel = sg.fused_forward_backward(
        1, lambda v: sg.sin(2 * math.pi * v[0]), device=device, math=math_
    )
    random = np.random.default_rng(8)
    points = 2.0 ** random.uniform(-3, 23.9, 2000) * random.choice([-1, 1], 2000)
    points = points.astype(np.float32)
    points = points[np.abs(4 * points - np.round(4 * points)) > 1e-3]
    value, slope = kernel.run(points[:, None])
    with mp.workdps(30):
        sines = [float(mp.sinpi(2 * mp.mpf(float(x)))) for x in points]
        slopes = [float(2 * mp.pi * mp.cospi(2 * mp.mpf(float(x)))) for x in points]
    np.testing.assert_allclose(value, sines, rtol=4e-7, atol=0)
    np.testing.assert_allclose(slope[:, 0], slopes, rtol=4e-7, atol=0)
    assert np.all(kernel.run(np.array([[0.0], [0.5], [-7.0], [1e7]]))[0] == 0.0)


@pytest.mark.parametrize("device", DEVICES)
def test_no_sine_is_above_1(device: Any) -> None:
    near = np.random.default_rng(9).uniform(0.24, 0.26, (100_000, 1)).astype(np.float32)
    kernel = sg.fused_forward(
        1,
        lambda v: [sg.sin(2 * math.pi * v[0]), sg.cos(2 * math.pi * (v[0] - 0.25))],
        device=device,
    )
    for values in kernel.run(near):
        assert np.max(values) == 1.0
    assert [float(v[0]) for v in kernel.run(np.array([[0.25]]))] == [1.0, 1.0]


def test_constants_that_are_one_float32_are_one() -> None:
    """A difference of grid points has other last bits in every row of a covariance."""
    grid = np.linspace(0.0, 1.0, 8)

    def covariances(v: Any) -> Any:
        return [sg.exp(-v[0] * (a - b) ** 2) for a in grid for b in grid]

    kernel = sg.fused_forward(1, covariances, device="cpu", dtype="float32")
    assert kernel.wgsl.count("sg_exp(") - kernel.wgsl.count("fn sg_exp(") == 8
    expected = np.exp(-1.5 * np.subtract.outer(grid, grid).ravel() ** 2)
    np.testing.assert_allclose(kernel.run([1.5]), expected, rtol=3e-7)


def test_other_constants_stay_apart_and_none_is_too_large() -> None:
    graph = Graph()
    roots = [graph.constant(c) for c in (1.0, 1.0 + 2.0**-23, 1e300, -1e300, 0.0, -0.0)]
    assert merge_constants(graph, roots) == (graph, roots)
    roots = [graph.constant(c) for c in (0.1, float(np.float32(0.1)), 0.1 + 2.0**-50)]
    merged, found = merge_constants(graph, roots)
    assert len(set(found)) == 1 and merged.value(found[0]) == 0.1
