"""The statements of a kernel as WGSL, and what is called how in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import zip_longest
from typing import Final

from symgrad.kernel.accesses import accesses
from symgrad.kernel.statements import (
    Barrier,
    Call,
    Fill,
    For,
    If,
    Load,
    Read,
    Routine,
    Scope,
    Statement,
    Store,
)
from symgrad.wgsl.printing.expression import PRIMARY, SUM, TYPES
from symgrad.wgsl.printing.names import identifier, is_reserved
from symgrad.wgsl.printing.values import Values
from symgrad.wgsl.printing.vectors import Together

_KEPT: Final = re.compile(r"(\w+)_kept(_\d+)?$")
"""The names of arrays of what a carry was in each turn."""


class Body(Values):
    """The statements of a kernel."""

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

    def _load(self, s: Load) -> Iterator[str]:
        """What a loop has kept of a carry is called as the carry."""
        if s.result in self.vectors.first:
            yield from self._component(s.result, (s.buffer, s.index))
            return
        text = self._loaded(s)
        if carry := _KEPT.match(s.buffer.name):
            self._names.setdefault(s.result, carry[1])
        yield self.line(f"{self.declare(s.result)} = {text};", s.result)

    def _is_moved(self, s: Load, following: object) -> bool:
        """Whether what stands behind a load stores the number, which nobody else needs."""
        if not isinstance(following, Store) or s.agreed or s.result in self.vectors.first:
            return False
        return following.value == s.result and self.uses.counts[s.result] == 1

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
        yield from self.within(self._iteration(s, k))
        yield f"{self.indent}}}"
        if not outside:
            self._taken = taken
        elif s.down:
            iterations = f"{hi} - {k}"
            self.texts[s.count] = iterations if lo == "0u" else f"{lo} + ({iterations})", SUM

    def _iteration(self, s: For, k: str) -> Iterator[str]:
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
        dependencies = {p: self._carries_in(y, ends) - {p} for p, y in ends.items()}
        waits = Counter(a for others in dependencies.values() for a in others)
        texts, places = {p: self.text(y) for p, y in ends.items()}, list(ends)
        free = [n for n, p in enumerate(places) if not waits[p]]
        number, waiting = {p: n for n, p in enumerate(places)}, iter(places)
        while texts:
            if free:
                p = places[heappop(free)]
                yield self.assigned(f"{self.texts[p][0]} = {texts.pop(p)};", ends[p])
            else:
                p = next(q for q in waiting if q in dependencies)
                init, texts[p] = texts[p], self._free(f"next_{self.texts[p][0]}")
                yield self.assigned(f"let {texts[p]} = {init};", ends[p])
            for a in dependencies.pop(p, ()):
                waits[a] -= 1
                if not waits[a]:
                    heappush(free, number[a])

    def _carries_in(self, i: int, carries: Collection[int]) -> set[int]:
        """The carries in the text of a value."""
        present, stack = set[int](), [i]
        while stack:
            i = stack.pop()
            if i in carries:
                present.add(i)
            elif i not in self.bound:
                stack += self.graph.args(i)
        return present
