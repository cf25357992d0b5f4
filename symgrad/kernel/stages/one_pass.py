"""Sums over all elements in one pass with arrays of the same elements, as a loss and its gradient.

Both read the same arrays, so that each number is loaded once, and functions of it are computed
once. The index is flat: counters only say which element it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from symgrad.arrays.program import Constant, Input, Tabulate
from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars
from symgrad.expr import ops
from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.body import Reduction
from symgrad.kernel.stages.combine import TUPLES, combined
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
