"""Costs of the scalars of an array, and how they run through memory, by the counters that move.

Of these it is chosen which ones lanes, or the invocations of a group, move along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from symgrad.arrays.scalars import COUNTER, Affine, Read, Reduce, Scalars
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.combine import TUPLES, lanes_reduce

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
        s, stride, places = self.scalars, op.array.size, list[tuple[int, int]]()
        for i, n in zip(s.args(read), op.array.shape, strict=True):
            stride //= max(n, 1)
            places.append((stride, i))
        steps = dict[int, int | None]()
        for c, a in s.terms(s.affine(0, places))[1]:
            for counter in s.free(a):
                known = steps.get(counter, 0)
                plain = s.op(a) is COUNTER and known is not None
                steps[counter] = known + c if plain and known is not None else None
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

    def cost_of_writes(self, inner: int | None, width: int) -> float:
        """About what it costs to write all elements, with lanes along a parallel counter, or not.

        Of the last one that moves, they stand side by side.
        """
        if inner is None:
            return READ * self.size * len(self.roots)
        extent = self.scalars.extent(inner)
        moving = [c for c in self.parallel if self.scalars.extent(c) > 1]
        each = READ if inner == moving[-1] else GATHERED * width
        return each * (self.size // extent) * -(-extent // width) * len(self.roots)

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


@dataclass(frozen=True)
class Lanes:
    """Chooses counters of scalars for the lanes of a target."""

    scalars: Scalars
    target: Target

    def along(self, access: Access) -> tuple[int | None, set[int]]:
        """Of a vector's lanes, the parallel counter that they move along, if it is one.

        And the counters of reductions that they move along in what belongs to a row.
        """
        width = self.target.width
        best = {r: self.best(r) for r in access.reductions}
        choices = list[tuple[float, int | None, set[int]]]()
        for inner in (*reversed([c for c in access.parallel if self.scalars.extent(c) > 1]), None):
            rows = (c for r, c in best.items() if inner not in self.scalars.free(r))
            lanes = {c for c in rows if c is not None}
            along = lanes if inner is None else lanes | {inner}
            cost = access.cost(along, width) + access.cost_of_writes(inner, width)
            choices.append((cost, inner, lanes))
        _, inner, lanes = min(choices, key=lambda choice: choice[0])
        return inner, lanes

    def best(self, reduction: int) -> int | None:
        """The counter of a reduction along which its lanes cost least, if lanes can reduce it."""
        op = self.scalars.op(reduction)
        assert isinstance(op, Reduce), "a reduction"
        kinds = "".join(self.scalars.graph.type(a) for a in self.scalars.args(reduction))
        if self.target.in_step and not lanes_reduce(op.operator, kinds):
            return None
        inner = Access(self.scalars, tuple(self.scalars.args(reduction)), ())
        width = self.target.width if self.target.in_step else sizes.WARP
        costs = [(inner.cost([c], width), -n, c) for n, c in enumerate(op.counters)]
        return min(costs)[2] if costs else None

    def shared(self, access: Access, inner: int | None) -> set[int]:
        """The counters that a group deals out, of the reductions that belong to a row."""
        rows = [r for r in access.reductions if inner not in self.scalars.free(r)]
        return {c for r in rows if (c := self.best(r)) is not None}

    def row_counter(self, access: Access) -> int | None:
        """The parallel counter along which all long reductions are the same, if there is one."""
        s = self.scalars
        long = [r for r in access.reductions if access.extent(access.counters(r)) > 1]
        rows = reversed(access.parallel) if long else ()
        return next((c for c in rows if all(c not in s.free(r) for r in long)), None)

    def is_shared(self, access: Access) -> bool:
        """Whether a group shares the reductions of an element."""
        if access.terms < sizes.SHARED_TERMS:
            return False
        if access.size < sizes.FEW_ELEMENTS or access.terms > sizes.MOST_ITERATIONS:
            return True
        if (
            access.size < sizes.BUSY_ELEMENTS
            and access.terms >= sizes.MANY_TERMS
            and not self.is_across(access)
        ):
            return True
        last = access.parallel[-1]
        best = [(r, self.best(r)) for r in access.reductions]
        return any(
            c is not None and self._moves_along(r, c) and not self._moves_along(r, last)
            for r, c in best
        )

    def cut(self, access: Access) -> int:
        """The counter of reductions whose range is cut: on a GPU one that no lanes move along."""
        first, extent = access.reductions[0], self.scalars.extent
        counters, lanes = access.counters(first), self.best(first)
        apart = [c for c in counters if c != lanes and extent(c) >= sizes.FEW_PARTS]
        if self.target.in_step or self.is_across(access):
            apart = []
        return max(apart or counters, key=extent)

    def has_neighbours(self, access: Access) -> bool:
        """Whether a group has some neighbours whose terms are far apart, and these in turns.

        So small a sum of columns waits for memory rather than for numbers, and is not cut.
        """
        few = access.size < sizes.FEW_ELEMENTS and access.terms >= sizes.SHARED_TERMS
        if self.target.in_step or not few or not access.parallel:
            return False
        ops = [self.scalars.op(r) for r in access.reductions]
        terms, last = access.size * access.terms, self.scalars.extent(access.parallel[-1])
        return (
            all(isinstance(op, Reduce) and op.operator not in TUPLES for op in ops)
            and last >= sizes.WARP
            and terms <= sizes.BESIDE_READS
            and self.is_across(access)
        )

    def _moves_along(self, reduction: int, counter: int) -> bool:
        """Whether all reads below a reduction stand side by side along a counter."""
        inner = Access(self.scalars, tuple(self.scalars.args(reduction)), ())
        return inner.moves_along(counter)

    def is_across(self, access: Access) -> bool:
        """Whether neighbours among the elements read neighbours in memory, and terms do not."""
        moving = [c for c in access.parallel if self.scalars.extent(c) >= sizes.WARP]
        best = [(r, self.best(r)) for r in access.reductions]
        return bool(moving) and all(
            c is not None and self._moves_along(r, moving[-1]) and not self._moves_along(r, c)
            for r, c in best
        )
