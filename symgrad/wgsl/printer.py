"""Kernel -> WGSL: one invocation a cell, as a person would write it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.node import WORD, Op
from symgrad.kernel.language import (
    BOUND,
    Barrier,
    Buffer,
    Fill,
    For,
    If,
    Kernel,
    Load,
    Read,
    Scope,
    Statement,
    Store,
    accesses,
)
from symgrad.kernel.layout import WORKGROUP
from symgrad.kernel.plan import Computation
from symgrad.kernel.programs.map import map_program
from symgrad.kernel.split import TURNS, Split, split
from symgrad.kernel.target import InGroups
from symgrad.kernel.uses import Uses
from symgrad.mathlib.define import Function
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.emit import Style, Writer
from symgrad.wgsl.expression import PRIMARY, SUM, TYPES, Text
from symgrad.wgsl.names import identifier, is_reserved
from symgrad.wgsl.own import Own
from symgrad.wgsl.skeletons import moved, shapes

_BITWISE: Final = frozenset({ops.word_and, ops.word_or, ops.word_xor, ops.bits_float})
"""What takes words for bits."""


_KEPT: Final = re.compile(r"(\w+)_kept(_\d+)?$")
"""The names of arrays of what a carry was in each turn."""


@dataclass(frozen=True)
class Printed:
    """The source of a kernel: modules with the entry point "main", to be run in this order.

    Each has the uniform block as binding 0, then the buffers that are read, those that are written,
    and, if there are any ``slots``, scratch memory: so many numbers for each invocation of whole
    workgroups.
    """

    modules: tuple[str, ...]
    slots: int
    turns: int
    """How often an invocation turns in all loops of a module together, at most."""


def print_map(computation: Computation, functions: Mapping[Op, Function], style: Style) -> Printed:
    """The WGSL of a computation at every point of a batch; see `Layout` for its buffers."""
    kernel = map_program(computation, InGroups(WORKGROUP))
    size = f"// {moved(computation):,} bytes a point; math: {style.math}"
    return print_kernel(kernel, functions, style, [*shapes(computation, style.title), size])


def print_kernel(
    kernel: Kernel, functions: Mapping[Op, Function], style: Style, head: Sequence[str] = ()
) -> Printed:
    """The WGSL of a kernel, its long loops in modules of their own; ``head`` begins each."""
    found = split(kernel)
    kernels = list(dict.fromkeys(found.kernels))
    names = _names_of_buffers(kernels)
    own, library = Own.placed(names, outlast=len(kernels) > 1), Library(functions)
    sources = {k: _module(k, own, library, style, [*head, *_place_of(k, found)]) for k in kernels}
    return Printed(tuple(sources[k] for k in found.kernels), own.slots, found.turns)


def _place_of(kernel: Kernel, found: Split) -> Iterator[str]:
    """Which of several kernels one is."""
    count, times = len(found.kernels), found.kernels.count(kernel)
    if count > 1:
        first = found.kernels.index(kernel) + 1
        which = f"kernel {first}" if times == 1 else f"kernels {first} to {first + times - 1}"
        yield f"// {which} of {count}: none turns its loops more than {TURNS:,} times"


_CLASH: Final = {"read": "in", "write": "out", "own": "own", "group": "all"}
"""What ends the name of a buffer that a value has as well, by spaces."""

_OURS: Final = frozenset(
    {"main", "params", "scratch", "cell", "stride", "group", "groups", "local"}
)
"""What every kernel may define."""


def _names_of_buffers(kernels: Sequence[Kernel]) -> dict[Buffer, str]:
    """Names that WGSL takes, and that no value has, for the buffers that some kernels share."""
    values = {name for k in kernels for name in k.names.values()}
    taken = {identifier(name, is_reserved) for name in values} | _OURS
    found: dict[Buffer, str] = {}
    for b in kernels[0].buffers:
        name = identifier(b.name, is_reserved)
        while name in taken:
            name = f"{name}_{_CLASH[b.space]}"
        taken.add(name)
        found[b] = name
    return found


def _module(kernel: Kernel, own: Own, library: Library, style: Style, head: Sequence[str]) -> str:
    body = Body(kernel, own, library.names, style)
    statements = list(body.scope(kernel.main))
    lines = [
        *head,
        *[""] * bool(head),
        *_declarations(kernel, own),
        *library.definitions(body.used),
        *_signature(kernel, body.uses),
        *_cell(kernel, own),
        *(f"  {line}" for line in own.variables()),
        *statements,
        "}",
    ]
    return "\n".join(lines) + "\n"


def _declarations(kernel: Kernel, own: Own) -> Iterator[str]:
    """The uniform block, the bindings, arrays of workgroups, and where scratch memory has what."""
    yield "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }"
    yield ""
    yield "@group(0) @binding(0) var<uniform> params: Params;"
    bound = sorted((b for b in kernel.buffers if b.space in BOUND), key=lambda b: b.space)
    for n, b in enumerate(bound, 1):
        access, declared = b.space.replace("write", "read_write"), _array(b, own)
        yield f"@group(0) @binding({n}) var<storage, {access}> {declared};"
    if own.slots:
        n, element = len(bound) + 1, own.element
        yield f"@group(0) @binding({n}) var<storage, read_write> scratch: array<{element}>;"
    for b in kernel.buffers:
        if b.space == "group":
            yield f"var<workgroup> {_array(b, own)};"
    if own.slots:
        yield ""
        yield from own.constants({b for _, i in kernel.items() for b, _ in accesses(kernel, i)})
    yield ""


def _array(b: Buffer, own: Own) -> str:
    """The name of a buffer and its type."""
    length = f", {b.size}" if b.space == "group" else ""
    return f"{own.names[b]}: array<{TYPES[b.kind]}{length}>"


def _signature(kernel: Kernel, uses: Uses) -> Iterator[str]:
    yield f"@compute @workgroup_size({kernel.target.width})"
    groups = "@builtin(num_workgroups) groups: vec3<u32>, " * (kernel.groups in uses.counts)
    yield (
        f"fn main(@builtin(workgroup_id) group: vec3<u32>, {groups}"
        "@builtin(local_invocation_index) local: u32) {"
    )


def _cell(kernel: Kernel, own: Own) -> Iterator[str]:
    width = kernel.target.width
    yield f"  let cell = group.x * {width}u + local;"
    if own.slots:
        yield f"  let stride = (params.count + {width - 1}u) / {width}u * {width}u;"


class Body(Writer):
    """The statements of a kernel."""

    def __init__(self, kernel: Kernel, own: Own, calls: Mapping[Op, str], style: Style) -> None:
        self.uses = Uses(kernel)
        super().__init__(kernel.graph, self.uses.bound, calls, style)
        self.kernel, self.own = kernel, own
        self._taken = {*_OURS, *own.names.values()}
        self._names = dict(kernel.names)
        self._numbered = 0
        here = {kernel.cell: "cell", kernel.count: "params.count", kernel.local: "local"}
        here |= {kernel.group: "group.x", kernel.groups: "groups.x"}
        self.texts |= {i: (name, PRIMARY) for i, name in here.items()}
        self.texts |= {i: (f"{kernel.graph.nodes[i][1]}u", PRIMARY) for i in self._numbers()}

    def _numbers(self) -> set[int]:
        """The known words that are numbers, rather than masks and other patterns of bits."""
        nodes, needed = self.graph.nodes, self.uses.counts
        bits = {a for i in needed if nodes[i][0] in _BITWISE for a in nodes[i][1:]}
        return {i for i in needed if nodes[i][0] is WORD} - bits

    # names ---------------------------------------------------------------------------------------

    def declare(self, i: int, name: str = "") -> str:
        """The left side of the statement that gives a value its name."""
        return super().declare(i, self.named(i))

    def named(self, i: int, default: str = "") -> str:
        """A new name for a value: the user's if there is one."""
        wanted = self._names.get(i, "").strip("_") or default
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

    # statements ----------------------------------------------------------------------------------

    def scope(self, scope: Scope) -> Iterator[str]:
        """The lines of a scope."""
        for item in scope.items:
            yield from self.item(item)

    def within(self, lines: Iterator[str]) -> Iterator[str]:
        """Lines that stand within braces; what is named there has no name outside."""
        taken = set(self._taken)
        self.indent += "  "
        yield from lines
        self.indent = self.indent[2:]
        self._taken = taken

    def item(self, item: int | Statement) -> Iterator[str]:
        """The lines of one item."""
        match item:
            case int():
                yield from self._node(item)
            case Load(result=result):
                if result in self.uses.counts:
                    yield self._load(item)
            case Store():
                yield self._store(item)
            case Fill(buffer=buffer):
                yield self.indent + self.own.filled(buffer)
            case Barrier():
                yield f"{self.indent}workgroupBarrier();"
            case If():
                yield from self._if(item)
            case For():
                yield from self._for(item)

    def _node(self, i: int) -> Iterator[str]:
        if i in self.uses.indices:
            self.texts[i] = self.expression(i)
        elif i in self.uses.counts and (line := self.write(i)):
            yield line

    def expression(self, i: int) -> Text:
        """An operation, or what a buffer has."""
        op, *args = self.graph.nodes[i]
        if isinstance(op, Read):
            return self.own.loaded(op.buffer, self._index(args[0])), PRIMARY
        return super().expression(i)

    def _load(self, s: Load) -> str:
        """What a loop has kept of a carry is called as the carry."""
        text = self.own.loaded(s.buffer, self._index(s.index))
        if kept := _KEPT.match(s.buffer.name):
            self._names.setdefault(s.result, kept[1])
        return self.line(f"{self.declare(s.result)} = {text};", s.result)

    def _index(self, i: int) -> Text:
        text = self.text(i)
        return self.texts.get(i, (text, PRIMARY))

    def _store(self, s: Store) -> str:
        value, index = self.text(s.value), self._index(s.index)
        place = self.own.place(s.buffer, index)
        if s.add and self.own.stored(s.buffer, "") == "":
            return self.assigned(f"{place} += {value};", s.value)
        if s.add:
            value = f"{self.own.loaded(s.buffer, index)} + {value}"
        return self.assigned(f"{place} = {self.own.stored(s.buffer, value)};", s.value)

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
        yield from self.scope(scope)
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
        for n, item in enumerate(s.scope.items):
            if n == s.test_at:
                yield from self._break(s)
            yield from self.item(item)
        if len(s.scope.items) == s.test_at:
            yield from self._break(s)
        yield from self._next(s)

    def _break(self, s: For) -> Iterator[str]:
        if s.test is not None:
            yield self.line(f"if (!({self.text(s.test)})) {{ break; }}", s.test)

    def _next(self, s: For) -> Iterator[str]:
        """The carries of the next turn, each set when no other is made of what it was any more."""
        ends = {p: y for p, y in zip(s.params, s.yields, strict=True) if p != y}
        asked = {p: self._carries_in(y, ends) for p, y in ends.items()}
        texts = {p: self.text(y) for p, y in ends.items()}
        while texts:
            free = [p for p in texts if not any(p in asked[q] for q in texts if q != p)]
            if not free:
                p, init = next(iter(texts.items()))
                name = self._free(f"next_{self.texts[p][0]}")
                yield self.assigned(f"let {name} = {init};", ends[p])
                texts[p], asked[p] = name, set()
                continue
            p = free[0]
            yield self.assigned(f"{self.texts[p][0]} = {texts.pop(p)};", ends[p])

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
