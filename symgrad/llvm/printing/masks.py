"""Loops and branches: as they are where all lanes go one way, and with masks where they may part.

Where the lanes' loops end at different iterations, the iterations that all of them take need no
mask: they are written apart from those that only some take.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, cast

from symgrad.kernel.statements import (
    Barrier,
    Fill,
    For,
    If,
    Load,
    ReadRow,
    Scope,
    Statement,
    Store,
    StoreRow,
)
from symgrad.kernel.uniform import diverges
from symgrad.llvm.printing.arrangement import Outlined
from symgrad.llvm.printing.blocks import Blocks, OpenLoop
from symgrad.llvm.printing.needs import Item

WRITTEN_TWICE: Final = 500
"""Items of a loop up to which its iterations are written with a mask, and without."""

Leave = Callable[[str, Sequence[str]], None]
"""Go on where a condition holds; else leave the loop, with these values of what it carries."""

Iteration = Callable[[str, Sequence[str], Leave], Sequence[str]]
"""Writes a turn, of its number and what is carried to it; gives what is carried to the next."""


class ControlFlow(Blocks):
    """The scopes of a kernel within a function."""

    def scope(self, scope: Scope, after: bool = False) -> None:
        """Write the items of a scope: of a loop's, those before its test or those ``after`` it."""
        if not after and self.mask is None:
            self.transpose_rows(scope)
        self.items(self.arrangement.order(scope, after))

    def items(self, items: Sequence[Item | Outlined]) -> None:
        """Write items, one after the other."""
        for are_nodes, run in itertools.groupby(items, lambda item: isinstance(item, int)):
            if are_nodes:
                self.compute(cast(Sequence[int], [*run]))
                continue
            for item in run:
                self.statement(cast(Statement | Outlined, item))

    def statement(self, item: Statement | Outlined) -> None:
        """Write a statement, or a call of the function that it is in."""
        match item:
            case Outlined():
                self._call(item)
            case Load():
                self.load(item)
            case Store():
                self.store(item)
            case StoreRow():
                self.store_row(item)
            case Fill():
                self.fill(item)
            case For() | If():
                for a in self.arrangement.wanted.get(item, ()):
                    self.operand(a)
                self._loop(item) if isinstance(item, For) else self._choose(item)
            case Barrier() | ReadRow():
                pass  # lanes run in step, and numbers of rows are read where they are needed

    def _call(self, part: Outlined) -> None:
        """A call of a function for some items."""
        if part.masked:
            truths = self.type("b", True)
            mask = self.mask or self.shape.splat("i1", "true")
            self.leave(len(self.arrangement.slots), truths, mask)
        self.write.do(f"call void @part{part.number}({', '.join(self.arrangement.handed)})")

    # masks ---------------------------------------------------------------------------------------

    def both(self, a: str | None, b: str) -> str:
        """The lanes of two masks; None is all lanes."""
        return b if a is None else self.write.value(f"and {self.type('b', True)} {a}, {b}")

    def any_lane(self, mask: str, how: str = "or") -> str:
        """Whether a mask has a lane; or, by "and", whether it has all of them."""
        name, truths = f"@llvm.vector.reduce.{how}.v{self.lanes}i1", self.type("b", True)
        return self.write.value(f"call i1 {name}({truths} {mask})")

    def _extreme(self, how: str, words: str) -> str:
        name = f"@llvm.vector.reduce.{how}.v{self.lanes}i32"
        return self.write.value(f"call i32 {name}({self.type('u', True)} {words})")

    # branches ------------------------------------------------------------------------------------

    def _choose(self, s: If) -> None:
        if diverges(s, self.arrangement.varying):
            self._part_ways(s)
        else:
            self._branch(s)

    def _branch(self, s: If) -> None:
        """All lanes go one way."""
        name = self.label("if")
        self.write.do(f"br i1 {self.operand(s.condition)}, label %{name}.then, label %{name}.else")
        incoming: list[tuple[str, Sequence[str]]] = []
        for side, scope, yields in zip(("then", "else"), s.sides, s.yields, strict=True):
            self.begin(f"{name}.{side}")
            values = self._yielded(scope, yields, s.results)
            incoming.append((self.block, values))
            self.write.do(f"br label %{name}.end")
        self.begin(f"{name}.end")
        self._merge(s.results, incoming)

    def _yielded(
        self, scope: Scope, yields: Sequence[int], results: Sequence[int]
    ) -> Sequence[str]:
        """Write a side; its values."""
        with self.inside():
            self.scope(scope)
            return [self.operand(y, self.varies(r)) for y, r in zip(yields, results, strict=True)]

    def _merge(self, results: Sequence[int], incoming: Sequence[tuple[str, Sequence[str]]]) -> None:
        kinds = [self.type_of(r) for r in results]
        names = self.phis(kinds, incoming)
        for r, name in zip(results, names, strict=True):
            self.known(r, name)

    def _part_ways(self, s: If) -> None:
        """Each side is written for its lanes, and left out where there are none."""
        outer, condition = self.mask, self.operand(s.condition, True)
        truths, branches = self.type("b", True), list[Sequence[str]]()
        yes = self.shape.splat("i1", "true")
        for k, (scope, yields) in enumerate(zip(s.sides, s.yields, strict=True)):
            if scope.items or yields:
                test = self.write.value(f"xor {truths} {condition}, {yes}") if k else condition
                self.mask = self.both(outer, test)
                branches.append(self._side(scope, yields, s.results))
                self.mask = outer
        for r, *names in zip(s.results, *branches, strict=True) if s.results else ():
            self.known(r, self.chosen(condition, self.type_of(r), *names))

    def _side(self, scope: Scope, yields: Sequence[int], results: Sequence[int]) -> Sequence[str]:
        """The values of a side, and zeros where no lane takes it."""
        assert self.mask, "lanes part here"
        name, before = self.label("side"), self.block
        self.write.do(f"br i1 {self.any_lane(self.mask)}, label %{name}, label %{name}.end")
        self.begin(name)
        values = self._yielded(scope, yields, results)
        last = self.block
        self.write.do(f"br label %{name}.end")
        self.begin(f"{name}.end")
        zeros = ["zeroinitializer"] * len(values)
        return self.phis([self.type_of(r) for r in results], [(before, zeros), (last, values)])

    # loops ---------------------------------------------------------------------------------------

    def _loop(self, s: For) -> None:
        assert s.test is None or not s.down, "a loop with a test goes up"
        if diverges(s, self.arrangement.varying):
            self._turn_apart(s)
        else:
            self._turn_together(s)

    def _turn_together(self, s: For) -> None:
        """All lanes take the same iterations."""
        trips = self._span(s, False)
        iterations = _Iterations(self, s, trips)
        inits = [self.operand(i, self.varies(p)) for i, p in zip(s.inits, s.params, strict=True)]
        reached, results = self.iterations(
            iterations.kinds, "0", trips, inits, iterations.whole, s.some
        )
        if self.arrangement.uses[s.count]:
            lo = self.operand(s.lo)
            self.known(s.count, self.folded("add", lo, reached))
        self._end(s, results)

    def _end(self, s: For, results: Sequence[str]) -> None:
        for r, name in zip(s.results, results, strict=True):
            self.known(r, name)

    def _span(self, s: For, wide: bool) -> str:
        """How many iterations there are, for each lane or for all of them."""
        lo, hi = self.operand(s.lo, wide), self.operand(s.hi, wide)
        if lo.isdigit() and hi.isdigit():
            return str(max(0, int(hi) - int(lo)))
        if lo == "0":
            return hi
        name, words = f"v{self.lanes}i32" if wide else "i32", self.type("u", wide)
        return self.write.value(f"call {words} @llvm.usub.sat.{name}({words} {hi}, {words} {lo})")

    def _turn_apart(self, s: For) -> None:
        """Some lanes take iterations that others do not."""
        varies = self.varies(s.lo) or self.varies(s.hi)
        span = self._span(s, varies)
        if varies and self.mask:
            span = self.chosen(self.mask, self.type("u", True), span, "zeroinitializer")
        trips = self._extreme("umax", span) if varies else span
        iterations = _Iterations(self, s, trips, span if varies else None, self.mask)
        whole = "0"
        if self.mask is None and _size(s.scope) <= WRITTEN_TWICE:
            whole = self._extreme("umin", span) if varies else trips
        self._end(s, self._whole_and_masked(iterations, whole))
        self._count_apart(s, iterations, span, varies)

    def _whole_and_masked(self, iterations: _Iterations, whole: str) -> Sequence[str]:
        """What a loop carries behind all iterations, of which all lanes take the ``whole`` ones."""
        loop, trips, kinds = iterations.loop, iterations.trips, iterations.kinds
        carried = zip(loop.inits, loop.params, strict=True)
        values: Sequence[str] = [self.operand(i, self.varies(p)) for i, p in carried]
        if whole == "0":
            return self._masked(iterations, "0", trips, values)
        if loop.down:
            some = self.folded("sub", trips, whole)
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
        masks, words = self.type("b", True), self.type("u", True)
        going = self.mask or self.shape.splat("i1", "true")
        kinds = [*iterations.kinds, masks, words]
        inits = [*values, going, self.spread("u", start)]
        *values, _, iterations.taken = self.iterations(
            kinds, start, stop, inits, iterations.tested
        )[1]
        return values

    def _count_apart(self, s: For, iterations: _Iterations, span: str, varies: bool) -> None:
        """Where the lanes' loops ended."""
        if not self.arrangement.uses[s.count]:
            return
        taken = iterations.taken or (span if varies else self.spread("u", span))
        words, lo = self.type("u", True), self.operand(s.lo, True)
        self.known(s.count, self.write.value(f"add {words} {lo}, {taken}"))

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
        loop = OpenLoop(self, kinds, start, stop, inits, some)
        with self.inside():
            following = body(loop.iteration, loop.carried, loop.leave)
        return loop.closed(following)


class _Iterations:
    """The iterations of a loop, of which there are ``trips``, at most.

    Where that differs, ``span`` is how many each lane takes; ``outer`` are the lanes that come to
    the loop at all.
    """

    def __init__(
        self,
        flow: ControlFlow,
        loop: For,
        trips: str,
        span: str | None = None,
        outer: str | None = None,
    ) -> None:
        self.flow, self.loop, self.trips = flow, loop, trips
        self.span, self.outer = span, outer
        self.kinds = [flow.type_of(p) for p in loop.params]
        self.taken = ""
        """How many iterations each lane has taken, if that was counted."""
        self._last = flow.folded("sub", trips, "1") if loop.down else ""

    def _start(self, iteration: str, carried: Sequence[str]) -> str:
        """The counter and the carries of a turn; by how much the counter is above its least."""
        flow, loop = self.flow, self.loop
        at = flow.folded("sub", self._last, iteration) if loop.down else iteration
        if flow.varies(loop.k):
            words, lo = flow.type("u", True), flow.operand(loop.lo, True)
            k = flow.write.value(f"add {words} {lo}, {flow.spread('u', at)}")
        else:
            k = flow.folded("add", flow.operand(loop.lo), at)
        flow.known(loop.k, k)
        for p, name in zip(loop.params, carried, strict=True):
            flow.known(p, name)
        return at

    def _yields(self) -> list[str]:
        flow, loop = self.flow, self.loop
        return [
            flow.operand(y, flow.varies(p)) for y, p in zip(loop.yields, loop.params, strict=True)
        ]

    def whole(self, iteration: str, carried: Sequence[str], leave: Leave) -> Sequence[str]:
        """A turn of all lanes that are here."""
        flow, loop = self.flow, self.loop
        self._start(iteration, carried)
        flow.scope(loop.scope)
        if loop.test is not None:
            test = flow.operand(loop.test)
            leave(flow.any_lane(test, "and") if flow.varies(loop.test) else test, carried)
            flow.scope(loop.scope, after=True)
        return self._yields()

    def some(self, iteration: str, carried: Sequence[str], leave: Leave) -> Sequence[str]:
        """A turn of those lanes that take so many."""
        flow = self.flow
        at = self._start(iteration, carried)
        flow.mask = self._inside(at)
        flow.scope(self.loop.scope)
        carries = self._chosen(carried)
        flow.mask = self.outer
        return carries

    def tested(self, iteration: str, carried: Sequence[str], leave: Leave) -> Sequence[str]:
        """A turn of those lanes for which the test has held until now."""
        flow, loop = self.flow, self.loop
        assert loop.test is not None, "the loop has a test"
        *values, going, taken = carried
        at = self._start(iteration, values)
        flow.mask = going if self.span is None else flow.both(going, self._inside(at))
        flow.scope(loop.scope)
        flow.mask = flow.both(flow.mask, flow.operand(loop.test, True))
        leave(flow.any_lane(flow.mask), carried)
        flow.scope(loop.scope, after=True)
        carries = self._chosen(values)
        words, masks = flow.type("u", True), flow.type("b", True)
        one = flow.write.value(f"zext {masks} {flow.mask} to {words}")
        more = flow.write.value(f"add {words} {taken}, {one}")
        carries += [flow.mask, more]
        flow.mask = self.outer
        return carries

    def _inside(self, at: str) -> str:
        """The lanes that take a turn."""
        flow = self.flow
        assert self.span is not None, "lanes take turns that others do not"
        words = flow.type("u", True)
        return flow.write.value(f"icmp ult {words} {flow.spread('u', at)}, {self.span}")

    def _chosen(self, carried: Sequence[str]) -> list[str]:
        """What is carried on: of lanes that do not take the turn, what they had."""
        flow = self.flow
        assert flow.mask, "not all lanes take the turn"
        return [
            name if name == old else flow.chosen(flow.mask, kind, name, old)
            for name, old, kind in zip(self._yields(), carried, self.kinds, strict=True)
        ]


def _size(scope: Scope) -> int:
    """The items of a scope, and of those within."""
    total = len(scope.items)
    for item in scope.items:
        if isinstance(item, For):
            total += _size(item.scope)
        elif isinstance(item, If):
            total += sum(map(_size, item.sides))
    return total
