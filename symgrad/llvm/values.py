"""The values of a kernel within a function of LLVM: what they are called, as scalars or vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from symgrad.expr.node import Op
from symgrad.kernel.language import (
    VALUES,
    Read,
    lane_sum,
    narrow,
    wide_add,
    wide_lane_sum,
    wide_mul,
    widen,
)
from symgrad.llvm.arrangement import Arrangement
from symgrad.llvm.definitions import names_of
from symgrad.llvm.instruction import Shape, Writer, constant
from symgrad.llvm.skeletons import Lines
from symgrad.llvm.workspace import LINE
from symgrad.mathlib.define import Function

_SUMS: Final = frozenset({lane_sum, wide_lane_sum, widen, narrow, wide_add, wide_mul})
"""What is written here rather than by the op table."""


class Calls:
    """The library's functions for scalars and for vectors, and how often each is called."""

    def __init__(self, functions: Mapping[Op, Function], *shapes: Shape) -> None:
        self.functions = functions
        self.names = {shape: names_of(functions, shape) for shape in shapes}
        self.used = {shape: Counter[Op]() for shape in shapes}


class Values:
    """What a function writes, and the names of the values that it has so far.

    A value that varies is a vector, a number for each lane, and any other a scalar, which is spread
    to a vector where one is needed. ``mask`` says which lanes go on, where not all do.
    """

    def __init__(self, arrangement: Arrangement, calls: Calls, names: Iterator[str]) -> None:
        self.arrangement, self.kernel = arrangement, arrangement.kernel
        self.graph, self.shape = arrangement.graph, arrangement.shape
        self.lanes = self.shape.lanes
        self.write = Lines(self.shape, names)
        self.names: dict[int, str] = {}
        self.mask: str | None = None
        self.by = 0
        """The node that is being written."""
        self._spread: dict[int, str] = {}
        self._passing: list[tuple[dict[Any, Any], Any]] = []
        self._writers = {s: _Nodes(self, calls, s) for s in (self.shape, arrangement.scalar)}

    # types ---------------------------------------------------------------------------------------

    def type(self, kind: str, wide: bool) -> str:
        """The type of a value of this kind, or of a vector of them."""
        shape = self.shape if wide else self.arrangement.scalar
        return shape.vector("double") if kind == "d" else shape.types[kind]

    def varies(self, i: int) -> bool:
        """Whether a value is a vector."""
        return i in self.arrangement.varying

    def type_of(self, i: int) -> str:
        """The type of a value as it is."""
        return self.type(self.kernel.type(i), self.varies(i))

    def splat(self, kind: str, text: str) -> str:
        """The constant in every lane, with its type."""
        return f"{self.type(kind, True)} {self.shape.splat(self.type(kind, False), text)}"

    # names ---------------------------------------------------------------------------------------

    def operand(self, i: int, wide: bool | None = None) -> str:
        """The name of a value, or a constant: as it is, or ``wide``, a vector."""
        varies = self.varies(i)
        wide = varies if wide is None else wide
        node = self.graph.nodes[i]
        if not node[0].arity and VALUES.get(node[0].result) is not node[0]:
            return constant(node, self.shape if wide else self.arrangement.scalar)
        name = self.names.get(i)
        if name is None:
            name = self.names[i] = self._found(i)
            self._passing.append((self.names, i))
        return self._in_every_lane(i, name) if wide and not varies else name

    def _in_every_lane(self, i: int, name: str) -> str:
        found = self._spread.get(i)
        if found is None:
            found = self._spread[i] = self.spread(self.kernel.type(i), name)
            self._passing.append((self._spread, i))
        return found

    def spread(self, kind: str, name: str) -> str:
        """A scalar in every lane."""
        if self.lanes == 1:
            return name
        one, many = self.type(kind, False), self.type(kind, True)
        first = self.write.value(f"insertelement {many} poison, {one} {name}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.write.value(f"shufflevector {many} {first}, {many} poison, {zeros}")

    @contextmanager
    def inside(self) -> Generator[None]:
        """A context whose values, if they are lazy or spread, are not known behind it."""
        mark = len(self._passing)
        yield
        for names, i in self._passing[mark:]:
            names.pop(i, None)
        del self._passing[mark:]

    def _found(self, i: int) -> str:
        """A value that has no name yet."""
        if i in self.arrangement.special:
            return self._special(i)
        if i in self.arrangement.slots and i not in self.arrangement.lazy:
            return self._fetched(i)
        assert i in self.arrangement.lazy, f"value {i} was never computed"
        if isinstance(self.graph.nodes[i][0], Read):
            return self.read(i)
        self._writers[self._shape(i)].write(i)
        return self.names[i]

    def _special(self, i: int) -> str:
        """What an invocation is."""
        k, words = self.kernel, self.type("u", True)
        if self.lanes == 1:
            return "1" if i in (k.count, k.groups) else "0"
        numbers = f"<{', '.join(f'i32 {n}' for n in range(self.lanes))}>"
        if i == k.local:
            return numbers
        if i == k.cell:
            return self.write.value(f"add {words} {self.spread('u', '%cell')}, {numbers}")
        if i == k.group:
            return self.write.value(f"udiv i32 %cell, {self.lanes}")
        return "%count" if i == k.count else "%groups"

    def read(self, i: int) -> str:
        """The number, or the numbers, that a node reads."""
        raise NotImplementedError

    # between functions ---------------------------------------------------------------------------

    def handed(self, i: int) -> None:
        """Leave a value, which is known from here on, to other functions that need it."""
        if self.arrangement.copies:
            self.copy(i)
        slot = self.arrangement.slots.get(i)
        if slot is not None:
            self.leave(slot, self.type_of(i), self.operand(i))

    def copy(self, i: int) -> None:
        """Write the copies of a number, one for each use."""
        for at in self.arrangement.copied.get(i, ()):
            place = self.write.element("%copies", at)
            self.write.do(f"store {self.type('f', False)} {self.operand(i)}, ptr {place}")

    def copied(self, at: int) -> str:
        """A number of which there is a copy, in every lane."""
        place = self.write.element("%copies", at)
        return self.spread("f", self.write.value(f"load {self.type('f', False)}, ptr {place}"))

    def leave(self, slot: int, kind: str, name: str) -> None:
        """Store a value of this type to a slot of the frame."""
        self.write.do(f"store {kind} {name}, ptr {self._slot(slot)}, align {self._aligned(kind)}")

    def fetch(self, slot: int, kind: str) -> str:
        """The value of this type in a slot of the frame."""
        return self.write.value(f"load {kind}, ptr {self._slot(slot)}, align {self._aligned(kind)}")

    def _fetched(self, i: int) -> str:
        return self.fetch(self.arrangement.slots[i], self.type_of(i))

    def _slot(self, slot: int) -> str:
        return self.write.value(f"getelementptr i8, ptr %frame, i64 {slot * self.arrangement.slot}")

    def _aligned(self, kind: str) -> int:
        return 1 if "i1" in kind.split() or "i1>" in kind else min(LINE, self.arrangement.slot)

    # nodes ---------------------------------------------------------------------------------------

    def _shape(self, i: int) -> Shape:
        return self.shape if self.varies(i) else self.arrangement.scalar

    def compute(self, i: int) -> None:
        """Write the instructions of a node."""
        if i in self.arrangement.lazy or i in self.arrangement.products:
            return
        node = self.graph.nodes[i]
        if node[0] in _SUMS:
            self.names[i] = self._sums(node[0], node[1:], self.varies(i))
        else:
            self.by = i
            self._writers[self._shape(i)].write(i)
        self.handed(i)

    def _sums(self, op: Op, args: Any, wide: bool) -> str:
        """What sums are made of."""
        if op in (lane_sum, wide_lane_sum):
            return self._lane_sum(op.result, self.operand(args[0], True))
        values = [self.operand(a, wide) for a in args]
        float_, double = self.type("f", wide), self.type("d", wide)
        if op in (wide_add, wide_mul):
            how = "fadd" if op is wide_add else "fmul"
            return self.write.value(f"{how} {double} {values[0]}, {values[1]}")
        if float_ == double:
            return values[0]
        if op is widen:
            return self.write.value(f"fpext {float_} {values[0]} to {double}")
        return self.write.value(f"fptrunc {double} {values[0]} to {float_}")

    def _lane_sum(self, kind: str, value: str) -> str:
        if self.lanes == 1:
            return value
        one, many = self.type(kind, False), self.type(kind, True)
        suffix = f"v{self.lanes}{'f32' if one == 'float' else 'f64'}"
        return self.write.value(
            f"call {one} @llvm.vector.reduce.fadd.{suffix}({one} -0.0, {many} {value})"
        )


class _Nodes(Writer):
    """Writes nodes as scalars, or as vectors, among the lines of a function."""

    def __init__(self, values: Values, calls: Calls, shape: Shape) -> None:
        a = values.arrangement
        super().__init__(a.graph, shape, calls.names[shape], values.names, a.products)
        self._values, self._wide, self._used = values, shape is values.shape, calls.used[shape]
        self._copies = a.copies

    def value(self, text: str, name: str) -> str:
        return self._values.write.value(text)

    def operand(self, i: int) -> str:
        at = self._copies.get((self._values.by, i)) if self._copies else None
        if at is not None:
            return self._values.copied(at)
        return self._values.operand(i, self._wide and self.shape.lanes > 1)

    def _call(self, i: int, function: str, node: Any) -> str:
        self._used[node[0]] += 1
        return super()._call(i, function, node)
