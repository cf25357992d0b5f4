"""Which values of a kernel are the same in all invocations of a group, and which vary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from symgrad.kernel.language import Kernel
from symgrad.kernel.statements import (
    OVER_LANES,
    For,
    If,
    Load,
    ReadRow,
    Statement,
    everything,
)


def varying(kernel: Kernel, memory: bool = False) -> frozenset[int]:
    """The values that may differ among the invocations of a group.

    With ``memory`` also those that are loaded from what invocations write to, at one index or not:
    compilers of WGSL take no such value for uniform.
    """
    nodes, found = kernel.graph.nodes, {kernel.cell, kernel.local}
    for item in kernel.main.items:
        if not isinstance(item, int):
            if isinstance(item, For | If | Load):
                _spread(kernel, item, found, memory)
            elif isinstance(item, ReadRow) and item.row in found:
                found.update(item.results.values())
            continue
        node = nodes[item]
        varies = node[1] in found or not found.isdisjoint(node[2:])
        if varies and node[0] not in OVER_LANES:
            found.add(item)
    return frozenset(found)


def _spread(kernel: Kernel, statement: Statement, known: set[int], memory: bool) -> None:
    """Add to those that are known what varies in a statement, and behind it."""
    users: defaultdict[int, list[int]] = defaultdict(list)
    nodes, found = kernel.graph.nodes, list[int]()
    for item in everything([statement]):
        if isinstance(item, int):
            if nodes[item][0] not in OVER_LANES:
                for a in nodes[item][1:]:
                    users[a].append(item)
            continue
        alone = memory or (isinstance(item, Load) and item.buffer.space == "own")
        if isinstance(item, Load) and not item.agreed and alone:
            found.append(item.result)
        for source, value in _flows(item):
            users[source].append(value)
    known.update(found)
    found += [source for source in users if source in known]
    while found:
        new = [value for value in users[found.pop()] if value not in known]
        known.update(new)
        found += new


def diverges(statement: For | If, varying: frozenset[int]) -> bool:
    """Whether invocations of a group may part at a statement."""
    if isinstance(statement, If):
        return statement.condition in varying
    return not varying.isdisjoint((statement.lo, statement.hi, statement.test))


def _flows(item: Statement) -> Iterator[tuple[int, int]]:
    """Pairs of values, of which the second may vary if the first does."""
    match item:
        case Load(result=result, index=index, agreed=False):
            yield index, result
        case ReadRow(row=row, results=columns):
            yield from ((row, result) for result in columns.values())
        case If(condition=condition, yields=yields, results=results):
            for result, *values in zip(results, *yields, strict=False):
                yield from ((value, result) for value in (condition, *values))
        case For():
            yield from _flows_of_loop(item)
        case _:
            pass


def _flows_of_loop(loop: For) -> Iterator[tuple[int, int]]:
    """Where one invocation turns more often than another, what a carry is differs too."""
    yield loop.lo, loop.k
    yield loop.lo, loop.count
    ends = [loop.lo, loop.hi, *([] if loop.test is None else [loop.test])]
    yield from ((end, loop.count) for end in ends)
    carries = zip(loop.params, loop.inits, loop.yields, loop.results, strict=False)
    for param, init, following, result in carries:
        yield from ((value, param) for value in (init, following, *ends))
        yield param, result
