"""Iterations as a loop: its carries, its body, and the replacements of the iterations' nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr.derivatives.compensate import compensated
from symgrad.expr.graph.arrays import EMPTIES, PUTS, READS, size_of
from symgrad.expr.graph.node import ANY_INPUT, INPUT, INTEGER, TRUTH, WORD, Graph, reachable
from symgrad.expr.graph.region import close, hole, loop_op, pick
from symgrad.expr.tracing.iterations import Column, Iterations, Slot
from symgrad.expr.tracing.sequences import Sequences

_ASSIGNED: Final = re.compile(r"(\w+) *(?:[-+*/]|\*\*)?=[^=;]*$")
"""A line that gives one variable a value."""

_STORED: Final = {"f": "F", "u": "W"}
"""The types of arrays in which results of all iterations are kept, by their types."""


@dataclass(frozen=True, slots=True)
class Use:
    """A node that is used outside of the iterations: what a column is in a turn."""

    node: int
    iteration: int
    column: int


@dataclass(frozen=True, slots=True)
class _Carry:
    """What a column was some iterations ago; ``inits`` are what it was before the first turn."""

    column: int
    holes: list[int]
    inits: list[int]


@dataclass(frozen=True, slots=True)
class Rolled:
    """What stands for nodes that are used, and how many others there are that cost nothing."""

    ends: dict[int, int]
    free: int


def rolled_loop(
    graph: Graph,
    iterations: Iterations,
    uses: Sequence[Use],
    stand: Mapping[int, int],
    rounding: float,
) -> Rolled | None:
    """The iterations as a loop; None if they cannot be one.

    Args:
        graph: where the nodes are; the loop is added to it.
        iterations: what the loop does.
        uses: what is wanted of it.
        stand: what stands for nodes that other iterations have made.
        rounding: see `Sequences`.
    """
    loop = _RolledLoop(graph, iterations, stand, rounding)
    ends = loop.ends(uses) if loop.is_made else None
    return None if ends is None else Rolled(ends, loop.sequences.free)


def inputs_in_a_row(graph: Graph, iterations: Iterations) -> range:
    """The numbers of inputs between which those are that iterations take one after the other.

    In a region there are none: its inputs stand nowhere.
    """
    nodes, numbers = graph.nodes, set[int]()
    if not graph.heads.isdisjoint(ANY_INPUT - {INPUT}):
        return range(0)
    for column in iterations.columns:
        for slot in column.slots if not column.is_fixed else ():
            ends = [nodes[i] for i in slot.values[[0, -1]].tolist()]
            if slot.column is None and ends[0] != ends[1] and ends[0][0] is ends[1][0] is INPUT:
                numbers.update(node[1] for node in ends)
    return range(min(numbers), max(numbers) + 1) if numbers else range(0)


class _RolledLoop:
    def __init__(
        self, graph: Graph, iterations: Iterations, stand: Mapping[int, int], rounding: float
    ) -> None:
        self._graph, self._iterations, self._stand = graph, iterations, stand
        self._k = hole(graph, "u", name="k")
        self.sequences = Sequences(graph, self._k, rounding, inputs_in_a_row(graph, iterations))
        self._carries: list[_Carry] = []
        self._values: list[int] = []
        """What each column is in the loop."""
        self._carry_first()
        for column in iterations.columns:
            value = self._value(column)
            if value is None:
                break
            self._values.append(value)

    @property
    def is_made(self) -> bool:
        """Whether all that the iterations do can be done in a loop."""
        return len(self._values) == len(self._iterations.columns)

    # --- the body ---------------------------------------------------------------------------------

    def _value(self, column: Column) -> int | None:
        graph, first = self._graph, int(column.results[0])
        if column.is_fixed:
            return first
        graph.place = graph.places[int(column.results[-1])]
        args = [self._argument(slot) for slot in self._ordered(column)]
        known = [a for a in args if a is not None]
        return graph.add(graph.nodes[first][0], *known) if len(known) == len(args) else None

    def _argument(self, slot: Slot) -> int | None:
        """What an argument is in the loop; None if nothing says what it is in all iterations."""
        if not self._is_past(slot):
            return self.sequences.of([self._stand.get(v, v) for v in slot.values.tolist()])
        assert slot.column is not None, "what is of a turn is of a column"
        return self._carried(slot.column, _inits(slot)) if slot.back else self._values[slot.column]

    def _is_past(self, slot: Slot) -> bool:
        """Whether it is made by the iterations, each anew."""
        return slot.column is not None and not self._iterations.columns[slot.column].is_fixed

    # --- carries ----------------------------------------------------------------------------------

    def _carried(self, column: int, inits: list[int]) -> int:
        """What a column was as many iterations ago as there are inits."""
        carry = self._carry_of(column, inits)
        if carry is None:
            carry = _Carry(column, [], [])
            self._carries.append(carry)
        graph, name = self._graph, self._name(column)
        for init in inits[len(carry.inits) :]:
            carry.holes.append(hole(graph, graph.type(init), size_of(graph, init), name))
            carry.inits.append(init)
        return carry.holes[len(inits) - 1]

    def _carry_of(self, column: int, inits: list[int]) -> _Carry | None:
        """The carry that there is of a column that began like this."""
        for carry in self._carries:
            both = zip(carry.inits, inits, strict=False)
            if carry.column == column and all(a == b for a, b in both):
                return carry
        return None

    def _carry_first(self) -> None:
        """Make those carries first of which it is known how they begin."""
        for column in self._iterations.columns:
            past = [s for s in column.slots if self._is_past(s) and s.back]
            if not column.is_fixed and not self._may_be_swapped(column):
                for slot in past:
                    assert slot.column is not None, "what is past is of a column"
                    self._carried(slot.column, _inits(slot))

    def _may_be_swapped(self, column: Column) -> bool:
        op = self._graph.nodes[int(column.results[0])][0]
        return op.commutative and all(s.back for s in column.slots)

    def _ordered(self, column: Column) -> Sequence[Slot]:
        """The arguments; those before the first turn are swapped if that says how others began."""
        if not self._may_be_swapped(column) or not all(map(self._is_past, column.slots)):
            return column.slots
        one, other = column.slots
        if one.back != 1 or other.back != 1 or self._knows(one) + self._knows(other) == 2:
            return column.slots
        swapped = [Slot(other.values, one.column, 1), Slot(one.values, other.column, 1)]
        return swapped if any(map(self._knows, swapped)) else column.slots

    def _knows(self, slot: Slot) -> bool:
        assert slot.column is not None, "what is past is of a column"
        return self._carry_of(slot.column, _inits(slot)) is not None

    def _name(self, column: int) -> str:
        """What the user's line calls what it makes, as far as it is seen."""
        place = self._graph.place_of(int(self._iterations.columns[column].results[-1]))
        match = _ASSIGNED.match(place.text) if place else None
        return match[1] if match else ""

    # --- what is used after it --------------------------------------------------------------------

    def ends(self, uses: Sequence[Use]) -> dict[int, int] | None:
        """What stands for these nodes; None if an array would be needed of what none holds."""
        graph = self._graph
        graph.place = graph.places[int(self._iterations.columns[-1].results[-1])]
        last = {u.node: self._last(u) for u in uses if self._is_carried(u)}
        stored = {u.column: -1 for u in uses if u.node not in last}
        for column in stored:
            kind = _STORED.get(graph.type(self._values[column]))
            if kind is None:
                return None
            stored[column] = hole(graph, kind, self._iterations.count, self._name(column))
        results = self._results(stored)
        return {
            u.node: results[last[u.node]]
            if u.node in last
            else self._element(results[stored[u.column]], u.iteration)
            for u in uses
        }

    def _element(self, array: int, iteration: int) -> int:
        graph = self._graph
        return graph.add(READS[graph.type(array)], array, graph.intern((WORD, iteration)))

    def _is_carried(self, use: Use) -> bool:
        """Whether a result is carried to the end of the loop, or may be."""
        back = self._iterations.count - use.iteration
        return back == 1 or any(
            c.column == use.column and len(c.inits) >= back for c in self._carries
        )

    def _last(self, use: Use) -> int:
        """The carry that is this result in the end."""
        back = self._iterations.count - use.iteration
        for carry in self._carries:
            if carry.column == use.column and len(carry.inits) >= back:
                return carry.holes[back - 1]
        return self._carried(use.column, [_blank(self._graph, self._values[use.column])])

    # --- the loop ---------------------------------------------------------------------------------

    def _results(self, stored: Mapping[int, int]) -> dict[int, int]:
        """The results of the loop, by the carries and the arrays that they are in the end."""
        graph, count, then = self._graph, self._iterations.count, dict[int, int]()
        inits: list[int] = []
        for carry in self._carries:
            then |= zip(carry.holes, [self._values[carry.column], *carry.holes], strict=False)
            inits += carry.inits
        for column, array in stored.items():
            kind = graph.type(array)
            then[array] = graph.add(PUTS[kind], array, self.sequences.k, self._values[column])
            inits.append(graph.intern((EMPTIES[kind], count)))
        inner = self._inner(then)
        region, captured = close(
            graph, [self.sequences.k, *then], list(then.values()), capture=lambda i: i not in inner
        )
        op, errors = compensated(loop_op(region, len(then), most=count))
        ends = graph.intern((WORD, 0)), graph.intern((WORD, count))
        zeros = [graph.constant(0.0)] * errors
        loop = graph.add(op, *ends, *inits, *zeros, *captured)
        return {h: pick(graph, loop, j, graph.type(h)) for j, h in enumerate(then)}

    def _inner(self, then: Mapping[int, int]) -> set[int]:
        """What changes from turn to turn."""
        graph, k = self._graph, self.sequences.k
        inner = {k, *then}
        for i in reachable(graph, then.values(), k):
            if not inner.isdisjoint(graph.args(i)):
                inner.add(i)
        return inner


def _inits(slot: Slot) -> list[int]:
    """What an argument of other iterations is before the first: the turn before it, and so on."""
    return slot.values[: slot.back][::-1].tolist()


def _blank(graph: Graph, like: int) -> int:
    """A number, of the type of a node, that nobody reads."""
    if graph.type(like) == "f":
        return graph.constant(0.0)
    return graph.intern(({"b": TRUTH, "u": WORD, "i": INTEGER}[graph.type(like)], 0))
