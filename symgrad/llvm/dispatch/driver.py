"""Lists of instructions (kernels, loops around them, copies), and the function that runs them.

A list is words of 64 bits. An instruction is its number, its length in bytes, and what follows. The
function goes from one to the next; what it does not know, such as work of NumPy, it leaves to its
caller, by ending with the place of that instruction, from where it can go on.

A loop has a table of pointers that change from iteration to iteration, as those to carries and to
rows of arrays: (where the pointer is, base, stride, phase, mask), which becomes base + stride *
((k + phase) & mask) in iteration k, and once more at the end. So a mask of 1 is two halves of
memory in turns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from symgrad.llvm.printing.source import ENTRY as PACKED
from symgrad.llvm.printing.source import Source, module

END, CALL, BEGIN, REPEAT, COPY, SHARED, HOST = range(7)
"""Instructions; the caller does those from `SHARED` on.

`CALL`: function, workspace, invocations, what the kernel takes. `BEGIN`: a loop, with its count,
k, the counter's place, first value and step, whether it is tested, by how many words, which ones,
its table, the length of that, and its end. `REPEAT`: the end of a loop, with the place of its
beginning and the cost of an iteration. `COPY`: to, from, bytes; how often, and the steps of both.
"""

PRODUCT: Final = (
    "fn", "way.x", "way.y", "one", "x", "step.x", "y", "step.y", "z", "step.z",
    "rows", "wide", "deep", "all.rows", "all.wide", "all.deep", "lines",
    "y.row", "y.deep", "x.wide", "x.deep", "z.row", "z.wide", "x.each", "y.each", "z.each",
)  # fmt: skip
"""The words that the function of products takes, which is called as kernels are: BLAS's function
for matrices by columns, its arguments, z = x y; how many ``rows`` (columns of y and z), and how
much of the other sides, it gets at a time, of how many; so many ``lines`` are counted for each
product; and bytes from one row, column, term and product to the next."""

ENTRY: Final = "void (*)(void *, void *, int64_t, int64_t)"
"""The type in C of a kernel that is called by what it takes, a workspace, and invocations."""

TABLE, EXIT = 9, 11
"""Words of `BEGIN` that are known later: the place of the table and its length, and the end."""

_LOADED: Final = {
    "op": 0, "size": 1, "fn": 2, "workspace": 3, "cells": 4,
    "count": 2, "counter": 4, "first": 5, "step": 6, "tests": 7, "tested": 8, "table": TABLE,
    "entries": 10, "exit": EXIT, "start": 2, "weight": 3, "to": 2, "from": 3, "bytes": 4,
    "times": 5, "to.step": 6, "from.step": 7,
}  # fmt: skip
"""Words of instructions, by their names."""

_POINTERS: Final = {"fn", "workspace", "counter", "tested", "to", "from", "x", "y", "z"}


def _loads(prefix: str, *names: str, of: str = "%at", words: Mapping[str, int] = _LOADED) -> str:
    """The instructions after which ``%NAME`` are words, and ``%NAME.at`` where they stand."""
    lines = list[str]()
    for name in names:
        kind, value = "ptr" if name in _POINTERS else "i64", f"%{prefix}{name}"
        lines.append(f"  {value}.at = getelementptr i64, ptr {of}, i64 {words[name]}")
        lines.append(f"  {value} = load {kind}, ptr {value}.at")
    return "\n".join(lines)


def _least(name: str, done: str, all_: str, piece: str) -> str:
    """The instructions that store a piece, or the rest where that is less, for BLAS."""
    return f"""  %{name}.left = sub i64 %{all_}, %{done}
  %{name}.short = icmp slt i64 %{name}.left, %{piece}
  %{name} = select i1 %{name}.short, i64 %{name}.left, i64 %{piece}
  store i64 %{name}, ptr %{name}.at"""


def _moved(name: str, place: str, count: str, step: str) -> str:
    """The instructions that find a place so many steps further."""
    return f"""  %{name}.by = mul i64 %{count}, %{step}
  %{name} = getelementptr i8, ptr %{place}, i64 %{name}.by"""


TEXT: Final = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i64 @run(ptr %code, i64 %begin, i64 %budget) #0 {{
entry:
  br label %next
next:
  %pc = phi i64 [ %begin, %entry ], [ %after, %call ], [ %after, %copied ],
    [ %into, %enter ], [ %l.exit, %leave ]
  %left = phi i64 [ %budget, %entry ], [ %left, %call ], [ %left, %copied ],
    [ %remaining, %enter ], [ %remaining, %leave ]
  %at = getelementptr i8, ptr %code, i64 %pc
{_loads("", "op", "size")}
  %after = add i64 %pc, %size
  switch i64 %op, label %done [
    i64 {CALL}, label %call i64 {BEGIN}, label %loop i64 {REPEAT}, label %repeat
    i64 {COPY}, label %copy ]
done:
  ret i64 %pc
call:
{_loads("", "fn", "workspace", "cells")}
  %given = getelementptr i64, ptr %at, i64 5
  call void %fn(ptr %given, ptr %workspace, i64 0, i64 %cells)
  br label %next
copy:
{_loads("c.", "to", "from", "bytes", "times", "to.step", "from.step")}
  br label %copying
copying:
  %n = phi i64 [ 0, %copy ], [ %n.next, %copying ]
  %to.offset = mul i64 %n, %c.to.step
  %from.offset = mul i64 %n, %c.from.step
  %to = getelementptr i8, ptr %c.to, i64 %to.offset
  %from = getelementptr i8, ptr %c.from, i64 %from.offset
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %c.bytes, i1 false)
  %n.next = add i64 %n, 1
  %copy.more = icmp slt i64 %n.next, %c.times
  br i1 %copy.more, label %copying, label %copied
copied:
  br label %next
loop:
  br label %iterate
repeat:
  %spent = icmp sle i64 %left, 0
  br i1 %spent, label %done, label %again
again:
{_loads("r.", "start", "weight")}
  %less = sub i64 %left, %r.weight
  %head = getelementptr i8, ptr %code, i64 %r.start
  %k.at = getelementptr i64, ptr %head, i64 3
  %k.last = load i64, ptr %k.at
  %k.again = add i64 %k.last, 1
  br label %iterate
iterate:
  %k = phi i64 [ 0, %loop ], [ %k.again, %again ]
  %of = phi i64 [ %pc, %loop ], [ %r.start, %again ]
  %remaining = phi i64 [ %left, %loop ], [ %less, %again ]
  %l = getelementptr i8, ptr %code, i64 %of
  %l.k = getelementptr i64, ptr %l, i64 3
  store i64 %k, ptr %l.k
{_loads("l.", "size", "count", "counter", "first", "step", "tests", of="%l")}
{_loads("l.", "table", "entries", "exit", of="%l")}
  %table = getelementptr i8, ptr %code, i64 %l.table
  %any = icmp sgt i64 %l.entries, 0
  br i1 %any, label %move, label %moved
move:
  %e = phi i64 [ 0, %iterate ], [ %e.next, %move ]
  %entry.first = mul i64 %e, 5
  %entry.at = getelementptr i64, ptr %table, i64 %entry.first
  %cell = load i64, ptr %entry.at
  %base.at = getelementptr i64, ptr %entry.at, i64 1
  %base = load i64, ptr %base.at
  %stride.at = getelementptr i64, ptr %entry.at, i64 2
  %stride = load i64, ptr %stride.at
  %phase.at = getelementptr i64, ptr %entry.at, i64 3
  %phase = load i64, ptr %phase.at
  %mask.at = getelementptr i64, ptr %entry.at, i64 4
  %mask = load i64, ptr %mask.at
  %shifted = add i64 %k, %phase
  %masked = and i64 %shifted, %mask
  %offset = mul i64 %masked, %stride
  %pointer = add i64 %base, %offset
  %cell.at = getelementptr i8, ptr %code, i64 %cell
  store i64 %pointer, ptr %cell.at
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %l.entries
  br i1 %e.more, label %move, label %moved
moved:
  %k.step = mul i64 %k, %l.step
  %k.value = add i64 %l.first, %k.step
  %k.short = trunc i64 %k.value to i32
  store i32 %k.short, ptr %l.counter
  %more = icmp slt i64 %k, %l.count
  br i1 %more, label %test, label %leave
test:
{_loads("l.", "tested", of="%l")}
  %asked = icmp sgt i64 %l.tests, 0
  br i1 %asked, label %look, label %enter
look:
  %q = phi i64 [ 0, %test ], [ %q.next, %looked ]
  %truth.at = getelementptr i32, ptr %l.tested, i64 %q
  %truth = load i32, ptr %truth.at
  %true = icmp ne i32 %truth, 0
  br i1 %true, label %enter, label %looked
looked:
  %q.next = add i64 %q, 1
  %q.more = icmp slt i64 %q.next, %l.tests
  br i1 %q.more, label %look, label %leave
enter:
  %into = add i64 %of, %l.size
  br label %next
leave:
  br label %next
}}
define void @{PACKED}(ptr %given, ptr %workspace, i64 %first, i64 %end) #0 {{
entry:
  %n.at = alloca i64
  %m.at = alloca i64
  %k.at = alloca i64
  %beta.at = alloca i64
{_loads("", *PRODUCT, of="%given", words={name: n for n, name in enumerate(PRODUCT)})}
  br label %line
line:
  %at = phi i64 [ %first, %entry ], [ %at.next, %below ]
  %more = icmp slt i64 %at, %end
  br i1 %more, label %above, label %done
above:
  %b = sdiv i64 %at, %lines
  %r = srem i64 %at, %lines
{_least("n", "r", "all.rows", "rows")}
{_moved("y.of", "y", "b", "y.each")}
{_moved("y.first", "y.of", "r", "y.row")}
{_moved("x.first", "x", "b", "x.each")}
{_moved("z.of", "z", "b", "z.each")}
{_moved("z.first", "z.of", "r", "z.row")}
  br label %across
across:
  %c = phi i64 [ 0, %above ], [ %c.next, %beside ]
{_least("m", "c", "all.wide", "wide")}
{_moved("x.c", "x.first", "c", "x.wide")}
{_moved("z.c", "z.first", "c", "z.wide")}
  br label %part
part:
  %q = phi i64 [ 0, %across ], [ %q.next, %part ]
  %beta = phi i64 [ 0, %across ], [ %one, %part ]
{_least("k", "q", "all.deep", "deep")}
  store i64 %beta, ptr %beta.at
{_moved("y.part", "y.first", "q", "y.deep")}
{_moved("x.part", "x.c", "q", "x.deep")}
  call void %fn(ptr %way.x.at, ptr %way.y.at, ptr %m.at, ptr %n.at, ptr %k.at, ptr %one.at,
    ptr %x.part, ptr %step.x.at, ptr %y.part, ptr %step.y.at, ptr %beta.at, ptr %z.c,
    ptr %step.z.at)
  %q.next = add i64 %q, %deep
  %q.more = icmp slt i64 %q.next, %all.deep
  br i1 %q.more, label %part, label %beside
beside:
  %c.next = add i64 %c, %wide
  %c.more = icmp slt i64 %c.next, %all.wide
  br i1 %c.more, label %across, label %below
below:
  %at.next = add i64 %at, %rows
  br label %line
done:
  ret void
}}
"""


def driver() -> Source:
    """The function, which takes a list, the place to begin, and how much it may do in loops.

    Beside it is that of products.
    """
    written = module([TEXT], ["ptr %code", "i64 %begin", "i64 %budget"], 0, 2)
    return replace(written, kind=written.kind.replace("void (*)", "int64_t (*)", 1))


# Lists of instructions as they are written, and the memory that they work in.
#
# They name memory by `Place`; where that is is known once all are written, or when they are run.

WORD: Final = 8
"""Bytes of a word."""

ITERATION: Final = 1000
"""The cost of an iteration besides that of its kernels, in additions."""


@dataclass(eq=False)
class Root:
    """Memory that is known later: ``cells`` are the words with its address, and what is added."""

    cells: list[tuple[int, int]] = field(default_factory=list, kw_only=True)

    @property
    def place(self) -> Place:
        """Its beginning."""
        return Place(self)


@dataclass(eq=False)
class Scratch(Root):
    """Memory of the program's own, in use from instruction ``first`` to ``last``."""

    nbytes: int
    first: int = -1
    last: int = -1


@dataclass(eq=False)
class Fixed(Root):
    """Numbers that are where they are."""

    numbers: np.ndarray


@dataclass(eq=False)
class Argument(Root):
    """An input or output, which each call says."""


@dataclass(frozen=True)
class Place:
    """An address: so many bytes behind the beginning of a root."""

    root: Root
    offset: int = 0

    def behind(self, nbytes: int) -> Place:
        """The place so many bytes further."""
        return Place(self.root, self.offset + nbytes)


@dataclass(eq=False)
class Moving(Root):
    """An address that changes with each iteration of a loop: see `driver`."""

    base: Place
    stride: int
    phase: int = 0
    mask: int = -1


class Assembly:
    """Instructions as they are written."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.scratch: list[Scratch] = []
        self.weight = 0
        """The cost of what has been written, in additions."""
        self._loops: list[tuple[int, Sequence[Moving]]] = []
        self._clock = 0

    def new(self, nbytes: int) -> Place:
        """Memory for the program's own use."""
        self.scratch.append(Scratch(nbytes))
        return self.scratch[-1].place

    def touch(self, place: Place) -> None:
        """Note that memory is in use now."""
        root = place.root
        if isinstance(root, Scratch):
            root.first, root.last = root.first if root.first >= 0 else self._clock, self._clock
        elif isinstance(root, Moving):
            self.touch(root.base)

    def emit(self, operation: int, *values: int | Place | None, weight: int = 0) -> int:
        """Write an instruction; the number of its first word."""
        start = len(self.words)
        self._clock += 1
        self.weight += weight
        self._write([operation, WORD * (2 + len(values)), *values])
        return start

    def _write(self, values: Sequence[int | Place | None]) -> None:
        for value in values:
            if isinstance(value, Place):
                self.touch(value)
                value.root.cells.append((len(self.words), value.offset))
            self.words.append(value if isinstance(value, int) else 0)

    def copy(
        self, to: Place, source: Place, nbytes: int, times: int = 1, steps: tuple[int, int] = (0, 0)
    ) -> None:
        """Copy bytes, so many times, with steps from one place to the next."""
        self.emit(COPY, to, source, nbytes, times, *steps, weight=nbytes * times // WORD)

    @contextlib.contextmanager
    def loop(
        self, count: int, moving: Sequence[Moving], counter: Place | None = None,
        order: tuple[int, int] = (0, 1), tests: int = 0, tested: Place | None = None,
    ) -> Generator[None]:  # fmt: skip
        """A context in which the instructions of a loop's iterations are written.

        The counter begins at the first number of ``order`` and goes on by the second. The loop ends
        where none of ``tests`` words of 32 bits says that there is another iteration.
        """
        counter = counter or self.new(WORD)
        start = self.emit(BEGIN, count, 0, counter, *order, tests, tested, 0, 0, 0)
        before, clock = self.weight, self._clock
        yield
        each = self.weight - before + ITERATION
        self.emit(REPEAT, WORD * start, each)
        for s in self.scratch:
            if 0 <= s.first <= clock <= s.last:  # it is needed from iteration to iteration
                s.last = self._clock
        self.words[start + EXIT] = WORD * len(self.words)
        self.weight = before + count * each
        self._loops.append((start, moving))

    def finish(self) -> None:
        """Write the end, and the tables of loops: those within others first."""
        self.emit(END, 0)
        for start, moving in self._loops:
            cells = [(m, *cell) for m in moving for cell in m.cells]
            self.words[start + TABLE : start + EXIT] = WORD * len(self.words), len(cells)
            for m, cell, offset in cells:
                self._write([WORD * cell, m.base.behind(offset), m.stride, m.phase, m.mask])
