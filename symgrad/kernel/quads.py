"""Indices of buffers whose numbers stand in fours: which four, and which number of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD, Graph


class Quad(NamedTuple):
    """Four numbers that stand together: the quad number ``node``, or, if it is None, ``number``."""

    node: int | None
    number: int


def quad_of(graph: Graph, index: int) -> tuple[Quad, int] | None:
    """The quad of an index, and the number's place in it; None if the index does not tell.

    Example:
        >>> from symgrad.kernel.language import Kernel
        >>> from symgrad.kernel.target import InStep
        >>> k = Kernel(InStep(4))
        >>> quad_of(k.graph, k.offset(k.cell, 4, 3)) == (Quad(k.cell, 0), 3)
        True
        >>> quad_of(k.graph, k.word(7))
        (Quad(node=None, number=1), 3)
    """
    op, *args = graph.nodes[index]
    if op is WORD:
        return Quad(None, args[0] // 4), args[0] % 4
    if op is ops.word_add:
        for base, c in _orders(args):
            word, *payload = graph.nodes[c]
            node = _times_four(graph, base)
            if node is not None and word is WORD and payload[0] < 4:
                return Quad(node, 0), payload[0]
    node = _times_four(graph, index)
    return None if node is None else (Quad(node, 0), 0)


def _times_four(graph: Graph, i: int) -> int | None:
    """What is multiplied by 4, if a word is that."""
    op, *args = graph.nodes[i]
    if op is ops.word_mul:
        for node, four in _orders(args):
            if graph.nodes[four] == (WORD, 4):
                return node
    return None


def _orders(args: list[int]) -> Iterator[tuple[int, int]]:
    a, b = args
    yield a, b
    yield b, a
