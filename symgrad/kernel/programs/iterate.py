"""Iteration: many steps of many problems, each with a state of its own, and data of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symgrad.expr import ops
from symgrad.expr.node import INPUT, Graph, paused_gc
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.lower import inline
from symgrad.kernel.plan import Computation, Iteration, Reduction
from symgrad.kernel.stage import stages

Load = Callable[[int], int]
"""The number at an index of a problem's own data."""


@paused_gc()
def iterate_program(iteration: Iteration, target: Target) -> Kernel:
    """The kernel that does ``steps`` steps of an iteration, or fewer where a flag becomes 0.

    Its buffers are ``own`` (problems, rows, columns) and ``shared`` (rows, columns), which are
    read, and ``states`` (problems, numbers). Its arguments are ``steps`` and ``rows``.
    """
    return _Program(iteration, target).kernel


class _Program:
    def __init__(self, iteration: Iteration, target: Target) -> None:
        self.iteration, self.target = iteration, target
        self.kernel = k = Kernel(target, iteration.update.name)
        self.own, self.shared = k.buffer("own", "read"), k.buffer("shared", "read")
        self.states = k.buffer("states", "write")
        self.steps, self.rows = k.argument("steps"), k.argument("rows")
        self.problem, width = target.point(k), iteration.state
        self.places = [k.offset(self.problem, width, c) for c in range(width)]
        self.own_number = self._own() if iteration.own else None
        self.in_values() if iteration.state <= target.carried else self.in_memory()

    def in_values(self) -> None:
        """The steps of a state whose numbers are carried as values."""
        k = self.kernel
        first = [k.load(self.states, place) for place in self.places]

        def test(_: int, state: Sequence[int]) -> int:
            return self.going(state[-1])

        last, _ = k.loop(k.word(0), self.steps, first, lambda _, s: self.step(s), test=test)
        for place, value in zip(self.places, last, strict=True):
            k.store(self.states, place, value)

    def in_memory(self) -> None:
        """The steps of a state whose numbers are too many for that: they stay where they are."""
        k = self.kernel

        def test(_: int, __: Sequence[int]) -> int:
            return self.going(k.load(self.states, self.places[-1]))

        def step(_: int, __: Sequence[int]) -> Sequence[int]:
            now = [k.load(self.states, place) for place in self.places]
            for place, before, after in zip(self.places, now, self.step(now), strict=True):
                if before != after:
                    k.store(self.states, place, after)
            return ()

        k.loop(k.word(0), self.steps, (), step, test=test)

    def going(self, flag: int) -> int:
        """Whether a problem goes on."""
        return self.kernel.add(ops.ne, flag, self.kernel.constant(0.0))

    def step(self, state: Sequence[int]) -> list[int]:
        """The next state."""
        rows = self.iteration.rows
        given = [*state, *(self.sums(rows, state) if rows else ())]
        return _values(self.kernel, self.iteration.update, given)

    # sums over rows ------------------------------------------------------------------------------

    def sums(self, rows: Reduction, state: Sequence[int]) -> list[int]:
        """The sums of what is computed at every row of a problem, times their factors."""
        k, graph = self.kernel, rows.graph
        terms = [i for o in rows.outputs for i in o.nodes]
        known = _inputs(graph, state[: rows.parameters])
        carried = stages(rows).carried
        known |= zip(carried, inline(k, graph, carried, known), strict=True)
        factors = inline(k, graph, rows.factors, known)

        def at(row: int) -> list[int]:
            mine = _inputs(graph, self.columns(row), rows.parameters)
            return inline(k, graph, terms, known | mine)

        totals = self.over_rows(at, len(terms))
        return [k.add(ops.mul, t, f) for t, f in zip(totals, factors, strict=True)]

    def columns(self, row: int) -> list[int]:
        """The numbers of a row: what is shared first."""
        k, shared, own = self.kernel, self.iteration.shared, self.iteration.own
        found = [k.load(self.shared, k.offset(row, shared, c)) for c in range(shared)]
        if self.own_number:
            found += [self.own_number(k.offset(row, own, c)) for c in range(own)]
        return found

    def over_rows(self, at: Callable[[int], Sequence[int]], count: int) -> list[int]:
        """The sums of so many values over the rows, by stretches, whose sums are added up wide."""
        k, target = self.kernel, self.target
        nothing, size = k.constant(0.0), k.word(target.block)

        def stretch(n: int, totals: Sequence[int]) -> list[int]:
            first = k.add(ops.word_mul, n, size)
            end = k.add(ops.word_min, k.add(ops.word_add, first, size), self.rows)

            def row(r: int, sums: Sequence[int]) -> list[int]:
                return [k.add(ops.add, s, x) for s, x in zip(sums, at(r), strict=True)]

            sums, _ = k.loop(first, end, [nothing] * count, row)
            wide = zip(target.grouped(totals), sums, strict=True)
            return [part for total, x in wide for part in target.wide_add(k, total, x)]

        stretches = k.add(
            ops.word_div, k.add(ops.word_add, self.rows, k.word(target.block - 1)), size
        )
        totals, _ = k.loop(k.word(0), stretches, target.wide_zero(k) * count, stretch)
        return [target.narrow(k, total) for total in target.grouped(totals)]

    def _own(self) -> Load:
        """What reads a problem's own data, once they stand as neighbours read them."""
        k = self.kernel
        size = k.add(ops.word_mul, self.rows, k.word(self.iteration.own))
        start = k.add(ops.word_mul, self.problem, size)
        turned = k.buffer("turned", "own", open_ended=True)

        def copy(i: int, _: Sequence[int]) -> Sequence[int]:
            k.store(turned, i, k.load(self.own, k.add(ops.word_add, start, i)))
            return ()

        k.loop(k.word(0), size, (), copy)
        return lambda i: k.load(turned, i)


def _inputs(graph: Graph, values: Sequence[int], first: int = 0) -> dict[int, int]:
    """The inputs of a graph from number ``first`` on, as these values."""
    numbered = (
        (i, n[1] - first) for i, n in enumerate(graph.nodes) if n[0] is INPUT and n[1] >= first
    )
    return {i: values[n] for i, n in numbered if n < len(values)}


def _values(k: Kernel, computation: Computation, given: Sequence[int]) -> list[int]:
    """The results of a computation, of inputs that are given."""
    roots = [i for o in computation.outputs for i in o.nodes]
    return inline(k, computation.graph, roots, _inputs(computation.graph, given), in_turn=True)
