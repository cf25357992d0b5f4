"""Costs of the scalars of an array, and how they run through memory, by the counters that move."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from symgrad.arrays.scalars import COUNTER, Affine, Read, Reduce, Scalars

GATHERED: float = 1.5
"""The cost of a number that a lane reads from anywhere."""

READ: float = 1.0
"""The cost of a read of a vector, or of a number that all lanes have."""

OVER_LANES: float = 24.0
"""The cost of a reduction over the lanes of a vector."""


@dataclass(frozen=True)
class Access:
    """The scalars with these roots, whose parallel counters are these."""

    scalars: Scalars
    roots: tuple[int, ...]
    parallel: tuple[int, ...]

    @cached_property
    def nodes(self) -> Sequence[int]:
        """All nodes."""
        return self.scalars.walk(self.roots)

    @cached_property
    def reductions(self) -> list[int]:
        """The reductions that stand in no other one."""
        shallow, op = self.scalars.shallow(self.roots), self.scalars.op
        return [i for i in shallow if isinstance(op(i), Reduce)]

    def extent(self, counters: Collection[int]) -> int:
        """How many values counters have together."""
        return prod(map(self.scalars.extent, counters))

    @cached_property
    def size(self) -> int:
        """The elements."""
        return self.extent(self.parallel)

    @cached_property
    def terms(self) -> int:
        """The terms that an element reduces, at most, by reductions within others too."""
        return max((self._terms(i) for i in self.reductions), default=1)

    def _terms(self, i: int) -> int:
        op = self.scalars.op(i)
        assert isinstance(op, Reduce), "a reduction"
        inner = Access(self.scalars, tuple(self.scalars.args(i)), ())
        return self.extent(op.counters) * inner.terms

    def counters(self, reduction: int) -> tuple[int, ...]:
        """The counters of a reduction."""
        op = self.scalars.op(reduction)
        assert isinstance(op, Reduce), "a reduction"
        return op.counters

    def steps(self, read: int) -> Mapping[int, int | None]:
        """By how much the place of a read moves with each counter; None where that is not known."""
        op = self.scalars.op(read)
        assert isinstance(op, Read), "a read"
        stride, steps = op.array.size, dict[int, int | None]()
        for i, n in zip(self.scalars.args(read), op.array.shape, strict=True):
            stride //= max(n, 1)
            for c, a in self.scalars.terms(i)[1]:
                for counter in self.scalars.free(a):
                    known = steps.get(counter, 0)
                    plain = self.scalars.op(a) is COUNTER and known is not None
                    steps[counter] = known + c * stride if plain and known is not None else None
        return steps

    @cached_property
    def _moves(self) -> Mapping[int, Mapping[int, int | None]]:
        reads = (i for i in self.nodes if isinstance(self.scalars.op(i), Read))
        return {i: self.steps(i) for i in reads}

    def is_beside(self, read: int, counter: int) -> bool:
        """Whether numbers stand side by side, or are one, as a counter moves."""
        return self._moves[read].get(counter, 0) in (0, 1)

    def moves_along(self, counter: int) -> bool:
        """Whether all reads find numbers side by side, or one, as a counter moves."""
        return all(self.is_beside(i, counter) for i in self._moves)

    def cost(self, lanes: Collection[int], width: int) -> float:
        """About what all elements cost in additions, with lanes along some counters."""
        return sum(self._costs(lanes, width))

    def _costs(self, lanes: Collection[int], width: int) -> Iterator[float]:
        for i in self.nodes:
            op, free = self.scalars.op(i), self.scalars.free(i)
            weight = self._weight(i, lanes, width)
            if weight:
                times = 1
                for c in free:
                    extent = self.scalars.extent(c)
                    times *= -(-extent // width) if c in lanes else extent
                yield weight * times
            if isinstance(op, Reduce) and not set(op.counters).isdisjoint(lanes):
                yield OVER_LANES * self.extent(free)

    def _weight(self, i: int, lanes: Collection[int], width: int) -> float:
        op = self.scalars.op(i)
        if isinstance(op, Read):
            moved = [c for c in lanes if c in self.scalars.free(i)]
            beside = all(self.is_beside(i, c) for c in moved)
            return READ if beside else GATHERED * width
        if isinstance(op, Affine) or not op.arity:
            return 0.0
        return op.cost
