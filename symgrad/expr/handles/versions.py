"""Arrays as expressions: writing to one gives a new version of it, and loops over them are pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from symgrad.errors import InputError
from symgrad.expr.graph.arrays import PUT, PUTS, READS, ZEROS, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import WORD, Graph, Handle
from symgrad.expr.handles.counter import index
from symgrad.expr.handles.expression import WRAP, Expr, operand
from symgrad.expr.handles.integers import Word


class Array(Handle):
    """An array of floats, or of words, of a length that is known."""

    __slots__ = ()
    type: ClassVar[str] = "F"
    build = Expr.build

    def __len__(self) -> int:
        return length(self.graph, self.id)

    def __getitem__(self, i: Any) -> Any:
        return READS[self.type](self, self._index(i))

    def put(self, i: Any, value: Any) -> Any:
        """The array with another element i."""
        return PUTS[self.type](self, self._index(i), value)

    def _index(self, i: Any) -> Word:
        return Word(self.graph, index(self.graph, i))


class WordArray(Array):
    """An array of words."""

    __slots__ = ()
    type: ClassVar[str] = "W"


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
    """The array of these numbers."""
    made, nothing = zeros(graph, len(values)).id, graph.constant(0.0)
    for i, value in enumerate(values):
        element = operand(graph, value, "f")
        if element != nothing:
            made = graph.add(PUT, made, graph.intern((WORD, i)), element)
    return Array(graph, made)
