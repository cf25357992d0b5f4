"""What an argument is in turn after turn: an expression of the counter, or of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.arrays import EMPTY, GET, PUT
from symgrad.expr.graph.node import CONST, INPUT, WORD, Graph, inputs_of

EXACT: Final = 2.0**24
"""Below it whole numbers are float32 numbers."""

DEEPEST: Final = 3
"""Levels of operations outside of a loop that are done in it, each turn its own."""

FRACTIONS: Final = 8
"""Counters are shifted by multiples of one of so many parts."""


class Sequences:
    """Values by turn, for a loop whose counter is ``k``, which begins at 0.

    Constants that are not what the counter says within ``rounding``, relatively, are in a table.
    Inputs in a row, of those with the numbers ``inputs``, are elements of the array of all these.
    """

    def __init__(self, graph: Graph, k: int, rounding: float, inputs: range) -> None:
        self._graph, self.k, self._rounding, self._inputs = graph, k, rounding, inputs
        self._count = graph.add(ops.word_float, k)
        self._by_number = dict(enumerate(inputs_of(graph))) if inputs else {}
        self.free = 0
        """Nodes of arrays that nobody makes: see `symgrad.kernel.views`."""

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
        """An operation that is done outside of the loop for each turn, in the loop."""
        graph = self._graph
        op = graph.nodes[values[0]][0]
        if not op.arity or "t" in op.signature:
            return None
        slots = zip(*[graph.args(v) for v in values], strict=True)
        args = [self.of(slot, depth + 1) for slot in slots]
        known = [a for a in args if a is not None]
        return graph.add(op, *known) if len(known) == len(args) else None

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
