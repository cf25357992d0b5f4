"""Updates of many arrays: the sum of their squares, what all share, and every number by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.formula import Formula
from symgrad.kernel.index import Index
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.statements import Buffer

SQUARES_PER_GROUP: Final = 16_384
"""Numbers whose squares a group adds up."""

NUMBERS_PER_INVOCATION: Final = 2
"""Numbers of each array that an invocation updates."""


@dataclass(frozen=True)
class SquareSums:
    """The program that adds up the squares of some arrays, each group those of a stretch of one.

    Array number i is ``x{i}``, of ``size{i}`` numbers, and its first group is ``first{i}``. Sums go
    to ``sums`` from ``start`` on, one for each group.
    """

    arrays: int

    def __call__(self, target: Target) -> Kernel:
        """The program for a target."""
        return _SquareSums(Kernel(target, "square_sums"), self.arrays).kernel()


class _SquareSums:
    def __init__(self, k: Kernel, arrays: int) -> None:
        self.k, self.group = k, Index(k, k.group)
        self.arrays = [k.buffer(f"x{i}", "read") for i in range(arrays)]
        self.sums = k.buffer("sums", "write")
        self.start = Index(k, k.argument("start"))
        self.sizes = [Index(k, k.argument(f"size{i}")) for i in range(arrays)]
        self.firsts = [Index(k, k.argument(f"first{i}")) for i in range(arrays)]

    def kernel(self) -> Kernel:
        """The whole program."""
        k, target = self.k, self.k.target
        total = self._of_array(len(self.arrays) - 1)
        (found,) = target.sum_group(k, [target.narrow(k, tuple(total))])
        inside = Index(k, k.cell).below(Index(k, k.count))
        first = k.add(ops.logical_and, inside, Index(k, k.local).below(1))
        k.when(first, lambda: k.store(self.sums, (self.start + self.group).id, found))
        return k

    def _of_array(self, i: int) -> list[int]:
        """The sum of a group, if its array is the i-th or one before."""
        if i == 0:
            return self._sum(0)
        before = self.group.below(self.firsts[i])
        return self.k.choose(before, lambda: self._of_array(i - 1), lambda: self._sum(i))

    def _sum(self, i: int) -> list[int]:
        """An invocation's sum over the group's stretch of the i-th array."""
        k, width = self.k, self.k.target.width
        size = self.sizes[i]
        first = (self.group - self.firsts[i]) * SQUARES_PER_GROUP + Index(k, k.local)

        def add(turn: int, total: Sequence[int]) -> Sequence[int]:
            at = first + Index(k, turn) * width
            x = k.load(self.arrays[i], at.at_most(size - 1).id)
            square = k.add(ops.where, at.below(size), k.add(ops.mul, x, x), k.constant(0.0))
            return k.target.wide_add(k, tuple(total), square)

        turns = SQUARES_PER_GROUP // width
        zero = k.target.wide_zero(k)
        return k.loop(k.word(0), k.word(turns), zero, add, most=turns, some=True)[0]


@dataclass(frozen=True)
class Shared:
    """The program of what all numbers share, which is done once.

    ``formula`` makes the new ``shared`` and, behind it, what is ``given`` to numbers besides the
    old ones, of the old ones and, if there are ``sums``, of their sum; that comes first.
    """

    formula: Formula
    shared: int
    sums: bool

    def __call__(self, target: Target) -> Kernel:
        """The program for a target."""
        k = Kernel(target, "shared")
        sums = k.buffer("sums", "read") if self.sums else None
        old = k.buffer("old", "read") if self.shared else None
        given = k.buffer("given", "write")
        new = k.buffer("new", "write") if self.shared else None
        known = [] if old is None else [k.load(old, k.word(n)) for n in range(self.shared)]
        total = [] if sums is None else [self._total(k, sums)]
        found = self.formula(k, *total, *known)

        def store() -> None:
            for n, value in enumerate([*known, *found[self.shared :]]):
                k.store(given, k.word(n), value)
            for n, value in enumerate(found[: self.shared]):
                assert new is not None, "numbers share something"
                k.store(new, k.word(n), value)

        k.when(Index(k, k.cell).below(1), store)
        return k

    def _total(self, k: Kernel, sums: Buffer) -> int:
        """The sum of all sums of groups."""
        target, cell = k.target, Index(k, k.local)
        many, width = Index(k, k.argument("many")), target.width

        def add(turn: int, total: Sequence[int]) -> Sequence[int]:
            at = cell + Index(k, turn) * width
            x = k.load(sums, at.at_most(many - 1).id)
            known = k.add(ops.where, at.below(many), x, k.constant(0.0))
            return target.wide_add(k, tuple(total), known)

        total, _ = k.loop(k.word(0), many.ceil_div(width).id, target.wide_zero(k), add)
        (found,) = target.sum_group(k, [target.narrow(k, tuple(total))])
        return found


@dataclass(frozen=True)
class EachNumber:
    """The program of a formula of every number of some arrays, and of the ``given`` numbers.

    There are ``read`` arrays ``x{i}``, and as many ``y{i}`` as the formula has results; ``size`` is
    how many numbers each has.
    """

    formula: Formula
    read: int
    given: int

    def __call__(self, target: Target) -> Kernel:
        """The program for a target."""
        k = Kernel(target, "each_number")
        arrays = [k.buffer(f"x{i}", "read") for i in range(self.read)]
        shared = k.buffer("given", "read")
        results = [k.buffer(f"y{i}", "write") for i in range(len(self.formula.roots))]
        size = Index(k, k.argument("size"))
        given = [k.load(shared, k.word(n)) for n in range(self.given)]
        first = Index(k, k.group) * (NUMBERS_PER_INVOCATION * target.width) + Index(k, k.local)
        places = [first + target.width * i for i in range(NUMBERS_PER_INVOCATION)]
        found = [
            self.formula(k, *(k.load(a, at.at_most(size - 1).id) for a in arrays), *given)
            for at in places
        ]
        for at, values in zip(places, found, strict=True):
            k.when(at.below(size), lambda at=at, values=values: _store(k, results, at, values))
        return k


def _store(k: Kernel, results: Sequence[Buffer], at: Index, values: Sequence[int]) -> None:
    for buffer, value in zip(results, values, strict=True):
        k.store(buffer, at.id, value)
