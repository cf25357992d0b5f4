"""Arrays that are read where they stand: inputs in a row, and tables of constants.

An array that is put together of such numbers alone, each at a known index, is never made: reading
it reads what the host has bound. Who writes to one writes to a copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from symgrad.expr import ops
from symgrad.expr.graph.arrays import FRESH, PUT, ZEROS, length
from symgrad.expr.graph.node import CONST, INPUT, WORD, Graph, bits_float, reachable
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer

Made = tuple[int, list[int | None]]
"""An array, and the numbers that it is made of; None is one of zero."""


@dataclass(frozen=True, eq=False)
class View:
    """``size`` numbers of a buffer that is read, from the index ``start`` on, a value."""

    buffer: Buffer
    start: int
    size: int

    @property
    def kind(self) -> str:
        """The kind of the numbers."""
        return self.buffer.kind


def element(kernel: KernelIR, array: Buffer | View, index: int) -> int:
    """The number at an index of an array."""
    if isinstance(array, Buffer):
        return kernel.load(array, index)
    op, *start = kernel.graph.nodes[array.start]
    if op is WORD:
        return kernel.load(array.buffer, kernel.shifted(index, start[0]))
    return kernel.load(array.buffer, kernel.add(ops.word_add, array.start, index))


def load_input(
    kernel: KernelIR, graph: Graph, i: int, buffer: Buffer, at: int, at_use: bool = False
) -> int:
    """The value of input node i of a graph, a number of a buffer, under the input's name."""
    value = kernel.load(buffer, at, at_use)
    kernel.names[value] = graph.names[graph.nodes[i][1]]
    return value


def views(
    kernel: KernelIR, graph: Graph, roots: Sequence[int], x: Buffer, row: int
) -> dict[int, View]:
    """The arrays that need not be made, by their nodes.

    Args:
        kernel: gets a buffer ``constants`` if there are tables of these.
        graph: the nodes of a computation.
        roots: what is needed of them.
        x: the buffer with the inputs.
        row: where it has those of this invocation, a value.
    """
    arrays = put_together(graph, roots)
    input_views = {
        array: View(x, kernel.add(ops.word_add, row, kernel.word(first)), size)
        for array, (first, size) in in_a_row(graph, arrays).items()
    }
    (tables,) = tables_of(kernel, (graph, arrays))
    return input_views | tables


def constants(kernel: KernelIR, *parts: tuple[Graph, Sequence[int]]) -> list[dict[int, View]]:
    """The tables of constants that roots of some graphs need, by the nodes of each.

    The kernel gets a buffer ``constants`` if there are any.
    """
    return tables_of(kernel, *((graph, put_together(graph, roots)) for graph, roots in parts))


def tables_of(kernel: KernelIR, *parts: tuple[Graph, Sequence[Made]]) -> list[dict[int, View]]:
    """The tables of constants as in `constants`, of what is `put_together` in each graph."""
    tables = [dict(_tables(graph, arrays)) for graph, arrays in parts]
    data = tuple(x for some in tables for numbers in some.values() for x in numbers)
    if not data:
        return [{} for _ in parts]
    buffer, starts = kernel.buffer("constants", "read", data=data), _starts(tables)
    return [
        {a: View(buffer, kernel.word(next(starts)), len(numbers)) for a, numbers in some.items()}
        for some in tables
    ]


def _starts(tables: Sequence[Mapping[int, Sequence[float]]]) -> Iterator[int]:
    """Where each of some tables begins, if they stand one behind the other."""
    sizes = (len(numbers) for some in tables for numbers in some.values())
    return itertools.accumulate(sizes, initial=0)


def _tables(graph: Graph, arrays: Iterable[Made]) -> Iterator[tuple[int, list[float]]]:
    """The arrays all of whose numbers are known, and these."""
    for array, elements in arrays:
        if all(e is None or graph.nodes[e][0] is CONST for e in elements):
            yield array, [0.0 if e is None else bits_float(graph.nodes[e][1]) for e in elements]


def in_a_row(graph: Graph, arrays: Iterable[Made]) -> dict[int, tuple[int, int]]:
    """Of arrays that are `put_together`, those that are inputs in a row: the first, how many."""
    return {
        array: (first, len(elements))
        for array, elements in arrays
        if (first := _first_of_row(graph, elements)) is not None
    }


def parameters_in_a_row(
    graph: Graph, arrays: Iterable[Made], count: int
) -> dict[int, tuple[int, int]]:
    """The arrays `in_a_row` of the first ``count`` inputs, the parameters of a row's kernel."""
    return {array: row for array, row in in_a_row(graph, arrays).items() if sum(row) <= count}


def parameter_views(
    kernel: KernelIR, parameters: Buffer, rows: Mapping[int, tuple[int, int]]
) -> dict[int, View]:
    """Arrays of parameters, read where they are: see `parameters_in_a_row`."""
    return {a: View(parameters, kernel.word(first), size) for a, (first, size) in rows.items()}


def _first_of_row(graph: Graph, elements: Sequence[int | None]) -> int | None:
    """The number of the first of some inputs, if they are inputs in a row."""
    heads = [(CONST, 0) if e is None else graph.nodes[e] for e in elements]
    in_a_row = (n[0] is INPUT and n[1] == heads[0][1] + k for k, n in enumerate(heads))
    return heads[0][1] if all(in_a_row) else None


def put_together(graph: Graph, roots: Sequence[int]) -> list[Made]:
    """The arrays that roots need which are made of numbers one by one."""
    return list(_put_together(graph, roots)) if PUT in graph.heads else []


def _put_together(graph: Graph, roots: Sequence[int]) -> Iterator[Made]:
    nodes, order = graph.nodes, reachable(graph, roots)
    puts = {i for i in order if nodes[i][0] is PUT and nodes[nodes[i][2]][0] is WORD}
    taken = (nodes[i][1 + (i in puts) :] for i in order if nodes[i][0].arity)
    ends = [a for a in dict.fromkeys(chain.from_iterable(taken)) if a in puts]
    for end in ends:
        elements: dict[int, int] = {}
        i, last = end, length(graph, end) - 1
        while i in puts:
            _, array, at, value = nodes[i]
            elements.setdefault(min(nodes[at][1], last), value)
            i = array
        if nodes[i][0] is ZEROS or (nodes[i][0] in FRESH and len(elements) > last):
            yield end, [elements.get(k) for k in range(last + 1)]
