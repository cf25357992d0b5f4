"""Words of a kernel that differ among lanes: how they grow from one to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD
from symgrad.kernel.language.ir import KernelIR

LINEAR: Final = frozenset({ops.word_add, ops.word_sub, ops.word_mul})
"""Operations that indices are made of."""


class Column(NamedTuple):
    """The index ``row * stride + column``, where the lanes' records follow one another."""

    row: int
    stride: int
    column: int


class Bounded(NamedTuple):
    """The index ``min(word, limit)`` and what is added: the word grows by 1 from lane to lane."""

    word: int
    limit: int
    rest: tuple[int, ...]


class Indices:
    """Facts of the words that a kernel computes, some of which vary among the lanes."""

    def __init__(self, kernel: KernelIR, words: Iterable[int], varying: Collection[int]) -> None:
        self.kernel, self.varying = kernel, varying
        self._steps: dict[int, int | None] = {kernel.cell: 1, kernel.local: 1}
        for i in words:
            if i in varying:
                self._steps[i] = self._grown(i)
        self.column = cache(self._column)
        """The place of an index in records that lie side by side, if it is in such."""

    def step(self, i: int) -> int | None:
        """By how much a word grows from lane to lane, if that is known and not negative."""
        return self._steps.get(i) if i in self.varying else 0

    def bounded(self, i: int) -> Bounded | None:
        """The parts of an index at which lanes are side by side, but for those at its limit."""
        op, *args = self.kernel.graph.nodes[i]
        if op not in (ops.word_min, ops.word_add):
            return None
        for a, other in (args, args[::-1]):
            if a not in self.varying or other in self.varying:
                continue
            if op is ops.word_min:
                return Bounded(a, other, ()) if self.step(a) == 1 else None
            inner = self.bounded(a)
            return inner and Bounded(inner.word, inner.limit, (*inner.rest, other))
        return None

    def dealt_out(self, i: int, lanes: int) -> int | None:
        """The word that is dealt out to lanes in turns, of which each has so many: see `Index`."""
        nodes, local = self.kernel.graph.nodes, self.kernel.local
        op, *args = nodes[i]
        if op is not ops.word_div or self._word(args[1]) != lanes:
            return None
        op, *args = nodes[args[0]]
        if op is not ops.word_sub or args[1] != local or nodes[args[0]][0] is not ops.word_add:
            return None
        _, x, more = nodes[args[0]]
        return x if self._word(more) == lanes - 1 and x not in self.varying else None

    def _grown(self, i: int) -> int | None:
        op, *args = self.kernel.graph.nodes[i]
        if op not in LINEAR:
            return None
        a, b = map(self.step, args)
        if a is None or b is None:
            return None
        if op is ops.word_add:
            return a + b
        if op is ops.word_sub:
            return a - b if a >= b else None
        x, y = map(self._word, args)
        return a * y if y is not None else b * x if x is not None else None

    def _word(self, i: int) -> int | None:
        """The value of a word that is a constant below 2**31: none that stands for a negative."""
        op, *payload = self.kernel.graph.nodes[i]
        return payload[0] if op is WORD and payload[0] < 2**31 else None

    def _column(self, i: int) -> Column | None:
        base, column = self._split(i)
        if self.step(i) == 1 and self.step(base) == 1:
            return Column(i, 1, 0)
        op, *args = self.kernel.graph.nodes[base]
        if op is ops.word_mul:
            for row, scale in (args, args[::-1]):
                stride = self._word(scale)
                if stride is not None and self.step(row) == 1 and column < stride:
                    return Column(row, stride, column)
        return None

    def _split(self, i: int) -> tuple[int, int]:
        """The base of an index and its constant offset."""
        op, *args = self.kernel.graph.nodes[i]
        if op is ops.word_add:
            for base, rest in (args, args[::-1]):
                constant = self._word(rest)
                if constant is not None:
                    return base, constant
        return i, 0
