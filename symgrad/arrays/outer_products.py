"""Sums of outer products over the iterations of a loop, which are products of matrices behind it.

A large array that a loop takes from around it has a cotangent to which each iteration adds. Where
that is ``x[i] * y[j]``, the loop gives x and y of all iterations instead. The cotangent is
``for i, j { reduce t; add { xs[t, i] * ys[t, j] } }``, which a product of matrices writes once,
instead of a kernel that reads and writes it in each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from symgrad.arrays.gradient import summed
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Read, Reduce
from symgrad.expr import ops

LARGE: Final = 2**14
"""Elements from which a cotangent is not carried through a loop, if it need not be."""
SMALLER: Final = 4
"""How much smaller than it the arrays are together that are read in each iteration, at least."""
MOST: Final = 2**24
"""Numbers that are kept of all iterations, at most."""

Element = Callable[[int, Array, Sequence[int]], int]
"""The scalar around a loop that stands for an element of an array in iteration t of its body."""

Term = tuple[int, int]
"""Factors of which each lacks a counter that the other has; the first one has the sign."""


@dataclass(frozen=True)
class OuterProducts:
    """The products that an iteration adds to an array, by the counters of the array."""

    inner: Builder
    shape: tuple[int, ...]
    counters: tuple[int, ...]
    terms: tuple[Term, ...]
    kept: tuple[Array, ...]
    """The arrays that the terms read which the loop has to give."""

    def total(self, b: Builder, count: int, element: Element) -> Array:
        """The sum over all iterations, of a program around the loop."""
        return summed(b, [self._of_term(b, count, element, term) for term in self.terms])

    def _of_term(self, b: Builder, count: int, element: Element, term: Term) -> Array:
        counters, t = [b.counter(n) for n in self.shape], b.counter(count)
        names = dict(zip(self.counters, b.indices(counters), strict=True))
        read = partial(element, b.indices([t])[0])
        factors = [self._moved(b, f, names, read) for f in term]
        return b.array(counters, b.total([t], b.apply(ops.mul, *factors)))

    def _moved(
        self, b: Builder, root: int, names: Mapping[int, int], read: Callable[..., int]
    ) -> int:
        """A scalar of the body as one of the program around it."""
        inner, memo = self.inner, dict(names)
        for i in inner.walk([root]):
            if i in memo:
                continue
            op, args = inner.op(i), [memo[a] for a in inner.args(i)]
            if isinstance(op, Read):
                memo[i] = read(op.array, args)
            else:
                memo[i] = b.apply(op, *args) if op.arity else b.graph.intern(inner.graph.nodes[i])
        return memo[root]


def outer_products(
    inner: Builder,
    slope: Array,
    count: int,
    constant: Callable[[Array], bool],
    stands: Callable[[Array], bool],
) -> OuterProducts | None:
    """The products that a large array is the sum of, if they are of much smaller arrays.

    ``constant`` arrays are the same in each of ``count`` iterations; what ``stands`` around the
    loop need not be kept of each.
    """
    if not isinstance(slope, Tabulate) or slope.size < LARGE:
        return None
    most = slope.size // SMALLER
    body = _written_out(inner, slope.body, most, constant)
    if any(isinstance(inner.op(i), Reduce) for i in inner.shallow([body])):
        return None
    read = dict.fromkeys(op.array for _, op in inner.reads([body]))
    moving = [a for a in read if not constant(a)]
    kept = tuple(a for a in moving if not stands(a))
    sizes = sum(a.size for a in moving)
    if not moving or sizes > most or count * sizes > MOST:
        return None
    terms: list[Term] = []
    for sign, part in _added(inner, body):
        term = _sides(inner, part, slope.counters, constant)
        if term is None:
            return None
        left, right = term
        terms.append((left if sign > 0 else inner.apply(ops.neg, left), right))
    return OuterProducts(inner, slope.shape, slope.counters, tuple(terms), kept)


def _written_out(b: Builder, root: int, most: int, constant: Callable[[Array], bool]) -> int:
    """A scalar in which the bodies of arrays stand for their elements, if they have so many."""

    def element(array: Array, index: Sequence[int]) -> int:
        if not isinstance(array, Tabulate) or array.size <= most or constant(array):
            return b.element(array, index)
        [body] = b.substituted([array.body], dict(zip(array.counters, index, strict=True)))
        return _written_out(b, body, most, constant)

    return b.substituted([root], {}, element)[0]


def _added(b: Builder, root: int) -> Iterator[tuple[int, int]]:
    """The terms of a sum, with their signs."""
    stack = [(1, root)]
    while stack:
        sign, i = stack.pop()
        op, args = b.op(i), b.args(i)
        if op is ops.neg:
            stack.append((-sign, args[0]))
        elif op in (ops.add, ops.sub):
            stack += [(sign if op is ops.add else -sign, args[1]), (sign, args[0])]
        else:
            yield sign, i


def _sides(
    b: Builder, part: int, counters: Sequence[int], constant: Callable[[Array], bool]
) -> Term | None:
    """The factors that have the first counter which not all have, and the others.

    What is the same in each iteration leaves the sum, and may have all counters.
    """
    over, under = b.fraction(part)
    counted = [c for c in counters if b.extent(c) > 1]
    each = [f for f in (*over, *under) if not all(constant(op.array) for _, op in b.reads([f]))]
    first = next((c for c in counted if any(c not in b.free(f) for f in each)), None)
    if first is None or any(set(counted) <= b.free(f) for f in each):
        return None
    sides = []
    for has in (True, False):
        up, down = ([f for f in fs if (first in b.free(f)) == has] for fs in (over, under))
        side = b.product(up)
        sides.append(b.apply(ops.div, side, b.product(down)) if down else side)
    return sides[0], sides[1]
