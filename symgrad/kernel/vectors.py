"""Indices of buffers of vectors: which vector, and which number of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD, Graph


class Vector(NamedTuple):
    """Numbers that stand together: the vector number ``node``, or, if it is None, ``number``."""

    node: int | None
    number: int


def vector_of(graph: Graph, index: int, width: int) -> tuple[Vector, int] | None:
    """The vector of an index, and the number's place in it; None if the index does not tell.

    ``width`` are the numbers of a vector.

    Example:
        >>> from symgrad.kernel.language import KernelIR
        >>> from symgrad.kernel.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> vector_of(k.graph, k.offset(k.cell, 4, 3), 4) == (Vector(k.cell, 0), 3)
        True
        >>> vector_of(k.graph, k.word(7), 4)
        (Vector(node=None, number=1), 3)
    """
    op, *args = graph.nodes[index]
    if op is WORD:
        return Vector(None, args[0] // width), args[0] % width
    if op is ops.word_add:
        for base, c in _orders(args):
            word, *payload = graph.nodes[c]
            node = _factor(graph, base, width)
            if node is not None and word is WORD and payload[0] < width:
                return Vector(node, 0), payload[0]
    node = _factor(graph, index, width)
    return None if node is None else (Vector(node, 0), 0)


class InRow(NamedTuple):
    """The vector at column ``node`` + ``first`` of the row ``row``, or ``number`` if it is None."""

    row: int | None
    number: int
    node: int
    first: int


def in_row(graph: Graph, i: int, row: int) -> InRow | None:
    """The row and the column of a vector, if its number i tells; a row has so many.

    Example:
        >>> from symgrad.kernel.language import KernelIR
        >>> from symgrad.kernel.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> in_row(k.graph, k.shifted(k.cell, 35), 16) == InRow(None, 2, k.cell, 3)
        True
    """
    op, *args = graph.nodes[i]
    if op is ops.word_add:
        for a, b in _orders(args):
            word, *payload = graph.nodes[b]
            if word is WORD:
                return InRow(None, payload[0] // row, a, payload[0] % row)
            node = _factor(graph, a, row)
            if node is not None:
                return InRow(node, 0, b, 0)
    return None if op is WORD or op is ops.word_mul else InRow(None, 0, i, 0)


def _factor(graph: Graph, i: int, width: int) -> int | None:
    """The factor of the width in a word, if it is such a product."""
    op, *args = graph.nodes[i]
    if op is ops.word_mul:
        for node, times in _orders(args):
            if graph.nodes[times] == (WORD, width):
                return node
    return None


def _orders(args: list[int]) -> Iterator[tuple[int, int]]:
    a, b = args
    yield a, b
    yield b, a
