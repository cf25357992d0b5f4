"""Reduction -> WGSL: sums over rows, of which every workgroup writes a partial one.

An invocation adds up every stride-th load of the table in private variables; workgroup memory
takes the sums of all invocations and adds them; the host adds the partial sums of the workgroups in
float64. Nothing is atomic: the same rows give the same bits. (Subgroup sums would need another
source for each front end and save nothing: with this tree four Gaussians over 16 million rows take
47 us on an H200, at 70 % of a copy's bandwidth.)

Rounding errors stay those of short sums: there are so many workgroups that an invocation has at
most `reduce_tile.ROWS` rows. Where there are few results it adds them in blocks of `BLOCK`, and
the sums of the blocks after that; where there are many, one by one, and fewer of them. What depends
on the parameters alone is computed before the loop. Many results are products of few factors where
that pays, see `reduce_products`; others are cut into tiles, of a module each, that read the same
rows. What a row adds to lines of tables, its slopes, is written as it is:
see `lookup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from symgrad.expr.graph.node import Op
from symgrad.kernel.plan import Reduction
from symgrad.mathlib.define import Function
from symgrad.wgsl.emit import Style
from symgrad.wgsl.names import printable
from symgrad.wgsl.reduce_module import WORKGROUP, Module, Summation
from symgrad.wgsl.reduce_products import ProductsModule, in_products
from symgrad.wgsl.reduce_stages import Each
from symgrad.wgsl.reduce_tile import BLOCK, TILE, Tile, cut, tiles
from symgrad.wgsl.row_program import row_program
from symgrad.wgsl.vectors import COMPONENTS

SHARED: Final = 16
"""Results whose sums fit in workgroup memory together: 16 of 256 floats are 16,384 bytes."""


def emit_reduction(
    reduction: Reduction, functions: Mapping[Op, Function], style: Style | None = None
) -> tuple[Summation, ...]:
    """The modules of a reduction; together they sum all results."""
    style = style or Style()
    if reduction.is_structured:
        return tuple(row_program(tile, functions, style) for tile in cut(reduction, min(TILE)))
    plain = tiles(reduction)
    if len(plain) > 1 and (products := in_products(reduction)):
        return tuple(ProductsModule(p, functions, style).made() for p in products)
    return tuple(_Sums(tile, functions, style).made() for tile in plain)


class _Sums(Module):
    """The module of a tile whose sums each invocation has for itself."""

    def __init__(self, tile: Tile, functions: Mapping[Op, Function], style: Style) -> None:
        super().__init__(tile, functions, style)
        self.each = Each(self.once, self.calls, style)

    @property
    def used(self) -> set[Op]:
        """The operations at a row."""
        return self.each.used

    @property
    def memory(self) -> str:
        """What is in workgroup memory: as many sums of all invocations as it takes."""
        return f"array<f32, {min(SHARED, len(self.tile.summed)) * WORKGROUP}>"

    def rows(self) -> Iterator[str]:
        """The sums, the function that adds to them, and the one that adds them up."""
        yield from self._sums()
        yield from self.each.body()
        yield from self._add_tile() if self.tile.summed else ()

    def work(self) -> Iterator[str]:
        """The invocation's rows, and then the sums of the workgroup."""
        yield from self._loops()
        yield from self._tiles()

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
