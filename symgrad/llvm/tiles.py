"""Results that are sums of products of few values: what is kept of rows for them, and their sums.

To add to a result in memory costs more than to compute it: a load and a store for each vector. But
many results are products of few factors, as the gradient of a layer of a network is of its inputs
and of the slopes of its outputs. So blocks of rows leave nothing but the factors behind, and from
time to time some results at once, a tile, stay in registers while all these blocks are added up.
"""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.expr import ops
from symgrad.kernel.products import NO_FACTOR, Products, tiles
from symgrad.llvm.instruction import single
from symgrad.llvm.skeletons import Lines, add_wide


def write_tiles(write: Lines, products: Products, stride: int, count: str, registers: int) -> None:
    """Add to ``%wide`` the sums over the ``count`` blocks whose factors are from ``%kept`` on.

    What a block has kept takes ``stride`` bytes.
    """
    for number, tile in enumerate(tiles(products.terms, registers)):
        _Tile(write, products, f"tile{number}", tile).write(stride, count)


class _Tile:
    """A loop over blocks that adds to some results."""

    def __init__(self, write: Lines, products: Products, name: str, results: Sequence[int]) -> None:
        self.lines, self.shape, self.name, self.results = write, write.shape, name, results
        self.terms = {k: products.terms[k] for k in results}
        self.column = {i: k for k, i in enumerate(products.kept)}

    def write(self, stride: int, count: str) -> None:
        """Write the loop."""
        write, name, kind = self.lines, self.name, self.shape.float
        write.do(f"br label %{name}.before")
        write.label(f"{name}.before")
        write.do(f"br label %{name}")
        write.label(name)
        write.do(f"%{name}.k = phi i64 [ 0, %{name}.before ], [ %{name}.next, %{name} ]")
        for k in self.results:
            write.do(f"%{name}.s{k} = phi {kind} [ {self.shape.number(0.0)}, %{name}.before ], "
                     f"[ %{name}.s{k}.next, %{name} ]")  # fmt: skip
        self._block(stride)
        write.do(f"%{name}.next = add i64 %{name}.k, 1")
        write.do(f"%{name}.more = icmp slt i64 %{name}.next, {count}")
        write.do(f"br i1 %{name}.more, label %{name}, label %{name}.end")
        write.label(f"{name}.end")
        for k in self.results:
            add_wide(write, f"%{name}.s{k}.next", k * self.shape.lanes)

    def _block(self, stride: int) -> None:
        """Add what a block has kept."""
        write, name = self.lines, self.name
        at = write.value(f"mul i64 %{name}.k, {stride}")
        base = write.value(f"getelementptr i8, ptr %kept, i64 {at}")
        wanted = dict.fromkeys(i for t in self.terms.values() for pair in t for i in pair)
        lanes = self.shape.lanes
        values = {
            i: write.load(base, self.column[i] * lanes, True) for i in wanted if i != NO_FACTOR
        }
        for k, terms in self.terms.items():
            total = f"%{name}.s{k}"
            for number, (a, b) in enumerate(terms):
                new = f"%{name}.s{k}.next" if number == len(terms) - 1 else write.fresh()
                self._add(new, total, values[a], values.get(b))
                total = new

    def _add(self, new: str, total: str, a: str, b: str | None) -> None:
        """Name a sum with a product, in one instruction if the shape fuses."""
        write, kind = self.lines, self.shape.float
        if b is None:
            write.do(f"{new} = fadd {kind} {total}, {a}")
        elif self.shape.fused:
            write.do(f"{new} = {single(ops.fma, self.shape).format(a, b, total)}")
        else:
            product = write.value(f"fmul {kind} {a}, {b}")
            write.do(f"{new} = fadd {kind} {total}, {product}")
