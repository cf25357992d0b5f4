"""Where a long kernel is cut, into shaders and into functions, so that it compiles in time.

Compilers are superlinear in the length of a function and in the number of memory accesses of a
shader; but every value that crosses a cut costs as well, as a private variable or as an access to
scratch memory. Both were measured on llvmpipe. An n-th load or store costs about 10 us * n, so 256
of them take 0.7 s and 512 take 2.6 s; s statements in one function cost 0.2 ms * s + 1e-8 s * s**2;
a value that crosses costs 2 ms. So a cut is made at the place with the fewest values alive, once
they are few enough for the growth that it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from symgrad.expr.node import INPUT, Graph

LOOK_AHEAD: Final = 4_096
"""Statements that are looked at together, at first, to find where a piece ends."""

Numbers = npt.NDArray[np.int64]

Sizes = Callable[[int, int], np.ndarray]
"""``sizes(start, end)``: how full the piece that begins at ``start`` is after each statement."""


@dataclass(frozen=True)
class Limits:
    """How large a shader may grow before the graph is cut, if few values are alive there."""

    statements: int = 8_000
    transcendentals: int = 500
    accesses: int = 256
    """Loads of inputs and of values from other shaders, and stores of results."""
    crossing: int = 600
    """Values that may cross where a limit is just reached; f times as many at f times the limit."""
    function: int = 4_000
    """Statements in one function."""
    private: int = 15
    """Values that may cross between functions of this length; f**2 times as many at f times it."""


def names_read(
    graph: Graph, order: Iterable[int], bound: frozenset[int]
) -> dict[int, tuple[list[int], int]]:
    """What the statement of each bound node needs: bound nodes and inputs, and hard operations.

    ``order`` are all operations; those that have no name belong to the statement of their only user.
    """
    nodes = graph.nodes
    statements: dict[int, tuple[list[int], int]] = {}
    folded: dict[int, tuple[list[int], int]] = {}
    for i in order:
        op, *arguments = nodes[i]
        names: list[int] = []
        hard = int(op.transcendental)
        for a in arguments:
            if a in folded:
                inner, more = folded.pop(a)
                names += inner
                hard += more
            elif nodes[a][0].arity or nodes[a][0] is INPUT:
                names.append(a)
        (statements if i in bound else folded)[i] = names, hard
    return statements


class Cutter:
    """The statements of a kernel, what they read, and how many values are alive after each.

    ``order`` are the operations of the kernel, ``stores`` says how often a value is stored.
    """

    def __init__(
        self, graph: Graph, order: Sequence[int], bound: frozenset[int],
        stores: Mapping[int, int], limits: Limits,
    ) -> None:  # fmt: skip
        self.graph, self.limits = graph, limits
        found = names_read(graph, order, bound)
        self.statements = list(found)
        self.reads = {i: names for i, (names, _) in found.items()}
        self.alive = self._alive_after()
        self._before, self._starts = self._met_before()
        self._hard = _sums(hard for _, hard in found.values())
        self._stored = _sums(stores.get(i, 0) for i in found)

    def _alive_after(self) -> Numbers:
        last = {a: k for k, names in enumerate(self.reads.values()) for a in names}
        change = np.zeros(len(self.statements), np.int64)
        for k, i in enumerate(self.statements):
            if i in last:
                change[k] += 1
                change[last[i]] -= 1
        return np.cumsum(change)

    def _met_before(self) -> tuple[Numbers, Numbers]:
        """For every name that is read, where it was read or made before: -1 is nowhere.

        The second array says where each statement's names begin in the first.
        """
        met: dict[int, int] = {}
        before: list[int] = []
        for k, (i, names) in enumerate(self.reads.items()):
            for a in names:
                before.append(met.get(a, -1))
                met[a] = k
            met[i] = k
        return np.array(before, np.int64), _sums(map(len, self.reads.values()))

    def shaders(self) -> list[list[int]]:
        """The statements of each shader."""
        groups: list[list[int]] = []
        start, end = 0, len(self.statements)
        while start < end:
            stop = self._end(start, end, self._shader_sizes, self.limits.crossing, 1)
            groups.append(self.statements[start:stop])
            start = stop
        return groups

    def functions(self, start: int, end: int) -> Iterator[tuple[int, ...]]:
        """The statements from ``start`` to ``end``, which are one shader, in functions."""
        while start < end:
            stop = self._end(start, end, self._function_sizes, self.limits.private, 2)
            yield tuple(self.statements[start:stop])
            start = stop

    def _end(self, start: int, end: int, sizes: Sizes, crossing: int, growth: int) -> int:
        """Where the piece that begins at ``start`` ends: at ``end``, if nowhere before.

        That is where the fewest values are alive in what it may hold, once they are few enough.
        """
        ahead = LOOK_AHEAD
        while start + ahead < end:
            found = self._cut(start, sizes(start, start + ahead), crossing, growth)
            if found:
                return found
            ahead *= 2
        return self._cut(start, sizes(start, end), crossing, growth) or end

    def _cut(self, start: int, sizes: np.ndarray, crossing: int, growth: int) -> int:
        """The end of a piece that gets as full as ``sizes`` say; 0 if it goes on behind them."""
        first = int(np.searchsorted(sizes, 0.6))
        alive = self.alive[start + first : start + len(sizes)]
        sizes = sizes[first:]
        fewest = np.minimum.accumulate(alive)
        few_enough = (sizes >= 1) & (fewest <= crossing * sizes**growth)
        if not few_enough.any():
            return 0
        last = int(np.argmax(few_enough))
        return start + first + last + 1 - int(np.argmin(alive[last::-1]))

    def _shader_sizes(self, start: int, end: int) -> np.ndarray:
        """How full a shader is after each statement, in terms of its tightest limit."""
        limits, ends = self.limits, slice(start + 1, end + 1)
        names = self._starts[ends] - self._starts[start]
        new = _sums(self._before[self._starts[start] : self._starts[end]] < start)
        accesses = new[names] + self._stored[ends] - self._stored[start]
        statements = np.arange(1, end - start + 1) / limits.statements
        hard = (self._hard[ends] - self._hard[start]) / limits.transcendentals
        return np.maximum(statements, np.maximum(hard, accesses / limits.accesses))

    def _function_sizes(self, start: int, end: int) -> np.ndarray:
        """How full a function is after each statement."""
        return np.arange(1, end - start + 1) / self.limits.function


def _sums(values: Iterable[int] | np.ndarray) -> Numbers:
    """0, and the sums of the first, the first two, ... values."""
    terms = values if isinstance(values, np.ndarray) else np.fromiter(values, np.int64)
    return np.concatenate([[0], np.cumsum(terms, dtype=np.int64)])
