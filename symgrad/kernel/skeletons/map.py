"""The map over points: one invocation for each, which reads its inputs and writes its results.

Results are numbers, and stretches of elements of arrays, which a loop stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.arrays import GET
from symgrad.expr.graph.node import INPUT, WORD, Graph, paused_gc, reachable
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.views import View, element, load_input, views
from symgrad.kernel.launch import BATCH, Array, Dispatch, Launch, Size
from symgrad.kernel.passes.lower import Value, numbers, written
from symgrad.kernel.shapes import Computation

# --- points that are put together from rows -------------------------------------------------------
# Points of kernels over rows, put together: parameters, columns, and entries of tables.

JOIN_INVOCATIONS: Final = 256
"""Invocations of a workgroup that puts points together."""


@dataclass(frozen=True)
class Entry:
    """An entry of a table that a row's index names.

    The index stands in ``column`` of all indices, the table begins at ``start`` of the parameters.
    """

    column: int
    start: int
    width: int


@dataclass(frozen=True)
class Pattern:
    """The parts of a point: the first of the parameters, the columns of a row, and entries.

    As a program it writes the kernel that puts points together, an invocation for each of their
    numbers. Its buffers are ``parameters``, ``numbers`` (rows, columns) and ``indices`` (rows,
    indices), those of them that there are, and ``points``; numbers are moved bit by bit.
    """

    uniform: int
    columns: int
    indices: int
    entries: tuple[Entry, ...]
    dtype: str = "float32"
    """The dtype of the numbers of points."""

    @property
    def width(self) -> int:
        """The numbers of a point."""
        return self.uniform + self.columns + sum(entry.width for entry in self.entries)

    @property
    def sources(self) -> list[str]:
        """The names of the arrays that points are put together from."""
        present = {
            "parameters": self.uniform or self.entries,
            "numbers": self.columns,
            "indices": self.entries,
        }
        return [name for name, is_present in present.items() if is_present]

    def launch(self, rows: int, parameters: int) -> Launch:
        """The launch for so many rows, and so many parameters."""
        shapes = {
            "parameters": (parameters,),
            "numbers": (rows, self.columns),
            "indices": (rows, self.indices),
        }
        inputs = tuple(Array(name, shapes[name], self._kind_of(name)) for name in self.sources)
        points = Array("points", (rows, self.width), self._kind)
        names = tuple((a.name, a.name) for a in (*inputs, points))
        target = WorkgroupTarget(JOIN_INVOCATIONS, grid=True)
        dispatch = Dispatch(self, target, names, rows * self.width)
        return Launch("row_points", inputs, (points,), (), (dispatch,))

    @property
    def _kind(self) -> str:
        """The kind of what is moved: words, or floats where these are wider."""
        return "u" if self.dtype == "float32" else "f"

    def _kind_of(self, name: str) -> str:
        return "u" if name == "indices" else self._kind

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        k = KernelIR(target, "row_points")
        buffers = {name: k.buffer(name, "read", self._kind_of(name)) for name in self.sources}
        points = k.buffer("points", "write", self._kind)
        row, number = divmod(Index(k, k.target.point(k)), self.width)
        (value,) = _Number(k, self, buffers, row, number).chosen()
        k.when(Index(k, k.cell).below(Index(k, k.count)), lambda: k.store(points, k.cell, value))
        return k


@dataclass(frozen=True)
class _Number:
    """A number of a row's point, which comes from one of several places."""

    k: KernelIR
    pattern: Pattern
    buffers: dict[str, Buffer]
    row: Index
    number: Index

    def chosen(self) -> Sequence[int]:
        """The value, by a branch for each place."""
        p, ends = self.pattern, [self.pattern.uniform]
        ends.append(p.uniform + p.columns)
        for entry in p.entries:
            ends.append(ends[-1] + entry.width)
        return self._after(0, ends)

    def _after(self, part: int, ends: Sequence[int]) -> Sequence[int]:
        first = ends[part - 1] if part else 0
        if part == len(ends) - 1:
            return [self._of(part, first)]
        if ends[part] == first:
            return self._after(part + 1, ends)
        return self.k.choose(
            self.number.below(ends[part]),
            lambda: [self._of(part, first)],
            lambda: self._after(part + 1, ends),
        )

    def _of(self, part: int, first: int) -> int:
        """The value in a part of a point that begins at this number."""
        k, p, buffers = self.k, self.pattern, self.buffers
        at = self.number - first
        if part == 0:
            return k.load(buffers["parameters"], at.id)
        if part == 1:
            return k.load(buffers["numbers"], (self.row * p.columns + at).id)
        entry = p.entries[part - 2]
        index = k.load(buffers["indices"], (self.row * p.indices + entry.column).id)
        place = Index(k, index) * entry.width + at + entry.start
        return k.load(buffers["parameters"], place.id)


# --- the map --------------------------------------------------------------------------------------

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


POINTS = "x"
"""The name of the buffer of points, and of the array in a launch."""


@dataclass(frozen=True)
class Map:
    """The program of a computation at every point."""

    computation: Computation

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        return map_program(self.computation, target)


def map_launch(
    computation: Computation, target: Target, columns_in: bool = False, columns_out: bool = False
) -> Launch:
    """The launch that computes the outputs of a computation at every point of a batch.

    The points are (B, inputs), and each output (B, columns), in C order; with ``columns_in`` the
    points are (inputs, B), and with ``columns_out`` the outputs (columns, B).
    """

    def shape(columns: int, by_columns: bool) -> tuple[int | Size, ...]:
        return (columns, BATCH) if by_columns else (BATCH, columns)

    inputs = (Array(POINTS, shape(len(computation.graph.names), columns_in)),)
    outputs = tuple(Array(o.name, shape(len(o.nodes), columns_out)) for o in computation.outputs)
    arrays = tuple((a.name, a.name) for a in (*inputs, *outputs))
    dispatch = Dispatch(Map(computation), target, arrays, BATCH)
    return Launch(computation.name, inputs, outputs, (), (dispatch,))


@paused_gc()
def map_program(computation: Computation, target: Target) -> KernelIR:
    """The kernel that computes the outputs of a computation at every point.

    Its buffers are ``x`` (points, inputs), which is read, ``constants``, if there are tables of
    them, and one for each output, (points, columns), all in C order.
    """
    make = _structured if computation.is_structured else _straight
    return make(computation, target)


def _straight(computation: Computation, target: Target) -> KernelIR:
    """The kernel of a graph without loops: its arena is the graph's, with a few words behind."""
    graph, roots = computation.graph, [i for o in computation.outputs for i in o.nodes]
    k, order = KernelIR(target, computation.name, graph), reachable(graph, roots)
    x = k.buffer(POINTS, "read")
    outputs = [k.buffer(o.name, "write") for o in computation.outputs]
    inputs = {graph.nodes[i][1]: i for i in order if graph.nodes[i][0] is INPUT}
    if inputs:
        k.names |= {i: graph.names[number] for number, i in inputs.items()}
        k.read_row(x, target.point(k), len(graph.names), inputs)
    k.compute(order)
    for buffer, o in zip(outputs, computation.outputs, strict=True):
        k.store_row(buffer, o.nodes)
    return k


def _structured(computation: Computation, target: Target) -> KernelIR:
    """The kernel of a graph with loops, choices or arrays, which become statements."""
    k, graph = KernelIR(target, computation.name), computation.graph
    x, n = k.buffer(POINTS, "read"), len(graph.names)
    row = k.offset(target.point(k), n, 0)

    def column(i: int) -> int:
        return load_input(k, graph, i, x, k.shifted(row, graph.nodes[i][1]))

    parts = [stretches(graph, o.nodes) for o in computation.outputs]
    roots = [part.root for output_parts in parts for part in output_parts]
    row_views = views(k, graph, roots, x, row)
    outputs = [k.buffer(o.name, "write") for o in computation.outputs]
    values = iter(written(k, graph, roots, row_views, column))
    rows = [
        (buffer, len(o.nodes), output_parts, [next(values) for _ in output_parts])
        for buffer, o, output_parts in zip(outputs, computation.outputs, parts, strict=True)
    ]
    stretched = [row for row in rows if len(row[2]) < row[1]]

    def store_stretches() -> None:
        for row in stretched:
            store(k, *row)

    if stretched and not target.whole:
        k.when(k.add(ops.word_lt, k.cell, k.count), store_stretches)
    else:
        store_stretches()
    for buffer, columns, output_parts, results in rows:
        if len(output_parts) == columns:
            k.store_row(buffer, numbers(results))
    return k
