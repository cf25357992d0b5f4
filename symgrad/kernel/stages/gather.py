"""Scatters: reductions, in which an element adds up all that goes to it, or sums of a list.

As a list, what is added stands in memory beside where it goes. The host goes through it once, and
each of many elements looks for its own among all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from symgrad.arrays.program import Scatter, Tabulate
from symgrad.arrays.scalars import Scalars, is_zero
from symgrad.expr import ops

LISTED: Final = 2**16
"""Terms that elements look through before a list is worth it."""

ENTRY: Final = 16
"""The cost of an entry of a list, in such terms."""


def is_list(s: Scalars, array: Scatter) -> bool:
    """Whether the host is to go through a list, rather than each element through all terms."""
    entries = prod(map(s.extent, array.counters))
    summed = prod(s.extent(c) for c in array.counters if c not in own_counters(s, array))
    return array.kind == "f" and array.size * summed > LISTED + ENTRY * entries


def listed(s: Scalars, array: Scatter) -> list[Tabulate]:
    """Where the entries of a list go, by axes, and what they are."""
    shape = tuple(map(s.extent, array.counters))
    kinds = *("i" for _ in array.index), array.kind
    return [
        Tabulate(shape=shape, kind=kind, counters=array.counters, body=root)
        for kind, root in zip(kinds, array.scalars, strict=True)
    ]


def gathered(s: Scalars, array: Scatter) -> tuple[Sequence[int], int]:
    """The counters of an element, and its sum over the counters that its index is not."""
    counters = own_counters(s, array)
    body, zero = array.body, s.graph.constant(0.0)
    for i, c in zip(array.index, counters, strict=True):
        if c not in array.counters and (s.extent(c) > 1 or s.integer(i) != 0):
            hit = s.graph.add(is_zero, s.plus((1, i), (-1, c)))
            if array.kind == "f":
                body = s.graph.add(ops.where, hit, body, zero)
    summed = [c for c in array.counters if s.extent(c) > 1 and c not in counters]
    return counters, s.reduction("add", summed, body) if summed else body


def own_counters(s: Scalars, array: Scatter) -> list[int]:
    """A counter for each axis: that which the index there is, over the same extent, or another.

    A counter that two indices are is that of the first.
    """
    own = list[int]()
    for i, n in zip(array.index, array.shape, strict=True):
        is_one = i in array.counters and i not in own and s.extent(i) == n
        own.append(i if is_one else s.counter(n))
    return own
