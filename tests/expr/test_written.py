"""The last write to an element is found, however many there were to others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from symgrad.expr.graph.arrays import ADD_AT, GET, PUT, ZEROS, Writes
from symgrad.expr.graph.node import WORD, Graph
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import evaluate_graph


def test_reads_of_random_versions_are_what_was_written() -> None:
    """Trees of versions, with indices past the end, sums and an index that is not known."""
    draw = np.random.default_rng(3)
    for _ in range(30):
        graph = Graph()
        graph.tracing = False
        x = graph.input("x")
        words = [graph.intern((WORD, k)) for k in range(6)]
        words.append(graph.intern((WORD, 9)))
        versions = [graph.intern((ZEROS, 6))]
        for n in range(25):
            of = versions[-1] if draw.random() < 0.7 else versions[draw.integers(len(versions))]
            at = words[draw.integers(len(words))]
            value = x if n % 5 == 0 else graph.constant(float(n))
            versions.append(graph.add(ADD_AT if draw.random() < 0.2 else PUT, of, at, value))
        reads = [graph.add(GET, v, w) for v in versions for w in words]
        inputs = {x: np.array([0.25, -3.0])}
        made, roots = simplify(graph, reads)
        (again,) = [i for i, node in enumerate(made.nodes) if node[0] is graph.nodes[x][0]]
        np.testing.assert_array_equal(
            evaluate_graph(graph, reads, inputs),
            evaluate_graph(made, roots, {again: inputs[x]}),
        )


def test_a_version_is_found_without_looking_at_those_between() -> None:
    graph = Graph()
    words = [graph.intern((WORD, k)) for k in range(2000)]
    first = array = graph.add(PUT, graph.intern((ZEROS, 2000)), words[0], graph.constant(1.0))
    for k in range(1, 2000):
        array = graph.add(PUT, array, words[k], graph.constant(float(k)))
    reads = itertools.count()

    class Watched(list[Any]):
        def __getitem__(self, i: Any) -> Any:
            next(reads)
            return super().__getitem__(i)

    graph.nodes = Watched(graph.nodes)
    writes = Writes(graph)
    assert writes.last(array, words[0]) == first
    start = next(reads)
    assert all(writes.last(array, w) != array for w in words[:-1])
    assert next(reads) - start < 4 * len(words)
