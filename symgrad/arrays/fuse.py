"""Fusion: a read of a tabulated array becomes its body, where that evaluates little.

The read of ``for i { b }`` at e is b at i = e. Whether an array is stored, or computed where it is
read, is decided by counting evaluations: those of its readers, with their reductions, against one
for each element and the memory that it takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Call, Counted, Result, Scatter, Tabulate, ordered
from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars, replaced
from symgrad.expr import ops

# Sums of sums of products, in the order that takes fewer operations.
#
#     for i, j { reduce k; add { reduce l; add { x[k, i, l] * m[i, l, j] } } }
#
# is a product of matrices for each k. With the sum over k first, which m has no part in, it is
#
#     s = for i, l { reduce k; add { x[k, i, l] } }
#     for i, j { reduce l; add { s[i, l] * m[i, l, j] } }
#
# So is the cotangent of what was broadcast before a product.

FEWER: Final = 4
"""How many times fewer operations there are, at least."""


def exchanged(b: Builder, array: Tabulate, root: int, opened: Callable[[int], int]) -> int:
    """The scalar of an array, with sums in another order where that takes fewer operations.

    ``opened`` gives the body of an array that is read there alone for the read of it.
    """
    known = {}
    for i in b.shallow([root]) if b.bound(root) else ():
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


TRAFFIC: Final = 8
"""The cost of storing or loading an element, in additions."""
READ: Final = 4
"""The cost of a read that most likely finds its element in a cache."""
LAUNCH: Final = 2**15
"""The additions that take as long as one more kernel."""
LANE: Final = 32
"""The longest reduction that may stand within another one's body."""
REPEAT: Final = 16
"""How often an element is computed again, at most, of an array much larger than what it reads."""
CACHED: Final = 16
"""From so many evaluations for each element on, an array is a few numbers that a cache has."""
MOST_READ: Final = 16
"""An array that reads so many others is stored, since kernels bind few."""
SIDE: Final = 4
"""From so many evaluations for one reader on, as for columns of a product, elements are stored."""
HEAVY: Final = 400
"""The highest cost of an element that is computed again."""
COMPARED: Final = 16
"""The highest cost of a number that each element of a scatter may ask for, with where it goes."""


def fused(b: Builder, outputs: Sequence[Array]) -> list[Array]:
    """The outputs, computed from fewer arrays."""
    order = list(ordered(b, outputs))
    whole = (a for array in order for a in array.arguments)
    plan = _Plan(b, {*outputs, *whole, *b.computed_once})
    for array in order:
        plan.count(array)
    for array in order:
        plan.take(array)
    return [plan.new[o] for o in outputs]


def flops(b: Scalars, outputs: Sequence[Array]) -> int:
    """The operations of all elements of the arrays that some need, in additions."""
    assert isinstance(b, Builder), "programs of tapes are built by one"
    costs, total, loops = _Plan(b, set()), 0, set[Call]()
    for array in ordered(b, outputs):
        if isinstance(array, Result) and array.call.name == "loop" and array.call not in loops:
            loops.add(array.call)
            loop = array.call.options[0]
            total += loop.count * flops(loop.body.scalars, loop.body.outputs)
        if isinstance(array, Counted):
            count = _product(b, array.counters)
            total += count * sum(costs.cost(i) for i in array.scalars)
    return total


@dataclass
class _Plan:
    """Decisions, from arrays that are read to those that read them."""

    b: Builder
    outputs: set[Array]
    """Arrays that are stored: those of the program, and the operands of its algorithms."""
    new: dict[Array, Array] = field(default_factory=dict)
    old: dict[Array, Array] = field(default_factory=dict)
    inlined: set[Array] = field(default_factory=set)
    evaluations: dict[Array, int] = field(default_factory=dict)
    repeats: dict[Array, int] = field(default_factory=dict)
    """The largest reduction around a read of an array."""
    most: dict[Array, int] = field(default_factory=dict)
    """The most evaluations for one reader."""
    readers: dict[Array, set[Array]] = field(default_factory=dict)
    carrying: set[Array] = field(default_factory=set)
    """Arrays with a long reduction, which another one would spoil."""
    scattered: set[Array] = field(default_factory=set)
    """Arrays whose elements go to places that are looked up."""
    moved: set[Array] = field(default_factory=set)
    """Arrays that are read at other indices than counters."""
    costs: dict[int, int] = field(default_factory=dict)
    counters: dict[tuple[int, int], int] = field(default_factory=dict)
    """The counters of what is built, by axes and extents: a read at these is the body itself."""
    extents: list[int] = field(default_factory=list)
    """The extents of the largest reductions in scalars, by their numbers."""
    sources: list[frozenset[Array]] = field(default_factory=list)
    """The arrays that scalars read, by their numbers."""

    def count(self, array: Array) -> None:
        """Count how often an array reads the elements of others."""
        b = self.b
        if isinstance(array, Tabulate) and self.longest(array.body) > LANE:
            self.carrying.add(array)
        if not isinstance(array, Counted):
            return
        outer = array.size if not isinstance(array, Scatter) else _product(b, array.counters)
        own: dict[Array, int] = {}
        for i, times in self.sites(array.scalars):
            source = b.array_of(i)
            total = outer * times
            own[source] = own.get(source, 0) + total
            self.evaluations[source] = self.evaluations.get(source, 0) + total
            self.repeats[source] = max(self.repeats.get(source, 1), times)
            self.readers.setdefault(source, set()).add(array)
            if not self._is_plain(i):
                self.moved.add(source)
            if isinstance(array, Scatter) and not set(array.index).issuperset(array.counters):
                self.scattered.add(source)
        self.most |= {a: max(n, self.most.get(a, 0)) for a, n in own.items()}

    def _is_plain(self, read: int) -> bool:
        """Whether the indices of a read are counters: then a product stays one in its reader."""
        b, array = self.b, self.b.array_of(read)
        index = [i for i, n in zip(b.args(read), array.shape, strict=True) if n > 1]
        return all(b.op(i) is COUNTER for i in index)

    def sites(self, roots: Sequence[int], times: int = 1) -> list[tuple[int, int]]:
        """The reads in scalars, with how often reductions make each."""
        b, sites = self.b, []
        for i in b.shallow(roots):
            op = b.op(i)
            if isinstance(op, Read):
                sites.append((i, times))
            elif isinstance(op, Reduce):
                sites += self.sites(b.args(i), times * _product(b, op.counters))
        return sites

    def longest(self, i: int) -> int:
        """The extent of the largest reduction in a scalar."""
        b, known = self.b, self.extents
        for k in range(len(known), i + 1):
            op = b.op(k)
            inner = max((known[a] for a in b.args(k)), default=1)
            known.append(_product(b, op.counters) * inner if isinstance(op, Reduce) else inner)
        return known[i]

    def read_by(self, i: int) -> frozenset[Array]:
        """The arrays that a scalar reads."""
        b, known = self.b, self.sources
        for k in range(len(known), i + 1):
            op, sources = b.op(k), frozenset[Array]()
            for a in b.args(k):
                sources = known[a] if sources <= known[a] else sources | known[a]
            known.append(sources | {op.array} if isinstance(op, Read) else sources)
        return known[i]

    def cost(self, i: int) -> int:
        """The cost of one evaluation of a scalar, in additions."""
        if i in self.costs:
            return self.costs[i]
        b, total = self.b, 0
        for k in b.shallow([i]):
            op = b.op(k)
            if isinstance(op, Reduce):
                inner = sum(1 + self.cost(p) for p in b.args(k))
                total += _product(b, op.counters) * inner
            elif b.args(k):
                total += READ if isinstance(op, Read) else op.cost
        self.costs[i] = total
        return total

    def take(self, array: Array) -> None:
        """Build an array from what those that it reads have become, and decide whether it stays."""
        b = self.b
        if isinstance(array, Result):
            operands = [self.new[a] for a in array.arguments]
            self.new[array] = algorithms.again(b, array, operands)
            return
        if not isinstance(array, Counted):
            self.new[array] = array
            return
        names = {c: self.counter(k, b.extent(c)) for k, c in enumerate(array.counters)}
        roots = b.substituted(array.scalars, names, self.element)
        if isinstance(array, Tabulate):
            roots = [exchanged(b, array, roots[0], functools.partial(self.opened, array))]
        new = self.new[array] = b.rebuilt(array, roots, list(names.values()))
        self.old[new] = array
        if isinstance(new, Tabulate) and array not in self.outputs and self.fits(array, new):
            self.inlined.add(array)
            if self.longest(new.body) > LANE:
                self.carrying |= self.readers.get(array, set())

    def counter(self, axis: int, extent: int) -> int:
        """The counter of an axis of new arrays, one for all that have this extent."""
        if (axis, extent) not in self.counters:
            self.counters[axis, extent] = self.b.counter(extent)
        return self.counters[axis, extent]

    def element(self, array: Array, index: Sequence[int]) -> int:
        """The scalar that stands for an element of an array."""
        new = self.new[array]
        if array not in self.inlined:
            return self.b.element(new, index)
        assert isinstance(new, Tabulate)
        return self.b.body_at(new, index)

    def opened(self, reader: Array, i: int) -> int:
        """The body of an array that nothing but the reader reads, for the read of it."""
        op = self.b.op(i)
        new = op.array if isinstance(op, Read) else None
        old = self.old.get(new) if isinstance(new, Tabulate) else None
        if old is None or old in self.outputs or self.readers.get(old) != {reader}:
            return i
        assert isinstance(new, Tabulate)
        return self.b.body_at(new, self.b.args(i))

    def fits(self, array: Array, new: Tabulate) -> bool:
        """Whether an array is better computed where it is read."""
        inner, size = self.longest(new.body), max(new.size, 1)
        ratio = self.evaluations.get(array, 0) / size
        sources = self.read_by(new.body)
        if len(sources) >= MOST_READ:
            return False
        expanding = size > 2 * sum(s.size for s in sources)
        again = expanding and ratio <= REPEAT and self.most.get(array, 0) < SIDE * size
        if inner > LANE and not self.readers.get(array, set()).isdisjoint(self.carrying):
            return False
        if inner > LANE and array in self.moved:
            return False
        if array in self.scattered and (inner > 1 or self.cost(new.body) > COMPARED):
            return False
        if inner > 1 and not (ratio <= 1 and (self.repeats.get(array, 1) == 1 or inner <= LANE)):
            return inner <= LANE and again
        if ratio <= 1:
            return True
        cost = self.cost(new.body)
        if cost <= HEAVY and again:
            return True
        if ratio >= CACHED:
            return self.evaluations[array] * (cost - READ) <= LAUNCH
        return ratio * cost <= cost + 2 * TRAFFIC + ratio * TRAFFIC


def _product(b: Builder, counters: Sequence[int]) -> int:
    product = 1
    for c in counters:
        product *= b.extent(c)
    return product
