"""What NumPy does on the host between kernels: products by its BLAS, scans, whole algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.arrays.program import Call, Scan
from symgrad.arrays.scalars import Array, Read, Reduce, Scalars
from symgrad.expr import ops
from symgrad.kernel.memory import POOL
from symgrad.kernel.stages.access import Access

LEAST_PRODUCTS: Final = 30_000
"""Products of numbers from which a BLAS is called."""

LEAST_SIDE: Final = 4
"""Rows and columns from which there is a product of matrices."""


class HostStep:
    """A step that NumPy does: what it reads and writes, and how.

    ``run`` takes the arrays that it reads, and gives those that it writes.
    """

    inputs: tuple[Array, ...]
    writes: tuple[Array, ...]
    title: str

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of these arrays, which stay as they are."""
        raise NotImplementedError


class CallStep(HostStep):
    """An algorithm on whole arrays, by its NumPy function."""

    def __init__(self, call: Call, results: Mapping[int, Array]) -> None:
        self.call, self.title = call, f"call {call.name}"
        self.inputs, self.writes = tuple(dict.fromkeys(call.operands)), tuple(results.values())
        self._numbers = tuple(results)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results that are needed: see `HostStep`."""
        known = dict(zip(self.inputs, arrays, strict=True))
        operands = [known[a] for a in self.call.operands]
        results = self.call.reference(*operands, *self.call.options)
        return [np.asarray(results[n]) for n in self._numbers]


ACCUMULATED: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class ScanStep(HostStep):
    """Running totals of an array along an axis."""

    def __init__(self, scan: Scan, elements: Array) -> None:
        self.inputs, self.writes, self.title = (elements,), (scan,), f"scan {scan.operator}"
        self._function, self._axis = ACCUMULATED[scan.operator], scan.axis
        way = slice(None, None, -1 if scan.reverse else 1)
        self._order = (*[slice(None)] * scan.axis, way)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The totals: see `HostStep`."""
        (elements,) = arrays
        totals = POOL.empty(elements.shape, elements.dtype)
        with np.errstate(all="ignore"):
            order = self._order
            self._function.accumulate(elements[order], self._axis, out=totals[order])
        return [totals]


# --- products -------------------------------------------------------------------------------------


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

    def matrices(self, values: np.ndarray, batch: int, outer: int) -> np.ndarray:
        """Matrices (batch, outer, inner), of which so many axes each are made."""
        strides = [n * values.itemsize for n in self.strides]
        view: Any = np.ndarray(
            self.shape, values.dtype, values, self.first * values.itemsize, strides
        )
        many, rows = prod(self.shape[:batch]), prod(self.shape[batch : batch + outer])
        view = view.reshape(many, rows, prod(self.shape[batch + outer :]))
        steps = [n // values.itemsize for n in view.strides[1:]]
        return view if 1 in steps and min(steps) > 0 else np.ascontiguousarray(view)


@dataclass(frozen=True, eq=False)
class Contraction:
    """A sum of products of two factors: left and right, each by the counters that it moves with.

    ``batch`` counters are those of both, ``rows`` those of the left one alone, ``columns`` those of
    the right one; ``summed`` are those of the sum.
    """

    reduction: int
    left: int
    right: int
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


class ProductStep(HostStep):
    """Products of matrices, by the BLAS of NumPy: an array (batch, rows, columns)."""

    def __init__(self, left: Operand, right: Operand, c: Contraction, result: Array) -> None:
        self.left, self.right = left, right
        self.inputs = tuple(dict.fromkeys((left.array, right.array)))
        self.writes, self.title = (result,), "product"
        self._batch, self._rows, self._columns = len(c.batch), len(c.rows), len(c.columns)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The products: see `HostStep`."""
        known = dict(zip(self.inputs, arrays, strict=True))
        a = self.left.matrices(known[self.left.array], self._batch, self._rows)
        b = self.right.matrices(known[self.right.array], self._batch, self._columns)
        result = POOL.empty(self.writes[0].shape, a.dtype)
        matrices = result.reshape(len(a), a.shape[1], b.shape[1])
        with np.errstate(all="ignore"):
            if len(a) == 1:
                np.matmul(a[0], b[0].T, out=matrices[0])
            else:
                np.matmul(a, b.mT, out=matrices)
        return [result]


def contraction(access: Access) -> Contraction | None:
    """The sum of products that the elements are made of, if there is one, and only one."""
    s = access.scalars
    if len(access.reductions) != 1:
        return None
    (r,) = access.reductions
    op, (part,) = s.op(r), (*s.args(r)[:1],)
    assert isinstance(op, Reduce), "a reduction"
    if op.operator != "add" or s.op(part) is not ops.mul or s.graph.type(part) != "f":
        return None
    factors, summed = list(_factors(s, part)), op.counters
    moving = [c for c in access.parallel if s.extent(c) > 1]
    sides = _sides(s, factors, moving)
    if sides is None:
        return None
    left, right = (_product(s, side) for side in sides)
    of_left, of_right = s.free(left), s.free(right)
    if not set(summed) <= of_left & of_right or not set(moving) <= of_left | of_right:
        return None
    batch = tuple(c for c in moving if c in of_left and c in of_right)
    rows = tuple(c for c in moving if c not in of_right)
    columns = tuple(c for c in moving if c not in of_left)
    return Contraction(r, left, right, batch, rows, columns, summed)


def _factors(s: Scalars, part: int) -> Iterator[int]:
    """The factors of a product."""
    stack = [part]
    while stack:
        i = stack.pop()
        if s.op(i) is ops.mul:
            stack += reversed(s.args(i))
        else:
            yield i


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


def is_worth(s: Scalars, c: Contraction) -> bool:
    """Whether a BLAS does it sooner than a kernel."""
    rows, columns = (prod(map(s.extent, side)) for side in (c.rows, c.columns))
    depth, many = prod(map(s.extent, c.summed)), prod(map(s.extent, c.batch))
    large = rows * columns * depth * many >= LEAST_PRODUCTS
    return large and min(rows, columns) >= LEAST_SIDE and depth > 1


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
