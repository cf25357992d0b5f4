"""Reduction -> WGSL: sums over rows, of which every workgroup writes a partial one.

An invocation adds up a few rows, every stride-th of the table, in private variables; workgroup
memory takes the sums of all invocations and adds them; the host adds the partial sums of the
workgroups in float64. Nothing is atomic: the same rows give the same bits. (Subgroup sums would
need another source for each front end and save nothing: with this tree four Gaussians over 16
million rows take 47 us on an H200, at 70 % of a copy's bandwidth.)

Rounding errors stay those of short sums: an invocation has at most `ROWS` rows, which it adds in
blocks of `BLOCK`, and the sums of the blocks after that. What depends on the parameters alone is
computed before the loop. Many results are cut into tiles, of a module each, that read the same
rows. What a row adds to lines of tables, its slopes, is written as it is: see `lookup`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from symgrad.expr.node import INPUT, Graph, Op
from symgrad.kernel.plan import Output, Reduction
from symgrad.kernel.schedule import bind
from symgrad.kernel.stage import stages
from symgrad.mathlib.define import Function, name_of
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.emit import Style, Writer
from symgrad.wgsl.lookup import (
    BINDINGS,
    COMPONENTS,
    PADDED,
    Quad,
    column_of,
    find_line,
    place_of,
    quads,
)
from symgrad.wgsl.names import identifier, printable, unique

WORKGROUP: Final = 256
"""Invocations of a workgroup."""

ROWS: Final = 32, 128
"""Rows that an invocation adds up, at most: one by one, and in blocks."""

BLOCK: Final = 8
"""Rows of a block: where there are few results, an invocation's sums are sums of blocks."""

FEW: Final = 32
"""Results up to which sums have two levels, which takes two registers for each."""

TILE: Final = 64, 512
"""Results of a module, at most: so many in any case, and so many where there is much to do."""

REPAID: Final = 16
"""Operations at a row that are worth another sum in memory, for they are repeated in each tile."""

SHARED: Final = 16
"""Results whose sums fit in workgroup memory together: 16 of 256 floats are 16,384 bytes."""

REPEATED: Final = 400
"""Operations up to which the code stands there once for each row of a load."""

FLAT: Final = 64
"""Operations up to which a whole block stands there without a loop, so that all of its loads can
be on their way together."""

KEPT: Final = 64
"""Parameters up to which they are read before the loop, rather than at every row."""

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

    @property
    def fixed(self) -> tuple[int, ...]:
        """The results that no row changes."""
        return tuple(k for k in self.results if k not in self.summed)

    @property
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
    return tuple(_Module(reduction, functions, style, cut).made() for cut in tiles(reduction))


def tiles(reduction: Reduction) -> list[range]:
    """The results of each module, then the quads of slopes, in tiles of about one size."""
    count = sum(len(o.nodes) for o in reduction.summed) + len(quads(reduction))
    least, most = TILE
    size = min(max(len(stages(reduction).each) // REPAID, least), most)
    number = -(-count // size)
    return [range(count * k // number, count * (k + 1) // number) for k in range(number)]


def row_inputs(reduction: Reduction) -> list[int]:
    """The input nodes that differ from row to row: columns, and what is looked up."""
    nodes = reduction.graph.nodes
    return [i for i, n in enumerate(nodes) if n[0] is INPUT and n[1] >= reduction.parameters]


def _names(graph: Graph) -> list[str]:
    """The users' names where they are free."""
    return unique([identifier(f"v_{n}" if _OWN.match(n) else n) for n in graph.names])


def _divided(cut: range, count: int) -> tuple[range, range]:
    """The results among the numbers of a module, and the quads of slopes, from ``count`` on."""
    results = range(min(cut.start, count), min(cut.stop, count))
    return results, range(max(cut.start - count, 0), max(cut.stop - count, 0))


def _label(output: Output, column: int) -> str:
    return output.name if len(output.nodes) == 1 else f"{output.name}[{column}]"


class _Module:
    """What the parts of one module share."""

    def __init__(
        self, reduction: Reduction, functions: Mapping[Op, Function], style: Style, cut: range
    ) -> None:
        self.whole, self.functions, self.style, self.cut = reduction, functions, style, cut
        roots = [i for o in reduction.summed for i in o.nodes]
        self.results, self.slopes = _divided(cut, len(roots))
        written = quads(reduction)
        self.written: dict[int, Quad] = {k: written[k] for k in self.slopes}
        self.roots = {k: roots[k] for k in self.results}
        self.stored = [s.node for quad in self.written.values() for s in quad]
        nodes = (*self.roots.values(), *self.stored)
        factors = reduction.factors[self.results.start : self.results.stop]
        self.reduction = replace(
            reduction, outputs=(Output("tile", nodes),), factors=factors, lookups=()
        )
        self.split = stages(self.reduction)
        varying = {*self.split.each, *row_inputs(reduction)}
        self.summed = [k for k in self.results if self.roots[k] in varying]
        self.labels = [
            *(_label(o, c) for o in reduction.summed for c in range(len(o.nodes))),
            *(_label(reduction.outputs[len(reduction.summed) + q[0].lookup], q[0].column)
              for q in written),
        ]  # fmt: skip
        calls = {op: name_of(op) for op in functions}
        names = _names(reduction.graph)
        self.once = _Once(self, names, calls)
        self.each = _Each(self, names, calls)

    @cached_property
    def load(self) -> int:
        """Numbers that are read at once."""
        k = self.whole.columns
        if self.rows > 1:
            return 4
        return 4 if k and k % 4 == 0 else 2 if k and k % 2 == 0 else 1

    @cached_property
    def rows(self) -> int:
        """Rows that are read at once: several, if they are narrow and there is little to do."""
        narrow = self.whole.columns in (1, 2) and len(self.split.each) <= REPEATED
        return 4 // self.whole.columns if narrow and not self.whole.lookups else 1

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to do at a row."""
        return bool(self.summed or self.slopes)

    @property
    def two_levels(self) -> bool:
        """Whether an invocation sums blocks of rows."""
        return len(self.summed) <= FEW

    @property
    def flat(self) -> bool:
        """Whether a whole block stands there without a loop."""
        return self.two_levels and not self.slopes and len(self.split.each) <= FLAT

    def made(self) -> Summation:
        """The module."""
        prepared = list(self.once.prepared())
        body = list(self.each.body()) if self.has_rows else []
        results = list(self.once.results())
        lines = [
            *self._header(),
            *self._preamble(),
            *Library(self.functions).definitions(self.once.used | self.each.used),
            *self.once.private,
            *self._sums(),
            *body,
            *(self._add_tile() if self.summed else []),
            *self._main(prepared, results),
        ]
        source = "\n".join(lines) + "\n"
        most = ROWS[self.two_levels]
        return Summation(source, self.results, tuple(self.summed), most, self.slopes)

    def _header(self) -> Iterator[str]:
        """What the kernel computes, for its reader."""
        r, k = self.whole, self.whole.columns
        sums = ", ".join(f"{o.name} ({len(o.nodes)})" for o in r.summed)
        yield f"// {printable(self.style.title or r.name)}"
        yield f"// in: {r.parameters:,} parameters, rows (N, {k}); out: sums over rows of {sums}"
        if r.lookups:
            looked = ", ".join(f"{t.width} by index {t.index}" for t in r.lookups)
            names = ", ".join(o.name for o in r.outputs[len(r.summed) :])
            yield f"// looked up in tables: {looked}; out, for every row: slopes {names}"
        yield (
            f"// {len(self.split.each):,} operations and {4 * k:,} bytes a row, "
            f"{len(self.split.once):,} operations once; float32, C order; math: {self.style.math}"
        )
        if len(self.cut) < len(self.labels):
            first, last = self.labels[self.cut[0]], self.labels[self.cut[-1]]
            yield f"// this kernel sums {first} to {last}; others, from the same rows, the rest"
        yield ""

    def _preamble(self) -> Iterator[str]:
        kind = "f32" if self.load == 1 else f"vec{self.load}<f32>"
        yield "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }"
        yield ""
        yield "@group(0) @binding(0) var<uniform> params: Params;"
        yield f"@group(0) @binding(1) var<storage, read> rows: array<{kind}>;"
        yield "@group(0) @binding(2) var<storage, read_write> parameters: array<vec4<f32>>;"
        yield "@group(0) @binding(3) var<storage, read_write> partials: array<f32>;"
        yield from BINDINGS if self.whole.lookups else ()
        if self.summed:
            width = min(SHARED, len(self.summed))
            yield f"var<workgroup> tile: array<f32, {width * WORKGROUP}>;"
        yield ""

    def _sums(self) -> Iterator[str]:
        """The variables in which an invocation adds up rows, and blocks of them."""
        if self.summed:
            blocks = f"blocks of {BLOCK} rows, and of these" if self.two_levels else "its rows"
            yield f"// the sums of an invocation: of {blocks}"
        for c, k in enumerate(self.summed):
            line = f"var<private> sum{c}: f32;"
            if self.two_levels:
                line += f" var<private> total{c}: f32;"
            yield f"{line}  // {printable(self.labels[k])}"
        if self.summed:
            yield ""

    def _main(self, prepared: Iterable[str], results: Iterable[str]) -> Iterator[str]:
        yield f"@compute @workgroup_size({WORKGROUP})"
        yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
        yield "        @builtin(num_workgroups) groups: vec3<u32>,"
        yield "        @builtin(local_invocation_index) local: u32) {"
        yield from prepared
        if self.has_rows:
            yield from self._loops()
            yield from self._tiles()
        if not self.results:
            yield "}"
            return
        values = ", and what no row changes" * (len(self.summed) < len(self.results))
        yield f"  if (group.x == 0u && local == 0u) {{  // factors of the sums{values}"
        yield from results
        yield "  }"
        yield "}"

    def _loops(self) -> Iterator[str]:
        """The invocation's rows."""
        yield "  // every stride-th load of the table"
        yield f"  let stride = groups.x * {WORKGROUP}u;"
        count = "params.count"
        loads = count if self.rows == 1 else f"({count} + {self.rows - 1}u) / {self.rows}u"
        yield f"  let loads = {loads};"
        start = f"group.x * {WORKGROUP}u + local"
        if not self.two_levels:
            yield f"  for (var at = {start}; at < loads; at += stride) {{"
            yield from self._add("    ")
            yield "  }"
            return
        step = f"{BLOCK // self.rows}u * stride"
        yield f"  for (var first = {start}; first < loads; first += {step}) {{"
        loop = [
            f"    let end = min(first + {step}, loads);",
            "    for (var at = first; at < end; at += stride) {",
            *self._add("      "),
            "    }",
        ]
        yield from self._unless_whole(loop) if self.flat else loop
        for c in range(len(self.summed)):
            yield f"    total{c} += sum{c}; sum{c} = 0.0f;"
        yield "  }"

    def _unless_whole(self, loop: Iterable[str]) -> Iterator[str]:
        """A block's rows without the loop, where the end does not cut them short."""
        loads = range(BLOCK // self.rows)
        places = [f"first{f' + {k}u * stride' * bool(k)}" for k in loads]
        whole = "loads" if self.rows == 1 else f"params.count / {self.rows}u"
        yield f"    if ({places[-1]} < {whole}) {{  // all loads come before the work"
        if self.rows == 1:
            yield from (f"      add_row({place});" for place in places)
        else:
            yield from (f"      let load{k} = rows[{place}];" for k, place in enumerate(places))
            for k in loads:
                yield from (f"      {self._call(f'load{k}', r)}" for r in range(self.rows))
        yield "    } else {"
        yield from (f"  {line}" for line in loop)
        yield "    }"

    def _add(self, indent: str) -> Iterator[str]:
        """The rows of one load; those past the end are not computed."""
        if self.rows == 1:
            yield f"{indent}add_row(at);"
            return
        yield f"{indent}let loaded = rows[at];"
        for r in range(self.rows):
            call = self._call("loaded", r)
            inside = f"{self.rows}u * at + {r}u < params.count"
            yield f"{indent}if ({inside}) {{ {call} }}" if r else indent + call

    def _call(self, load: str, row: int) -> str:
        """The statement that adds a row of a load."""
        k = self.whole.columns
        parts = (f"{load}.{COMPONENTS[row * k + c]}" for c in range(k))
        return f"add_row({', '.join(parts)});"

    def _tiles(self) -> Iterator[str]:
        """The sums of the workgroup, as many together as its memory takes."""
        kind = "total" if self.two_levels else "sum"
        head, count = len(self.results) * 2 - len(self.summed), len(self.summed)
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


class _Part(Writer):
    """Statements that read what they need first: parameters, four at a time."""

    def __init__(
        self, module: _Module, order: Sequence[int], roots: Sequence[int], names: list[str],
        calls: Mapping[Op, str],
    ) -> None:  # fmt: skip
        graph = module.reduction.graph
        super().__init__(graph, bind(graph, order, roots), calls, module.style)
        self.module, self.order, self.names = module, order, names
        self._quads: set[str] = set()

    def statement(self, i: int) -> Iterator[str]:
        """The lines for one operation."""
        for a in self.graph.args(i):
            yield from self.load(a)
        if line := self.write(i):
            yield line

    def load(self, i: int) -> Iterator[str]:
        """The lines that read an input, where it has not been read."""
        if i not in self.texts and self.graph.nodes[i][0] is INPUT:
            number = self.graph.nodes[i][1]
            yield from self._read(i, number, "quad", "parameters", "{}u", 4)

    def _read(
        self, i: int, number: int, name: str, array: str, place: str, width: int
    ) -> Iterator[str]:
        """The lines that read a number of an array whose elements have this width."""
        which, component = divmod(number, width)
        value = f"{array}[{place.format(which)}]"
        if width > 1:
            quad = f"{name}{which}"
            if quad not in self._quads:
                self._quads.add(quad)
                yield f"  let {quad} = {value};"
            value = f"{quad}.{COMPONENTS[component]}"
        yield f"  {self.declare(i, self.names[self.graph.nodes[i][1]])} = {value};"


class _Once(_Part):
    """What needs no row: what the rows need of it, and the factors."""

    def __init__(self, module: _Module, names: list[str], calls: Mapping[Op, str]) -> None:
        split, graph = module.split, module.reduction.graph
        self.fixed = [i for k, i in module.roots.items() if k not in module.summed]
        shown = {*module.reduction.factors, *self.fixed}
        made = [i for i in split.carried if graph.nodes[i][0].arity]
        super().__init__(module, split.once, [*made, *shown], names, calls)
        inputs = [i for i in split.carried if not graph.nodes[i][0].arity]
        wanted = [*(inputs if len(inputs) <= KEPT else []), *made]
        needed = {a for i in split.each for a in graph.nodes[i][1:]}
        needed.update(module.stored)
        self.kept = [i for i in wanted if i in needed]
        """What is in variables that the rows see."""
        self.private: list[str] = []

    def prepared(self) -> Iterator[str]:
        """The lines before the loop."""
        for i in self.kept:
            yield from self.load(i)
        needed = self._behind(self.kept)
        for i in self.order:
            if i in needed:
                yield from self.statement(i)
        if self.private:
            self.private.insert(0, "// what the rows need of the parameters")
            self.private.append("")

    def _behind(self, roots: Iterable[int]) -> set[int]:
        """The operations that these values are made of."""
        found = set(roots)
        for i in reversed(self.order):
            if i in found:
                found.update(self.graph.nodes[i][1:])
        return found

    def results(self) -> Iterator[str]:
        """The lines that write the factors, and what no row changes."""
        for i in self.order:
            if i not in self.texts:
                yield from (f"  {line}" for line in self.statement(i))
        for place, i in enumerate((*self.module.reduction.factors, *self.fixed)):
            yield from (f"  {line}" for line in self.load(i))
            yield f"    partials[{place}u] = {self.text(i)};"

    def declare(self, i: int, name: str) -> str:
        """The left side of a statement; what the rows need is a variable of the module."""
        left = super().declare(i, name)
        if i not in self.kept:
            return left
        self.private.append(f"var<private> {name}: f32;")
        return name


class _Each(_Part):
    """What is done at every row."""

    def __init__(self, module: _Module, names: list[str], calls: Mapping[Op, str]) -> None:
        roots = [module.roots[k] for k in module.summed]
        super().__init__(module, module.split.each, [*roots, *module.stored], names, calls)
        self._places: dict[int, list[int]] = {}
        for c, i in enumerate(roots):
            self._places.setdefault(i, []).append(c)
        self._unwritten = dict(module.written)
        self._lines: set[int] = set()

    def body(self) -> Iterator[str]:
        """The function that adds a row to the sums."""
        self.texts |= {i: self.module.once.texts[i] for i in self.module.once.kept}
        yield "// adds what a row contributes"
        yield f"fn add_row({self._arguments()}) {{"
        if self.module.whole.lookups:
            yield f"  let padded = {PADDED};"
        missing = set(self.order)
        yield from self._written(missing)
        for i in self.order:
            yield from self.statement(i)
            yield from self._added(i)
            missing.discard(i)
            if i in self.module.stored:
                yield from self._written(missing)
        for i in row_inputs(self.module.reduction):
            if i in self._places:
                yield from self.load(i)
                yield from self._added(i)
        yield "}"
        yield ""

    def _arguments(self) -> str:
        """The columns, if several rows are read at once; else the number of the row."""
        if self.module.rows == 1:
            return "row: u32"
        inputs = row_inputs(self.module.reduction)
        for i in inputs:
            self.declare(i, self.names[self.graph.nodes[i][1]])
        return ", ".join(f"{self.texts[i][0]}: f32" for i in inputs)

    def _added(self, i: int) -> Iterator[str]:
        for c in self._places.get(i, ()):
            yield f"  sum{c} += {self.text(i)};"

    def _written(self, missing: set[int]) -> Iterator[str]:
        """The lines that write the slopes of which nothing is missing any more."""
        for k, quad in list(self._unwritten.items()):
            if missing.isdisjoint(s.node for s in quad):
                del self._unwritten[k]
                for slope in quad:
                    yield from self.load(slope.node)
                values = [*(self.text(s.node) for s in quad), *["0.0f"] * (4 - len(quad))]
                place = f"{column_of(k, 'padded')}row"
                yield f"  slopes[{place}] = vec4<f32>({', '.join(values)});"

    def load(self, i: int) -> Iterator[str]:
        """The lines that read an input: a column, or a parameter if there are many."""
        column = -1
        if self.graph.nodes[i][0] is INPUT:
            column = self.graph.nodes[i][1] - self.module.whole.parameters
        if i in self.texts or column < 0:
            yield from super().load(i)
            return
        if column >= self.module.whole.columns:
            yield from self._look_up(i, column - self.module.whole.columns)
            return
        width = self.module.load
        each = self.module.whole.columns // width
        place = f"row * {each}u + {{}}u" if each > 1 else "row"
        yield from self._read(i, column, "row", "rows", place, width)

    def _look_up(self, i: int, number: int) -> Iterator[str]:
        """The lines that read a number of a table, in the line that the row names."""
        k, column = place_of(self.module.whole, number)
        if k not in self._lines:
            self._lines.add(k)
            yield find_line(self.module.whole, k)
        place = f"line{k} + {column}u" if column else f"line{k}"
        name = self.names[self.graph.nodes[i][1]]
        yield f"  {self.declare(i, name)} = bitcast<f32>(tables[{place}]);"
