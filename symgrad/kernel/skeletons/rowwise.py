"""Rows: a function of a row's elements, sums and extremes, a thread group for each row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Op, paused_gc, reachable
from symgrad.kernel.index import Index, all_hold
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.lower import inline
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.tiles import FOUR
from symgrad.kernel.statements import Buffer, lane_max, lane_min, lane_sum
from symgrad.kernel.target import SUMS_AT_A_TIME
from symgrad.kernel.thread_group import ThreadGroup

COMBINED: Final[dict[str, Op]] = {"sum": ops.add, "max": ops.maximum, "min": ops.minimum}
"""Operations of reductions on two numbers, by their kinds."""

OVER: Final[dict[str, Op]] = {"sum": lane_sum, "max": lane_max, "min": lane_min}
"""Operations of reductions on the numbers of a group in step."""

NOTHING: Final = {"sum": 0.0, "max": -float("inf"), "min": float("inf")}
"""Results of reductions of no numbers."""

BUSY_GROUPS: Final = 512
"""Teams that keep a GPU busy: no more rows are done by one than leave so many."""

MOST_ROWS_OF_GROUP: Final = 16
"""Rows that a thread group does one behind another, at most."""

SUMS_IN_REGISTERS: Final = 32
"""Sums over its rows that an invocation holds, at most."""

LENGTH: Final = "length"
"""The input that is the number of elements of a row."""


@dataclass(frozen=True)
class Rowwise:
    """A computation of each element of rows.

    Outputs that have a kind in ``kinds`` are reduced over the row, and are inputs of the same name.
    Inputs in ``by_column`` have a number for each column, and those in ``by_row`` one for each row;
    all others have one for each element. So have outputs, but for those that are ``whole``, of
    which there is one for each row. The input `LENGTH` is the number of elements of a row.
    """

    computation: Computation
    kinds: tuple[tuple[str, str], ...] = ()
    by_column: tuple[str, ...] = ()
    by_row: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def results(self) -> list[Output]:
        """The outputs that are no reductions."""
        return [o for o in self.computation.outputs if o.name not in dict(self.kinds)]

    @property
    def arrays(self) -> list[str]:
        """The inputs that are arrays."""
        names = self.computation.graph.names
        return [n for n in names if n not in dict(self.kinds) and n != LENGTH]

    @cached_property
    def inputs(self) -> dict[str, int]:
        """The nodes of the inputs, by their names."""
        graph = self.computation.graph
        return {graph.names[n[1]]: i for i, n in enumerate(graph.nodes) if n[0] is INPUT}

    @cached_property
    def levels(self) -> list[list[Output]]:
        """The reductions that can be made together, those first that need no others."""
        kinds, level = dict(self.kinds), dict[str, int]()
        waiting = [o for o in self.computation.outputs if o.name in kinds]
        while waiting:
            ready = [o for o in waiting if self.needs(o) <= level.keys()]
            assert ready, "a reduction needs itself"
            ahead = max(level.values(), default=-1) + 1
            level |= {o.name: ahead for o in ready}
            waiting = [o for o in waiting if o not in ready]
        levels: list[list[Output]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
        for o in self.computation.outputs:
            if o.name in level:
                levels[level[o.name]].append(o)
        return levels

    def standing(self, names: Collection[str]) -> dict[str, str]:
        """Of some results, those that are an input with a number for each element, and which."""
        once = {*self.by_column, *self.by_row}
        arrays = {self.inputs[name]: name for name in self.arrays if name not in once}
        array_of = {o.name: arrays.get(o.nodes[0]) for o in self.results if o.name in names}
        return {name: array for name, array in array_of.items() if array}

    def without(self, names: Collection[str]) -> Rowwise:
        """All but some results."""
        outputs = tuple(o for o in self.computation.outputs if o.name not in names)
        return replace(self, computation=replace(self.computation, outputs=outputs))

    def needs(self, output: Output) -> set[str]:
        """The reductions that an output is made of."""
        order = set(reachable(self.computation.graph, output.nodes))
        return {name for name, _ in self.kinds if self.inputs.get(name) in order}


@dataclass(frozen=True)
class RowwiseProgram:
    """The kernel of a `Rowwise`, whose arguments are the numbers of ``rows`` and of columns, ``n``.

    Its buffers are the inputs that are arrays, and the results. Where n is a multiple of 4, columns
    may be done in ``quads``. If an invocation has so few of them that it holds them all, there are
    so many ``iterations``, written out: it reads each number once. ``ragged`` says that some
    invocations have fewer then. A thread group may have so many rows ``each``, one behind another,
    if there are iterations; of results in ``summed``, sums over these rows are written to ``sums``,
    (thread groups, results, columns).
    """

    rowwise: Rowwise
    quads: bool = False
    iterations: int = 0
    ragged: bool = True
    each: int = 1
    summed: tuple[str, ...] = ()

    def summing(self, names: tuple[str, ...], rows: int) -> RowwiseProgram:
        """The program that sums some results over rows of a thread group, where there are many.

        The sums stay in registers.
        """
        each = min(MOST_ROWS_OF_GROUP, 1 << max(rows // BUSY_GROUPS, 1).bit_length() - 1)
        sums = self.iterations * (FOUR if self.quads else 1) * len(names)
        if each == 1 or not 0 < sums <= SUMS_IN_REGISTERS:
            return self
        return replace(self, each=each, summed=names)

    @paused_gc()
    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        return _Program(self, target).k


Conditions = Sequence[int]
"""Truths, all of which are to hold."""

Body = Callable[[Index, Conditions, Sequence[int]], Sequence[int]]
"""The work of a unit: a column, or four of them."""


class _Program:
    def __init__(self, program: RowwiseProgram, target: Target) -> None:
        self.program, self.rowwise = program, program.rowwise
        rowwise, self.graph = self.rowwise, self.rowwise.computation.graph
        self.k = k = KernelIR(target, "rowwise")
        self.threads = ThreadGroup(k)
        self.member, self.number = Index(k, self.threads.member), Index(k, self.threads.number)
        self.many = FOUR if program.quads else 1
        once = (*rowwise.by_row, *rowwise.whole)
        self.buffers = {
            n: k.buffer(n, "read", vector=1 if n in once else self.many) for n in rowwise.arrays
        }
        self.written = {
            o.name: k.buffer(o.name, "write", vector=1 if o.name in once else self.many)
            for o in rowwise.results
            if o.name not in program.summed
        }
        self.rows, self.n = (Index(k, k.argument(name)) for name in ("rows", "n"))
        self.units = self.n // self.many if program.quads else self.n
        self.row_values: dict[int, int] = {}
        self.loaded: dict[tuple[int, str], list[int]] = {}
        """The numbers of a row that were loaded ahead, by units and arrays."""
        self.tile: Buffer | None = None
        none = [k.constant(0.0)] * (program.iterations * self.many * len(program.summed))
        if program.each == 1:
            self._row(self.number, none)
        else:
            self._rows(none)

    def _rows(self, none: Sequence[int]) -> None:
        """The rows of a thread group, and what is summed over them.

        While one row is reduced, which the group waits for, the next one is on its way.
        """
        k, each, names = self.k, self.program.each, self.program.summed
        units = [self._unit(k.word(t)) for t in range(self.program.iterations)]
        keys = [(unit, name) for unit in units for name in self._by_element()]

        def load(r: Index) -> list[int]:
            start = (self.number * each + r).at_most(self.rows - 1) * self.units
            places = [(name, self._columns(start + unit)) for unit, name in keys]
            return [k.load(self.buffers[name], at) for name, columns in places for at in columns]

        def row(r: int, carried: Sequence[int]) -> Sequence[int]:
            following = load((Index(k, r) + 1).at_most(each - 1))
            numbers = iter(carried[len(none) :])
            self.loaded = {
                (unit.id, name): [next(numbers) for _ in range(self.many)] for unit, name in keys
            }
            sums = self._row(self.number * each + Index(k, r), carried[: len(none)])
            return [*sums, *following]

        first = [*none, *load(Index(k, k.word(0)))]
        results, _ = k.loop(k.word(0), k.word(each), first, row)
        sums, exists = iter(results), self.number.below(self.rows.ceil_div(each))
        written = k.buffer("sums", "write", vector=self.many)

        def store(unit: Index, inside: Conditions, _: Sequence[int]) -> Sequence[int]:
            values = [[next(sums) for _ in range(self.many)] for _ in names]

            def put() -> None:
                for n, numbers in enumerate(values):
                    place = (self.number * len(names) + n) * self.units + unit
                    for at, value in zip(self._columns(place), numbers, strict=True):
                        k.store(written, at, value)

            k.when(all_hold(k, *inside, exists), put)
            return ()

        self._each((), store)

    def _row(self, number: Index, sums: Sequence[int]) -> Sequence[int]:
        """Does the work of a row, and returns the sums with what it adds to them."""
        k, inputs = self.k, self.rowwise.inputs
        self.exists = None if k.target.in_step else number.below(self.rows)
        if self.threads.alone:
            self.exists = Index(k, k.cell).below(Index(k, k.count))
        self.row = number.at_most(self.rows - 1)
        self.row_values = {}
        if LENGTH in inputs:
            self.row_values[inputs[LENGTH]] = k.add(ops.word_float, self.n.id)
        for name in self.rowwise.by_row:
            self.row_values[inputs[name]] = k.load(self.buffers[name], self.row.id)
        for level in self.rowwise.levels:
            self._reduce(level)
        return self._store(sums)

    # elements ------------------------------------------------------------------------------------

    def _each(self, carries: Sequence[int], body: Body) -> Sequence[int]:
        """Do something for each unit of columns; the units are dealt out to the thread group.

        ``body(unit, inside, carries)`` gives the next carries; past the end, which ``inside``
        tells, the unit is the last one. A thread group in step reads neighbours together, where all
        of its columns are there.
        """
        k, size = self.k, self.threads.size

        def iteration(t: int, carries: Sequence[int]) -> Sequence[int]:
            unit = Index(k, t) * size + self.member
            inside = [unit.below(self.units)] * (not self.threads.alone)
            return body(self._unit(t), inside, carries)

        def whole(t: int, carries: Sequence[int]) -> Sequence[int]:
            return body(Index(k, t) * size + self.member, [], carries)

        for t in range(self.program.iterations):
            carries = (iteration if self.program.ragged else whole)(k.word(t), carries)
        if self.program.iterations:
            return carries
        first, end = Index(k, k.word(0)), self.units.ceil_div(size)
        if self.k.target.in_step and not self.threads.alone:
            first = self.units // size
            carries = k.loop(k.word(0), first.id, carries, whole)[0]
        return k.loop(first.id, end.id, carries, iteration)[0]

    def _unit(self, t: int) -> Index:
        """The invocation's unit of an iteration, or the last one."""
        unit = Index(self.k, t) * self.threads.size + self.member
        written_out = self.program.iterations and not self.program.ragged
        return unit if written_out else unit.at_most(self.units - 1)

    def _by_element(self) -> list[str]:
        """The arrays that have a number for each element."""
        once = {*self.rowwise.by_column, *self.rowwise.by_row}
        return [name for name in self.rowwise.arrays if name not in once]

    def _columns(self, unit: Index) -> list[int]:
        """The places of a unit's numbers."""
        return unit.lanes(FOUR) if self.program.quads else [unit.id]

    def _place(self, unit: Index) -> Index:
        """The unit among those of all rows."""
        return self.row * self.units + unit

    def _values(self, nodes: Sequence[int], unit: Index) -> list[list[int]]:
        """The values of nodes at each column of a unit."""
        needed, inputs = set(reachable(self.graph, nodes)), self.rowwise.inputs
        arrays = [
            n for n in self.buffers if inputs[n] in needed and inputs[n] not in self.row_values
        ]
        own, shared = self._columns(self._place(unit)), self._columns(unit)
        values: list[list[int]] = []
        loaded = {
            n: self.loaded.get((unit.id, n))
            or [
                self.k.load(self.buffers[n], at)
                for at in (shared if n in self.rowwise.by_column else own)
            ]
            for n in arrays
        }
        for c in range(self.many):
            arguments = self.row_values | {inputs[n]: loaded[n][c] for n in arrays}
            values.append(inline(self.k, self.graph, nodes, arguments))
        return values

    # reductions ----------------------------------------------------------------------------------

    def _reduce(self, level: Sequence[Output]) -> None:
        """Make some reductions, which all of the thread group get to know."""
        k, kinds = self.k, [dict(self.rowwise.kinds)[o.name] for o in level]
        nodes = [o.nodes[0] for o in level]
        nothing = [k.constant(NOTHING[kind]) for kind in kinds]

        def add(unit: Index, inside: Conditions, carries: Sequence[int]) -> Sequence[int]:
            for values in self._values(nodes, unit):
                for condition in inside:
                    values = [
                        k.add(ops.where, condition, v, none)
                        for v, none in zip(values, nothing, strict=True)
                    ]
                parts = zip(kinds, carries, values, strict=True)
                carries = [k.add(COMBINED[kind], a, b) for kind, a, b in parts]
            return carries

        totals = list(self._each(nothing, add))
        if k.target.in_step and not self.threads.alone:
            totals = [k.add(OVER[kind], v) for kind, v in zip(kinds, totals, strict=True)]
        elif not self.threads.alone:
            for start in range(0, len(totals), SUMS_AT_A_TIME):
                some = slice(start, start + SUMS_AT_A_TIME)
                totals[some] = self._over_group(totals[some], kinds[some])
        symbols = (self.rowwise.inputs.get(o.name) for o in level)
        self.row_values |= {i: v for i, v in zip(symbols, totals, strict=True) if i is not None}

    def _over_group(self, values: Sequence[int], kinds: Sequence[str]) -> list[int]:
        """Reductions over the thread group, in its memory: a tree of two levels.

        Halves are added to halves. Some invocations do it for as many parts as there are of these,
        and all of them do it for the results.
        """
        k, size = self.k, self.threads.size
        branches = 1 << (size.bit_length() - 1) // 2
        tile = self._memory(len(values) * size)
        places = [self.member + c * size for c in range(len(values))]
        for place, value in zip(places, values, strict=True):
            k.store(tile, place.id, value)
        k.barrier()

        def parts() -> None:
            for place, kind in zip(places, kinds, strict=True):
                part = [k.load(tile, (place + n).id) for n in range(0, size, branches)]
                k.store(tile, place.id, self._halved(kind, part))

        k.when(self.member.below(branches), parts)
        k.barrier()
        starts = [(kind, c * size) for c, kind in enumerate(kinds)]
        totals = [
            self._halved(kind, [k.load(tile, k.word(start + n)) for n in range(branches)])
            for kind, start in starts
        ]
        k.barrier()
        return totals

    def _halved(self, kind: str, values: Sequence[int]) -> int:
        """A reduction of a power of 2 of values: the second half is added to the first."""
        while len(values) > 1:
            half = len(values) // 2
            pairs = zip(values[:half], values[half:], strict=True)
            values = [self.k.add(COMBINED[kind], *pair) for pair in pairs]
        return values[0]

    def _memory(self, size: int) -> Buffer:
        """The thread group's memory, all of which is used again for the next reductions."""
        if self.tile is None:
            most = max(min(len(level), SUMS_AT_A_TIME) for level in self.rowwise.levels)
            self.tile = self.k.buffer("shared", "group", size=most * self.threads.size)
        assert size <= self.tile.size, "the memory is as large as the most reductions need"
        return self.tile

    # results -------------------------------------------------------------------------------------

    def _store(self, sums: Sequence[int]) -> Sequence[int]:
        """Store what there is for each element, and for the row; the sums with what it adds."""
        k, results, summed = self.k, self.rowwise.results, self.program.summed
        each = [o for o in results if o.name not in (*self.rowwise.whole, *summed)]
        whole = [o for o in results if o.name in self.rowwise.whole]
        added = [o.nodes[0] for name in summed for o in results if o.name == name]
        before, after = iter(sums), list[int]()

        def store(unit: Index, inside: Conditions, _: Sequence[int]) -> Sequence[int]:
            values = self._values([*(o.nodes[0] for o in each), *added], unit)
            self._when(inside, lambda: self._put([o.name for o in each], self._place(unit), values))
            for row in zip(*(column[len(each) :] for column in values), strict=True):
                after.extend(self._with(next(before), x) for x in row)
            return ()

        if each:
            self._each((), store)
        if whole:
            values = inline(k, self.graph, [o.nodes[0] for o in whole], self.row_values)
            first = [] if self.threads.alone else [self.member.below(1)]
            self._when(first, lambda: self._store_whole(whole, values))
        return after

    def _put(self, names: Sequence[str], unit: Index, values: Sequence[Sequence[int]]) -> None:
        """Store the first values at each column of a unit in results of these names."""
        for n, name in enumerate(names):
            for place, column in zip(self._columns(unit), values, strict=True):
                self.k.store(self.written[name], place, column[n])

    def _with(self, total: int, x: int) -> int:
        """A sum, with a number of the row if there is one."""
        assert self.exists is not None, "a group may be behind all rows"
        return self.k.add(ops.where, self.exists, self.k.add(ops.add, total, x), total)

    def _when(self, conditions: Conditions, body: Callable[[], None]) -> None:
        """Do something where all conditions hold, and there is a row."""
        all_conditions = [*conditions, *([] if self.exists is None else [self.exists])]
        if all_conditions:
            self.k.when(all_hold(self.k, *all_conditions), body)
        else:
            body()

    def _store_whole(self, whole: Sequence[Output], values: Sequence[int]) -> None:
        for o, value in zip(whole, values, strict=True):
            self.k.store(self.written[o.name], self.row.id, value)
