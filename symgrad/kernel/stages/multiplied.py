"""Products of matrices among the arrays of a program: which are such, and what computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import Array, Scalars, replaced
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.arranging import arranged
from symgrad.kernel.stages.epilogues import NOTHING, Elements, Ending, ending
from symgrad.kernel.stages.host_steps import ProductStep
from symgrad.kernel.stages.products import (
    Contraction,
    Operand,
    contraction,
    is_worth,
    operand,
    reads_easier,
)
from symgrad.kernel.stages.steps import AnyStep
from symgrad.kernel.stages.tile_products import tile_operand, tile_product
from symgrad.kernel.stages.translate import Simplify

Tabulated = Callable[[Array, Sequence[int], int], Iterator[AnyStep]]
"""The steps that compute an array by its counters, and its elements."""


class Products:
    """The products of a program for a target."""

    def __init__(
        self, scalars: Scalars, target: Target, simplify: Simplify, tabulated: Tabulated
    ) -> None:
        self.scalars, self.target = scalars, target
        self._simplify, self._tabulated = simplify, tabulated

    def of(self, access: Access) -> Contraction | None:
        """The product of matrices that an array is, if it is large enough to be one."""
        least = sizes.HOST_PRODUCT if self.target.in_step else sizes.TILE_PRODUCT
        product = contraction(access, in_order=not self.target.in_step)
        worth = product is not None and is_worth(self.scalars, product, *least)
        return product if worth else None

    def ending(self, access: Access, c: Contraction, elements: Elements) -> Ending | None:
        """The epilogue of a product, if all of these elements can be computed in its kernel."""
        moving = tuple(i for i in access.parallel if self.scalars.extent(i) > 1)
        if (*c.batch, *c.rows, *c.columns) != moving:
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
        moving = tuple(i for i in access.parallel if s.extent(i) > 1)
        alone = access.roots == (c.reduction,) and order == moving
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
            transposed = not on_host and reads_easier(s, factor, own, c.summed)
            order = (*c.batch, *c.summed, *own) if transposed else counters
            order = tuple(i for i in order if i in free)
            stored = Tabulate(shape=tuple(map(s.extent, order)), counters=order, body=factor)
            known = operand(s, s.read(stored, order), counters)
            assert known is not None, "an array stands in memory"
            yield known, self._tabulated(stored, order, factor)
