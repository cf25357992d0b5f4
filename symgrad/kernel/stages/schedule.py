"""How arrays of a program are computed: by which kernels, over how many groups, in what steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from symgrad.arrays.program import Scan, Scatter, Tabulate
from symgrad.arrays.scalars import Array, Reduce, Scalars, replaced
from symgrad.expr import ops
from symgrad.expr.graph.node import reachable
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Program
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access, Lanes
from symgrad.kernel.stages.matrix_products import Products
from symgrad.kernel.stages.one_pass import (
    Pass,
    PassProgram,
    finishing,
    flat_reads,
    one_pass,
    pass_length,
    roots_of,
)
from symgrad.kernel.stages.programs import ElementProgram, RowProgram, ScanProgram, extent_name
from symgrad.kernel.stages.rows import RowElements, Rows
from symgrad.kernel.stages.segments import (
    Segments,
    SortStep,
    gathered,
    is_list,
    listed,
    segments_of,
    summed,
)
from symgrad.kernel.stages.sharing import (
    alike,
    along_short,
    in_rows,
    joint,
    merged,
    neighbours,
    unrolled,
)
from symgrad.kernel.stages.steps import (
    AnyStep,
    Repeated,
    ScanStep,
    ScatterStep,
    Step,
    numbered,
    widths,
)
from symgrad.kernel.stages.translate import Share, Simplify, Translation


class Scheduler:
    """Chooses kernels for a target, for arrays of one program."""

    def __init__(self, scalars: Scalars, target: Target, simplify: Simplify) -> None:
        self.scalars, self.target, self.simplify = scalars, target, simplify
        self.lanes = Lanes(scalars, target)
        self.products = Products(scalars, target, simplify, self.tabulated, self._reduced)
        self._packs: dict[Array, tuple[Array, int]] = {}
        """Arrays that stand in others too, and from which number on."""
        self._repeated = Repeated(scalars, self._packs)

    def beside(self, array: Array, later: Sequence[Array]) -> Pass | None:
        """The later arrays that are computed in one pass with the sums of an array, if any are."""
        if not isinstance(array, Tabulate):
            return None
        access = Access.of(self.scalars, array)
        return one_pass(self.scalars, access, later, self.target.bindings)

    def alike(
        self, array: Array, later: Sequence[Array], known: Collection[Array]
    ) -> Sequence[Tabulate]:
        """The later arrays that are computed with an array, as sums over the same counters.

        All that they read is ``known``.
        """
        if self.target.in_step or self.is_product(array):
            return ()
        return alike(self.scalars, array, later, known, self.target.bindings or 0)

    def finishing(
        self,
        arrays: Sequence[Array],
        readers: Mapping[Array, Sequence[Array]],
        known: Collection[Array],
    ) -> Sequence[Tabulate]:
        """Arrays that read some, by whom these are read, and are computed by their kernel.

        On the host they are computed apart, in all lanes.
        """
        array, *others = arrays
        if self.target.in_step or not isinstance(array, Tabulate):
            return ()
        access = Access.of(self.scalars, array)
        if not access.reductions:
            return ()
        if product := self.products.of(access):
            more = finishing(self.scalars, [array], readers, known, sizes.WRITTEN)
            while more:
                elements = roots_of(self.scalars, [array], more).items()
                if self.products.ending(access, product, elements):
                    break
                more.pop()
            return more
        if not others and along_short(self.scalars, access) != access:
            return ()
        sums = [a for a in arrays if isinstance(a, Tabulate)]
        return finishing(self.scalars, sums, readers, known, sizes.WRITTEN - 1)

    def by_rows(self, rows: Rows, stored: Collection[Array]) -> Iterable[AnyStep]:
        """The steps that compute rows, of which some arrays are stored."""
        what, make = ("rows", len(rows.members)), partial(self._by_rows, rows, stored)
        return self._repeated.steps(what, rows.arrays, stored, make)

    def _by_rows(self, rows: Rows, stored: Collection[Array]) -> Iterator[AnyStep]:
        elements = RowElements(rows, stored)
        written = len(elements.writes) + sum(map(len, elements.parts))
        yield from self._packed(elements.access, written)
        if not rows.reduces:
            yield self._whole(elements.writes, elements.access)
            return
        yield elements.step(self._translation(elements.access), self.target, self.simplify)
        for c, parts in zip(rows.sums, elements.parts, strict=True):
            access = Access(self.scalars, (c.array.body,), (c.column,))
            yield self._joined([c.array], access, [[part] for part in parts], elements.groups)

    def steps(
        self,
        array: Array,
        beside: Pass | None = None,
        others: Sequence[Tabulate] = (),
        finishing: Sequence[Tabulate] = (),
        stored: Collection[Array] = (),
    ) -> Iterable[AnyStep]:
        """The steps that compute an array, and those beside it; others are made between them.

        Of an array, the ``others`` that are like it, and those that finish them only what is
        ``stored`` is written to memory.
        """
        arrays = array, *(beside.others if beside else ()), *others, *finishing
        what = beside is not None, len(others), len(finishing)
        make = partial(self._steps, array, beside, others, finishing, stored)
        return self._repeated.steps(what, arrays, stored, make)

    def _steps(
        self,
        array: Array,
        beside: Pass | None,
        others: Sequence[Tabulate],
        finishing: Sequence[Tabulate],
        stored: Collection[Array],
    ) -> Iterator[AnyStep]:
        match array:
            case Tabulate() if beside is not None:
                yield from self._passed(array, Access.of(self.scalars, array), beside)
            case Tabulate() if others or finishing:
                elements = roots_of(self.scalars, [array, *others], finishing)
                known = {a: root for a, root in elements.items() if a in stored}
                access = Access.of(self.scalars, array)
                if not others and (product := self.products.of(access)):
                    yield from self.products.steps(array, access, product, known.items())
                    return
                yield from self._reduced(*joint(self.scalars, known, array, bool(others)))
            case Tabulate(counters=counters, body=body):
                yield from self.tabulated(array, counters, body)
            case Scatter() if self.target.in_step and is_list(self.scalars, array):
                parts = listed(self.scalars, array)
                for part in parts:
                    yield from self.tabulated(part, part.counters, part.body)
                yield ScatterStep(array, parts)
            case Scatter():
                segments = None if self.target.in_step else segments_of(self.scalars, array)
                if segments is None:
                    yield from self.tabulated(array, *gathered(self.scalars, array))
                else:
                    yield from self._by_segments(segments)
            case Scan():
                yield from self._scanned(array)
            case _:
                raise AssertionError(f"{type(array).__name__} is not scheduled")

    def _by_segments(self, segments: Segments) -> Iterator[AnyStep]:
        """The steps of a scatter whose terms are sorted by where they go."""
        scatter, s = segments.scatter, self.scalars
        places, values = segments.listed(s)
        for part in (*places, values):
            yield from self.tabulated(part, part.counters, part.body)
        axes = [*segments.looked_up, *segments.inner]
        in_order = axes == sorted(axes)
        sums = scatter if in_order else Array(shape=tuple(scatter.shape[k] for k in axes))
        sort = SortStep(segments, places)
        yield sort
        yield from summed(segments, values, sort, sums)
        if not in_order:
            counters = list(map(s.counter, scatter.shape))
            body = s.read(sums, [s.plus(counters[k]) for k in axes])
            yield from self.tabulated(scatter, counters, body)

    # tabulation ----------------------------------------------------------------------------------

    def tabulated(self, array: Array, counters: Sequence[int], body: int) -> Iterator[AnyStep]:
        """The steps that compute an array whose elements are the body."""
        access = Access(self.scalars, (body,), tuple(counters))
        product = self.products.of(access)
        if product is not None:
            yield from self.products.steps(array, access, product)
        else:
            access = along_short(self.scalars, access)
            yield from self._reduced([array] * len(access.roots), access)

    def is_product(self, array: Array) -> bool:
        """Whether an array is a product of matrices that is done by tiles or a BLAS."""
        is_array = isinstance(array, Tabulate)
        return is_array and self.products.of(Access.of(self.scalars, array)) is not None

    def _reduced(self, arrays: Sequence[Array], access: Access) -> Iterator[AnyStep]:
        """The steps that compute arrays of the same elements, whose scalars are the roots."""
        roots = unrolled(self.scalars, access.roots)
        roots = roots if self.target.in_step else merged(self.scalars, roots)
        access = Access(self.scalars, roots, access.moving)
        yield from self._packed(access)
        share = None if self.lanes.has_neighbours(access) else self.lanes.share(access)
        if share is None:
            yield self._whole(arrays, access)
        else:
            yield from self._in_parts(arrays, access, share)

    # many arrays ---------------------------------------------------------------------------------

    def _translation(self, access: Access, share: Share | None = None) -> Translation:
        return Translation(self.scalars, access.parallel, share, self._packs)

    def _packed(self, access: Access, written: int = 0) -> Iterator[Step]:
        """The steps that copy small arrays into one, where a kernel would bind too many.

        It has so many arrays ``written`` besides, if that is known.
        """
        bindings = self.target.bindings
        if not written:
            written = max(sizes.WRITTEN, len(access.reductions)) if access.reductions else 1
        while bindings is not None:
            read = dict.fromkeys(op.array for _, op in self.scalars.reads(access.roots))
            homes = list(dict.fromkeys(map(self._home, read)))
            floats = sorted((a for a in homes if a.kind == "f"), key=lambda a: a.size)
            most = bindings - written
            if len(homes) <= most or len(floats) < 2:
                return
            yield self._pack(floats[: min(len(homes) - most + 1, bindings - 1)])

    def _home(self, array: Array) -> Array:
        """The array that one is read from."""
        while array in self._packs:
            array, _ = self._packs[array]
        return array

    def _pack(self, arrays: Sequence[Array]) -> Step:
        """The step that copies arrays into one, one behind the other."""
        pack = Array(shape=(sum(a.size for a in arrays),))
        counter = self.scalars.counter(pack.size)
        access = Access(self.scalars, (counter,), (counter,))
        t, first = self._translation(access), pack.size
        (at,) = t.values([counter])
        value: int | None = None
        for a in reversed(arrays):
            end, first = t.word(first), first - a.size
            place = t.graph.add(ops.word_sub, at, t.word(first))
            place = t.graph.add(ops.word_min, place, t.word(a.size - 1))
            x, inside = t.element(a, "f", place), t.graph.add(ops.word_lt, at, end)
            value = x if value is None else t.graph.add(ops.where, inside, x, value)
        assert value is not None, "there are arrays"
        step = self._elements(access, t, [value], [pack])
        first = 0
        for a in arrays:
            self._packs[a] = pack, first
            first += a.size
        return step

    # tabulated arrays ----------------------------------------------------------------------------

    def _whole(self, arrays: Sequence[Array], access: Access) -> Step:
        """The step that computes arrays of the same elements, with no other one before it."""
        if self.target.in_step:
            t = self._translation(access)
            inner, lanes = self.lanes.along(access)
            return self._rows(access, t, t.values(access.roots), arrays, inner, lanes)
        flat = self._flat(arrays, access)
        if flat is not None:
            return flat
        inner = self.lanes.row_counter(access)
        if inner is None and not self.lanes.is_shared(access):
            fours, t = self._in_fours(arrays, access), self._translation(access)
            return fours or self._elements(access, t, t.values(access.roots), arrays)
        lanes = self.lanes.shared(access, inner)
        if self.lanes.has_neighbours(access):
            t = self._translation(access)
            roots = t.values(access.roots)
            return self._rows(access, t, roots, arrays, None, lanes, beside=sizes.BESIDE)
        if inner is None:
            arrays, access = in_rows(self.scalars, arrays, access, lanes)
        t = self._translation(access)
        return self._rows(access, t, t.values(access.roots), arrays, inner, lanes)

    def _flat(self, arrays: Sequence[Array], access: Access) -> Step | None:
        """The step that computes elements, each from those of the same index of other arrays."""
        reads = flat_reads(self.scalars, access.roots, access.parallel)
        if reads is None or len({*arrays}) < len(arrays) or len(access.moving) < 2:
            return None
        if self._have_fours(access.roots, access.size, arrays):
            flat, t, values = self._fours_in_order(access.size, reads, access.roots)
            writes = [a for a in arrays for _ in range(sizes.FOUR)]
            return self._elements(flat, t, values, writes, quads=True)
        flat, t, known = self._in_order(access.size, reads)
        return self._elements(flat, t, t.values(access.roots, known), arrays)

    def _have_fours(self, roots: Sequence[int], size: int, arrays: Sequence[Array]) -> bool:
        """Whether there are so many elements, floats of floats, that an invocation has four."""
        read = [op.array for _, op in self.scalars.reads(roots)]
        return (
            size >= sizes.FOURS
            and not size % sizes.FOUR
            and not self.target.in_step
            and self.target.itemsize == sizes.FLOAT_BYTES
            and all(a.kind == "f" for a in (*read, *arrays))
            and not any(a in self._packs for a in read)
        )

    def _fours_in_order(
        self, size: int, reads: Sequence[int], roots: Sequence[int]
    ) -> tuple[Access, Translation, list[int]]:
        """As `_in_order`, fours by their index alone, and scalars of these, four of each."""
        fours = self.scalars.counter(size // sizes.FOUR)
        flat = Access(self.scalars, (), (fours,))
        t = self._translation(flat)
        (four,) = t.values([fours])
        return flat, t, [node for root in roots for node in t.four_of(root, reads, four)]

    def _in_fours(self, arrays: Sequence[Array], access: Access) -> Step | None:
        """The step in which an invocation has four neighbours, which are read in fours as well."""
        s = self.scalars
        many = self._have_fours(access.roots, access.size, arrays) and not access.reductions
        if not many or len({*arrays}) < len(arrays) or s.extent(access.parallel[-1]) % sizes.FOUR:
            return None
        writes, access = neighbours(s, arrays, access, sizes.FOUR)
        t = Translation(s, access.parallel, None, self._packs, in_fours=True)
        values = t.values(access.roots)
        most = self.target.bindings
        if most is not None and len(t.sources) + len(arrays) > most:
            return None
        return self._elements(access, t, values, writes, quads=True)

    def _in_order(
        self, size: int, reads: Iterable[int]
    ) -> tuple[Access, Translation, dict[int, int]]:
        """Elements by a flat index alone, their translation, and in it reads at that index."""
        counter = self.scalars.counter(size)
        flat = Access(self.scalars, (), (counter,))
        t = self._translation(flat)
        (at,) = t.values([counter])
        return flat, t, {i: t.read_at(i, at) for i in reads}

    def _elements(
        self,
        access: Access,
        t: Translation,
        roots: Sequence[int],
        writes: Sequence[Array],
        parts: int = 0,
        quads: bool = False,
    ) -> Step:
        """An invocation for each element, or for each of the ``parts`` of its reductions.

        It may have elements side by side, which are written in ``quads``.
        """
        size = max(access.size, 1) * max(parts, 1)
        body = t.body(roots, self.simplify, None if self.target.in_step else {})
        program = ElementProgram(body, widths=widths(writes), quads=quads)
        target = self.target.of_width(sizes.ELEMENT_WIDTH).in_grid(-(-size // sizes.ELEMENT_WIDTH))
        extents = [n for _, n in self._extents(access)]
        words = [(extent_name(p + bool(parts)), n) for p, n in enumerate(extents)]
        words = [*(words if parts else words[1:]), *t.words]
        title = f"{size * (sizes.FOUR if quads else 1)} elements"
        return self._step(program, target, t, writes, size, 0, words, title)

    def _rows(
        self,
        access: Access,
        t: Translation,
        roots: Sequence[int],
        writes: Sequence[Array],
        inner: int | None,
        lanes: Collection[int],
        parts: int = 0,
        beside: int = 1,
    ) -> Step:
        """A group for each row, which deals out counters of reductions, those in ``lanes``.

        The first parallel counter may be that of ``parts`` of reductions: see `Share`. A group may
        have so many rows ``beside`` each other.
        """
        best: dict[int, set[int | None]] = {}
        for r, n in zip(access.reductions, t.loops_of(access.reductions), strict=True):
            best.setdefault(n, set()).add(self.lanes.best(r))
        alike = {n: c for n, (c, *others) in best.items() if not others}
        dealt = {(n, t.number(c)) for n, c in alike.items() if c is not None and c in lanes}
        rows = access.extent([c for c in access.parallel if c != inner]) * max(parts, 1)
        if beside > 1:
            last = self.scalars.extent(access.parallel[-1])
            rows = rows // last * -(-last // beside)
        words = [(extent_name(0), parts)] if parts else []
        words += [
            (extent_name(len(words) + p), n) for p, (_, n) in enumerate(self._extents(access))
        ]
        chunks = 1
        if inner is not None:
            extent = self.scalars.extent(inner)
            length = extent if parts else self.lanes.chunk(access, inner, rows)
            chunks = -(-extent // length)
            words += [("chunks", chunks), ("chunk", length)]
        number = None if inner is None else access.parallel.index(inner) + bool(parts)
        groups, target, among = rows * chunks, self.target, None
        if not target.in_step:
            width = sizes.GROUP_WIDTH if beside == 1 else sizes.ELEMENT_WIDTH
            target = target.of_width(width).in_grid(groups)
            words += [("total", groups)] if target.grid else []
            among = dict.fromkeys((n for n, _ in dealt), width // beside)
        body = t.body(roots, self.simplify, among)
        dealt_out, side = tuple(sorted(dealt)), widths(writes)
        chunked = inner is not None
        program = RowProgram(body, number, dealt_out, chunked, beside, widths=side)
        words += t.words
        count, title = groups * target.width, f"{groups} groups"
        return self._step(program, target, t, writes, count, groups, words, title)

    @staticmethod
    def _step(
        program: Program,
        target: Target,
        t: Translation,
        writes: Sequence[Array],
        count: int,
        groups: int,
        words: Sequence[tuple[str, int]],
        title: str,
    ) -> Step:
        reads, written = numbered("a", t.sources), numbered("y", dict.fromkeys(writes))
        return Step(program, target, reads, written, count, groups, tuple(words), title)

    def _extents(self, access: Access) -> list[tuple[str, int]]:
        return [(extent_name(p), self.scalars.extent(c)) for p, c in enumerate(access.parallel)]

    # reductions in parts -------------------------------------------------------------------------

    def _in_parts(self, arrays: Sequence[Array], access: Access, share: Share) -> Iterator[AnyStep]:
        """The sums of parts of the range, and the sums of these."""
        s, reductions = self.scalars, access.reductions
        extent = s.extent(share.counter)
        count = -(-extent // share.length)
        kinds = [[s.graph.type(a) for a in s.args(r)] for r in reductions]
        shape = (count, *map(s.extent, access.parallel))
        parts = [[Array(shape=shape, kind=kind) for kind in some] for some in kinds]
        yield self._partial(access, share, count, [a for some in parts for a in some])
        yield self._joined(arrays, access, parts, count)

    def _partial(self, access: Access, share: Share, count: int, parts: Sequence[Array]) -> Step:
        """The step that reduces parts of the range."""
        t = self._translation(access, share)
        t.values(access.reductions)
        roots = t.totals(access.reductions)
        if self.target.in_step:
            inner, lanes = self.lanes.along(access)
        elif self.lanes.is_across(access):
            return self._elements(access, t, roots, parts, count)
        else:
            inner, lanes = None, self.lanes.shared(access, None)
        return self._rows(access, t, roots, parts, inner, lanes, count)

    def _joined(
        self,
        arrays: Sequence[Array],
        access: Access,
        parts: Sequence[Sequence[Array]],
        count: int,
    ) -> Step:
        """The step that reduces what parts have given, and makes elements of it."""
        s = self.scalars
        part = s.counter(count)
        index = [part, *access.parallel]
        stored: dict[int, int] = {}
        for r, some in zip(access.reductions, parts, strict=True):
            op = s.op(r)
            assert isinstance(op, Reduce), "a reduction"
            totals = [s.read(a, index) for a in some]
            stored[r] = s.reduction(op.operator, [part], *totals) if count > 1 else totals[0]
        roots = tuple(replaced(s, root, stored) for root in access.roots)
        return self._whole(arrays, Access(s, roots, access.parallel))

    def _passed(self, array: Array, access: Access, beside: Pass) -> Iterator[Step]:
        """The sums of parts with the arrays beside them, and the sums of these."""
        s, size, target = self.scalars, beside.size, self.target
        terms = [a for r in beside.reductions for a in s.args(r)]
        roots = [*terms, *(a.body for a in beside.others)]
        quads = self._have_fours(roots, size, beside.others)
        if quads:
            _, t, nodes = self._fours_in_order(size, beside.reads, roots)
        else:
            _, t, known = self._in_order(size, beside.reads)
            nodes = t.values(roots, known)
        program = PassProgram(
            t.body(nodes, self.simplify), beside.operators, size >= sizes.LONG,
            widths=(sizes.FOUR,) * len(roots) if quads else (), quads=quads,
        )  # fmt: skip
        cost = sum(t.graph.nodes[i][0].cost for i in reachable(t.graph, nodes))
        length = pass_length(self.target, size, cost)
        count = -(-size // length)
        if quads:
            size, length = size // sizes.FOUR, length // sizes.FOUR
        if not target.in_step:
            target = target.of_width(sizes.ELEMENT_WIDTH).in_grid(count)
        words = [("size", size), ("length", length)]
        words += [("total", count)] if target.grid else []
        parts = [
            [Array(shape=(count, *array.shape), kind=s.graph.type(a)) for a in s.args(r)]
            for r in beside.reductions
        ]
        writes = [*(a for some in parts for a in some), *beside.others]
        title = f"{count} groups in one pass"
        yield self._step(
            program, target, t, writes, count * target.width, count, [*words, *t.words], title
        )
        yield self._joined([array], access, parts, count)

    # scans ---------------------------------------------------------------------------------------

    def _scanned(self, array: Scan) -> Iterator[AnyStep]:
        """Lines one after the other, in parts where there are few of them."""
        s, access = self.scalars, Access(self.scalars, (array.body,), array.counters)
        if self.target.in_step:
            elements = Tabulate(
                shape=array.shape, kind=array.kind, counters=array.counters, body=array.body
            )
            yield from self.tabulated(elements, array.counters, array.body)
            yield ScanStep(array, elements)
            return
        yield from self._packed(access)
        axis = array.counters[array.axis]
        extent, others = s.extent(axis), access.size // max(1, s.extent(axis))
        length = min(extent, max(sizes.SCAN_LENGTH, extent * others // sizes.FEW_ELEMENTS))
        parts, before = -(-extent // length), list[Array]()
        if parts > 1:
            outer = tuple(c for c in array.counters if c != axis)
            reduced = s.reduction(array.operator, [axis], array.body)
            shape = (parts, *(s.extent(c) for c in outer))
            totals = Array(shape=shape, kind=array.kind)
            inner = Access(s, (reduced,), outer)
            yield self._partial(inner, Share(axis, length), parts, [totals])
            index = tuple(map(s.counter, shape))
            running = Scan(
                shape=shape, kind=array.kind, counters=index, body=s.read(totals, index),
                axis=0, operator=array.operator, reverse=array.reverse,
            )  # fmt: skip
            yield from self._scanned(running)
            before.append(running)
        t = self._translation(access)
        body = t.body(t.values(access.roots), self.simplify)
        program = ScanProgram(body, array.axis, array.operator, array.reverse, bool(before))
        count = others * parts
        target = self.target.of_width(sizes.SCAN_WIDTH).in_grid(-(-count // sizes.SCAN_WIDTH))
        words = *self._extents(access), ("length", length), *t.words
        reads = *numbered("a", t.sources), *(("before", a) for a in before)
        written, title = numbered("y", [array]), f"{count} parts of lines"
        yield Step(program, target, reads, written, count, 0, words, title)
