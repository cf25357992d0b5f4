"""Rolling: what a Python loop has written out, turn by turn, becomes a loop again.

A trace stands in the order in which the function did it, and each operation knows its line: the
iterations of a loop are a stretch in which every event is like the one a period later. What a turn
takes of those before it is carried; other arguments are the same in all iterations, numbers in a
row, or elements of an array. What is used after the loop is what it carries in the end, or all
iterations of it in an array. Iterations that are not like the others stay outside, and so does what
is not worth a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np

from symgrad.expr.graph.arrays import WRITES
from symgrad.expr.graph.node import Graph, inputs_of
from symgrad.expr.graph.region import close, in_regions
from symgrad.expr.tracing.gather import RowTrace
from symgrad.expr.tracing.iterations import Iterations, iterations_of
from symgrad.expr.tracing.repeats import Ints, events_of, stretches
from symgrad.expr.tracing.rolled_loop import Use, inputs_in_a_row, rolled_loop
from symgrad.expr.tracing.trace import Trace

LEAST_SAVED: Final = 2**10
"""Operations by which a loop is shorter than what it stands for, at least.

So 20 steps of RK4 between two observations stay written out in the body of the loop over these: as
a loop of their own they take, with the gradient, half the time on the CPU, and twice on an H200.
"""

LEAST_READING: Final = 2**12
"""The same, if it reads inputs one by one, which are values where iterations are written out."""

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
    """The same of a loss of one row."""
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
        """What stands for nodes that these iterations made, as far as a loop is worth it."""
        for iterations, origins in sorted(repeats, key=lambda item: item[0].start):
            self._roll(iterations, origins)
        return self._stand

    def _roll(self, iterations: Iterations, origins: Ints) -> None:
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
        wanted = np.zeros(len(origins), np.bool_)
        wanted[self._args[origins[self._users] < 0]] = True
        wanted[list(self._roots)] = True
        wanted &= origins >= 0
        for column, c in enumerate(iterations.columns):
            if not c.is_fixed:
                for iteration in np.flatnonzero(wanted[c.results]).tolist():
                    yield Use(int(c.results[iteration]), iteration, column)
