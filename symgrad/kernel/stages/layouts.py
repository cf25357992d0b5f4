"""The order in which large arrays between stages stand in memory on the CPU.

An array whose last axis is short, as (1000, 25, 10), leaves lanes little to go along, and what
reads a batched product of matrices finds its axes in another order. An axis of several arrays,
which their readers go through by one counter, becomes the last one of all of them if the whole
costs less then. Inputs, outputs and constants stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import ArrayProgram, Counted, Result, Tabulate, ordered, sources
from symgrad.arrays.scalars import COUNTER, Array, Scalars
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import GATHERED, READ, Access, Lanes
from symgrad.kernel.stages.products import Contraction, contraction, is_worth, operand

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
