"""What the items of a kernel need, which of it varies, and what is written only where needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from symgrad.kernel.language import (
    For,
    If,
    Kernel,
    Load,
    Scope,
    Statement,
    Store,
    everything,
    operands,
    results_of,
    scopes_of,
)
from symgrad.kernel.uniform import varying
from symgrad.llvm.indices import Indices
from symgrad.llvm.instruction import Shape, lone_products, uses_of

Item = int | Statement


class Needs:
    """A kernel, and who needs what, for vectors of a shape, or one invocation: 1 lane.

    ``products`` are fused with the sum that needs them, as everywhere. ``lazy`` are values that are
    written where they are first needed: numbers that are read, and indices.
    """

    def __init__(self, kernel: Kernel, shape: Shape) -> None:
        self.kernel, self.graph, self.shape = kernel, kernel.graph, shape
        self.scalar = Shape(shape.dtype, 1, shape.fused)
        differing = varying(kernel)
        self.varying = differing if shape.lanes > 1 else frozenset[int]()
        self.items: list[Item] = everything(kernel.main.items)
        self.nodes = [item for item in self.items if isinstance(item, int)]
        self.statements = [item for item in self.items if not isinstance(item, int)]
        arena = self.graph.nodes
        words = [i for i in self.nodes if arena[i][0].result == "u"]
        self.indices = Indices(kernel, words, differing)
        self.special = {kernel.cell, kernel.count, kernel.local, kernel.group, kernel.groups}
        self.known = self.special.union(i for i, n in enumerate(arena) if n[0].constant)
        """What needs no memory: constants, and what an invocation is."""
        kept = [a for s in self.statements for a in self.values(s)]
        self.uses = uses_of(self.graph, self.nodes, kept)
        """How often a value is an argument of anything."""
        found = lone_products(self.graph, self.nodes, self.uses)
        self.products = found if shape.fused else frozenset[int]()
        reading = {b.read for b in kernel.buffers}
        self.reads = [i for i in self.nodes if arena[i][0] in reading]
        self.lazy = self._lazy()
        self.is_straight = not any(isinstance(s, For | If) for s in self.statements)
        """Whether there are neither loops nor branches."""
        self.wanted: defaultdict[Statement, list[int]] = defaultdict(list)
        """What is to be read before a statement, as its scopes need it."""
        if not self.is_straight:
            factors = (i for i in self.products if not set(self.reads).isdisjoint(arena[i][1:]))
            self._reads = {*self.reads, *factors}
            self._survey(kernel.main, [])

    def needs(self, i: int) -> Sequence[int]:
        """The values that the instructions of node i take: of a fused product, its factors."""
        args = self.graph.nodes[i][1:]
        if self.products.isdisjoint(args):
            return args
        return [b for a in args for b in (self.graph.args(a) if a in self.products else (a,))]

    def values(self, statement: Statement) -> Sequence[int]:
        """What a statement needs, and what its scopes yield."""
        if isinstance(statement, Store):
            return statement.index, statement.value
        found = [*operands(self.kernel, statement)]
        if isinstance(statement, For):
            found += (
                statement.yields
                if statement.test is None
                else ([*statement.yields, statement.test])
            )
        elif isinstance(statement, If):
            found += (a for yields in statement.yields for a in yields)
        return found

    def _lazy(self) -> set[int]:
        """Reads, and words that are known as steps from lane to lane, and are indices only."""
        arena, valued, found = self.graph.nodes, self._valued(), set(self.reads)
        takers = {op for op in {arena[i][0] for i in self.nodes} if "u" in op.signature[: op.arity]}
        for i in sorted([i for i in self.nodes if arena[i][0] in takers], reverse=True):
            is_index = arena[i][0].result == "u" and self.indices.step(i) is not None
            if is_index and i not in valued:
                found.add(i)
            elif i not in found:
                valued.update(arena[i][1:])
        return found

    def _valued(self) -> set[int]:
        """What statements need, but for indices."""
        found: set[int] = set()
        for s in self.statements:
            if isinstance(s, Store):
                found.add(s.value)
            elif not isinstance(s, Load):
                found.update(self.values(s))
        return found

    def _survey(self, scope: Scope, path: list[Statement]) -> None:
        """Note the reads of a scope for the statements of their scopes that it is within."""
        nodes, home, reads = self.graph.nodes, self.kernel.home, self._reads
        for item in scope.items:
            if isinstance(item, int):
                for a in self.needs(item) if not reads.isdisjoint(nodes[item][1:]) else ():
                    if a in reads and home[a].depth < len(path):
                        self.wanted[path[home[a].depth]].append(a)
                continue
            here = [*path, item]
            inner = scopes_of(item)
            for a in self.values(item):
                if a in reads and (around := (here if inner else path)[home[a].depth :]):
                    self.wanted[around[0]].append(a)
            for within in inner:
                self._survey(within, here)

    @property
    def counts(self) -> list[str]:
        """The parameters that say how many invocations and groups there are, if anybody asks."""
        asked = self.uses[self.kernel.count] or self.uses[self.kernel.groups]
        return ["i32 %count", "i32 %groups"] if asked else []


def produced(item: Item) -> Sequence[int]:
    """The values that are known behind an item."""
    return (item,) if isinstance(item, int) else results_of(item)
