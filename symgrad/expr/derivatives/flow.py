"""Dependences of the parts of a loop's region on each other, from iteration to iteration.

Of a loop or a choice inside, each result depends on its own arguments alone: a carry that no result
needs has no cotangent in the loops around it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick

MOVED = "fFt"
"""The types of nodes that have derivatives, or have parts that do."""

_dependences: WeakKeyDictionary[Loop | Choice, list[int]] = WeakKeyDictionary()


def varied(op: Loop, seeds: Mapping[int, int]) -> list[int]:
    """For each node of the region, in which directions it varies, as bits, in any iteration.

    ``seeds`` says it of parameters. Each direction reaches each node once.
    """
    carries, _ = op.split(op.body.params[1:])
    after: dict[int, list[int]] = {}
    for carry, result in zip(carries, op.body.yields, strict=False):
        after.setdefault(result, []).append(carry)
    return _spread(op.body.graph, seeds, after)


def _spread(
    graph: Graph, seeds: Mapping[int, int], after: Mapping[int, Sequence[int]]
) -> list[int]:
    """The bits of the seeds that reach each node, also those ``after`` an iteration."""
    users, reached = _users(graph), [0] * len(graph)
    stack = list(seeds.items())
    while stack:
        i, bits = stack.pop()
        new = bits & ~reached[i]
        op = graph.nodes[i][0]
        if new and op.result in MOVED and op is not ops.stop_gradient:
            reached[i] |= new
            stack += [(u, new) for u in (*users[i], *after.get(i, ()))]
    return reached


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
            stack += sources(graph, i)
            if i in number:
                stack.append(op.body.yields[number[i]])
    return frozenset(number[i] for i in seen if i in number)


def sources(graph: Graph, i: int) -> Sequence[int]:
    """The arguments that node i may vary with: of a result, those that it depends on."""
    op, *rest = graph.nodes[i]
    if op.__class__ is not Pick:
        return graph.args(i)
    if op.index == TURNS:
        return ()
    owner, *arguments = graph.nodes[rest[0]]
    arguments = arguments[2:] if isinstance(owner, Loop) else arguments[1:]
    bits = _dependence(owner)[op.index]
    return [a for n, a in enumerate(arguments) if bits >> n & 1]


def _dependence(op: Loop | Choice) -> list[int]:
    """With which inits and captures each result varies, as bits."""
    if op not in _dependences:
        is_loop = isinstance(op, Loop)
        params = op.body.params[1:] if is_loop else op.body.params
        seeds = {p: 1 << n for n, p in enumerate(params)}
        if is_loop:
            reached = varied(op, seeds)
            _dependences[op] = [reached[c] for c in params[: op.carries]]
        else:
            reached = _spread(op.body.graph, seeds, {})
            _dependences[op] = [reached[a] | reached[b] for a, b in zip(*op.sides(), strict=True)]
    return _dependences[op]


def _users(graph: Graph) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in range(len(graph))]
    for i in range(len(graph)):
        for a in sources(graph, i):
            users[a].append(i)
    return users
