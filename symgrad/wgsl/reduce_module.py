"""A module that sums over rows: what it is, and what all such modules have in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Graph, Op
from symgrad.kernel.plan import Output, Reduction
from symgrad.mathlib.define import Function, name_of
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.emit import Style
from symgrad.wgsl.lookup import BINDINGS, quads
from symgrad.wgsl.names import identifier, printable, unique
from symgrad.wgsl.reduce_stages import Once
from symgrad.wgsl.reduce_tile import Tile

WORKGROUP: Final = 256
"""Invocations of a workgroup."""

_OWN: Final = re.compile(
    r"^(parameters|partials|groups|loads|loaded|first|end|at|row|part|add_row|add_tile"
    r"|indices|tables|slopes|padded|keep_row|quads_of|inside|(sum|total|quad|row|line|load|kept)\d+)$"
)
"""What a sum defines itself, beside what all kernels do."""


@dataclass(frozen=True)
class Summation:
    """A module that sums some of the results; entry point "main", workgroups of ``width``.

    Bindings: 0 is the uniform block (count, zero, infinity, nan), whose count is that of the rows;
    1 the rows, padded to 16 bytes; 2 the parameters, likewise; 3 takes ``head`` numbers, the
    factors of the results and then the values of those that no row changes, and after them, for
    each of the others, the partial sums of all workgroups. With lookups, `lookup.BINDINGS` follow.
    """

    source: str
    results: range
    """The numbers of its results."""
    summed: tuple[int, ...]
    """Those of them that depend on the rows."""
    most: int
    """Rows that an invocation may add up."""
    width: int = WORKGROUP
    """Invocations of a workgroup."""
    cells: tuple[int, ...] = ()
    """For each sum its number among those that are written, if these are others as well."""
    slopes: range = range(0)
    """The numbers of the quads of slopes that it writes for every row."""
    readable: int = 1
    """How many of its bindings are only read."""
    slots: int = 0
    """Numbers of each invocation in scratch memory, the last binding."""
    turns: int = 0
    """How often an invocation turns in the loops of rows, at most."""

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """The results that no row changes."""
        return tuple(k for k in self.results if k not in self.summed)

    @cached_property
    def head(self) -> int:
        """Numbers before the partial sums."""
        return len(self.results) + len(self.fixed)

    @cached_property
    def columns(self) -> int:
        """Sums that are written, in whole sixteens if there are others among them."""
        return max(self.cells) // 16 * 16 + 16 if self.cells else len(self.summed)

    @cached_property
    def wanted(self) -> Any:
        """Where the sums are among those that are written."""
        return np.array(self.cells) if self.cells else slice(None)

    def scratch(self, groups: int) -> int:
        """Bytes of scratch memory that this many workgroups need."""
        return 4 * self.slots * self.width * groups

    def size(self, groups: int) -> int:
        """Numbers that this many workgroups write."""
        return self.head + groups * self.columns


def _names(graph: Graph) -> list[str]:
    """The users' names where they are free."""
    return unique([identifier(f"v_{n}" if _OWN.match(n) else n) for n in graph.names])


def labels_of(reduction: Reduction) -> list[str]:
    """The names of the results, and then those of the quads of slopes: of the first of each."""
    count = len(reduction.summed)
    looked = [slopes[0] for slopes in quads(reduction)]
    return [
        *(_label(output, c) for output in reduction.summed for c in range(len(output.nodes))),
        *(_label(reduction.outputs[count + slope.lookup], slope.column) for slope in looked),
    ]


def _label(output: Output, column: int) -> str:
    return output.name if len(output.nodes) == 1 else f"{output.name}[{column}]"


def header(tile: Tile, style: Style) -> Iterator[str]:
    """What the kernel computes, for its reader."""
    r, k, labels = tile.whole, tile.whole.columns, labels_of(tile.whole)
    sums = ", ".join(f"{o.name} ({len(o.nodes)})" for o in r.summed)
    yield f"// {printable(style.title or r.name)}"
    yield f"// in: {r.parameters:,} parameters, rows (N, {k}); out: sums over rows of {sums}"
    if r.lookups:
        looked = ", ".join(f"{t.width} by index {t.index}" for t in r.lookups)
        names = ", ".join(o.name for o in r.outputs[len(r.summed) :])
        yield f"// looked up in tables: {looked}; out, for every row: slopes {names}"
    yield (
        f"// {len(tile.split.each):,} operations and {4 * k:,} bytes a row, "
        f"{len(tile.split.once):,} operations once; float32, C order; math: {style.math}"
    )
    if len(tile.cut) < len(labels):
        first, last = labels[tile.cut[0]], labels[tile.cut[-1]]
        yield f"// this kernel sums {first} to {last}; others, from the same rows, the rest"
    yield ""


class Module(ABC):
    """The module of a tile: all but what is done at its rows, and how that is added up."""

    width = WORKGROUP
    cells: tuple[int, ...] = ()

    def __init__(self, tile: Tile, functions: Mapping[Op, Function], style: Style) -> None:
        self.tile, self.functions, self.style = tile, functions, style
        self.labels = labels_of(tile.whole)
        calls = {op: name_of(op) for op in functions}
        self.once = Once(tile, _names(tile.whole.graph), calls, style)
        self.calls = calls

    @abstractmethod
    def rows(self) -> Iterator[str]:
        """The functions and variables for the rows."""

    @abstractmethod
    def work(self) -> Iterator[str]:
        """What an invocation does about the rows: lines of the entry point."""

    @property
    @abstractmethod
    def used(self) -> set[Op]:
        """The operations that `rows` has written."""

    @property
    @abstractmethod
    def memory(self) -> str:
        """The type of what is in workgroup memory."""

    def made(self) -> Summation:
        """The module, its source and what it sums."""
        tile = self.tile
        prepared = list(self.once.prepared())
        rows = list(self.rows()) if tile.has_rows else []
        results = list(self.once.results())
        lines = [
            *header(self.tile, self.style),
            *self._preamble(),
            *Library(self.functions).definitions(self.once.used | self.used),
            *self.once.private,
            *rows,
            *self._main(prepared, results),
        ]
        source = "\n".join(lines) + "\n"
        return Summation(
            source, tile.results, tuple(tile.summed), tile.most, self.width, self.cells, tile.slopes
        )

    def _preamble(self) -> Iterator[str]:
        tile = self.tile
        kind = "f32" if tile.load == 1 else f"vec{tile.load}<f32>"
        yield "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }"
        yield ""
        yield "@group(0) @binding(0) var<uniform> params: Params;"
        yield f"@group(0) @binding(1) var<storage, read> rows: array<{kind}>;"
        yield "@group(0) @binding(2) var<storage, read_write> parameters: array<vec4<f32>>;"
        yield "@group(0) @binding(3) var<storage, read_write> partials: array<f32>;"
        yield from BINDINGS if tile.whole.lookups else ()
        if tile.summed:
            yield f"var<workgroup> tile: {self.memory};"
        yield ""

    def _main(self, prepared: Iterable[str], results: Iterable[str]) -> Iterator[str]:
        tile = self.tile
        yield f"@compute @workgroup_size({self.width})"
        yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
        yield "        @builtin(num_workgroups) groups: vec3<u32>,"
        yield "        @builtin(local_invocation_index) local: u32) {"
        yield from prepared
        if tile.has_rows:
            yield from self.work()
        if not tile.results:
            yield "}"
            return
        values = ", and what no row changes" * (len(tile.summed) < len(tile.results))
        yield f"  if (group.x == 0u && local == 0u) {{  // factors of the sums{values}"
        yield from results
        yield "  }"
        yield "}"
