"""The iterations of a stretch of events: what each operation of a turn takes, and from where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.expr.tracing.repeats import LEAST_ITERATIONS, Events, Ints, Links, Stretch


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument: its node in each iteration; if it is a column, which, and how long ago.

    Where that would be before the first turn, the nodes are from elsewhere.
    """

    values: Ints
    column: int | None = None
    back: int = 0

    @property
    def outside(self) -> Ints:
        """Those of the nodes that are from elsewhere."""
        return self.values if self.column is None else self.values[: self.back]


@dataclass(frozen=True, slots=True)
class Column:
    """An operation that each turn does, the node that it is in each, and what it takes."""

    results: Ints
    slots: tuple[Slot, ...]
    is_fixed: bool = field(init=False)
    """Whether it is the same in all iterations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_fixed", bool((self.results == self.results[:1]).all()))


@dataclass(frozen=True, slots=True)
class Iterations:
    """What is done in each turn, in its order; ``start`` is the first of the events."""

    start: int
    columns: tuple[Column, ...]

    @property
    def count(self) -> int:
        """How many iterations there are."""
        return len(self.columns[0].results)

    @property
    def events(self) -> int:
        """How many events they are."""
        return self.count * len(self.columns)

    @property
    def saved(self) -> int:
        """The events of all iterations but one."""
        return self.events - len(self.columns)

    def made(self, first: Ints) -> Ints:
        """The turn in which nodes were made, -1 of others; ``first`` are the events that did."""
        iteration = np.full(len(first), -1)
        moving = [c.results for c in self.columns if not c.is_fixed]
        if moving:
            ids = np.stack(moving, axis=1)[::-1]  # the last to be noted is the first that made it
            iteration[ids] = np.arange(self.count)[::-1, None]
            iteration[first < self.start] = -1
        return iteration

    def later(self, iterations: int) -> Iterations:
        """Without the first iterations."""

        def cut(slot: Slot) -> Slot:
            return Slot(slot.values[iterations:], slot.column, slot.back)

        columns = (Column(c.results[iterations:], tuple(map(cut, c.slots))) for c in self.columns)
        return Iterations(self.start + iterations * len(self.columns), tuple(columns))


def iterations_of(graph: Graph, events: Events, first: Ints, stretch: Stretch) -> Iterations | None:
    """The iterations of a stretch that only carries bind together; None if there are few."""
    links = Links(graph, events, stretch)
    start, count = links.iterations()
    candidates = Iterations(stretch.start + start, tuple(columns_of(links, start, count)))
    while candidates.count >= LEAST_ITERATIONS:
        late = _last_taken(candidates, first)
        if late < 0:
            return candidates
        if 2 * late > candidates.count:
            return None
        candidates = candidates.later(late + 1)
    return None


def columns_of(links: Links, start: int, count: int) -> Iterator[Column]:
    """So many iterations of a stretch, from one of its events on."""
    period = links.stretch.period
    for c in range(period):
        q = (start + c) % period
        rows = (start + c - q) // period + np.arange(count)
        slots: list[Slot] = []
        for taken in links.taken[q]:
            iterations, column = divmod(c - taken.back, period)
            values = taken.values[rows] if count else taken.values[:0]
            slots.append(Slot(values, column, -iterations) if taken.back else Slot(values))
        yield Column(links.ids[q + rows * period] if count else links.ids[:0], tuple(slots))


def _last_taken(iterations: Iterations, first: Ints) -> int:
    """The last turn that made something which another turn does not take as a carry; -1: none."""
    iteration_of = iterations.made(first)
    return max(
        (
            int(iteration_of[slot.values if column.is_fixed else slot.outside].max(initial=-1))
            for column in iterations.columns
            for slot in column.slots
        ),
        default=-1,
    )
