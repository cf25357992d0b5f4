"""The slopes of rows that look up entries of tables: what each row adds to these, in quads."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.kernel.shapes import Reduction


@dataclass(frozen=True)
class TableGradient:
    """What every row adds to a column of the table that a lookup reads: the value of ``node``."""

    lookup: int
    column: int
    node: int


Quad = tuple[TableGradient, ...]
"""Up to four slopes, which are written and read together."""


def quads(reduction: Reduction) -> list[Quad]:
    """The slopes of a row, in fours of one index; what is 0 at every row is left out."""
    outputs = reduction.outputs[len(reduction.summed) :]
    by_index: list[list[TableGradient]] = [[] for _ in range(indices_of(reduction))]
    for k, (output, lookup) in enumerate(zip(outputs, reduction.lookups, strict=True)):
        for column, node in enumerate(output.nodes):
            if reduction.graph.value(node) != 0.0:
                by_index[lookup.index].append(TableGradient(k, column, node))
    return [tuple(mine[k : k + 4]) for mine in by_index for k in range(0, len(mine), 4)]


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
