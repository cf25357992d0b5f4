"""The checker of graphs finds every fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, Graph, float_bits
from symgrad.expr.graph.verify import MOST_VERIFIED, is_verified, verify


def sound() -> Graph:
    graph = Graph()
    x, y = graph.input("x"), graph.input("y")
    graph.add(ops.where, graph.add(ops.lt, x, y), graph.add(ops.add, x, y), graph.constant(1.0))
    return graph


def test_a_sound_graph() -> None:
    graph = sound()
    verify(graph, range(len(graph)))


def test_what_is_long_is_verified_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_verified(MOST_VERIFIED + 1), "tests ask for it"
    monkeypatch.delenv("SYMGRAD_VERIFY")
    assert is_verified(MOST_VERIFIED)
    assert not is_verified(MOST_VERIFIED + 1)


def append(*node: object) -> Callable[[Graph], None]:
    def fault(graph: Graph) -> None:
        graph.nodes.append(node)
        graph.places.append(0)

    return fault


FAULTS = {
    "two nodes are equal": append(ops.add, 0, 1),
    "7 places for 6 nodes": lambda graph: graph.places.append(0),
    "does not stand before it": append(ops.neg, 6),
    "does not stand": append(ops.neg, -1),
    "needs 2 arguments": append(ops.mul, 0),
    "takes ff, not fb": append(ops.mul, 0, 2),
    "out of order": append(ops.mul, 1, 0),
    "has no name": append(INPUT, 2),
    "has not one payload": append(CONST, float_bits(1.0), 2),
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults(text: str) -> None:
    graph = sound()
    FAULTS[text](graph)
    with pytest.raises(AssertionError, match=text):
        verify(graph)


def test_a_root_must_exist() -> None:
    with pytest.raises(AssertionError, match="root 6 is no node"):
        verify(sound(), [6])
