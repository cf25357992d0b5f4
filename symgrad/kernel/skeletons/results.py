"""Results of a kernel: numbers, and stretches of elements of arrays, which a loop stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.arrays import GET
from symgrad.expr.graph.node import WORD, Graph
from symgrad.kernel.language import KernelIR
from symgrad.kernel.lower import Value
from symgrad.kernel.statements import Buffer
from symgrad.kernel.views import View, element

SHORTEST: Final = 8
"""Elements that a loop stores at least; fewer are stored one by one."""


@dataclass(frozen=True)
class Stretch:
    """So many results, one behind another, that are the elements of an array from ``first`` on.

    A single result that is none has no array: ``root`` is itself.
    """

    root: int
    count: int = 1
    first: int | None = None


def stretches(graph: Graph, nodes: Sequence[int]) -> list[Stretch]:
    """The results in order: elements in a row of an array together, all others one by one."""
    return [part for start in _starts(graph, nodes) for part in _parts(graph, nodes, *start)]


def _element(graph: Graph, i: int) -> tuple[int, int] | None:
    """The array and the index of a node that is an element at a known place."""
    op, *args = graph.nodes[i]
    if op is not GET or graph.nodes[args[1]][0] is not WORD:
        return None
    return args[0], graph.nodes[args[1]][1]


def _starts(graph: Graph, nodes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where stretches begin and end."""
    start, expected = 0, None
    for n, i in enumerate(nodes):
        entry = _element(graph, i)
        if n and (entry is None or entry != expected):
            yield start, n
            start = n
        expected = entry and (entry[0], entry[1] + 1)
    yield start, len(nodes)


def _parts(graph: Graph, nodes: Sequence[int], start: int, end: int) -> list[Stretch]:
    entry = _element(graph, nodes[start])
    if entry is None or end - start < SHORTEST:
        return [Stretch(i) for i in nodes[start:end]]
    return [Stretch(entry[0], end - start, entry[1])]


def store(
    k: KernelIR, buffer: Buffer, columns: int, parts: Sequence[Stretch], values: Sequence[Value]
) -> None:
    """Store the results of an invocation, a row of so many columns, in a buffer."""
    row, column = k.offset(k.cell, columns, 0), 0
    for part, value in zip(parts, values, strict=True):
        at = k.shifted(row, column)
        if isinstance(value, int):
            k.store(buffer, at, value)
        else:
            _store_elements(k, buffer, at, part, value)
        column += part.count


def _store_elements(
    k: KernelIR, buffer: Buffer, at: int, part: Stretch, array: Buffer | View
) -> None:
    def iteration(j: int, _: Sequence[int]) -> Sequence[int]:
        value = element(k, array, k.add(ops.word_add, j, k.word(part.first or 0)))
        k.store(buffer, k.add(ops.word_add, at, j), value)
        return ()

    k.loop(k.word(0), k.word(part.count), (), iteration)
