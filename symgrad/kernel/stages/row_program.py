"""The kernel of rows: a group for each or some, or an invocation, reduces and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.stages.body import Body, Element
from symgrad.kernel.stages.programs import (
    StageProgram,
    alone_or_last,
    chosen_group,
    extent_name,
)
from symgrad.kernel.stages.write import Values, Writer, chosen, combine, over_group


@dataclass(frozen=True)
class RowsProgram(StageProgram):
    """A group for each row, which does its reductions together, and deals its elements out.

    The last parallel counter is that of the elements; roots that are ``whole`` are one number of a
    row. ``counters`` are those of each reduction. In groups of invocations that are not in step
    elements are dealt out by ``many`` that stand in a row, each in so many ``iterations``, where
    all that an invocation has read stays with it; of none, there are loops. Arrays in ``vectors``
    are read so many numbers at a time. With ``alone`` an invocation has a row to itself.

    The last ``sums`` of the roots are not written, but added up over the rows of a group, which has
    ``each`` of all ``rows`` then: there is a row of their sums for each group.

    The arguments are the body's, the extents of parallel counters, in a grid of groups the number
    of groups, ``total``, and with sums ``rows`` and ``each``.
    """

    whole: tuple[bool, ...] = ()
    many: int = 1
    iterations: int = 0
    ragged: bool = True
    vectors: frozenset[int] = frozenset()
    alone: bool = False
    sums: int = 0

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        return _Row(self, target).k


class _RowWriter(Writer):
    """Writes nodes of a row; numbers of arrays that stand in a row are read together."""

    def __init__(
        self, k: KernelIR, body: Body, buffers: Sequence[Buffer], program: RowsProgram
    ) -> None:
        super().__init__(k, body, buffers)
        self._program = program
        self.place: tuple[int, Index, int] | None = None
        """The counter of the elements now, the unit among these, and the element's number in it."""
        self._loaded: dict[tuple[int, int], list[int]] = {}

    def know(self, number: int, totals: Values) -> None:
        """Take down the results of a reduction of the row."""
        self._frames[-1][1][number] = totals

    def _leaf(self, i: int) -> int:
        leaf = self.body.leaf_of[i]
        if not isinstance(leaf, Element) or leaf.array not in self._program.vectors:
            return super()._leaf(i)
        assert self.place is not None, "an element is read at its place"
        counter, unit, lane = self.place
        return self.load_at(leaf, counter, unit)[lane]

    def load_at(self, leaf: Element, counter: int, unit: Index) -> list[int]:
        """The numbers of an array that stand in a unit, which a counter runs through."""
        now, self._counters = self._counters, self._counters | {counter: self.k.word(0)}
        (start,) = self.values([leaf.index])
        self._counters = now
        at = Index(self.k, start) // self._program.many + unit
        key = leaf.array, at.id
        if key not in self._loaded or not self._program.iterations:
            places = at.lanes(self._program.many)
            self._loaded[key] = [self.k.load(self.buffers[leaf.array], place) for place in places]
        return self._loaded[key]


class _Row:
    """Writes the kernel of rows."""

    def __init__(self, program: RowsProgram, target: Target) -> None:
        self.program, self.body = program, program.body
        self.k = k = KernelIR(target, "rows")
        self.last = self.body.parallel - 1
        self.w = _RowWriter(k, self.body, self._reads(), program)
        writes = self._writes()
        self.extents = [Index(k, k.argument(extent_name(p))) for p in range(self.body.parallel)]
        if program.alone:
            self.group, self.exists = alone_or_last(k)
            self.width, self.local = 1, Index(k, k.word(0))
        else:
            self.group, self.exists = chosen_group(k)
            self.width, self.local = k.target.width, Index(k, k.local)
        self.row, self.length = self.group, self.extents[self.last]
        self.units = self.length // program.many if program.many > 1 else self.length
        written = len(program.whole)
        roots = self.body.roots[:written]
        self.places = list(zip(writes[:written], roots, program.whole, strict=True))
        if program.sums:
            self._many_rows(writes[written:])
        else:
            self._one_row()

    def _one_row(self) -> None:
        """Reduce a row, and write its elements."""
        counters, rest = dict[int, int](), self.row
        for p in reversed(range(1, self.last)):
            rest, counter = divmod(rest, self.extents[p])
            counters[p] = counter.id
        if self.last:
            counters[0] = rest.id
        with self.w.frame(counters):
            for number in self.body.reductions_below(self.body.roots):
                self.w.know(number, self._reduced(number))
            self._store_whole([(b, root) for b, root, whole in self.places if whole])
            self._store_each([(b, root) for b, root, whole in self.places if not whole])
            self.terms = self._terms()

    def _many_rows(self, parts: Sequence[Buffer]) -> None:
        """The rows of a group, one after the other, and what their terms sum up to."""
        k, program = self.k, self.program
        self._know_columns()
        rows, each = (Index(k, k.argument(name)) for name in ("rows", "each"))
        start = self.group * each
        count = (rows - start).at_most(each)
        if self.exists is not None:
            count = Index(k, k.add(ops.word_where, self.exists, count.id, k.word(0)))
        none = [k.constant(0.0)] * (program.iterations * program.many * program.sums)

        def row(n: int, totals: Values) -> Values:
            self.row = start + Index(k, n)
            self._one_row()
            return [k.add(ops.add, a, b) for a, b in zip(totals, self.terms, strict=True)]

        totals, _ = k.loop(k.word(0), count.id, none, row)
        numbers = iter(totals)
        for t in range(program.iterations):
            unit, inside = self._unit(k.word(t))
            at = self.group * self.units + unit
            indices = [at.id] if program.many == 1 else at.lanes(program.many)
            mine = [(i, b, next(numbers)) for i in indices for b in parts]

            def put(mine: Sequence[tuple[int, Buffer, int]] = mine) -> None:
                for index, buffer, total in mine:
                    k.store(buffer, index, total)

            self._when(inside, put)

    def _know_columns(self) -> None:
        """Read what all rows have in common before the first one."""
        w, columns = self.w, {self.last, *(c for r in self.body.reductions for c in r.counters)}
        for leaf in self.body.leaves:
            if isinstance(leaf, Element) and leaf.array in self.program.vectors:
                free = self.body.free([leaf.index])
                if free <= columns:
                    (counter,) = free
                    for t in range(self.program.iterations):
                        w.load_at(leaf, counter, self._unit(self.k.word(t))[0])

    def _terms(self) -> list[int]:
        """The terms of sums over rows, of the invocation's elements."""
        program = self.program
        roots, terms = self.body.roots[len(program.whole) :], list[int]()
        for t in range(program.iterations * bool(roots)):
            for values in self._values(self._unit(self.k.word(t))[0], self.last, roots):
                terms += values
        return terms

    def _reads(self) -> list[Buffer]:
        program, kinds = self.program, self.body.kinds
        sizes = [program.many if n in program.vectors else 1 for n in range(len(kinds))]
        pairs = enumerate(zip(kinds, sizes, strict=True))
        return [self.k.buffer(f"a{n}", "read", kind, vector=v) for n, (kind, v) in pairs]

    def _writes(self) -> list[Buffer]:
        kinds = [self.body.graph.type(root) for root in self.body.roots]
        sizes = [1 if whole else self.program.many for whole in self.program.whole]
        sizes += [self.program.many] * self.program.sums
        pairs = enumerate(zip(kinds, sizes, strict=True))
        return [
            self.k.buffer(f"y{n}", "write", "u" if t == "b" else t, vector=v) for n, (t, v) in pairs
        ]

    def _unit(self, t: int) -> tuple[Index, int | None]:
        """A unit of the row's elements, and whether it is one, if it may lie behind the end."""
        program = self.program
        if program.alone:
            return Index(self.k, t), None
        unit = Index(self.k, t) * self.width + self.local
        if self.k.target.in_step or (program.iterations and not program.ragged):
            return unit, None
        return unit.at_most(self.units - 1), unit.below(self.units)

    @property
    def _trips(self) -> Index:
        """How many units an invocation has; in step no more than there are."""
        if self.program.alone:
            return self.units
        if self.k.target.in_step:
            return (self.units + (self.width - 1) - self.local) // self.width
        return self.units.ceil_div(self.width)

    def _values(self, unit: Index, counter: int, roots: Sequence[int]) -> Iterator[list[int]]:
        """The values of nodes at each element of a unit."""
        many = self.program.many
        for lane in range(many):
            place = unit if many == 1 else unit * many + lane
            with self.w.frame({counter: place.id}):
                self.w.place = counter, unit, lane
                yield self.w.values(roots)

    def _reduced(self, number: int) -> Values:
        """The results of a reduction, which all of the group get to know."""
        k, r = self.k, self.body.reductions[number]
        none = self.w.nothing(r)

        def terms(t: int) -> Values:
            (unit, inside), total = self._unit(t), list[int]()
            for values in self._values(unit, r.counters[0], r.parts):
                if inside is not None:
                    values = [chosen(k, inside, v, n) for v, n in zip(values, none, strict=True)]
                total = combine(k, r, total, values) if total else values
            return total

        if self.program.iterations:
            totals = terms(k.word(0))
            for t in range(1, self.program.iterations):
                totals = combine(k, r, totals, terms(k.word(t)))
        else:
            totals = self.w.looped(r, self._trips, terms, in_blocks=True)
        return totals if self.program.alone else over_group(k, r, totals)

    def _when(self, condition: int | None, body: Callable[[], None]) -> None:
        """Do something where a condition holds, if there is one, and there is a row."""
        conditions = [c for c in (condition, self.exists) if c is not None]
        self.k.when(all_hold(self.k, *conditions), body) if conditions else body()

    def _store_whole(self, places: Sequence[tuple[Buffer, int]]) -> None:
        values = self.w.values([root for _, root in places])

        def put() -> None:
            for (buffer, _), value in zip(places, values, strict=True):
                self.k.store(buffer, self.row.id, value)

        if places:
            self._when(None if self.program.alone else self.local.below(1), put)

    def _store_each(self, places: Sequence[tuple[Buffer, int]]) -> None:
        many, roots = self.program.many, [root for _, root in places]

        def store(t: int, _: Values) -> tuple[()]:
            unit, inside = self._unit(t)
            lanes = list(self._values(unit, self.last, roots))
            at = self.row * self.units + unit
            indices = [at.id] if many == 1 else at.lanes(many)

            def put() -> None:
                for n, (buffer, _) in enumerate(places):
                    for index, values in zip(indices, lanes, strict=True):
                        self.k.store(buffer, index, values[n])

            self._when(inside, put)
            return ()

        if not places:
            return
        for t in range(self.program.iterations):
            store(self.k.word(t), ())
        if not self.program.iterations:
            self.k.loop(self.k.word(0), self._trips.id, (), store)
