"""Scatters as reductions: every element adds up all that goes to it."""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.arrays.program import Scatter
from symgrad.arrays.scalars import Scalars, is_zero
from symgrad.expr import ops


def gathered(s: Scalars, array: Scatter) -> tuple[Sequence[int], int]:
    """The counters of an element, and its sum over the counters that its index is not."""
    counters = _own_counters(s, array)
    body, zero = array.body, s.graph.constant(0.0)
    for i, c in zip(array.index, counters, strict=True):
        if c not in array.counters and (s.extent(c) > 1 or s.integer(i) != 0):
            hit = s.graph.add(is_zero, s.plus((1, i), (-1, c)))
            if array.kind == "f":
                body = s.graph.add(ops.where, hit, body, zero)
    summed = [c for c in array.counters if s.extent(c) > 1 and c not in counters]
    return counters, s.reduction("add", summed, body) if summed else body


def _own_counters(s: Scalars, array: Scatter) -> list[int]:
    """A counter for each axis: that which the index there is, over the same extent, or another.

    A counter that two indices are is that of the first.
    """
    own = list[int]()
    for i, n in zip(array.index, array.shape, strict=True):
        is_one = i in array.counters and i not in own and s.extent(i) == n
        own.append(i if is_one else s.counter(n))
    return own
