"""math="strict": the bits of NumPy's single operations, on a GPU as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.expr.node import Graph, Op, reachable
from symgrad.mathlib.arrange import SUMS, ordered, share_reductions
from symgrad.mathlib.define import functions

from .cases import BOUNDS, FUNCTIONS, TINY, evaluate, grid
from .test_gpu import exact, run

STRICT = {**FUNCTIONS, **functions("strict")}


def heads(graph: Graph, roots: list[int]) -> list[Op]:
    return [graph.nodes[i][0] for i in reachable(graph, roots)]


def test_sine_and_cosine_of_one_argument_share_its_reduction() -> None:
    graph = Graph()
    graph.tracing = False
    x, y = (Expr(graph, graph.input(name)) for name in "xy")
    roots = [ops.sin(x * y).id, ops.cos(x * y).id, ops.cos(x).id]
    found = heads(*share_reductions(graph, roots))
    assert [found.count(op) for op in (ops.quarters, ops.angle, ops.sine, ops.cosine)] == [1] * 4
    assert [found.count(op) for op in (ops.sin, ops.cos)] == [0, 1]


def test_a_single_sine_stays_what_it_is() -> None:
    graph = Graph()
    root = ops.sin(Expr(graph, graph.input("x"))).id
    assert share_reductions(graph, [root]) == (graph, [root])


@pytest.mark.parametrize("op", STRICT, ids=lambda op: op.name)
def test_no_sum_is_made_of_bare_sums_or_products(op: Op) -> None:
    f = STRICT[op]
    graph, roots = ordered(f.graph, [f.root])
    for i in reachable(graph, roots):
        node = graph.nodes[i]
        if node[0] in SUMS:
            assert not {graph.nodes[a][0] for a in node[1:]} & SUMS


def divides(op: Op) -> bool:
    """Whether a function, or one that it calls, divides or takes a root."""
    function = STRICT.get(op)
    if function is None:
        return op in (ops.div, ops.reciprocal, ops.sqrt, ops.rsqrt)
    return any(divides(head) for head in set(heads(function.graph, [function.root])))


@pytest.mark.parametrize("name", BOUNDS)
def test_a_gpu_gives_the_bits_of_numpy(name: str) -> None:
    """Where it divides and takes roots as IEEE 754 has it, but for subnormals that it flushes."""
    if divides(ops.TABLE[name]) and not exact():
        pytest.skip("this device does not round quotients correctly")
    arguments = grid(name, 3000)
    got = run(name, *arguments, functions=STRICT)
    want = evaluate(STRICT[ops.TABLE[name]], *arguments, functions=STRICT)
    same = got.view(np.uint32) == np.ascontiguousarray(want).view(np.uint32)
    same |= np.isnan(got) & np.isnan(want)
    flushed = (got == 0.0) & (np.abs(want) < 16 * TINY)
    wrong = np.flatnonzero(~(same | flushed))
    assert not len(wrong), ([float(a[wrong[0]]) for a in arguments], got[wrong], want[wrong])


def test_a_strict_kernel_says_so_and_is_the_same_on_all_devices() -> None:
    if not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")

    def f(v: Any) -> Any:
        return sg.exp(-v[0] * v[1] - v[1] * v[2]) * sg.sin(v[0] + v[1] * v[2]) + v[0] * v[2]

    points = np.random.default_rng(5).uniform(-2, 2, (1000, 3)).astype(np.float32)
    results = []
    for device in (0, "cpu"):
        kernel = sg.fused_forward_backward(3, f, device=device, math="strict")
        assert "math: strict" in kernel.wgsl
        results.append(kernel.run(points))
    for gpu, cpu in zip(*results, strict=True):
        np.testing.assert_array_equal(gpu, cpu)
