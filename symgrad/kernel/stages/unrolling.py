"""Scalars written out: short reductions term by term, short axes and rows side by side.

What they have in common is then loaded and computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, pairwise, product
from math import prod

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import (
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
from symgrad.kernel.stages.combine import FLOATS
from symgrad.kernel.stages.sharing import moving


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
    for a, root in elements.items():
        short = [c for c in s.free(root) if c not in counters]
        each = side_by_side(s, root, short[0]) if short else [root]
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
