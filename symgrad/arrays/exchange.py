"""Sums of sums of products, in the order that takes fewer operations.

    for i, j { reduce k; add { reduce l; add { x[k, i, l] * m[i, l, j] } } }

is a product of matrices for each k. With the sum over k first, which m has no part in, it is

    s = for i, l { reduce k; add { x[k, i, l] } }
    for i, j { reduce l; add { s[i, l] * m[i, l, j] } }

So is the cotangent of what was broadcast before a product.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Reduce, replaced
from symgrad.expr import ops

FEWER: Final = 4
"""How many times fewer operations there are, at least."""


def exchanged(b: Builder, array: Tabulate, root: int, opened: Callable[[int], int]) -> int:
    """The scalar of an array, with sums in another order where that takes fewer operations.

    ``opened`` gives the body of an array that is read there alone for the read of it.
    """
    known = {}
    for i in b.shallow([root]):
        op = b.op(i)
        if isinstance(op, Reduce) and op.operator == "add" and b.graph.type(i) == "f":
            other = _exchanged(b, op, opened(b.args(i)[0]), array.size)
            if other is not None:
                known[i] = other
    return replaced(b, root, known) if known else root


def _exchanged(b: Builder, outer: Reduce, part: int, size: int) -> int | None:
    """The sum of a sum, its own counters first; None if that is no gain."""
    inner = b.op(part)
    if not isinstance(inner, Reduce) or inner.operator != "add":
        return None
    body = b.args(part)[0]
    over, under = b.fraction(body)
    moved = {f for f in (*over, *under) if not b.free(f).isdisjoint(outer.counters)}
    staying = {*over, *under} - moved
    rest = b.without(body, staying)
    own = sorted(b.free(rest).difference(outer.counters))
    many, depth = (prod(map(b.extent, op.counters)) for op in (outer, inner))
    after = prod(map(b.extent, own)) * many + size * depth
    if not staying or FEWER * after > size * many * depth:
        return None
    names = {c: b.counter(b.extent(c)) for c in own}
    [total] = b.substituted([b.total(outer.counters, rest)], names)
    sums = b.element(b.array(list(names.values()), total), b.indices(own))
    return b.total(inner.counters, b.apply(ops.mul, b.without(body, moved), sums))
