"""Scans by an associative operation: in parts, whose totals are scanned in between.

A sequence goes along the middle axis of (rows, length, columns) numbers. With several parts each,
there are three programs: one finds the ``totals`` of parts, one scans these, and one scans each
part from what is before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.reach import inputs_of, reachable
from symgrad.kernel.formula import Formula
from symgrad.kernel.index import Index, all_hold
from symgrad.kernel.language import Kernel, Target
from symgrad.kernel.layout import GROUP_BYTES

ELEMENTS_PER_INVOCATION: Final = 8
"""Elements of an invocation in a chunk, at most."""

LAST: Final = "last"
"""The name of an argument of formulas that is 1 at the last element of a sequence, and else 0."""


class Input(NamedTuple):
    """An argument of formulas: an array, how far from the place it is read, and which plane of it.

    Places go no further than the ends. A plane has a number for each element of all rows.
    """

    name: str
    shift: int = 0
    plane: int = 0


@dataclass(frozen=True)
class Recipe:
    """What is scanned: elements of ``size`` numbers.

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

    def arrays(self, totals: bool) -> list[str]:
        """The names of the arrays that are read, to find totals or to scan."""
        asked = self.of_elements if totals else self.of_elements | self.of_results
        names = dict.fromkeys(i.name for n, i in enumerate(self.inputs) if n in asked)
        return [name for name in names if name != LAST]


def used(formula: Formula) -> frozenset[int]:
    """The numbers of the arguments that a formula's results are made of."""
    graph = formula.computation.graph
    needed = set(reachable(graph, formula.roots))
    return frozenset(graph.nodes[i][1] for i in inputs_of(graph) if i in needed)


@dataclass(frozen=True)
class Accumulate:
    """The program that scans, or with ``totals`` only finds the total of each part.

    Totals are (numbers of an element, rows, parts, columns); those that are scanned, by another
    run, are ``before``, in the same order, if a sequence has several parts.
    """

    recipe: Recipe
    totals: bool = False
    several: bool = False

    def __call__(self, target: Target) -> Kernel:
        """The program for a target."""
        k = Kernel(target, "totals" if self.totals else "scan")
        alone = target.in_step or target.team == 1
        return (Alone if alone else Together)(k, self).kernel()


class Accumulation:
    """What both kinds of programs have in common: where an invocation is, and what is there."""

    def __init__(self, k: Kernel, program: Accumulate) -> None:
        self.k, self.program, self.recipe = k, program, program.recipe
        names = self.recipe.arrays(program.totals)
        self.inputs = {name: k.buffer(name, "read") for name in names}
        self.before = k.buffer("before", "read") if program.several else None
        outputs = ["totals"] if program.totals else self.recipe.outputs
        self.outputs = [k.buffer(name, "write") for name in outputs]
        wanted = ("rows", "length", "columns", "parts", "span")
        self.rows, self.length, self.columns, self.parts, self.span = (
            Index(k, k.argument(name)) for name in wanted
        )

    def value(self, condition: int, a: Sequence[int], b: Sequence[int]) -> list[int]:
        """One of two elements."""
        both = zip(a, b, strict=True)
        return [self.k.add(ops.where, condition, x, y) for x, y in both]

    def after(self, there: int, earlier: Sequence[int], later: Sequence[int]) -> list[int]:
        """An element combined with what is before it, if there is anything."""
        return self.value(there, self.recipe.combine(self.k, *earlier, *later), later)

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

    def arguments(
        self, row: Index, place: Index, column: Index, asked: frozenset[int]
    ) -> list[int]:
        """What arrays have there, as arguments of formulas; 0 for what is not asked for."""
        k = self.k
        found: list[int] = []
        for n, (name, shift, plane) in enumerate(self.recipe.inputs):
            if n not in asked:
                found.append(k.constant(0.0))
            elif name == LAST:
                earlier = (place + 1).below(self.length)
                found.append(k.add(ops.where, earlier, k.constant(0.0), k.constant(1.0)))
            else:
                at = self.index(row, place, column, shift, plane)
                found.append(k.load(self.inputs[name], at.id))
        return found

    def element(self, row: Index, place: Index, column: Index) -> list[int]:
        """The element of a place."""
        known = self.arguments(row, place, column, self.recipe.of_elements)
        return self.recipe.element(self.k, *known)

    def store(
        self, row: Index, place: Index, column: Index, scanned: Sequence[int], *conditions: int
    ) -> None:
        """Write the results of a place, where there is one."""
        k = self.k

        def store() -> None:
            known = self.arguments(row, place, column, self.recipe.of_results)
            values = self.recipe.result(k, *scanned, *known)
            planes = len(self.outputs) == 1
            for n, value in enumerate(values):
                at = self.index(row, place, column, plane=n if planes else 0)
                k.store(self.outputs[0 if planes else n], at.id, value)

        k.when(all_hold(k, place.below(self.length), *conditions), store)

    def total(self, n: int, row: Index, part: Index, column: Index) -> Index:
        """Where the number n of a part's total is."""
        return ((row + self.rows * n) * self.parts + part) * self.columns + column

    def first(self, row: Index, part: Index, column: Index) -> list[int]:
        """What is before a part: that which is scanned up to the part before, if there is one."""
        k = self.k
        if self.before is None:
            return [k.constant(0.0)] * self.recipe.size
        earlier = part - part.at_most(1)
        places = [self.total(n, row, earlier, column) for n in range(self.recipe.size)]
        return [k.load(self.before, at.id) for at in places]

    def store_total(
        self, row: Index, part: Index, column: Index, total: Sequence[int], *conditions: int
    ) -> None:
        """Write the total of a part."""
        k = self.k

        def store() -> None:
            for n, value in enumerate(total):
                k.store(self.outputs[0], self.total(n, row, part, column).id, value)

        k.when(all_hold(k, *conditions), store)


class Alone(Accumulation):
    """An invocation has a part of a sequence, and goes from element to element."""

    def kernel(self) -> Kernel:
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

        def turn(place: int, carried: Sequence[int]) -> Sequence[int]:
            at = Index(k, place)
            found = self.element(row, at, column)
            if self.program.totals:
                return self.after(start.below(at), carried, found)
            scanned = self.after(Index(k, k.word(0)).below(at), carried, found)
            self.store(row, at, column, scanned, inside)
            return scanned

        total, _ = k.loop(start.id, end.id, self.first(row, part, column), turn)
        if self.program.totals:
            self.store_total(row, part, column, total, inside)
        return k


@dataclass(frozen=True)
class Chunk:
    """How many elements a group scans at once: ``rounds`` for each of its ``width`` invocations."""

    width: int
    rounds: int

    @classmethod
    def of(cls, size: int) -> Chunk | None:
        """The largest chunk of elements of a size that shared memory holds, if there is one."""
        for width in (256, 128, 64):
            for rounds in (ELEMENTS_PER_INVOCATION, 4, 2, 1):
                if 4 * size * (padded(width * rounds) + width) <= GROUP_BYTES:
                    return cls(width, rounds)
        return None

    @property
    def length(self) -> int:
        """The elements of all."""
        return self.width * self.rounds


def padded(count: int) -> int:
    """Room for numbers, one more for each 32: neighbouring runs of them begin in other banks."""
    return count + count // 32


class Together(Accumulation):
    """A group has a part of a sequence, and scans chunk after chunk of it.

    Elements are brought as they stand in memory, neighbours by neighbours, and go through shared
    memory, so that every invocation has some that follow each other. It scans these; then the
    invocations scan their last ones, and combine what is before with theirs. Columns are 1.
    """

    def __init__(self, k: Kernel, program: Accumulate) -> None:
        super().__init__(k, program)
        chunk, size = Chunk.of(self.recipe.size), self.recipe.size
        assert chunk is not None and chunk.width == k.target.width, "groups have another size"
        self.chunk, self.local = chunk, Index(k, k.local)
        room = padded(chunk.length)
        self.tiles = [k.buffer(f"tile{n}", "group", size=room) for n in range(size)]
        self.ends = [k.buffer(f"ends{n}", "group", size=chunk.width) for n in range(size)]

    def kernel(self) -> Kernel:
        """The whole program."""
        k, zero = self.k, Index(self.k, self.k.word(0))
        group = Index(k, k.group)
        inside = group.below(self.rows * self.parts)
        last = self.rows * self.parts - 1
        group = group.at_most(last)
        if self.program.several:  # the caches still have what totals were made of last
            group = last - group
        row = group // self.parts
        part = group - row * self.parts
        start = part * self.span
        end = (start + self.span).at_most(self.length.ceil_div(self.chunk.length))

        def turn(number: int, carried: Sequence[int]) -> Sequence[int]:
            at = Index(k, number)
            before = (start if self.program.totals else zero).below(at)
            return self._chunk(row, at, carried, before, inside)

        carried, _ = k.loop(start.id, end.id, self.first(row, part, zero), turn)
        if self.program.totals:
            self.store_total(row, part, zero, carried, self.local.below(1), inside)
        return k

    def _chunk(
        self, row: Index, number: Index, carried: Sequence[int], there: int, inside: int
    ) -> list[int]:
        """What a chunk's last element is, scanned, after writing the results of all."""
        k, first = self.k, number * self.chunk.length
        for i in range(self.chunk.rounds):
            place = self.local + self.chunk.width * i
            self._put(place, self.element(row, first + place, Index(k, k.word(0))))
        k.barrier()
        own = self._own()
        self._scan_ends(own[-1])
        last = [k.load(end, k.word(self.chunk.width - 1)) for end in self.ends]
        if not self.program.totals:
            self._finish(own, carried, there)
            for i in range(self.chunk.rounds):
                place = self.local + self.chunk.width * i
                self.store(row, first + place, Index(k, k.word(0)), self._get(place), inside)
        k.barrier()
        return self.after(there, carried, last)

    def _put(self, place: Index, element: Sequence[int]) -> None:
        at = (place + place // 32).id
        for tile, value in zip(self.tiles, element, strict=True):
            self.k.store(tile, at, value)

    def _get(self, place: Index) -> list[int]:
        at = (place + place // 32).id
        return [self.k.load(tile, at) for tile in self.tiles]

    def _own(self) -> list[list[int]]:
        """The invocation's elements, scanned."""
        first = self.local * self.chunk.rounds
        found = [self._get(first)]
        for i in range(1, self.chunk.rounds):
            found.append(self.recipe.combine(self.k, *found[-1], *self._get(first + i)))
        return found

    def _scan_ends(self, own: Sequence[int]) -> None:
        """The last elements of all invocations, scanned: in step n they reach 2**n further."""
        k = self.k
        self._put_end(own)
        k.barrier()

        def step(n: int, values: Sequence[int]) -> Sequence[int]:
            reach = Index(k, k.add(ops.word_shift_left, k.word(1), n))
            there = k.add(ops.logical_not, self.local.below(reach))
            at = (self.local - reach.at_most(self.local)).id
            other = [k.load(end, at) for end in self.ends]
            k.barrier()
            values = self.after(there, other, values)
            self._put_end(values)
            k.barrier()
            return values

        steps = self.chunk.width.bit_length() - 1
        k.loop(k.word(0), k.word(steps), own, step, most=steps, some=True)

    def _put_end(self, values: Sequence[int]) -> None:
        for end, value in zip(self.ends, values, strict=True):
            self.k.store(end, self.k.local, value)

    def _finish(self, own: Sequence[Sequence[int]], carried: Sequence[int], there: int) -> None:
        """Put the invocation's elements back, with all that is before them."""
        k = self.k
        at = (self.local - self.local.at_most(1)).id
        earlier = [k.load(end, at) for end in self.ends]
        follows = Index(k, k.word(0)).below(self.local)
        before = self.value(follows, self.after(there, carried, earlier), carried)
        any_before = k.add(ops.logical_or, follows, there)
        for i, element in enumerate(own):
            self._put(self.local * self.chunk.rounds + i, self.after(any_before, before, element))
        k.barrier()
