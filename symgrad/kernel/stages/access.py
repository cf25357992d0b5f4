"""Costs of the scalars of an array, and how they run through memory, by the counters that move.

Of these it is chosen which ones lanes, or the invocations of a group, move along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, prod

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import COUNTER, Affine, Read, Reduce, Scalars
from symgrad.kernel.language.ir import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.body import TUPLES, lanes_reduce
from symgrad.kernel.stages.translate import Share

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

    @classmethod
    def of(cls, scalars: Scalars, array: Tabulate) -> Access:
        """The elements of an array."""
        return cls(scalars, (array.body,), tuple(array.counters))

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The parallel counters that have more than one value."""
        return tuple(c for c in self.parallel if self.scalars.extent(c) > 1)

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
        return self.extent(self.counters(i)) * inner_of(self.scalars, i).terms

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

    def moves_along(self, counter: int, looked_up: bool = False) -> bool:
        """Whether all reads find numbers side by side, or one, as a counter moves.

        Or, where these may be ``looked_up``, wherever other numbers say.
        """
        known = (steps.get(counter, 0) for steps in self._moves.values())
        return all(n in (0, 1) or (looked_up and n is None) for n in known)

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
        each = READ if inner == self.moving[-1] else GATHERED * width
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


def inner_of(scalars: Scalars, reduction: int) -> Access:
    """The scalars that a reduction reduces."""
    return Access(scalars, tuple(scalars.args(reduction)), ())


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
        for inner in (*reversed(access.moving), None):
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
        inner = inner_of(self.scalars, reduction)
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
        best = [(inner_of(self.scalars, r), self.best(r)) for r in access.reductions]
        return any(
            c is not None and inner.moves_along(c) and not inner.moves_along(last)
            for inner, c in best
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

    def is_across(self, access: Access) -> bool:
        """Whether neighbours among the elements read neighbours in memory, and terms do not."""
        moving = [c for c in access.parallel if self.scalars.extent(c) >= sizes.WARP]
        best = [(inner_of(self.scalars, r), self.best(r)) for r in access.reductions]
        return bool(moving) and all(
            c is not None and inner.moves_along(moving[-1]) and not inner.moves_along(c)
            for inner, c in best
        )

    # reductions in parts -------------------------------------------------------------------------

    def chunk(self, access: Access, inner: int, rows: int) -> int:
        """The elements of a chunk of a row: on the host, enough to be worth a call."""
        extent, width = self.scalars.extent(inner), self.target.width
        waits = any(inner not in self.scalars.free(r) for r in access.reductions)
        if waits or not self.target.in_step:
            return extent
        each = access.cost([inner], width) / max(1, rows * -(-extent // width))
        vectors = max(sizes.CHUNK_VECTORS, int(sizes.CHUNK_COST / max(each, 0.25)))
        return min(extent, vectors * width)

    def share(self, access: Access) -> Share | None:
        """How a reduction is cut, where there is too little to do at the same time else."""
        spaces = {(access.counters(r), self.scalars.free(r)) for r in access.reductions}
        if len(spaces) != 1 or not next(iter(spaces))[0] or not self._is_cut(access):
            return None
        counter = self.cut(access)
        extent = self.scalars.extent(counter)
        if self.target.in_step:
            each = access.cost([counter], self.target.width) / extent
            length = max(1, int(sizes.CHUNK_COST / max(each, 1e-6)), -(-extent // sizes.MOST_PARTS))
            unit = self.target.width * 4 if extent > 64 * self.target.width else 1
            length = -(-length // unit) * unit
        else:
            inner, length = max(1, access.terms // extent), isqrt(extent)
            if self.is_across(access):
                length = max(
                    length,
                    -(-extent // min(sizes.GPU_PARTS, -(-sizes.BUSY_ELEMENTS // access.size))),
                )
            else:
                length = max(1, -(-extent // sizes.GPU_PARTS), -(-2048 // inner))
            length = min(length, max(1, sizes.MOST_ITERATIONS // inner))
        return Share(counter, length) if 2 * length <= extent else None

    def _is_cut(self, access: Access) -> bool:
        """Whether a reduction is worth being cut."""
        if self.target.in_step:
            inner, lanes = self.along(access)
            along = lanes if inner is None else lanes | {inner}
            cost = access.cost(along, self.target.width)
            rows = access.extent([c for c in access.parallel if c != inner])
            if inner is not None and access.terms < sizes.SHARED_TERMS:  # rows are in chunks
                rows *= -(-self.scalars.extent(inner) // (sizes.CHUNK_VECTORS * self.target.width))
            return rows < sizes.MOST_PARTS and cost > 3 * sizes.CHUNK_COST
        groups, terms = access.size, access.terms
        few = groups < sizes.FEW_ELEMENTS and groups * terms >= sizes.ACROSS_READS
        if few and self.is_across(access):
            return True
        return (groups < 256 and terms >= sizes.SPLIT_TERMS) or terms > 32 * sizes.MOST_ITERATIONS
