"""Lookups -> WGSL: lines of tables that rows name by index, and slopes added to such lines.

A row's kernel reads the numbers of its lines, and writes what it adds to them, its slopes, to an
array of its own: column by column, so that neighbours write side by side. Rows in the order of
their lines are cut into runs, and a second kernel adds up each run, in a fixed order and without
atomics. Long lines have several runs, whose sums are added by the same kernel again, or by the
host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from symgrad.kernel.plan import Reduction
from symgrad.kernel.programs.lookup import SIDE_BY_SIDE, STEP, Place, runs_program
from symgrad.kernel.target import InGroups
from symgrad.wgsl.emit import Style
from symgrad.wgsl.printer import print_kernel

RUN: Final = 32
"""Rows of a run, at most."""

GROUP: Final = 64
"""Runs that a workgroup adds up, and its invocations."""

ARRAYS: Final = 3
"""Bindings that a row's kernel has for lookups: the indices, the tables and the slopes."""

READ: Final = 3
"""Bindings that the kernel of runs only reads."""

BINDINGS: Final = (
    "@group(0) @binding(4) var<storage, read_write> indices: array<u32>;",
    "@group(0) @binding(5) var<storage, read_write> tables: array<u32>;",
    "@group(0) @binding(6) var<storage, read_write> slopes: array<vec4<f32>>;",
)
"""How a row's kernel declares them.

Indices and quads of slopes are stored column by column. The tables stand one after another behind
the places at which they begin: all are words, because small numbers are no normal floats.
"""

PADDED: Final = f"(params.count + {STEP - 1}u) / {STEP}u * {STEP}u"
"""Rows from one column to the next."""


@dataclass(frozen=True)
class Slope:
    """What every row adds to a column of the table that a lookup reads: the value of ``node``."""

    lookup: int
    column: int
    node: int


Quad = tuple[Slope, ...]
"""Up to four slopes, which are written and read together."""


def quads(reduction: Reduction) -> list[Quad]:
    """The slopes of a row, in fours of one index; what is 0 at every row is left out."""
    outputs = reduction.outputs[len(reduction.summed) :]
    found: list[list[Slope]] = [[] for _ in range(indices_of(reduction))]
    for k, (output, lookup) in enumerate(zip(outputs, reduction.lookups, strict=True)):
        for column, node in enumerate(output.nodes):
            if reduction.graph.value(node) != 0.0:
                found[lookup.index].append(Slope(k, column, node))
    return [tuple(mine[k : k + 4]) for mine in found for k in range(0, len(mine), 4)]


def indices_of(reduction: Reduction) -> int:
    """The number of a row's indices."""
    return max((k.index for k in reduction.lookups), default=-1) + 1


def place_of(reduction: Reduction, number: int) -> tuple[int, int]:
    """The lookup, and the column of its table, of an input, counted after the row's columns."""
    for k, lookup in enumerate(reduction.lookups):
        if number < lookup.width:
            return k, number
        number -= lookup.width
    raise AssertionError(f"no lookup has an input {number} more than all of them")


def find_line(reduction: Reduction, k: int) -> str:
    """The statement that finds a row's line in the table of lookup k."""
    lookup = reduction.lookups[k]
    place = column_of(lookup.index, "padded")
    return f"  let line{k} = tables[{k}u] + {lookup.width}u * indices[{place}row];"


def tiles_of(count: int) -> list[range]:
    """The quads that are added up side by side, in tiles of about one size."""
    number = -(-count // SIDE_BY_SIDE)
    return [range(count * k // number, count * (k + 1) // number) for k in range(number)]


@cache
def runs_module(columns: int, place: Place | None = None) -> str:
    """The module that adds up runs of so many columns of quads: see `runs_program`."""
    kernel = runs_program(columns, place, InGroups(GROUP, grid=True))
    head = f"// adds up {columns} columns of quads over runs of rows that name the same line"
    (module,) = print_kernel(kernel, {}, Style(), [head]).modules
    return module


def column_of(c: int, step: str) -> str:
    """Where column c begins, if it is ``step`` from one to the next, to be added to."""
    return f"{c}u * {step} + " if c > 1 else f"{step} + " if c else ""
