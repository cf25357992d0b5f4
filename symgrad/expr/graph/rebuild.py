"""Copies of graphs: nodes made again, in another arena, with others in their place, or in part."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Final

from symgrad.expr.graph.node import ANY_INPUT, INPUT, Graph, Node, Op, inputs_of, reachable

Make = Callable[..., int]
"""``make(op, *arguments)``, of ids in the new graph, is the id there of what stands for a node."""

Ids = list[int] | dict[int, int]
"""The nodes that stand for those of another graph, by the ids of these."""

_NO_MAKES: Final[Mapping[int, Make]] = MappingProxyType({})
_NO_LEAVES: Final[Mapping[Node, Node]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Copy:
    """A graph that is made from another, and the ids there of the nodes of that one."""

    graph: Graph
    ids: Ids

    def of(self, roots: Iterable[int]) -> tuple[Graph, list[int]]:
        """The new graph, and what stands for the roots there."""
        return self.graph, [self.ids[i] for i in roots]


def outline(graph: Graph, inputs: Iterable[int] | None = None) -> Copy:
    """The start of a copy: all inputs of a graph, or these, in order, and its lines; no more.

    The new graph is not the user's: no lines are looked up for it.
    """
    target, ids = Graph(), [-1] * len(graph)
    target.tracing, target.sources = False, graph.sources
    for i in inputs_of(graph) if inputs is None else inputs:
        op, number, *length = graph.nodes[i]
        ids[i] = target.input(graph.names[number], op.result, *length)
    return Copy(target, ids)


def continued(graph: Graph, start: int) -> Copy:
    """The start of a copy: all nodes before this one as they are, needed or not, and all inputs."""
    target = Graph.of(graph.nodes[:start], graph.places[:start], graph.names, graph.sources)
    target.derived = [range(r.start, min(r.stop, start)) for r in graph.derived if r.start < start]
    ids = [*range(start), *[-1] * (len(graph) - start)]
    for i in range(start, len(graph)):
        if graph.nodes[i][0] in ANY_INPUT:
            ids[i] = target.intern(graph.nodes[i])
    return Copy(target, ids)


def rebuild(
    graph: Graph,
    order: Iterable[int],
    copy: Copy,
    make: Make | None = None,
    changed: Mapping[int, Make] = _NO_MAKES,
    leaves: Mapping[Node, Node] = _NO_LEAVES,
    kept: Container[tuple[Op, Op, Op]] = frozenset(),
) -> Copy:
    """Make nodes of a graph again, each of what its arguments have become, and return the copy.

    Nodes stay as they are, unless ``make``, ``changed`` or ``leaves`` say otherwise, and keep their
    lines if the new graph knows the same ones. Linear in the length of ``order``.

    Args:
        graph: where the nodes are.
        order: their ids, ascending. Inputs, and what nodes need besides, are in the copy already.
        copy: what there is so far; it is added to.
        make: makes operations.
        changed: makes single nodes, by their ids, rather than ``make``.
        leaves: constants that become others.
        kept: which operations of two arguments ``make`` would make as they are, by the operation
            and those that the arguments are in the new graph; ``make`` may add to it.
    """
    target, ids, nodes = copy.graph, copy.ids, graph.nodes
    arena, lines, known = target.nodes, target.places, target.index
    places = graph.places if target.sources is graph.sources else [target.place] * len(graph)
    default, before = make or target.add, target.place
    for i in order:
        node = nodes[i]
        op = node[0]
        arity = op.arity
        if arity == 2:  # as the last, but most are one of these: in half the time
            _, a, b = node
            a, b = ids[a], ids[b]
            node = (op, a, b)
            if (make and (op, arena[a][0], arena[b][0]) not in kept) or i in changed:
                target.place = places[i]
                ids[i] = changed.get(i, default)(op, a, b)
                continue
            if a > b and op.commutative:
                node = (op, b, a)
        elif arity:
            node = (op, *[ids[a] for a in node[1:]])
            if make or i in changed:
                target.place = places[i]
                ids[i] = changed.get(i, default)(*node)
                continue
            if op.commutative and node[1] > node[2]:
                node = (op, node[2], node[1], *node[3:])
        elif op in ANY_INPUT:
            continue
        elif leaves:
            node = leaves.get(node, node)
        new = len(arena)
        ids[i] = number = known.setdefault(node, new)  # as `Graph.intern` does
        if number == new:
            arena.append(node)
            lines.append(places[i])
    target.place = before
    return copy


def substitute(graph: Graph, root: int, replacements: Mapping[int, int]) -> int:
    """The node that ``root`` becomes when each key's node is replaced by its value's."""
    return substituted(graph, [root], replacements)[0]


def substituted(graph: Graph, roots: Sequence[int], replacements: Mapping[int, int]) -> list[int]:
    """The nodes that the roots become when each key's node is replaced by its value's."""
    order = reachable(graph, roots, min(replacements, default=len(graph)))
    new = {a: a for i in order for a in (i, *graph.args(i))} | dict(replacements)
    rebuild(graph, [i for i in order if i not in replacements], Copy(graph, new))
    return [new.get(root, root) for root in roots]


def excerpt(graph: Graph, roots: Sequence[int], start: int) -> tuple[Graph, dict[int, int]]:
    """The graph of the nodes that roots need from ``start`` on, and the new ids, in order.

    Numbers that were computed before are inputs; conditions before are made of such.
    """
    order = _needed(graph, roots, start)
    inputs = [i for i in order if graph.nodes[i][0] is INPUT or _is_cut(graph, i, start)]
    part = Graph.of([], [], (), graph.sources)
    new = {i: part.input("") for i in inputs}
    rest = [i for i in order if i not in new]
    rebuild(graph, rest, Copy(part, new))
    near = takewhile(lambda r: r.stop > start, reversed(graph.derived))
    ends = [[len(inputs) + bisect_left(rest, i) for i in (r.start, r.stop)] for r in near]
    part.derived = [range(*pair) for pair in reversed(ends)]
    return part, new


def _is_cut(graph: Graph, i: int, start: int) -> bool:
    """Whether a node is an input of the excerpt."""
    return i < start and bool(graph.nodes[i][0].arity) and graph.type(i) == "f"


def _needed(graph: Graph, roots: Sequence[int], start: int) -> list[int]:
    """The nodes of the excerpt, in ascending order."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        i = stack.pop()
        if not _is_cut(graph, i, start):
            new = [a for a in graph.args(i) if a not in seen]
            seen.update(new)
            stack += new
    return sorted(seen)
