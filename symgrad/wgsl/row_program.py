"""Sums over rows with loops or branches -> WGSL, by the program of the kernel language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from symgrad.expr.graph.node import Op
from symgrad.kernel.programs.rows import rows_program
from symgrad.kernel.split import TURNS
from symgrad.kernel.summing import Summing
from symgrad.kernel.target import InGroups
from symgrad.mathlib.define import Function
from symgrad.wgsl.emit import Style
from symgrad.wgsl.printer import Printed, print_kernel
from symgrad.wgsl.reduce_module import Summation, header
from symgrad.wgsl.reduce_tile import BLOCK, ROWS, Tile

WIDTH: Final = 64
"""Invocations of a workgroup: rows with loops take so long that few of them keep a GPU busy."""


def row_program(tile: Tile, functions: Mapping[Op, Function], style: Style) -> Summation:
    """The module that sums the results of a tile, each row of which may turn in loops.

    An invocation has no more rows than leave its loops below the turns after which drivers end
    them, if one row does.
    """
    rows = max(ROWS)
    made = _printed(tile, functions, style, rows)
    if made.turns > TURNS:
        rows = max(1, rows * TURNS // made.turns // BLOCK * BLOCK)
        made = _printed(tile, functions, style, rows)
    results = tuple(tile.results)
    return Summation(
        made.modules[0], tile.results, results, rows, WIDTH,
        readable=2, slots=made.slots, turns=made.turns,
    )  # fmt: skip


def _printed(tile: Tile, functions: Mapping[Op, Function], style: Style, rows: int) -> Printed:
    target = InGroups(WIDTH, block=min(BLOCK, rows), summing=Summing(rows=rows))
    kernel = rows_program(tile.reduction, target)
    return print_kernel(kernel, functions, style, [*header(tile, style)][:-1])
