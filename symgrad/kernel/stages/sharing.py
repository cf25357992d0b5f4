"""Sums that share what they read or compute become arrays of one index space: one kernel has all.

    a = reduce i, j; add { exp(x[i, j]) }
    b = for i { 2 * reduce j; add { exp(x[i, j]) * y[j] } + c[i] }

are, where c is computed only after a,

    t = for i { reduce j; add { exp(x[i, j]) } }
    u = for i { reduce j; add { exp(x[i, j]) * y[j] } }
    a = reduce i; add { t[i] }
    b = for i { 2 * u[i] + c[i] }

of which t and u have the same counters, and wait for nothing that the other one gives: a kernel
computes both where x is read once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice, pairwise, product
from math import prod
from typing import Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import (
    ArrayProgram,
    Constant,
    Counted,
    Input,
    Result,
    Tabulate,
    sources,
)
from symgrad.arrays.scalars import (
    COUNTER,
    Array,
    Read,
    Reduce,
    Scalars,
    modulo,
    quotient,
    rebuilt,
    replaced,
)
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.body import FLOATS
from symgrad.kernel.stages.one_pass import sums_beside

TRIES: Final = 64
"""Ways in which counters of one sum may be those of another that are tried, at most."""

Names = dict[int, int]
"""The counters of a lead by those of another sum."""


@dataclass(frozen=True)
class Sum:
    """A reduction in an array, over ``inner`` counters for each of the ``outer`` ones."""

    array: Tabulate
    node: int
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    read: frozenset[Array]
    """The arrays that its terms are made of."""
    after: int
    """The place of the last one of these."""


@dataclass(frozen=True)
class Member:
    """A sum of a group, and what its counters are called there."""

    sum: Sum
    names: Names

    def reduced(self) -> set[int]:
        """The counters of the group that the sum runs through."""
        return {self.names[c] for c in self.sum.inner}


def moving(s: Scalars, array: Tabulate) -> tuple[tuple[int, ...], int | None]:
    """The counters of the axes that are more than one long, and that of a short last one apart."""
    counters = tuple(c for c in array.counters if s.extent(c) > 1)
    if len(counters) > 1 and s.extent(counters[-1]) <= sizes.SHORT_AXIS:
        return counters[:-1], counters[-1]
    return counters, None


def alike(
    s: Scalars, array: Array, later: Sequence[Array], known: Collection[Array], bindings: int
) -> list[Tabulate]:
    """The later arrays that are sums over the same counters as an array, and for the same ones.

    Few elements that are no sums go with as many others. All that they read is ``known``, and all
    of them together are not more than a kernel binds.
    """
    others = list[Tabulate]()
    if not isinstance(array, Tabulate):
        return others
    are_alike = _are_alike if isinstance(s.op(array.body), Reduce) else _are_few
    if are_alike is _are_few and not _are_few(s, array, array):
        return others
    read, many = {*sources(s, array)}, _width(s, array)
    for other in later:
        if isinstance(other, Tabulate) and are_alike(s, array, other):
            more, width = read | {*sources(s, other)}, _width(s, other)
            is_ready = all(a in known or isinstance(a, Input | Constant) for a in more)
            if is_ready and len(more) + many + width <= bindings:
                read, many = more, many + width
                others.append(other)
    return others


def _width(s: Scalars, array: Tabulate) -> int:
    """The elements of an array that stand side by side."""
    short = moving(s, array)[1]
    return 1 if short is None else s.extent(short)


def _are_alike(s: Scalars, array: Tabulate, other: Tabulate) -> bool:
    one, two = s.op(array.body), s.op(other.body)
    if not (isinstance(one, Reduce) and isinstance(two, Reduce)) or one.counters != two.counters:
        return False
    same = moving(s, array)[0] == moving(s, other)[0]
    return same and {one.operator, two.operator} <= FLOATS.keys()


def _are_few(s: Scalars, array: Tabulate, other: Tabulate) -> bool:
    """Whether both have as many elements, few, and no sums: a kernel for each costs more."""
    few = array.shape == other.shape and array.size <= sizes.FEW_ELEMENTS
    return few and not any(isinstance(s.op(i), Reduce) for i in s.walk([other.body]))


def together(program: ArrayProgram, apart: Collection[Array]) -> ArrayProgram:
    """The program with sums that share something as arrays of the same counters.

    Sums in arrays that stand ``apart`` stay there, as products of matrices do.
    """
    b = program.scalars
    if not isinstance(b, Builder):
        return program
    return _Rewriting(b, program, apart).result()


class _Rewriting:
    def __init__(self, b: Builder, program: ArrayProgram, apart: Collection[Array]) -> None:
        self.b, self.program, self.order = b, program, program.arrays
        self.place = {a: n for n, a in enumerate(self.order)}
        self.sums = {a: list(self._sums(a)) if a not in apart else [] for a in self.order}
        self.all = [each for a in self.order for each in self.sums[a]]
        self.first = [0, *accumulate(len(self.sums[a]) for a in self.order)]
        """Of each array the number of its first sum among all."""
        self.new: dict[Array, Array] = {}
        self.known: dict[Array, dict[int, int]] = {}
        """For arrays their sums that are elements of others, and those elements."""

    def result(self) -> ArrayProgram:
        """The program as it is then."""
        if len(self.all) < 2:
            return self.program
        for n, array in enumerate(self.order):
            for lead in self.sums[array]:
                if lead.node not in self.known.get(array, {}):
                    self._grouped(lead, n)
            self._rebuilt(array)
        if not self.known:
            return self.program
        outputs = tuple(self.new.get(a, a) for a in self.program.outputs)
        return ArrayProgram(self.b, self.program.inputs, outputs)

    def _sums(self, array: Array) -> Iterator[Sum]:
        """The reductions of floats that an array's elements are made of."""
        if not isinstance(array, Tabulate) or self._is_rescaled(array):
            return
        b, outer = self.b, moving(self.b, array)[0]
        for i in b.shallow([array.body]):
            op = b.op(i)
            if (
                isinstance(op, Reduce)
                and op.operator in FLOATS
                and b.graph.type(i) == "f"
                and prod(map(b.extent, op.counters)) >= sizes.SHARED_TERMS
            ):
                read = frozenset(op.array for _, op in b.reads(b.args(i)))
                after = max((self.place[a] for a in read), default=-1)
                yield Sum(array, i, outer, op.counters, read, after)

    def _is_rescaled(self, array: Tabulate) -> bool:
        """Whether its sums are computed beside a maximum."""
        sources = {op.array for _, op in self.b.reads([array.body])}
        return any(isinstance(a, Tabulate) and sums_beside(self.b, a, array) for a in sources)

    # groups --------------------------------------------------------------------------------------

    def _grouped(self, lead: Sum, place: int) -> None:
        """Take sums apart that share something with a lead, and wait for nothing behind it."""
        own = Member(lead, {c: c for c in (*lead.outer, *lead.inner)})
        members = [own, *self._members(lead, place)]
        reduced = min((m.reduced() for m in members), key=len)
        members = [m for m in members if reduced <= m.reduced()]
        extent = prod(map(self.b.extent, reduced))
        if (
            len({m.sum.array for m in members}) > 1
            and own in members
            and extent >= sizes.SHARED_TERMS
        ):
            inner = [c for c in lead.inner if c in reduced]
            outer = [c for c in (*lead.outer, *lead.inner) if c not in reduced]
            for member in members:
                self._take(member, outer, inner)

    def _members(self, lead: Sum, place: int) -> Iterator[Member]:
        for other in self.all[self.first[place] :]:
            if other.after >= place or other.node == lead.node:
                continue
            taken = self.known.get(other.array, {})
            if other.node not in taken and not lead.read.isdisjoint(other.read):
                names = self._names(lead, other)
                if names is not None:
                    yield Member(other, names)

    def _take(self, member: Member, outer: Sequence[int], inner: Sequence[int]) -> None:
        """Make a sum an array of its own, over the group's counters, which its own array reads."""
        b, own = self.b, member.sum
        op = b.op(own.node)
        assert isinstance(op, Reduce), "a reduction"
        (part,) = b.substituted(b.args(own.node), _changed(member.names), self._element)
        short = [c for c in own.array.counters if c in b.free(part) and c not in member.names]
        total, counters = b.reduction(op.operator, inner, part), (*outer, *short)
        shape = tuple(map(b.extent, counters))
        array = Tabulate(shape=shape, counters=counters, body=total)
        back = {named: c for c, named in member.names.items()}
        element = b.element(array, [*(back[c] for c in outer), *short])
        rest = [c for c in own.inner if member.names[c] in outer]
        known = b.reduce(op.operator, rest, element) if rest else element
        self.known.setdefault(own.array, {})[own.node] = known

    def _element(self, array: Array, index: Sequence[int]) -> int:
        return self.b.element(self.new.get(array, array), index)

    def _rebuilt(self, array: Array) -> None:
        """Build an array from what those that it reads have become."""
        b, known = self.b, self.known.get(array, {})
        if isinstance(array, Result):
            operands = [self.new.get(a, a) for a in array.arguments]
            if operands != list(array.arguments):
                self.new[array] = algorithms.again(b, array, operands)
        elif isinstance(array, Counted) and (
            known or any(op.array in self.new for _, op in b.reads(array.scalars))
        ):
            roots = b.substituted(array.scalars, known, self._element)
            self.new[array] = b.rebuilt(array, roots)

    # what sums share -----------------------------------------------------------------------------

    def _names(self, lead: Sum, other: Sum) -> Names | None:
        """The counters of a lead for those of another sum so that they share work, if any are."""
        b = self.b
        space = {*lead.outer, *lead.inner}
        own = {*other.outer, *other.inner}
        if sorted(map(b.extent, space)) != sorted(map(b.extent, own)):
            return None
        nodes = set(b.walk(b.args(lead.node)))
        axes = {*other.array.counters} - own
        ways = (self._renamings(lead, other), self._by_several(lead, other))
        for all_names in chain.from_iterable(islice(way, TRIES) for way in ways):
            names = {c: d for c, d in all_names.items() if c not in axes}
            of_space = {c: d for c, d in names.items() if c in own}
            if {*of_space.values()} != space or len(of_space) != len(own):
                continue
            if not {*lead.outer} <= {of_space[c] for c in other.outer}:
                continue
            (part,) = b.substituted(b.args(other.node), _changed(names))
            if any(i in nodes and self._is_worth(i, space) for i in b.walk([part])):
                return names
        return None

    def _is_worth(self, i: int, space: set[int]) -> bool:
        """Whether a node that differs from term to term is worth being computed once."""
        op = self.b.op(i)
        is_work = isinstance(op, Read) or op.cost >= sizes.SHARED_COST
        return is_work and space <= self.b.free(i)

    def _pairs(self, lead: Sum, other: Sum) -> list[list[tuple[int, int]]]:
        """Reads of the other sum and of the lead that are of one array, by the arrays."""
        b = self.b
        reads: dict[Array, tuple[list[int], list[int]]] = {}
        for side, x in enumerate((lead, other)):
            for i, op in b.reads(b.args(x.node)):
                reads.setdefault(op.array, ([], []))[side].append(i)
        return [[*product(q, p)] for p, q in reads.values() if p and q]

    def _by_several(self, lead: Sum, other: Sum) -> Iterator[Names]:
        """Names with which several reads of an array are reads of the lead, as x[i] and x[j] are.

        They are searched for by backtracking.
        """
        pairs = [*chain.from_iterable(self._pairs(lead, other))]

        def extended(names: Names, first: int) -> Iterator[Names]:
            for n in range(first, len(pairs)):
                more = self._unified(names, *pairs[n])
                if more is not None and more != names:
                    yield more
                    yield from extended(more, n + 1)

        return extended({}, 0)

    def _renamings(self, lead: Sum, other: Sum) -> Iterator[Names]:
        """Names with which a read of each array of the other sum is one of the lead's."""
        for choice in product(*self._pairs(lead, other)):
            names: Names | None = {}
            for i, j in choice:
                names = self._unified(names, i, j) if names is not None else None
            if names:
                yield names

    def _unified(self, names: Names, i: int, j: int) -> Names | None:
        """Names with which node i, a read, is node j too."""
        b, names = self.b, dict(names)
        for p, q in zip(b.args(i), b.args(j), strict=True):
            (constant, terms), (other, more) = b.terms(p), b.terms(q)
            if constant != other or [c for c, _ in terms] != [c for c, _ in more]:
                return None
            for (_, x), (_, y) in zip(terms, more, strict=True):
                both = b.op(x) is COUNTER and b.op(y) is COUNTER
                if not both and x != y:
                    return None
                if both and b.extent(x) != b.extent(y):
                    return None
                if both and names.setdefault(x, y) != y:
                    return None
        return names if len({*names.values()}) == len(names) else None


def _changed(names: Names) -> Names:
    """The counters that are called otherwise."""
    return {c: d for c, d in names.items() if c != d}


# --- scalars written out --------------------------------------------------------------------------
# Scalars written out: short reductions term by term, short axes and rows side by side.
#
# What they have in common is then loaded and computed once.


def unrolled(scalars: Scalars, roots: Sequence[int]) -> tuple[int, ...]:
    """Scalars in which short reductions of floats that stand within others are written out.

    So what does not move with the outer one is loaded once, as a point whose distances from all
    others are summed.
    """
    s, ids = scalars, dict[int, int]()
    top = [s.args(i) for i in s.shallow(roots) if isinstance(s.op(i), Reduce)]
    inner = set(s.walk([a for args in top for a in args]))
    for i in s.walk(roots):
        ids[i] = rebuilt(s, i, ids)
        if i in inner and isinstance(op := s.op(ids[i]), Reduce):
            ids[i] = _term_by_term(s, ids[i], op)
    return tuple(ids[root] for root in roots)


def _term_by_term(s: Scalars, reduction: int, op: Reduce) -> int:
    """A reduction as its terms, one after the other; itself if it is not short."""
    terms, (body, *_) = prod(map(s.extent, op.counters)), s.args(reduction)
    if op.operator not in FLOATS or s.graph.type(body) != "f" or terms > sizes.SHORT_AXIS:
        return reduction
    if terms * len(s.walk([body])) > sizes.WRITTEN_OUT:
        return reduction
    total: int | None = None
    for index in product(*(range(s.extent(c)) for c in op.counters)):
        known = {c: s.number(n) for c, n in zip(op.counters, index, strict=True)}
        term = replaced(s, body, known, within=True)
        total = term if total is None else s.graph.add(FLOATS[op.operator], total, term)
    return reduction if total is None else total


def written_out(s: Scalars, root: int) -> int:
    """A scalar in which all short reductions of floats are written out."""
    ids = dict[int, int]()
    for i in s.walk([root]):
        ids[i] = rebuilt(s, i, ids)
        if isinstance(op := s.op(ids[i]), Reduce):
            ids[i] = _term_by_term(s, ids[i], op)
    return ids[root]


def merged(s: Scalars, roots: Sequence[int]) -> tuple[int, ...]:
    """Scalars in whose reductions counters that always stand side by side are one.

    So a sum over rows and columns of images is one over their points.
    """
    ones, new = dict[tuple[int, int], int](), dict[int, int]()
    for i in s.shallow(roots):
        if isinstance(s.op(i), Reduce):
            new[i] = _merged(s, i, ones)
    return tuple(replaced(s, root, new) for root in roots)


def _merged(s: Scalars, i: int, ones: dict[tuple[int, int], int]) -> int:
    """A reduction; ``ones`` are the counters in the place of two."""
    op = s.op(i)
    assert isinstance(op, Reduce), "a reduction"
    for pair in pairwise(op.counters):
        if _are_one(s, s.args(i), *pair):
            if pair not in ones:
                ones[pair] = s.counter(s.extent(pair[0]) * s.extent(pair[1]))
            return _merged(s, _as_one(s, i, *pair, ones[pair]), ones)
    return i


def _are_one(s: Scalars, parts: Sequence[int], one: int, other: int) -> bool:
    """Whether two counters are in reads alone, whose places they move as if they were one."""
    both, inner, reads = {one, other}, Access(s, tuple(parts), ()), 0
    for i in inner.nodes:
        op = s.op(i)
        if isinstance(op, Read) and not both.isdisjoint(s.free(i)):
            steps, reads = inner.steps(i), reads + 1
            if not both <= {*s.args(i)} or steps[other] is None:
                return False
            if steps[one] != (steps[other] or 0) * s.extent(other):
                return False
        elif not isinstance(op, Read) and not both.isdisjoint(s.args(i)):
            return False
    return reads > 0


def _as_one(s: Scalars, i: int, one: int, other: int, both: int) -> int:
    """A reduction with a counter in the place of two."""
    op, length = s.op(i), s.number(s.extent(other))
    assert isinstance(op, Reduce), "a reduction"
    known = {one: s.graph.add(quotient, both, length), other: s.graph.add(modulo, both, length)}
    parts = [replaced(s, a, known, within=True) for a in s.args(i)]
    counters = [both if c == one else c for c in op.counters if c != other]
    return s.reduction(op.operator, counters, *parts)


def side_by_side(s: Scalars, root: int, short: int) -> list[int]:
    """A scalar for each value of a counter."""
    each = ({short: s.number(n)} for n in range(s.extent(short)))
    return [replaced(s, root, known, within=True) for known in each]


def joint(
    s: Scalars, elements: Mapping[Tabulate, int], array: Tabulate, apart: bool
) -> tuple[list[Array], Access]:
    """The elements of some arrays, with an array for each root, by the counters of one of them.

    Those along a short last axis are roots side by side, if that axis stands ``apart``.
    """
    writes, roots = list[Array](), list[int]()
    counters = moving(s, array)[0] if apart else tuple(array.counters)
    rows = prod(map(s.extent, counters))
    for a, root in elements.items():  # along the short axis they may be the same
        short = [c for c in s.free(root) if c not in counters]
        each = side_by_side(s, root, short[0]) if short else [root] * (a.size // rows)
        roots += each
        writes += [a] * len(each)
    return writes, Access(s, tuple(roots), counters)


def along_short(s: Scalars, access: Access) -> Access:
    """The elements along a short last axis as roots, where their reductions share work.

    So a force between points is computed once for all of its components.
    """
    short = access.moving[-1] if access.moving else None
    if short is None or s.extent(short) > sizes.SHORT_AXIS or access.terms < sizes.SHARED_TERMS:
        return access
    below = s.walk([a for r in access.reductions if short in s.free(r) for a in s.args(r)])
    if not any(short not in s.free(i) and s.op(i).cost >= sizes.SHARED_COST for i in below):
        return access
    (root,) = access.roots
    roots = tuple(side_by_side(s, root, short))
    return Access(s, roots, tuple(c for c in access.parallel if c != short))


def in_rows(
    s: Scalars, arrays: Sequence[Array], access: Access, lanes: Collection[int]
) -> tuple[Sequence[Array], Access]:
    """Elements of a last axis, each a reduction, in fours or pairs, where terms share reads.

    ``arrays`` has an array for each root, and so has the first result. Reads that move along
    ``lanes`` and are the same for all rows, as those of the other points in sums over pairs, are
    done once for so many.
    """
    reduces = [op for r in access.reductions if isinstance(op := s.op(r), Reduce)]
    if not access.parallel or any(op.operator not in FLOATS for op in reduces):
        return arrays, access
    last = access.parallel[-1]
    reads = s.reads([a for r in access.reductions for a in s.args(r)])
    if not any(last not in s.free(i) and not s.free(i).isdisjoint(lanes) for i, _ in reads):
        return arrays, access
    many = min(sizes.ROWS_TOGETHER, sizes.ROW_SUMS // len(reduces))
    if many < 2 or s.extent(last) % many or access.size // many < sizes.ROW_GROUPS:
        return arrays, access
    return neighbours(s, arrays, access, many)


def neighbours(
    s: Scalars, arrays: Sequence[Array], access: Access, many: int
) -> tuple[list[Array], Access]:
    """So many neighbouring elements of the last axis as roots, array by array."""
    *outer, last = access.parallel
    group = s.counter(s.extent(last) // many)
    writes, roots, own = list[Array](), list[int](), iter(access.roots)
    for _, same in groupby(arrays, key=id):
        side = [(a, next(own)) for a in same]
        for n in range(many):
            known = {last: s.affine(n, [(many, group)])}
            writes += [a for a, _ in side]
            roots += [replaced(s, root, known, within=True) for _, root in side]
    return writes, Access(s, tuple(roots), (*outer, group))
