"""Iteration: many steps of many problems, each with a state of its own, and data of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, Op, paused_gc
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import ThreadGroup
from symgrad.kernel.language.views import constants
from symgrad.kernel.passes.lower import Value, inline, inlined
from symgrad.kernel.shapes import Computation, Iteration, Reduction
from symgrad.kernel.stage import stages

GROUP_SUMS_AT_A_TIME: Final = 48
"""Sums that a thread group adds up at a time: of 64 invocations, they take 12,480 bytes."""

Load = Callable[[int], int]
"""The number at an index of a problem's own data."""


@paused_gc()
def iterate_program(iteration: Iteration, target: Target) -> KernelIR:
    """The kernel that does ``steps`` steps of an iteration, or fewer where a flag becomes 0.

    Its buffers are ``own`` (problems, rows, columns) and ``shared`` (rows, columns), which are
    read, ``constants``, if there are tables of them, and ``states`` (problems, numbers). Its
    arguments are ``steps`` and ``rows``.
    """
    return _Program(iteration, target).kernel


class StepsKernel:
    """Kernels of steps: their buffers and arguments, which problem there is, whether it goes on."""

    def __init__(self, iteration: Iteration, target: Target) -> None:
        self.iteration, self.target = iteration, target
        self.kernel = k = KernelIR(target, iteration.update.name)
        self.own, self.shared = k.buffer("own", "read"), k.buffer("shared", "read")
        self.states = k.buffer("states", "write")
        parts = [iteration.update, *([iteration.rows] if iteration.rows else [])]
        tables = constants(k, *((p.graph, [i for o in p.outputs for i in o.nodes]) for p in parts))
        self.tables: list[dict[int, Value]] = [{**table} for table in tables]
        """Tables of constants in the update, and at rows."""
        self.steps, self.rows = k.argument("steps"), k.argument("rows")
        self.threads = ThreadGroup(k)
        self.exists, self.problem = self._problem()

    def _problem(self) -> tuple[int | None, int]:
        """Whether there is a problem, if there may be none, and which: the last one again, then."""
        k, number = self.kernel, self.threads.number
        if self.target.whole:
            return None, number
        last = k.add(ops.word_sub, k.count, k.word(1))
        problem = k.add(ops.word_min, number, last)
        k.names[problem] = "problem"
        return k.add(ops.word_lt, number, k.count), problem

    def is_active(self, flag: int) -> int:
        """Whether a flag is not 0."""
        return self.kernel.add(ops.ne, flag, self.kernel.constant(0.0))

    def goes_on(self, flag: int) -> int:
        """Whether a problem goes on: all of a thread group agree."""
        k, active = self.kernel, self.is_active(flag)
        if self.exists is not None:
            active = k.add(ops.logical_and, active, self.exists)
        if self.threads.alone:
            return active
        word = k.add(ops.word_where, active, k.word(1), k.word(0))
        return k.add(ops.word_lt, k.word(0), self.threads.agreed("going", lambda: word))


class _Program(StepsKernel):
    def __init__(self, iteration: Iteration, target: Target) -> None:
        super().__init__(iteration, target)
        width = iteration.state
        self.places = [self._place(c) for c in range(width)]
        self.own_number = self._own() if iteration.own else None
        self.in_values() if width <= target.carried else self.in_memory()

    def _place(self, c: int) -> int:
        """Where the c-th number of the problem's state is."""
        k, width = self.kernel, self.iteration.state
        if self.target.by_columns:
            return k.add(ops.word_add, k.add(ops.word_mul, k.count, k.word(c)), self.problem)
        return k.offset(self.problem, width, c)

    def in_values(self) -> None:
        """The steps of a state whose numbers are carried as values."""
        k, names = self.kernel, self.iteration.update.graph.names
        first = [k.load(self.states, place) for place in self.places]

        def step(n: int, state: Sequence[int]) -> Sequence[int]:
            k.names |= {n: "step", **dict(zip(state, names, strict=False))}
            return self.step(state)

        def test(_: int, state: Sequence[int]) -> int:
            return self.goes_on(state[-1])

        last, done = k.loop(k.word(0), self.steps, first, step, test=test)
        if self.exists is None:
            self._store(last)
        else:
            self._report(self.exists, last, done)

    def _store(self, state: Sequence[int]) -> None:
        for place, value in zip(self.places, state, strict=True):
            self.kernel.store(self.states, place, value)

    def _report(self, exists: int, state: Sequence[int], done: int) -> None:
        """Store the states there are; the progress: steps done, and problems that go on."""
        k = self.kernel
        progress = k.buffer("progress", "write", "u", atomic=True)
        active = k.add(ops.word_where, self.is_active(state[-1]), k.word(1), k.word(0))
        if not self.threads.alone:
            self.threads.wait()
            self.threads.first(lambda: k.when(exists, lambda: self._store(state)))
            self.threads.first(lambda: k.when(exists, lambda: _count(k, progress, (done, active))))
            return
        counted, width = k.buffer("counted", "group", "u", 2 * (k.target.width + 1)), k.target.width
        for n, count in enumerate((done, active)):
            mine = k.add(ops.word_where, exists, count, k.word(0))
            k.store(counted, k.add(ops.word_add, k.word(n * (width + 1)), k.local), mine)
        k.barrier()
        k.when(exists, lambda: self._store(state))

        def report() -> None:
            total = _line(k, counted, k.local, width, ops.word_add)
            k.store(progress, k.local, total, add=True)

        k.when(k.add(ops.word_lt, k.local, k.word(2)), report)

    def in_memory(self) -> None:
        """The steps of a state whose numbers are too many for that: they stay where they are."""
        k = self.kernel

        def test(_: int, __: Sequence[int]) -> int:
            return self.is_active(k.load(self.states, self.places[-1]))

        def step(_: int, __: Sequence[int]) -> Sequence[int]:
            now = [k.load(self.states, place) for place in self.places]
            for place, before, after in zip(self.places, now, self.step(now), strict=True):
                if before != after:
                    k.store(self.states, place, after)
            return ()

        k.loop(k.word(0), self.steps, (), step, test=test)

    def step(self, state: Sequence[int]) -> list[int]:
        """The next state."""
        rows = self.iteration.rows
        inputs = [*state, *(self.sums(rows, state) if rows else ())]
        return _values(self.kernel, self.iteration.update, inputs, self.tables[0])

    # sums over rows ------------------------------------------------------------------------------

    def sums(self, rows: Reduction, state: Sequence[int]) -> list[int]:
        """The sums of what is computed at every row of a problem, times their factors."""
        k, graph = self.kernel, rows.graph
        terms = [i for o in rows.outputs for i in o.nodes]
        arguments = self.tables[1] | _inputs(graph, state[: rows.parameters])
        carried = stages(rows).carried
        arguments |= zip(carried, inline(k, graph, carried, arguments), strict=True)
        factors = inline(k, graph, rows.factors, arguments)

        def at(row: int) -> list[int]:
            mine = _inputs(graph, self.columns(row), rows.parameters)
            return inline(k, graph, terms, arguments | mine)

        totals = self.over_rows(at, len(terms))
        return [k.add(ops.mul, t, f) for t, f in zip(totals, factors, strict=True)]

    def columns(self, row: int) -> list[int]:
        """The numbers of a row: what is shared first."""
        k, shared, own = self.kernel, self.iteration.shared, self.iteration.own
        columns = [k.load(self.shared, k.offset(row, shared, c)) for c in range(shared)]
        if self.own_number:
            columns += [self.own_number(k.offset(row, own, c)) for c in range(own)]
        return columns

    def over_rows(self, at: Callable[[int], Sequence[int]], count: int) -> list[int]:
        """The sums of so many values over the rows, by stretches, whose sums are added up wide."""
        k, target, threads = self.kernel, self.target, self.threads
        nothing, size = [k.constant(0.0)] * count, target.block * threads.size

        def stretch(n: int, totals: Sequence[int]) -> list[int]:
            first = k.add(ops.word_mul, n, k.word(size))
            sums = (
                self._stretch(at, first, nothing)
                if threads.alone
                else self._share(at, first, nothing)
            )
            wide = zip(target.grouped(totals), sums, strict=True)
            return [part for total, x in wide for part in target.wide_add(k, total, x)]

        up = k.add(ops.word_add, self.rows, k.word(size - 1))
        stretches = k.add(ops.word_div, up, k.word(size))
        totals, _ = k.loop(k.word(0), stretches, target.wide_zero(k) * count, stretch)
        narrowed = [target.narrow(k, total) for total in target.grouped(totals)]
        return narrowed if threads.alone else self._gathered(narrowed)

    def _stretch(
        self, at: Callable[[int], Sequence[int]], first: int, sums: Sequence[int]
    ) -> list[int]:
        """The sums over rows one behind the other."""
        k, target = self.kernel, self.target
        end = k.add(ops.word_min, k.add(ops.word_add, first, k.word(target.block)), self.rows)

        def row(r: int, sums: Sequence[int]) -> list[int]:
            k.names[r] = "row"
            return [k.add(ops.add, s, x) for s, x in zip(sums, at(r), strict=True)]

        if target.together > 1:
            first, sums = self._together(at, first, end, sums)
        return k.loop(first, end, sums, row)[0]

    def _share(
        self, at: Callable[[int], Sequence[int]], first: int, sums: Sequence[int]
    ) -> list[int]:
        """The sums over an invocation's rows of those that its thread group shares."""
        k, threads = self.kernel, self.threads
        left = k.add(ops.word_sub, k.add(ops.word_sub, self.rows, first), threads.member)
        up = k.add(ops.word_add, left, k.word(threads.size - 1))
        mine = k.add(ops.word_div, up, k.word(threads.size))
        iterations = k.add(ops.word_min, mine, k.word(self.target.block))

        def iteration(t: int, sums: Sequence[int]) -> list[int]:
            behind = k.add(
                ops.word_add, k.add(ops.word_mul, t, k.word(threads.size)), threads.member
            )
            row = k.add(ops.word_add, first, behind)
            return [k.add(ops.add, s, x) for s, x in zip(sums, at(row), strict=True)]

        return k.loop(k.word(0), iterations, sums, iteration)[0]

    def _gathered(self, sums: Sequence[int]) -> list[int]:
        """The sums of all of a thread group, added up: as many at a time as its array holds."""
        k, threads, length = self.kernel, self.threads, self.threads.size + 1
        tile = threads.array("tile", min(GROUP_SUMS_AT_A_TIME, len(sums)) * length)
        totals = threads.array("totals", len(sums))
        for start in range(0, len(sums), GROUP_SUMS_AT_A_TIME):
            some = sums[start : start + GROUP_SUMS_AT_A_TIME]
            for place, x in enumerate(some):
                k.store(tile, k.add(ops.word_add, k.word(place * length), threads.member), x)
            threads.wait()

            def add(start: int = start) -> None:
                place = k.add(ops.word_add, threads.member, k.word(start))
                k.store(totals, place, _line(k, tile, threads.member, threads.size, ops.add))

            k.when(k.add(ops.word_lt, threads.member, k.word(len(some))), add)
            threads.wait()
        return [k.load(totals, k.word(c)) for c in range(len(sums))]

    def _together(
        self, at: Callable[[int], Sequence[int]], first: int, end: int, sums: Sequence[int]
    ) -> tuple[int, list[int]]:
        """Rows by fours, as long as there are so many; the next row, and the sums."""
        k, many = self.kernel, self.target.together

        def some(n: int, sums: Sequence[int]) -> Sequence[int]:
            row = k.add(ops.word_add, first, k.add(ops.word_mul, n, k.word(many)))
            for j in range(many):
                mine = at(k.add(ops.word_add, row, k.word(j)))
                sums = [k.add(ops.add, s, x) for s, x in zip(sums, mine, strict=True)]
            return sums

        iterations = k.add(ops.word_div, k.add(ops.word_sub, end, first), k.word(many))
        totals, _ = k.loop(k.word(0), iterations, sums, some)
        return k.add(ops.word_add, first, k.add(ops.word_mul, iterations, k.word(many))), totals

    def _own(self) -> Load:
        """Reads a problem's own data, once they stand as neighbours read them."""
        k = self.kernel
        if self.target.by_columns:
            return lambda i: k.load(
                self.own, k.add(ops.word_add, k.add(ops.word_mul, i, k.count), self.problem)
            )
        size = k.add(ops.word_mul, self.rows, k.word(self.iteration.own))
        start = k.add(ops.word_mul, self.problem, size)
        if not self.threads.alone:
            return lambda i: k.load(self.own, k.add(ops.word_add, start, i))
        local = k.buffer("local", "own", open_ended=True)

        def copy(i: int, _: Sequence[int]) -> Sequence[int]:
            k.store(local, i, k.load(self.own, k.add(ops.word_add, start, i)))
            return ()

        k.loop(k.word(0), size, (), copy)
        return lambda i: k.load(local, i)


def _count(k: KernelIR, into: Buffer, words: Sequence[int]) -> None:
    """Add words to those of a buffer."""
    for n, x in enumerate(words):
        k.store(into, k.word(n), x, add=True)


def _line(k: KernelIR, tile: Buffer, line: int, size: int, add: Op) -> int:
    """The sum of so many numbers of a group, in four parts; lines are one longer."""
    start = k.add(ops.word_mul, line, k.word(size + 1))

    def iteration(t: int, four: Sequence[int]) -> list[int]:
        first = k.add(ops.word_add, start, k.add(ops.word_mul, t, k.word(4)))
        parts = [k.load(tile, k.add(ops.word_add, first, k.word(j))) for j in range(4)]
        return [k.add(add, s, x) for s, x in zip(four, parts, strict=True)]

    nothing = k.word(0) if tile.kind == "u" else k.constant(0.0)
    (a, b, c, d), _ = k.loop(k.word(0), k.word(size // 4), [nothing] * 4, iteration)
    return k.add(add, k.add(add, a, b), k.add(add, c, d))


def _inputs(graph: Graph, values: Sequence[int], first: int = 0) -> dict[int, int]:
    """The inputs of a graph from number ``first`` on, as these values."""
    numbered = (
        (i, n[1] - first) for i, n in enumerate(graph.nodes) if n[0] is INPUT and n[1] >= first
    )
    return {i: values[n] for i, n in numbered if n < len(values)}


def _values(
    k: KernelIR, computation: Computation, arguments: Sequence[int], tables: Mapping[int, Value]
) -> list[int]:
    """The results of a computation of some arguments."""
    roots = [i for o in computation.outputs for i in o.nodes]
    values = {**tables, **_inputs(computation.graph, arguments)}
    return list(inlined(k, computation.graph, roots, values))
