"""How indices of buffers grow from lane to lane: whether lanes read side by side, or rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD
from symgrad.kernel.language import KernelIR

LINEAR: Final = frozenset({ops.word_add, ops.word_sub, ops.word_mul})
"""What indices are made of."""


class Column(NamedTuple):
    """The index ``row * stride + column``, where the lanes' rows follow one another."""

    row: int
    stride: int
    column: int


class Indices:
    """What is known of the words that a kernel computes, some of which vary among the lanes."""

    def __init__(self, kernel: KernelIR, words: Iterable[int], varying: Collection[int]) -> None:
        self.kernel, self.varying = kernel, varying
        self._steps: dict[int, int | None] = {kernel.cell: 1, kernel.local: 1}
        for i in words:
            if i in varying:
                self._steps[i] = self._grown(i)
        self.column = cache(self._column)
        """The place of an index in rows that lie side by side, if it is in such."""

    def step(self, i: int) -> int | None:
        """By how much a word grows from lane to lane, if that is known and not negative."""
        return self._steps.get(i) if i in self.varying else 0

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
        """A word as another one and a constant."""
        op, *args = self.kernel.graph.nodes[i]
        if op is ops.word_add:
            for base, rest in (args, args[::-1]):
                constant = self._word(rest)
                if constant is not None:
                    return base, constant
        return i, 0
