"""Products of matrices among the arrays of a program: which are such, and what computes them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod
from typing import Final

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Scalars, replaced
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.products import (
    Contraction,
    Operand,
    contraction,
    is_worth,
    operand,
    reads_easier,
)
from symgrad.kernel.stages.steps import AnyStep, Form, ProductStep
from symgrad.kernel.stages.tile_products import (
    NOTHING,
    Elements,
    Ending,
    ending,
    tile_operand,
    tile_product,
)
from symgrad.kernel.stages.translate import Simplify

# --- how operands stand ---------------------------------------------------------------------------
# How operands of products stand on a GPU: which terms follow each other, and what is stored.
#
# A convolution is a product of its kernel and of windows that overlap:
#
#     y = for i, o, k, l { reduce c, m, n; add { w[o, c, m, n] * x[i, c, k + m, l + n] } }
#
# Windows are read where they stand (Chetlur et al., 2014, "cuDNN: Efficient primitives for deep
# learning") if in a tile of terms only c moves: so the sum goes through m, n and c, in this order.
# What is read of another array where a condition holds, as in the derivative, depends on k - m
# alone:
#
#     where(0 <= k - m + 1 < 32, g[k - m + 1], 0)
#
# It is stored by u = k - m + 2, and read at k + m', where m' = 2 - m: no window is stored.

LAUNCH: Final = 2**18
"""The additions that take as long as one more kernel."""

STORED: Final = 8
"""The additions that take as long as an element that is stored."""

UNEVEN: Final = 4
"""The share of a product's time that it takes to find the terms of a factor one by one."""

SINGLE: Final = 32
"""The share of it to read numbers singly rather than in fours."""

EXPANDING: Final = 2
"""How much larger windows are than what is stored by differences, at least."""

MOST_SUMMED: Final = 4
"""Counters of a sum whose orders are all looked at, at most."""


def arranged(s: Scalars, c: Contraction) -> tuple[Contraction, list[Tabulate]]:
    """The product with its terms in the order in which its factors stand best.

    And arrays that are stored for it.
    """
    (left, one), (right, two) = (
        _by_differences(s, factor, c, own)
        for factor, own in ((c.left, c.rows), (c.right, c.columns))
    )
    c = _forward(s, replace(c, left=left, right=right))
    orders = permutations(c.summed) if len(c.summed) <= MOST_SUMMED else [c.summed]
    chosen = min((replace(c, summed=order) for order in orders), key=lambda o: _effort(s, o))
    return chosen, [*one, *two]


def _effort(s: Scalars, c: Contraction) -> int:
    """About what it costs to store factors anew, as no tile reads them where they stand.

    And to read others with more effort, in additions.
    """
    products = prod(map(s.extent, (*c.batch, *c.rows, *c.columns, *c.summed)))
    total = 0
    for factor, own in ((c.left, c.rows), (c.right, c.columns)):
        known = operand(s, factor, (*c.batch, *own, *c.summed))
        tile = known and tile_operand(known, c, own)
        if tile is None:
            total += STORED * prod(map(s.extent, s.free(factor))) + LAUNCH
            continue
        digits = tile.operand.digits
        if digits is not None and not digits.even:
            total += products // UNEVEN
        elif not tile.operand.quads:
            total += products // SINGLE
    return total


def _by_differences(
    s: Scalars, factor: int, c: Contraction, own: Sequence[int]
) -> tuple[int, list[Tabulate]]:
    """A factor that is no array, as the read of one by differences or sums of counters.

    And that array, if it is far smaller.
    """
    counters = *c.batch, *own, *c.summed
    free, body, index = s.free(factor), factor, dict[int, int]()
    if operand(s, factor, counters) is not None:
        return factor, []
    for i in (*c.batch, *own):
        for t in c.summed:
            apart = _apart(s, body, i, t) if {i, t} <= s.free(body) else None
            if apart is not None:
                body, (counter, place) = apart
                index[counter] = place
                break
    size, windows = (prod(map(s.extent, s.free(i))) for i in (body, factor))
    if not index or EXPANDING * size > windows or not s.free(body) <= {*index, *free}:
        return factor, []
    order = _order(s, body)
    stored = Tabulate(shape=tuple(map(s.extent, order)), counters=tuple(order), body=body)
    return s.read(stored, [index.get(i, i) for i in order]), [stored]


def _apart(s: Scalars, body: int, i: int, t: int) -> tuple[int, tuple[int, int]] | None:
    """A scalar of i - t or i + t alone by a counter for that, if it is one, and its place."""
    reach = s.extent(t) - 1
    counter = s.counter(s.extent(i) + reach)
    for sign, first in ((1, reach), (-1, 0)):
        value = s.plus(counter, (sign, t), offset=-first)
        new = replaced(s, body, {i: value}, within=True)
        if t not in s.free(new):
            return new, (counter, s.plus(i, (-sign, t), offset=first))
    return None


def _order(s: Scalars, body: int) -> list[int]:
    """The counters of a scalar as they step through the largest array that it reads."""
    access = Access(s, (body,), ())
    reads = [(op.array.size, i) for i, op in s.reads([body])]
    steps = access.steps(max(reads)[1]) if reads else {}
    return sorted(s.free(body), key=lambda i: -abs(steps.get(i) or 0))


def _forward(s: Scalars, c: Contraction) -> Contraction:
    """The product with terms in the order in which the larger array is read forwards."""
    for t in c.summed:
        steps = list[tuple[int, int]]()
        for factor, own in ((c.left, c.rows), (c.right, c.columns)):
            counters = *c.batch, *own, *c.summed
            known = operand(s, factor, counters)
            if known is not None:
                steps.append((known.array.size, known.strides[counters.index(t)]))
        if steps and max(steps)[1] < 0:
            back = {t: s.plus((-1, t), offset=s.extent(t) - 1)}
            left, right = (replaced(s, factor, back, within=True) for factor in (c.left, c.right))
            c = replace(c, left=left, right=right)
    return c


# --- products -------------------------------------------------------------------------------------

Tabulated = Callable[[Array, Sequence[int], int], Iterator[AnyStep]]
"""The steps that compute an array by its counters, and its elements."""


class Products:
    """The products of a program for a target."""

    def __init__(
        self, scalars: Scalars, target: Target, simplify: Simplify, tabulated: Tabulated
    ) -> None:
        self.scalars, self.target = scalars, target
        self._simplify, self._tabulated = simplify, tabulated
        self._copies: dict[Hashable, tuple[Array, list[int]]] = {}
        """Factors that are stored, by their form, and the places of the counters of their axes."""

    def of(self, access: Access) -> Contraction | None:
        """The product of matrices that an array is, if it is large enough to be one."""
        least = sizes.HOST_PRODUCT if self.target.in_step else sizes.TILE_PRODUCT
        product = contraction(access, in_order=not self.target.in_step)
        worth = product is not None and is_worth(self.scalars, product, *least)
        return product if worth else None

    def ending(self, access: Access, c: Contraction, elements: Elements) -> Ending | None:
        """The epilogue of a product, if all of these elements can be computed in its kernel."""
        if (*c.batch, *c.rows, *c.columns) != access.moving:
            return None
        end = ending(self.scalars, elements, c, self._simplify)
        bound = end and 2 + len(end.reads) + len(elements)
        return end if bound and bound <= (self.target.bindings or bound) else None

    def steps(
        self,
        array: Array,
        access: Access,
        c: Contraction,
        elements: Elements = (),
    ) -> Iterator[AnyStep]:
        """A product of operands in memory, by the BLAS of the host or by tiles, and what follows.

        Of the product other ``elements`` may be made in the same kernel.
        """
        s = self.scalars
        if not self.target.in_step:
            c, stored = arranged(s, c)
            for each in stored:
                yield from self._tabulated(each, each.counters, each.body)
        left, right = self._stored(c)
        yield from (step for _, steps in (left, right) for step in steps)
        order = *c.batch, *c.rows, *c.columns
        alone = access.roots == (c.reduction,) and order == access.moving
        product = array if alone else Array(shape=tuple(map(s.extent, order)))
        if self.target.in_step:
            yield ProductStep(left[0], right[0], c, product)
        else:
            end = self.ending(access, c, elements or [(array, access.roots[0])])
            alone = alone or end is not None
            end = end or Ending(NOTHING, writes=(("result", product),))
            yield from tile_product(s, left[0], right[0], c, end, self.target.itemsize)
        if not alone:
            root = replaced(s, access.roots[0], {c.reduction: s.read(product, order)})
            yield from self._tabulated(array, access.parallel, root)

    def _stored(self, c: Contraction) -> Iterator[tuple[Operand, Iterator[AnyStep]]]:
        """The operands in memory, and the steps that store them, unless they stand as tiles read.

        What an operand is made of is stored, unless it is read as it stands.
        """
        s, on_host = self.scalars, self.target.in_step
        for factor, own in ((c.left, c.rows), (c.right, c.columns)):
            counters, free = (*c.batch, *own, *c.summed), s.free(factor)
            known = operand(s, factor, counters)
            if known is not None and (on_host or tile_operand(known, c, own)):
                yield known, iter(())
                continue
            form = Form(s)
            form.add(factor)
            key, places = (*form.key, *form.arrays), form.counters
            if not on_host and key in self._copies:
                copy, axes = self._copies[key]
                known = operand(s, s.read(copy, [places[k] for k in axes]), counters)
                if known is not None and tile_operand(known, c, own):
                    yield known, iter(())
                    continue
            transposed = not on_host and reads_easier(s, factor, own, c.summed)
            order = (*c.batch, *c.summed, *own) if transposed else counters
            order = tuple(i for i in order if i in free)
            stored = Tabulate(shape=tuple(map(s.extent, order)), counters=order, body=factor)
            known = operand(s, s.read(stored, order), counters)
            assert known is not None, "an array stands in memory"
            self._copies[key] = stored, [places.index(i) for i in order]
            yield known, self._tabulated(stored, order, factor)
