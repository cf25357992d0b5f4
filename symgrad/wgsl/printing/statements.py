"""The statements of a kernel as WGSL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from heapq import heappop, heappush
from itertools import zip_longest
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.kernel.language.ir import KernelIR, accesses
from symgrad.kernel.language.statements import (
    Barrier,
    Call,
    Fill,
    For,
    If,
    Load,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
    StoreRow,
    everything,
)
from symgrad.kernel.passes.schedule import Column
from symgrad.kernel.passes.uses import Uses
from symgrad.wgsl.printing.analysis import Own, Together, Vectors
from symgrad.wgsl.printing.memory import Memory
from symgrad.wgsl.printing.operations import PRIMARY, SUM
from symgrad.wgsl.printing.records import Records
from symgrad.wgsl.printing.source import Style, identifier, is_reserved
from symgrad.wgsl.printing.values import Values


class Body:
    """The statements of a kernel, by a table of what writes each kind of them.

    They are written by one state, ``values``, and by the ``records`` and the memory that work with
    it. ``stores`` are the columns that a part of a kernel stores, if it is one, and ``shared`` the
    values that several functions need.
    """

    def __init__(
        self,
        kernel: KernelIR,
        own: Own,
        calls: Mapping[Op, str],
        style: Style,
        staged: bool = True,
        uses: Uses | None = None,
        stores: Sequence[Column] | None = None,
        shared: Set[int] | None = None,
    ) -> None:
        self.kernel, self.own, self.uses = kernel, own, uses or Uses(kernel)
        shared = self.uses.captured if shared is None else shared
        self.values = Values(kernel, own, calls, style, self.uses, shared)
        self.records = self.values.lazy = Records(self.values, own, staged, stores)
        self._vectors = Vectors(kernel, self.uses)
        self._memory = memory = Memory(self.values, own, self._vectors)
        self._called: dict[Routine, str] = {}
        """Names of routines."""
        self._writers: Final[Mapping[type, Callable[[Any], Iterator[str]]]] = {
            Load: memory.load,
            Store: memory.store,
            Together: memory.store_vector,
            Fill: memory.fill,
            Barrier: self._barrier,
            Routine: self._routine,
            Call: self._call,
            If: self._if,
            For: self._for,
            ReadRow: _nothing,  # numbers of rows are read where they are needed
            StoreRow: _nothing,  # at the end
        }

    def lines(self) -> Iterator[str]:
        """The statements of the kernel; those that store rows are the last."""
        yield from self.items(self.kernel.main.items)
        yield from self.records.stores.lines()

    def items(self, items: Sequence[int | Statement]) -> Iterator[str]:
        """The lines of some items, which stand one behind the other."""
        lone, values, records = self._lone, self.values, self.records
        joined = [*self._vectors.joined(items)] if self._vectors.indices else items
        for item, following in zip_longest(joined, joined[1:]):
            if isinstance(item, int):
                if item not in lone:
                    yield from self._node(item)
                    continue
                if records.unread:
                    yield from records.read(values.graph.nodes[item][1:])
                if line := values.write(item):
                    yield line
            elif isinstance(item, Load) and self._memory.is_moved(item, following):
                values.texts[item.result] = self._memory.loaded(item), PRIMARY
            else:
                yield from self._writers[type(item)](item)

    @cached_property
    def _lone(self) -> Set[int]:
        """The nodes that are written each for itself."""
        lone = self.uses.lone
        if not self._vectors.indices:
            return lone
        return lone - self._vectors.indices - self._vectors.first.keys()

    def _node(self, i: int) -> Iterator[str]:
        """A node that has no line of its own, or shares one."""
        if i in self.uses.indices or i in self._vectors.indices:
            self.values.texts[i] = self.values.expression(i)
        elif i in self._vectors.first:
            yield from self._memory.component(i, *next(iter(accesses(self.kernel, i))))
        elif i in self.uses.counts:
            yield from self._memory.read(i)

    def _barrier(self, s: Barrier) -> Iterator[str]:
        yield f"{self.values.indent}workgroupBarrier();"
        if s.results and self._reads_results:
            yield f"{self.values.indent}storageBarrier();"

    @cached_property
    def _reads_results(self) -> bool:
        """Whether invocations read what they, or others of their group, have written to results."""
        items = everything(self.kernel.main.items)
        return any(isinstance(item, Load) and item.buffer.space == "write" for item in items)

    # routines ------------------------------------------------------------------------------------

    def _call(self, s: Call) -> Iterator[str]:
        arguments = ", ".join(map(self.values.text, s.args))
        yield f"{self.values.indent}{self._called[s.routine]}({arguments});"

    def _routine(self, s: Routine) -> Iterator[str]:
        """Write a routine as a function, which has what it needs of the kernel in variables."""
        values, taken = self.values, set(self.values.taken)
        called = self._called[s] = values.free(identifier(s.name, is_reserved))
        values.repeat_place()
        parameters = [(values.named(p), p) for p in s.params]
        values.texts |= {p: (name, PRIMARY) for name, p in parameters}
        typed = ", ".join(
            f"{name}: {values.floats.types[values.graph.type(p)]}" for name, p in parameters
        )
        values.functions += [f"fn {called}({typed}) {{", *self.items(s.scope.items), "}", ""]
        values.taken = {*taken, called}
        return _nothing(s)

    # branches ------------------------------------------------------------------------------------

    def _within(self, lines: Iterator[str]) -> Iterator[str]:
        """Lines that stand within braces; what is named there has no name outside."""
        taken = set(self.values.taken)
        self.values.indent += "  "
        yield from lines
        self.values.indent = self.values.indent[2:]
        self.values.taken = taken

    def _if(self, s: If) -> Iterator[str]:
        values = self.values
        yield from self.records.read(self.uses.columns)
        variables = [values.named(r) for r in s.results]
        for r, name in zip(s.results, variables, strict=True):
            yield f"{values.indent}var {name}: {values.floats.types[values.graph.type(r)]};"
        yield values.line(f"if ({values.text(s.condition)}) {{", s.condition)
        yield from self._within(self._side(s.sides[0], variables, s.yields[0]))
        if s.sides[1].items or s.results:
            yield f"{values.indent}}} else {{"
            yield from self._within(self._side(s.sides[1], variables, s.yields[1]))
        yield f"{values.indent}}}"
        values.texts |= {r: (name, PRIMARY) for r, name in zip(s.results, variables, strict=True)}

    def _side(self, scope: Scope, variables: Sequence[str], ends: Sequence[int]) -> Iterator[str]:
        yield from self.items(scope.items)
        for name, end in zip(variables, ends, strict=True):
            yield self.values.assigned(f"{name} = {self.values.text(end)};", end)

    # loops ---------------------------------------------------------------------------------------

    def _for(self, s: For) -> Iterator[str]:
        values = self.values
        yield from self.records.read(self.uses.columns)
        inits = [values.text(i) for i in s.inits]
        for p, r, init in zip(s.params, s.results, inits, strict=True):
            name = values.named(p, "c")
            values.texts[p] = values.texts[r] = name, PRIMARY
            yield values.line(f"var {name} = {init};", p)
        outside = s.count in self.uses.counts
        taken = set(values.taken)
        k = values.named(s.k, "k")
        values.texts[s.k] = values.texts[s.count] = k, PRIMARY
        lo, hi = values.text(s.lo), values.text(s.hi)
        start = f"var {k} = {hi if s.down else lo};"
        end = f"{k} > {lo};" if s.down else f"{k} < {hi}; {k} += 1u"
        if outside:
            yield values.indent + start
            start = ";"
        yield values.line(f"for ({start} {end}) {{", s.k)
        yield from self._within(self._iteration(s, k))
        yield f"{values.indent}}}"
        if not outside:
            values.taken = taken
        elif s.down:
            iterations = f"{hi} - {k}"
            values.texts[s.count] = iterations if lo == "0u" else f"{lo} + ({iterations})", SUM

    def _iteration(self, s: For, k: str) -> Iterator[str]:
        if s.down:
            yield f"{self.values.indent}{k} -= 1u;"
        yield from self.items(s.scope.items[: s.test_at])
        yield from self._break(s)
        yield from self.items(s.scope.items[s.test_at :])
        yield from self._next(s)

    def _break(self, s: For) -> Iterator[str]:
        if s.test is not None:
            yield self.values.line(f"if (!({self.values.text(s.test)})) {{ break; }}", s.test)

    def _next(self, s: For) -> Iterator[str]:
        """The carries of the next iteration, each set when no other needs what it was any more."""
        ends = {p: y for p, y in zip(s.params, s.yields, strict=True) if p != y}
        dependencies = {p: self._carries_in(y, ends) - {p} for p, y in ends.items()}
        waits = Counter(a for others in dependencies.values() for a in others)
        texts, places = {p: self.values.text(y) for p, y in ends.items()}, list(ends)
        free = [n for n, p in enumerate(places) if not waits[p]]
        number, waiting = {p: n for n, p in enumerate(places)}, iter(places)
        while texts:
            if free:
                p = places[heappop(free)]
                yield self.values.assigned(f"{self.values.texts[p][0]} = {texts.pop(p)};", ends[p])
            else:
                p = next(q for q in waiting if q in dependencies)
                init, texts[p] = texts[p], self.values.free(f"next_{self.values.texts[p][0]}")
                yield self.values.assigned(f"let {texts[p]} = {init};", ends[p])
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
            elif i not in self.values.bound:
                stack += self.values.graph.args(i)
        return present


def _nothing(item: Statement) -> Iterator[str]:
    """The lines of a statement that has none."""
    return iter(())
