"""Rolling: what a Python loop has written out, iteration by iteration, becomes a loop again.

A trace stands in the order in which the function did it, and each operation knows its line: the
iterations of a loop are a stretch in which every event is like the one a period later. Values that
an iteration takes of those before it are carried; other arguments are the same in all iterations,
numbers in a row, or elements of an array. Values that are used after the loop are final carries, or
an array of those of all iterations. Iterations that are not like the others stay outside, and so do
those that are not worth a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import compensated
from symgrad.expr.graph.arrays import EMPTIES, EMPTY, GET, PUT, PUTS, READS, WRITES, size_of
from symgrad.expr.graph.node import (
    ANY_INPUT,
    CONST,
    INPUT,
    INTEGER,
    TRUTH,
    WORD,
    Graph,
    inputs_of,
    reachable,
)
from symgrad.expr.graph.region import close, hole, in_regions, loop_op, pick
from symgrad.expr.tracing.gather import RowTrace
from symgrad.expr.tracing.repeats import (
    Argument,
    Ints,
    Iterations,
    Operation,
    events_of,
    iterations_of,
    stretches,
)
from symgrad.expr.tracing.trace import Trace

# --- arguments in iteration after iteration -------------------------------------------------------

EXACT: Final = 2.0**24
"""Below it whole numbers are float32 numbers."""

DEEPEST: Final = 3
"""Levels of operations outside of a loop that are done in it, each iteration its own."""

FRACTIONS: Final = 8
"""Counters are shifted by multiples of one part of this many."""


class Sequences:
    """Values by iteration, for a loop whose counter is ``k``, which begins at 0.

    Constants that are not what the counter says within ``rounding``, relatively, are in a table.
    Inputs in a row, of those with the numbers ``inputs``, are elements of the array of all these.
    """

    def __init__(self, graph: Graph, k: int, rounding: float, inputs: range) -> None:
        self._graph, self.k, self._rounding, self._inputs = graph, k, rounding, inputs
        self._count = graph.add(ops.word_float, k)
        self._by_number = dict(enumerate(inputs_of(graph))) if inputs else {}
        self.free = 0
        """Nodes of arrays that are never stored: see `symgrad.kernel.language.views`."""

    def of(self, values: Sequence[int], depth: int = 0) -> int | None:
        """A node for what is one of these after the other; None if there is none."""
        graph, first = self._graph, values[0]
        if values.count(first) == len(values):
            return first
        heads = {graph.nodes[v][0] for v in values}
        if heads == {WORD}:
            return self._index([graph.nodes[v][1] for v in values])
        if heads == {CONST}:
            node = self._number(np.array([graph.value(v) for v in values]))
            if node is not None:
                return node
        elif heads == {INPUT}:
            return self._input(values)
        elif len(heads) == 1 and depth < DEEPEST and (node := self._operation(values, depth)):
            return node
        return self._element(values) if {graph.type(v) for v in values} == {"f"} else None

    def _operation(self, values: Sequence[int], depth: int) -> int | None:
        """An operation that is done outside of the loop for each iteration, in the loop."""
        graph = self._graph
        op = graph.nodes[values[0]][0]
        if not op.arity or "t" in op.signature:
            return None
        slots = zip(*[graph.args(v) for v in values], strict=True)
        args = [self.of(slot, depth + 1) for slot in slots]
        nodes = [a for a in args if a is not None]
        return graph.add(op, *nodes) if len(nodes) == len(args) else None

    # numbers of the counter -----------------------------------------------------------------------

    def _index(self, numbers: Sequence[int]) -> int | None:
        graph, start, step = self._graph, numbers[0], numbers[1] - numbers[0]
        if step < 0 or any(n != start + t * step for t, n in enumerate(numbers)):
            return None
        times = self.k if step == 1 else graph.add(ops.word_mul, self.k, graph.intern((WORD, step)))
        return graph.add(ops.word_add, times, graph.intern((WORD, start))) if start else times

    def _number(self, numbers: np.ndarray) -> int | None:
        """Constants as ``step * (k + shift)`` or ``start + step * k``, if that is as good."""
        k, start = np.arange(len(numbers)), float(numbers[0])
        if not np.isfinite(numbers).all():
            return None
        mean = float(numbers[-1] - start) / (len(numbers) - 1)
        for step in (float(f"{mean:.12g}"), mean):
            if step == 0.0:
                continue
            shift = round(FRACTIONS * start / step) / FRACTIONS
            small = abs(shift) + len(numbers) < EXACT / FRACTIONS
            if small and self._agree(step * (k + shift), numbers):
                return self._product(step, shift)
            whole = step.is_integer() and start.is_integer() and np.abs(numbers).max() < EXACT
            near = (abs(start) + np.abs(step * k) <= 2 * np.abs(numbers)).all()
            if (whole or near) and self._agree(start + step * k, numbers):
                return self._sum(self._product(step, 0.0), start)
        return None

    def _agree(self, values: np.ndarray, numbers: np.ndarray) -> bool:
        return bool((np.abs(values - numbers) <= self._rounding * np.abs(numbers)).all())

    def _product(self, step: float, shift: float) -> int:
        graph, count = self._graph, self._sum(self._count, shift)
        return count if step == 1.0 else graph.add(ops.mul, count, graph.constant(step))

    def _sum(self, value: int, number: float) -> int:
        graph = self._graph
        return graph.add(ops.add, value, graph.constant(number)) if number else value

    # arrays ---------------------------------------------------------------------------------------

    def _input(self, values: Sequence[int]) -> int | None:
        """An element of the array of all inputs that such arguments are, if these are in a row."""
        graph = self._graph
        at = self._index([graph.nodes[v][1] - self._inputs.start for v in values])
        if at is None or not self._inputs:
            return None
        return graph.add(GET, self._array([self._by_number[n] for n in self._inputs]), at)

    def _element(self, values: Sequence[int]) -> int:
        """The element k of the array of these values."""
        return self._graph.add(GET, self._array(values), self.k)

    def _array(self, values: Sequence[int]) -> int:
        graph, start = self._graph, len(self._graph)
        array = graph.intern((EMPTY, len(values)))
        for t, value in enumerate(values):
            array = graph.add(PUT, array, graph.intern((WORD, t)), value)
        if len({graph.nodes[v][0] for v in values} & {CONST, INPUT}) == 1:
            self.free += len(graph) - start
        return array


# --- one loop -------------------------------------------------------------------------------------

_ASSIGNED: Final = re.compile(r"(\w+) *(?:[-+*/]|\*\*)?=[^=;]*$")
"""A line that gives one variable a value."""

_STORED: Final = {"f": "F", "u": "W"}
"""The types of arrays in which results of all iterations are kept, by their types."""


@dataclass(frozen=True, slots=True)
class Use:
    """A node that is used outside of the iterations: what a column is in an iteration."""

    node: int
    iteration: int
    column: int


@dataclass(frozen=True, slots=True)
class _Carry:
    """A column some iterations ago; ``inits`` are its nodes before the first iteration."""

    column: int
    holes: list[int]
    inits: list[int]


@dataclass(frozen=True, slots=True)
class Rolled:
    """The replacements of nodes that are used, and the number of other nodes that cost nothing."""

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
        for slot in column.arguments if not column.is_fixed else ():
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
        """The node of each column in the loop."""
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

    def _value(self, column: Operation) -> int | None:
        graph, first = self._graph, int(column.results[0])
        if column.is_fixed:
            return first
        graph.place = graph.places[int(column.results[-1])]
        args = [self._argument(slot) for slot in self._ordered(column)]
        nodes = [a for a in args if a is not None]
        return graph.add(graph.nodes[first][0], *nodes) if len(nodes) == len(args) else None

    def _argument(self, slot: Argument) -> int | None:
        """The node of an argument in the loop; None if there is none for all iterations."""
        if not self._is_past(slot):
            return self.sequences.of([self._stand.get(v, v) for v in slot.values.tolist()])
        assert slot.column is not None, "what is of an iteration is of a column"
        return self._carried(slot.column, _inits(slot)) if slot.back else self._values[slot.column]

    def _is_past(self, slot: Argument) -> bool:
        """Whether it is made by the iterations, each anew."""
        return slot.column is not None and not self._iterations.columns[slot.column].is_fixed

    # --- carries ----------------------------------------------------------------------------------

    def _carried(self, column: int, inits: list[int]) -> int:
        """The node of a column as many iterations ago as there are inits."""
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
            past = [s for s in column.arguments if self._is_past(s) and s.back]
            if not column.is_fixed and not self._may_be_swapped(column):
                for slot in past:
                    assert slot.column is not None, "what is past is of a column"
                    self._carried(slot.column, _inits(slot))

    def _may_be_swapped(self, column: Operation) -> bool:
        op = self._graph.nodes[int(column.results[0])][0]
        return op.commutative and all(s.back for s in column.arguments)

    def _ordered(self, column: Operation) -> Sequence[Argument]:
        """The arguments; before the first iteration swapped, if that says how others began."""
        if not self._may_be_swapped(column) or not all(map(self._is_past, column.arguments)):
            return column.arguments
        one, other = column.arguments
        if one.back != 1 or other.back != 1 or self._knows(one) + self._knows(other) == 2:
            return column.arguments
        swapped = [Argument(other.values, one.column, 1), Argument(one.values, other.column, 1)]
        return swapped if any(map(self._knows, swapped)) else column.arguments

    def _knows(self, slot: Argument) -> bool:
        assert slot.column is not None, "what is past is of a column"
        return self._carry_of(slot.column, _inits(slot)) is not None

    def _name(self, column: int) -> str:
        """The variable that the user's line assigns, as far as it is seen."""
        place = self._graph.place_of(int(self._iterations.columns[column].results[-1]))
        match = _ASSIGNED.match(place.text) if place else None
        return match[1] if match else ""

    # --- what is used after it --------------------------------------------------------------------

    def ends(self, uses: Sequence[Use]) -> dict[int, int] | None:
        """The replacements of used nodes; None if they need an array of a missing type."""
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
        """The nodes that change from iteration to iteration."""
        graph, k = self._graph, self.sequences.k
        inner = {k, *then}
        for i in reachable(graph, then.values(), k):
            if not inner.isdisjoint(graph.args(i)):
                inner.add(i)
        return inner


def _inits(slot: Argument) -> list[int]:
    """The nodes of an argument before the first iteration, the latest first."""
    return slot.values[: slot.back][::-1].tolist()


def _blank(graph: Graph, like: int) -> int:
    """A number of the type of a node, which is never read."""
    if graph.type(like) == "f":
        return graph.constant(0.0)
    return graph.intern(({"b": TRUTH, "u": WORD, "i": INTEGER}[graph.type(like)], 0))


# --- the trace ------------------------------------------------------------------------------------

LEAST_SAVED: Final = 2**10
"""Operations by which a loop is shorter than what it stands for, at least.

So 20 steps of RK4 between two observations stay written out in the body of the loop over these: as
a loop of their own they take, with the gradient, half the time on the CPU, and twice on an H200.
"""

LEAST_READING: Final = 2**12
"""As `LEAST_SAVED`, of a loop that reads inputs one by one, values where it is written out."""

LEVELS: Final = 4
"""How often what has been rolled is looked at once more, for loops around it."""


def rolled(traced: Trace, rounding: float) -> Trace:
    """The trace with loops in place of iterations; constants may move by ``rounding``, relatively.

    Nearly linear in the number of nodes.
    """
    graph, roots = _rolled(rounding, traced.graph, traced.outputs)
    if graph is traced.graph:
        return traced
    return replace(traced, graph=graph, inputs=tuple(inputs_of(graph)), outputs=tuple(roots))


def rolled_row(trace: RowTrace, rounding: float) -> RowTrace:
    """The trace of a loss of one row with loops in place of iterations: see `rolled`."""
    graph, roots = _rolled(rounding, trace.graph, trace.outputs)
    if graph is trace.graph:
        return trace
    new = dict(zip(inputs_of(trace.graph), inputs_of(graph), strict=True))
    return replace(
        trace,
        graph=graph,
        outputs=tuple(roots),
        columns=tuple(new[i] for i in trace.columns),
        parameters={place: new[i] for place, i in trace.parameters.items()},
        gathers=tuple(replace(g, inputs=tuple(new[i] for i in g.inputs)) for g in trace.gathers),
    )


def _rolled(rounding: float, graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph with loops in place of repeats, level by level, in its regions too."""
    for _ in range(LEVELS):
        repeats = list(_repeated(graph, roots))
        if not repeats:
            break
        work = graph.copy()
        stand = _Rolling(work, roots, rounding).rolled(repeats)
        if not stand:
            break
        region, _ = close(work, inputs_of(work), roots, stand)
        graph, roots = region.graph, region.yields
    return in_regions(graph, roots, partial(_rolled, rounding))


def _repeated(graph: Graph, roots: Sequence[int]) -> Iterator[tuple[Iterations, Ints]]:
    """Iterations that may be worth a loop, and which one made each node; none within another."""
    if len(graph) < LEAST_SAVED:
        return
    events = events_of(graph, roots)
    first = np.full(len(graph), -1)
    first[events.ids[::-1]] = np.arange(len(events))[::-1]
    free = np.ones(len(events), np.bool_)
    for stretch in stretches(events):
        if stretch.saved < LEAST_SAVED:
            return
        if free[stretch.start : stretch.stop].all():
            iterations = iterations_of(graph, events, first, stretch)
            if iterations is not None:
                free[iterations.start : iterations.start + iterations.events] = False
                if _is_worth_it(graph, iterations):
                    yield iterations, iterations.made(first)


def _is_worth_it(graph: Graph, iterations: Iterations) -> bool:
    """Whether a loop saves enough; tables, which are written number by number, cost nothing."""
    if all(graph.nodes[int(c.results[0])][0] in WRITES for c in iterations.columns):
        return False
    return iterations.saved >= (
        LEAST_READING if inputs_in_a_row(graph, iterations) else LEAST_SAVED
    )


class _Rolling:
    """A graph in which iterations become loops; ``stand`` has the nodes' replacements."""

    def __init__(self, graph: Graph, roots: Sequence[int], rounding: float) -> None:
        self._graph, self._roots, self._rounding = graph, roots, rounding
        args = [node[1:] if node[0].arity else () for node in graph.nodes]
        self._users = np.repeat(np.arange(len(graph)), list(map(len, args)))
        self._args = np.fromiter(chain.from_iterable(args), np.int64)
        self._stand: dict[int, int] = {}

    def rolled(self, repeats: Sequence[tuple[Iterations, Ints]]) -> dict[int, int]:
        """The replacements of nodes that these iterations made, as far as a loop is worth it."""
        for iterations, origins in sorted(repeats, key=lambda item: item[0].start):
            self._roll(iterations, origins)
        return self._stand

    def _roll(self, iterations: Iterations, origins: Ints) -> None:
        """Add the loop of these iterations, and replace their nodes if it saves enough."""
        start = len(self._graph)
        uses = list(self._uses(iterations, origins))
        loop = rolled_loop(self._graph, iterations, uses, self._stand, self._rounding)
        if loop is None:
            return
        added = len(self._graph) - start - loop.free
        if added + LEAST_SAVED <= iterations.events and 2 * added <= iterations.events:
            self._stand |= loop.ends

    def _uses(self, iterations: Iterations, origins: Ints) -> Iterator[Use]:
        """Which results of which iterations are used elsewhere."""
        is_used = np.zeros(len(origins), np.bool_)
        is_used[self._args[origins[self._users] < 0]] = True
        is_used[list(self._roots)] = True
        is_used &= origins >= 0
        for column, c in enumerate(iterations.columns):
            if not c.is_fixed:
                for iteration in np.flatnonzero(is_used[c.results]).tolist():
                    yield Use(int(c.results[iteration]), iteration, column)
