"""Reduction -> WGSL: sums over rows, of which every workgroup writes a partial one.

The host adds the partial sums of the workgroups in float64, after a kernel has added them up where
there are many. Many results are products of few factors where that pays, see `group_products`;
others are cut into tiles, of a module each, that read the same rows. (Subgroup sums would need
another source for each front end and save nothing: with this tree four Gaussians over 16 million
rows take 47 us on an H200, at 70 % of a copy's bandwidth.)

A row's kernel reads the numbers of the entries of tables that the row names by index, and writes
what it adds to them, its slopes, to an array of its own: column by column, so that neighbours write
side by side. Rows in the order of their entries are cut into runs, and a second kernel adds up each
run, in a fixed order and without atomics. Long entries have several runs, whose sums are added by
the same kernel again, or by the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.kernel.language import KernelIR
from symgrad.kernel.row_tile import RESULTS_PER_MODULE, ROWS_PER_BLOCK, Tile, cut, tiles
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.fold import fold_program
from symgrad.kernel.skeletons.group_products import Products, group_products, in_products
from symgrad.kernel.skeletons.group_rows import group_rows
from symgrad.kernel.skeletons.lookup import QUADS_TOGETHER, Place, runs_program
from symgrad.kernel.split import MOST_ITERATIONS
from symgrad.kernel.target import WorkgroupTarget
from symgrad.mathlib.define import Function
from symgrad.wgsl.printing.names import printable
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

SUM_INVOCATIONS: Final = 256
"""Invocations of a workgroup, unless something else is better."""

LONG_SUM_INVOCATIONS: Final = 64
"""Invocations of a workgroup whose rows have loops."""

FOLD_INVOCATIONS: Final = 256
"""Invocations that add up the partial sums of one result: a workgroup."""

RUN: Final = 32
"""Rows of a run, at most."""

RUNS_PER_WORKGROUP: Final = 64
"""Runs that a workgroup adds up, and its invocations."""

READ: Final = 3
"""Bindings that the kernel of runs only reads."""


@dataclass(frozen=True)
class Summation:
    """A module that sums some of the results; entry point "main", workgroups of ``width``.

    Bindings: 0 is the uniform block, whose count is that of the rows; then come ``readable`` ones:
    the rows and the parameters, padded to 16 bytes, the indices and tables that rows look up, and
    constants, if any. The next takes ``head`` numbers, the factors of the results and then the
    values of those that no row changes, and after them, for each of the others, the partial sums of
    all workgroups. Slopes and scratch memory follow, if there are any.
    """

    source: str
    results: range
    """The numbers of its results."""
    summed: tuple[int, ...]
    """The sums that depend on the rows."""
    most: int
    """Rows that an invocation may add up."""
    width: int
    """Invocations of a workgroup."""
    readable: int
    """How many of its bindings are only read."""
    cells: tuple[int, ...] = ()
    """For each sum its number among those that are written, if these are others as well."""
    slopes: range = range(0)
    """The numbers of the quads of slopes that it writes for every row."""
    slots: int = 0
    """Numbers of each invocation in scratch memory, the last binding."""
    iterations: int = 0
    """The most iterations of an invocation in the loops of rows."""
    long: bool = False
    """Whether rows turn in loops."""
    tables: tuple[tuple[float, ...], ...] = ()
    """The constants of the last of the bindings that are only read."""

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
    """What makes modules, of one choice of mathematics."""

    functions: Mapping[Op, Function]
    style: Style

    def sums(self, tile: Tile) -> Summation:
        """The module of a tile whose sums each invocation has for itself."""
        kernel = group_rows(tile, SUM_INVOCATIONS, tile.most)
        return self._made(tile, kernel, self._printed(tile, kernel), tile.most)

    def long(self, tile: Tile) -> Summation:
        """The module of a tile whose rows have loops.

        An invocation has no more rows than leave its loops below the iterations after which drivers
        end them, if one row does.
        """
        most = tile.most
        kernel = group_rows(tile, LONG_SUM_INVOCATIONS, most)
        printed = self._printed(tile, kernel)
        if printed.iterations > MOST_ITERATIONS:
            most = max(
                1, most * MOST_ITERATIONS // printed.iterations // ROWS_PER_BLOCK * ROWS_PER_BLOCK
            )
            kernel = group_rows(tile, LONG_SUM_INVOCATIONS, most)
            printed = self._printed(tile, kernel)
        return self._made(tile, kernel, printed, most)

    def products(self, products: Products) -> Summation:
        """The module of a tile whose results are products of factors in workgroup memory."""
        tile, kernel = products.tile, group_products(products)
        return self._made(tile, kernel, self._printed(tile, kernel), tile.most, products.cells)

    def _printed(self, tile: Tile, kernel: KernelIR) -> Printed:
        return print_kernel(kernel, self.functions, self.style, [*_header(tile, self.style)])

    def _made(
        self, tile: Tile, kernel: KernelIR, printed: Printed, most: int, cells: tuple[int, ...] = ()
    ) -> Summation:
        (source,) = printed.modules
        readable = sum(b.space == "read" for b in kernel.buffers)
        return Summation(
            source,
            tile.results,
            tuple(tile.summed),
            most,
            kernel.target.width,
            readable,
            cells,
            tile.slopes,
            printed.slots,
            printed.iterations,
            tile.whole.is_structured,
            printed.tables,
        )


def _header(tile: Tile, style: Style) -> Iterator[str]:
    """What the kernel computes, for its reader."""
    r, k, labels = tile.whole, tile.whole.columns, tile.labels
    sums = ", ".join(f"{o.name} ({len(o.nodes)})" for o in r.summed)
    yield f"// {printable(style.title or r.name)}"
    yield f"// in: {r.parameters:,} parameters, rows (N, {k}); out: sums over rows of {sums}"
    if r.lookups:
        looked = ", ".join(f"{t.width} by index {t.index}" for t in r.lookups)
        names = ", ".join(o.name for o in r.outputs[len(r.summed) :])
        yield f"// looked up in tables: {looked}; out, for every row: slopes {names}"
    each, once = (f"{len(part):,} operations" for part in (tile.split.each, tile.split.once))
    if r.is_structured:  # how often its loops turn, no count of what stands there tells
        yield f"// {4 * k:,} bytes a row; float32, C order; math: {style.math}"
    else:
        yield (
            f"// {each} and {4 * k:,} bytes a row, {once} once; float32, C order; "
            f"math: {style.math}"
        )
    if len(tile.cut) < len(labels):
        first, last = labels[tile.cut[0]], labels[tile.cut[-1]]
        yield f"// this kernel sums {first} to {last}; others, from the same rows, the rest"


@cache
def fold_module() -> str:
    """The module that adds up the partial sums of results, a workgroup each: see `fold_program`."""
    head = "// adds up the partial sums of each result: to a sum, and the rounding errors it lacks"
    kernel = fold_program(WorkgroupTarget(FOLD_INVOCATIONS))
    (module,) = print_kernel(kernel, {}, Style(), [head]).modules
    return module


def tiles_of(count: int) -> list[range]:
    """The quads that are added up side by side, in tiles of about one size."""
    number = -(-count // QUADS_TOGETHER)
    return [range(count * k // number, count * (k + 1) // number) for k in range(number)]


@cache
def runs_module(columns: int, place: Place | None = None) -> str:
    """The module that adds up runs of so many columns of quads: see `runs_program`."""
    kernel = runs_program(columns, place, WorkgroupTarget(RUNS_PER_WORKGROUP, grid=True))
    head = f"// adds up {columns} columns of quads over runs of rows that name the same entry"
    (module,) = print_kernel(kernel, {}, Style(), [head]).modules
    return module
