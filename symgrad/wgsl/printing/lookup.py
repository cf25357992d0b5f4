"""Lookups -> WGSL: entries of tables that rows name by index, and slopes added to such entries.

A row's kernel reads the numbers of its entries, and writes what it adds to them, its slopes, to an
array of its own: column by column, so that neighbours write side by side. Rows in the order of
their entries are cut into runs, and a second kernel adds up each run, in a fixed order and without
atomics. Long entries have several runs, whose sums are added by the same kernel again, or by the
host.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from symgrad.kernel.skeletons.lookup import QUADS_TOGETHER, Place, runs_program
from symgrad.kernel.target import WorkgroupTarget
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

RUN: Final = 32
"""Rows of a run, at most."""

RUNS_PER_WORKGROUP: Final = 64
"""Runs that a workgroup adds up, and its invocations."""

READ: Final = 3
"""Bindings that the kernel of runs only reads."""


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
