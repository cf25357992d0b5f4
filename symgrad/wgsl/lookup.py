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
"""Runs that a workgroup adds up, and its invocations."""

STEP: Final = 64
"""Columns of slopes are padded to whole multiples of so many rows, where bindings may start."""

SIDE_BY_SIDE: Final = 4
"""Quads of slopes that are added up together, at most."""

TILE: Final = 16_384 // 16 // SIDE_BY_SIDE
"""Rows whose quads a workgroup's memory holds at a time."""

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
    yield f"var<workgroup> tile: array<vec4<f32>, {count * TILE}>;"
    yield ""
    yield f"@compute @workgroup_size({GROUP})"
    yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
    yield "        @builtin(num_workgroups) groups: vec3<u32>,"
    yield "        @builtin(local_invocation_index) local: u32) {"
    yield "  let rows = arrayLength(&order);"
    yield f"  let first = min((group.y * groups.x + group.x) * {GROUP}u, params.count);"
    yield f"  let last = min(first + {GROUP}u, params.count);"
    yield "  let end = starts[last];"
    for j in range(count):
        yield from _pair(j, count)
    yield f"  for (var base = starts[first]; base < end; base += {TILE}u) {{"
    yield "    // neighbours read what neighbouring rows of the order have"
    yield from _filled(count)
    yield "    workgroupBarrier();"
    for j in range(count):
        yield from _added(j)
    yield "    workgroupBarrier();"
    yield "  }"
    if place is None:
        yield f"  let padded = {PADDED};"
    for j in range(count):
        yield from _stored(j, place)
    yield "}"


def _pair(j: int, count: int) -> Iterator[str]:
    """What the invocation adds up as number j: one of the quads of one of the workgroup's runs."""
    number = f"(local + {GROUP * j}u)" if j else "local"
    yield f"  let quad{j} = {number} % {count}u;"
    yield f"  let run{j} = first + {number} / {count}u;"
    yield f"  let from{j} = starts[min(run{j}, last)];"
    yield f"  let to{j} = starts[min(run{j} + 1u, last)];"
    yield f"  var sum{j} = vec4<f32>();"


def _filled(count: int) -> Iterator[str]:
    """The lines that read the quads of some rows; past the end, the last row again."""
    cells = [f"{k}u + local" if k else "local" for k in range(0, TILE, GROUP)]
    for k, cell in enumerate(cells):
        yield f"    let row{k} = order[min(base + {cell}, end - 1u)];"
    for c in range(count):
        start = f"{c * TILE}u + " if c else ""
        for k, cell in enumerate(cells):
            yield f"    tile[{start}{cell}] = slopes[{column_of(c, 'rows')}row{k}];"


def _added(j: int) -> Iterator[str]:
    """The lines that add up what there is of a run."""
    yield "    {"
    yield f"      let high = min(to{j}, base + {TILE}u);"
    yield f"      for (var k = max(from{j}, base); k < high; k += {BLOCK}u) {{"
    yield "        var part = vec4<f32>();"
    yield f"        for (var i = k; i < min(k + {BLOCK}u, high); i += 1u) {{"
    yield f"          part += tile[quad{j} * {TILE}u + i - base];"
    yield "        }"
    yield f"        sum{j} += part;"
    yield "      }"
    yield "    }"


def _stored(j: int, place: Place | None) -> Iterator[str]:
    """The lines that write a quad of a run."""
    yield f"  if (run{j} < last) {{"
    if place is None:
        yield f"    sums[quad{j} * padded + run{j}] = sum{j};"
    else:
        yield f"    let at = {place.width}u * run{j} + {place.first}u + 4u * quad{j};"
        yield f"    sums[at] = sum{j}.x;"
        for k, component in enumerate(COMPONENTS[1:], 1):
            yield (
                f"    if (4u * quad{j} + {k}u < {place.count}u) "
                f"{{ sums[at + {k}u] = sum{j}.{component}; }}"
            )
    yield "  }"


def column_of(c: int, step: str) -> str:
    """Where column c begins, if it is ``step`` from one to the next, to be added to."""
    return f"{c}u * {step} + " if c > 1 else f"{step} + " if c else ""
