"""The invariants of a graph, checked: tests run this after every pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symgrad.expr.node import CONST, INPUT, INTEGER, TRUTH, WORD, Graph


def verify(graph: Graph, roots: Sequence[int] = ()) -> None:
    """Raise AssertionError with the neighbourhood of the first fault, if there is one."""
    for fault in faults(graph, roots):
        raise AssertionError(fault)


def faults(graph: Graph, roots: Sequence[int] = ()) -> Iterator[str]:
    """What is wrong with a graph, in words."""
    if len(set(graph.nodes)) != len(graph.nodes):
        yield "two nodes are equal: hash-consing failed"
    if len(graph.places) != len(graph.nodes):
        yield f"{len(graph.places)} places for {len(graph.nodes)} nodes"
    yield from (f"root {i} is no node" for i in roots if not 0 <= i < len(graph.nodes))
    for i in range(len(graph.nodes)):
        yield from _node_faults(graph, i)


def _node_faults(graph: Graph, i: int) -> Iterator[str]:
    op, *rest = graph.nodes[i]
    shown = f"node {i}: {op.name}{tuple(rest)}"
    if op in (CONST, INPUT, INTEGER, TRUTH, WORD):
        if len(rest) != 1:
            yield f"{shown} has not one payload"
        if op is INPUT and rest[0] >= len(graph.names):
            yield f"{shown} has no name"
        return
    if len(rest) != op.arity:
        yield f"{shown} needs {op.arity} arguments"
    if any(not 0 <= a < i for a in rest):
        yield f"{shown} has an argument that does not stand before it"
        return
    wanted = op.signature.split("->")[0]
    found = "".join(graph.type(a) for a in rest)
    if found != wanted:
        yield f"{shown} takes {wanted}, not {found}"
    if op.commutative and rest[0] > rest[1]:
        yield f"{shown} has its arguments out of order"
