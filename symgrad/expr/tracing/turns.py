"""The turns of a stretch of events: what each operation of a turn takes, and from where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.expr.tracing.repeats import LEAST_TURNS, Events, Ints, Links, Stretch


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument: its nodes by turn, and which column it is, how many turns ago, if it is one.

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
    """Whether it is the same in all turns."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_fixed", bool((self.results == self.results[:1]).all()))


@dataclass(frozen=True, slots=True)
class Turns:
    """What is done in each turn, in its order; ``start`` is the first of the events."""

    start: int
    columns: tuple[Column, ...]

    @property
    def count(self) -> int:
        """How many turns there are."""
        return len(self.columns[0].results)

    @property
    def events(self) -> int:
        """How many events they are."""
        return self.count * len(self.columns)

    @property
    def saved(self) -> int:
        """The events of all turns but one."""
        return self.events - len(self.columns)

    def made(self, first: Ints) -> Ints:
        """The turn in which nodes were made, -1 of others; ``first`` are the events that did."""
        turn = np.full(len(first), -1)
        moving = [c.results for c in self.columns if not c.is_fixed]
        if moving:
            ids = np.stack(moving, axis=1)[::-1]  # the last to be noted is the first that made it
            turn[ids] = np.arange(self.count)[::-1, None]
            turn[first < self.start] = -1
        return turn

    def later(self, turns: int) -> Turns:
        """Without the first turns."""

        def cut(slot: Slot) -> Slot:
            return Slot(slot.values[turns:], slot.column, slot.back)

        columns = (Column(c.results[turns:], tuple(map(cut, c.slots))) for c in self.columns)
        return Turns(self.start + turns * len(self.columns), tuple(columns))


def turns_of(graph: Graph, events: Events, first: Ints, stretch: Stretch) -> Turns | None:
    """The turns of a stretch that nothing but carries binds together; None if there are few."""
    links = Links(graph, events, stretch)
    start, count = links.turns()
    found = Turns(stretch.start + start, tuple(columns_of(links, start, count)))
    while found.count >= LEAST_TURNS:
        late = _last_taken(found, first)
        if late < 0:
            return found
        if 2 * late > found.count:
            return None
        found = found.later(late + 1)
    return None


def columns_of(links: Links, start: int, count: int) -> Iterator[Column]:
    """So many turns of a stretch, from one of its events on."""
    period = links.stretch.period
    for c in range(period):
        q = (start + c) % period
        rows = (start + c - q) // period + np.arange(count)
        slots: list[Slot] = []
        for taken in links.taken[q]:
            turns, column = divmod(c - taken.back, period)
            values = taken.values[rows] if count else taken.values[:0]
            slots.append(Slot(values, column, -turns) if taken.back else Slot(values))
        yield Column(links.ids[q + rows * period] if count else links.ids[:0], tuple(slots))


def _last_taken(turns: Turns, first: Ints) -> int:
    """The last turn that made something which another turn does not take as a carry; -1: none."""
    made = turns.made(first)
    return max(
        (
            int(made[slot.values if column.is_fixed else slot.outside].max(initial=-1))
            for column in turns.columns
            for slot in column.slots
        ),
        default=-1,
    )
