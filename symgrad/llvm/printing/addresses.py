"""Where the numbers of a buffer are: one for all lanes, lanes side by side, or anywhere."""

from __future__ import annotations

from symgrad.expr.graph.node import WORD
from symgrad.kernel.statements import Buffer, Scope
from symgrad.llvm.printing.analysis import LINEAR
from symgrad.llvm.printing.source import CACHE_LINE_BYTES
from symgrad.llvm.printing.values import Values


class Addresses:
    """The addresses of numbers of buffers.

    A buffer of an invocation's own is an array of vectors, which hold the same number of each lane.
    """

    def __init__(self, values: Values) -> None:
        self._values, self._write, self._kernel = values, values.write, values.kernel
        self._arrangement, self._records = values.arrangement, values.arrangement.records
        self._step = values.analysis.indices.step
        self._numbers: dict[int, str] = {}
        """The words of the first lane that are known numbers."""

    def of(self, buffer: Buffer) -> str:
        """The address of a buffer."""
        return f"{'%' if buffer.data is None else '@'}{self._arrangement.names[buffer]}"

    # words ---------------------------------------------------------------------------------------

    def first(self, i: int) -> str:
        """A word of the first lane, or of all, where the step to the next is known."""
        if i in self._numbers:
            return self._numbers[i]
        kernel, write = self._kernel, self._write
        if i in kernel.columns and self._step(i):
            row, column = kernel.columns[i]
            return write.folded("add", self.first(row), str(column))
        op, *args = kernel.graph.nodes[i]
        if i in (kernel.cell, kernel.local):
            return "0" if self._values.lanes == 1 or i == kernel.local else "%cell"
        if op is WORD or not self._step(i):
            word = self._values.operand(i, False)
        else:
            word = write.folded(op.llvm.split()[0], *map(self.first, args))
        if word.isdigit():
            self._numbers[i] = word
        return word

    def at_start(self, i: int, scope: Scope) -> str:
        """The first lane's word where a scope begins, of which nothing is computed yet."""
        kernel = self._kernel
        op, *args = kernel.graph.nodes[i]
        if op in LINEAR and kernel.home[i] is scope and not self._values.is_written(i):
            words = (self.at_start(a, scope) for a in args)
            return self._write.folded(op.llvm.split()[0], *words)
        return self.first(i)

    # addresses -----------------------------------------------------------------------------------

    def element(self, base: str, unit: str, index: str) -> str:
        """The address of an element of an array of some type, by a word."""
        if index == "0":
            return base
        if not index.isdigit():
            index = self._write.value(f"zext i32 {index} to i64")
        return self._write.value(f"getelementptr {unit}, ptr {base}, i64 {index}")

    def column(self, base: str, column: int) -> str:
        """The address of a column of a record of floats, or of vectors of them."""
        size = self._values.shape.itemsize * self._values.lanes
        return self._write.value(f"getelementptr i8, ptr {base}, i64 {size * column}")

    def one(self, buffer: Buffer, index: int) -> str:
        """The address of the first lane's number, or of that of all."""
        base, unit = self.of(buffer), self._values.type(buffer.kind, False)
        if index in self._kernel.columns and not self._values.varies(index):
            index, column = self._kernel.columns[index]
            base = self.element(base, unit, str(column))
        return self.element(base, unit, self.first(index))

    def side_by_side(self, buffer: Buffer, index: int) -> str:
        """The address of the first lane's number, where those of the others follow.

        Of lanes that are masked a word may be below 0, where it is the largest ones: so it is
        counted back from the lane behind the last, whose word is then small.
        """
        values, write = self._values, self._write
        if not values.mask or values.graph.nodes[index][0] not in LINEAR:
            return self.one(buffer, index)
        behind = write.value(f"add i32 {self.first(index)}, {values.lanes}")
        wide = write.value(f"zext i32 {behind} to i64")
        at = write.value(f"sub i64 {wide}, {values.lanes}")
        unit = values.type(buffer.kind, False)
        return write.value(f"getelementptr {unit}, ptr {self.of(buffer)}, i64 {at}")

    def anywhere(self, buffer: Buffer, index: int) -> str:
        """The addresses of the lanes' numbers."""
        values, write = self._values, self._write
        words, many = values.type("u", True), f"<{values.lanes} x i64>"
        at = write.value(f"zext {words} {values.operand(index, True)} to {many}")
        if buffer.space == "own":
            numbers = ", ".join(f"i64 {n}" for n in range(values.lanes))
            at = write.value(f"mul {many} {at}, splat (i64 {values.lanes})")
            at = write.value(f"add {many} {at}, <{numbers}>")
        unit = values.type(buffer.kind, False)
        return write.value(f"getelementptr {unit}, ptr {self.of(buffer)}, {many} {at}")

    # vectors -------------------------------------------------------------------------------------

    def is_vector(self, buffer: Buffer, index: int) -> bool:
        """Whether the lanes' numbers are one vector: of an array of their own, or of columns."""
        own = buffer.space == "own" and not self._values.varies(index)
        return own or buffer in self._records.resident

    def vector(self, buffer: Buffer, index: int) -> str:
        """The address of such a vector."""
        kernel, write = self._kernel, self._write
        if records := self._records.resident.get(buffer):
            memory, place = self._arrangement.transposed[records], self._records.column(index)
            return self.element(memory, self._values.type(buffer.kind, True), str(place))
        unit = self._values.type(buffer.kind, True)
        first, column = kernel.columns.get(index, (0, 0))
        if column and not kernel.graph.nodes[first][0].constant:
            row = self.element(self.of(buffer), unit, self.first(first))
            return write.value(f"getelementptr {unit}, ptr {row}, i64 {column}")
        return self.element(self.of(buffer), unit, self.first(index))

    def alignment(self, buffer: Buffer) -> int:
        """How such a vector is aligned."""
        size = self._arrangement.size(buffer.kind)
        return min(CACHE_LINE_BYTES, size * self._values.lanes)
