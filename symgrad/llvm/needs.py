"""What the items of a kernel need, which of it varies, and what is written only where needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from symgrad.kernel.language import (
    VALUES,
    For,
    If,
    Kernel,
    Load,
    Read,
    Scope,
    Statement,
    Store,
    operands,
    results_of,
    scopes_of,
)
from symgrad.kernel.uniform import varying
from symgrad.llvm.indices import Indices
from symgrad.llvm.instruction import Shape, lone_products

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
        self.indices = Indices(kernel, differing)
        self.special = {kernel.cell, kernel.count, kernel.local, kernel.group, kernel.groups}
        self.items: list[Item] = [item for _, item in kernel.items()]
        self.nodes = [item for item in self.items if isinstance(item, int)]
        kept = [a for s in self.items if not isinstance(s, int) for a in self.values(s)]
        self.used = {*kept, *(a for i in self.nodes for a in self.graph.args(i))}
        """What is an argument of anything."""
        found = lone_products(self.graph, self.nodes, kept) if shape.fused else frozenset[int]()
        self.products = found
        self.lazy = self._lazy()
        self.is_straight = not any(isinstance(item, For | If) for item in self.items)
        """Whether there are neither loops nor branches."""
        self.wanted: defaultdict[Statement, list[int]] = defaultdict(list)
        """What is to be read before a statement, as its scopes need it."""
        if not self.is_straight:
            self._survey(kernel.main, [])

    def needs(self, i: int) -> Sequence[int]:
        """The values that the instructions of node i take: of a fused product, its factors."""
        args = self.graph.args(i)
        if self.products.isdisjoint(args):
            return args
        return [b for a in args for b in (self.graph.args(a) if a in self.products else (a,))]

    def values(self, statement: Statement) -> Iterator[int]:
        """What a statement needs, and what its scopes yield."""
        yield from operands(self.kernel, statement)
        if isinstance(statement, For):
            yield from statement.yields
            yield from () if statement.test is None else (statement.test,)
        elif isinstance(statement, If):
            for yields in statement.yields:
                yield from yields

    def _lazy(self) -> set[int]:
        """Reads, and words that are known as steps from lane to lane, and are indices only."""
        valued, found = self._valued(), set[int]()
        for i in sorted(self.nodes, reverse=True):
            op = self.graph.nodes[i][0]
            is_index = i not in valued and op.result == "u" and self.indices.step(i) is not None
            if isinstance(op, Read) or is_index:
                found.add(i)
            else:
                valued.update(self.graph.args(i))
        return found

    def _valued(self) -> set[int]:
        """What statements need, but for indices."""
        found: set[int] = set()
        for item in self.items:
            if isinstance(item, Store):
                found.add(item.value)
            elif not isinstance(item, int | Load):
                found.update(self.values(item))
        return found

    def _survey(self, scope: Scope, path: list[Item]) -> None:
        for item in scope.items:
            here = [*path, item]
            for a in self.needs(item) if isinstance(item, int) else self.values(item):
                if a in self.lazy and isinstance(self.graph.nodes[a][0], Read):
                    around = here[self.kernel.home[a].depth :]
                    if around and isinstance(around[0], For | If):
                        self.wanted[around[0]].append(a)
            for inner in scopes_of(item):
                self._survey(inner, here)

    def is_known(self, i: int) -> bool:
        """Whether a value needs no memory: a constant, or what an invocation is."""
        op = self.graph.nodes[i][0]
        return i in self.special or (not op.arity and VALUES.get(op.result) is not op)

    @property
    def counts(self) -> list[str]:
        """The parameters that say how many invocations and groups there are, if anybody asks."""
        asked = not self.used.isdisjoint((self.kernel.count, self.kernel.groups))
        return ["i32 %count", "i32 %groups"] if asked else []


def produced(item: Item) -> Sequence[int]:
    """The values that are known behind an item."""
    return (item,) if isinstance(item, int) else results_of(item)
