"""The function that runs lists of instructions: kernels, loops around them, copies.

A list is words of 64 bits. An instruction is its number, its length in bytes, and what follows. The
function goes from one to the next; what it does not know, such as work of NumPy, it leaves to its
caller, by ending with the place of that instruction, from where it can go on.

A loop has a table of pointers that change from iteration to iteration, as those to carries and to
rows of arrays: (where the pointer is, base, stride, phase, mask), which becomes base + stride *
((k + phase) & mask) in iteration k, and once more at the end. So a mask of 1 is two halves of
memory in turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

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
