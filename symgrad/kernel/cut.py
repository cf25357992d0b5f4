"""Where a long kernel is cut, into shaders and into functions, so that it compiles in time.

Compilers are superlinear in the length of a function and in the number of memory accesses of a
shader; but every value that crosses a cut costs as well, as a private variable or as an access to
scratch memory. Both were measured on llvmpipe. An n-th load or store costs about 10 us * n, so 256
of them take 0.7 s and 512 take 2.6 s; s statements in one function cost 0.2 ms * s + 1e-8 s * s**2;
a value that crosses costs 2 ms. So a cut is made at the place with the fewest values alive, once
they are few enough for the growth that it saves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from symgrad.expr.node import INPUT, Graph


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


@dataclass(frozen=True, slots=True)
class Reads:
    """What a statement needs: the bound nodes and inputs it reads, and its hard operations."""

    names: tuple[int, ...]
    transcendentals: int


def reads_of(graph: Graph, i: int, bound: frozenset[int]) -> Reads:
    """What the statement of node i needs, each name once."""
    nodes = graph.nodes
    found: dict[int, None] = {}
    hard = int(nodes[i][0].transcendental)
    stack = list(nodes[i][1:])
    while stack:
        a = stack.pop()
        if a in bound or nodes[a][0] is INPUT:
            found[a] = None
        elif nodes[a][0].arity:
            hard += nodes[a][0].transcendental
            stack.extend(nodes[a][1:])
    return Reads(tuple(found), hard)


class Cutter:
    """The statements of a kernel, what they read, and how many values are alive after each."""

    def __init__(
        self, graph: Graph, statements: Sequence[int], bound: frozenset[int],
        stores: dict[int, int], limits: Limits,
    ) -> None:  # fmt: skip
        self.graph, self.statements, self.stores, self.limits = graph, statements, stores, limits
        self.reads = {i: reads_of(graph, i, bound) for i in statements}
        self.alive = self._alive_after()

    def _alive_after(self) -> list[int]:
        last = {a: k for k, i in enumerate(self.statements) for a in self.reads[i].names}
        dying = [0] * len(self.statements)
        for a, k in last.items():
            if self.graph.nodes[a][0].arity:
                dying[k] += 1
        alive: list[int] = []
        count = 0
        for k, i in enumerate(self.statements):
            count += (i in last) - dying[k]
            alive.append(count)
        return alive

    def shaders(self) -> list[list[int]]:
        """The statements of each shader."""
        groups: list[list[int]] = []
        start = 0
        while start < len(self.statements):
            end = self._end(start, self._shader_sizes(start), self.limits.crossing, 1)
            groups.append(list(self.statements[start:end]))
            start = end
        return groups

    def functions(self, start: int, end: int) -> Iterator[tuple[int, ...]]:
        """The statements from ``start`` to ``end``, which are one shader, in functions."""
        length = self.limits.function
        while start < end:
            sizes = ((k + 1) / length for k in range(end - start))
            stop = self._end(start, sizes, self.limits.private, 2)
            yield tuple(self.statements[start:stop])
            start = stop

    def _end(self, start: int, sizes: Iterator[float], crossing: int, growth: int) -> int:
        """Where the piece that begins at ``start`` ends.

        That is where the fewest values are alive in what it may hold, once they are few enough.
        """
        best = 0
        k = start
        for k, size in enumerate(sizes, start):
            if size >= 0.6 and (not best or self.alive[k] <= self.alive[best - 1]):
                best = k + 1
            if size >= 1 and self.alive[best - 1] <= crossing * size**growth:
                return best
        return k + 1

    def _shader_sizes(self, start: int) -> Iterator[float]:
        """How full the shader is after each statement, in terms of its tightest limit."""
        limits = self.limits
        seen: set[int] = set()
        hard = 0
        accesses = 0
        for k in range(start, len(self.statements)):
            i = self.statements[k]
            for a in self.reads[i].names:
                if a not in seen:
                    seen.add(a)
                    accesses += 1
            seen.add(i)
            hard += self.reads[i].transcendentals
            accesses += self.stores.get(i, 0)
            yield max(
                (k - start + 1) / limits.statements,
                hard / limits.transcendentals,
                accesses / limits.accesses,
            )
