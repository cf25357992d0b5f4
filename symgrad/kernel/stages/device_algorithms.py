"""Algorithms on whole matrices as steps of a GPU: what a program calls for, and who does it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from symgrad.arrays.program import Call
from symgrad.arrays.scalars import Array, is_zero
from symgrad.expr import ops
from symgrad.kernel.stages.panels import (
    COLUMNS,
    SIDE,
    SubstitutionProgram,
    UpdateProgram,
    by_groups,
    cholesky_panel,
)
from symgrad.kernel.stages.pivoting import LU_SIDE, lu_panel, lu_rows
from symgrad.kernel.stages.schedule import Scheduler
from symgrad.kernel.stages.steps import AnyStep, Step

Results = Mapping[int, Array]
"""The results of a call that are needed, by their numbers."""


@dataclass(frozen=True)
class Factors:
    """LU factors: both of them in one array, which rows they are of, and signs of swaps.

    Row i of the factors is row ``order[i]`` of the matrix, and row i of that is ``inverse[i]``.
    """

    both: Array
    order: Array
    inverse: Array
    flips: Array


class DeviceAlgorithms:
    """The algorithms of a program that a GPU does, with kernels of its own or those of arrays."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.scalars = scheduler, scheduler.scalars
        self._factored: dict[Array, Factors] = {}
        """LU factors of matrices."""

    def steps(self, call: Call, results: Results) -> Iterator[AnyStep] | None:
        """The steps of a call, or None if the host does it."""
        algorithm = ON_DEVICE.get(call.name)
        if algorithm is None or not all(o.size for o in call.operands):
            return None
        return algorithm(self, call, results)

    def _many(self, shape: Sequence[int], body: Callable[[list[int]], int], a: Array) -> _Steps:
        """The steps that compute an array of this shape, by its counters; one of length 1 is 0."""
        counters = [self.scalars.counter(n) for n in shape]
        return self.scheduler.tabulated(a, counters, body(list(map(self.scalars.plus, counters))))

    def _flat(self, counters: Sequence[int], shape: Sequence[int]) -> int:
        """The number of an element in C order."""
        strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
        return self.scalars.plus(*zip(strides, counters, strict=True))

    # Cholesky's factors and triangular systems ----------------------------------------------------

    def cholesky(self, call: Call, results: Results) -> _Steps:
        """The factors of symmetric matrices, panel by panel; NaN of one that is not definite."""
        (matrix,) = call.operands
        n, many = _sizes(matrix)
        factor, rest = Array(shape=matrix.shape), Array(shape=matrix.shape)
        last, blocks = Array(shape=(many,)), -(-n // SIDE)
        for b in range(blocks):
            source = {"matrix": rest if b else matrix}
            written, place = {"factor": factor, "last": last}, {"n": n, "first": b * SIDE}
            words = {**place, "blocks": blocks}
            title = f"panel {b} of {blocks}"
            yield by_groups(cholesky_panel, source, written, many * blocks, title, words)
            tiles = blocks - 1 - b
            if tiles:
                reads = {"factor": factor} | ({} if b else source)
                words = {**place, "depth": SIDE, "tiles": tiles}
                update, written = UpdateProgram(first_time=not b), {"result": rest}
                yield by_groups(update, reads, written, many * tiles**2, f"behind panel {b}", words)

        def element(counters: list[int]) -> int:
            graph, s = self.scalars.graph, self.scalars
            pivot = s.read(last, [self._flat(counters[:-2], matrix.shape[:-2])])
            known, nan = graph.add(ops.eq, pivot, pivot), graph.constant(np.nan)
            return graph.add(ops.where, known, s.read(factor, counters), nan)

        yield from self._many(matrix.shape, element, results[0])

    def solve_triangular(self, call: Call, results: Results) -> _Steps:
        """The solutions of triangular systems."""
        (matrix, right), (lower, trans) = call.operands, call.options
        yield _substitution(SubstitutionProgram(not lower, trans), matrix, right, results[0])

    # LU factors -----------------------------------------------------------------------------------

    def _lu(self, matrix: Array) -> Iterator[AnyStep]:
        """The steps that factor matrices, unless they are factored."""
        if matrix in self._factored:
            return
        n, many = _sizes(matrix)
        work, flips = Array(shape=matrix.shape), Array(shape=(many, n))
        order, inverse, swaps = (Array(shape=(many, n), kind="i") for _ in range(3))
        yield from self._many(matrix.shape, lambda c: self.scalars.read(matrix, c), work)
        for rows in (order, inverse):
            yield from self._many(rows.shape, lambda c: c[1], rows)
        beside = -(-n // SIDE)
        for first in range(0, n, LU_SIDE):
            depth = min(LU_SIDE, n - first)
            words, at = {"n": n, "first": first, "depth": depth}, f"{first} of {n}"
            written = {"work": work, "order": order, "inverse": inverse}
            written |= {"swaps": swaps, "flips": flips}
            yield by_groups(lu_panel, {}, written, many, f"panel at {at}", words)
            reads, sides = {"swaps": swaps}, {**words, "parts": beside}
            if n > depth:
                title = f"rows beside panel at {at}"
                yield by_groups(lu_rows, reads, {"work": work}, many * beside, title, sides)
            tiles = -(-(n - first - depth) // SIDE)
            if tiles:
                update, behind = UpdateProgram(lu=True), {**words, "tiles": tiles}
                title = f"behind panel at {at}"
                yield by_groups(update, {}, {"result": work}, many * tiles**2, title, behind)
        self._factored[matrix] = Factors(work, order, inverse, flips)

    def solve(self, call: Call, results: Results) -> _Steps:
        """The solutions of linear systems, or of those of transposed matrices."""
        (matrix, right), (trans,), s = call.operands, call.options, self.scalars
        swapped = Array(shape=right.shape) if trans else right

        def element(counters: list[int]) -> int:
            *z, i, j = counters
            return s.read(right, [*z, i if trans else self._row(matrix, z, i), j])

        def unswapped(counters: list[int]) -> int:
            *z, i, j = counters
            return s.read(swapped, [*z, self._row(matrix, z, i, inverse=True), j])

        x = swapped if trans else results[0]
        yield from self._solved(matrix, right.shape, element, x, trans)
        if trans:
            yield from self._many(right.shape, unswapped, results[0])

    def inv(self, call: Call, results: Results) -> _Steps:
        """The inverses of matrices."""
        (matrix,) = call.operands

        def element(counters: list[int]) -> int:
            *z, i, j = counters
            graph, s = self.scalars.graph, self.scalars
            apart = s.plus((1, self._row(matrix, z, i)), (-1, j))
            one, zero = graph.constant(1.0), graph.constant(0.0)
            return graph.add(ops.where, graph.add(is_zero, apart), one, zero)

        yield from self._solved(matrix, matrix.shape, element, results[0])

    def _row(self, matrix: Array, batch: Sequence[int], i: int, inverse: bool = False) -> int:
        """The row of a matrix that is number i of its factors, or the other way round."""
        factors = self._factored[matrix]
        rows = factors.inverse if inverse else factors.order
        return self.scalars.read(rows, [self._flat(batch, matrix.shape[:-2]), i])

    def _solved(
        self,
        matrix: Array,
        shape: tuple[int, ...],
        right: Callable[[list[int]], int],
        x: Array,
        trans: bool = False,
    ) -> _Steps:
        """The solutions for right sides whose rows are in the order of the factors, or become so.

        They are NaN where a pivot is 0.
        """
        yield from self._lu(matrix)
        factors, s, graph = self._factored[matrix].both, self.scalars, self.scalars.graph
        least, swapped, half = (
            Array(shape=matrix.shape[:-2]),
            Array(shape=shape),
            Array(shape=shape),
        )

        def smallest(counters: list[int]) -> int:
            i = s.counter(matrix.shape[-1])
            return s.reduction("min", [i], graph.add(ops.abs, s.read(factors, [*counters, i, i])))

        def element(counters: list[int]) -> int:
            pivot = s.read(least, counters[:-2])
            regular = graph.add(ops.lt, graph.constant(0.0), pivot)
            return graph.add(ops.where, regular, right(counters), graph.constant(np.nan))

        yield from self._many(least.shape, smallest, least)
        yield from self._many(shape, element, swapped)
        lower, upper = (
            SubstitutionProgram(unit=True, trans=trans),
            SubstitutionProgram(upper=True, trans=trans),
        )
        first, second = (upper, lower) if trans else (lower, upper)
        yield _substitution(first, factors, swapped, half)
        yield _substitution(second, factors, half, x)

    def det(self, call: Call, results: Results) -> _Steps:
        """Determinants: products of the pivots."""
        return self._over_pivots(call, {0: results[0]}, ("det",))

    def slogdet(self, call: Call, results: Results) -> _Steps:
        """The signs of determinants, and logarithms of their magnitudes."""
        return self._over_pivots(call, results, ("sign", "logarithm"))

    def _over_pivots(self, call: Call, results: Results, names: Sequence[str]) -> _Steps:
        """Products and sums over the pivots of matrices, by name."""
        (matrix,) = call.operands
        yield from self._lu(matrix)
        factors, flips = self._factored[matrix].both, self._factored[matrix].flips
        s, graph = self.scalars, self.scalars.graph

        def over_pivots(counters: list[int], name: str) -> int:
            i = s.counter(matrix.shape[-1])
            pivot = s.read(factors, [*counters, i, i])
            if name == "logarithm":
                return s.reduction("add", [i], graph.add(ops.log, graph.add(ops.abs, pivot)))
            flip = s.read(flips, [self._flat(counters, matrix.shape[:-2]), i])
            factor = pivot if name == "det" else graph.add(ops.sign, pivot)
            return s.reduction("mul", [i], graph.add(ops.mul, flip, factor))

        for number, result in results.items():
            part = functools.partial(over_pivots, name=names[number])
            yield from self._many(result.shape, part, result)


_Steps = Iterator[AnyStep]


def _sizes(matrices: Array) -> tuple[int, int]:
    """The rows of matrices, and how many matrices there are."""
    return matrices.shape[-1], prod(matrices.shape[:-2])


def _substitution(p: SubstitutionProgram, matrix: Array, right: Array, x: Array) -> Step:
    """The step of a substitution."""
    (n, many), columns = _sizes(matrix), right.shape[-1]
    parts = -(-columns // COLUMNS)
    words = {"n": n, "columns": columns, "parts": parts}
    reads, title = {"a": matrix, "right": right}, f"substitution of {n} rows"
    return by_groups(p, reads, {"x": x}, many * parts, title, words)


ON_DEVICE: Final[Mapping[str, Callable[[DeviceAlgorithms, Call, Results], _Steps]]] = {
    "cholesky": DeviceAlgorithms.cholesky,
    "solve_triangular": DeviceAlgorithms.solve_triangular,
    "solve": DeviceAlgorithms.solve,
    "inv": DeviceAlgorithms.inv,
    "slogdet": DeviceAlgorithms.slogdet,
    "det": DeviceAlgorithms.det,
}
"""The algorithms that a GPU does: all else is done by LAPACK on the host."""
