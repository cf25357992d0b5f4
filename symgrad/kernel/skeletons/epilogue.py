"""Epilogues of sums: a traced function of them, of biases and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, paused_gc
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.passes.lower import inline
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.tiles import FOUR


@dataclass(frozen=True)
class Epilogue:
    """A computation of each element of a result, whose first input is a sum.

    Its other inputs are buffers with a number for each element, or, ``by_column``, for each column,
    or, ``by_matrix``, for each element of a matrix of a batch, the same for all of these; its
    outputs, of a number each, are buffers too.
    """

    computation: Computation
    by_column: tuple[str, ...] = ()
    by_matrix: tuple[str, ...] = ()


Columns = Sequence[Mapping[str, int]]
"""Values that each of some columns has one of, by the names of the buffers."""


class Written:
    """The epilogue of a kernel: its buffers, and what it writes to them, in ``quads`` or not."""

    def __init__(self, k: KernelIR, epilogue: Epilogue, quads: bool) -> None:
        self.k, self.quads = k, quads
        vector = FOUR if quads else 1
        self.graph, self.outputs = epilogue.computation.graph, epilogue.computation.outputs
        names = self.graph.names[1:]
        self.reads = {n: k.buffer(n, "read", vector=vector) for n in names}
        self.by_column = [n for n in names if n in epilogue.by_column]
        self.by_matrix = [n for n in names if n in epilogue.by_matrix]
        others = {*epilogue.by_column, *epilogue.by_matrix}
        self.by_element = [n for n in names if n not in others]
        self.writes = [k.buffer(o.name, "write", vector=vector) for o in self.outputs]
        nodes = enumerate(self.graph.nodes)
        self.nodes = {self.graph.names[node[1]]: i for i, node in nodes if node[0] is INPUT}

    def columns(self, column: Index, count: Index) -> dict[str, int]:
        """The values of a column, or beyond the last of so many those of the last."""
        at = column.at_most(count - 1)
        return {name: self.k.load(self.reads[name], at.id) for name in self.by_column}

    def columns_of_four(self, four: Index, count: Index) -> list[dict[str, int]]:
        """As `columns`, for each of four columns, by their number among the fours."""
        if not self.quads:
            first = four * FOUR
            return [self.columns(first + c, count) for c in range(FOUR)]
        return [
            {name: self.k.load(self.reads[name], place) for name in self.by_column}
            for place in four.at_most(count // FOUR - 1).lanes(FOUR)
        ]

    def one(self, place: Index, within: Index, total: int, columns: Mapping[str, int]) -> None:
        """Write what is made of a sum to a place, that ``within`` the matrix of a batch."""
        loaded = {n: self.k.load(self.reads[n], place.id) for n in self.by_element}
        loaded |= {n: self.k.load(self.reads[n], within.id) for n in self.by_matrix}
        self._put([place.id], [total], [loaded | dict(columns)])

    def four(self, four: Index, within: Index, totals: Sequence[int], columns: Columns) -> None:
        """As `one`, for four sums, and a four of places."""
        places, inner = four.lanes(FOUR), within.lanes(FOUR)
        loaded = {n: [self.k.load(self.reads[n], p) for p in places] for n in self.by_element}
        loaded |= {n: [self.k.load(self.reads[n], p) for p in inner] for n in self.by_matrix}
        inputs = [{n: loaded[n][c] for n in loaded} | dict(columns[c]) for c in range(FOUR)]
        self._put(places, totals, inputs)

    def _put(
        self, places: Sequence[int], totals: Sequence[int], inputs: Sequence[Mapping[str, int]]
    ) -> None:
        """Write what is made of some sums to places."""
        results = [self._values(t, i) for t, i in zip(totals, inputs, strict=True)]
        for n, buffer in enumerate(self.writes):
            for place, values in zip(places, results, strict=True):
                self.k.store(buffer, place, values[n])

    def _values(self, total: int, inputs: Mapping[str, int]) -> list[int]:
        """The values for all buffers."""
        first = self.graph.names[0]
        arguments = {i: total if n == first else inputs[n] for n, i in self.nodes.items()}
        return inline(self.k, self.graph, [o.nodes[0] for o in self.outputs], arguments)


@dataclass(frozen=True)
class FinishProgram:
    """The kernel that makes of sums, each in some ``parts``, what an epilogue makes of them.

    Its buffers are ``parts``, (.., parts, size), and those of the epilogue; its arguments are the
    number of columns, ``n``, and the ``size`` of a matrix. Each invocation has an element.
    """

    epilogue: Epilogue
    parts: int = 1

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        k = KernelIR(target, "finish")
        buffer = k.buffer("parts", "read")
        written = Written(k, self.epilogue, quads=False)
        n, size = (Index(k, k.argument(name)) for name in ("n", "size"))
        cell, count = Index(k, k.cell), Index(k, k.count)
        place = cell.at_most(count - 1)
        columns = written.columns(place % n, n)
        matrix, within = divmod(place, size)
        start = matrix * (size * self.parts) + within
        parts = [start + size * p for p in range(self.parts)]
        total = reduce(lambda a, b: k.add(ops.add, a, b), [k.load(buffer, p.id) for p in parts])

        def put() -> None:
            written.one(place, within, total, columns)

        k.when(cell.below(count), put)
        return k
