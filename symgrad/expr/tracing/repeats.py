"""Repetitions in a trace: the iterations of Python loops that were written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Graph, reachable

LEAST_ITERATIONS: Final = 8
"""Iterations that a loop has at least."""

CANDIDATES: Final = 8
"""Periods of each kind that are looked at, those first by which most may be saved."""

WORDS: Final = (1, 16, 256)
"""Tokens in a row that come again: single ones where each is a line's own, and longer words."""

MULTIPLES: Final = 4
"""Periods that may be a turn: what looks the same may be of other numbers by iterations."""

MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number of no pattern."""

REACH: Final = 8
"""Iterations, at most, from which on a value is not carried to a later one."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Events:
    """The operations that a function did, in its order, also those that it had done before.

    ``ids`` are the nodes, and ``tokens`` numbers, equal for the same operation on the same line.
    """

    ids: Ints
    tokens: Ints

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events ``start .. stop`` of which each is like the one a period later."""

    start: int
    stop: int
    period: int

    @property
    def iterations(self) -> int:
        """How often the period fits."""
        return (self.stop - self.start) // self.period

    @property
    def saved(self) -> int:
        """The events of all iterations but one."""
        return (self.iterations - 1) * self.period


def events_of(graph: Graph, roots: Sequence[int]) -> Events:
    """All that a function did on the way to these roots."""
    nodes, needed = graph.nodes, np.zeros(len(graph), np.bool_)
    needed[[i for i in reachable(graph, roots) if nodes[i][0].arity]] = True
    ids, again = np.flatnonzero(needed), np.array(graph.repeats or [(0, 0, 0)], np.int64)
    again = again[needed[again[:, 1]]]
    places = np.array(graph.places)[ids]
    where = np.searchsorted(ids, again[:, 0])
    ids, places = np.insert(ids, where, again[:, 1]), np.insert(places, where, again[:, 2])
    _, ops = np.unique([id(nodes[i][0]) for i in ids.tolist()], return_inverse=True)
    _, tokens = np.unique(ops * len(graph.sources) + places, return_inverse=True)
    return Events(ids, tokens)


def stretches(events: Events) -> list[Stretch]:
    """Where events repeat themselves, most of them first; these may overlap."""
    repeats: list[Stretch] = []
    for period in _periods(events.tokens):
        repeats += _of_period(events.tokens, period)
    return sorted(repeats, key=lambda s: (-s.saved, s.start))


def _periods(tokens: Ints) -> list[int]:
    """Distances at which words of some tokens come again, those first that most events may have.

    Words are found by a hash; periods are looked at closely later.
    """
    distances: dict[int, None] = {}
    words, length = tokens.astype(np.uint64), 1
    for wanted in WORDS:
        while length < wanted and len(words) > length:
            words = words[:-length] * MULTIPLIER + words[length:]
            length *= 2
        distances |= dict.fromkeys(_distances(words))
    return list(distances)


def _distances(words: np.ndarray[Any, Any]) -> list[int]:
    """How far it is from words to the next that are equal, those first that most events have."""
    order = np.argsort(words, kind="stable")
    gaps = np.diff(order)[words[order][1:] == words[order][:-1]]
    counts = np.bincount(gaps) if len(gaps) else np.zeros(1, np.int64)
    likely = np.flatnonzero(counts >= LEAST_ITERATIONS - 1)
    weights = counts[likely] * likely
    return likely[np.argsort(-weights, kind="stable")][:CANDIDATES].tolist()


def _of_period(tokens: Ints, period: int) -> Iterator[Stretch]:
    same = np.concatenate([[False], tokens[period:] == tokens[:-period], [False]])
    edges = np.flatnonzero(np.diff(same))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        for times in range(1, MULTIPLES + 1):
            if end - start >= (LEAST_ITERATIONS - 1) * times * period:
                yield Stretch(start, end + period, times * period)


# --- what each event takes ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """An argument of the same event in all iterations: ``values``, nodes.

    Those are what was made ``back`` events ago; 0 says that they are from elsewhere.
    """

    values: Ints
    back: int


class Links:
    """The arguments that the events of a stretch take from one another, and where that holds."""

    def __init__(self, graph: Graph, events: Events, stretch: Stretch) -> None:
        self._graph, self.stretch = graph, stretch
        self.ids = events.ids[stretch.start : stretch.stop]
        self.holds = np.ones(len(self.ids), np.bool_)
        self._order = np.argsort(self.ids, kind="stable")
        self._sorted = self.ids[self._order]
        self.taken = [self._column(q) for q in range(stretch.period)]
        """The arguments of each event of the first period."""

    def _column(self, q: int) -> list[Taken]:
        """The arguments of event q of the period in all iterations, with where they come from."""
        at = np.arange(q, len(self.ids), self.stretch.period)
        nodes = self._graph.nodes
        args = np.array([nodes[i][1:] for i in self.ids[at].tolist()])
        if nodes[self.ids[q]][0].commutative:
            self._put_in_order(args, at)
        taken: list[Taken] = []
        for slot in range(args.shape[1]):
            back, holds = self._link(args[:, slot], at)
            self.holds[at] &= holds
            taken.append(Taken(args[:, slot], back))
        return taken

    def _link(self, values: Ints, at: Ints) -> tuple[int, Truths]:
        """How many events ago these nodes were made, and where that, or what else, holds."""
        middle = len(at) // 2
        same = values == values[middle]
        if 2 * np.count_nonzero(same) > len(at):
            return 0, same
        for back in self._backs(values[middle], at[middle]):
            holds = (self._made_before(at, back) == values) | (at < back)
            if 2 * np.count_nonzero(holds) > len(at):
                return back, holds
        return 0, np.ones(len(at), np.bool_)

    def _backs(self, i: int, at: int) -> list[int]:
        """How many events before this one node i was made, the last time first."""
        least = at - REACH * self.stretch.period
        first, last = (np.searchsorted(self._sorted, i, side) for side in ("left", "right"))
        return [at - m for m in self._order[first:last][::-1].tolist() if least <= m < at]

    def _made_before(self, at: Ints, back: int) -> Ints:
        return np.where(at < back, -1, self.ids[np.maximum(at - back, 0)])

    def _put_in_order(self, args: Ints, at: Ints) -> None:
        """Put arguments, which are sorted by their ids, in the same order in all iterations."""
        middle = len(at) // 2
        for first in (0, 1):
            for back in self._backs(args[middle, first], at[middle]):
                before = self._made_before(at, back)
                hits = args == before[:, None]
                known = hits.any(axis=1)
                if 2 * np.count_nonzero(known | (at < back)) > len(at):
                    self._swap(args, ~hits[:, 0] & hits[:, 1])
                    self._swap(args, ~known & self._are_swapped(args, at, ~known))
                    return
        self._swap(args, self._ranks(args[:, 0]) > self._ranks(args[:, 1]))
        for value in args[middle].tolist():
            hits = args == value
            if hits.any(axis=1).all():
                self._swap(args, ~hits[:, 0])
                return

    @staticmethod
    def _swap(args: Ints, where: Truths) -> None:
        args[where] = args[where][:, ::-1]

    def _are_swapped(self, args: Ints, at: Ints, unknown: Truths) -> Truths:
        """Whether the first arguments of these events are what others take as the second."""
        known = np.flatnonzero(~unknown)
        back, _ = self._link(args[known, 1], at[known])
        if back:
            second = self._made_before(at, back)
            return (args[:, 0] == second) & (args[:, 1] != second)
        typical = args[known[len(known) // 2], 1]
        if 2 * np.count_nonzero(args[known, 1] == typical) > len(known):
            return (args[:, 0] == typical) & (args[:, 1] != typical)
        rank, ranks = self._ranks(args[known[:1], 1]), self._ranks(args.ravel()).reshape(-1, 2)
        return (ranks[:, 0] == rank) & (ranks[:, 1] != rank)

    def _ranks(self, ids: Ints) -> Ints:
        """Numbers for kinds of nodes: constants, other leaves, operations."""
        nodes = self._graph.nodes
        ranks = [0 if nodes[i][0].constant else 1 + (nodes[i][0].arity > 0) for i in ids.tolist()]
        return np.array(ranks)

    # --- where iterations begin
    # ------------------------------------------------------------------------

    def iterations(self) -> tuple[int, int]:
        """The event at which an iteration begins, and how many iterations there are from there on.

        Iterations begin where the fewest values are handed from one to the next.
        """
        p = self.stretch.period
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self.holds, [False]])))
        starts, ends = edges[::2], edges[1::2]
        longest = int(np.argmax(ends - starts)) if len(starts) else 0
        if not len(starts) or ends[longest] - starts[longest] < LEAST_ITERATIONS * p:
            return 0, 0
        start, end = int(starts[longest]), int(ends[longest])
        shifts = (np.arange(p) + start) % p
        crossing = self._crossing()[shifts]
        iterations = (end - start - np.arange(p)) // p
        peeled = end - start - iterations * p
        best = int(np.lexsort((np.arange(p), peeled, crossing))[0])
        return start + best, int(iterations[best])

    def _crossing(self) -> Ints:
        """How many values are handed over a boundary before each event of the period."""
        p, reach = self.stretch.period, dict[int, int]()
        for q, slots in enumerate(self.taken):
            for taken in slots:
                if taken.back:
                    producer = (q - taken.back) % p
                    reach[producer] = max(reach.get(producer, 0), taken.back)
        change = np.zeros(2 * p + 1, np.int64)
        for producer, back in reach.items():
            change[0] += back // p
            change[p] -= back // p
            change[producer + 1] += 1
            change[producer + 1 + back % p] -= 1
        total = np.cumsum(change)
        return total[:p] + total[p : 2 * p]


# --- iterations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: its node in each iteration; if it is a column, which, and how long ago.

    Where that would be before the first iteration, the nodes are from elsewhere.
    """

    values: Ints
    column: int | None = None
    back: int = 0

    @property
    def outside(self) -> Ints:
        """The nodes that come from outside of the iterations."""
        return self.values if self.column is None else self.values[: self.back]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that each iteration does: its node in each, and its arguments."""

    results: Ints
    arguments: tuple[Argument, ...]
    is_fixed: bool = field(init=False)
    """Whether it is the same in all iterations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_fixed", bool((self.results == self.results[:1]).all()))


@dataclass(frozen=True, slots=True)
class Iterations:
    """The operations of each iteration, in their order; ``start`` is the first of the events."""

    start: int
    columns: tuple[Operation, ...]

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
        """The iteration that made each node, -1 of others; ``first`` are the events that did."""
        iteration = np.full(len(first), -1)
        moving = [c.results for c in self.columns if not c.is_fixed]
        if moving:
            ids = np.stack(moving, axis=1)[::-1]  # the last to be noted is the first that made it
            iteration[ids] = np.arange(self.count)[::-1, None]
            iteration[first < self.start] = -1
        return iteration

    def later(self, iterations: int) -> Iterations:
        """Without the first iterations."""

        def cut(slot: Argument) -> Argument:
            return Argument(slot.values[iterations:], slot.column, slot.back)

        columns = (
            Operation(c.results[iterations:], tuple(map(cut, c.arguments))) for c in self.columns
        )
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


def columns_of(links: Links, start: int, count: int) -> Iterator[Operation]:
    """So many iterations of a stretch, from one of its events on."""
    period = links.stretch.period
    for c in range(period):
        q = (start + c) % period
        rows = (start + c - q) // period + np.arange(count)
        slots: list[Argument] = []
        for taken in links.taken[q]:
            iterations, column = divmod(c - taken.back, period)
            values = taken.values[rows] if count else taken.values[:0]
            slots.append(Argument(values, column, -iterations) if taken.back else Argument(values))
        yield Operation(links.ids[q + rows * period] if count else links.ids[:0], tuple(slots))


def _last_taken(iterations: Iterations, first: Ints) -> int:
    """The last iteration that made a node which another does not take as a carry; -1: none."""
    iteration_of = iterations.made(first)
    return max(
        (
            int(iteration_of[slot.values if column.is_fixed else slot.outside].max(initial=-1))
            for column in iterations.columns
            for slot in column.arguments
        ),
        default=-1,
    )
