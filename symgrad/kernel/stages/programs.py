"""The kernels of stages: a group for each row of an index space, or an invocation for each element.

A group has a row: all elements whose outer counters are the same. It reduces what belongs to the
row together, and deals out the row's elements. Where the inner counter is none, a row is one
element. In the lanes of a vector this is the only way, as counters of a group are single numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.stages.body import Body, Element, combined, nothing
from symgrad.kernel.stages.sizes import FOUR
from symgrad.kernel.stages.write import Values, Writer, chosen, combine, over_group


def extent_name(counter: int) -> str:
    """The argument that is the extent of a parallel counter."""
    return f"e{counter}"


def chosen_group(k: KernelIR) -> tuple[Index, int | None]:
    """The number of the group, and in a grid whether there is one: beyond the end it is the last.

    In a grid the argument ``total`` is the number of groups.
    """
    group = Index(k, k.group)
    if not k.target.grid:
        return group, None
    total = Index(k, k.argument("total"))
    exists = group.below(total)
    return group.at_most(total - 1), exists


def alone_or_last(k: KernelIR) -> tuple[Index, int]:
    """The number of an invocation, and whether it has something to do: else it is the last one."""
    cell, count = Index(k, k.cell), Index(k, k.count)
    return cell.at_most(count - 1), cell.below(count)


@dataclass(frozen=True)
class StageProgram:
    """A kernel of stages: buffers ``a0``, .. that are read, and ``y0``, .. that are written.

    Each root of the body has a buffer, or each buffer has as many roots, one after the other, as
    ``widths`` says: they are elements side by side, which are written in fours in ``quads``.
    """

    body: Body
    widths: tuple[int, ...] = field(default=(), kw_only=True)
    quads: bool = field(default=False, kw_only=True)

    def _begin(
        self, target: Target, name: str, singles: int = 0
    ) -> tuple[KernelIR, Writer, list[Buffer]]:
        """The kernel, its body's writer, and its buffers to write, the first so many singly."""
        k, body = KernelIR(target, name), self.body
        reads = [
            k.buffer(f"a{n}", "read", kind, vector=FOUR if n in body.quads else 1)
            for n, kind in enumerate(body.kinds)
        ]
        kinds = [body.graph.type(root) for root, *_ in self._parted(body.roots)]
        vectors = [FOUR if self.quads and n >= singles else 1 for n in range(len(kinds))]
        writes = [
            k.buffer(f"y{n}", "write", "u" if t == "b" else t, vector=vector)
            for n, (t, vector) in enumerate(zip(kinds, vectors, strict=True))
        ]
        return k, Writer(k, body, reads), writes

    def _parted(self, values: Values) -> Sequence[Values]:
        """The values of each buffer."""
        if not self.widths:
            return [[value] for value in values]
        ends = zip(self.widths, accumulate(self.widths), strict=True)
        return [values[end - n : end] for n, end in ends]

    def _store(self, k: KernelIR, writes: Sequence[Buffer], at: Index, values: Values) -> None:
        """Write the values of the element at an index."""
        for buffer, each in zip(writes, self._parted(values), strict=True):
            self._store_side_by_side(k, buffer, at, each)

    @staticmethod
    def _store_side_by_side(k: KernelIR, buffer: Buffer, at: Index, values: Values) -> None:
        first = at * len(values) if len(values) > 1 else at
        for n, value in enumerate(values):
            k.store(buffer, first.shifted(n).id, value)


@dataclass(frozen=True)
class ElementProgram(StageProgram):
    """An invocation for each element of the index space, which reduces what it needs alone.

    The arguments are the body's and the extents of parallel counters.
    """

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        k, w, writes = self._begin(target, "elements")
        at, inside = alone_or_last(k)
        rest, counters = at, dict[int, int]()
        for p in reversed(range(1, self.body.parallel)):
            rest, counter = divmod(rest, Index(k, k.argument(extent_name(p))))
            counters[p] = counter.id
        if self.body.parallel:
            counters[0] = rest.id
        with w.frame(counters):
            values = w.values(self.body.roots)

        k.when(inside, lambda: self._store(k, writes, at, values))
        return k


@dataclass(frozen=True)
class RowProgram(StageProgram):
    """A group for each row: ``inner`` is the parallel counter that its elements differ in, if any.

    Rows may be in ``chunks``, each a group's. Reductions that belong to a row are shared by the
    group if they are in ``dealt``, with the counter of which each invocation has some values. A
    group may have some rows ``beside`` each other, of an element each, neighbours along the last
    counter, which it has invocations for in turns.

    The arguments are the body's, the extents of parallel counters, and with chunks how many of them
    a row has, ``chunks``, each of ``chunk`` elements; in a grid also the number of groups,
    ``total``.
    """

    inner: int | None = None
    dealt: tuple[tuple[int, int], ...] = ()
    chunks: bool = False
    beside: int = 1

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        k, w, writes = self._begin(target, "rows")
        extents = [Index(k, k.argument(extent_name(p))) for p in range(self.body.parallel)]
        group, exists = chosen_group(k)
        chunk = None
        if self.chunks:
            group, chunk = divmod(group, Index(k, k.argument("chunks")))
        outer = [p for p in range(self.body.parallel) if p != self.inner]
        counters: dict[int, Index] = {}
        if self.beside > 1:
            *outer, last = outer
            group, some = divmod(group, extents[last].ceil_div(self.beside))
            mine = some * self.beside + Index(k, k.local) % self.beside
            counters[last] = mine.at_most(extents[last] - 1)
            is_one = mine.below(extents[last])
            exists = is_one if exists is None else k.add(ops.logical_and, exists, is_one)
            w.beside = self.beside
        for p in reversed(outer[1:]):
            group, counters[p] = divmod(group, extents[p])
        if outer:
            counters[outer[0]] = group
        with w.frame({p: c.id for p, c in counters.items()}):
            w.dealt = dict(self.dealt)
            w.reduce_below(self.body.roots)
            w.dealt = {}
            self._elements(w, writes, extents, counters, chunk, exists)
        return k

    def _elements(
        self,
        w: Writer,
        writes: Sequence[Buffer],
        extents: Sequence[Index],
        counters: dict[int, Index],
        chunk: Index | None,
        exists: int | None,
    ) -> None:
        """Write the elements of a row, or of a chunk of it."""
        k = w.k
        strides: list[Index] = [Index(k, k.word(1))]
        for p in reversed(range(1, len(extents))):
            strides.insert(0, strides[0] * extents[p])
        at = Index(k, k.word(0))
        for p, c in counters.items():
            at = c * strides[p] + at
        if self.inner is None:
            first = w.member.below(1)
            inside = first if exists is None else k.add(ops.logical_and, exists, first)
            values = w.values(self.body.roots)
            k.when(inside, lambda: self._store(k, writes, at, values))
            return
        width, local, stride = k.target.width, Index(k, k.local), strides[self.inner]
        start, count = Index(k, k.word(0)), extents[self.inner]
        if chunk is not None:
            length = Index(k, k.argument("chunk"))
            start = chunk * length
            count = (count - start).at_most(length)
        trips, inner = (count + (width - 1) - local) // width, self.inner

        def element(t: int, _: Sequence[int]) -> tuple[()]:
            i = start + Index(k, t) * width + local
            with w.frame({inner: i.id}):
                self._store(k, writes, at + i * stride, w.values(self.body.roots))
            return ()

        def elements() -> None:
            k.loop(k.word(0), trips.id, (), element)

        elements() if exists is None else k.when(exists, elements)


@dataclass(frozen=True)
class ScanProgram(StageProgram):
    """Running totals along the parallel counter ``axis``: an invocation for each part of a line.

    With ``before``, lines are in parts, and that buffer has the totals of those up to each part,
    that one among them: (parts, all other counters).

    The arguments are the body's, the extents of parallel counters, and the ``length`` of a part.
    """

    axis: int = 0
    operator: str = "add"
    reverse: bool = False
    before: bool = False

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        k, w, (written,) = self._begin(target, "scan")
        totals = k.buffer("before", "read", written.kind) if self.before else None
        extents = [Index(k, k.argument(extent_name(p))) for p in range(self.body.parallel)]
        length, count = Index(k, k.argument("length")), Index(k, k.count)
        cell = Index(k, k.cell).at_most(count - 1)
        others, counters, rest = Index(k, k.word(1)), dict[int, Index](), cell
        stride = at = Index(k, k.word(0))
        unit = Index(k, k.word(1))
        for p in reversed(range(self.body.parallel)):
            if p == self.axis:
                stride = unit
            else:
                rest, counters[p] = divmod(rest, extents[p])
                at, others = counters[p] * unit + at, others * extents[p]
            unit = unit * extents[p]
        start = rest * length
        trips = (extents[self.axis] - start).at_most(length)
        (total,) = nothing(k, self.operator, written.kind)
        if totals is not None:
            last = extents[self.axis].ceil_div(length) - 1
            part, is_first = rest - 1, rest.below(1)
            if self.reverse:
                part, is_first = rest + 1, k.add(ops.word_eq, rest.id, last.id)
            loaded = k.load(totals, (part.at_most(last) * others + (cell - rest * others)).id)
            choose = ops.where if written.kind == "f" else ops.word_where
            total = k.add(choose, is_first, total, loaded)

        def element(t: int, carried: Sequence[int]) -> Sequence[int]:
            steps = trips - 1 - Index(k, t) if self.reverse else Index(k, t)
            i = start + steps
            with w.frame({self.axis: i.id} | {p: c.id for p, c in counters.items()}):
                new = combined(k, self.operator, carried, w.values(self.body.roots))
            k.store(written, (at + i * stride).id, new[0])
            return new

        def line() -> None:
            k.loop(k.word(0), trips.id, [total], element)

        k.when(Index(k, k.cell).below(count), line)
        return k


# --- rows -----------------------------------------------------------------------------------------
# The kernel of rows: a group for each or some, or an invocation, reduces and writes them.


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
        for unit, inside in self._units_written():
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
                    for unit, _ in self._units_written():
                        w.load_at(leaf, counter, unit)

    def _terms(self) -> list[int]:
        """The terms of sums over rows, of the invocation's elements."""
        program = self.program
        roots, terms = self.body.roots[len(program.whole) :], list[int]()
        for unit, _ in self._units_written() if roots else ():
            for values in self._values(unit, self.last, roots):
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

    def _units_written(self) -> Iterator[tuple[Index, int | None]]:
        """The units of all iterations, as far as these are written out: see `_unit`."""
        count = self.program.iterations
        yield from (self._unit(self.k.word(t), t < count - 1) for t in range(count))

    def _unit(self, t: int, exists: bool = False) -> tuple[Index, int | None]:
        """A unit of the row's elements, and whether it is one, if it may lie behind the end."""
        program = self.program
        if program.alone:
            return Index(self.k, t), None
        unit = Index(self.k, t) * self.width + self.local
        if exists or not (program.ragged if program.iterations else not self.k.target.in_step):
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

        def terms(unit: Index, inside: int | None) -> Values:
            total = list[int]()
            for values in self._values(unit, r.counters[0], r.parts):
                if inside is not None:
                    values = [chosen(k, inside, v, n) for v, n in zip(values, none, strict=True)]
                total = combine(k, r, total, values) if total else values
            return total

        if self.program.iterations:
            first, *others = self._units_written()
            totals = terms(*first)
            for unit in others:
                totals = combine(k, r, totals, terms(*unit))
        else:
            totals = self.w.looped(r, self._trips, lambda t: terms(*self._unit(t)), in_blocks=True)
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

        def store(unit: Index, inside: int | None) -> tuple[()]:
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
        for unit in self._units_written():
            store(*unit)
        if not self.program.iterations:
            self.k.loop(self.k.word(0), self._trips.id, (), lambda t, _: store(*self._unit(t)))
