"""Analysis of a kernel before it is written: where its arrays stand, what makes vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr.graph.node import WORD, Graph
from symgrad.kernel.language.index import Vector, vector_of
from symgrad.kernel.language.ir import KernelIR, accesses
from symgrad.kernel.language.statements import (
    Buffer,
    Load,
    Routine,
    Scope,
    Statement,
    Store,
    scopes_of,
)
from symgrad.kernel.passes.uses import Uses
from symgrad.values.arrays import PAIRS
from symgrad.wgsl.printing.operations import FLOATS, PRODUCT, Floats, Text, wrapped

PRIVATE: Final = 64
"""Numbers that an invocation has in variables, all arrays together. Compilers give an index that is
known at run time only a chain of choices: 256 take llvmpipe 5 s, and run no faster than memory."""

KNOWN: Final = 1024
"""Further ones in arrays of which every index is known, which are as good as variables
one by one: half of what WGSL promises."""

_LOADED: Final = {
    "u32": {"f": "bitcast<f32>({0})", "b": "({0} != 0u)", "i": "bitcast<i32>({0})"},
    "f32": {"b": "{0} != 0.0f"},
    "u64": {"f": "bitcast<f64>({0})", "b": "({0} != 0lu)", "i": "i32(u32({0}))", "u": "u32({0})"},
    "f64": {"b": "{0} != 0.0lf"},
    "vec2<f32>": {
        "b": "{0}.x != 0.0f",
        "u": "(u32({0}.x) << 16u | u32({0}.y))",
        "i": "bitcast<i32>(u32({0}.x) << 16u | u32({0}.y))",
    },
}
_STORED: Final = {
    "u32": {"f": "bitcast<u32>({0})", "b": "select(0u, 1u, {0})", "i": "bitcast<u32>({0})"},
    "f32": {"b": "f32({0})"},
    "u64": {
        "f": "bitcast<u64>({0})",
        "b": "select(0lu, 1lu, {0})",
        "i": "u64(u32({0}))",
        "u": "u64({0})",
    },
    "f64": {"b": "f64({0})"},
    "vec2<f32>": {
        "b": "vec2<f32>(f32({0}), 0.0f)",
        "u": "vec2<f32>(f32({0} >> 16u), f32({0} & 0xffffu))",
        "i": "vec2<f32>(f32(bitcast<u32>({0}) >> 16u), f32(bitcast<u32>({0}) & 0xffffu))",
    },
}
"""Values as memory of words, or of floats, has them: these would not keep the bits of words."""

_CONVERTED: Final = {
    ("f32", "vec2<f32>"): "vec2<f32>({0}, 0.0f)",
    ("f32", "f64"): "f64({0})",
    ("vec2<f32>", "f64"): "(f64({0}.x) + f64({0}.y))",
}
"""Floats in memory as a kernel's, which have more digits."""


def loaded_as(element: str, kind: str) -> str:
    """The form of a value of a kind that memory of these elements has."""
    return _LOADED[element].get(kind, "{0}")


def stored_as(element: str, kind: str) -> str:
    """The form of what memory of these elements has of a value."""
    return _STORED[element].get(kind, "{0}")


def element_of(floats: Floats, of_floats: bool) -> str:
    """The type of memory's elements: floats if all that it holds are, and else words as wide.

    A pair has a word as the numbers that its halves are.
    """
    return floats.type if of_floats or floats.dtype == PAIRS else floats.word


def zero_of(floats: Floats, element: str) -> str:
    """Zero, as memory of these elements has it."""
    return floats.number(0.0)[0] if element == floats.type else floats.bit_pattern(0, False)


@dataclass(frozen=True)
class Own:
    """The arrays of an invocation's own, and what WGSL calls these and all other buffers.

    Scratch memory is ``scratch[slot][invocation]``, so that neighbours read neighbours; its
    elements are floats if all that it holds are, and words otherwise.
    """

    names: Mapping[Buffer, str]
    private: tuple[Buffer, ...]
    everywhere: frozenset[Buffer]
    """The private arrays that routines use, which are variables of the whole module."""
    starts: dict[Buffer, int]
    """The first slots of those in scratch memory."""
    floats: Floats

    @classmethod
    def placed(
        cls, names: Mapping[Buffer, str], kernels: Sequence[KernelIR], floats: Floats
    ) -> Own:
        """The small ones in variables, unless they outlast a dispatch of several kernels."""
        own = [b for b in names if b.space == "own"]
        private, everywhere = set[Buffer](), frozenset[Buffer]()
        if own and len(kernels) == 1:
            at_run_time, everywhere = _uses(kernels[0])
            fixed = [b for b in own if b not in at_run_time]
            private = {*_smallest(fixed, KNOWN), *everywhere}
            private.update(_smallest([b for b in own if b not in private], PRIVATE))
        starts: dict[Buffer, int] = {}
        slots = 0
        for b in own:
            if b not in private:
                starts[b], slots = slots, slots + b.size
        return cls(names, tuple(b for b in own if b in private), everywhere, starts, floats)

    @property
    def slots(self) -> int:
        """The numbers of an invocation in scratch memory."""
        return sum(b.size for b in self.starts)

    @property
    def element(self) -> str:
        """The type of what stands in scratch memory."""
        return element_of(self.floats, {b.kind for b in self.starts} <= {"f"})

    def constants(self, used: Collection[Buffer]) -> Iterator[str]:
        """The lines that say where in scratch memory the arrays in use stand."""
        for b, start in self.starts.items():
            if b in used:
                numbers = f"{b.size:,} numbers" if b.size > 1 else "1 number"
                yield f"const {self.names[b]} = {start}u;  // {numbers} of scratch"

    def variables(self, everywhere: bool) -> Iterator[str]:
        """The lines that declare the other arrays: those of the whole module, or the rest."""
        for b in self.private:
            if (b in self.everywhere) == everywhere:
                space = "<private>" * everywhere
                yield f"var{space} {self.names[b]}: array<{self.floats.types[b.kind]}, {b.size}>;"

    def place(self, b: Buffer, index: Text, component: str = "") -> str:
        """The place at an index of an array, or of any other buffer, to be assigned to.

        Of vectors it is all of one, or a ``component``.
        """
        name = self.names[b]
        if b not in self.starts:
            return f"{name}[{index[0]}]{component}"
        slot = name if index[0] == "0u" else f"({name} + {wrapped(index, PRODUCT)})"
        return f"scratch[{slot} * stride + cell]"

    def loaded(self, b: Buffer, index: Text, component: str = "", *, agreed: bool = False) -> str:
        """The number at an index; the same for all of a group, if it is ``agreed``."""
        place = self.place(b, index, component)
        if b.atomic:
            return f"atomicLoad(&{place})"
        if agreed:
            return f"workgroupUniformLoad(&{place})"
        if b.floats:
            return _CONVERTED[FLOATS[b.floats].type, self.floats.type].format(place)
        return loaded_as(self.element, b.kind).format(place) if b in self.starts else place

    def stored(self, b: Buffer, value: str) -> str:
        """A number as the array has it."""
        return stored_as(self.element, b.kind).format(value) if b in self.starts else value

    def filled(self, b: Buffer) -> str:
        """The line that makes all numbers of an array 0."""
        if b not in self.starts:
            return f"{self.names[b]} = array<{self.floats.types[b.kind]}, {b.size}>();"
        zero = zero_of(self.floats, self.element)
        place = self.place(b, ("z", PRODUCT))
        return f"for (var z = 0u; z < {b.size}u; z += 1u) {{ {place} = {zero}; }}"


def _uses(kernel: KernelIR) -> tuple[set[Buffer], frozenset[Buffer]]:
    """The buffers that have an index which is known at run time only, and those of routines."""
    nodes, at_run_time, everywhere = kernel.graph.nodes, set[Buffer](), set[Buffer]()
    routines = {r.scope for r in kernel.main.items if isinstance(r, Routine)}
    for scope, item in kernel.items():
        for b, index in accesses(kernel, item):
            if index is not None and nodes[index][0] is not WORD:
                at_run_time.add(b)
            if b.space == "own" and not routines.isdisjoint(scope.enclosing()):
                everywhere.add(b)
    return at_run_time, frozenset(everywhere)


def _smallest(buffers: Sequence[Buffer], most: int) -> list[Buffer]:
    """The smallest of some, of so many numbers together."""
    smallest, numbers = list[Buffer](), 0
    for b in sorted(buffers, key=lambda b: b.size):
        if numbers + b.size <= most:
            smallest.append(b)
            numbers += b.size
    return smallest


@dataclass(frozen=True)
class Together:
    """The stores of all numbers of a vector, in their order."""

    buffer: Buffer
    vector: Vector
    values: tuple[int, ...]


class Vectors:
    """The accesses of a kernel to buffers of vectors.

    ``first`` says of each number that is read together with others which of them is read first.
    """

    def __init__(self, kernel: KernelIR, uses: Uses) -> None:
        self._kernel, self._uses = kernel, uses
        self.indices: set[int] = set()
        """Indices of these buffers, and where vectors begin: nobody needs their values."""
        self.first: dict[int, int] = {}
        if any(b.vector > 1 for b in kernel.buffers):
            self._scope(kernel.main)

    def of(self, buffer: Buffer, index: int) -> tuple[Vector, int]:
        """The vector of an index, and which component of it."""
        location = vector_of(self._kernel.graph, index, buffer.vector)
        assert location is not None, f"the index {index} is of no known number of a vector"
        return location[0], location[1]

    def joined(self, items: Iterable[int | Statement]) -> Iterator[int | Statement | Together]:
        """The items, stores of all numbers of a vector as one."""
        waiting: list[Store] = []
        for item in items:
            if isinstance(item, int):
                yield item
                continue
            if not self._goes_on(waiting, item):
                yield from waiting
                waiting = []
            if isinstance(item, Store) and self._goes_on(waiting, item):
                waiting.append(item)
                if len(waiting) == item.buffer.vector:
                    vector, _ = self.of(item.buffer, item.index)
                    yield Together(item.buffer, vector, tuple(s.value for s in waiting))
                    waiting = []
            else:
                yield item
        yield from waiting

    def _goes_on(self, waiting: Sequence[Store], item: Statement) -> bool:
        """Whether a store is that of the next number of a vector."""
        if not isinstance(item, Store) or item.add or item.buffer.vector == 1:
            return False
        buffer = item.buffer
        vector, component = self.of(buffer, item.index)
        same = [s.buffer is buffer and self.of(buffer, s.index)[0] == vector for s in waiting]
        return all(same) and component == len(waiting)

    def _scope(self, scope: Scope) -> None:
        """Find what is read together: nodes of a scope, or loads with no other statement between.

        A run of loads ends where something else than a load stands.
        """
        loads, reads = defaultdict[object, list[int]](list), defaultdict[object, list[int]](list)
        for item in scope.items:
            for buffer, index in accesses(self._kernel, item):
                if buffer.vector > 1 and index is not None:
                    self._note(buffer, index, item, reads if isinstance(item, int) else loads)
            if not isinstance(item, int | Load) or (isinstance(item, Load) and item.agreed):
                self._join(loads.values())
                loads.clear()
                for inner in scopes_of(item):
                    self._scope(inner)
        self._join([*loads.values(), *reads.values()])

    def _note(
        self, buffer: Buffer, index: int, item: int | Statement, groups: dict[object, list[int]]
    ) -> None:
        graph = self._kernel.graph
        self.indices |= {index, *_starts(graph, index, buffer.vector)}
        result = item if isinstance(item, int) else item.result if isinstance(item, Load) else None
        if result is not None and result in self._uses.counts:
            groups[buffer, self.of(buffer, index)[0]].append(result)

    def _join(self, groups: Iterable[Sequence[int]]) -> None:
        for together in groups:
            if len(together) > 1:
                self.first.update((i, together[0]) for i in together)


def _starts(graph: Graph, index: int, width: int) -> Iterator[int]:
    """The arguments of an index that are operations: where its vector begins."""
    return (
        a for a in graph.args(index) if graph.args(a) and vector_of(graph, a, width) is not None
    )
