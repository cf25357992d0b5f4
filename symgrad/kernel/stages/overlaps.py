"""Sums of a product's elements over windows that overlap become products: a transposed convolution.

    p = for i, k, c, m { reduce o; add { w[o, c, m] * g[i, o, k] } }
    y = for i, c, k { reduce m; add { where(0 <= k - m < 32, p[i, k - m, c, m], 0) } }

is, without an array of all windows,

    y = for i, c, k { reduce m, o; add { w[o, c, m] * where(0 <= k - m < 32, g[i, o, k - m], 0) } }
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import ArrayProgram, Counted, Result, Tabulate, element_reads
from symgrad.arrays.scalars import Array, Reduce, replaced
from symgrad.expr import ops
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.products import contraction, factors_of, is_worth
from symgrad.kernel.stages.sizes import TILE_PRODUCT

OVERLAPPING: Final = 2
"""How much larger windows are than what is added up of them, at least."""

AGAIN: Final = 2
"""How often an element of the product is computed, at most."""


def added_up(program: ArrayProgram) -> ArrayProgram:
    """The program with products in the place of sums of windows of some that nothing else reads."""
    b = program.scalars
    if not isinstance(b, Builder):
        return program
    reads = element_reads(b, program.arrays)
    kept = {*program.outputs, *(a for array in program.arrays for a in array.arguments)}
    once = {own[0][1]: a for a, own in reads.items() if len(own) == 1 and a not in kept}
    products = dict[Array, tuple[int, int]]()
    for array in program.arrays:
        if isinstance(array, Tabulate):
            for r in b.shallow([array.body]):
                product = _product(b, array, r, once)
                if product is not None and _is_product(b, array, r, product):
                    products[array] = r, product
                    break
    return _rebuilt(b, program, products) if products else program


def _product(b: Builder, reader: Tabulate, r: int, once: Mapping[int, Array]) -> int | None:
    """The sum of products that a sum of an array's is, over windows of products or of their sums.

    These stand in it, or are an array that is read ``once``, by this node.
    """
    op = b.op(r)
    if not isinstance(op, Reduce) or op.operator != "add" or b.graph.type(r) != "f":
        return None
    condition, inner = b.guarded(b.args(r)[0])
    names, array = dict[int, int](), once.get(inner)
    if isinstance(array, Tabulate):
        terms = reader.size * prod(map(b.extent, op.counters))
        if array.size < OVERLAPPING * reader.size or terms > AGAIN * array.size:
            return None
        names, inner = dict(zip(array.counters, b.args(inner), strict=True)), array.body
    of_inner, counters, term = b.op(inner), list[int](), inner
    if isinstance(of_inner, Reduce) and of_inner.operator == "add":
        counters, (term,) = b.opened(inner)
    elif b.truth_of(condition) is not None:
        return None
    factors = factors_of(b, b.substituted([term], names)[0])
    wanted = b.free(condition)
    masked = max(factors, key=lambda f: len(wanted & b.free(f)))
    factors[factors.index(masked)] = b.where(condition, masked)
    body, *rest = factors
    for factor in rest:
        body = b.graph.add(ops.mul, body, factor)
    return b.reduction("add", [*op.counters, *counters], body)


def _is_product(b: Builder, reader: Tabulate, reduction: int, product: int) -> bool:
    """Whether a reader's elements are then a product of matrices, and large ones."""
    body = replaced(b, reader.body, {reduction: product})
    c = contraction(Access(b, (body,), reader.counters), in_order=True)
    return c is not None and is_worth(b, c, *TILE_PRODUCT)


def _rebuilt(
    b: Builder, program: ArrayProgram, products: Mapping[Array, tuple[int, int]]
) -> ArrayProgram:
    """The program of what its arrays have become, some with products in the place of sums."""
    new = dict[Array, Array]()
    for array in program.arrays:
        if isinstance(array, Result):
            operands = [new.get(a, a) for a in array.arguments]
            if operands != list(array.arguments):
                new[array] = algorithms.again(b, array, operands)
            continue
        if not isinstance(array, Counted):
            continue
        known = dict([products[array]]) if array in products else {}
        roots = [replaced(b, root, known) for root in array.scalars]
        if known or any(op.array in new for _, op in b.reads(roots)):
            roots = b.substituted(roots, {}, lambda a, i: b.element(new.get(a, a), i))
            new[array] = b.rebuilt(array, roots)
    outputs = tuple(new.get(a, a) for a in program.outputs)
    return ArrayProgram(b, program.inputs, outputs)
