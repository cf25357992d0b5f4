"""Rows: arrays that are made of the same rows of others, in one kernel that goes row by row.

    m = for i { reduce j; max { x[i, j] } }
    s = for i { reduce j; add { exp(x[i, j] - m[i]) } }
    y = for i, j { exp(x[i, j] - m[i]) / s[i] }

A group of invocations reduces a row and writes its elements while the row is in a cache. What a
member reads of another one is computed from what that is made of, so that nothing is waited for but
the reductions of the row. Without reductions they are arrays of the same elements, in any order;
lanes of the CPU look numbers up, or have short sums, in them too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Final

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Read, Reduce, Scalars, rebuilt, replaced
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.body import TUPLES, Body, lanes_reduce
from symgrad.kernel.stages.one_pass import axes_of, moving
from symgrad.kernel.stages.programs import RowsProgram, extent_name
from symgrad.kernel.stages.sharing import written_out
from symgrad.kernel.stages.sizes import CHUNK_COST, ELEMENT_WIDTH, MOST_PARTS, SPLIT_TERMS
from symgrad.kernel.stages.steps import Step, numbered
from symgrad.kernel.stages.translate import Simplify, Translation
from symgrad.kernel.stages.write import BLOCK

# --- sums over all rows ---------------------------------------------------------------------------
# Sums over all rows that are computed with the rows, which are then read once.
#
#     s = for i { reduce j; add { x[i, j] * w[j] } }
#     y = for j { reduce i; add { x[i, j] * tanh(s[i]) } }
#
# A group has some rows, one after the other, and adds up the terms of each column as it goes; the
# sums of what groups have are another kernel's.


@dataclass(frozen=True, eq=False)
class ColumnSum:
    """An array whose elements are made of sums over all rows: ``terms`` are what these are of."""

    array: Tabulate
    reductions: tuple[int, ...]
    terms: tuple[int, ...]
    column: int
    """The counter of the columns."""
    outer: tuple[tuple[int, ...], ...]
    """The counters of the rows, of each reduction."""


def column_sum(
    s: Scalars,
    array: Array,
    outer: Sequence[int],
    length: int,
    members: Collection[Array],
    known: Collection[Array],
) -> ColumnSum | None:
    """An array as sums over rows of what is ``known`` or a member of the same row, if it is such.

    Rows have axes of these lengths, and a ``length`` of their own.
    """
    if not isinstance(array, Tabulate) or axes_of(array) != [length]:
        return None
    (column,), access = moving(s, array), Access(s, (array.body,), tuple(array.counters))
    reductions = tuple(access.reductions)
    inside = {i for r in reductions for i in s.walk([r])}
    others = [op.array for i, op in s.reads([array.body]) if i not in inside]
    if not reductions or not set(known).issuperset(others):
        return None
    for r in reductions:
        if not _is_over_rows(s, r, column, outer, members, known):
            return None
    counters = tuple(access.counters(r) for r in reductions)
    terms = tuple(s.args(r)[0] for r in reductions)
    return ColumnSum(array, reductions, terms, column, counters)


def _is_over_rows(
    s: Scalars,
    reduction: int,
    column: int,
    outer: Sequence[int],
    members: Collection[Array],
    known: Collection[Array],
) -> bool:
    op, (term, *more) = s.op(reduction), s.args(reduction)
    assert isinstance(op, Reduce), "a reduction"
    if op.operator != "add" or more or s.graph.type(term) != "f":
        return False
    free = {*s.free(term)}
    if [*map(s.extent, op.counters)] != [*outer] or free != {column, *op.counters}:
        return False
    if any(isinstance(s.op(i), Reduce) for i in s.walk([term])):
        return False
    reads, wanted = list(s.reads([term])), [*op.counters, column]
    for i, read in reads:
        if read.array in members:
            pairs = zip(s.args(i), read.array.shape, strict=True)
            index = [a for a, n in pairs if n > 1]
            if index != wanted[: len(index)] or len(index) < len(outer):
                return False
        elif read.array not in known:
            return False
    elements = any(axes_of(read.array) == [*outer, s.extent(column)] for _, read in reads)
    return elements and Access(s, (term,), ()).moves_along(column)


def rows_each(count: int, width: int, on_host: bool) -> int:
    """How many rows a group of so many invocations has, which leave a GPU busy."""
    if on_host:
        return min(BLOCK, max(sizes.LEAST_ROWS_EACH, -(-count // sizes.MOST_PARTS)))
    return max(sizes.LEAST_ROWS_EACH, -(-count * width // sizes.ROW_INVOCATIONS))


def are_many(outer: Sequence[int], length: int, least: int) -> bool:
    """Whether reading all rows once more takes longer than what groups leave to be added up."""
    return bool(outer) and prod(outer) * length > least and prod(outer) > length // 8


LATER: Final = 48
"""Arrays behind one, at most, that are looked at for more of the same rows."""

TOGETHER: Final = 8
"""Arrays without reductions that are computed together, at most."""

MOST_NODES: Final = 700
"""Nodes of arrays that lanes compute together, up to which one more may join them."""

FEW_ROWS: Final = 256
"""Rows up to which a GPU is sooner done with parts of long ones."""

MOST_INVOCATIONS: Final = 256
"""Invocations that have a row, at most."""

LEAST_INVOCATIONS: Final = 32
"""The fewest."""

VECTOR: Final = 4
"""Numbers that are read together, where the length of rows is a multiple of it."""

UNITS: Final = 4
"""So many times as many that are worth an invocation of their own."""

NUMBERS: Final = 32
"""Numbers of an array that an invocation keeps, at most."""

NUMBERS_IN_STEP: Final = 16
"""Vectors of sums over rows that stay in registers, at most."""

SHORT: Final = 16
"""Elements of rows that an invocation has to itself, at most."""

SHORT_IN_STEP: Final = 2
"""Elements for each lane from which a row is long enough for a vector."""


@dataclass
class Rows:
    """Arrays of the same rows: ``outer`` are the lengths of their axes, ``length`` that of a row.

    ``members`` stand behind those that they read.
    """

    scalars: Scalars
    outer: list[int]
    length: int
    lanes: int
    """The lanes of the vectors that are to reduce them, or 0 on a GPU."""
    members: list[Tabulate] = field(default_factory=list)
    read: set[Array] = field(default_factory=set)
    """The arrays that a kernel of these rows binds to read: those of a number for each element, and
    where they are ``lanewise`` all that have as many."""
    sums: list[ColumnSum] = field(default_factory=list)
    """Sums over all rows that are computed with them."""
    lanewise: bool = False
    """Whether each lane computes elements by itself: short sums are written out, none is shared."""
    bodies: dict[Array, int] = field(default_factory=dict)
    """The elements of arrays that were asked about."""
    nodes: set[int] = field(default_factory=set)
    """The nodes of those of members, where they are ``lanewise``."""

    def body(self, array: Tabulate) -> int:
        """The elements of an array."""
        if array not in self.bodies:
            whole = written_out(self.scalars, array.body) if self.lanewise else array.body
            self.bodies[array] = whole
        return self.bodies[array]

    def has_elements(self, array: Array) -> bool:
        """Whether an array has a number for each element of the rows, not one for each row."""
        return axes_of(array) == [*self.outer, self.length]

    def joins(
        self, array: Array, sources: Collection[Array], known: Collection[Array], near: bool
    ) -> bool:
        """Whether an array is one of these rows: whether it is made of them alone, or ``near``."""
        if not near or not isinstance(array, Tabulate):
            return False
        if not all(a in known or a in self.members for a in sources):
            return False
        if not self.has_elements(array) and (self.lanewise or axes_of(array) != self.outer):
            return False
        return self._is_by_rows(array)

    def is_near(self, sources: Collection[Array]) -> bool:
        """Whether members, or elements that they read, are among the sources."""
        return any(a in self.members or a in self.read for a in sources)

    def _is_by_rows(self, array: Tabulate) -> bool:
        """Whether reductions are over rows, and reads of members in the same row."""
        s, own = self.scalars, moving(self.scalars, array)
        outer, along = own[: len(self.outer)], {*own[len(self.outer) :]}
        body = self.body(array)
        for i in s.walk([body]):
            if isinstance(op := s.op(i), Reduce) and op.counters:
                if self.lanewise or not self._is_of_row(i, op, outer):
                    return False
                along |= {*op.counters}
        access = Access(s, (body,), ())
        if not all(access.moves_along(c, self.lanewise) for c in along):
            return False
        return all(
            op.array not in self.members or self._is_in_row(i, op.array, outer, along)
            for i, op in s.reads([body])
        )

    def _is_of_row(self, reduction: int, op: Reduce, outer: Sequence[int]) -> bool:
        """Whether a reduction is over a row, of arrays of which each row has its own elements."""
        s, parts = self.scalars, self.scalars.args(reduction)
        if [*map(s.extent, op.counters)] != [self.length] or not s.free(reduction) <= {*outer}:
            return False
        is_known = lanes_reduce(op.operator, "".join(map(s.graph.type, parts)))
        if op.operator in TUPLES or (self.lanes and not is_known):
            return False
        return any(self.has_elements(read.array) for _, read in s.reads(parts))

    def _is_in_row(
        self, read: int, array: Array, outer: Sequence[int], along: Collection[int]
    ) -> bool:
        index = self.index(read, array)
        if index[: len(outer)] != [*outer]:
            return False
        return not self.has_elements(array) or index[-1] in along

    def index(self, read: int, array: Array) -> list[int]:
        """The indices of a read along axes that have more than one element."""
        args = self.scalars.args(read)
        return [a for a, n in zip(args, array.shape, strict=True) if n > 1]

    def add(self, array: Tabulate, sources: Collection[Array]) -> None:
        """Take an array in that joins."""
        self.members.append(array)
        if self.lanewise:
            self.nodes.update(self.scalars.walk([self.body(array)]))
        long = self.length if self.lanewise else inf
        self.read |= {a for a in sources if self.has_elements(a) or a.size >= long}

    @property
    def is_full(self) -> bool:
        """Whether there are as many as a kernel of lanes is to have."""
        return len(self.nodes) > MOST_NODES

    @property
    def arrays(self) -> list[Tabulate]:
        """All arrays that are computed."""
        return [*self.members, *(c.array for c in self.sums)]

    @property
    def many(self) -> int:
        """The numbers that an invocation reads together."""
        return 1 if self.lanes or self.length % VECTOR else VECTOR

    @property
    def is_short(self) -> bool:
        """Whether an invocation has a row to itself."""
        if self.lanes:
            return self.length < SHORT_IN_STEP * self.lanes <= SHORT_IN_STEP * prod(self.outer)
        return self.length <= SHORT

    @property
    def width(self) -> int:
        """The invocations that have a row."""
        if self.is_short or self.lanes:
            return self.lanes or 1
        units = self.length // self.many
        wanted = 1 << max(-(-units // UNITS) - 1, 0).bit_length()
        return min(MOST_INVOCATIONS, max(LEAST_INVOCATIONS, wanted))

    @property
    def iterations(self) -> int:
        """How many units of a row an invocation has."""
        return -(-self.length // self.many // self.width)

    def add_sums(self, later: Sequence[Array], known: Collection[Array]) -> None:
        """Take in sums over all rows, as many as an invocation can add up beside the rows."""
        least = sizes.ROW_READS if self.lanes else sizes.BESIDE_READS
        if self.is_short or not are_many(self.outer, self.length, least):
            return
        if self.lanes and self.length % self.lanes and any(map(self.has_elements, self.members)):
            return  # to write rows whose last vector is cut costs more than to read them again
        room = (NUMBERS_IN_STEP if self.lanes else NUMBERS) // (self.iterations * self.many)
        for array in later:
            if array in self.members:
                continue
            one = column_sum(
                self.scalars, array, self.outer, self.length, self.members, known
            )  # fmt: skip
            near = one and any(
                op.array in self.read or op.array in self.members
                for _, op in self.scalars.reads(one.terms)
                if self.has_elements(op.array)
            )
            if one and near and len(one.terms) <= room:
                self.sums.append(one)
                room -= len(one.terms)

    @property
    def are_worth_it(self) -> bool:
        """Whether they are sooner done together."""
        if self.reduces:
            return bool(self.outer) and not self._are_few
        fits = self.lanewise or len(self.members) <= TOGETHER
        return fits and all(map(self.has_elements, self.members))

    @property
    def _are_few(self) -> bool:
        """Whether reductions are sooner done in parts: there are few rows, which are long."""
        count = prod(self.outer)
        if self.lanes:
            return count < MOST_PARTS and count * self.length > MOST_PARTS * CHUNK_COST
        return count < FEW_ROWS and self.length >= SPLIT_TERMS

    @property
    def reduces(self) -> bool:
        """Whether a member has a reduction."""
        s = self.scalars
        bodies = [self.body(a) for a in self.members]
        return any(isinstance(s.op(i), Reduce) for i in s.walk(bodies))


def rows_of(
    s: Scalars,
    array: Array,
    later: Sequence[Array],
    sources: Mapping[Array, Collection[Array]],
    known: Collection[Array],
    target: Target,
    stored_of: Callable[[Sequence[Array]], Collection[Array]],
) -> Rows | None:
    """The rows of an array, with those of later arrays that are computed beside them, if any are.

    All else that they read is ``known``; ``sources`` are what arrays read, and ``stored_of`` says
    which arrays of a group others read.
    """
    best: Rows | None = None
    for rows in _rows_like(s, array, target.width if target.in_step else 0):
        if rows.joins(array, sources[array], known, near=True):
            assert isinstance(array, Tabulate), "an array by its elements"
            rows.add(array, sources[array])
            together = _gathered(rows, later, sources, known, target, stored_of)
            if together and together.reduces:
                return together
            if together and (best is None or len(best.members) < len(together.members)):
                best = together
    return best


def _gathered(
    rows: Rows,
    later: Sequence[Array],
    sources: Mapping[Array, Collection[Array]],
    known: Collection[Array],
    target: Target,
    stored_of: Callable[[Sequence[Array]], Collection[Array]],
) -> Rows | None:
    """Rows that have a member, with others that join it, if any do."""
    near = [a for a in later[:LATER] if rows.is_near(sources[a])]
    for other in later[:LATER]:
        # a number of a row is near where elements are made of it
        numbers = () if rows.has_elements(other) else near
        is_near = rows.is_near(sources[other]) or any(other in sources[a] for a in numbers)
        if rows.joins(other, sources[other], known, is_near):
            assert isinstance(other, Tabulate), "an array by its elements"
            rows.add(other, sources[other])
            if rows.is_full:
                break
    while len(rows.members) > 1 and not _fits(rows, sources, stored_of, target):
        rows.members.pop()
    if not rows.are_worth_it:
        return None
    if rows.reduces:
        rows.add_sums(later[:LATER], known)
    while rows.sums and not _fits(rows, sources, stored_of, target):
        rows.sums.pop()
    together = rows.arrays if rows.lanes else rows.members  # of one alone groups read long rows
    return rows if len(together) > 1 else None


def _fits(
    rows: Rows,
    sources: Mapping[Array, Collection[Array]],
    stored_of: Callable[[Sequence[Array]], Collection[Array]],
    target: Target,
) -> bool:
    """Whether a kernel binds all arrays that rows are read from and written to."""
    if target.bindings is None:
        return True
    read = {a for m in rows.members for a in sources[m]}
    read |= {op.array for c in rows.sums for _, op in rows.scalars.reads(c.terms)}
    stored = [a for a in stored_of(rows.arrays) if a in rows.members]
    terms = sum(len(c.terms) for c in rows.sums)
    return len(read.difference(rows.members)) + len(stored) + terms <= target.bindings


def _rows_like(s: Scalars, array: Array, lanes: int) -> Iterator[Rows]:
    """Rows of which an array may be one, still without members."""
    axes = axes_of(array)
    if not isinstance(array, Tabulate) or not axes:
        return
    own = moving(s, array)
    reductions = [i for i in s.walk([array.body]) if isinstance(s.op(i), Reduce)]
    if all(s.free(r) <= {*own[:-1]} for r in reductions):
        yield Rows(s, axes[:-1], axes[-1], lanes)
    else:
        op = s.op(reductions[0])
        assert isinstance(op, Reduce), "a reduction"
        if op.counters:
            yield Rows(s, axes, s.extent(op.counters[0]), lanes)
    if lanes:
        yield Rows(s, axes[:-1], axes[-1], lanes, lanewise=True)


class RowElements:
    """The elements of rows, by counters of their own and what no member is.

    Of the members those that are ``stored`` are written to memory. Reductions that wait for as many
    others, one after the other, have the same counter.
    """

    def __init__(self, rows: Rows, stored: Collection[Array]) -> None:
        self.rows, s = rows, rows.scalars
        self.outer, self.inner = [*map(s.counter, rows.outer)], s.counter(rows.length)
        self.counters: list[int] = []
        self.depths: dict[int, int] = {}
        """By reductions, how many wait for each other."""
        self.roots: dict[Array, int] = {}
        for array in rows.members:
            own = moving(s, array)
            ids = dict(zip(own, [*self.outer, self.inner][: len(own)], strict=True))
            self.roots[array] = self._root(rows.body(array), ids)
        self.writes = [a for a in rows.members if a in stored]
        roots = [self.roots[a] for a in self.writes]
        for c in rows.sums:
            for term, counters in zip(c.terms, c.outer, strict=True):
                ids = dict(zip(counters, self.outer, strict=True)) | {c.column: self.inner}
                roots.append(self._root(term, ids))
        self.access = Access(s, tuple(roots), (*self.outer, self.inner))
        count = prod(rows.outer)
        self._each = rows_each(count, rows.width, bool(rows.lanes)) if rows.sums else 1
        self.groups = -(-count // self._each)
        shape = self.groups, rows.length
        self.parts = [[Array(shape=shape) for _ in c.terms] for c in rows.sums]
        """The sums of each group's rows."""

    def _root(self, root: int, ids: dict[int, int]) -> int:
        """A scalar, of what no member is, and by the counters that are known."""
        s = self.rows.scalars
        for i in s.walk([root]):
            if i in ids:
                continue
            op = s.op(i)
            if isinstance(op, Read) and op.array in self.roots:
                last = self.rows.index(i, op.array)[-1]
                ids[i] = self._element(op.array, ids.get(last, last))
            elif isinstance(op, Reduce) and op.counters:
                ids[i] = self._reduction(op, [ids.get(a, a) for a in s.args(i)])
            else:
                ids[i] = rebuilt(s, i, ids)
        return ids[root]

    def _element(self, array: Array, last: int) -> int:
        """An element of a member whose root is known, at the last index."""
        root = self.roots[array]
        if not self.rows.has_elements(array) or last == self.inner:
            return root
        return replaced(self.rows.scalars, root, {self.inner: last})

    def _reduction(self, op: Reduce, parts: Sequence[int]) -> int:
        s = self.rows.scalars
        depth = max((self.depths[i] + 1 for i in s.walk(parts) if i in self.depths), default=0)
        if depth == len(self.counters):
            self.counters.append(s.counter(self.rows.length))
        counter = self.counters[depth]
        moved = [replaced(s, p, {op.counters[0]: counter}) for p in parts]
        new = s.reduction(op.operator, [counter], *moved)
        self.depths[new] = depth
        return new

    def step(self, t: Translation, target: Target, simplify: Simplify) -> Step:
        """The step that computes them."""
        body = t.body(t.values(self.access.roots), simplify)
        program, target = self._program(body, t.sources, target)
        rows = prod(self.rows.outer)
        lengths = enumerate([*self.rows.outer, self.rows.length])
        words = [(extent_name(p), n) for p, n in lengths]
        groups = 0 if program.alone else self.groups
        count = groups * target.width or rows
        if not target.in_step:
            target = target.in_grid(groups or -(-rows // target.width))
            words += [("total", groups)] if target.grid and groups else []
        if self.parts:
            words += [("rows", rows), ("each", self._each)]
        parts = (a for some in self.parts for a in some)
        reads, writes = numbered("a", t.sources), numbered("y", [*self.writes, *parts])
        return Step(
            program, target, reads, writes, count, groups, (*words, *t.words), f"{rows} rows"
        )  # fmt: skip

    def _program(
        self, body: Body, sources: Sequence[Array], target: Target
    ) -> tuple[RowsProgram, Target]:
        """The program, and the groups for it."""
        rows, length = self.rows, self.rows.length
        whole = tuple(not rows.has_elements(a) for a in self.writes)
        many, width, iterations = rows.many, rows.width, rows.iterations
        units, alone = length // many, rows.is_short
        stays = bool(self.parts) if target.in_step else iterations * many <= NUMBERS
        vectors = {n for n, a in enumerate(sources) if many > 1 and self._stands_in_rows(a)}
        program = RowsProgram(
            body, whole=whole, many=many, iterations=iterations * stays, alone=alone,
            ragged=not stays or iterations * width != units, vectors=frozenset(vectors),
            sums=sum(map(len, self.parts)),
        )  # fmt: skip
        if target.in_step:
            return program, target
        return program, target.of_width(ELEMENT_WIDTH if alone else width)

    def _stands_in_rows(self, array: Array) -> bool:
        """Whether an array of floats is read at elements of rows alone, which are its last axis."""
        s, along = self.rows.scalars, {self.inner, *self.counters}
        reads = [i for i, op in s.reads(self.access.roots) if op.array is array]
        return (
            array.kind == "f"
            and array.shape[-1:] == (self.rows.length,)
            and bool(reads)
            and all(s.args(i)[-1] in along for i in reads)
        )
