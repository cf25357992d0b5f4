"""Common parts of the programs of a scan: what is scanned, and where arrays have it.

A sequence goes along the middle axis of (rows, length, columns) numbers. With several parts each,
a first pass finds the totals of parts, and another one scans each part from what is before it:
reduce-then-scan (Dotsenko, Govindaraju, Sloan, Boyd and Manferdelli, 2008, "Fast scan algorithms on
graphics processors").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.node import inputs_of, reachable
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.target import GROUP_BYTES
from symgrad.kernel.skeletons.tiles import FOUR
from symgrad.kernel.stage import Formula
from symgrad.kernel.stats import flops

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
