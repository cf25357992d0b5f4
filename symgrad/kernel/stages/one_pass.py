"""Reductions in one pass with others, or with arrays of the same elements: a loss and its gradient.

Both read the same arrays, so that each number is loaded once, and functions of it are computed
once. The index is flat: counters only say which element it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Final

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Constant, Input, Tabulate
from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars, replaced
from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.body import TUPLES, Reduction, combined
from symgrad.kernel.stages.products import factors_of
from symgrad.kernel.stages.programs import StageProgram, chosen_group
from symgrad.kernel.stages.write import over_group


@dataclass(frozen=True)
class Pass:
    """The reductions of an array without axes, and other arrays of the elements that they reduce.

    ``reads`` are the reads of whole arrays, element by element.
    """

    reductions: tuple[int, ...]
    operators: tuple[str, ...]
    others: tuple[Tabulate, ...]
    reads: tuple[int, ...]
    size: int


def one_pass(
    s: Scalars, access: Access, later: Sequence[Array], bindings: int | None
) -> Pass | None:
    """The reductions of an array without axes, with later arrays that read the same arrays.

    On the host, where arrays are not limited in number, it is worth it only with such arrays.
    """
    reductions = access.reductions
    if access.size != 1 or not reductions:
        return None
    reduces = [op for r in reductions if isinstance(op := s.op(r), Reduce)]
    counters = reduces[0].counters
    size = access.extent(counters)
    if size < sizes.PASS_ELEMENTS or any(op.operator in TUPLES for op in reduces):
        return None
    if any(_extents(s, op.counters) != _extents(s, counters) for op in reduces):
        return None
    each = [
        flat_reads(s, s.args(r), op.counters) for r, op in zip(reductions, reduces, strict=True)
    ]
    if not all(each):
        return None
    reads = [i for some in each if some for i in some]
    parts = [a for r in reductions for a in s.args(r)]
    sources = {op.array for _, op in s.reads(parts)}
    bound, others = set(sources), list[Tabulate]()
    for array in later:
        own = _reads_beside(s, array, counters, sources)
        if own and isinstance(array, Tabulate):
            more = bound | {op.array for _, op in s.reads([array.body])}
            if bindings is None or len(more) + len(parts) + len(others) < bindings:
                bound = more
                others.append(array)
                reads += own
    if (not others) if bindings is None else len(bound) + len(parts) > bindings:
        return None
    operators = tuple(op.operator for op in reduces)
    return Pass(tuple(reductions), operators, tuple(others), tuple(dict.fromkeys(reads)), size)


def pass_length(target: Target, size: int, cost: int) -> int:
    """The elements of a part of a pass, of which each costs so many additions."""
    if target.in_step:
        unit, worth = 4 * target.width, int(sizes.CHUNK_COST / max(cost, 1)) * target.width
        length = max(worth, -(-size // sizes.MOST_PARTS))
    else:
        unit, length = sizes.FOUR, max(4 * sizes.ELEMENT_WIDTH, -(-size // sizes.PASS_PARTS))
    return -(-length // unit) * unit


def _reads_beside(
    s: Scalars, array: Array, counters: Sequence[int], sources: Collection[Array]
) -> list[int]:
    """The reads of an array that may be computed beside sums over counters of these sources."""
    if not isinstance(array, Tabulate):
        return []
    if _extents(s, array.counters) != _extents(s, counters):
        return []
    read = {op.array for _, op in s.reads([array.body])}
    if not all(a in sources or isinstance(a, Input | Constant) for a in read):
        return []
    reads = flat_reads(s, [array.body], array.counters) or []
    return (
        reads if any(op.array in sources for i in reads if isinstance(op := s.op(i), Read)) else []
    )


def _extents(s: Scalars, counters: Sequence[int]) -> list[int]:
    return [n for n in map(s.extent, counters) if n > 1]


def flat_reads(s: Scalars, roots: Sequence[int], counters: Sequence[int]) -> list[int] | None:
    """The reads at the element that counters are; None where these serve for anything else."""
    index = [c for c in counters if s.extent(c) > 1]
    reads, seen, stack = list[int](), set[int](), list(roots)
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        op = s.op(i)
        if isinstance(op, Read) and is_at(s, i, op.array, index):
            reads.append(i)
        elif op is COUNTER or isinstance(op, Reduce):
            return None
        else:
            stack.extend(s.args(i))
    return reads


def is_at(s: Scalars, read: int, array: Array, index: Sequence[int]) -> bool:
    """Whether a read is of an array of the same elements, at the counters in order."""
    moving = [a for a, n in zip(s.args(read), array.shape, strict=True) if n > 1]
    return (
        len(moving) == len(index)
        and [n for n in array.shape if n > 1] == [s.extent(c) for c in index]
        and all(s.terms(a) == s.terms(c) for a, c in zip(moving, index, strict=True))
    )


@dataclass(frozen=True)
class PassProgram(StageProgram):
    """A group for each part of the elements, which writes some arrays and reduces others.

    Of the body's roots the first are reduced by ``operators``, one number of each for a group; the
    others are written, element by element. The parallel counter is the element, or in ``quads``
    that of fours of them, of which the body has four roots for each.

    The arguments are the body's, the number of elements, or fours, ``size``, and how many of them a
    group has, ``length``; in a grid also the number of groups, ``total``.
    """

    operators: tuple[str, ...] = ()
    long: bool = False

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        many = len(self.operators)
        k, w, writes = self._begin(target, "one_pass", many)
        group, exists = chosen_group(k)
        size, length = Index(k, k.argument("size")), Index(k, k.argument("length"))
        width, local = k.target.width, Index(k, k.local)
        start = group * length
        count = (size - start).at_most(length)
        if exists is not None:
            count = Index(k, k.add(ops.word_where, exists, count.id, k.word(0)))
        trips = (count + (width - 1) - local) // width

        def terms(t: int) -> Sequence[int]:
            at = (start + Index(k, t) * width + local).id
            with w.frame({0: at}):
                values = self._parted(w.values(self.body.roots))
                for buffer, each in zip(writes[many:], values[many:], strict=True):
                    self._store_side_by_side(k, buffer, Index(k, at), each)
            pairs = zip(self.operators, values[:many], strict=True)
            return [_joined(k, operator, each) for operator, each in pairs]

        parts = tuple(each[0] for each in self._parted(self.body.roots)[:many])
        r = Reduction((), (), parts, self.operators, self.long)
        totals = over_group(k, r, w.looped(r, trips, terms, in_blocks=True))
        first = local.below(1)

        def put() -> None:
            for buffer, total in zip(writes[:many], totals, strict=True):
                k.store(buffer, group.id, total)

        k.when(first if exists is None else k.add(ops.logical_and, exists, first), put)
        return k


def _joined(k: KernelIR, operator: str, values: Sequence[int]) -> int:
    """The reduction of some values."""
    total, *rest = values
    for value in rest:
        (total,) = combined(k, operator, [total], [value])
    return total


# Running rescale: sums of exponentials beside the maximum of their exponents, in one pass.
#
#     m = reduce j; max { s[j] }
#     y = reduce j; add { exp(s[j] - g(m)) * w[j] }
#
# is one reduction of tuples (m, sum exp(s - m) w), in which sums are brought to a larger maximum
# where one comes, and y is exp(m - g(m)) times its sum. See Milakov and Gimelshein, 2018, "Online
# normalizer calculation for softmax".

MOST_SUMS: Final = 4
"""The sums beside a maximum, at most."""


@dataclass(frozen=True)
class Sum:
    """A sum of exp(s - g(m)) w: its node in the array that has it, and w as the maximum has it."""

    node: int
    weight: int


def axes_of(array: Array) -> list[int]:
    """The lengths of the axes of more than one element."""
    return [n for n in array.shape if n > 1]


def moving(s: Scalars, array: Tabulate) -> list[int]:
    """The counters of these axes."""
    return [c for c in array.counters if s.extent(c) > 1]


def maximum_of(s: Scalars, array: Tabulate) -> int | None:
    """The one reduction that an array's elements are made of, if it is a maximum of floats."""
    reductions = [i for i in s.shallow([array.body]) if isinstance(s.op(i), Reduce)]
    if len(reductions) != 1:
        return None
    op = s.op(reductions[0])
    is_max = isinstance(op, Reduce) and op.operator == "max" and op.counters
    return reductions[0] if is_max and s.graph.type(reductions[0]) == "f" else None


def sums_beside(
    s: Scalars, array: Tabulate, other: Tabulate, known: Collection[Array] | None = None
) -> list[Sum]:
    """The reductions of another array, if all are such sums by the maximum of an array.

    All else that they read is ``known``, if that is given.
    """
    top = maximum_of(s, array)
    reductions = [i for i in s.shallow([other.body]) if isinstance(s.op(i), Reduce)]
    if top is None or not isinstance(s, Builder) or len(reductions) > MOST_SUMS:
        return []
    sums = [_sum_beside(s, array, top, other, i, known) for i in reductions]
    return [each for each in sums if each] if all(sums) else []


def _sum_beside(
    s: Builder, array: Tabulate, top: int, other: Tabulate, i: int, known: Collection[Array] | None
) -> Sum | None:
    op, largest = s.op(i), s.op(top)
    assert isinstance(op, Reduce) and isinstance(largest, Reduce), "reductions"
    if op.operator != "add" or [*map(s.extent, op.counters)] != [*map(s.extent, largest.counters)]:
        return None
    factors = factors_of(s, s.args(i)[0])
    for n, factor in enumerate(factors):
        difference = s.args(factor)[0] if s.op(factor) is ops.exp else None
        if difference is None or s.op(difference) is not ops.sub:
            continue
        exponent, shift = s.args(difference)
        rest = factors[:n] + factors[n + 1 :]
        at = s.op(shift)
        is_own = isinstance(at, Read) and at.array is array
        if not is_own or not is_at(s, shift, array, moving(s, other)):
            continue
        own, its = [*moving(s, other), *op.counters], [*moving(s, array), *largest.counters]
        same = s.content(own, exponent) == s.content(its, s.args(top)[0])
        if same and _are_apart(s, exponent, rest) and _are_known(s, [exponent, *rest], known):
            names = dict(zip(own, its, strict=True))
            return Sum(i, replaced(s, s.product(rest), names, within=True))
    return None


def _are_apart(s: Scalars, exponent: int, weights: Sequence[int]) -> bool:
    """Whether weights read no element that the exponent reads.

    The least floats of a mask would be weights as well, whose sum overflows before it is scaled.
    """
    elements = {i for i, _ in s.reads([exponent])}
    return elements.isdisjoint(i for i, _ in s.reads(weights))


def _are_known(s: Scalars, roots: Sequence[int], known: Collection[Array] | None) -> bool:
    return known is None or all(op.array in known for _, op in s.reads(roots))


def rescaled(s: Scalars, array: Tabulate, sums: Sequence[Sum]) -> tuple[int, dict[int, int]]:
    """An element of an array of a maximum, and the sums beside it, by one reduction of tuples."""
    top = maximum_of(s, array)
    assert top is not None, "an array of a maximum"
    op, g = s.op(top), s.graph
    assert isinstance(op, Reduce), "a maximum"
    both = s.reduction("rescale", op.counters, *s.args(top), *(each.weight for each in sums))
    m = s.pick(both, 0)
    element = replaced(s, array.body, {top: m})

    def scaled(total: int) -> int:
        if element == m:  # exp(m - m) is NaN where m is infinite, and else 1
            return g.add(ops.where, g.add(ops.isfinite, m), total, g.constant(nan))
        return g.add(ops.mul, total, g.add(ops.exp, g.add(ops.sub, m, element)))

    return element, {each.node: scaled(s.pick(both, k)) for k, each in enumerate(sums, 1)}


# --- arrays that finish ---------------------------------------------------------------------------
# Arrays that finish a reduction, element by element, in the kernel that reduces.
#
# A mean of a sum, or the logarithm of one, has the sum's elements, so that the invocation that has
# one makes the other too, and no further kernel is launched. So do sums of exponentials whose shift
# is that reduction (`symgrad.kernel.stages.one_pass`).


def finishing(
    s: Scalars,
    arrays: Sequence[Tabulate],
    readers: Mapping[Array, Sequence[Array]],
    known: Collection[Array],
    most: int,
) -> list[Tabulate]:
    """Up to so many arrays that are made of elements of ``arrays``, each of those of its index.

    All else that they read is ``known``. ``readers`` are the arrays that read each one.
    """
    group, waiting, others = set[Array](arrays), list[Array](arrays), list[Tabulate]()
    one = arrays[0] if len(arrays) == 1 else None
    while waiting:
        for other in readers.get(waiting.pop(0), ()):
            if len(others) == most:
                return others
            if (
                other not in group
                and other not in known
                and (
                    _finishes(s, other, group, known)
                    or (one is not None and _rescales(s, one, other, group, known))
                )
            ):
                assert isinstance(other, Tabulate), "an array by its elements"
                group.add(other)
                waiting.append(other)
                others.append(other)
    return others


def _finishes(s: Scalars, other: Array, group: set[Array], known: Collection[Array]) -> bool:
    if not isinstance(other, Tabulate):
        return False
    if any(isinstance(s.op(i), Reduce) for i in s.walk([other.body])):
        return False
    index = moving(s, other)
    return all(
        op.array in known or (op.array in group and is_at(s, i, op.array, index))
        for i, op in s.reads([other.body])
    )


def _rescales(
    s: Scalars, array: Tabulate, other: Array, group: set[Array], known: Collection[Array]
) -> bool:
    """Whether the reductions of another array are sums that `rescaled` has beside a maximum."""
    if not isinstance(other, Tabulate) or axes_of(other) != axes_of(array):
        return False
    index = moving(s, other)
    reads = s.reads([other.body])
    return all(
        op.array in known or (op.array in group and is_at(s, i, op.array, index)) for i, op in reads
    ) and bool(sums_beside(s, array, other, known))


def roots_of(
    s: Scalars, arrays: Sequence[Tabulate], others: Sequence[Tabulate]
) -> dict[Tabulate, int]:
    """Elements of ``arrays``, and of ``others`` that finish these, by the counters of these alone.

    Arrays with the same axes have the same counters.
    """
    array, *more = arrays
    sums = {other: [] if more else sums_beside(s, array, other) for other in others}
    roots, totals = {array: array.body}, dict[int, int]()
    for other in more:  # sums have the same counters already
        is_sum = isinstance(s.op(other.body), Reduce)
        pairs = () if is_sum else zip(other.counters, array.counters, strict=True)
        roots[other] = replaced(s, other.body, dict(pairs))
    if any(sums.values()):
        beside = [each for some in sums.values() for each in some]
        roots[array], totals = rescaled(s, array, beside)
    counters = {tuple(axes_of(a)): moving(s, a) for a in arrays}
    for other in others:
        own = counters[tuple(axes_of(other))]
        values = dict(zip(moving(s, other), own, strict=True)) | totals
        for i, op in s.reads([other.body]):
            if op.array in roots:
                assert isinstance(op.array, Tabulate), "an array of the group"
                values[i] = roots[op.array]
        roots[other] = replaced(s, other.body, values)
    return roots
