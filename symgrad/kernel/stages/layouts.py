"""The order in which large arrays between stages stand in memory on the CPU.

An array whose last axis is short, as (1000, 25, 10), leaves lanes little to go along, and what
reads a batched product of matrices finds its axes in another order. An axis of several arrays,
which their readers go through by one counter, becomes the last one of all of them if the whole
costs less then. Inputs, outputs and constants stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import (
    ArrayProgram,
    Counted,
    Result,
    Tabulate,
    element_reads,
    ordered,
    sources,
)
from symgrad.arrays.scalars import COUNTER, Array, Reduce, Scalars, replaced
from symgrad.expr import ops
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import GATHERED, READ, Access, Lanes
from symgrad.kernel.stages.products import Contraction, contraction, factors_of, is_worth, operand
from symgrad.kernel.stages.sizes import TILE_PRODUCT

Axis = tuple[Array, int]
"""An axis of an array."""

LEAST: Final = 2**14
"""The elements from which an array may be laid out otherwise."""
VECTORS: Final = 4
"""The vectors that an axis has which becomes the last one, at least."""
GAIN: Final = 0.9
"""The part of the cost that is left, at most, for it to be worth it."""


def laid_out(program: ArrayProgram, target: Target) -> ArrayProgram:
    """The program with axes of arrays in the order that costs least."""
    b, arrays = program.scalars, program.arrays
    if not isinstance(b, Builder):
        return program
    fixed = {*program.outputs, *(a for array in arrays for a in array.arguments)}
    movable = {a for a in arrays if isinstance(a, Tabulate) and a.size >= LEAST and a not in fixed}
    if not any(len(_moving(a)) > 1 for a in movable):
        return program
    costs, best = _Costs(b, target), program
    now: dict[Array, tuple[Array, list[int]]] = {a: (a, [*range(len(a.shape))]) for a in movable}
    """The arrays that these have become, and their axes in the order in which they stand."""
    for axes in _aligned(b, arrays, movable):
        (array, k), *_ = axes
        last = {now[a][0]: now[a][1].index(k) for a, k in axes}
        if array.shape[k] < VECTORS * target.width or all(_is_last(*pair) for pair in last.items()):
            continue
        new = _reordered(b, best.outputs, last)
        changed = [(a, other) for a, other in new.items() if a is not other]
        if costs.of(other for _, other in changed) < GAIN * costs.of(a for a, _ in changed):
            best = ArrayProgram(b, program.inputs, tuple(new[o] for o in best.outputs))
            for a, k in axes:
                now[a][1].append(now[a][1].pop(now[a][1].index(k)))
            now = {a: (new.get(array, array), order) for a, (array, order) in now.items()}
    return best


def _moving(array: Array) -> list[int]:
    """The axes that are longer than 1."""
    return [k for k, n in enumerate(array.shape) if n > 1]


def _is_last(array: Array, axis: int) -> bool:
    return _moving(array)[-1] == axis


def _aligned(b: Scalars, arrays: Sequence[Array], movable: Collection[Array]) -> list[list[Axis]]:
    """Axes that belong together, since readers go through them by one counter; one of an array."""
    groups: dict[Axis, list[Axis]] = {}
    for array in arrays:
        counted: dict[int, list[Axis]] = {}
        if array in movable and isinstance(array, Tabulate):
            for k in _moving(array):
                counted[array.counters[k]] = [(array, k)]
        for i, op in b.reads(array.scalars):
            if op.array in movable:
                for k in _moving(op.array):
                    if b.op(b.args(i)[k]) is COUNTER:
                        counted.setdefault(b.args(i)[k], []).append((op.array, k))
        for axes in counted.values():
            joined = list(dict.fromkeys(x for axis in axes for x in groups.get(axis, [axis])))
            groups |= dict.fromkeys(joined, joined)
    distinct = {id(group): group for group in groups.values()}.values()
    return [g for g in distinct if len({a for a, _ in g}) == len(g)]


def _reordered(
    b: Builder, outputs: Sequence[Array], last: Mapping[Array, int]
) -> dict[Array, Array]:
    """The arrays that outputs need, by what they were before these axes were the last ones."""
    new: dict[Array, Array] = {}

    def element(array: Array, index: Sequence[int]) -> int:
        return b.element(new[array], _moved(index, last.get(array)))

    for array in ordered(b, outputs):
        new[array] = array
        if array not in last and all(new[a] is a for a in sources(b, array)):
            continue
        if isinstance(array, Tabulate):
            [body] = b.substituted([array.body], {}, element)
            new[array] = b.array(_moved(array.counters, last.get(array)), body)
        elif isinstance(array, Counted):
            new[array] = b.rebuilt(array, b.substituted(array.scalars, {}, element))
        elif isinstance(array, Result):
            new[array] = algorithms.again(b, array, [new[a] for a in array.arguments])
    return new


def _moved(index: Sequence[int], axis: int | None) -> list[int]:
    """Indices with that of an axis behind the others."""
    if axis is None:
        return list(index)
    return [*index[:axis], *index[axis + 1 :], index[axis]]


class _Costs:
    """About what arrays of a program cost on the CPU, in additions of vectors."""

    def __init__(self, scalars: Scalars, target: Target) -> None:
        self._s, self._target, self._lanes = scalars, target, Lanes(scalars, target)

    def of(self, arrays: Iterable[Array]) -> float:
        """The cost of some arrays together."""
        return sum(sum(self._costs(a)) for a in arrays if isinstance(a, Tabulate))

    def _costs(self, array: Tabulate) -> Iterator[float]:
        access = Access.of(self._s, array)
        product = contraction(access)
        if product is not None and is_worth(self._s, product, *sizes.HOST_PRODUCT):
            yield from self._of_product(access, product)
            return
        inner, lanes = self._lanes.along(access)
        width = self._target.width
        along = lanes if inner is None else lanes | {inner}
        yield access.cost(along, width) + access.cost_of_writes(inner, width)

    def _of_product(self, access: Access, c: Contraction) -> Iterator[float]:
        """The costs besides the products: of factors that are stored, and of a result in order."""
        s, order = self._s, (*c.batch, *c.rows, *c.columns)
        for factor, own in ((c.left, c.rows), (c.right, c.columns)):
            counters = *c.batch, *own, *c.summed
            known = operand(s, factor, counters)
            steps = known.strides[len(c.batch) :] if known else ()
            if 1 not in steps:
                yield GATHERED * Access(s, (factor,), counters).size
        if access.roots != (c.reduction,) or order != access.moving:
            yield (GATHERED if order != access.moving else READ / self._target.width) * access.size


# --- windows that overlap -------------------------------------------------------------------------
# Sums of a product's elements over windows that overlap become products: a transposed convolution.
#
#     p = for i, k, c, m { reduce o; add { w[o, c, m] * g[i, o, k] } }
#     y = for i, c, k { reduce m; add { where(0 <= k - m < 32, p[i, k - m, c, m], 0) } }
#
# is, without an array of all windows,
#
#     y = for i, c, k {
#         reduce m, o; add { w[o, c, m] * where(0 <= k - m < 32, g[i, o, k - m], 0) }
#     }

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
