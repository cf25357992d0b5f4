"""Lines of tables that a block of rows looks up by index, and results added to such lines."""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.kernel.plan import Reduction
from symgrad.llvm.instruction import Shape
from symgrad.llvm.skeletons import Lines, tiles, transpose

PARAMETERS = "ptr %index, ptr %tables"
"""What a function that looks up takes besides: indices (rows, count), and addresses of tables."""


def load_lookups(write: Lines, reduction: Reduction, b: str = "%b") -> list[str]:
    """A vector for each column of each lookup, of the block of rows from ``b`` on."""
    lanes, found = write.shape.lanes, list[str]()
    count = max((k.index for k in reduction.lookups), default=-1) + 1
    for number, lookup in enumerate(reduction.lookups):
        offsets = _offsets(write, reduction, number, count, b)
        table = _address(write, 2 * number)
        for start, new in tiles(lookup.width, lanes):
            rows = [write.load(write.element(table, o), start, False) for o in offsets]
            columns = transpose(write, rows)
            found += columns[new - start : min(lanes, lookup.width - start)]
    return found


def add_lookups(
    write: Lines, reduction: Reduction, mask: str, values: Sequence[str], b: str = "%b"
) -> None:
    """Add the values of a block to the lines that its rows name, one row after the other.

    Two rows of a block may name the same line. The numbers of a line are added in vectors that may
    reach beyond it: they add zeros there, as rows do that are beyond the end.
    """
    shape, lanes = write.shape, write.shape.lanes
    zero, kind = shape.number(0.0), shape.float
    kept = [write.value(f"select <{lanes} x i1> {mask}, {kind} {v}, {kind} {zero}") for v in values]
    count = max((k.index for k in reduction.lookups), default=-1) + 1
    taken = 0
    for number, lookup in enumerate(reduction.lookups):
        mine = kept[taken : taken + lookup.width]
        taken += lookup.width
        nodes = reduction.outputs[len(reduction.summed) + number].nodes
        if all(reduction.graph.value(i) == 0.0 for i in nodes):
            continue
        table = _address(write, 2 * number + 1)
        offsets = _offsets(write, reduction, number, count, b)
        for start in range(0, lookup.width, lanes):
            part = mine[start : start + lanes]
            sizes = _sizes(len(part), shape)
            part += [zero] * (sum(sizes) - len(part))
            rows = transpose(write, part + ["poison"] * (lanes - len(part)))
            for offset, row in zip(offsets, rows, strict=True):
                _add_row(write, table, write.value(f"add i64 {offset}, {start}"), row, sizes)


def _sizes(width: int, shape: Shape) -> list[int]:
    """The vectors of float64 that hold so many numbers, the last one no wider than it has to be."""
    most = shape.lanes * shape.itemsize // 8
    whole, rest = divmod(width, most)
    return [most] * whole + ([1 << (rest - 1).bit_length()] if rest else [])


def _add_row(write: Lines, table: str, at: str, row: str, sizes: Sequence[int]) -> None:
    """Add the numbers of a vector to those of a table, in pieces."""
    kind, taken = write.shape.float, 0
    for size in sizes:
        wide, lanes = f"<{size} x double>", range(taken, taken + size)
        mask = ", ".join(f"i32 {k}" for k in lanes)
        part = write.value(f"shufflevector {kind} {row}, {kind} poison, <{size} x i32> <{mask}>")
        cast = "bitcast" if write.shape.dtype == "float64" else "fpext"
        more = write.value(f"{cast} <{size} x {write.scalar}> {part} to {wide}")
        here = write.value(f"add i64 {at}, {taken}")
        address = write.value(f"getelementptr double, ptr {table}, i64 {here}")
        old = write.value(f"load {wide}, ptr {address}, align 8")
        new = write.value(f"fadd {wide} {old}, {more}")
        write.do(f"store {wide} {new}, ptr {address}, align 8")
        taken += size


def _offsets(write: Lines, reduction: Reduction, number: int, count: int, b: str) -> list[str]:
    """Where in its table the line of each of the block's rows begins, counted in numbers."""
    lookup = reduction.lookups[number]
    first = write.value(f"mul i64 {b}, {count}")
    found: list[str] = []
    for r in range(write.shape.lanes):
        at = write.value(f"add i64 {first}, {r * count + lookup.index}")
        address = write.value(f"getelementptr i32, ptr %index, i64 {at}")
        index = write.value(f"load i32, ptr {address}, align 4")
        wide = write.value(f"sext i32 {index} to i64")
        found.append(write.value(f"mul i64 {wide}, {lookup.width}"))
    return found


def _address(write: Lines, k: int) -> str:
    return write.value(f"load ptr, ptr {write.value(f'getelementptr ptr, ptr %tables, i64 {k}')}")
