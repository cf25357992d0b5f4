"""The kernels of stages: a group for each row of an index space, or an invocation for each element.

A group has a row: all elements whose outer counters are the same. It reduces what belongs to the
row together, and deals out the row's elements. Where the inner counter is none, a row is one
element. In the lanes of a vector this is the only way, as counters of a group are single numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.stages.body import Body
from symgrad.kernel.stages.combine import combined, nothing
from symgrad.kernel.stages.sizes import FOUR
from symgrad.kernel.stages.write import Values, Writer


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
