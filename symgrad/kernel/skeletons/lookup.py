"""Additions of rows to arrays, and to entries of tables that they look up: at once, or in runs.

Rows in the order of their entries are cut into runs. A group adds up neighbouring runs: it reads
the quads of some rows into a tile, neighbours what neighbouring rows of the order have, and each
invocation adds up some quads of its runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, GET, ZEROS, length
from symgrad.expr.graph.node import HOLES, STRUCTURED, WORD, Graph, Op, reachable
from symgrad.expr.graph.rebuild import Copy, Make, continued, rebuild
from symgrad.expr.graph.region import Loop, Pick, Region
from symgrad.kernel.language.index import Index, word_where
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.shapes import Output, Reduction
from symgrad.kernel.skeletons.row_tile import ROWS_PER_RUN

# --- rows that add to entries ---------------------------------------------------------------------
# Arrays of slopes that a row only adds to: rows add to the sums at once, and have no such array.
#
# Where rows read parameters at indices that are known at run time, what they contribute to their
# slopes is an array of zeros to which loops add, and results are its elements.

RESULTS: Final = 8
"""Results of a case for which it is asked whether a row adds to them, at least."""

CASES: Final = 8
"""Cases from which on that pays: of few, one of the rows of a vector mostly is each."""

SINGLE: Final = "fbui"
"""The types of values that are known before it is asked."""


@dataclass(frozen=True)
class Case:
    """Results that are 0 unless a condition ``holds``, or does not.

    ``values`` are the nodes of what they are then, by the numbers of the results, and ``needed``
    the nodes that these are made of and that are known anyhow.
    """

    condition: int
    holds: bool
    values: Mapping[int, int]
    needed: tuple[int, ...]


def cases(graph: Graph, roots: Mapping[int, int], others: Sequence[int]) -> list[Case]:
    """The cases of results, by their numbers, if there are many.

    ``others`` are nodes that are computed at every row besides.
    """
    by_case: dict[tuple[int, bool], dict[int, int]] = {}
    for c, i in roots.items():
        if (case := case_of(graph, i)) is not None:
            condition, holds, value = case
            by_case.setdefault((condition, holds), {})[c] = value
    by_case = {case: values for case, values in by_case.items() if len(values) >= RESULTS}
    chosen = {c for values in by_case.values() for c in values}
    rest = [i for c, i in roots.items() if c not in chosen]
    computed = set(reachable(graph, [*rest, *others, *(condition for condition, _ in by_case)]))
    candidates = [
        Case(*case, values, tuple(_boundary(graph, [*values.values()], computed)))
        for case, values in by_case.items()
    ]
    candidates = [case for case in candidates if all(graph.type(i) in SINGLE for i in case.needed)]
    return candidates if len(candidates) >= CASES else []


def case_of(graph: Graph, i: int) -> tuple[int, bool, int] | None:
    """Of a choice between a value and 0: the condition, whether it has to hold, and the value."""
    op, *args = graph.nodes[i]
    if op is not ops.where:
        return None
    condition, a, b = args
    zeros = [graph.value(x) == 0.0 for x in (a, b)]
    return (condition, zeros[1], a if zeros[1] else b) if any(zeros) else None


def _boundary(graph: Graph, ends: Sequence[int], computed: set[int]) -> Iterator[int]:
    """The known nodes that others, which some ends need, are made of; and leaves, but constants."""
    seen, stack = set(ends), list(ends)
    while stack:
        i = stack.pop()
        if graph.nodes[i][0].constant:
            continue
        if i in computed or not graph.nodes[i][0].arity:
            yield i
            continue
        for a in graph.args(i):
            if a not in seen:
                seen.add(a)
                stack.append(a)


@dataclass(frozen=True)
class Added:
    """A reduction whose results are, in part, elements of arrays to which rows only add.

    In ``reduction`` these arrays start as the leaves ``starts`` rather than as zeros, and end as
    the nodes ``ends``. ``places`` are the number of the array and the index in it of each result
    that is an element of one, by the number of the result. Of some arrays rows add to the results
    only if a condition holds, or does not: these are its node, or -1, and whether it has to hold.
    """

    reduction: Reduction
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    conditions: tuple[tuple[int, bool], ...] = ()
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """The lengths of the arrays."""
        return [length(self.reduction.graph, i) for i in self.starts]


def added_to(reduction: Reduction) -> Added:
    """The arrays of which results, and nothing else, are elements, and that are only added to."""
    if reduction.lookups or ADD_AT not in _operations(reduction.graph):
        return Added(reduction)
    graph, roots = reduction.graph, [i for o in reduction.outputs for i in o.nodes]
    every = [*roots, *reduction.factors]
    order = reachable(graph, every)
    users = _users(graph, order, every)
    size = cache(partial(length, graph))
    elements = ((c, _element(graph, i, users, size)) for c, i in enumerate(roots))
    wanted = {c: e for c, e in elements if e is not None}
    starts: dict[int, tuple[int, int]] = {}
    for end, elements in _by_array(wanted.values()).items():
        alone = users[end] == len(elements) and len({e.when for e in elements}) == 1
        if alone and (start := _start(graph, end, users)) is not None:
            starts[end] = start
    first = min((owner for owner, _ in starts.values()), default=len(graph))
    copy, later = continued(graph, first), order[bisect_left(order, first) :]
    leaves = {
        start: copy.graph.intern((HOLES["F"], n, f"slopes{n}", length(graph, end)))
        for n, (end, start) in enumerate(starts.items())
    }
    rebuild(graph, later, copy, changed=_started(copy.graph, leaves))
    number = {end: n for n, end in enumerate(starts)}
    when = {e.array: e.when for e in wanted.values()}
    conditions = ((when[end][0], when[end][1]) for end in starts)
    return Added(
        _in_copy(reduction, copy),
        tuple(leaves.values()),
        tuple(copy.of(starts)[1]),
        tuple((i if i < 0 else copy.ids[i], holds) for i, holds in conditions),
        {c: (number[e.array], e.at) for c, e in wanted.items() if e.array in number},
    )


@dataclass(frozen=True)
class _Element:
    """Element ``at`` of an array, or 0 if a condition does not hold, or does; -1 is none."""

    array: int
    at: int
    when: tuple[int, bool]


def _element(
    graph: Graph, i: int, users: Counter[int], size: Callable[[int], int]
) -> _Element | None:
    """A root that nothing else is made of, if it is an element at a known place.

    ``size`` gives the length of an array.
    """
    when = -1, True
    if users[i] == 1 and (case := case_of(graph, i)) is not None:
        condition, holds, i = case
        when = condition, holds
        if not _is_straight(graph, condition):
            return None
    op, *args = graph.nodes[i]
    if users[i] != 1 or op is not GET or graph.nodes[args[1]][0] is not WORD:
        return None
    at = graph.nodes[args[1]][1]
    return _Element(args[0], at, when) if at < size(args[0]) else None


def _is_straight(graph: Graph, i: int) -> bool:
    """Whether a node needs no loops, choices or arrays, so that it may be computed twice."""
    return all(graph.type(a) not in STRUCTURED for a in reachable(graph, [i]))


def _by_array(elements: Iterable[_Element]) -> dict[int, set[_Element]]:
    """The different elements of each array."""
    by_array: dict[int, set[_Element]] = {}
    for e in elements:
        by_array.setdefault(e.array, set()).add(e)
    return by_array


def _operations(graph: Graph) -> frozenset[Op]:
    """The operations of a graph, and of the bodies of its loops."""
    operations = graph.heads
    for op in [*operations]:
        if isinstance(op, Loop):
            operations |= _operations(op.body.graph)
    return operations


def _in_copy(reduction: Reduction, copy: Copy) -> Reduction:
    """The reduction on a copy of its graph."""
    outputs = tuple(Output(o.name, tuple(copy.of(o.nodes)[1])) for o in reduction.outputs)
    factors = tuple(copy.of(reduction.factors)[1])
    return replace(reduction, graph=copy.graph, outputs=outputs, factors=factors)


def _users(graph: Graph, order: Iterable[int], ends: Iterable[int]) -> Counter[int]:
    """How often each node is needed."""
    counts = Counter(ends)
    counts.update(chain.from_iterable(map(graph.args, order)))
    return counts


def _start(graph: Graph, end: int, users: Counter[int]) -> tuple[int, int] | None:
    """The node, and which of its arguments, where an array of zeros begins to be added to.

    None if it is read, or written to otherwise, on the way to ``end``.
    """
    for owner, argument, version in _versions(graph, end):
        if graph.nodes[version][0] is ZEROS:
            return owner, argument
        if users[version] != 1:
            break
    return None


def _versions(graph: Graph, i: int) -> Iterator[tuple[int, int, int]]:
    """From the last on, who adds to which version of an array: node, argument, version."""
    while True:
        op, *args = graph.nodes[i]
        if op is ADD_AT:
            owner, argument = i, 0
        elif op.__class__ is Pick and _only_adds(graph, args[0], op.index):
            owner, argument = args[0], 2 + op.index
        else:
            return
        i = graph.args(owner)[argument]
        yield owner, argument, i


def _only_adds(graph: Graph, owner: int, carry: int) -> bool:
    """Whether a node is a loop that only adds to this carry, an array."""
    op = graph.nodes[owner][0]
    return isinstance(op, Loop) and carry >= 0 and _adds(op.body, carry)


def _adds(body: Region, carry: int) -> bool:
    graph, first = body.graph, body.params[1 + carry]
    users = _users(graph, reachable(graph, body.yields), body.yields)
    end = body.yields[carry]
    if end == first or users[end] != 1:
        return False
    for _, _, version in _versions(graph, end):
        if users[version] != 1:
            return False
        if version == first:
            return True
    return False


def _started(copy: Graph, leaves: Mapping[tuple[int, int], int]) -> dict[int, Make]:
    """Makers of the nodes that begin to add, with leaves for the arrays of zeros."""
    by_owner: dict[int, dict[int, int]] = {}
    for (owner, argument), leaf in leaves.items():
        by_owner.setdefault(owner, {})[argument] = leaf

    def rebuilt(starts: Mapping[int, int], op: Op, *args: int) -> int:
        return copy.add(op, *(starts.get(n, a) for n, a in enumerate(args)))

    return {owner: partial(rebuilt, starts) for owner, starts in by_owner.items()}


# --- entries --------------------------------------------------------------------------------------

ROWS_PER_PARTIAL_SUM: Final = 8
"""Rows of a block: a run's sums are sums of blocks, whose rounding errors are smaller."""

QUADS_TOGETHER: Final = 4
"""Quads that are added up together, at most."""

ROWS_PER_TILE: Final = 16_384 // 16 // QUADS_TOGETHER
"""Rows whose quads a group's memory holds at a time."""

RUNS_PER_GROUP: Final = 64
"""Runs that a group adds up, and its invocations."""

STEP: Final = 64
"""Columns of quads are padded to whole multiples of so many rows, where bindings may start."""

QUAD: Final = 4
"""The numbers of a quad."""


@dataclass(frozen=True)
class Place:
    """Where the sums of a run go: an entry of ``width`` numbers, ``count`` from ``first`` on."""

    first: int
    count: int
    width: int


def tiles_of(count: int) -> list[range]:
    """The quads that are added up side by side, in tiles of about one size."""
    number = -(-count // QUADS_TOGETHER)
    return [range(count * k // number, count * (k + 1) // number) for k in range(number)]


def padded(count: Index) -> Index:
    """Rows from one column to the next, of so many rows."""
    return count.ceil_div(STEP) * STEP


@dataclass(frozen=True)
class RunSums:
    """The program that adds up so many ``columns`` of quads over ``count`` runs, a group's each.

    Its buffers are ``starts``, the place at which each run starts in the order, and the end of the
    last; ``order``, the rows in their order, padded; ``quads``, as many columns of them as rows are
    padded to; and ``sums``, as many columns for the runs, padded likewise, or else, at a ``place``,
    entries of numbers. A run has at most `ROWS_PER_RUN` rows, or so many.
    """

    columns: int
    place: Place | None
    longest: int = ROWS_PER_RUN

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        return _Runs(self, target).k


class _Runs:
    def __init__(self, program: RunSums, target: Target) -> None:
        self.columns, self.place, self.width = program.columns, program.place, target.width
        self.k = k = KernelIR(target, "runs")
        self.starts, self.order = k.buffer("starts", "read", "u"), k.buffer("order", "read", "u")
        self.quads = k.buffer("quads", "read", vector=QUAD)
        self.sums = k.buffer("sums", "write", vector=1 if self.place else QUAD)
        size = QUAD * self.columns * ROWS_PER_TILE
        self.tile = k.buffer("some", "group", size=size, vector=QUAD)
        self.local, count = Index(k, k.local), Index(k, k.count)
        self.first = (Index(k, k.group) * self.width).at_most(count)
        self.last = (self.first + self.width).at_most(count)
        self.begin, self.end = self.start_of(self.first), self.start_of(self.last)
        k.names |= {self.first.id: "first_run", self.last.id: "last_run", self.end.id: "end"}
        self.mine = [_Mine(self, j) for j in range(self.columns)]
        self._write(-(-self.width * program.longest // ROWS_PER_TILE))

    def start_of(self, run: Index) -> Index:
        """Where a run begins in the order."""
        return Index(self.k, self.k.load(self.starts, run.id))

    def _write(self, most: int) -> None:
        k, zero = self.k, self.k.constant(0.0)
        up = self.end + (ROWS_PER_TILE - 1) - self.begin

        def tile(t: int, sums: list[int]) -> list[int]:
            base = self.begin + Index(k, t) * ROWS_PER_TILE
            k.names |= {base.id: "base", **{x: f"sum{n}" for n, x in enumerate(sums)}}
            self._fill(base)
            k.barrier()
            added = [
                x
                for j, mine in enumerate(self.mine)
                for x in mine.added(base, sums[QUAD * j : QUAD * (j + 1)])
            ]
            k.barrier()
            return added

        tiles = up // ROWS_PER_TILE
        sums, _ = k.loop(k.word(0), tiles.id, [zero] * (QUAD * self.columns), tile, most=most)
        for j, mine in enumerate(self.mine):
            mine.store(sums[QUAD * j : QUAD * (j + 1)])

    def _fill(self, base: Index) -> None:
        """Read the quads of some rows; past the end, those of the last row again."""
        k, last = self.k, self.end - 1
        rows = Index(k, k.length(self.order))
        cells = [Index(k, k.word(n)) + self.local for n in range(0, ROWS_PER_TILE, self.width)]
        order = [Index(k, k.load(self.order, (base + c).at_most(last).id)) for c in cells]
        for c in range(self.columns):
            column = Index(k, k.word(c)) * rows
            for cell, row in zip(cells, order, strict=True):
                quad, at = column + row, Index(k, k.word(c * ROWS_PER_TILE)) + cell
                for i, to in zip(quad.lanes(QUAD), at.lanes(QUAD), strict=True):
                    k.store(self.tile, to, k.load(self.quads, i))


class _Mine:
    """The sums of an invocation as number j: one of the quads of one of the group's runs."""

    def __init__(self, runs: _Runs, j: int) -> None:
        self.runs, self.k, k = runs, runs.k, runs.k
        row, self.quad = divmod(Index(k, k.word(runs.width * j)) + runs.local, runs.columns)
        self.run = runs.first + row
        self.start = runs.start_of(self.run.at_most(runs.last))
        self.end = runs.start_of((self.run + 1).at_most(runs.last))
        k.names |= {self.quad.id: f"quad{j}", self.run.id: f"run{j}"}
        k.names |= {self.start.id: f"from{j}", self.end.id: f"to{j}"}

    def added(self, base: Index, sums: list[int]) -> list[int]:
        """The sums, and what of the run is in the tile that begins at ``base``."""
        k = self.k
        high = self.end.at_most(base + ROWS_PER_TILE)
        low = word_where(self.start.below(base), base, self.start)
        some = word_where(low.below(high), high - low, 0)
        blocks, column = some.ceil_div(ROWS_PER_PARTIAL_SUM), self.quad * ROWS_PER_TILE

        def add_block(b: int, sums: list[int]) -> list[int]:
            first = low + Index(k, b) * ROWS_PER_PARTIAL_SUM
            last = (first + ROWS_PER_PARTIAL_SUM).at_most(high)

            def add_row(i: int, part: list[int]) -> list[int]:
                k.names |= {x: f"part{n}" for n, x in enumerate(part)}
                numbers = [
                    k.load(self.runs.tile, at) for at in (column + Index(k, i) - base).lanes(QUAD)
                ]
                return [k.add(ops.add, a, b) for a, b in zip(part, numbers, strict=True)]

            zeros, most = [k.constant(0.0)] * QUAD, ROWS_PER_PARTIAL_SUM
            part, _ = k.loop(first.id, last.id, zeros, add_row, most=most)
            return [k.add(ops.add, a, b) for a, b in zip(sums, part, strict=True)]

        most = ROWS_PER_TILE // ROWS_PER_PARTIAL_SUM
        return k.loop(k.word(0), blocks.id, sums, add_block, most=most)[0]

    def store(self, sums: list[int]) -> None:
        """Write the quad of the run, if there is one."""
        k, place = self.k, self.runs.place

        def column() -> None:
            at = self.quad * padded(Index(k, k.count)) + self.run
            for to, value in zip(at.lanes(QUAD), sums, strict=True):
                k.store(self.runs.sums, to, value)

        def entry(place: Place) -> None:
            at = (self.run * place.width).shifted(place.first) + self.quad * QUAD
            for n, value in enumerate(sums):
                inside = (self.quad * QUAD).shifted(n).below(place.count)
                k.when(inside, lambda a=at + n, v=value: k.store(self.runs.sums, a.id, v))

        k.when(self.run.below(self.runs.last), (lambda: entry(place)) if place else column)
