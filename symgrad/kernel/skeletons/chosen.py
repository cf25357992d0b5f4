"""Results to which few rows add: those of one of many cases, as of the cluster that is nearest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, reachable

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
