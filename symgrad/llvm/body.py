"""The arithmetic of a kernel as LLVM functions, however long it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from symgrad.expr.graph.node import INPUT, Op
from symgrad.kernel.plan import Computation
from symgrad.llvm.definitions import INLINED, closure, definitions
from symgrad.llvm.instruction import Shape, Writer, lone_products, uses_of
from symgrad.mathlib.define import Function

LONG = 2_000
"""Operations from which a kernel is cut into functions, and compiled quickly at first."""

LONG_BATCH = 800
"""The same for vectors, whose compilation takes longer."""

FUNCTION = 300
"""Operations in one of these functions: LLVM takes 7 us for each then, and 70 us in long ones."""

TOGETHER = 7
"""How many of these are one where they are compiled thoroughly, in 200 to 1,500 us an operation:
each cut sends values through memory, which takes a network of 1,400 operations 20 % longer."""

HOT = 2e-4
"""Seconds of running for each operation after which it pays to compile a kernel thoroughly."""

MOST_THOROUGH = 50_000
"""Operations up to which that is done: it takes half a minute."""


@dataclass(frozen=True)
class Source:
    """A module of LLVM; ``effort`` is the compiler's level of optimisation.

    ``workspace`` is how many bytes of scratch memory one call of its function needs. After ``hot``
    seconds of running it pays to write and compile it thoroughly.
    """

    text: str
    workspace: int
    effort: int
    hot: float = math.inf


@dataclass(frozen=True)
class Part:
    """One function's share of the nodes, and which of them others need."""

    nodes: Sequence[int]
    leaves: Sequence[int]


class Body:
    """The arithmetic of a computation for one shape, cut into functions where it is long.

    ``places`` says which values are there from the start, as which elements of ``%in``: the inputs
    by their numbers, if it is not given.

    What is long is cut into short functions that are compiled quickly, or, if it is to be compiled
    ``thorough``-ly, into longer ones. That changes no bit of any result.
    """

    def __init__(
        self, computation: Computation, order: Sequence[int], functions: Mapping[Op, Function],
        shape: Shape, places: Mapping[int, int] | None = None,
        thorough: bool = False,
    ) -> None:  # fmt: skip
        self.thorough, self.long = thorough, LONG if shape.lanes == 1 else LONG_BATCH
        self.places = places
        self.computation, self.shape, self.functions = computation, shape, functions
        graph = computation.graph
        self.roots = [i for o in computation.outputs for i in o.nodes]
        self.used = Counter(graph.nodes[i][0] for i in order)
        # which products are fused does not depend on the cuts: so a point has the bits of a batch
        uses = uses_of(graph, order, self.roots)
        found = lone_products(graph, order, uses) if shape.fused else frozenset[int]()
        self.products = found
        self.order = [i for i in order if i not in found]
        self.needs = {i: self._needs(i) for i in self.order}
        self.parts = self._parts()
        self.slots = {i: k for k, i in enumerate(i for p in self.parts for i in p.leaves)}
        self.stored = self._stored()
        made = set(self.order)
        self.given = [i for i in self.stored if i not in made]
        """Results that are there from the start."""

    def _needs(self, i: int) -> Sequence[int]:
        """The values that the instructions of node i take: of a fused product, its factors."""
        graph, products = self.computation.graph, self.products
        args = graph.args(i)
        if products.isdisjoint(args):
            return args
        return [b for a in args for b in (graph.args(a) if a in products else (a,))]

    def definitions(self) -> Iterator[str]:
        """The functions that are called, to be written where they are called if that is short."""
        sizes = {op: len(self.functions[op].graph) for op in closure(self.used, self.functions)}
        inline = sum(size * self.used.get(op, 1) for op, size in sizes.items()) <= INLINED
        yield from definitions(self.used, self.functions, self.shape, inline)

    @property
    def effort(self) -> int:
        """The level of optimisation that compiles it in reasonable time.

        The second one makes vectors of short kernels 2 to 4 % faster, and takes 10 % longer.
        """
        if len(self.parts) > 1:
            return 1 if self.thorough else 0
        return 2 if self.shape.lanes > 1 and len(self.order) <= LONG_BATCH else 1

    @property
    def hot(self) -> float:
        """The seconds of running after which it pays to compile it thoroughly."""
        count = len(self.order)
        quick = len(self.parts) > 1 and not self.thorough and count <= MOST_THOROUGH
        return HOT * count if quick else math.inf

    def _parts(self) -> list[Part]:
        order = self.order
        short = FUNCTION * (TOGETHER if self.thorough else 1)
        length = short if len(order) > self.long else max(1, len(order))
        pieces = [order[k : k + length] for k in range(0, len(order), length)] or [[]]
        if len(pieces) == 1:
            return [Part(order, [])]
        home = {i: k for k, piece in enumerate(pieces) for i in piece}
        crossing = {
            a for k, piece in enumerate(pieces) for i in piece for a in self.needs[i]
            if home.get(a, k) != k
        }  # fmt: skip
        return [Part(piece, [i for i in piece if i in crossing]) for piece in pieces]

    def _stored(self) -> dict[int, list[tuple[int, int]]]:
        """For each node the outputs, and columns of them, that it goes to."""
        found: dict[int, list[tuple[int, int]]] = {}
        for o, output in enumerate(self.computation.outputs):
            for column, i in enumerate(output.nodes):
                found.setdefault(i, []).append((o, column))
        return found

    def place(self, i: int) -> int | None:
        """Where in ``%in`` a value stands that is there from the start."""
        if self.places is not None:
            return self.places.get(i)
        node = self.computation.graph.nodes[i]
        return node[1] if node[0] is INPUT else None

    @property
    def columns(self) -> int:
        """The inputs and the results of a point."""
        return len(self.computation.graph.names) + len(self.roots)

    def writer(self, names: dict[int, str], numbered: bool = False) -> Writer:
        """A writer for whom these values have names."""
        graph = self.computation.graph
        fresh = (f"%{k}" for k in count(1)) if numbered else None  # the first block has number 0
        return Writer(graph, self.shape, self.functions, names, self.products, fresh)


def write_parts(body: Body, outputs: str, name: str, linkage: str) -> Iterator[str]:
    """Functions that read inputs, and write results and what others need, through memory.

    Their names end with a number, unless it is the only one, called "run".
    """
    for k in range(len(body.parts)):
        number = "" if name == "run" else str(k)
        hint = " noinline" if linkage else ""
        yield (f"define {linkage}void @{name}{number}(ptr %in, {outputs}, ptr %frame){hint} #0 {{")
        yield from PartWriter(body, k).lines()
        yield "  ret void"
        yield "}"
        yield ""


class PartWriter:
    """The instructions of one part: each value from outside is loaded where it is first needed."""

    def __init__(self, body: Body, number: int) -> None:
        self.body, self.part = body, body.parts[number]
        self.graph, self.shape = body.computation.graph, body.shape
        self.writer = body.writer({}, numbered=len(body.parts) > 1)
        self._size = body.shape.itemsize * body.shape.lanes
        self.nodes = [*self.part.nodes, *(body.given if number == 0 else ())]

    def lines(self) -> list[str]:
        """The instructions."""
        body, writer, mine = self.body, self.writer, set(self.part.nodes)
        names, slots = writer.names, body.slots
        for i in self.nodes:
            operation = i in mine
            for a in body.needs[i] if operation else (i,):
                if a not in names:
                    self._load(a)
            if operation:
                writer.write((i,))
            for o, column in body.stored.get(i, ()):
                self._store(i, f"%o{o}", column)
            if i in slots:
                self._store(i, "%frame", slots[i])
        return writer.lines

    def _load(self, i: int) -> None:
        at = self.body.place(i)
        if at is not None:
            base = "%in"
        elif i in self.body.slots:
            base, at = "%frame", self.body.slots[i]
        else:
            return
        kind, align = self._memory(i)
        place = self._address(base, at)
        self.writer.names[i] = self.writer.value(f"load {kind}, ptr {place}, align {align}")

    def _address(self, base: str, at: int) -> str:
        return self.writer.value(f"getelementptr i8, ptr {base}, i64 {at * self._size}")

    def _store(self, i: int, base: str, at: int) -> None:
        kind, align = self._memory(i)
        place = self._address(base, at)
        value = self.writer.names[i]
        self.writer.lines.append(f"  store {kind} {value}, ptr {place}, align {align}")

    def _memory(self, i: int) -> tuple[str, int]:
        letter = self.graph.type(i)
        return self.shape.types[letter], self._size if letter == "f" else 1


def module(lines: Iterable[str], workspace: int, effort: int, hot: float = math.inf) -> Source:
    """The whole text of a module with these functions, and ``workspace`` bytes to work in.

    Stacks are realigned, as vectors that are kept there would lie across two lines of the cache.
    """
    text = "\n".join([
        *lines,
        'attributes #0 = { nounwind "stackrealign" "min-legal-vector-width"="512" '
        '"prefer-vector-width"="512" }',
        "!0 = !{i32 1}",
    ])  # fmt: skip
    return Source(text + "\n", workspace, effort, hot)
