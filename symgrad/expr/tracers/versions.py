"""Arrays as expressions: writing to one gives a new version of it, and loops over them are pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from symgrad.errors import InputError
from symgrad.expr.graph.arrays import EMPTY_W, PUT, PUTS, READS, ZEROS, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import WORD, Graph, Handle
from symgrad.expr.tracers.counter import index
from symgrad.expr.tracers.expression import WRAP, Expr, as_float, lift, operand
from symgrad.expr.tracers.integers import SignedWord, Word, is_typed, kind_of


class Array(Handle):
    """An array of floats, or of words, of a length that is known."""

    __slots__ = ()
    type: ClassVar[str] = "F"
    build = Expr.build

    def __len__(self) -> int:
        return length(self.graph, self.id)

    def __getitem__(self, i: Any) -> Any:
        return READS[self.type](self, self._index(i))

    def element(self, value: Any) -> Any:
        """A number as an element of it; None if it is none."""
        return as_float(lift(self.graph, value))

    def put(self, i: Any, value: Any) -> Any:
        """The array with another element i."""
        return PUTS[self.type](self, self._index(i), value)

    def _index(self, i: Any) -> Word:
        return Word(self.graph, index(self.graph, i))


class WordArray(Array):
    """An array of words, which are unsigned integers."""

    __slots__ = ()
    type: ClassVar[str] = "W"
    kind: ClassVar[type[Word]] = Word
    """What its elements are."""

    def __getitem__(self, i: Any) -> Any:
        return self.kind(self.graph, super().__getitem__(i).id)

    def element(self, value: Any) -> Any:
        """An integer as an element of it; None if it is a real number."""
        return self.kind.of(self.graph, 0).same(value)

    def put(self, i: Any, value: Any) -> Any:
        """The array with another element i."""
        return type(self)(self.graph, super().put(i, value).id)


class SignedArray(WordArray):
    """An array of words, which are signed integers."""

    __slots__ = ()
    kind: ClassVar[type[Word]] = SignedWord


OF_KIND: Final[dict[type[Word], type[WordArray]]] = {Word: WordArray, SignedWord: SignedArray}
"""The arrays whose elements are integers of a type."""


class Results(Handle):
    """All results of a loop or a choice together, of which a `Pick` is one."""

    __slots__ = ()
    build = Expr.build


WRAP.update({"F": Array, "W": WordArray, "t": Results})


def zeros(graph: Graph, n: int) -> Array:
    """An array of n zeros."""
    if n < 1:
        raise InputError(located(f"an array has at least one element, not {n}"))
    return Array(graph, graph.intern((ZEROS, n)))


def array_of(graph: Graph, values: Sequence[Any]) -> Array:
    """The array of these numbers: of integers, if all are integers of one type."""
    first = next((v for v in values if is_typed(v)), None)
    if first is not None:
        kind = kind_of(first)
        zero = kind.of(graph, 0)
        same = [zero.same(v) for v in values]
        integers = [w for w in same if w is not None]
        if len(integers) == len(values):
            empty = OF_KIND[kind](graph, graph.intern((EMPTY_W, len(values))))
            return functools.reduce(lambda a, iv: a.put(*iv), enumerate(integers), empty)
    array, nothing = zeros(graph, len(values)).id, graph.constant(0.0)
    for i, value in enumerate(values):
        element = operand(graph, value, "f")
        if element != nothing:
            array = graph.add(PUT, array, graph.intern((WORD, i)), element)
    return Array(graph, array)
