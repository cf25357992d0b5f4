"""Products of matrices in array programs: which sums are such, and where their factors stand."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from symgrad.arrays.scalars import MOST_FACTORS, Array, Read, Reduce, Scalars
from symgrad.expr import ops
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.sizes import FOUR, TILE_PRODUCT


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix of a batch of them, in an array: where it begins, and its strides, in numbers.

    ``shape`` and ``strides`` have an axis for each counter: those of the batch, those of rows or
    columns, and those of the sum, in this order.
    """

    array: Array
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def merged(self, ends: Sequence[int]) -> list[tuple[int, int]] | None:
        """The lengths and strides of groups of axes between these ends, if each is one axis."""
        axes = []
        for group in (slice(*between) for between in pairwise(ends)):
            moving = [
                (n, by)
                for n, by in zip(self.shape[group], self.strides[group], strict=True)
                if n > 1
            ]
            if any(by != n * step for (_, by), (n, step) in pairwise(moving)):
                return None
            axes.append((prod(self.shape[group]), moving[-1][1] if moving else 0))
        return axes


@dataclass(frozen=True, eq=False)
class Contraction:
    """A sum of products of two factors: left and right, each by the counters that it moves with.

    ``batch`` counters are those of both, ``rows`` those of the left one alone, ``columns`` those of
    the right one; ``summed`` are those of the sum. A batch may be of one of them alone where
    results stand in order then.
    """

    reduction: int
    left: int
    right: int
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


def contraction(access: Access, in_order: bool = False) -> Contraction | None:
    """The sum of products that the elements are made of, if there is one, and only one.

    Its results are to stand ``in_order``, as the elements do, if that can be.
    """
    s = access.scalars
    if len(access.reductions) != 1:
        return None
    (r,) = access.reductions
    op, (part,) = s.op(r), (*s.args(r)[:1],)
    assert isinstance(op, Reduce), "a reduction"
    if op.operator != "add" or s.op(part) is not ops.mul or s.graph.type(part) != "f":
        return None
    factors, summed = factors_of(s, part), op.counters
    moving = [c for c in access.parallel if s.extent(c) > 1]
    sides = _sides(s, factors, moving)
    if sides is None:
        return None
    left, right = (_product(s, side) for side in sides)
    of_left, of_right = s.free(left), s.free(right)
    if not set(summed) <= of_left & of_right or not set(moving) <= of_left | of_right:
        return None
    if in_order and (parts := _in_order(s, moving, of_left, of_right)):
        if not of_left.isdisjoint(parts[2]):
            left, right = right, left
        return Contraction(r, left, right, *parts, summed)
    batch = tuple(c for c in moving if c in of_left and c in of_right)
    rows = tuple(c for c in moving if c not in of_right)
    columns = tuple(c for c in moving if c not in of_left)
    return Contraction(r, left, right, batch, rows, columns, summed)


def _in_order(
    s: Scalars, moving: Sequence[int], of_left: Set[int], of_right: Set[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """The counters in three: those of a batch, those of one side alone, and those of the other.

    None if the last two would be short.
    """
    sides = [
        "".join(n for n, side in (("l", of_left), ("r", of_right)) if c in side) for c in moving
    ]

    def start_of(end: int, side: str) -> int:
        """Where a run of counters of one side begins that ends there."""
        while end and sides[end - 1] == side != "lr":
            end -= 1
        return end

    last = start_of(len(moving), sides[-1])
    first = start_of(last, "l" if sides[-1] == "r" else "r")
    parts = tuple(moving[first:last]), tuple(moving[last:])
    is_long = all(prod(map(s.extent, part)) >= TILE_PRODUCT[1] for part in parts)
    return (tuple(moving[:first]), *parts) if is_long else None


def factors_of(s: Scalars, part: int) -> list[int]:
    """The factors of a product; of very many, it is one itself."""
    stack, factors = [part], list[int]()
    while stack:
        i = stack.pop()
        if s.op(i) is ops.mul:
            stack += reversed(s.args(i))
        else:
            factors.append(i)
        if len(stack) + len(factors) > MOST_FACTORS:
            return [part]
    return factors


def _sides(
    s: Scalars, factors: Sequence[int], moving: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Factors in two: each side moves with a counter that the other does not move with.

    The left side is that with the first of these counters.
    """
    for c in moving:
        left = [f for f in factors if c in s.free(f)]
        right = [f for f in factors if c not in s.free(f)]
        of_left, of_right = (frozenset[int]().union(*map(s.free, side)) for side in (left, right))
        if left and any(d in of_right and d not in of_left for d in moving):
            return left, right
    return None


def _product(s: Scalars, factors: Sequence[int]) -> int:
    product, *rest = factors
    for f in rest:
        product = s.graph.add(ops.mul, product, f)
    return product


def is_worth(s: Scalars, c: Contraction, products: int, side: int) -> bool:
    """Whether there are so many products, and matrices with sides so long."""
    rows, columns = (prod(map(s.extent, side)) for side in (c.rows, c.columns))
    depth, many = prod(map(s.extent, c.summed)), prod(map(s.extent, c.batch))
    large = rows * columns * depth * many >= products
    return large and min(rows, columns, depth) >= side


def operand(s: Scalars, factor: int, counters: Sequence[int]) -> Operand | None:
    """Where a factor stands in memory, if it does, and its counters step through it evenly."""
    op = s.op(factor)
    if not isinstance(op, Read):
        return None
    stride, first, steps = op.array.size, 0, dict[int, int]()
    for i, n in zip(s.args(factor), op.array.shape, strict=True):
        stride //= n
        constant, terms = s.terms(i)
        low = high = constant
        first += stride * constant
        for c, a in terms:
            if a not in counters:
                return None
            steps[a] = steps.get(a, 0) + c * stride
            ends = sorted((0, c * (s.extent(a) - 1)))
            low, high = low + ends[0], high + ends[1]
        if low < 0 or high >= n:
            return None
    shape = tuple(map(s.extent, counters))
    return Operand(op.array, first, shape, tuple(steps.get(c, 0) for c in counters))


def reads_easier(s: Scalars, factor: int, own: Sequence[int], summed: Sequence[int]) -> bool:
    """Whether a factor is read along its rows or columns, in fours, rather than along the sum."""
    access = Access(s, (factor,), ())
    one, other = ((access.moves_along(c), not s.extent(c) % FOUR) for c in (own[-1], summed[-1]))
    return one > other
