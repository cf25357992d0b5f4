"""Intervals of the words of a kernel that is being written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD, Op
from symgrad.kernel.language import KernelIR

ALL: Final = (0, 2**32 - 1)
"""The bounds of any word."""

Interval = tuple[int, int]
"""The smallest and the largest that a word can be."""


class Bounds:
    """Intervals of words. Of a loop it is told when its body is begun, before there is a `For`.

    Of what the host gives, some intervals may be ``known``.

    Example:
        >>> from symgrad.kernel.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> Bounds(k).of(k.offset(k.local, 5, 1))
        (1, 16)
    """

    def __init__(self, kernel: KernelIR, known: Mapping[int, Interval] | None = None) -> None:
        self.kernel = kernel
        self._known: dict[int, Interval] = {kernel.local: (0, kernel.target.width - 1)}
        self._known |= known or {}
        self._starts: dict[int, tuple[int, int]] = {}
        """The least value of a loop's counter, as a node, and how far it goes beyond at most."""

    def begin(self, k: int, lo: int, hi: int, most: int | None) -> None:
        """A loop: its counter, its bounds, and its iterations at most."""
        (first, latest), (_, end) = self.of(lo), self.of(hi)
        iterations = end - first if most is None else min(most, end - first)
        self._known[k] = first, max(first, min(end, latest + iterations) - 1)
        self._starts[k] = lo, max(0, iterations - 1)

    def of(self, i: int) -> Interval:
        """The smallest and the largest number that a word can be."""
        interval = self._known.get(i)
        if interval is None:
            interval = self._known[i] = self._computed(i)
        return interval

    def _computed(self, i: int) -> Interval:
        node, args = self.kernel.graph.nodes[i], self.kernel.graph.args(i)
        if node[0] is WORD:
            return node[1], node[1]
        if node[0] is ops.word_sub:
            lo, iterations = self._starts.get(args[0], (None, 0))
            if lo == args[1]:
                return 0, iterations
        rule = _RULES.get(node[0])
        if rule is None:
            return ALL
        low, high = rule(*map(self.of, args))
        return (low, high) if low >= ALL[0] and high <= ALL[1] else ALL


def _quotient(a: Interval, b: Interval) -> Interval:
    return (a[0] // b[1], a[1] // b[0]) if b[0] else ALL


_RULES: Final[dict[Op, Callable[..., Interval]]] = {
    ops.word_add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ops.word_sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ops.word_mul: lambda a, b: (a[0] * b[0], a[1] * b[1]),
    ops.word_div: _quotient,
    ops.word_min: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ops.word_where: lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    ops.word_and: lambda a, b: (0, min(a[1], b[1])),
}
"""The bounds of a result, from those of the arguments; beyond those of words it may be any."""
