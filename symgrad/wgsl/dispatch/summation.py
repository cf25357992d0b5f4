"""Reduction -> WGSL: sums over rows, of which every workgroup writes a partial one.

The host adds the partial sums of the workgroups in float64, after a kernel has added them up where
there are many. Many results are products of few factors where that pays, see `group_products`;
others are cut into tiles, of a module each, that read the same rows. (Subgroup sums would need
another source for each front end and save nothing: with this tree four Gaussians over 16 million
rows take 47 us on an H200, at 70 % of a copy's bandwidth.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from symgrad.expr.graph.node import Op
from symgrad.kernel.row_tile import RESULTS_PER_MODULE, ROWS_PER_BLOCK, Tile, cut, tiles
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.group_products import WIDTH, Products, in_products
from symgrad.kernel.skeletons.sums_in_workgroups import TileSums
from symgrad.kernel.split import MOST_ITERATIONS
from symgrad.mathlib.define import Function
from symgrad.wgsl.printing.names import printable
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

SUM_INVOCATIONS: Final = 256
"""Invocations of a workgroup, unless something else is better."""

LONG_SUM_INVOCATIONS: Final = 64
"""Invocations of a workgroup whose rows have loops."""


@dataclass(frozen=True, eq=False)
class Summation:
    """A module that sums some of the results; entry point "main", workgroups of ``program.width``.

    Bindings: 0 is the uniform block, whose count is that of the rows; then come ``readable`` ones:
    the rows and the parameters, padded to 16 bytes, the indices and tables that rows look up, and
    constants, if any. The next takes the numbers of `Results`. Slopes and scratch memory follow, if
    there are any.
    """

    program: TileSums
    printed: Printed
    itemsize: int
    """The bytes of a number of scratch memory."""

    @property
    def source(self) -> str:
        """The WGSL."""
        (source,) = self.printed.modules
        return source

    @property
    def readable(self) -> int:
        """How many of its bindings are only read."""
        return sum(b.space == "read" for b in self.printed.bound)

    def scratch(self, groups: int) -> int:
        """Bytes of scratch memory that this many workgroups need."""
        return self.itemsize * self.printed.slots * self.program.width * groups


def emit_reduction(
    reduction: Reduction, functions: Mapping[Op, Function], style: Style | None = None
) -> tuple[Summation, ...]:
    """The modules of a reduction; together they sum all results."""
    emit = _Emit(functions, style or Style())
    if reduction.is_structured:
        return tuple(emit.long(tile) for tile in cut(reduction, min(RESULTS_PER_MODULE)))
    plain = tiles(reduction)
    if len(plain) > 1 and (products := in_products(reduction)):
        return tuple(map(emit.products, products))
    return tuple(emit.sums(tile) for tile in plain)


@dataclass(frozen=True)
class _Emit:
    """The maker of modules, of one choice of mathematics."""

    functions: Mapping[Op, Function]
    style: Style

    def sums(self, tile: Tile) -> Summation:
        """The module of a tile whose sums each invocation has for itself."""
        return self._printed(self._tile_sums(tile, SUM_INVOCATIONS, tile.most))

    def long(self, tile: Tile) -> Summation:
        """The module of a tile whose rows have loops.

        An invocation has no more rows than leave its loops below the iterations after which drivers
        end them, if one row does.
        """
        most = tile.most
        summation = self._printed(self._tile_sums(tile, LONG_SUM_INVOCATIONS, most))
        iterations = summation.printed.iterations
        if iterations > MOST_ITERATIONS:
            most = max(1, most * MOST_ITERATIONS // iterations // ROWS_PER_BLOCK * ROWS_PER_BLOCK)
            summation = self._printed(self._tile_sums(tile, LONG_SUM_INVOCATIONS, most))
        return summation

    def products(self, products: Products) -> Summation:
        """The module of a tile whose results are products of factors in workgroup memory."""
        tile = products.tile
        return self._printed(self._tile_sums(tile, WIDTH, tile.most, products))

    def _tile_sums(
        self, tile: Tile, width: int, most: int, products: Products | None = None
    ) -> TileSums:
        """The program of a tile; tables are words where these have the bits of floats."""
        return TileSums(tile, width, most, products, in_words=self.style.dtype == "float32")

    def _printed(self, program: TileSums) -> Summation:
        head = [*_header(program.tile, self.style)]
        printed = print_kernel(program(program.target), self.functions, self.style, head)
        return Summation(program, printed, self.style.floats.dtype.itemsize)


def _header(tile: Tile, style: Style) -> Iterator[str]:
    """The head of the kernel, for its reader."""
    r, k, labels = tile.whole, tile.whole.columns, tile.labels
    nbytes = style.floats.dtype.itemsize * k
    sums = ", ".join(f"{o.name} ({len(o.nodes)})" for o in r.summed)
    yield f"// {printable(style.title or r.name)}"
    yield f"// in: {r.parameters:,} parameters, rows (N, {k}); out: sums over rows of {sums}"
    if r.lookups:
        looked = ", ".join(f"{t.width} by index {t.index}" for t in r.lookups)
        names = ", ".join(o.name for o in r.outputs[len(r.summed) :])
        yield f"// looked up in tables: {looked}; out, for every row: slopes {names}"
    each, once = (f"{len(part):,} operations" for part in (tile.split.each, tile.split.once))
    if r.is_structured:  # how often its loops turn, no count of what stands there tells
        yield f"// {nbytes:,} bytes a row; {style.dtype}, C order; math: {style.math}"
    else:
        yield (
            f"// {each} and {nbytes:,} bytes a row, {once} once; {style.dtype}, C order; "
            f"math: {style.math}"
        )
    if len(tile.cut) < len(labels):
        first, last = labels[tile.cut[0]], labels[tile.cut[-1]]
        yield f"// this kernel sums {first} to {last}; others, from the same rows, the rest"
