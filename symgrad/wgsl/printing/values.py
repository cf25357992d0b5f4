"""What the values of a kernel are called in WGSL, and where those stand that have no name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.kernel.language import KernelIR
from symgrad.kernel.schedule import Column
from symgrad.kernel.statements import (
    Buffer,
    Load,
    ReadRow,
    Routine,
)
from symgrad.kernel.uses import Uses
from symgrad.kernel.vectors import Vector, in_row
from symgrad.wgsl.printing.emit import Style, Writer
from symgrad.wgsl.printing.expression import PRIMARY, PRODUCT, SUM, TYPES, Text, wrapped
from symgrad.wgsl.printing.names import identifier, is_reserved
from symgrad.wgsl.printing.own import Own
from symgrad.wgsl.printing.stores import Stores, place
from symgrad.wgsl.printing.vectors import COMPONENTS, Together, Vectors

OURS: Final = frozenset(
    {"main", "params", "scratch", "cell", "stride", "group", "groups", "group_number", "local"}
)
"""What every kernel may define."""

STAGED: Final = OURS | {"first", "rows", "tile", "tile_quad"}
"""What one may define whose results go through a group's memory."""


class Values(Writer):
    """The values of a kernel: their names, the numbers of rows, and what stands in memory."""

    def __init__(
        self,
        kernel: KernelIR,
        own: Own,
        calls: Mapping[Op, str],
        style: Style,
        staged: bool = True,
        uses: Uses | None = None,
    ) -> None:
        self.uses = uses or Uses(kernel)
        self.private: list[str] = []
        """The lines that declare variables of the whole module."""
        self.functions: list[str] = []
        """The lines of functions that the statements call."""
        self.shared: Set[int] = self.uses.captured
        """What functions need besides what they are told: these are variables of them all."""
        self._called: dict[Routine, str] = {}
        """What routines are called."""
        super().__init__(kernel.graph, self.uses.bound, calls, style)
        self.kernel, self.own = kernel, own
        self.vectors = Vectors(kernel, self.uses)
        self._unread = len(self.uses.columns)
        """How many numbers of rows are yet to be read."""
        self.stores = self._stores(staged)
        self._taken = {*STAGED, *own.names.values(), *self.stores.saved}
        self._names: dict[int, str] = {}
        """What values are called that nobody else has named."""
        self._numbered = 0
        self.quads: dict[tuple[Buffer, int], str] = {}
        """What fours of numbers of rows are called, by their buffers and places."""
        self._vectors: dict[int, str] = {}
        """What the vectors of numbers that are read together are called."""
        names = {kernel.cell: "cell", kernel.count: "params.count", kernel.local: "local"}
        names |= {kernel.group: "group_number" if kernel.target.grid else "group.x"}
        names |= {kernel.groups: "groups.x"}
        names |= {i: f"params.{name}" for i, name in kernel.arguments.items()}
        names |= {i: f"arrayLength(&{own.names[b]})" for b, i in kernel.lengths.items()}
        self.texts |= {i: (name, PRIMARY) for i, name in names.items()}
        self.texts |= {i: (f"{kernel.graph.nodes[i][1]}u", PRIMARY) for i in self.uses.numbers}

    # names ---------------------------------------------------------------------------------------

    def declare(self, i: int, name: str = "") -> str:
        """The left side of the statement that gives a value its name."""
        left = super().declare(i, self.named(i))
        if i not in self.shared:
            return left
        variable = self.texts[i][0]
        self.private.append(f"var<private> {variable}: {TYPES[self.graph.type(i)]};")
        return variable

    def named(self, i: int, default: str = "") -> str:
        """A new name for a value: the user's if there is one."""
        preferred = self.kernel.names.get(i) or self._names.get(i, "")
        wanted = preferred.strip("_") or default
        if not wanted:
            self._numbered += 1
            return f"t{self._numbered}"
        return self._free(identifier(wanted, is_reserved))

    def _free(self, wanted: str) -> str:
        """A name that nothing around has."""
        name, k = wanted, 2
        while name in self._taken:
            name, k = f"{wanted}_{k}", k + 1
        self._taken.add(name)
        return name

    @cached_property
    def _lone(self) -> Set[int]:
        """The nodes that are written each for itself."""
        lone = self.uses.lone
        if not self.vectors.indices:
            return lone
        return lone - self.vectors.indices - self.vectors.first.keys()

    @property
    def scratch(self) -> str:
        """The type of what scratch memory consists of, or "" if there is none."""
        return self.own.element if self.own.slots else ""

    def write(self, i: int, expression: Text | None = None) -> str:
        """A line as everywhere; but what a function or a choice gives is opaque over a barrier.

        llvmpipe makes parts of it anew behind the barrier, and takes others for them.
        """
        op = self.graph.nodes[i][0]
        if (op in self.calls or op is ops.where) and i in self.uses.over_barriers:
            text, _ = expression or self.expression(i)
            expression = ops.opaque.wgsl.format(text), PRIMARY
        return super().write(i, expression)

    # rows of points ------------------------------------------------------------------------------

    def _stores(self, staged: bool) -> Stores:
        """What the kernel ends with storing."""
        stored = {s.buffer: s.values for s in self.uses.stored}
        shared = any(b.space == "group" for b in self.kernel.buffers)
        return Stores(
            [self.own.names[b] for b in stored],
            [len(ids) for ids in stored.values()],
            self.columns(stored.values()),
            self.text,
            self.kernel.target.width,
            self.style.columns_out,
            staged and not shared,
        )

    def columns(self, rows: Iterable[Sequence[int]]) -> Sequence[Column]:
        """The columns of some rows that are stored."""
        return [Column(n, c, i) for n, ids in enumerate(rows) for c, i in enumerate(ids)]

    @cached_property
    def in_quads(self) -> set[Buffer]:
        """The buffers of rows that consist of vectors of four numbers."""
        buffers = {self.uses.stored[n].buffer for n in self.stores.quads}
        if not self.style.columns_in:
            buffers |= {s.buffer for s in self.uses.read if s.width % 4 == 0}
        return buffers

    def _in_row(self, i: int) -> str:
        """Where a number of a row stands."""
        s, column = self.uses.columns[i]
        if s.buffer in self.in_quads:
            return f"{self._quad_of_row(s, column // 4)}.{COMPONENTS[column % 4]}"
        at = place(column, s.width, self.text(s.row), self.style.columns_in)
        return f"{self.own.names[s.buffer]}[{at}]"

    def _quad_of_row(self, s: ReadRow, number: int) -> str:
        """Four numbers of a row that stand side by side: where, or how they are called."""
        at = place(number, s.width // 4, self.text(s.row))
        return self.quads.get((s.buffer, number), f"{self.own.names[s.buffer]}[{at}]")

    def _read(self, ids: Iterable[int]) -> Iterator[str]:
        """The lines that read those of some numbers that are yet to be read."""
        for i in ids:
            if i in self.uses.columns and i not in self.texts:
                self._unread -= 1
                yield from self._read_quad(*self.uses.columns[i])
                text = self._in_row(i)
                yield f"{self.indent}{self.declare(i)} = {text};"

    def _read_quad(self, s: ReadRow, column: int) -> Iterator[str]:
        """The line that reads four numbers of a row, if nobody has read them yet."""
        if s.buffer in self.in_quads and (s.buffer, column // 4) not in self.quads:
            name = self._free(f"{self.own.names[s.buffer]}_quad")
            yield f"{self.indent}let {name} = {self._quad_of_row(s, column // 4)};"
            self.quads[s.buffer, column // 4] = name

    def text(self, i: int) -> str:
        """The value of a node that has been written, of a constant, or of a number of a row."""
        unread = i in self.uses.columns and i not in self.texts
        return self._in_row(i) if unread else super().text(i)

    # memory --------------------------------------------------------------------------------------

    def _index(self, buffer: Buffer, i: int) -> tuple[Text, str]:
        """An index of a buffer, and the component of what stands there."""
        if buffer.vector == 1:
            return self._vector_index(buffer, Vector(i, 0)), ""
        vector, component = self.vectors.of(buffer, i)
        return self._vector_index(buffer, vector), f".{component}"

    def _word(self, i: int) -> Text:
        text = self.text(i)
        return self.texts.get(i, (text, PRIMARY))

    def _vector_index(self, buffer: Buffer, vector: Vector) -> Text:
        number, node = vector.number, vector.node
        if buffer.row:
            return self._in_rows(buffer.row, vector), PRIMARY
        return (f"{number}u", PRIMARY) if node is None else self._word(node)

    def _in_rows(self, row: int, vector: Vector) -> str:
        """The two indices of a vector in an array of rows.

        What WGSL checks of an index, it does once for all rows where they are known numbers.
        """
        if vector.node is None:
            return f"{vector.number // row}u][{vector.number % row}u"
        location = in_row(self.graph, vector.node, row)
        if location is None:
            text = wrapped(self._word(vector.node), PRODUCT)
            return f"{text} / {row}u][{text} % {row}u"
        which = f"{location.number}u" if location.row is None else self.text(location.row)
        column = self._word(location.node)
        more = f" + {location.first}u" if location.first else ""
        return f"{which}][{wrapped(column, SUM) if more else column[0]}{more}"

    def _loaded(self, s: Load) -> str:
        return self.own.loaded(s.buffer, *self._index(s.buffer, s.index), agreed=s.agreed)

    def _component(self, i: int, access: tuple[Buffer, int | None]) -> Iterator[str]:
        """One of the numbers that are read as a vector, with the vector itself for the first."""
        (buffer, index), first = access, self.vectors.first[i]
        assert index is not None, "all of a buffer is no vector"
        vector, component = self.vectors.of(buffer, index)
        if first == i:
            kind = "pair" if buffer.vector == 2 else "quad"
            self._vectors[i] = self._free(f"{self.own.names[buffer]}_{kind}")
            text = self.own.place(buffer, self._vector_index(buffer, vector))
            yield self.line(f"let {self._vectors[i]} = {text};", i)
        number = f"{self._vectors[first]}.{component}"
        if self.uses.is_named(i) or i in self.shared:
            yield self.line(f"{self.declare(i)} = {number};", i)
        else:
            self.texts[i] = number, PRIMARY

    def _vector(self, s: Together) -> str:
        """Numbers as a vector: the one that was read, if they are all of one."""
        whole, values = self._vectors.get(s.values[0]), [self.text(v) for v in s.values]
        components = COMPONENTS[: s.buffer.vector]
        if whole and values == [f"{whole}.{c}" for c in components]:
            return whole
        listed = "" if set(values) == {"0.0f"} else ", ".join(values)
        return f"vec{s.buffer.vector}<{TYPES[s.buffer.kind]}>({listed})"
