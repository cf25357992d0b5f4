"""Analysis of a kernel before it is written: what varies, what is needed where, which records.

Lanes read and write the host's buffers row by row: a row of numbers for each lane, called its
record here, as in arrays of structures. Where the lanes' records lie side by side, all of them are
moved at once, and transposed to columns: a vector for each number of a record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeGuard

from symgrad.expr.graph.node import WORD, Graph
from symgrad.kernel.language.ir import KernelIR, operands
from symgrad.kernel.language.statements import (
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
from symgrad.kernel.language.verify import varying
from symgrad.llvm.printing.indices import LINEAR, Indices
from symgrad.llvm.printing.operations import Shape, lone_products, uses_of

Item = int | Statement


@dataclass(frozen=True, eq=False)
class Analysis:
    """Facts of the values of a kernel, for vectors of a shape, or one invocation: 1 lane.

    Each fact is found when it is first asked for. ``lazy`` are values that are written where they
    are first needed: numbers that are read, and indices.
    """

    kernel: KernelIR
    shape: Shape

    @cached_property
    def graph(self) -> Graph:
        """The kernel's nodes."""
        return self.kernel.graph

    @cached_property
    def scalar(self) -> Shape:
        """The shape of a value that is the same in all lanes."""
        return Shape(self.shape.dtype, 1, self.shape.fused)

    @cached_property
    def _items(self) -> tuple[list[int], list[tuple[Scope, Statement]]]:
        nodes, stated = list[int](), list[tuple[Scope, Statement]]()

        def walk(scope: Scope) -> None:
            for item in scope.items:
                if isinstance(item, int):
                    nodes.append(item)
                else:
                    stated.append((scope, item))
                    for inner in scopes_of(item):
                        walk(inner)

        walk(self.kernel.main)
        return nodes, stated

    @property
    def nodes(self) -> list[int]:
        """All that is computed, in order."""
        return self._items[0]

    @property
    def stated(self) -> list[tuple[Scope, Statement]]:
        """All statements, and the scopes that they stand in, in order."""
        return self._items[1]

    @cached_property
    def statements(self) -> list[Statement]:
        """All statements, in order."""
        return [s for _, s in self.stated]

    @cached_property
    def is_straight(self) -> bool:
        """Whether there are neither loops nor branches."""
        return not any(isinstance(s, For | If) for s in self.statements)

    # what varies ---------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> list[int]:
        arena = self.graph.nodes
        return [i for i in self.nodes if arena[i][0].result == "u"]

    @cached_property
    def _differing(self) -> frozenset[int]:
        """Values that differ among invocations, if it matters."""
        return varying(self.kernel) if self._words or self.shape.lanes > 1 else frozenset[int]()

    @cached_property
    def varying(self) -> frozenset[int]:
        """The values that are vectors."""
        return self._differing if self.shape.lanes > 1 else frozenset[int]()

    @cached_property
    def indices(self) -> Indices:
        """How words grow from lane to lane."""
        return Indices(self.kernel, self._words, self._differing)

    # what is needed ------------------------------------------------------------------------------

    @cached_property
    def special(self) -> frozenset[int]:
        """Values that tell an invocation, which are known from the start."""
        return frozenset(self.kernel.given)

    @cached_property
    def known(self) -> frozenset[int]:
        """Values that need no memory: constants, and what tells an invocation."""
        constants = (i for i, node in enumerate(self.graph.nodes) if node[0].constant)
        return self.special.union(constants)

    @cached_property
    def uses(self) -> Sequence[int]:
        """How often a value is an argument of anything."""
        return uses_of(self.graph, self.nodes, [a for s in self.statements for a in self.values(s)])

    @cached_property
    def products(self) -> frozenset[int]:
        """The products that are fused with the sum that needs them."""
        if not self.shape.fused:
            return frozenset()
        return lone_products(self.graph, self.nodes, self.uses)

    @cached_property
    def reads(self) -> list[int]:
        """The nodes that read a buffer."""
        arena, reading = self.graph.nodes, {b.read for b in self.kernel.buffers}
        return [i for i in self.nodes if arena[i][0] in reading]

    @cached_property
    def row_reads(self) -> Mapping[int, tuple[ReadRow, int]]:
        """The numbers that are read with others of a row: the statements, and the columns."""
        return {
            i: (s, c)
            for s in self.statements
            if isinstance(s, ReadRow)
            for c, i in s.results.items()
        }

    @cached_property
    def reloaded(self) -> Mapping[int, Load]:
        """Numbers of own arrays that nobody writes to before they are last needed."""
        if not any(self._is_place(s) for s in self.statements):
            return {}
        return {s.result: s for s in self._reloaded(self.kernel.main)}

    @cached_property
    def lazy(self) -> frozenset[int]:
        """Values that are written where they are first needed."""
        return frozenset(self._read_late).union(self.reloaded, self.row_reads)

    @cached_property
    def operations(self) -> int:
        """How many operations are written once, where they stand."""
        return len(self.nodes) - len(self.products) - len(self._read_late)

    @cached_property
    def wanted(self) -> Mapping[Statement, Sequence[int]]:
        """Values that are read before a statement, as its scopes need them."""
        wanted = defaultdict[Statement, list[int]](list)
        if not self.is_straight:
            arena, reads = self.graph.nodes, set(self.reads)
            factors = (i for i in self.products if not reads.isdisjoint(arena[i][1:]))
            self._survey(self.kernel.main, [], {*reads, *self.row_reads, *factors}, wanted)
        return wanted

    def needs(self, i: int) -> Sequence[int]:
        """The values that the instructions of node i take: of a fused product, its factors."""
        nodes, products = self.graph.nodes, self.products
        args = nodes[i][1:]
        if products.isdisjoint(args):
            return args
        return [b for a in args for b in (nodes[a][1:] if a in products else (a,))]

    def values(self, statement: Statement) -> Sequence[int]:
        """Values that a statement needs, and that its scopes yield."""
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
        """Loads in a scope, or within, that may as well be done where they are needed.

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
        loads_of: defaultdict[Buffer, list[Load]] = defaultdict(list)
        for s in loads:
            loads_of[s.buffer].append(s)
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
                        late.update(loads_of.pop(inner.buffer, ()))
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

    @cached_property
    def resident(self) -> Mapping[Buffer, int]:
        """Written buffers of which lanes read, again and again, columns of their own records alone.

        These stay in memory as columns meanwhile. With each goes the stride of its records.
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
        """The stride of the lanes' own records, if the index is in them, or 0."""
        place = self.indices.column(index) if self.shape.lanes > 1 and buffer.kind == "f" else None
        return place.stride if place and place.row == self.kernel.cell else 0

    @cached_property
    def _read_late(self) -> set[int]:
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
        """Values that statements need, but for indices."""
        valued: set[int] = set()
        for s in self.statements:
            if isinstance(s, Store):
                valued.add(s.value)
            elif isinstance(s, StoreRow):
                valued.update(s.values)
            elif not isinstance(s, Load | ReadRow):
                valued.update(self.values(s))
        return valued

    def _survey(
        self,
        scope: Scope,
        path: list[Statement],
        reads: set[int],
        wanted: Mapping[Statement, list[int]],
    ) -> None:
        """Note the reads of a scope for the statements of their scopes that it is within."""
        nodes, home = self.graph.nodes, self.kernel.home
        for item in scope.items:
            if isinstance(item, int):
                for a in self.needs(item) if not reads.isdisjoint(nodes[item][1:]) else ():
                    if a in reads and home[a].depth < len(path):
                        wanted[path[home[a].depth]].append(a)
                continue
            inner_path = [*path, item]
            inner = scopes_of(item)
            for a in self.values(item):
                if a in reads and (around := (inner_path if inner else path)[home[a].depth :]):
                    wanted[around[0]].append(a)
            for within in inner:
                self._survey(within, inner_path, reads, wanted)

    @property
    def counts(self) -> list[str]:
        """Parameters: how many invocations and groups there are, if needed, and the arguments."""
        k, many = self.kernel, self.shape.lanes > 1
        counted = many and (self.uses[k.count] or self.uses[k.groups])
        numbers = ["count", "groups"] if counted else []
        return [f"i32 %{name}" for name in (*numbers, *k.arguments.values())]


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a buffer that the lanes are at in a scope, one behind the other.

    That of the first lane is number ``row`` of records of ``stride`` numbers, its columns.
    """

    scope: Scope
    buffer: Buffer
    row: int
    stride: int


@dataclass(frozen=True, eq=False)
class RecordAnalysis:
    """Which records the lanes of a kernel read and write, and by which statements."""

    analysis: Analysis

    @cached_property
    def kernel(self) -> KernelIR:
        """The kernel."""
        return self.analysis.kernel

    def of_index(self, scope: Scope, buffer: Buffer, index: int) -> Records | None:
        """The records in which an index stands, if the lanes' are side by side."""
        place = self.analysis.indices.column(index)
        return None if place is None else self._interned(scope, buffer, place.row, place.stride)

    @cached_property
    def _interned(self) -> Callable[[Scope, Buffer, int, int], Records]:
        """Makes records, one for each scope, buffer, row and stride."""
        return cache(Records)

    def column(self, index: int) -> int:
        """The column in which an index stands."""
        place = self.analysis.indices.column(index)
        assert place is not None, "the index is one of records"
        return place.column

    # what is read --------------------------------------------------------------------------------

    @cached_property
    def _loaded_again(self) -> set[Buffer]:
        """The written buffers of which something is loaded that may have been stored before."""
        stored, loaded = set[Buffer](), set[Buffer]()
        for scope, item in self.analysis.stated:
            if isinstance(item, Store):
                stored.add(item.buffer)
            elif isinstance(item, Load) and (
                item.buffer in stored or scope is not self.kernel.main
            ):
                loaded.add(item.buffer)
        return loaded

    def loaded(self, s: Load) -> Records | None:
        """The records of a buffer, not yet stored to, of which a statement reads a column."""
        if s.buffer.space != "write" or s.buffer.kind != "f" or s.buffer in self._loaded_again:
            return None
        records = self.of_index(self.kernel.main, s.buffer, s.index)
        return records if records and records.stride > 1 else None

    @cached_property
    def columns_read(self) -> Mapping[int, tuple[Records, int]]:
        """Where in records each number that a node reads stands, if it does."""
        columns: dict[int, tuple[Records, int]] = {}
        for i in self.analysis.reads:
            read, index = self.analysis.graph.nodes[i]
            records = self.of_index(self.kernel.home[i], read.buffer, index)
            if records is not None:
                columns[i] = records, self.column(index)
        return columns

    @cached_property
    def whole(self) -> Mapping[ReadRow | StoreRow, Records]:
        """The records that are read, or stored, by one statement for all columns."""
        main, cell = self.kernel.main, self.kernel.cell
        whole = dict[ReadRow | StoreRow, Records]()
        for s in self.analysis.statements:
            if isinstance(s, ReadRow):
                assert s.row == cell, "lanes read the rows of their own points"
                whole[s] = self._interned(main, s.buffer, s.row, s.width)
            elif isinstance(s, StoreRow):
                whole[s] = self._interned(main, s.buffer, cell, len(s.values))
        return whole

    @cached_property
    def resident(self) -> Mapping[Buffer, Records]:
        """The records that are columns in memory while the kernel runs, by their buffers."""
        main, cell = self.kernel.main, self.kernel.cell
        return {b: Records(main, b, cell, n) for b, n in self.analysis.resident.items()}

    @cached_property
    def read(self) -> dict[Records, None]:
        """The records that are read, in order."""
        loads = (self.loaded(s) for s in self.analysis.statements if isinstance(s, Load))
        return dict.fromkeys(
            [
                *(records for records, _ in self.columns_read.values()),
                *(records for records in loads if records is not None),
                *self.resident.values(),
                *(records for s, records in self.whole.items() if isinstance(s, ReadRow)),
            ]
        )

    # what is written -----------------------------------------------------------------------------

    @cached_property
    def staged(self) -> Mapping[Store, Records]:
        """Stores that wait until all columns of their records are known, and these records.

        They are the only ones to their buffer: another one might come between them.
        """
        groups: defaultdict[Records, list[Store]] = defaultdict(list)
        statements = self.analysis.statements
        times = Counter(s.buffer for s in statements if isinstance(s, Store))
        tested = {s.scope for s in statements if isinstance(s, For) and s.test is not None}
        for scope, item in self.analysis.stated:
            if isinstance(item, Store) and _may_wait(item):
                index = item.index
                records = None if scope in tested else self.of_index(scope, item.buffer, index)
                if records and item.buffer not in self._loaded_again:
                    groups[records].append(item)
        staged: dict[Store, Records] = {}
        for records, stores in groups.items():
            columns = [self.column(s.index) for s in stores]
            alone = len(stores) == times[records.buffer]
            if alone and sorted(columns) == list(range(records.stride)):
                staged.update((s, records) for s in stores)
        return staged

    @cached_property
    def _stored(self) -> list[Records]:
        """The records that are stored by one statement for all columns."""
        return [records for s, records in self.whole.items() if isinstance(s, StoreRow)]

    @cached_property
    def written(self) -> frozenset[Records]:
        """The records that are written."""
        return frozenset({*self.staged.values(), *self.resident.values(), *self._stored})

    # where scopes begin and end ------------------------------------------------------------------

    @cached_property
    def known(self) -> list[Records]:
        """The records that lanes read, or leave, where their scope begins or ends."""
        main, cell = self.kernel.main, self.kernel.cell
        every = dict.fromkeys([*self.read, *self.staged.values(), *self._stored])
        own = [records for records in every if records.scope is main and records.row == cell]
        iterations = {s.scope: s.k for s in self.analysis.statements if isinstance(s, For)}
        return own + [
            records
            for records in every
            if records.buffer.space == "read"
            and self._begins(records, iterations.get(records.scope))
        ]

    @cached_property
    def columns(self) -> int:
        """How many columns these have."""
        return sum(records.stride for records in self.known)

    def _begins(self, records: Records, iteration: int | None) -> bool:
        """Whether records are known as soon as the number of their loop's iteration is."""
        home, nodes = self.kernel.home, self.analysis.graph.nodes
        computed = [i for i in self.behind(records) if home[i] is records.scope and i != iteration]
        return iteration is not None and all(nodes[i][0] in LINEAR for i in computed)

    def behind(self, records: Records) -> Iterator[int]:
        """The words by which records are known, as far as they are computed in their scope."""
        stack = [records.row]
        while stack:
            i = stack.pop()
            yield i
            if self.kernel.home[i] is records.scope:
                stack += self.analysis.graph.args(i)


def _may_wait(s: Store) -> bool:
    """Whether a store may wait for others: of floats, which registers transpose."""
    return s.buffer.space == "write" and s.buffer.kind == "f" and not s.add
