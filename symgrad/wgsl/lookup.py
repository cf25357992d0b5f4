"""Lookups -> WGSL: lines of tables that rows name by index, and slopes added to such lines.

A row's kernel reads the numbers of its lines, and writes what it adds to them, its slopes, to an
array of its own: column by column, so that neighbours write side by side. Rows in the order of
their lines are cut into runs, and a second kernel adds up each run, in a fixed order and without
atomics. Long lines have several runs, whose sums are added by the same kernel again, or by the
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from symgrad.kernel.plan import Reduction

RUN: Final = 32
"""Rows of a run, at most."""

BLOCK: Final = 8
"""Rows of a block: a run's sums are sums of blocks, whose rounding errors are smaller."""

GROUP: Final = 64
"""Invocations of a workgroup that adds up runs, one each."""

STEP: Final = 64
"""Columns of slopes are padded to whole multiples of so many rows, where bindings may start."""

SIDE_BY_SIDE: Final = 4
"""Quads of slopes that an invocation adds up, at most."""

ARRAYS: Final = 3
"""Bindings that a row's kernel has for lookups: the indices, the tables and the slopes."""

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

COMPONENTS: Final = "xyzw"


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


@dataclass(frozen=True)
class Place:
    """Where the sums of a run go last: a line of ``width`` numbers, ``count`` from ``first`` on."""

    first: int
    count: int
    width: int


def emit_runs(count: int, place: Place | None = None) -> str:
    """The module that adds up runs of so many quads; entry point "main", workgroups of `GROUP`.

    Bindings: 0 is the uniform block, whose count is that of the runs; 1 the place at which each
    run starts in the order, and the end of the last; 2 the rows in their order, padded; 3 the
    columns of quads, as long as the order; 4 takes as many columns of sums, padded likewise, or
    else, at a place, lines of numbers.
    """
    return "\n".join(_runs(count, place)) + "\n"


def _runs(count: int, place: Place | None) -> Iterator[str]:
    yield f"// adds up {count} columns of quads over runs of rows that name the same line"
    yield ""
    yield "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }"
    yield ""
    yield "@group(0) @binding(0) var<uniform> params: Params;"
    yield "@group(0) @binding(1) var<storage, read> starts: array<u32>;"
    yield "@group(0) @binding(2) var<storage, read_write> order: array<u32>;"
    yield "@group(0) @binding(3) var<storage, read_write> slopes: array<vec4<f32>>;"
    kind = "f32" if place else "vec4<f32>"
    yield f"@group(0) @binding(4) var<storage, read_write> sums: array<{kind}>;"
    yield ""
    yield f"@compute @workgroup_size({GROUP})"
    yield "fn main(@builtin(global_invocation_id) id: vec3<u32>) {"
    yield "  let run = id.x;"
    yield "  if (run >= params.count) { return; }"
    yield "  let rows = arrayLength(&order);"
    yield from (f"  var sum{c} = vec4<f32>();" for c in range(count))
    yield "  let end = starts[run + 1u];"
    yield f"  for (var first = starts[run]; first < end; first += {BLOCK}u) {{"
    yield from (f"    var part{c} = vec4<f32>();" for c in range(count))
    yield f"    for (var k = first; k < min(first + {BLOCK}u, end); k += 1u) {{"
    yield "      let row = order[k];"
    yield from (f"      part{c} += slopes[{column_of(c, 'rows')}row];" for c in range(count))
    yield "    }"
    yield from (f"    sum{c} += part{c};" for c in range(count))
    yield "  }"
    yield from _stores(count, place)
    yield "}"


def _stores(count: int, place: Place | None) -> Iterator[str]:
    """The lines that write the sums of a run."""
    if place is None:
        yield f"  let padded = {PADDED};"
        yield from (f"  sums[{column_of(c, 'padded')}run] = sum{c};" for c in range(count))
        return
    for k in range(place.count):
        value = f"sum{k // 4}.{COMPONENTS[k % 4]}"
        yield f"  sums[{place.width}u * run + {place.first + k}u] = {value};"


def column_of(c: int, step: str) -> str:
    """Where column c begins, if it is ``step`` from one to the next, to be added to."""
    return f"{c}u * {step} + " if c > 1 else f"{step} + " if c else ""
