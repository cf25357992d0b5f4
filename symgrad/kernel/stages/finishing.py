"""Arrays that finish a reduction, element by element, in the kernel that reduces.

A mean of a sum, or the logarithm of one, has the sum's elements, so that the invocation that has
one makes the other too, and no further kernel is launched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Read, Reduce, Scalars, replaced
from symgrad.kernel.stages.one_pass import is_at


def finishing(
    s: Scalars,
    array: Tabulate,
    readers: Mapping[Array, Sequence[Array]],
    known: Collection[Array],
    most: int,
) -> list[Tabulate]:
    """Up to so many arrays that are made of elements of ``array``, each of that of its index.

    All else that they read is ``known``. ``readers`` are the arrays that read each one.
    """
    group, waiting, others = set[Array]([array]), list[Array]([array]), list[Tabulate]()
    while waiting:
        for other in readers.get(waiting.pop(0), ()):
            if len(others) == most:
                return others
            if other not in group and other not in known and _finishes(s, other, group, known):
                assert isinstance(other, Tabulate), "an array by its elements"
                group.add(other)
                waiting.append(other)
                others.append(other)
    return others


def _finishes(s: Scalars, other: Array, group: set[Array], known: Collection[Array]) -> bool:
    if not isinstance(other, Tabulate) or other.shape != next(iter(group)).shape:
        return False
    if any(isinstance(s.op(i), Reduce) for i in s.walk([other.body])):
        return False
    index = [c for c in other.counters if s.extent(c) > 1]
    return all(
        op.array in known or (op.array in group and is_at(s, i, op.array, index))
        for i, op in s.reads([other.body])
    )


def roots_of(s: Scalars, array: Tabulate, others: Sequence[Tabulate]) -> tuple[int, ...]:
    """An element of ``array``, and those of arrays that finish it, by its counters alone."""
    roots: dict[Array, int] = {array: array.body}
    for other in others:
        values = dict(zip(other.counters, array.counters, strict=True))
        for i, op in s.reads([other.body]):
            assert isinstance(op, Read), "a read"
            if op.array in roots:
                values[i] = roots[op.array]
        roots[other] = replaced(s, other.body, values)
    return tuple(roots.values())
