"""Long code is cut into functions, which hand values to each other in memory.

A lone point may call a function of the library several times: these calls stand side by side, in
vectors. A function of the library takes tens of instructions, and a vector's no more than a
number's. So calls of one that do not wait for one another are brought together, and done as one.
They give the same bits: what a function does to a lane does not depend on the others.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from symgrad.expr.graph.node import Graph, Op
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import (
    BOUND,
    Buffer,
    For,
    If,
    Load,
    Read,
    Scope,
    Store,
    StoreRow,
    results_of,
    scopes_of,
)
from symgrad.kernel.language.verify import diverges
from symgrad.llvm.printing.analysis import Analysis, Item, RecordAnalysis, Records
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.source import Workspace

UNROLLED_COLUMNS: Final = 192
"""Columns of inputs, and of outputs, up to which a block is transposed without loops."""

LEAST_CALLS: Final = 3
"""Calls that are done as one, at least."""


@dataclass(frozen=True, eq=False)
class Outlined:
    """Items one behind the other that are a function of their own; it may be called ``masked``."""

    number: int
    items: Sequence[Item]
    masked: bool
    looped: bool
    """Whether it is the iteration, or some of it, of a loop that carries nothing."""


@dataclass(frozen=True, eq=False)
class Arrangement:
    """How a kernel is written for vectors of a shape, or for one invocation: `Shape.lanes` is 1.

    What is long is cut into functions of some hundred operations, where no loop or branch stands: a
    value that another function needs goes through memory, at ``slots``. ``packed`` are the
    functions whose calls are brought together, if there is one lane. Like those of `Analysis`, its
    facts are found when they are first asked for.
    """

    kernel: KernelIR
    shape: Shape
    thorough: bool = False
    packed: Container[Op] = frozenset()

    @cached_property
    def analysis(self) -> Analysis:
        """The analysis of the values."""
        return Analysis(self.kernel, self.shape)

    @cached_property
    def records(self) -> RecordAnalysis:
        """The analysis of the records that lanes read and write."""
        return RecordAnalysis(self.analysis)

    # the order, and the cuts ---------------------------------------------------------------------

    @cached_property
    def _cut(self) -> _Cutter:
        return _Cutter(self.analysis, self.records, self._length, self._is_wide, self._together)

    @cached_property
    def _length(self) -> int:
        """Operations from which a run of items is cut, or so many that none is."""
        operations = self.analysis.operations
        sizes = self.shape.sizes
        long = sizes.long if self.shape.lanes == 1 else sizes.long_batch
        if operations <= long:
            return max(operations, 1)
        return sizes.function * (sizes.joined if self.thorough else 1)

    @cached_property
    def _is_wide(self) -> bool:
        """Whether there are too many columns for all of them to be in registers."""
        return self.shape.lanes > 1 and self.records.columns > UNROLLED_COLUMNS

    @property
    def _together(self) -> Packed | None:
        """The functions whose calls are brought together, if any are."""
        are_packed = self.shape.lanes == 1 and self.packed and not self.analysis.reloaded
        return Packed(self.packed) if are_packed else None

    @cached_property
    def parts(self) -> Sequence[Outlined]:
        """The functions that are cut out."""
        return tuple(self._cut.parts)

    def order(self, scope: Scope, after: bool = False) -> Sequence[Item | Outlined]:
        """Items to write of a scope, ``after`` a loop's test or, else, before it; all of others.

        A store stands behind what computes its value, where nobody reads what is stored.
        """
        return self._cut.orders[scope, after]

    def part_of(self, item: Item) -> int | None:
        """The number of the function of its own that an item stands in."""
        return self._cut.owners.get(item)

    # memory --------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> Mapping[Buffer, str]:
        """Names of buffers, however their kernel calls them."""
        return {b: f"m{k}" for k, b in enumerate(self.kernel.buffers)}

    @cached_property
    def bound(self) -> list[Buffer]:
        """The host's buffers, which are arguments."""
        return [b for b in self.kernel.buffers if b.space in BOUND and b.data is None]

    @cached_property
    def copies(self) -> Mapping[tuple[Item, int], int]:
        """The uses of single numbers in iterations, (by, number), and where their copies stand.

        Single numbers in an iteration are read for each use, which spreads them to all lanes for
        free. Copies of their own keep the compiler from having vectors of them in registers.
        """
        varying = self.analysis.varying
        iterations = (part for part in self.parts if part.looped and self.shape.lanes > 1)
        uses = (
            (item, a)
            for part in iterations
            for item in part.items
            if isinstance(item, int) and item in varying
            for a in self.analysis.needs(item)
            if a not in varying and self._is_single(a)
        )
        return {use: k for k, use in enumerate(dict.fromkeys(uses))}

    def _is_single(self, i: int) -> bool:
        """Whether a value is a float that is computed, or read, once."""
        is_float = self.kernel.type(i) == "f" and i not in self.analysis.known
        return is_float and self.kernel.home[i] is self.kernel.main

    @cached_property
    def copied(self) -> Mapping[int, Sequence[int]]:
        """The numbers of which there are copies, and where all copies of each stand."""
        copied: defaultdict[int, list[int]] = defaultdict(list)
        for (_, i), at in self.copies.items():
            copied[i].append(at)
        return dict(copied)

    @cached_property
    def in_memory(self) -> bool:
        """Whether the lanes' records are columns in memory, rather than in registers."""
        return self._is_wide or (self.shape.lanes > 1 and bool(self.parts))

    @cached_property
    def placed(self) -> Mapping[int, Sequence[tuple[Records, int]]]:
        """The columns of records in memory that values go to as soon as they are known."""
        if self.shape.lanes > 1 and not self.in_memory:
            return {}
        places: defaultdict[int, list[tuple[Records, int]]] = defaultdict(list)
        for s, records in self.records.whole.items():
            for c, i in enumerate(s.values if isinstance(s, StoreRow) else ()):
                if i not in self.analysis.lazy and i not in self.analysis.known:
                    places[i].append((records, c))
        return dict(places)

    @cached_property
    def left(self) -> frozenset[int]:
        """The values that go to memory as soon as they are known."""
        return frozenset(self.slots).union(self.copied, self.placed)

    @cached_property
    def transposed(self) -> Mapping[Records, str]:
        """The memory in which records stand as columns, of those that do, by its name."""
        resident = self.records.resident.values()
        return {
            records: f"%{self.names[records.buffer]}.columns{k}"
            for k, records in enumerate(self.records.known)
            if self.in_memory or records in resident
        }

    @property
    def handed(self) -> list[str]:
        """The parameters of a function that is cut out, which are its arguments too."""
        cell = ["i32 %cell"] if self.shape.lanes > 1 else []
        names = [*(f"%{self.names[b]}" for b in self.bound), *self.workspace.names]
        return [*(f"ptr {name}" for name in names), *cell, *self.analysis.counts]

    def size(self, kind: str) -> int:
        """Bytes of one number of a kind."""
        return {"f": self.shape.itemsize, "d": 8, "b": 1}.get(kind, 4)

    @cached_property
    def workspace(self) -> Workspace:
        """Memory for the kernel's buffers, for columns, and for what functions hand on."""
        lanes, itemsize = self.shape.lanes, self.shape.itemsize
        arrays: dict[str, int] = {}
        for b in self.kernel.buffers:
            if b not in self.bound and b.size:
                many = lanes if b.space == "own" else 1
                arrays[self.names[b]] = b.size * self.size(b.kind) * many
        for records, name in self.transposed.items():
            arrays[name[1:]] = records.stride * itemsize * lanes
        if self.copies:
            arrays["copies"] = len(self.copies) * itemsize
        if self.parts:
            arrays["frame"] = (len(self.slots) + 1) * self.slot
        for b in self.kernel.buffers:
            if b.space == "own" and not b.size:
                arrays[self.names[b]] = 0  # the last: as long as the host says
        return Workspace(arrays)

    # what functions hand to each other -----------------------------------------------------------

    @cached_property
    def slot(self) -> int:
        """Bytes of a slot of the frame."""
        kinds = {self.kernel.type(i) for i in self.slots} | {"f"}
        return self.shape.lanes * max(self.size(kind) for kind in kinds)

    @cached_property
    def slots(self) -> Mapping[int, int]:
        """The values that another function needs than computes them, and their slots."""
        if not self.parts:
            return {}
        crossing: dict[int, None] = {}
        owners, sources, a = self._cut.owners, self._sources(), self.analysis
        inside = self._cut.elsewhere.union(*(part.items for part in self.parts))
        groups = [(part.number, part.items) for part in self.parts]
        outside = [i for i in (*a.nodes, *a.statements) if i not in inside]
        for function, items in ((None, outside), *groups):
            needed = self._needed_in_memory(items)
            values = sorted(needed - a.lazy)
            values += (b for i in sorted(needed & sources.keys()) for b in sources[i])
            crossing.update(dict.fromkeys([b for b in values if owners.get(b) != function]))
        for records in self.records.known:
            behind = self.records.behind(records)
            needed = {i for i in behind if self.kernel.home[i] is not records.scope}
            for i in sorted(needed - a.known):
                values = sources.get(i, [] if i in a.lazy else [i])
                crossing.update(dict.fromkeys(b for b in values if b in owners))
        return {i: k for k, i in enumerate(crossing)}

    def _needed_in_memory(self, items: Sequence[Item]) -> set[int]:
        """Needs of items that need memory, have no copy for them, and are none of them."""
        a = self.analysis
        arena, nodes = a.graph.nodes, [i for i in items if isinstance(i, int)]
        if self.copies:
            needed = {b for i in nodes for b in a.needs(i) if (i, b) not in self.copies}
        else:
            needed = set(itertools.chain.from_iterable([arena[i][1:] for i in nodes]))
        for s in items if len(nodes) < len(items) else ():
            if isinstance(s, StoreRow):
                needed.update(i for i in s.values if i not in self.placed)
            elif not isinstance(s, int):
                needed.update(a.values(s))
                if isinstance(s, For):  # the iterations of all lanes are known by one word
                    dealt = a.indices.dealt_out(s.hi, self.shape.lanes)
                    needed.update(() if dealt is None else (dealt,))
                elif isinstance(s, Store) and s.buffer.atomic:  # where entries of a table begin
                    needed.update(self._words_of(s.index, lambda i: i not in a.lazy))
                elif isinstance(s, Store | Load):  # the address of the first lane
                    needed.update(self._words_of(s.index, a.indices.step))
        for product in needed & a.products:
            needed.update(arena[product][1:])
        return needed - a.known - a.products - {*items}

    def _words_of(self, index: int, opened: Callable[[int], Any]) -> list[int]:
        """The words that an index is made of, and what those are of that are ``opened``."""
        graph, words = self.analysis.graph, [index]
        for i in words:  # they grow
            if opened(i):
                words += [a for a in graph.args(i) if self.kernel.type(a) == "u"]
        return words

    def _sources(self) -> dict[int, list[int]]:
        """The values that are computed, by which those are known that are written where needed."""
        a, sources = self.analysis, dict[int, list[int]]()
        for i in sorted(a.lazy):
            for b in self._arguments_of(i):
                if b in sources or b not in a.lazy and b not in a.known:
                    sources.setdefault(i, []).extend(sources.get(b, (b,)))
        return sources

    def _arguments_of(self, i: int) -> Sequence[int]:
        """Needs of a lazy value where it is written: of an index, and of a word, also the parts."""
        graph, lazy = self.analysis.graph, self.analysis.lazy
        args = [*graph.args(i)]
        has_words = isinstance(graph.nodes[i][0], Read) or self.kernel.type(i) == "u"
        for a in args if has_words else ():  # they grow
            if a not in lazy and self.kernel.type(a) == "u":
                args += graph.args(a)
        return args


class _Cutter:
    """Puts the items of all scopes in order, and cuts runs of them that are ``length`` long.

    ``parts`` are the functions that are cut out, ``owners`` says which of them computes what, and
    ``orders`` what is written of each scope, before a loop's test and behind it. ``apart`` asks
    for functions even of what is short.
    """

    def __init__(
        self,
        analysis: Analysis,
        records: RecordAnalysis,
        length: int,
        apart: bool,
        packed: Packed | None,
    ) -> None:
        self._analysis, self._records, self._packed = analysis, records, packed
        self._length, self._apart = length, apart and analysis.is_straight
        self._function = analysis.shape.sizes.function
        self.elsewhere: set[Item] = {
            *analysis.lazy,
            *analysis.products,
            *analysis.reloaded.values(),
        }
        """Items that are written with those that need them."""
        self.parts: list[Outlined] = []
        self.owners: dict[Item, int] = {}
        self.orders: dict[tuple[Scope, bool], Sequence[Item | Outlined]] = {}
        self._arrange(analysis.kernel.main, False)

    def _arrange(
        self, scope: Scope, masked: bool, test_at: int | None = None, apart: bool = False
    ) -> None:
        end = len(scope.items) if test_at is None else test_at
        for after, items in ((False, scope.items[:end]), (True, scope.items[end:])):
            run = self._stored_early(items)
            if self._packed is not None:
                run = side_by_side(run, self._analysis.graph, self._packed, self._needed)
            self.orders[scope, after] = self._in_parts(run, masked, apart)
        for item in scope.items:
            if not isinstance(item, int) and isinstance(item, For | If):
                inner = masked or diverges(item, self._analysis.varying)
                at = item.test_at if isinstance(item, For) and item.test is not None else None
                for part in scopes_of(item):
                    self._arrange(part, inner, at, isinstance(item, For) and _is_plain(item))

    def _needed(self, item: Item) -> Iterable[int]:
        """Needs of a statement."""
        return () if isinstance(item, int) else self._analysis.values(item)

    def _stored_early(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items, stores to records right behind what computes their values."""
        resident = self._records.resident
        if not self._records.staged and not resident:
            return items
        stores = [s for s in items if isinstance(s, Store) and self._is_movable(s)]
        if not stores:
            return items
        early: defaultdict[int, list[Item]] = defaultdict(list)
        positions = {i: n for n, i in enumerate(items) if isinstance(i, int)}
        positions |= {
            r: n for n, s in enumerate(items) if not isinstance(s, int) for r in results_of(s)
        }
        read = self._last_reads(items) if resident else {}
        moved: set[Item] = set()
        for s in stores:
            if s.value in positions and s.value not in self._analysis.lazy:
                early[max(positions[s.value], read.get((s.buffer, s.index), 0))].append(s)
                moved.add(s)
        order: list[Item] = []
        for n, item in enumerate(items):
            if item not in moved:
                order.append(item)
            order += early.get(n, ())
        return order

    def _is_movable(self, s: Store) -> bool:
        return s in self._records.staged or s.buffer in self._records.resident

    def _last_reads(self, items: Sequence[Item]) -> dict[tuple[Buffer, int], int]:
        """Where the numbers that are loaded where they are needed are needed last."""
        last: dict[tuple[Buffer, int], int] = {}
        reloaded = self._analysis.reloaded
        for n, item in enumerate(items):
            for a in self._analysis.needed_within(item):
                if a in reloaded:
                    last[reloaded[a].buffer, reloaded[a].index] = n
        return last

    def _in_parts(self, items: Iterable[Item], masked: bool, apart: bool) -> list[Item | Outlined]:
        """Items without those that are written where they are needed; what is long in parts."""
        order: list[Item | Outlined] = []
        run: list[Item] = []
        elsewhere = self.elsewhere
        if self._analysis.is_straight:
            return list(self._pieces([i for i in items if i not in elsewhere], masked, apart))
        for item in items:
            if not isinstance(item, int) and isinstance(item, For | If):
                order += self._pieces(run, masked, apart)
                run = []
                order.append(item)
            elif item not in elsewhere:
                run.append(item)
        return [*order, *self._pieces(run, masked, apart)]

    def _pieces(self, run: list[Item], masked: bool, apart: bool) -> Sequence[Item | Outlined]:
        """The items to write of a run: iterations of a loop without carries are called, if long.

        They go through memory anyhow, and values from around would take registers from them.
        """
        pieces = self._divided(run)
        called = self._apart or (
            apart and len(run) > self._function and self._length < self._analysis.operations
        )
        if len(pieces) <= 1 and not called:
            return run
        outlined: list[Item | Outlined] = []
        for piece in pieces:
            part = Outlined(len(self.parts), piece, masked, apart)
            self.owners.update(dict.fromkeys(piece, part.number))
            statements = [s for s in piece if not isinstance(s, int)]
            self.owners.update((r, part.number) for s in statements for r in results_of(s))
            self.parts.append(part)
            outlined.append(part)
        return outlined

    def _divided(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """Pieces of as many operations; what stores their results goes with them."""
        if len(items) <= self._length:
            return [items] if items else []
        counted = [k for k, item in enumerate(items) if isinstance(item, int)]
        starts = [0, *counted[self._length :: self._length], len(items)]
        return [items[start:end] for start, end in itertools.pairwise(starts)]


def _is_plain(loop: For) -> bool:
    """Whether a loop carries nothing, and has no other statements with scopes."""
    return not loop.params and not any(isinstance(i, For | If) for i in loop.scope.items)


class Packed(dict[Op, bool]):
    """Whether operations are functions of numbers that give a number: each is asked once."""

    def __init__(self, functions: Container[Op]) -> None:
        super().__init__()
        self._functions = functions

    def __missing__(self, op: Op) -> bool:
        kinds = {*op.signature[: op.arity], op.result}
        is_packed = op in self._functions and kinds in ({"f"}, {"p"})
        self[op] = is_packed
        return is_packed


def side_by_side(
    items: Sequence[Item], graph: Graph, packed: Packed, values: Callable[[Item], Iterable[int]]
) -> Sequence[Item]:
    """The items in an order in which calls that need none of each other stand together.

    ``values`` gives what a statement needs.
    """
    order: list[Item] = []
    run: list[Item] = []
    for item in items:
        if item.__class__ is not int and isinstance(item, (For, If)):
            order += [*_ordered(run, graph, packed, values), item]
            run = []
        else:
            run.append(item)
    return [*order, *_ordered(run, graph, packed, values)]


def _ordered(
    run: Sequence[Item], graph: Graph, packed: Packed, values: Callable[[Item], Iterable[int]]
) -> Sequence[Item]:
    """By how many calls one behind another each item waits for; statements keep their order."""
    nodes, level = graph.nodes, dict[int, int]()
    groups: defaultdict[tuple[int, str], list[Item]] = defaultdict(list)
    """Items that wait for so many calls, and the calls among them by their functions' names."""
    last = 0
    for item in run:
        if isinstance(item, int):
            node, depth = nodes[item], 0
            op = node[0]
            if op.arity:
                for a in node[1:]:
                    if a in level and level[a] > depth:
                        depth = level[a]
            if packed[op]:
                level[item] = depth + 1
                groups[depth, op.name].append(item)
                continue
            if depth:
                level[item] = depth
        else:
            depth = last = max([last, *[level.get(a, 0) for a in values(item)]])
            level.update(dict.fromkeys(results_of(item), depth))
        groups[depth, ""].append(item)
    if max([len(calls) for (_, name), calls in groups.items() if name], default=0) < LEAST_CALLS:
        return run
    return [item for key in sorted(groups) for item in groups[key]]
