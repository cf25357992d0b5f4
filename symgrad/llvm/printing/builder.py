"""The instructions of a function: lines, fresh names, blocks of instructions, and loops of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Final

from symgrad.llvm.printing.operations import NAMES, Shape
from symgrad.llvm.printing.source import CACHE_LINE_BYTES

SHUFFLES: Final = 8
"""Of a block of instructions, at most: LLVM's selection of instructions tries to combine each with
those before it in the block, which takes a third to a half of its time at the lowest level of
optimisation. At the others it joins the blocks first, and the code has the same bytes."""


class Builder:
    """Lines of LLVM, fresh names for values, and the block of instructions that is being written.

    What is loaded, stored and shuffled are vectors of the shape.
    """

    def __init__(self, shape: Shape, names: Iterator[str] | None = None) -> None:
        self.shape = shape
        self.scalar = NAMES[shape.dtype]
        self._one, self._whole = shape.itemsize, min(CACHE_LINE_BYTES, shape.itemsize * shape.lanes)
        self.lines: list[str] = []
        self._block = ["entry"]
        self._names = names or (f"%v{k}" for k in count(1))
        self._labels, self._shuffles = count(), count(1)

    def of(self, shape: Shape) -> Builder:
        """These lines, names and blocks, for vectors of another shape."""
        reshaped = Builder(shape, self._names)
        reshaped.lines, reshaped._block = self.lines, self._block
        reshaped._labels, reshaped._shuffles = self._labels, self._shuffles
        return reshaped

    @property
    def block(self) -> str:
        """The name of the block that is being written."""
        return self._block[0]

    @block.setter
    def block(self, name: str) -> None:
        self._block[0] = name

    # instructions --------------------------------------------------------------------------------

    def value(self, text: str) -> str:
        """The name of a new value."""
        name = next(self._names)
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {text}")

    def folded(self, operation: str, a: str, b: str) -> str:
        """A sum, a difference or a product of scalar words; of constants, the constant."""
        if a.isdigit() and b.isdigit():
            x, y = int(a), int(b)
            return str({"add": x + y, "sub": x - y, "mul": x * y}[operation] % 2**32)
        if operation == "add" and "0" in (a, b):
            return b if a == "0" else a
        return self.value(f"{operation} i32 {a}, {b}")

    def element(self, base: str, index: int | str) -> str:
        """The address of a number of an array."""
        if index in (0, "0"):
            return base
        return self.value(f"getelementptr {self.scalar}, ptr {base}, i64 {index}")

    def load(self, base: str, index: int | str, aligned: bool) -> str:
        """The vector of numbers at an index of an array, and behind it."""
        address, align = self.element(base, index), self._align(aligned)
        return self.value(f"load {self.shape.float}, ptr {address}, align {align}")

    def store(self, value: str, base: str, index: int | str, aligned: bool, hint: str = "") -> None:
        """Store a vector of numbers at an index of an array, and behind it."""
        address = self.element(base, index)
        self.do(
            f"store {self.shape.float} {value}, ptr {address}, align {self._align(aligned)}{hint}"
        )

    def _align(self, aligned: bool) -> int:
        return self._whole if aligned else self._one

    def shuffle(self, a: str, b: str, mask: Sequence[int], together: bool = False) -> str:
        """Lanes of two vectors; -1 for any. Every few of them begin a block, if not together."""
        kind = self.shape.float
        if b == "poison" and list(mask) == list(range(len(mask))):
            return a
        vector = self.value(f"shufflevector {kind} {a}, {kind} {b}, {_lanes(tuple(mask))}")
        if not together and next(self._shuffles) % SHUFFLES == 0:
            label = self.label("shuffles")
            self.do(f"br label %{label}")
            self.begin(label)
        return vector

    # blocks --------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """A name for blocks that no other has."""
        return f"{name}{next(self._labels)}"

    def begin(self, label: str) -> None:
        """Begin a block of instructions."""
        self.lines.append(f"{label}:")
        self.block = label

    def phis(
        self, kinds: Sequence[str], incoming: Sequence[tuple[str, Sequence[str]]]
    ) -> list[str]:
        """The values of whichever of some blocks this one is reached from."""
        if len(incoming) == 1:
            return list(incoming[0][1])
        names: list[str] = []
        for k, kind in enumerate(kinds):
            ways = ", ".join(f"[ {values[k]}, %{block} ]" for block, values in incoming)
            names.append(self.value(f"phi {kind} {ways}"))
        return names

    def over(self, name: str, count: str, body: Callable[[str], None]) -> None:
        """A loop of what the body writes, for each number from 0 to ``count``."""
        self.do(f"br label %{name}.before")
        self.begin(f"{name}.before")
        self.do(f"br label %{name}")
        self.begin(name)
        self.do(f"%{name}.k = phi i64 [ 0, %{name}.before ], [ %{name}.next, %{name}.last ]")
        body(f"%{name}.k")
        self.do(f"br label %{name}.last")
        self.begin(f"{name}.last")
        self.do(f"%{name}.next = add i64 %{name}.k, 1")
        self.do(f"%{name}.more = icmp slt i64 %{name}.next, {count}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.end")
        self.begin(f"{name}.end")


@lru_cache(2**10)
def _lanes(mask: tuple[int, ...]) -> str:
    """Which lanes a shuffle takes; -1 for any."""
    numbers = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in mask)
    return f"<{len(mask)} x i32> <{numbers}>"


class OpenLoop:
    """A loop that is being written, of iterations from one number to another.

    Its head is a block of phis: of ``iteration``, and of ``carried`` values of some ``kinds``.
    """

    def __init__(
        self,
        write: Builder,
        kinds: Sequence[str],
        start: str,
        stop: str,
        inits: Sequence[str],
        some: bool = False,
    ) -> None:
        self._write, self._kinds = write, ["i32", *kinds]
        self._stop, self._inits, self._before = stop, [start, *inits], write.block
        self._name = write.label("loop")
        self._exits: list[tuple[str, Sequence[str]]] = []
        self._head(start, some)
        write.begin(self._name)
        self._at = len(write.lines)
        self.iteration = f"%{self._name}.turn"
        self.carried = [f"%{self._name}.c{k}" for k in range(len(inits))]

    def _head(self, start: str, some: bool) -> None:
        """Go to the first iteration, if there is one."""
        write, name, stop = self._write, self._name, self._stop
        if some or (start.isdigit() and stop.isdigit() and int(start) < int(stop)):
            write.do(f"br label %{name}")
            return
        below = write.value(f"icmp ult i32 {start}, {stop}")
        write.do(f"br i1 {below}, label %{name}, label %{name}.end")
        self._exits.append((self._before, self._inits))

    def leave(self, condition: str, values: Sequence[str]) -> None:
        """Go on where a condition holds; else leave the loop, which carries these values then."""
        write, go = self._write, self._write.label(f"{self._name}.go")
        write.do(f"br i1 {condition}, label %{go}, label %{self._name}.end")
        self._exits.append((write.block, [self.iteration, *values]))
        write.begin(go)

    def closed(self, following: Sequence[str]) -> tuple[str, list[str]]:
        """Write the end; the iteration at which the loop ended, and what it then carried."""
        write, name, last = self._write, self._name, self._write.block
        write.do(f"%{name}.next = add i32 {self.iteration}, 1")
        more = write.value(f"icmp ult i32 %{name}.next, {self._stop}")
        write.do(f"br i1 {more}, label %{name}, label %{name}.end")
        ends = [f"%{name}.next", *following]
        self._exits.append((last, ends))
        names = [self.iteration, *self.carried]
        write.lines[self._at : self._at] = [
            f"  {p} = phi {kind} [ {a}, %{self._before} ], [ {b}, %{last} ]"
            for p, kind, a, b in zip(names, self._kinds, self._inits, ends, strict=True)
        ]
        write.begin(f"{name}.end")
        reached, *values = write.phis(self._kinds, self._exits)
        return reached, values
