"""Who does what of a reduction: counters along which lanes, or the invocations of a group, move."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.arrays.scalars import Reduce, Scalars
from symgrad.kernel.language import Target
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.access import Access
from symgrad.kernel.stages.combine import lanes_reduce


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
            choices.append((access.cost(along, width), inner, lanes))
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
