"""Arrays that finish a reduction, element by element, in the kernel that reduces.

A mean of a sum, or the logarithm of one, has the sum's elements, so that the invocation that has
one makes the other too, and no further kernel is launched. So do sums of exponentials whose shift
is that reduction (`symgrad.kernel.stages.rescaling`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Reduce, Scalars, replaced
from symgrad.kernel.stages.one_pass import is_at
from symgrad.kernel.stages.rescaling import axes_of, moving, rescaled, sums_beside


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
