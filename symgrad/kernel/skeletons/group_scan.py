"""Scans by an associative operation, part by part, each by a group or by an invocation alone.

A group scans chunk after chunk of its part together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple, Protocol

from symgrad.expr import ops
from symgrad.expr.graph.node import inputs_of, reachable
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import GROUP_BYTES
from symgrad.kernel.skeletons.tiles import FOUR
from symgrad.kernel.stage import Formula
from symgrad.kernel.stats import flops

# --- what is scanned, and where arrays have it ----------------------------------------------------
# A sequence goes along the middle axis of (rows, length, columns) numbers. With several parts each,
# a first pass finds the totals of parts, and another one scans each part from what is before it:
# reduce-then-scan (Dotsenko, Govindaraju, Sloan, Boyd and Manferdelli, 2008, "Fast scan algorithms
# on graphics processors").

LONGEST_RUN: Final = 8
"""Elements of an invocation's run, at most."""

MOST_QUADS: Final = 4
"""Runs of four elements of an invocation, at most."""

CHEAP: Final = 8
"""Cost of combining two elements, in additions for each number of one, up to which it pays to have
several short runs."""

LAST: Final = "last"
"""The name of an argument of formulas that is 1 at the last element of a sequence, and else 0."""


class Input(NamedTuple):
    """An argument of formulas: an array, how far from the place it is read, and which plane of it.

    Places go no further than the ends. A plane has a number for each element of all rows.
    """

    name: str
    shift: int = 0
    plane: int = 0

    @property
    def is_in_place(self) -> bool:
        """Whether it is the number at the place itself."""
        return self.name != LAST and not self.shift


Reader = Callable[[Input], int]
"""A function that reads an argument of formulas at a place."""


@dataclass(frozen=True)
class Recipe:
    """The scanned elements, of ``size`` numbers each.

    ``element`` makes one of what arrays have at its place, ``combine`` one of two, and ``result``
    what goes to arrays, of a scanned element and again what arrays have there: to those named by
    ``outputs``, or to the planes of the only one. ``down`` says that the first element is the last
    in memory.
    """

    size: int
    inputs: tuple[Input, ...]
    element: Formula
    combine: Formula
    result: Formula
    outputs: tuple[str, ...]
    down: bool = False

    @cached_property
    def of_elements(self) -> frozenset[int]:
        """The inputs that elements are made of."""
        return used(self.element)

    @cached_property
    def of_results(self) -> frozenset[int]:
        """The inputs that results are made of, beside the scanned element."""
        return frozenset(n - self.size for n in used(self.result) if n >= self.size)

    @property
    def is_in_place(self) -> bool:
        """Whether all that is read for an element stands at its place."""
        return all(self.inputs[n].is_in_place for n in self.of_elements | self.of_results)

    @property
    def is_cheap(self) -> bool:
        """Whether elements are combined at so little cost that memory is what a scan waits for."""
        return flops(self.combine.computation.graph, self.combine.roots) <= CHEAP * self.size

    def arrays(self, totals: bool) -> list[str]:
        """The names of the arrays that are read, to find totals or to scan."""
        needed = self.of_elements if totals else self.of_elements | self.of_results
        names = dict.fromkeys(i.name for n, i in enumerate(self.inputs) if n in needed)
        return [name for name in names if name != LAST]


def used(formula: Formula) -> frozenset[int]:
    """The numbers of the arguments that a formula's results are made of."""
    graph = formula.computation.graph
    needed = set(reachable(graph, formula.roots))
    return frozenset(graph.nodes[i][1] for i in inputs_of(graph) if i in needed)


@dataclass(frozen=True)
class Chunk:
    """How many elements a group scans at once: ``rounds`` for each of its ``width`` invocations.

    In ``quads``, an invocation has runs of four elements, which it reads and writes in place. Or
    else it has one run that goes through shared memory, which takes fewer steps to combine.
    """

    width: int
    rounds: int
    quads: bool

    @classmethod
    def of(cls, recipe: Recipe, length: int) -> Chunk | None:
        """The largest chunk of sequences of a length that shared memory holds, if there is one."""
        quads = length % FOUR == 0 and recipe.is_in_place and recipe.is_cheap
        lengths = [FOUR * n for n in (MOST_QUADS, 2, 1)] if quads else [LONGEST_RUN, 4, 2, 1]
        sizes = itertools.product((256, 128, 64), lengths)
        chunks = (cls(width, rounds, quads) for width, rounds in sizes)
        return next((c for c in chunks if 4 * recipe.size * c.numbers <= GROUP_BYTES), None)

    @property
    def length(self) -> int:
        """The elements of all."""
        return self.width * self.rounds

    @property
    def runs(self) -> int:
        """The runs of elements that an invocation has."""
        return self.rounds // FOUR if self.quads else 1

    @property
    def numbers(self) -> int:
        """The numbers of shared memory for each number of an element."""
        return 2 * self.width * self.runs + (0 if self.quads else padded(self.length))


def padded(count: int) -> int:
    """A length with one more for each 32: neighbouring runs of numbers begin in other banks."""
    return count + count // 32


@dataclass(frozen=True)
class Pass:
    """One pass over the sequences: it scans them, or with ``totals`` only finds those of parts.

    Totals are (numbers of an element, rows, parts, columns). If there are ``several`` parts, a scan
    reads what is ``before`` them: the totals of parts for groups, which have a ``chunk`` each, and
    for invocations that work alone these as they are scanned by another run.
    """

    recipe: Recipe
    chunk: Chunk | None
    totals: bool = False
    several: bool = False


class Accumulation:
    """A program of a scan: its arrays, and what is at a place."""

    def __init__(self, k: KernelIR, program: Pass) -> None:
        self.k, self.program, self.recipe = k, program, program.recipe
        names = self.recipe.arrays(program.totals)
        vector = FOUR if program.chunk and program.chunk.quads else 1
        self.inputs = {name: k.buffer(name, "read", vector=vector) for name in names}
        self.before = k.buffer("before", "read") if program.several else None
        if program.totals:
            self.outputs = [k.buffer("totals", "write")]
        else:
            self.outputs = [k.buffer(n, "write", vector=vector) for n in self.recipe.outputs]
        wanted = ("rows", "length", "columns", "parts", "span")
        self.rows, self.length, self.columns, self.parts, self.span = (
            Index(k, k.argument(name)) for name in wanted
        )

    def value(self, condition: int, a: Sequence[int], b: Sequence[int]) -> list[int]:
        """One of two elements."""
        both = zip(a, b, strict=True)
        return [self.k.add(ops.where, condition, x, y) for x, y in both]

    def after(
        self, has_earlier: int | None, earlier: Sequence[int], later: Sequence[int]
    ) -> list[int]:
        """An element combined with the earlier ones, where ``has_earlier`` holds; None: always."""
        both = self.recipe.combine(self.k, *earlier, *later)
        return both if has_earlier is None else self.value(has_earlier, both, later)

    def index(
        self, row: Index, place: Index, column: Index, shift: int = 0, plane: int = 0
    ) -> Index:
        """Where arrays have the numbers of a place of a sequence, or of one near it."""
        last = self.length - 1
        if shift < 0:
            place = place - place.at_most(-shift)
        place = (place + max(shift, 0)).at_most(last)
        row = row + self.rows * plane if plane else row
        at = row * self.length + (last - place if self.recipe.down else place)
        return at * self.columns + column

    def arguments(self, needed: frozenset[int], read: Reader) -> list[int]:
        """The arguments of formulas, as they are read; 0 for those not ``needed``."""
        inputs = enumerate(self.recipe.inputs)
        return [read(i) if n in needed else self.k.constant(0.0) for n, i in inputs]

    def read(self, row: Index, place: Index, column: Index, wanted: Input) -> int:
        """The value of an argument at a place."""
        k = self.k
        if wanted.name == LAST:
            earlier = (place + 1).below(self.length)
            return k.add(ops.where, earlier, k.constant(0.0), k.constant(1.0))
        at = self.index(row, place, column, wanted.shift, wanted.plane)
        return k.load(self.inputs[wanted.name], at.id)

    def element(self, read: Reader) -> list[int]:
        """The element of a place, of what is read there."""
        return self.recipe.element(self.k, *self.arguments(self.recipe.of_elements, read))

    def results(self, scanned: Sequence[int], read: Reader) -> list[int]:
        """The results of a place, of the scanned element and what is read there."""
        arguments = self.arguments(self.recipe.of_results, read)
        return self.recipe.result(self.k, *scanned, *arguments)

    def planes(self, values: Sequence[int]) -> list[tuple[int, int, int]]:
        """For each result: the number of its array, which plane of that it is, and its value."""
        if len(self.outputs) == 1:
            return [(0, n, value) for n, value in enumerate(values)]
        return [(n, 0, value) for n, value in enumerate(values)]

    def store(
        self, row: Index, place: Index, column: Index, scanned: Sequence[int], *conditions: int
    ) -> None:
        """Write the results of a place, where there is one."""
        k = self.k

        def store() -> None:
            values = self.results(scanned, lambda i: self.read(row, place, column, i))
            for n, plane, value in self.planes(values):
                k.store(self.outputs[n], self.index(row, place, column, plane=plane).id, value)

        k.when(all_hold(k, place.below(self.length), *conditions), store)

    def total(self, n: int, row: Index, part: Index, column: Index) -> Index:
        """Where the number n of a part's total is."""
        return ((row + self.rows * n) * self.parts + part) * self.columns + column

    def load_total(self, row: Index, part: Index, column: Index) -> list[int]:
        """The total of a part, or what is scanned up to it."""
        assert self.before is not None, "only one of several parts has others before it"
        places = [self.total(n, row, part, column) for n in range(self.recipe.size)]
        return [self.k.load(self.before, at.id) for at in places]

    def store_total(
        self, row: Index, part: Index, column: Index, total: Sequence[int], *conditions: int
    ) -> None:
        """Write the total of a part."""
        k = self.k

        def store() -> None:
            for n, value in enumerate(total):
                k.store(self.outputs[0], self.total(n, row, part, column).id, value)

        k.when(all_hold(k, *conditions), store)

    def nothing(self) -> list[int]:
        """An element of zeros, for where there is none."""
        return [self.k.constant(0.0)] * self.recipe.size


REACH: Final = 4
"""How many times as far an element reaches after each step of a group's scan."""


class Access(Protocol):
    """How elements of a chunk come to invocations, and results go back."""

    def runs(self, row: Index, number: Index) -> list[list[list[int]]]:
        """The invocation's elements of a chunk: runs of some that follow each other."""
        ...

    def write(
        self, row: Index, number: Index, runs: Sequence[list[list[int]]], inside: int
    ) -> None:
        """Write the results of them, scanned."""
        ...


class Together(Accumulation):
    """A group has a part of a sequence, and scans chunk after chunk of it. Columns are 1.

    Every invocation has runs of elements that follow each other, and the first runs of all follow
    each other, then the second ones. It scans its runs; then the invocations scan the ends of runs
    together, and combine what is before with theirs.
    """

    def __init__(self, k: KernelIR, program: Pass) -> None:
        super().__init__(k, program)
        assert program.chunk and program.chunk.width == k.target.width, "groups have another size"
        self.chunk: Chunk = program.chunk
        self.local, self.zero = Index(k, k.local), Index(k, k.word(0))
        self.access: Access = Quads(self) if self.chunk.quads else Tiles(self)
        length = 2 * self.chunk.width
        self.ends = [
            [k.buffer(f"ends{run}_{n}", "group", size=length) for n in range(self.recipe.size)]
            for run in range(self.chunk.runs)
        ]
        self.steps = next(n for n in range(9) if REACH**n >= self.chunk.width)
        self.side = self.steps % 2 * self.chunk.width
        """Where the ends begin that have been scanned."""

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, totals = self.k, self.program.totals
        group = Index(k, k.group)
        inside = group.below(self.rows * self.parts)
        last = self.rows * self.parts - 1
        group = group.at_most(last)
        if self.program.several:  # the caches still have what totals were made of last
            group = last - group
        row = group // self.parts
        part = group - row * self.parts
        start, chunks = part * self.span, self.length.ceil_div(self.chunk.length)

        def iteration(number: int, carried: Sequence[int]) -> Sequence[int]:
            at = start + Index(k, number)
            has_earlier = (start if totals else self.zero).below(at)
            return self._chunk(row, at, carried, has_earlier, inside)

        first = self._before(row, part) if self.program.several else self.nothing()
        count = self.span.at_most(chunks - start.at_most(chunks))
        carried, _ = k.loop(k.word(0), count.id, first, iteration)
        if totals:
            self.store_total(row, part, self.zero, carried, self.local.below(1), inside)
        return k

    def _before(self, row: Index, part: Index) -> list[int]:
        """The totals of all parts before one: each invocation has some that follow each other."""
        k = self.k
        each = self.parts.ceil_div(self.chunk.width)
        start = self.local * each

        def iteration(number: int, carried: Sequence[int]) -> Sequence[int]:
            at = start + Index(k, number)
            return self.after(start.below(at), carried, self.load_total(row, at, self.zero))

        count = each.at_most(part - start.at_most(part))
        own, _ = k.loop(k.word(0), count.id, self.nothing(), iteration)
        self._scan_ends([own])
        total = self._end(0, (part - part.at_most(1)) // each)
        k.barrier()
        return total

    def _chunk(
        self, row: Index, number: Index, carried: Sequence[int], has_earlier: int, inside: int
    ) -> Sequence[int]:
        """The last element of a chunk, scanned, after writing the results of all."""
        k, last = self.k, Index(self.k, self.k.word(self.chunk.width - 1))
        runs = [self._scanned(run) for run in self.access.runs(row, number)]
        self._scan_ends([run[-1] for run in runs])
        scanned: list[list[list[int]]] = []
        for n, run in enumerate(runs):
            before = has_earlier if not n else None
            scanned.append(self._following(n, run, carried, before))
            carried = self.after(before, carried, self._end(n, last))
        if not self.program.totals:
            self.access.write(row, number, scanned, inside)
        k.barrier()
        return carried

    def _scanned(self, run: Sequence[list[int]]) -> list[list[int]]:
        """A run of elements, scanned."""
        scanned = [run[0]]
        for element in run[1:]:
            scanned.append(self.recipe.combine(self.k, *scanned[-1], *element))
        return scanned

    def _following(
        self, n: int, run: Sequence[Sequence[int]], carried: Sequence[int], has_earlier: int | None
    ) -> list[list[int]]:
        """The elements of a scanned run with all that is before them."""
        earlier = self._end(n, self.local - self.local.at_most(1))
        follows = self.zero.below(self.local)
        before = self.value(follows, self.after(has_earlier, carried, earlier), carried)
        any_before = has_earlier and self.k.add(ops.logical_or, follows, has_earlier)
        return [self.after(any_before, before, element) for element in run]

    def _scan_ends(self, own: Sequence[Sequence[int]]) -> None:
        """The ends of some runs of all invocations, scanned: each step has them reach further.

        It is the scan of Hillis and Steele (1986, "Data parallel algorithms"), of radix `REACH`.
        """
        k, ends = self.k, own
        self._put_ends(self.zero, ends)
        k.barrier()
        for step in range(self.steps):
            for far in (REACH**step * times for times in range(1, REACH)):
                has_earlier = k.add(ops.logical_not, self.local.below(far))
                at = self.local - (self.zero + far).at_most(self.local)
                at = (at + step % 2 * self.chunk.width).id
                ends = [
                    self.after(has_earlier, [k.load(one, at) for one in earlier], end)
                    for earlier, end in zip(self.ends, ends, strict=False)
                ]
            self._put_ends(self.zero + (step + 1) % 2 * self.chunk.width, ends)
            k.barrier()

    def _put_ends(self, side: Index, ends: Sequence[Sequence[int]]) -> None:
        at = (side + self.local).id
        for buffers, values in zip(self.ends, ends, strict=False):
            for buffer, value in zip(buffers, values, strict=True):
                self.k.store(buffer, at, value)

    def _end(self, run: int, place: Index) -> list[int]:
        """The scanned end of an invocation's run."""
        return [self.k.load(end, (place + self.side).id) for end in self.ends[run]]


class Quads:
    """Elements are read and written in place: runs of four, neighbours by neighbours."""

    def __init__(self, group: Together) -> None:
        self.group = group
        self.quarter = group.length // FOUR

    def runs(self, row: Index, number: Index) -> list[list[list[int]]]:
        """See `Access`."""
        group = self.group
        return [
            [group.element(self._reader(row, number, run, lane)) for lane in range(FOUR)]
            for run in range(group.chunk.runs)
        ]

    def write(
        self, row: Index, number: Index, runs: Sequence[list[list[int]]], inside: int
    ) -> None:
        """See `Access`."""
        k = self.group.k
        for n, run in enumerate(runs):
            exists = self._quad(number, n).below(self.quarter)
            k.when(all_hold(k, exists, inside), partial(self._store, row, number, n, run))

    def _store(self, row: Index, number: Index, n: int, run: Sequence[list[int]]) -> None:
        """Write the results of a run."""
        group = self.group
        readers = [self._reader(row, number, n, lane) for lane in range(FOUR)]
        planes = [group.planes(group.results(e, r)) for e, r in zip(run, readers, strict=True)]
        for results in zip(*planes, strict=True):
            for lane, (output, plane, value) in enumerate(results):
                at = self._at(row, number, n, lane, plane)
                group.k.store(group.outputs[output], at, value)

    def _quad(self, number: Index, run: int) -> Index:
        """Which quad of a sequence a run is, in the order in which they follow each other."""
        chunk = self.group.chunk
        return (number * chunk.runs + run) * chunk.width + self.group.local

    def _at(self, row: Index, number: Index, run: int, lane: int, plane: int) -> int:
        """Where arrays have an element; beyond the end, where that of the last quad is."""
        group = self.group
        quad = self._quad(number, run).at_most(self.quarter - 1)
        if group.recipe.down:
            quad, lane = (self.quarter - 1) - quad, FOUR - 1 - lane
        row = row + group.rows * plane if plane else row
        return (row * self.quarter + quad).lanes(FOUR)[lane]

    def _reader(self, row: Index, number: Index, run: int, lane: int) -> Reader:
        group = self.group

        def read(wanted: Input) -> int:
            at = self._at(row, number, run, lane, wanted.plane)
            return group.k.load(group.inputs[wanted.name], at)

        return read


class Tiles:
    """Elements are brought as they stand in memory, neighbours by neighbours, to shared memory.

    Results go back in the same way.
    """

    def __init__(self, group: Together) -> None:
        self.group = group
        length = padded(group.chunk.length)
        size = group.recipe.size
        self.tiles = [group.k.buffer(f"tile{n}", "group", size=length) for n in range(size)]

    def runs(self, row: Index, number: Index) -> list[list[list[int]]]:
        """See `Access`."""
        group = self.group
        for place, at in self._places(number):
            self._put(place, group.element(partial(group.read, row, at, group.zero)))
        group.k.barrier()
        return [[self._get(self._own(i)) for i in range(group.chunk.rounds)]]

    def write(
        self, row: Index, number: Index, runs: Sequence[list[list[int]]], inside: int
    ) -> None:
        """See `Access`."""
        group = self.group
        for i, element in enumerate(runs[0]):
            self._put(self._own(i), element)
        group.k.barrier()
        for place, at in self._places(number):
            group.store(row, at, group.zero, self._get(place), inside)

    def _places(self, number: Index) -> list[tuple[Index, Index]]:
        """Where the invocation's numbers of memory are in the tile, and in the sequence."""
        chunk, local = self.group.chunk, self.group.local
        places = [local + chunk.width * i for i in range(chunk.rounds)]
        return [(place, number * chunk.length + place) for place in places]

    def _own(self, i: int) -> Index:
        """Where the tile has an element of the invocation."""
        return self.group.local * self.group.chunk.rounds + i

    def _put(self, place: Index, element: Sequence[int]) -> None:
        at = (place + place // 32).id
        for tile, value in zip(self.tiles, element, strict=True):
            self.group.k.store(tile, at, value)

    def _get(self, place: Index) -> list[int]:
        at = (place + place // 32).id
        return [self.group.k.load(tile, at) for tile in self.tiles]


@dataclass(frozen=True)
class Accumulate(Pass):
    """The program of a pass."""

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "totals" if self.totals else "scan")
        return (Together if self.chunk else Alone)(k, self).kernel()


class Alone(Accumulation):
    """An invocation has a part of a sequence, and goes from element to element."""

    def kernel(self) -> KernelIR:
        """The whole program."""
        k = self.k
        cell, count = Index(k, k.cell), Index(k, k.count)
        point = Index(k, k.target.point(k))
        inside = cell.below(count)
        rest = point // self.columns
        column, row = point - rest * self.columns, rest // self.parts
        part = rest - row * self.parts
        start = part * self.span
        end = (start + self.span).at_most(self.length)

        def iteration(place: int, carried: Sequence[int]) -> Sequence[int]:
            at = Index(k, place)
            element = self.element(lambda i: self.read(row, at, column, i))
            if self.program.totals:
                return self.after(start.below(at), carried, element)
            scanned = self.after(Index(k, k.word(0)).below(at), carried, element)
            self.store(row, at, column, scanned, inside)
            return scanned

        first = self.nothing()
        if self.program.several:
            first = self.load_total(row, part - part.at_most(1), column)
        total, _ = k.loop(start.id, end.id, first, iteration)
        if self.program.totals:
            self.store_total(row, part, column, total, inside)
        return k
