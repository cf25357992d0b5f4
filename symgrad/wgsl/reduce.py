"""Reduction -> WGSL: sums over rows, of which every workgroup writes a partial one.

An invocation adds up every stride-th load of the table in private variables; workgroup memory
takes the sums of all invocations and adds them; the host adds the partial sums of the workgroups in
float64. Nothing is atomic: the same rows give the same bits. (Subgroup sums would need another
source for each front end and save nothing: with this tree four Gaussians over 16 million rows take
47 us on an H200, at 70 % of a copy's bandwidth.)

Rounding errors stay those of short sums: there are so many workgroups that an invocation has at
most `reduce_tile.ROWS` rows. Where there are few results it adds them in blocks of `BLOCK`, and
the sums of the blocks after that; where there are many, one by one, and fewer of them. What depends
on the parameters alone is computed before the loop. Many results are cut into tiles, of a module
each, that read the same rows. What a row adds to lines of tables, its slopes, is written as it is:
see `lookup`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from symgrad.expr.node import Graph, Op
from symgrad.kernel.plan import Output, Reduction
from symgrad.mathlib.define import Function, name_of
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.emit import Style
from symgrad.wgsl.lookup import BINDINGS, COMPONENTS, quads
from symgrad.wgsl.names import identifier, printable, unique
from symgrad.wgsl.reduce_stages import Each, Once
from symgrad.wgsl.reduce_tile import BLOCK, Tile, tiles

WORKGROUP: Final = 256
"""Invocations of a workgroup."""

SHARED: Final = 16
"""Results whose sums fit in workgroup memory together: 16 of 256 floats are 16,384 bytes."""

_OWN: Final = re.compile(
    r"^(parameters|partials|groups|loads|loaded|first|end|at|row|part|add_row|add_tile"
    r"|indices|tables|slopes|padded|(sum|total|quad|row|line|load)\d+)$"
)
"""What a sum defines itself, beside what all kernels do."""


@dataclass(frozen=True)
class Summation:
    """A module that sums some of the results; entry point "main", workgroups of `WORKGROUP`.

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
    slopes: range = range(0)
    """The numbers of the quads of slopes that it writes for every row."""

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """The results that no row changes."""
        return tuple(k for k in self.results if k not in self.summed)

    @cached_property
    def head(self) -> int:
        """Numbers before the partial sums."""
        return len(self.results) + len(self.fixed)

    def size(self, groups: int) -> int:
        """Numbers that this many workgroups write."""
        return self.head + groups * len(self.summed)


def emit_reduction(
    reduction: Reduction, functions: Mapping[Op, Function], style: Style | None = None
) -> tuple[Summation, ...]:
    """The modules of a reduction; together they sum all results."""
    style = style or Style()
    return tuple(_Module(tile, functions, style).made() for tile in tiles(reduction))


def _names(graph: Graph) -> list[str]:
    """The users' names where they are free."""
    return unique([identifier(f"v_{n}" if _OWN.match(n) else n) for n in graph.names])


def _labels(reduction: Reduction) -> list[str]:
    """The names of the results, and then those of the quads of slopes: of the first of each."""
    count = len(reduction.summed)
    looked = [slopes[0] for slopes in quads(reduction)]
    return [
        *(_label(output, c) for output in reduction.summed for c in range(len(output.nodes))),
        *(_label(reduction.outputs[count + slope.lookup], slope.column) for slope in looked),
    ]


def _label(output: Output, column: int) -> str:
    return output.name if len(output.nodes) == 1 else f"{output.name}[{column}]"


class _Module:
    """The module of a tile: all but the statements of its stages."""

    def __init__(self, tile: Tile, functions: Mapping[Op, Function], style: Style) -> None:
        self.tile, self.functions, self.style = tile, functions, style
        self.labels = _labels(tile.whole)
        calls = {op: name_of(op) for op in functions}
        self.once = Once(tile, _names(tile.whole.graph), calls, style)
        self.each = Each(self.once, calls, style)

    def made(self) -> Summation:
        """The module, its source and what it sums."""
        tile = self.tile
        prepared = list(self.once.prepared())
        body = list(self.each.body()) if tile.has_rows else []
        results = list(self.once.results())
        lines = [
            *self._header(),
            *self._preamble(),
            *Library(self.functions).definitions(self.once.used | self.each.used),
            *self.once.private,
            *self._sums(),
            *body,
            *(self._add_tile() if tile.summed else []),
            *self._main(prepared, results),
        ]
        source = "\n".join(lines) + "\n"
        return Summation(source, tile.results, tuple(tile.summed), tile.most, tile.slopes)

    def _header(self) -> Iterator[str]:
        """What the kernel computes, for its reader."""
        tile, r, k = self.tile, self.tile.whole, self.tile.whole.columns
        sums = ", ".join(f"{o.name} ({len(o.nodes)})" for o in r.summed)
        yield f"// {printable(self.style.title or r.name)}"
        yield f"// in: {r.parameters:,} parameters, rows (N, {k}); out: sums over rows of {sums}"
        if r.lookups:
            looked = ", ".join(f"{t.width} by index {t.index}" for t in r.lookups)
            names = ", ".join(o.name for o in r.outputs[len(r.summed) :])
            yield f"// looked up in tables: {looked}; out, for every row: slopes {names}"
        yield (
            f"// {len(tile.split.each):,} operations and {4 * k:,} bytes a row, "
            f"{len(tile.split.once):,} operations once; float32, C order; math: {self.style.math}"
        )
        if len(tile.cut) < len(self.labels):
            first, last = self.labels[tile.cut[0]], self.labels[tile.cut[-1]]
            yield f"// this kernel sums {first} to {last}; others, from the same rows, the rest"
        yield ""

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
            width = min(SHARED, len(tile.summed))
            yield f"var<workgroup> tile: array<f32, {width * WORKGROUP}>;"
        yield ""

    def _sums(self) -> Iterator[str]:
        """The variables in which an invocation adds up rows, and blocks of them."""
        tile = self.tile
        if tile.summed:
            blocks = f"blocks of {BLOCK} rows, and of these" if tile.two_levels else "its rows"
            yield f"// the sums of an invocation: of {blocks}"
        for c, k in enumerate(tile.summed):
            line = f"var<private> sum{c}: f32;"
            if tile.two_levels:
                line += f" var<private> total{c}: f32;"
            yield f"{line}  // {printable(self.labels[k])}"
        if tile.summed:
            yield ""

    def _main(self, prepared: Iterable[str], results: Iterable[str]) -> Iterator[str]:
        tile = self.tile
        yield f"@compute @workgroup_size({WORKGROUP})"
        yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
        yield "        @builtin(num_workgroups) groups: vec3<u32>,"
        yield "        @builtin(local_invocation_index) local: u32) {"
        yield from prepared
        if tile.has_rows:
            yield from self._loops()
            yield from self._tiles()
        if not tile.results:
            yield "}"
            return
        values = ", and what no row changes" * (len(tile.summed) < len(tile.results))
        yield f"  if (group.x == 0u && local == 0u) {{  // factors of the sums{values}"
        yield from results
        yield "  }"
        yield "}"

    def _loops(self) -> Iterator[str]:
        """The invocation's rows."""
        tile = self.tile
        yield "  // every stride-th load of the table"
        yield f"  let stride = groups.x * {WORKGROUP}u;"
        up = f"(params.count + {tile.rows - 1}u) / {tile.rows}u"
        yield f"  let loads = {up if tile.rows > 1 else 'params.count'};"
        start = f"group.x * {WORKGROUP}u + local"
        if not tile.two_levels:
            yield f"  for (var at = {start}; at < loads; at += stride) {{"
            yield from self._add("    ")
            yield "  }"
            return
        step = f"{BLOCK // tile.rows}u * stride"
        yield f"  for (var first = {start}; first < loads; first += {step}) {{"
        loop = [
            f"    let end = min(first + {step}, loads);",
            "    for (var at = first; at < end; at += stride) {",
            *self._add("      "),
            "    }",
        ]
        yield from self._unless_whole(loop) if tile.flat else loop
        for c in range(len(tile.summed)):
            yield f"    total{c} += sum{c}; sum{c} = 0.0f;"
        yield "  }"

    def _unless_whole(self, loop: Iterable[str]) -> Iterator[str]:
        """A block's rows without the loop, where the end does not cut them short."""
        tile = self.tile
        loads = range(BLOCK // tile.rows)
        places = [f"first{f' + {k}u * stride' * bool(k)}" for k in loads]
        whole = "loads" if tile.rows == 1 else f"params.count / {tile.rows}u"
        yield f"    if ({places[-1]} < {whole}) {{  // all loads come before the work"
        if tile.rows == 1:
            yield from (f"      add_row({place});" for place in places)
        else:
            yield from (f"      let load{k} = rows[{place}];" for k, place in enumerate(places))
            for k in loads:
                yield from (f"      {self._call(f'load{k}', r)}" for r in range(tile.rows))
        yield "    } else {"
        yield from (f"  {line}" for line in loop)
        yield "    }"

    def _add(self, indent: str) -> Iterator[str]:
        """The rows of one load; those past the end are not computed."""
        tile = self.tile
        if tile.rows == 1:
            yield f"{indent}add_row(at);"
            return
        yield f"{indent}let loaded = rows[at];"
        for r in range(tile.rows):
            call = self._call("loaded", r)
            inside = f"{tile.rows}u * at + {r}u < params.count"
            yield f"{indent}if ({inside}) {{ {call} }}" if r else indent + call

    def _call(self, load: str, row: int) -> str:
        """The statement that adds a row of a load."""
        k = self.tile.whole.columns
        parts = (f"{load}.{COMPONENTS[row * k + c]}" for c in range(k))
        return f"add_row({', '.join(parts)});"

    def _tiles(self) -> Iterator[str]:
        """The sums of the workgroup, as many together as its memory takes."""
        tile = self.tile
        kind = "total" if tile.two_levels else "sum"
        head, count = len(tile.results) * 2 - len(tile.summed), len(tile.summed)
        for start in range(0, count, SHARED):
            few = range(start, min(start + SHARED, count))
            if start:
                yield "  workgroupBarrier();"
            for k, c in enumerate(few):
                yield f"  tile[{f'{WORKGROUP * k}u + ' * bool(k)}local] = {kind}{c};"
            to = f"{head}u + {f'{start}u * groups.x + ' * bool(start)}group.x"
            yield f"  add_tile({len(few)}u, {to}, groups.x, local);"

    def _add_tile(self) -> Iterator[str]:
        """A tree of two levels, each of 16 branches, which are added in fours."""
        yield "// writes the sums of rows of the tile, of 256 numbers each, step apart"
        yield "fn add_tile(count: u32, to: u32, step: u32, local: u32) {"
        yield "  workgroupBarrier();"
        yield "  var part = 0.0f;"
        yield "  if (local < 16u * count) {"
        yield f"    let at = local / 16u * {WORKGROUP}u + local % 16u;"
        yield "    for (var k = at; k < at + 256u; k += 64u) {"
        yield "      part += (tile[k] + tile[k + 16u]) + (tile[k + 32u] + tile[k + 48u]);"
        yield "    }"
        yield "  }"
        yield "  workgroupBarrier();"
        yield "  if (local < 16u * count) { tile[local] = part; }"
        yield "  workgroupBarrier();"
        yield "  if (local < count) {"
        yield "    part = 0.0f;"
        yield "    for (var k = 16u * local; k < 16u * local + 16u; k += 4u) {"
        yield "      part += (tile[k] + tile[k + 1u]) + (tile[k + 2u] + tile[k + 3u]);"
        yield "    }"
        yield "    partials[to + local * step] = part;"
        yield "  }"
        yield "}"
        yield ""
