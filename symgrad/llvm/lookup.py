"""Lines of tables that a block of rows looks up by index, and results added to such lines."""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.kernel.plan import Reduction
from symgrad.llvm.instruction import Shape
from symgrad.llvm.skeletons import Lines, tiles, transpose

PARAMETERS = "ptr %index, ptr %tables"
"""What a function that looks up takes besides: indices (rows, count), and addresses of tables."""


def load_lookups(write: Lines, reduction: Reduction) -> list[str]:
    """A vector for each column of each lookup; what is added to stands ready for `add_lookups`."""
    lanes, found = write.shape.lanes, list[str]()
    count = max((k.index for k in reduction.lookups), default=-1) + 1
    for number, lookup in enumerate(reduction.lookups):
        offsets = _offsets(write, reduction, number, count)
        table = _address(write, 2 * number)
        for start, new in tiles(lookup.width, lanes):
            rows = [write.load(write.element(table, o), start, False) for o in offsets]
            columns = transpose(write, rows)
            found += columns[new - start : min(lanes, lookup.width - start)]
    return found


def add_lookups(write: Lines, reduction: Reduction, mask: str, values: Sequence[str]) -> None:
    """Add the values of a block to the lines that its rows name, one row after the other.

    Two rows of a block may name the same line. Lines are padded with zeros, so what stands behind
    one is not changed; what is beyond the rows adds zeros.
    """
    shape, lanes = write.shape, write.shape.lanes
    zero, kind = shape.number(0.0), shape.float
    kept = [write.value(f"select <{lanes} x i1> {mask}, {kind} {v}, {kind} {zero}") for v in values]
    wide = Shape("float64", lanes, shape.fused).float
    count = max((k.index for k in reduction.lookups), default=-1) + 1
    taken = 0
    for number, lookup in enumerate(reduction.lookups):
        mine = kept[taken : taken + lookup.width]
        taken += lookup.width
        table = _address(write, 2 * number + 1)
        offsets = _offsets(write, reduction, number, count)
        for start in range(0, lookup.width, lanes):
            part = mine[start : start + lanes]
            rows = transpose(write, part + [zero] * (lanes - len(part)))
            for offset, row in zip(offsets, rows, strict=True):
                at = write.value(f"add i64 {offset}, {start}")
                address = write.value(f"getelementptr double, ptr {table}, i64 {at}")
                more = row if shape.dtype == "float64" else write.value(
                    f"fpext {kind} {row} to {wide}"
                )  # fmt: skip
                old = write.value(f"load {wide}, ptr {address}, align 8")
                new = write.value(f"fadd {wide} {old}, {more}")
                write.do(f"store {wide} {new}, ptr {address}, align 8")


def _offsets(write: Lines, reduction: Reduction, number: int, count: int) -> list[str]:
    """Where in its table the line of each of the block's rows begins, counted in numbers."""
    lookup = reduction.lookups[number]
    first = write.value(f"mul i64 %b, {count}")
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
