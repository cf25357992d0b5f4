"""Passes within regions: what they are given, and that the graph means the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, inputs_of, reachable
from symgrad.expr.graph.rebuild import continued, rebuild
from symgrad.expr.graph.region import Regional, in_regions, regions
from symgrad.expr.graph.verify import verify
from symgrad.expr.loops.control import cond, fori_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.functions import cos, sin
from symgrad.expr.tracers.memory import zeros
from symgrad.expr.tracing.trace import Trace, trace
from symgrad.mathlib.arrange import share_quotients
from symgrad.mathlib.define import lower
from symgrad.pipeline import Options, simplified

X = np.linspace(-2.0, 2.0, 9)


def program() -> Trace:
    """Nested loops, a choice and an array, with divisors and angles to share."""

    def f(v):
        def outer(k, c):
            s, a = c
            s = fori_loop(0, k + 1, lambda j, t: sin(t * v[1]) / v[2] + cos(t * v[1]) / v[2], s)
            s = cond(s > 0.5, lambda: s / v[2] + cos(s) / v[2] + sin(s), lambda: s)
            return s, a.put(k, s)

        s, a = fori_loop(0, 4, outer, (v[0], zeros(v[0].graph, 4)))
        return s, a[1], a[3]

    return trace(f, 3)


def values(graph: Graph, roots: Sequence[int], inputs: Sequence[int]) -> list[np.ndarray]:
    verify(graph, roots)
    return evaluate_graph(graph, roots, dict(zip(inputs, (X, X[::-1], X + 2.5), strict=True)))


def test_nothing_changes_where_nothing_is_done() -> None:
    traced = program()
    graph, roots = in_regions(traced.graph, traced.outputs, lambda g, r: (g, list(r)))
    assert graph is traced.graph
    assert roots == list(traced.outputs)


def test_the_regions_of_a_graph_and_not_those_within() -> None:
    traced, seen = program(), list[Graph]()

    def note(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
        seen.append(graph)
        return graph, list(roots)

    in_regions(traced.graph, traced.outputs, note)
    needed = reachable(traced.graph, traced.outputs)
    heads = (traced.graph.nodes[i][0] for i in needed)
    assert seen == [op.body.graph for op in heads if isinstance(op, Regional)]
    assert len(seen) == 1


def test_a_pass_within_regions_keeps_what_they_compute() -> None:
    traced = program()

    def multiplied(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
        return share_quotients(*in_regions(graph, roots, multiplied))

    graph, roots = multiplied(traced.graph, traced.outputs)
    want = values(traced.graph, traced.outputs, traced.inputs)
    np.testing.assert_allclose(values(graph, roots, traced.inputs), want, rtol=1e-15)
    for body, before in zip(
        regions(graph, roots), regions(traced.graph, traced.outputs), strict=True
    ):
        assert body.graph.names == before.graph.names
        assert body.types(body.params) == before.types(before.params)
        assert all(node[0] is not ops.div for node in body.graph.nodes)
        verify(body.graph, body.yields)


def test_angles_are_shared_within_regions() -> None:
    traced = program()
    graph, roots = lower(traced.graph, traced.outputs, "accurate", "float32")
    for body in regions(graph, roots):
        heads = [body.graph.nodes[i][0] for i in reachable(body.graph, body.yields)]
        assert heads.count(ops.quarters) == (ops.sine in heads)
        assert (ops.sine in heads) == (ops.cosine in heads)
    assert any(
        node[0] is ops.quarters for body in regions(graph, roots) for node in body.graph.nodes
    )


def test_what_regions_are_given_is_opaque_where_math_is_strict() -> None:
    """A product outside and a sum inside are two roundings, as a carry and what is made of it."""

    def f(v):
        square = v[0] * v[0]
        return fori_loop(0, 3, lambda k, s: s * v[1] + square, v[2]) + 1.0

    traced = trace(f, 3)
    graph, roots = lower(traced.graph, traced.outputs, "strict", "float32")
    (body,) = regions(graph, roots)
    opaque = [node for node in body.graph.nodes if node[0] is ops.opaque]
    assert len(opaque) == 4  # the carry, v[1], their product and the square
    assert any(node[0] is ops.opaque for node in graph.nodes)  # what the loop gives
    plain, ends = lower(traced.graph, traced.outputs, "accurate", "float32")
    assert not any(node[0] is ops.opaque for r in regions(plain, ends) for node in r.graph.nodes)


def test_divisors_that_regions_are_given_are_opaque() -> None:
    """A compiler that takes a loop apart would know that the first of them is 0."""
    traced = trace(lambda v: fori_loop(0, 3, lambda k, s: v[0] / s, 0.0), 1)
    graph, roots = lower(traced.graph, traced.outputs, "accurate", "float32")
    (body,) = regions(graph, roots)
    assert any(node[0] is ops.opaque for node in body.graph.nodes)


def test_what_the_pipeline_makes_of_regions_means_the_same() -> None:
    traced = program()
    want = values(traced.graph, traced.outputs, traced.inputs)
    for level in (False, True, "real"):
        for math in ("accurate", "fast", "strict"):
            options = Options("f", math, "float64", level)
            graph, roots = simplified(traced.graph, traced.outputs, options)
            inputs = [graph.input_named(n) for n in traced.graph.names]
            np.testing.assert_allclose(values(graph, roots, inputs), want, rtol=1e-12, atol=1e-12)


def test_what_stands_before_the_first_change_stays_as_it_is() -> None:
    graph = Graph()
    x = graph.input("x")
    kept = graph.add(ops.sin, x)
    turned = graph.add(ops.neg, kept)
    y = graph.input("y")
    root = graph.add(ops.mul, turned, y)
    copy = continued(graph, turned)
    assert copy.graph.nodes == [*graph.nodes[:turned], graph.nodes[y]]
    rebuild(
        graph, [turned, y, root], copy, changed={turned: lambda _, a: copy.graph.add(ops.cos, a)}
    )
    made, roots = copy.of([root])
    verify(made, roots)
    (found,) = evaluate_graph(made, roots, dict.fromkeys(inputs_of(made), X))
    np.testing.assert_array_equal(found, np.cos(np.sin(X)) * X)
