"""Which parts of a loop's region depend on which: what varies from turn to turn with what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import Loop

MOVED = "fFt"
"""The types of nodes that have derivatives, or have parts that do."""


def varied(op: Loop, seeds: Mapping[int, int]) -> list[int]:
    """For each node of the region, in which directions it varies, as bits, in any turn.

    ``seeds`` says it of parameters. Each direction reaches each node once.
    """
    graph, users = op.body.graph, _users(op.body.graph)
    carries, _ = op.split(op.body.params[1:])
    after: dict[int, list[int]] = {}
    for carry, result in zip(carries, op.body.yields, strict=False):
        after.setdefault(result, []).append(carry)
    found = [0] * len(graph)
    stack = list(seeds.items())
    while stack:
        i, bits = stack.pop()
        new = bits & ~found[i]
        op = graph.nodes[i][0]
        if new and op.result in MOVED and op is not ops.stop_gradient:
            found[i] |= new
            stack += [(u, new) for u in (*users[i], *after.get(i, ()))]
    return found


def between(
    op: Loop, results: Iterable[int], inits: Iterable[int], captures: Iterable[int]
) -> frozenset[int]:
    """The carries that vary with some inits or captures, and with which some results vary."""
    graph, (carries, outside) = op.body.graph, op.split(op.body.params[1:])
    starts = [*[carries[j] for j in inits], *[outside[q] for q in captures]]
    active = varied(op, dict.fromkeys(starts, 1))
    number = {c: j for j, c in enumerate(carries)}
    seen: set[int] = set()
    stack = [op.body.yields[j] for j in results] + [carries[j] for j in results]
    while stack:
        i = stack.pop()
        if i not in seen and active[i]:
            seen.add(i)
            stack += graph.args(i)
            if i in number:
                stack.append(op.body.yields[number[i]])
    return frozenset(number[i] for i in seen if i in number)


def _users(graph: Graph) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in range(len(graph))]
    for i in range(len(graph)):
        for a in graph.args(i):
            users[a].append(i)
    return users
