"""Arrays of slopes that a row only adds to: rows add to the sums at once, and have no such array.

Where rows read parameters at indices that are known at run time, what they contribute to their
slopes is an array of zeros to which loops add, and results are its elements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, GET, ZEROS, length
from symgrad.expr.graph.node import HOLES, STRUCTURED, WORD, Graph, Op, reachable
from symgrad.expr.graph.rebuild import Copy, Make, continued, rebuild
from symgrad.expr.graph.region import Loop, Pick, Region
from symgrad.kernel.shapes import Output, Reduction

RESULTS: Final = 8
"""Results of a case for which it is asked whether a row adds to them, at least."""

CASES: Final = 8
"""Cases from which on that pays: of few, one of the rows of a vector mostly is each."""

SINGLE: Final = "fbui"
"""The types of values that are known before it is asked."""


@dataclass(frozen=True)
class Case:
    """Results that are 0 unless a condition ``holds``, or does not.

    ``values`` are the nodes of what they are then, by the numbers of the results, and ``needed``
    the nodes that these are made of and that are known anyhow.
    """

    condition: int
    holds: bool
    values: Mapping[int, int]
    needed: tuple[int, ...]


def cases(graph: Graph, roots: Mapping[int, int], others: Sequence[int]) -> list[Case]:
    """The cases of results, by their numbers, if there are many.

    ``others`` are nodes that are computed at every row besides.
    """
    by_case: dict[tuple[int, bool], dict[int, int]] = {}
    for c, i in roots.items():
        if (case := case_of(graph, i)) is not None:
            condition, holds, value = case
            by_case.setdefault((condition, holds), {})[c] = value
    by_case = {case: values for case, values in by_case.items() if len(values) >= RESULTS}
    chosen = {c for values in by_case.values() for c in values}
    rest = [i for c, i in roots.items() if c not in chosen]
    computed = set(reachable(graph, [*rest, *others, *(condition for condition, _ in by_case)]))
    candidates = [
        Case(*case, values, tuple(_boundary(graph, [*values.values()], computed)))
        for case, values in by_case.items()
    ]
    candidates = [case for case in candidates if all(graph.type(i) in SINGLE for i in case.needed)]
    return candidates if len(candidates) >= CASES else []


def case_of(graph: Graph, i: int) -> tuple[int, bool, int] | None:
    """Of a choice between a value and 0: the condition, whether it has to hold, and the value."""
    op, *args = graph.nodes[i]
    if op is not ops.where:
        return None
    condition, a, b = args
    zeros = [graph.value(x) == 0.0 for x in (a, b)]
    return (condition, zeros[1], a if zeros[1] else b) if any(zeros) else None


def _boundary(graph: Graph, ends: Sequence[int], computed: set[int]) -> Iterator[int]:
    """The known nodes that others, which some ends need, are made of; and leaves, but constants."""
    seen, stack = set(ends), list(ends)
    while stack:
        i = stack.pop()
        if graph.nodes[i][0].constant:
            continue
        if i in computed or not graph.nodes[i][0].arity:
            yield i
            continue
        for a in graph.args(i):
            if a not in seen:
                seen.add(a)
                stack.append(a)


@dataclass(frozen=True)
class Added:
    """A reduction whose results are, in part, elements of arrays to which rows only add.

    In ``reduction`` these arrays start as the leaves ``starts`` rather than as zeros, and end as
    the nodes ``ends``. ``places`` are the number of the array and the index in it of each result
    that is an element of one, by the number of the result. Of some arrays rows add to the results
    only if a condition holds, or does not: these are its node, or -1, and whether it has to hold.
    """

    reduction: Reduction
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    conditions: tuple[tuple[int, bool], ...] = ()
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
    size = cache(partial(length, graph))
    elements = ((c, _element(graph, i, users, size)) for c, i in enumerate(roots))
    wanted = {c: e for c, e in elements if e is not None}
    starts: dict[int, tuple[int, int]] = {}
    for end, elements in _by_array(wanted.values()).items():
        alone = users[end] == len(elements) and len({e.when for e in elements}) == 1
        if alone and (start := _start(graph, end, users)) is not None:
            starts[end] = start
    first = min((owner for owner, _ in starts.values()), default=len(graph))
    copy, later = continued(graph, first), order[bisect_left(order, first) :]
    leaves = {
        start: copy.graph.intern((HOLES["F"], n, f"slopes{n}", length(graph, end)))
        for n, (end, start) in enumerate(starts.items())
    }
    rebuild(graph, later, copy, changed=_started(copy.graph, leaves))
    number = {end: n for n, end in enumerate(starts)}
    when = {e.array: e.when for e in wanted.values()}
    conditions = ((when[end][0], when[end][1]) for end in starts)
    return Added(
        _in_copy(reduction, copy),
        tuple(leaves.values()),
        tuple(copy.of(starts)[1]),
        tuple((i if i < 0 else copy.ids[i], holds) for i, holds in conditions),
        {c: (number[e.array], e.at) for c, e in wanted.items() if e.array in number},
    )


@dataclass(frozen=True)
class _Element:
    """Element ``at`` of an array, or 0 if a condition does not hold, or does; -1 is none."""

    array: int
    at: int
    when: tuple[int, bool]


def _element(
    graph: Graph, i: int, users: Counter[int], size: Callable[[int], int]
) -> _Element | None:
    """A root that nothing else is made of, if it is an element at a known place.

    ``size`` gives the length of an array.
    """
    when = -1, True
    if users[i] == 1 and (case := case_of(graph, i)) is not None:
        condition, holds, i = case
        when = condition, holds
        if not _is_straight(graph, condition):
            return None
    op, *args = graph.nodes[i]
    if users[i] != 1 or op is not GET or graph.nodes[args[1]][0] is not WORD:
        return None
    at = graph.nodes[args[1]][1]
    return _Element(args[0], at, when) if at < size(args[0]) else None


def _is_straight(graph: Graph, i: int) -> bool:
    """Whether a node needs no loops, choices or arrays, so that it may be computed twice."""
    return all(graph.type(a) not in STRUCTURED for a in reachable(graph, [i]))


def _by_array(elements: Iterable[_Element]) -> dict[int, set[_Element]]:
    """The different elements of each array."""
    by_array: dict[int, set[_Element]] = {}
    for e in elements:
        by_array.setdefault(e.array, set()).add(e)
    return by_array


def _operations(graph: Graph) -> frozenset[Op]:
    """The operations of a graph, and of the bodies of its loops."""
    operations = graph.heads
    for op in [*operations]:
        if isinstance(op, Loop):
            operations |= _operations(op.body.graph)
    return operations


def _in_copy(reduction: Reduction, copy: Copy) -> Reduction:
    """The reduction on a copy of its graph."""
    outputs = tuple(Output(o.name, tuple(copy.of(o.nodes)[1])) for o in reduction.outputs)
    factors = tuple(copy.of(reduction.factors)[1])
    return replace(reduction, graph=copy.graph, outputs=outputs, factors=factors)


def _users(graph: Graph, order: Iterable[int], ends: Iterable[int]) -> Counter[int]:
    """How often each node is needed."""
    counts = Counter(ends)
    counts.update(chain.from_iterable(map(graph.args, order)))
    return counts


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
    """Makers of the nodes that begin to add, with leaves for the arrays of zeros."""
    by_owner: dict[int, dict[int, int]] = {}
    for (owner, argument), leaf in leaves.items():
        by_owner.setdefault(owner, {})[argument] = leaf

    def rebuilt(starts: Mapping[int, int], op: Op, *args: int) -> int:
        return copy.add(op, *(starts.get(n, a) for n, a in enumerate(args)))

    return {owner: partial(rebuilt, starts) for owner, starts in by_owner.items()}
