"""Whole modules: long graphs in several functions, the same bits for one point as for many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from strategies import random_graph

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, inputs_of
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.map import map_program
from symgrad.llvm.device.cpu import host
from symgrad.llvm.printing.analysis import Item
from symgrad.llvm.printing.functions import Arrangement
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.source import CodeSizes
from symgrad.llvm.printing.statements import Body
from symgrad.llvm.printing.values import Calls
from symgrad.mathlib.define import inlined

from .running import computation, emitted, run

LANES = host().vector_bits // 32
ONE, MANY = Shape("float32", 1, True), Shape("float32", LANES, True)


def chain(length: int, inputs: int = 3) -> Computation:
    """A long graph whose values live long, conditions among them."""
    graph = Graph()
    graph.tracing = False
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(inputs)]
    values, test = list(x), x[0] < x[1]
    for k in range(length):
        a, b = values[-1], values[-(k % 7) - 1]
        values.append(ops.where(test, a * 0.5, b) + x[k % inputs] * 0.25)
        if k % 50 == 0:
            test = values[-1] < values[len(values) // 2]
    return computation(graph, [values[-1].id], [v.id for v in values[-4:]])


@pytest.mark.parametrize("length", [10, 700])
@pytest.mark.parametrize("inputs", [3, 120])
def test_cut_and_whole_give_the_same_bits(length: int, inputs: int) -> None:
    made = chain(length, inputs)
    points = np.random.default_rng(0).random((2 * LANES, inputs), dtype=np.float32)
    whole = run(made, ONE, points)
    graph = made.graph
    columns = dict(zip(inputs_of(graph), points.T, strict=True))
    exact = evaluate_graph(graph, [made.outputs[0].nodes[0]], columns)
    np.testing.assert_allclose(whole[0][:, 0], exact[0], rtol=1e-5)
    for shape in (replace(shape, sizes=CodeSizes(100, 100, 64)) for shape in (ONE, MANY)):
        assert ("@part1" in emitted(made, shape).text) == (length > 100)
        for found, want in zip(run(made, shape, points), whole, strict=True):
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_give_a_point_the_bits_of_its_batch(seed: int) -> None:
    drawn = random_graph(seed)
    graph, roots = simplify(drawn.graph, [drawn.root], True, inlined("accurate"))
    if graph.type(roots[0]) != "f":
        pytest.skip("a condition is no result")
    made = computation(graph, roots)
    n = len(graph.names)
    points = np.random.default_rng(seed).normal(scale=2.0, size=(4 * LANES, n)).astype(np.float32)
    (one,), (many,) = run(made, ONE, points), run(made, MANY, points)
    np.testing.assert_array_equal(one, many)


def test_functions_are_written_in_place_or_called() -> None:
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    made = computation(graph, [ops.tanh(x).id])
    points = np.linspace(-3, 3, 2 * LANES, dtype=np.float32)[:, None]
    assert "alwaysinline" in emitted(made, MANY).text
    (inline,) = run(made, MANY, points)
    called = replace(MANY, sizes=CodeSizes(inlined=0))
    assert "alwaysinline" not in emitted(made, called).text
    np.testing.assert_array_equal(run(made, called, points)[0], inline)
    np.testing.assert_allclose(inline, np.tanh(points), rtol=1e-6)


class Read(list[Item]):
    """Nodes, and how many of them were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Item]:
        self.looks += len(self)
        return super().__iter__()


def test_each_function_is_written_from_its_own_nodes() -> None:
    kernel, names = map_program(chain(3000), SimdTarget(4)), (f"%{k}" for k in itertools.count())
    arranged = Arrangement(kernel, ONE)
    parts = [Read(part.items) for part in arranged.parts]
    assert len(parts) > 20
    lines = 0
    for items in parts:
        body = Body(arranged, Calls({}, ONE), names, ONE)
        body.items(items)
        lines += len(body.write.lines)
    assert lines > arranged.analysis.operations
    assert sum(items.looks for items in parts) <= 4 * arranged.analysis.operations


def test_the_source_is_the_same_every_time() -> None:
    made = chain(50)
    assert emitted(made, MANY) == emitted(made, MANY)


def test_a_product_is_fused_across_a_cut() -> None:
    graph = Graph()
    graph.tracing = False
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(4)]
    early = [x[0] * (x[1] + float(k)) for k in range(70)]
    sums = [x[2]]
    for product in early:
        sums.append(sums[-1] * 0.5 + product)
    made = computation(graph, [sums[-1].id])
    points = np.random.default_rng(0).random((LANES, 4), dtype=np.float32)
    (whole,) = run(made, ONE, points)
    cut = replace(ONE, sizes=CodeSizes(long=10, function=32))
    np.testing.assert_array_equal(run(made, cut, points)[0], whole)
