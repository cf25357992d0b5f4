"""Updates of many arrays: the sum of their squares, what all share, and every number by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.stage import Formula

SQUARES_PER_GROUP: Final = 16_384
"""Numbers whose squares a group adds up."""

LARGE: Final = {"float32": 2.0**48, "float64": 2.0**480, "float32x2": 2.0**48}
"""Numbers above this are scaled down before they are squared, those below its reciprocal up."""

SCALE: Final = {"float32": 2.0**80, "float64": 2.0**600, "float32x2": 2.0**80}
"""The factor by which, so that sums of 2**31 squares of each range are normal numbers."""

RANGES: Final = 3
"""The sums of squares of a group: of numbers as they are, of large ones, and of small ones."""

NUMBERS_PER_INVOCATION: Final = 2
"""Numbers of each array that an invocation updates."""


@dataclass(frozen=True)
class SquareSums:
    """The program that adds up the squares of some arrays, each group those of a stretch of one.

    Array number i is ``x{i}``, of ``size{i}`` numbers, and its first group is ``first{i}``. Sums go
    to ``sums`` from group ``start`` on, `RANGES` of each. They neither overflow nor underflow where
    the norm does not: large and small numbers are scaled and added up apart (Blue, "A portable
    Fortran program to find the Euclidean norm of a vector", ACM TOMS 4, 1978).
    """

    arrays: int
    dtype: str

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        return _SquareSums(KernelIR(target, "square_sums"), self.arrays, self.dtype).kernel()


class _SquareSums:
    def __init__(self, k: KernelIR, arrays: int, dtype: str) -> None:
        self.k, self.group = k, Index(k, k.group)
        self.large, self.scale = LARGE[dtype], SCALE[dtype]
        self.arrays = [k.buffer(f"x{i}", "read") for i in range(arrays)]
        self.sums = k.buffer("sums", "write")
        self.start = Index(k, k.argument("start"))
        self.sizes = [Index(k, k.argument(f"size{i}")) for i in range(arrays)]
        self.firsts = [Index(k, k.argument(f"first{i}")) for i in range(arrays)]

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, target = self.k, self.k.target
        *usual, large, small = self._of_array(len(self.arrays) - 1)
        sums = target.sum_group(k, [target.narrow(k, tuple(usual)), large, small])
        inside = Index(k, k.cell).below(Index(k, k.count))
        first = k.add(ops.logical_and, inside, Index(k, k.local).below(1))

        def store() -> None:
            for n, total in enumerate(sums):
                k.store(self.sums, ((self.start + self.group) * RANGES + n).id, total)

        k.when(first, store)
        return k

    def _of_array(self, i: int) -> list[int]:
        """The sum of a group, if its array is the i-th or one before."""
        if i == 0:
            return self._sum(0)
        before = self.group.below(self.firsts[i])
        return self.k.choose(before, lambda: self._of_array(i - 1), lambda: self._sum(i))

    def _sum(self, i: int) -> list[int]:
        """An invocation's sums over the group's stretch of the i-th array: a wide one, and two."""
        k, width = self.k, self.k.target.width
        size = self.sizes[i]
        first = (self.group - self.firsts[i]) * SQUARES_PER_GROUP + Index(k, k.local)

        def add(iteration: int, sums: Sequence[int]) -> Sequence[int]:
            *usual, large, small = sums
            at = first + Index(k, iteration) * width
            x = k.load(self.arrays[i], at.at_most(size - 1).id)
            x = k.add(ops.where, at.below(size), x, zero)
            length = k.add(ops.abs, x)
            is_large = k.add(ops.lt, k.constant(self.large), length)
            is_small = k.add(ops.lt, length, k.constant(1.0 / self.large))
            neither = k.add(ops.where, k.add(ops.logical_or, is_large, is_small), zero, x)
            return [
                *k.target.wide_add(k, tuple(usual), k.add(ops.mul, neither, neither)),
                self._add_scaled(large, k.add(ops.where, is_large, x, zero), 1.0 / self.scale),
                self._add_scaled(small, k.add(ops.where, is_small, x, zero), self.scale),
            ]

        iterations, zero = SQUARES_PER_GROUP // width, k.constant(0.0)
        start = [*k.target.wide_zero(k), zero, zero]
        return k.loop(k.word(0), k.word(iterations), start, add, most=iterations, some=True)[0]

    def _add_scaled(self, total: int, x: int, scale: float) -> int:
        """A sum, and the square of a number that is scaled before."""
        k = self.k
        scaled = k.add(ops.mul, x, k.constant(scale))
        return k.add(ops.add, total, k.add(ops.mul, scaled, scaled))


@dataclass(frozen=True)
class Shared:
    """The program of what all numbers share, which is done once.

    ``formula`` makes the new ``shared`` and, behind it, what is ``given`` to numbers besides the
    old ones, of the old ones and, if there are ``sums``, of that of each range; these come first.
    """

    formula: Formula
    shared: int
    sums: bool

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "shared")
        sums = k.buffer("sums", "read") if self.sums else None
        old = k.buffer("old", "read") if self.shared else None
        written = k.buffer("given", "write")
        new = k.buffer("new", "write") if self.shared else None
        old_values = [] if old is None else [k.load(old, k.word(n)) for n in range(self.shared)]
        totals = [] if sums is None else self._totals(k, sums)
        results = self.formula(k, *totals, *old_values)

        def store() -> None:
            for n, value in enumerate([*old_values, *results[self.shared :]]):
                k.store(written, k.word(n), value)
            for n, value in enumerate(results[: self.shared]):
                assert new is not None, "numbers share something"
                k.store(new, k.word(n), value)

        k.when(Index(k, k.cell).below(1), store)
        return k

    def _totals(self, k: KernelIR, sums: Buffer) -> list[int]:
        """The sums of all sums of groups, range by range."""
        target, cell = k.target, Index(k, k.local)
        many, width = Index(k, k.argument("many")), target.width
        zero = target.wide_zero(k)
        parts = len(zero)

        def add(iteration: int, totals: Sequence[int]) -> Sequence[int]:
            at = cell + Index(k, iteration) * width
            added: list[int] = []
            for n in range(RANGES):
                x = k.load(sums, (at.at_most(many - 1) * RANGES + n).id)
                number = k.add(ops.where, at.below(many), x, k.constant(0.0))
                added += target.wide_add(k, tuple(totals[n * parts : (n + 1) * parts]), number)
            return added

        totals, _ = k.loop(k.word(0), many.ceil_div(width).id, [*zero * RANGES], add)
        return target.sum_group(
            k,
            [target.narrow(k, tuple(totals[n : n + parts])) for n in range(0, len(totals), parts)],
        )


@dataclass(frozen=True)
class EachNumber:
    """The program of a formula of every number of some arrays, and of the ``given`` numbers.

    There are ``read`` arrays ``x{i}``, and as many ``y{i}`` as the formula has results; ``size`` is
    how many numbers each has.
    """

    formula: Formula
    read: int
    given: int

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "each_number")
        arrays = [k.buffer(f"x{i}", "read") for i in range(self.read)]
        shared = k.buffer("given", "read")
        results = [k.buffer(f"y{i}", "write") for i in range(len(self.formula.roots))]
        size = Index(k, k.argument("size"))
        shared_numbers = [k.load(shared, k.word(n)) for n in range(self.given)]
        first = Index(k, k.group) * (NUMBERS_PER_INVOCATION * target.width) + Index(k, k.local)
        places = [first + target.width * i for i in range(NUMBERS_PER_INVOCATION)]
        new_numbers = [
            self.formula(k, *(k.load(a, at.at_most(size - 1).id) for a in arrays), *shared_numbers)
            for at in places
        ]
        for at, values in zip(places, new_numbers, strict=True):
            k.when(at.below(size), lambda at=at, values=values: _store(k, results, at, values))
        return k


def _store(k: KernelIR, results: Sequence[Buffer], at: Index, values: Sequence[int]) -> None:
    for buffer, value in zip(results, values, strict=True):
        k.store(buffer, at.id, value)
