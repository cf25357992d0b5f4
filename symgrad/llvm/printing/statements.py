"""Loops and branches: as they are where all lanes go one way, and with masks where they may part.

Where the lanes' loops end at different iterations, the iterations that all of them take need no
mask: they are written apart from those that only some take.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from symgrad.kernel.language.statements import (
    Barrier,
    Fill,
    For,
    If,
    Load,
    ReadRow,
    Scope,
    Store,
    StoreRow,
)
from symgrad.kernel.language.verify import diverges
from symgrad.llvm.printing.analysis import Item
from symgrad.llvm.printing.builder import OpenLoop
from symgrad.llvm.printing.functions import Arrangement, Outlined
from symgrad.llvm.printing.memory import Memory
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.values import Calls, Values

Leave = Callable[[str, Sequence[str]], None]
"""Go on where a condition holds; else leave the loop, with these values of what it carries."""

Iteration = Callable[[str, Sequence[str], Leave], Sequence[str]]
"""Writes an iteration, of its number and what is carried to it; gives what is carried on."""


class Body:
    """The statements of a function, by a table of what writes each kind of them.

    They are written by one state, ``values``, and by the ``memory`` that works with it.
    ``vector`` is the shape of a register, of which several may lie side by side.
    """

    def __init__(
        self, arrangement: Arrangement, calls: Calls, names: Iterator[str], vector: Shape
    ) -> None:
        self._arrangement, self._varying = arrangement, arrangement.analysis.varying
        self.values = values = Values(arrangement, calls, names)
        self._functions, self._graph = calls.functions, arrangement.kernel.graph
        self.memory = values.lazy = memory = Memory(values, vector)
        self.write = values.write
        self._writers: Final[Mapping[type, Callable[[Any], None]]] = {
            Outlined: self._call,
            Load: memory.load,
            Store: memory.store,
            StoreRow: memory.records.store_row,
            Fill: memory.fill,
            For: self._loop,
            If: self._choose,
            Barrier: _nothing,  # lanes run in step
            ReadRow: _nothing,  # numbers of rows are read where they are needed
        }

    def scope(self, scope: Scope, after: bool = False) -> None:
        """Write the items of a scope: of a loop's, those before its test or those ``after`` it."""
        if not after and self.values.mask is None:
            self.memory.records.transpose_read(scope)
        self.items(self._arrangement.order(scope, after))

    def items(self, items: Sequence[Item | Outlined]) -> None:
        """Write items, one after the other."""
        for are_nodes, run in itertools.groupby(items, lambda item: isinstance(item, int)):
            if are_nodes:
                self.values.compute(cast(Sequence[int], [*run]))
                continue
            for item in run:
                self._writers[type(item)](item)

    def _call(self, part: Outlined) -> None:
        """A call of a function for some items."""
        values = self.values
        if part.masked:
            mask = values.mask or values.shape.splat("i1", "true")
            values.leave(len(self._arrangement.slots), values.type("b", True), mask)
        self.write.do(f"call void @part{part.number}({', '.join(self._arrangement.handed)})")

    def _read_before(self, s: For | If) -> None:
        """Read what the scopes of a statement need, as it is to be read before it."""
        for i in dict.fromkeys(self._arrangement.analysis.wanted.get(s, ())):
            self.values.operand(i)
            self.values.copy(i)

    # branches ------------------------------------------------------------------------------------

    def _choose(self, s: If) -> None:
        self._read_before(s)
        if diverges(s, self._varying):
            self._diverge(s)
        else:
            self._branch(s)

    def _branch(self, s: If) -> None:
        """All lanes go one way."""
        name = self.write.label("if")
        self.write.do(
            f"br i1 {self.values.operand(s.condition)}, label %{name}.then, label %{name}.else"
        )
        incoming: list[tuple[str, Sequence[str]]] = []
        for side, scope, yields in zip(("then", "else"), s.sides, s.yields, strict=True):
            self.write.begin(f"{name}.{side}")
            values = self._yielded(scope, yields, s.results)
            incoming.append((self.write.block, values))
            self.write.do(f"br label %{name}.end")
        self.write.begin(f"{name}.end")
        self._merge(s.results, incoming)

    def _yielded(
        self, scope: Scope, yields: Sequence[int], results: Sequence[int]
    ) -> Sequence[str]:
        """Write a side; its values."""
        with self.values.inside():
            self.scope(scope)
            return self.values.alike(yields, results)

    def _merge(self, results: Sequence[int], incoming: Sequence[tuple[str, Sequence[str]]]) -> None:
        kinds = [self.values.type_of(r) for r in results]
        names = self.write.phis(kinds, incoming)
        for r, name in zip(results, names, strict=True):
            self.values.define(r, name)

    def _diverge(self, s: If) -> None:
        """Each side is written for its lanes, and left out where there are none."""
        outer, condition = self.values.mask, self.values.operand(s.condition, True)
        truths, branches = self.values.type("b", True), list[Sequence[str]]()
        yes = self.values.shape.splat("i1", "true")
        for k, (scope, yields) in enumerate(zip(s.sides, s.yields, strict=True)):
            if scope.items or yields:
                test = self.write.value(f"xor {truths} {condition}, {yes}") if k else condition
                self.values.mask = self.values.both(outer, test)
                branches.append(self._side(scope, yields, s.results))
                self.values.mask = outer
        for r, *names in zip(s.results, *branches, strict=True) if s.results else ():
            self.values.define(r, self.values.chosen(condition, self.values.type_of(r), *names))

    def _side(self, scope: Scope, yields: Sequence[int], results: Sequence[int]) -> Sequence[str]:
        """The values of a side, and zeros where no lane takes it."""
        assert self.values.mask, "lanes part here"
        name, before = self.write.label("side"), self.write.block
        self.write.do(
            f"br i1 {self.values.any_lane(self.values.mask)}, label %{name}, label %{name}.end"
        )
        self.write.begin(name)
        values = self._yielded(scope, yields, results)
        last = self.write.block
        self.write.do(f"br label %{name}.end")
        self.write.begin(f"{name}.end")
        zeros = ["zeroinitializer"] * len(values)
        return self.write.phis(
            [self.values.type_of(r) for r in results], [(before, zeros), (last, values)]
        )

    # loops ---------------------------------------------------------------------------------------

    def _loop(self, s: For) -> None:
        assert s.test is None or not s.down, "a loop with a test goes up"
        self._read_before(s)
        if diverges(s, self._varying):
            self._apart(s)
        else:
            self._in_step(s)

    def _in_step(self, s: For) -> None:
        """All lanes take the same iterations."""
        trips = self._span(s, False)
        iterations = _Iterations(self, s, trips)
        inits = self.values.alike(s.inits, s.params)
        reached, results = self.iterations(
            iterations.kinds, "0", trips, inits, iterations.whole, s.some
        )
        if self._arrangement.analysis.uses[s.count]:
            lo = self.values.operand(s.lo)
            self.values.define(s.count, self.write.folded("add", lo, reached))
        self._end(s, results)

    def _end(self, s: For, results: Sequence[str]) -> None:
        for r, name in zip(s.results, results, strict=True):
            self.values.define(r, name)

    def _span(self, s: For, wide: bool) -> str:
        """How many iterations there are, for each lane or for all of them."""
        lo, hi = self.values.operand(s.lo, wide), self.values.operand(s.hi, wide)
        if lo.isdigit() and hi.isdigit():
            return str(max(0, int(hi) - int(lo)))
        if lo == "0":
            return hi
        name, words = f"v{self.values.lanes}i32" if wide else "i32", self.values.type("u", wide)
        return self.write.value(f"call {words} @llvm.usub.sat.{name}({words} {hi}, {words} {lo})")

    def _apart(self, s: For) -> None:
        """Some lanes take iterations that others do not."""
        varies = self.values.varies(s.lo) or self.values.varies(s.hi)
        span = self._span(s, varies)
        if varies and self.values.mask:
            span = self.values.chosen(
                self.values.mask, self.values.type("u", True), span, "zeroinitializer"
            )
        least, trips = self._extremes(s, span) if varies else (span, span)
        iterations = _Iterations(self, s, trips, span if varies else None, self.values.mask)
        whole = "0"
        if self.values.mask is None and self._is_written_twice(s):
            whole = least
        self._end(s, self._whole_and_masked(iterations, whole))
        self._count_apart(s, iterations, span, varies)

    def _is_written_twice(self, s: For) -> bool:
        """Whether iterations that all lanes take are written apart from those with a mask.

        Of loops within one that carries nothing, what a mask costs is the least part; and loops
        within one that are written twice are written three times.
        """
        sizes, size = self.values.shape.sizes, self._size(s.scope)
        if not self.values.shape.avx512:
            return size <= sizes.written_twice
        if any(isinstance(item, For) for item in s.scope.items):
            return bool(s.params) and size <= sizes.written_thrice
        return size <= sizes.written_masked

    def _size(self, scope: Scope) -> int:
        """The items of a scope, and of those within, and the operations of functions it calls."""
        total = len(scope.items)
        for item in scope.items:
            if isinstance(item, int) and (
                function := self._functions.get(self._graph.nodes[item][0])
            ):
                total += len(function.graph)
            elif isinstance(item, For):
                total += self._size(item.scope)
            elif isinstance(item, If):
                total += sum(map(self._size, item.sides))
        return total

    def _extremes(self, s: For, span: str) -> tuple[str, str]:
        """The least and the most iterations that a lane takes, if not all take the same ones."""
        values, write, lanes = self.values, self.write, self.values.lanes
        dealt = self._arrangement.analysis.indices.dealt_out(s.hi, lanes)
        if dealt is None or values.mask or values.operand(s.lo, False) != "0":
            return values.extreme("umin", span), values.extreme("umax", span)
        count = values.operand(dealt, False)
        more = write.value(f"add i32 {count}, {lanes - 1}")
        return write.value(f"udiv i32 {count}, {lanes}"), write.value(f"udiv i32 {more}, {lanes}")

    def _whole_and_masked(self, iterations: _Iterations, whole: str) -> Sequence[str]:
        """Carries after all iterations of a loop: no lane leaves out ``whole`` of them."""
        loop, trips, kinds = iterations.loop, iterations.trips, iterations.kinds
        values: Sequence[str] = self.values.alike(loop.inits, loop.params)
        if whole == "0":
            return self._masked(iterations, "0", trips, values)
        if loop.down:
            some = self.write.folded("sub", trips, whole)
            values = self._masked(iterations, "0", some, values)
            return self.iterations(kinds, some, trips, values, iterations.whole)[1]
        reached, values = self.iterations(kinds, "0", whole, values, iterations.whole)
        return self._masked(iterations, reached, trips, values)

    def _masked(
        self, iterations: _Iterations, start: str, stop: str, values: Sequence[str]
    ) -> Sequence[str]:
        """Iterations that not all lanes take."""
        if iterations.loop.test is None:
            return self.iterations(iterations.kinds, start, stop, values, iterations.some)[1]
        masks, words = self.values.type("b", True), self.values.type("u", True)
        going = self.values.mask or self.values.shape.splat("i1", "true")
        kinds = [*iterations.kinds, masks, words]
        inits = [*values, going, self.values.spread("u", start)]
        *values, _, iterations.taken = self.iterations(
            kinds, start, stop, inits, iterations.tested
        )[1]
        return values

    def _count_apart(self, s: For, iterations: _Iterations, span: str, varies: bool) -> None:
        """Where the lanes' loops ended."""
        if not self._arrangement.analysis.uses[s.count]:
            return
        taken = iterations.taken or (span if varies else self.values.spread("u", span))
        words, lo = self.values.type("u", True), self.values.operand(s.lo, True)
        self.values.define(s.count, self.write.value(f"add {words} {lo}, {taken}"))

    def iterations(
        self,
        kinds: Sequence[str],
        start: str,
        stop: str,
        inits: Sequence[str],
        body: Iteration,
        some: bool = False,
    ) -> tuple[str, list[str]]:
        """A loop from one number to another: where it ended, and what it then carried."""
        loop = OpenLoop(self.write, kinds, start, stop, inits, some)
        with self.values.inside():
            following = body(loop.iteration, loop.carried, loop.leave)
        return loop.closed(following)


class _Iterations:
    """The iterations of a loop, of which there are ``trips``, at most.

    Where that differs, ``span`` is how many each lane takes; ``outer`` are the lanes that come to
    the loop at all.
    """

    def __init__(
        self,
        body: Body,
        loop: For,
        trips: str,
        span: str | None = None,
        outer: str | None = None,
    ) -> None:
        self._body, self._values, self._write = body, body.values, body.write
        self.loop, self.trips = loop, trips
        self.span, self.outer = span, outer
        self.kinds = [body.values.type_of(p) for p in loop.params]
        self.taken = ""
        """How many iterations each lane has taken, if that was counted."""
        self._last = self._write.folded("sub", trips, "1") if loop.down else ""

    def _start(self, iteration: str, carried: Sequence[str]) -> str:
        """The counter and the carries of an iteration; by how much the first is above its least."""
        values, loop = self._values, self.loop
        at = self._write.folded("sub", self._last, iteration) if loop.down else iteration
        if values.varies(loop.k):
            words, lo = values.type("u", True), values.operand(loop.lo, True)
            k = self._write.value(f"add {words} {lo}, {values.spread('u', at)}")
        else:
            k = self._write.folded("add", values.operand(loop.lo), at)
        values.define(loop.k, k)
        for p, name in zip(loop.params, carried, strict=True):
            values.define(p, name)
        return at

    def _yields(self) -> list[str]:
        return self._values.alike(self.loop.yields, self.loop.params)

    def whole(self, iteration: str, carried: Sequence[str], leave: Leave) -> Sequence[str]:
        """An iteration of all lanes that go on."""
        values, loop = self._values, self.loop
        self._start(iteration, carried)
        self._body.scope(loop.scope)
        if loop.test is not None:
            test = values.operand(loop.test)
            leave(values.any_lane(test, "and") if values.varies(loop.test) else test, carried)
            self._body.scope(loop.scope, after=True)
        return self._yields()

    def some(self, iteration: str, carried: Sequence[str], leave: Leave) -> Sequence[str]:
        """An iteration of those lanes that take so many."""
        values = self._values
        at = self._start(iteration, carried)
        values.mask = self._inside(at)
        self._body.scope(self.loop.scope)
        carries = self._chosen(carried)
        values.mask = self.outer
        return carries

    def tested(self, iteration: str, carried: Sequence[str], leave: Leave) -> Sequence[str]:
        """An iteration of those lanes for which the test has held until now."""
        values, loop = self._values, self.loop
        assert loop.test is not None, "the loop has a test"
        *before, going, taken = carried
        at = self._start(iteration, before)
        values.mask = going if self.span is None else values.both(going, self._inside(at))
        self._body.scope(loop.scope)
        values.mask = values.both(values.mask, values.operand(loop.test, True))
        leave(values.any_lane(values.mask), carried)
        self._body.scope(loop.scope, after=True)
        carries = self._chosen(before)
        words, masks = values.type("u", True), values.type("b", True)
        one = self._write.value(f"zext {masks} {values.mask} to {words}")
        more = self._write.value(f"add {words} {taken}, {one}")
        carries += [values.mask, more]
        values.mask = self.outer
        return carries

    def _inside(self, at: str) -> str:
        """The lanes that take an iteration."""
        values = self._values
        assert self.span is not None, "lanes take iterations that others do not"
        words = values.type("u", True)
        return self._write.value(f"icmp ult {words} {values.spread('u', at)}, {self.span}")

    def _chosen(self, carried: Sequence[str]) -> list[str]:
        """Values to carry on: of lanes that do not take the iteration, what they had."""
        values = self._values
        assert values.mask, "not all lanes take the iteration"
        return [
            name if name == old else values.chosen(values.mask, kind, name, old)
            for name, old, kind in zip(self._yields(), carried, self.kinds, strict=True)
        ]


def _nothing(item: object) -> None:
    """Writes nothing, for a statement without instructions."""
