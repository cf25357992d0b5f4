"""What the items of a kernel need, which of it varies, and what is written only where needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from symgrad.expr.graph.node import WORD
from symgrad.kernel.accesses import operands
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import (
    Buffer,
    Fill,
    For,
    If,
    Load,
    ReadRow,
    Scope,
    Statement,
    Store,
    StoreRow,
    scopes_of,
)
from symgrad.kernel.uniform import varying
from symgrad.llvm.printing.indices import Indices
from symgrad.llvm.printing.instruction import Shape, lone_products, uses_of

Item = int | Statement


class Needs:
    """A kernel, and who needs what, for vectors of a shape, or one invocation: 1 lane.

    ``products`` are fused with the sum that needs them, as everywhere. ``lazy`` are values that are
    written where they are first needed: numbers that are read, and indices.
    """

    def __init__(self, kernel: KernelIR, shape: Shape) -> None:
        self.kernel, self.graph, self.shape = kernel, kernel.graph, shape
        self.scalar = Shape(shape.dtype, 1, shape.fused)
        self.nodes: list[int] = []
        self.stated: list[tuple[Scope, Statement]] = []
        """All statements, and the scopes that they stand in, in order."""
        self._walk(kernel.main)
        self.statements = [s for _, s in self.stated]
        arena = self.graph.nodes
        words = [i for i in self.nodes if arena[i][0].result == "u"]
        differing = varying(kernel) if words or shape.lanes > 1 else frozenset[int]()
        self.varying = differing if shape.lanes > 1 else frozenset[int]()
        self.indices = Indices(kernel, words, differing)
        self.special = set(kernel.given)
        self.known = self.special.union(i for i, n in enumerate(arena) if n[0].constant)
        """What needs no memory: constants, and what an invocation is."""
        needed = [a for s in self.statements for a in self.values(s)]
        self.uses = uses_of(self.graph, self.nodes, needed)
        """How often a value is an argument of anything."""
        products = lone_products(self.graph, self.nodes, self.uses)
        self.products = products if shape.fused else frozenset[int]()
        self.row_reads = {
            i: (s, c)
            for s in self.statements
            if isinstance(s, ReadRow)
            for c, i in s.results.items()
        }
        """The numbers that are read with others of a row: the statements, and the columns."""
        reading = {b.read for b in kernel.buffers}
        self.reads = [i for i in self.nodes if arena[i][0] in reading]
        self.resident = self._resident()
        """The rows of the lanes in written buffers that stay in memory as columns meanwhile."""
        placed = any(self._is_place(s) for s in self.statements)
        self.reloaded = {s.result: s for s in (self._reloaded(kernel.main) if placed else ())}
        """Numbers of own arrays that nobody writes to before they are last needed."""
        self.lazy = self._lazy() | self.reloaded.keys() | self.row_reads.keys()
        self.is_straight = not any(isinstance(s, For | If) for s in self.statements)
        """Whether there are neither loops nor branches."""
        self.wanted: defaultdict[Statement, list[int]] = defaultdict(list)
        """What is to be read before a statement, as its scopes need it."""
        if not self.is_straight:
            reads = set(self.reads)
            factors = (i for i in self.products if not reads.isdisjoint(arena[i][1:]))
            self._reads = {*reads, *self.row_reads, *factors}
            self._survey(kernel.main, [])

    def _walk(self, scope: Scope) -> None:
        """Note the nodes and the statements of a scope, and of those within."""
        for item in scope.items:
            if isinstance(item, int):
                self.nodes.append(item)
            else:
                self.stated.append((scope, item))
                for inner in scopes_of(item):
                    self._walk(inner)

    def needs(self, i: int) -> Sequence[int]:
        """The values that the instructions of node i take: of a fused product, its factors."""
        nodes, products = self.graph.nodes, self.products
        args = nodes[i][1:]
        if products.isdisjoint(args):
            return args
        return [b for a in args for b in (nodes[a][1:] if a in products else (a,))]

    def values(self, statement: Statement) -> Sequence[int]:
        """What a statement needs, and what its scopes yield."""
        if isinstance(statement, Store):
            return statement.index, statement.value
        if isinstance(statement, StoreRow):
            return statement.values
        needed = [*operands(self.kernel, statement)]
        if isinstance(statement, For):
            needed += statement.yields
            needed += [] if statement.test is None else [statement.test]
        elif isinstance(statement, If):
            needed += (a for yields in statement.yields for a in yields)
        return needed

    def _reloaded(self, scope: Scope, ends: Iterable[int] = ()) -> Iterator[Load]:
        """What is loaded in a scope, or within, that may as well be loaded where it is needed.

        ``ends`` are needed at the end of the scope, or at a place that is not known.
        """
        for item in scope.items:
            if isinstance(item, For | If):
                for s in scopes_of(item):
                    yield from self._reloaded(s, [*self.values(item)])
        loads = {item: n for n, item in enumerate(scope.items) if self._is_place(item)}
        if not loads:
            return
        wanted = {s.result: s for s in loads}
        late = {wanted[i] for i in ends if i in wanted}
        stored: dict[Buffer | tuple[Buffer, int], int] = {}
        for n, item in enumerate(scope.items):
            for a in self.needed_within(item):
                if a in wanted and self._is_stored(wanted[a], stored, loads[wanted[a]]):
                    late.add(wanted[a])
            for inner in self._all(item):
                if isinstance(inner, Store | Fill):
                    stored[self._place(inner) or inner.buffer] = n
                    if inner is not item:
                        late |= {s for s in loads if s.buffer is inner.buffer}
        yield from (s for s in loads if s not in late)

    def _is_stored(
        self, s: Load, stored: Mapping[Buffer | tuple[Buffer, int], int], since: int
    ) -> bool:
        """Whether what a statement has loaded may have been overwritten ``since``."""
        return max(stored.get(s.buffer, -1), stored.get((s.buffer, s.index), -1)) > since

    def _all(self, item: Item) -> Iterable[Item]:
        """An item, and what is in its scopes."""
        if isinstance(item, int):
            return (item,)
        return item, *(i for s in scopes_of(item) for _, i in self.kernel.items(s))

    def needed_within(self, item: Item) -> Iterator[int]:
        """The values that an item needs, and what is in its scopes."""
        for inner in self._all(item):
            yield from self.needs(inner) if isinstance(inner, int) else self.values(inner)

    def _place(self, s: Item) -> tuple[Buffer, int] | None:
        """Which number that is known of an array of the invocation's own it loads or stores."""
        if not isinstance(s, Load | Store):
            return None
        own = s.buffer.space == "own" and self.graph.nodes[s.index][0] is WORD
        return (s.buffer, s.index) if own or s.buffer in self.resident else None

    def _is_place(self, s: Item) -> TypeGuard[Load]:
        """Whether it loads such a number."""
        return isinstance(s, Load) and self._place(s) is not None

    def _resident(self) -> dict[Buffer, int]:
        """Written buffers of which lanes read, again and again, columns of their own rows alone.

        With each goes the stride of its rows.
        """
        strides: defaultdict[Buffer, set[int]] = defaultdict(set)
        again, stored = set[Buffer](), set[Buffer]()
        for scope, item in self.stated:
            if isinstance(item, Load | Store) and item.buffer.space == "write":
                strides[item.buffer].add(self._stride(item.buffer, item.index))
                if isinstance(item, Store):
                    stored.add(item.buffer)
                elif item.buffer in stored or scope is not self.kernel.main:
                    again.add(item.buffer)
        one = {b: next(iter(distinct)) for b, distinct in strides.items() if len(distinct) == 1}
        return {b: one[b] for b in strides if b in again and one.get(b, 0) > 1}

    def _stride(self, buffer: Buffer, index: int) -> int:
        """The stride of the lanes' own rows, if the index is in them, or 0."""
        place = self.indices.column(index) if self.shape.lanes > 1 and buffer.kind == "f" else None
        return place.stride if place and place.row == self.kernel.cell else 0

    def _lazy(self) -> set[int]:
        """Reads, and words that are known as steps from lane to lane, and are indices only."""
        arena, valued, lazy = self.graph.nodes, self._valued(), set(self.reads)
        takers = {op for op in {arena[i][0] for i in self.nodes} if "u" in op.signature[: op.arity]}
        for i in sorted([i for i in self.nodes if arena[i][0] in takers], reverse=True):
            is_index = arena[i][0].result == "u" and self.indices.step(i) is not None
            if is_index and i not in valued:
                lazy.add(i)
            elif i not in lazy:
                valued.update(arena[i][1:])
        return lazy

    def _valued(self) -> set[int]:
        """What statements need, but for indices."""
        valued: set[int] = set()
        for s in self.statements:
            if isinstance(s, Store):
                valued.add(s.value)
            elif isinstance(s, StoreRow):
                valued.update(s.values)
            elif not isinstance(s, Load | ReadRow):
                valued.update(self.values(s))
        return valued

    def _survey(self, scope: Scope, path: list[Statement]) -> None:
        """Note the reads of a scope for the statements of their scopes that it is within."""
        nodes, home, reads = self.graph.nodes, self.kernel.home, self._reads
        for item in scope.items:
            if isinstance(item, int):
                for a in self.needs(item) if not reads.isdisjoint(nodes[item][1:]) else ():
                    if a in reads and home[a].depth < len(path):
                        self.wanted[path[home[a].depth]].append(a)
                continue
            inner_path = [*path, item]
            inner = scopes_of(item)
            for a in self.values(item):
                if a in reads and (around := (inner_path if inner else path)[home[a].depth :]):
                    self.wanted[around[0]].append(a)
            for within in inner:
                self._survey(within, inner_path)

    @property
    def counts(self) -> list[str]:
        """Parameters: how many invocations and groups there are, if anybody asks, and arguments."""
        k, many = self.kernel, self.shape.lanes > 1
        counted = many and (self.uses[k.count] or self.uses[k.groups])
        numbers = ["count", "groups"] if counted else []
        return [f"i32 %{name}" for name in (*numbers, *k.arguments.values())]
