"""Reads and writes of buffers: one number, or the vector that it is a component of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from symgrad.kernel.language.statements import Buffer, Fill, Load, Read, Store
from symgrad.wgsl.printing.analysis import Own, Together, Vectors
from symgrad.wgsl.printing.operations import PRIMARY
from symgrad.wgsl.printing.records import Addresses
from symgrad.wgsl.printing.values import Values

_KEPT: Final = re.compile(r"(\w+)_kept(_\d+)?$")
"""The names of arrays of what a carry was in each iteration."""


class Memory:
    """The lines that read and write the buffers of a kernel."""

    def __init__(self, values: Values, own: Own, vectors: Vectors) -> None:
        self._values, self._own, self._vectors = values, own, vectors
        self._addresses = Addresses(values, vectors)
        self._names: dict[int, str] = {}
        """Names of the vectors of numbers that are read together."""

    # reads ---------------------------------------------------------------------------------------

    def loaded(self, s: Load) -> str:
        """The text of what a statement loads."""
        index = self._addresses.index(s.buffer, s.index)
        return self._own.loaded(s.buffer, *index, agreed=s.agreed)

    def load(self, s: Load) -> Iterator[str]:
        """Writes a load; what a loop has kept of a carry is called as the carry."""
        values, result = self._values, s.result
        if result not in values.uses.counts:
            return
        if result in self._vectors.first:
            yield from self.component(result, s.buffer, s.index)
            return
        text = self.loaded(s)
        if carry := _KEPT.match(s.buffer.name):
            values.suggest(result, carry[1])
        yield values.line(f"{values.declare(result)} = {text};", result)

    def read(self, i: int) -> Iterator[str]:
        """A node that reads."""
        op, index = self._values.graph.nodes[i]
        assert isinstance(op, Read), "all others are written each for itself"
        text = self._own.loaded(op.buffer, *self._addresses.index(op.buffer, index))
        if line := self._values.write(i, (text, PRIMARY)):
            yield line

    def component(self, i: int, buffer: Buffer, index: int | None) -> Iterator[str]:
        """One of the numbers that are read as a vector, with the vector itself for the first."""
        values, first = self._values, self._vectors.first[i]
        assert index is not None, "all of a buffer is no vector"
        vector, component = self._vectors.of(buffer, index)
        if first == i:
            kind = "pair" if buffer.vector == 2 else "quad"
            self._names[i] = values.free(f"{self._own.names[buffer]}_{kind}")
            text = self._own.place(buffer, self._addresses.of_vector(buffer, vector))
            yield values.line(f"let {self._names[i]} = {text};", i)
        number = self._names[first] + values.floats.component(component)
        if values.uses.is_named(i) or i in values.shared:
            yield values.line(f"{values.declare(i)} = {number};", i)
        else:
            values.texts[i] = number, PRIMARY

    def is_moved(self, s: Load, following: object) -> bool:
        """Whether what stands behind a load stores the number, which nobody else needs."""
        if not isinstance(following, Store) or s.agreed or s.result in self._vectors.first:
            return False
        return following.value == s.result and self._values.uses.counts[s.result] == 1

    # writes --------------------------------------------------------------------------------------

    def store(self, s: Store) -> Iterator[str]:
        """The line of a store."""
        values, own = self._values, self._own
        value, index = values.text(s.value), self._addresses.index(s.buffer, s.index)
        place = own.place(s.buffer, *index)
        if s.buffer.atomic:
            text = f"atomicAdd(&{place}, {value});"
        elif s.add and own.stored(s.buffer, "") == "" and values.has_sums(s.buffer.kind):
            text = f"{place} += {value};"
        else:
            if s.add:
                value = values.sum(s.buffer.kind, own.loaded(s.buffer, *index), value)
            text = f"{place} = {own.stored(s.buffer, value)};"
        yield values.assigned(text, s.value)

    def store_vector(self, s: Together) -> Iterator[str]:
        """The line of the stores of all numbers of a vector."""
        place = self._own.place(s.buffer, self._addresses.of_vector(s.buffer, s.vector))
        yield f"{self._values.indent}{place} = {self._vector(s)};"

    def _vector(self, s: Together) -> str:
        """Numbers as a vector: the one that was read, if they are all of one."""
        whole, values = self._names.get(s.values[0]), [self._values.text(v) for v in s.values]
        floats = self._values.floats
        components = map(floats.component, range(s.buffer.vector))
        if whole and values == [f"{whole}{c}" for c in components]:
            return whole
        listed = "" if set(values) == {floats.number(0.0)[0]} else ", ".join(values)
        return f"{floats.vector(s.buffer.vector, floats.types[s.buffer.kind])}({listed})"

    def fill(self, s: Fill) -> Iterator[str]:
        """The line that makes all numbers of an array 0."""
        yield self._values.indent + self._own.filled(s.buffer)
