"""Arrays of slopes that a row only adds to: rows add to the sums at once, and have no such array.

Where rows read parameters at indices that are known at run time, what they contribute to their
slopes is an array of zeros to which loops add, and results are its elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from symgrad.expr.graph.arrays import ADD_AT, GET, ZEROS, length
from symgrad.expr.graph.node import HOLES, WORD, Graph, Op
from symgrad.expr.graph.reach import heads, reachable
from symgrad.expr.graph.rebuild import Copy, Make, outline, rebuild
from symgrad.expr.graph.region import Loop, Pick, Region
from symgrad.kernel.plan import Output, Reduction


@dataclass(frozen=True)
class Added:
    """A reduction whose results are, in part, elements of arrays to which rows only add.

    In ``reduction`` these arrays start as the leaves ``starts`` rather than as zeros, and end as
    the nodes ``ends``. ``places`` are the number of the array and the index in it of each result
    that is an element of one, by the number of the result.
    """

    reduction: Reduction
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """The lengths of the arrays."""
        return [length(self.reduction.graph, i) for i in self.starts]


def added_to(reduction: Reduction) -> Added:
    """The arrays of which results, and nothing else, are elements, and that are only added to."""
    if reduction.lookups or ADD_AT not in _operations(reduction.graph):
        return Added(reduction)
    graph, roots = reduction.graph, [i for o in reduction.outputs for i in o.nodes]
    every = [*roots, *reduction.factors]
    order = reachable(graph, every)
    users = _users(graph, order, every)
    wanted = {c: place for c, i in enumerate(roots) if (place := _element(graph, i))}
    read = Counter(graph.args(i)[0] for i in {roots[c] for c in wanted} if users[i] == 1)
    found = {
        end: start for end, count in read.items()
        if users[end] == count and (start := _start(graph, end, users)) is not None
    }  # fmt: skip
    copy = outline(graph)
    leaves = {
        start: copy.graph.intern((HOLES["F"], n, f"slopes{n}", length(graph, end)))
        for n, (end, start) in enumerate(found.items())
    }
    rebuild(graph, order, copy, changed=_started(copy.graph, leaves))
    number = {end: n for n, end in enumerate(found)}
    return Added(
        _in_copy(reduction, copy), tuple(leaves.values()), tuple(copy.of(found)[1]),
        {c: (number[a], at) for c, (a, at) in wanted.items() if a in number},
    )  # fmt: skip


def _operations(graph: Graph) -> set[Op]:
    """The operations of a graph, and of the bodies of its loops."""
    found = heads(graph)
    for op in [*found]:
        if isinstance(op, Loop):
            found |= _operations(op.body.graph)
    return found


def _in_copy(reduction: Reduction, copy: Copy) -> Reduction:
    """The same reduction of a copy of its graph."""
    outputs = tuple(Output(o.name, tuple(copy.of(o.nodes)[1])) for o in reduction.outputs)
    factors = tuple(copy.of(reduction.factors)[1])
    return replace(reduction, graph=copy.graph, outputs=outputs, factors=factors)


def _element(graph: Graph, i: int) -> tuple[int, int] | None:
    """The array and the index of a node that is an element at a known place of an array."""
    op, *args = graph.nodes[i]
    if op is not GET or graph.nodes[args[1]][0] is not WORD:
        return None
    at = graph.nodes[args[1]][1]
    return (args[0], at) if at < length(graph, args[0]) else None


def _users(graph: Graph, order: Iterable[int], ends: Iterable[int]) -> Counter[int]:
    """How often each node is needed."""
    return Counter(a for i in order for a in graph.args(i)) + Counter(ends)


def _start(graph: Graph, end: int, users: Counter[int]) -> tuple[int, int] | None:
    """The node, and which of its arguments, where an array of zeros begins to be added to.

    None if it is read, or written to otherwise, on the way to ``end``.
    """
    for owner, argument, version in _versions(graph, end):
        if graph.nodes[version][0] is ZEROS:
            return owner, argument
        if users[version] != 1:
            break
    return None


def _versions(graph: Graph, i: int) -> Iterator[tuple[int, int, int]]:
    """From the last on, who adds to which version of an array: node, argument, version."""
    while True:
        op, *args = graph.nodes[i]
        if op is ADD_AT:
            owner, argument = i, 0
        elif op.__class__ is Pick and _only_adds(graph, args[0], op.index):
            owner, argument = args[0], 2 + op.index
        else:
            return
        i = graph.args(owner)[argument]
        yield owner, argument, i


def _only_adds(graph: Graph, owner: int, carry: int) -> bool:
    """Whether a node is a loop that only adds to this carry, an array."""
    op = graph.nodes[owner][0]
    return isinstance(op, Loop) and carry >= 0 and _adds(op.body, carry)


def _adds(body: Region, carry: int) -> bool:
    graph, first = body.graph, body.params[1 + carry]
    users = _users(graph, reachable(graph, body.yields), body.yields)
    end = body.yields[carry]
    if end == first or users[end] != 1:
        return False
    for _, _, version in _versions(graph, end):
        if users[version] != 1:
            return False
        if version == first:
            return True
    return False


def _started(copy: Graph, leaves: Mapping[tuple[int, int], int]) -> dict[int, Make]:
    """What makes the nodes again that begin to add, with leaves for the arrays of zeros."""
    by_owner: dict[int, dict[int, int]] = {}
    for (owner, argument), leaf in leaves.items():
        by_owner.setdefault(owner, {})[argument] = leaf

    def made(starts: Mapping[int, int], op: Op, *args: int) -> int:
        return copy.add(op, *(starts.get(n, a) for n, a in enumerate(args)))

    return {owner: partial(made, starts) for owner, starts in by_owner.items()}
