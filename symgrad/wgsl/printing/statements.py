"""The statements of a kernel as WGSL, and what is called how in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from heapq import heappop, heappush
from itertools import zip_longest
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.kernel.accesses import accesses
from symgrad.kernel.language import Kernel
from symgrad.kernel.schedule import Column
from symgrad.kernel.statements import (
    Barrier,
    Buffer,
    Call,
    Fill,
    For,
    If,
    Load,
    Read,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
)
from symgrad.kernel.uses import Uses
from symgrad.kernel.vectors import Vector, in_row
from symgrad.wgsl.printing.emit import Style, Writer
from symgrad.wgsl.printing.expression import PRIMARY, PRODUCT, SUM, TYPES, Text, wrapped
from symgrad.wgsl.printing.names import identifier, is_reserved
from symgrad.wgsl.printing.own import Own
from symgrad.wgsl.printing.stores import Stores, place
from symgrad.wgsl.printing.vectors import COMPONENTS, Together, Vectors

_KEPT: Final = re.compile(r"(\w+)_kept(_\d+)?$")
"""The names of arrays of what a carry was in each turn."""


OURS: Final = frozenset(
    {
        "main",
        "params",
        "scratch",
        "cell",
        "stride",
        "group",
        "groups",
        "group_number",
        "local",
    }
)
"""What every kernel may define."""


STAGED: Final = OURS | {"first", "rows", "tile", "tile_quad"}
"""What one may define whose results go through a group's memory."""


class Body(Writer):
    """The statements of a kernel."""

    def __init__(
        self,
        kernel: Kernel,
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
        self._taken = {*STAGED, *own.names.values(), *self.stores.held}
        self._names: dict[int, str] = {}
        """What values are called that nobody else has named."""
        self._numbered = 0
        self.quads: dict[tuple[Buffer, int], str] = {}
        """What fours of numbers of rows are called, by their buffers and places."""
        self._vectors: dict[int, str] = {}
        """What the vectors of numbers that are read together are called."""
        here = {kernel.cell: "cell", kernel.count: "params.count", kernel.local: "local"}
        here |= {kernel.group: "group_number" if kernel.target.grid else "group.x"}
        here |= {kernel.groups: "groups.x"}
        here |= {i: f"params.{name}" for i, name in kernel.arguments.items()}
        here |= {i: f"arrayLength(&{own.names[b]})" for b, i in kernel.lengths.items()}
        self.texts |= {i: (name, PRIMARY) for i, name in here.items()}
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
        given = self.kernel.names.get(i) or self._names.get(i, "")
        wanted = given.strip("_") or default
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
        found = self.uses.lone
        if not self.vectors.indices:
            return found
        return found - self.vectors.indices - self.vectors.first.keys()

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
            made, _ = expression or self.expression(i)
            expression = ops.opaque.wgsl.format(made), PRIMARY
        return super().write(i, expression)

    # rows of points ------------------------------------------------------------------------------

    def _stores(self, staged: bool) -> Stores:
        """What the kernel ends with storing."""
        found = {s.buffer: s.values for s in self.uses.stored}
        shared = any(b.space == "group" for b in self.kernel.buffers)
        return Stores(
            [self.own.names[b] for b in found],
            [len(ids) for ids in found.values()],
            self.columns(found.values()),
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
        found = {self.uses.stored[n].buffer for n in self.stores.quads}
        if not self.style.columns_in:
            found |= {s.buffer for s in self.uses.read if s.width % 4 == 0}
        return found

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

    # statements ----------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The statements of the kernel; ``stores`` are the last."""
        items = self.kernel.main.items
        yield from self.items(items)
        yield from self.stores.lines()

    def items(self, items: Sequence[int | Statement]) -> Iterator[str]:
        """The lines of some items, which stand one behind the other."""
        lone = self._lone
        joined = [*self.vectors.joined(items)] if self.vectors.indices else items
        for item, following in zip_longest(joined, joined[1:]):
            if isinstance(item, int):
                if item not in lone:
                    yield from self._node(item)
                    continue
                if self._unread:
                    yield from self._read(self.graph.nodes[item][1:])
                if line := self.write(item):
                    yield line
            elif isinstance(item, Together):
                yield from self._store_vector(item)
            elif isinstance(item, Load) and self._is_moved(item, following):
                self.texts[item.result] = self._loaded(item), PRIMARY
            else:
                yield from self.item(item)

    def within(self, lines: Iterator[str]) -> Iterator[str]:
        """Lines that stand within braces; what is named there has no name outside."""
        taken = set(self._taken)
        self.indent += "  "
        yield from lines
        self.indent = self.indent[2:]
        self._taken = taken

    def item(self, item: Statement) -> Iterator[str]:
        """The lines of one statement."""
        match item:
            case Load(result=result):
                if result in self.uses.counts:
                    yield from self._load(item)
            case Store():
                yield self._store(item)
            case Fill(buffer=buffer):
                yield self.indent + self.own.filled(buffer)
            case Barrier():
                yield f"{self.indent}workgroupBarrier();"
            case Routine():
                self._routine(item)
            case Call(routine=routine, args=args):
                yield f"{self.indent}{self._called[routine]}({', '.join(map(self.text, args))});"
            case If():
                yield from self._read(self.uses.columns)
                yield from self._if(item)
            case For():
                yield from self._read(self.uses.columns)
                yield from self._for(item)

    def _node(self, i: int) -> Iterator[str]:
        """A node that has no line of its own, or shares one."""
        if i in self.uses.indices or i in self.vectors.indices:
            self.texts[i] = self.expression(i)
        elif i in self.vectors.first:
            yield from self._component(i, *accesses(self.kernel, i))
        elif i in self.uses.counts:
            op, index = self.graph.nodes[i]
            assert isinstance(op, Read), "all others are written each for itself"
            text = self.own.loaded(op.buffer, *self._index(op.buffer, index))
            if line := self.write(i, (text, PRIMARY)):
                yield line

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
        found = in_row(self.graph, vector.node, row)
        if found is None:
            text = wrapped(self._word(vector.node), PRODUCT)
            return f"{text} / {row}u][{text} % {row}u"
        which = f"{found.number}u" if found.row is None else self.text(found.row)
        column = self._word(found.node)
        more = f" + {found.first}u" if found.first else ""
        return f"{which}][{wrapped(column, SUM) if more else column[0]}{more}"

    def _load(self, s: Load) -> Iterator[str]:
        """What a loop has kept of a carry is called as the carry."""
        if s.result in self.vectors.first:
            yield from self._component(s.result, (s.buffer, s.index))
            return
        text = self._loaded(s)
        if kept := _KEPT.match(s.buffer.name):
            self._names.setdefault(s.result, kept[1])
        yield self.line(f"{self.declare(s.result)} = {text};", s.result)

    def _loaded(self, s: Load) -> str:
        return self.own.loaded(s.buffer, *self._index(s.buffer, s.index), agreed=s.agreed)

    def _is_moved(self, s: Load, following: object) -> bool:
        """Whether what stands behind a load stores the number, which nobody else needs."""
        if not isinstance(following, Store) or s.agreed or s.result in self.vectors.first:
            return False
        return following.value == s.result and self.uses.counts[s.result] == 1

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

    def _store(self, s: Store) -> str:
        value, index = self.text(s.value), self._index(s.buffer, s.index)
        place = self.own.place(s.buffer, *index)
        if s.buffer.atomic:
            return self.assigned(f"atomicAdd(&{place}, {value});", s.value)
        if s.add and self.own.stored(s.buffer, "") == "":
            return self.assigned(f"{place} += {value};", s.value)
        if s.add:
            value = f"{self.own.loaded(s.buffer, *index)} + {value}"
        return self.assigned(f"{place} = {self.own.stored(s.buffer, value)};", s.value)

    def _store_vector(self, s: Together) -> Iterator[str]:
        place = self.own.place(s.buffer, self._vector_index(s.buffer, s.vector))
        yield f"{self.indent}{place} = {self._vector(s)};"

    def _vector(self, s: Together) -> str:
        """Numbers as a vector: the one that was read, if they are all of one."""
        whole, values = self._vectors.get(s.values[0]), [self.text(v) for v in s.values]
        components = COMPONENTS[: s.buffer.vector]
        if whole and values == [f"{whole}.{c}" for c in components]:
            return whole
        listed = "" if set(values) == {"0.0f"} else ", ".join(values)
        return f"vec{s.buffer.vector}<{TYPES[s.buffer.kind]}>({listed})"

    def _routine(self, s: Routine) -> None:
        """Write a routine as a function, which has what it needs of the kernel in variables."""
        taken, called = set(self._taken), self._free(identifier(s.name, is_reserved))
        self._called[s], self._last = called, None
        parameters = [(self.named(p), p) for p in s.params]
        self.texts |= {p: (name, PRIMARY) for name, p in parameters}
        typed = ", ".join(f"{name}: {TYPES[self.graph.type(p)]}" for name, p in parameters)
        self.functions += [f"fn {called}({typed}) {{", *self.items(s.scope.items), "}", ""]
        self._taken = {*taken, called}

    # branches ------------------------------------------------------------------------------------

    def assigned(self, text: str, i: int) -> str:
        """A line that gives a value to something: the user's is behind what computes it."""
        computed = self.graph.args(i) and i not in self.bound
        return self.line(text, i) if computed else self.indent + text

    def _if(self, s: If) -> Iterator[str]:
        variables = [self.named(r) for r in s.results]
        for r, name in zip(s.results, variables, strict=True):
            yield f"{self.indent}var {name}: {TYPES[self.graph.type(r)]};"
        yield self.line(f"if ({self.text(s.condition)}) {{", s.condition)
        yield from self.within(self._side(s.sides[0], variables, s.yields[0]))
        if s.sides[1].items or s.results:
            yield f"{self.indent}}} else {{"
            yield from self.within(self._side(s.sides[1], variables, s.yields[1]))
        yield f"{self.indent}}}"
        self.texts |= {r: (name, PRIMARY) for r, name in zip(s.results, variables, strict=True)}

    def _side(self, scope: Scope, variables: Sequence[str], ends: Sequence[int]) -> Iterator[str]:
        yield from self.items(scope.items)
        for name, end in zip(variables, ends, strict=True):
            yield self.assigned(f"{name} = {self.text(end)};", end)

    # loops ---------------------------------------------------------------------------------------

    def _for(self, s: For) -> Iterator[str]:
        inits = [self.text(i) for i in s.inits]
        for p, r, init in zip(s.params, s.results, inits, strict=True):
            name = self.named(p, "c")
            self.texts[p] = self.texts[r] = name, PRIMARY
            yield self.line(f"var {name} = {init};", p)
        outside = s.count in self.uses.counts
        taken = set(self._taken)
        k = self.named(s.k, "k")
        self.texts[s.k] = self.texts[s.count] = k, PRIMARY
        lo, hi = self.text(s.lo), self.text(s.hi)
        start = f"var {k} = {hi if s.down else lo};"
        end = f"{k} > {lo};" if s.down else f"{k} < {hi}; {k} += 1u"
        if outside:
            yield self.indent + start
            start = ";"
        yield self.line(f"for ({start} {end}) {{", s.k)
        yield from self.within(self._turn(s, k))
        yield f"{self.indent}}}"
        if not outside:
            self._taken = taken
        elif s.down:
            turns = f"{hi} - {k}"
            self.texts[s.count] = turns if lo == "0u" else f"{lo} + ({turns})", SUM

    def _turn(self, s: For, k: str) -> Iterator[str]:
        if s.down:
            yield f"{self.indent}{k} -= 1u;"
        yield from self.items(s.scope.items[: s.test_at])
        yield from self._break(s)
        yield from self.items(s.scope.items[s.test_at :])
        yield from self._next(s)

    def _break(self, s: For) -> Iterator[str]:
        if s.test is not None:
            yield self.line(f"if (!({self.text(s.test)})) {{ break; }}", s.test)

    def _next(self, s: For) -> Iterator[str]:
        """The carries of the next turn, each set when no other is made of what it was any more."""
        ends = {p: y for p, y in zip(s.params, s.yields, strict=True) if p != y}
        asked = {p: self._carries_in(y, ends) - {p} for p, y in ends.items()}
        waits = Counter(a for others in asked.values() for a in others)
        texts, places = {p: self.text(y) for p, y in ends.items()}, list(ends)
        free = [n for n, p in enumerate(places) if not waits[p]]
        number, waiting = {p: n for n, p in enumerate(places)}, iter(places)
        while texts:
            if free:
                p = places[heappop(free)]
                yield self.assigned(f"{self.texts[p][0]} = {texts.pop(p)};", ends[p])
            else:
                p = next(q for q in waiting if q in asked)
                init, texts[p] = texts[p], self._free(f"next_{self.texts[p][0]}")
                yield self.assigned(f"let {texts[p]} = {init};", ends[p])
            for a in asked.pop(p, ()):
                waits[a] -= 1
                if not waits[a]:
                    heappush(free, number[a])

    def _carries_in(self, i: int, carries: Collection[int]) -> set[int]:
        """The carries in the text of a value."""
        found, stack = set[int](), [i]
        while stack:
            i = stack.pop()
            if i in carries:
                found.add(i)
            elif i not in self.bound:
                stack += self.graph.args(i)
        return found
