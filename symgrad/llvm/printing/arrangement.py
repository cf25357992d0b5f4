"""Where the values of a kernel are: in registers, made where they are needed, or in memory."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr.graph.node import Op
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import (
    BOUND,
    Buffer,
    For,
    If,
    Read,
    Scope,
    Store,
    StoreRow,
    results_of,
    scopes_of,
)
from symgrad.kernel.uniform import diverges
from symgrad.llvm.printing.instruction import Shape
from symgrad.llvm.printing.needs import Item
from symgrad.llvm.printing.packs import Packed, side_by_side
from symgrad.llvm.printing.rows import Rows, Rowwise
from symgrad.llvm.printing.source import FUNCTION, FUNCTIONS_JOINED, LONG_BATCH, LONG_OPERATIONS
from symgrad.llvm.printing.workspace import Workspace

UNROLLED_COLUMNS: Final = 192
"""Columns of inputs, and of outputs, up to which a block is transposed without loops."""


@dataclass(eq=False)
class Outlined:
    """Items one behind the other that are a function of their own; it may be called ``masked``."""

    number: int
    items: Sequence[Item]
    masked: bool
    looped: bool
    """Whether it is the turn, or some of it, of a loop that carries nothing."""


class Arrangement(Rowwise):
    """How a kernel is written for vectors of a shape, or for one invocation: `Shape.lanes` is 1.

    What is long is cut into functions of some hundred operations, where no loop or branch stands: a
    value that another function needs goes through memory, at ``slots``.
    """

    def __init__(
        self,
        kernel: KernelIR,
        shape: Shape,
        thorough: bool = False,
        packed: Container[Op] = frozenset(),
    ) -> None:
        super().__init__(kernel, shape)
        self._packed = Packed(packed) if shape.lanes == 1 and packed and not self.reloaded else None
        """The functions whose calls are brought together, if any are."""
        self.elsewhere: set[Item] = {*self.lazy, *self.products, *self.reloaded.values()}
        """What is written with what needs it."""
        is_wide = shape.lanes > 1 and self.columns > UNROLLED_COLUMNS
        self.names = {b: f"m{k}" for k, b in enumerate(kernel.buffers)}
        """What buffers are called here, however their kernel calls them."""
        self.bound = [b for b in kernel.buffers if b.space in BOUND and b.data is None]
        """The host's buffers, which are arguments."""
        self.parts: list[Outlined] = []
        self._part: dict[Item, int] = {}
        """The functions of items that are cut, and of what they give."""
        self._cut = self._cut_length(thorough)
        self._apart = is_wide and self.is_straight
        self._orders: dict[tuple[Scope, bool], list[Item | Outlined]] = {}
        self._arrange(kernel.main, False)
        self.copies = self._copies()
        """The uses of single numbers in iterations, (by, number), and where their copies stand."""
        self.copied: defaultdict[int, list[int]] = defaultdict(list)
        """The numbers, and where all copies of each stand."""
        for (_, i), at in self.copies.items():
            self.copied[i].append(at)
        self.in_memory = is_wide or (shape.lanes > 1 and bool(self.parts))
        """Whether the lanes' rows are transposed to columns in memory, rather than in registers."""
        self.placed = self._placed()
        """The columns of rows in memory that values go to as soon as they are known."""
        self.slots = self._crossing()
        self.slot = self._slot()
        """Bytes of a slot of the frame in which these values are handed on."""
        self.left = self.slots.keys() | self.copied.keys() | self.placed.keys()
        """The values that go to memory as soon as they are known."""
        self.transposed = {
            rows: f"%{self.names[rows.buffer]}.columns{k}"
            for k, rows in enumerate(self.rows)
            if self.in_memory or rows in self.staying.values()
        }
        """The names of the memory in which rows stand as columns, of those that do."""
        self.workspace = self._workspace()

    # the order, and the cuts ---------------------------------------------------------------------

    def order(self, scope: Scope, after: bool = False) -> Sequence[Item | Outlined]:
        """What is written of a scope, ``after`` a loop's test or, else, before it; all of others.

        A store stands behind what computes its value, where nobody reads what is stored.
        """
        return self._orders[scope, after]

    def _arrange(
        self, scope: Scope, masked: bool, test_at: int | None = None, apart: bool = False
    ) -> None:
        end = len(scope.items) if test_at is None else test_at
        for after, items in ((False, scope.items[:end]), (True, scope.items[end:])):
            run = self._stored_early(items)
            if self._packed is not None:
                run = side_by_side(run, self.graph, self._packed, self._needed)
            self._orders[scope, after] = self._in_parts(run, masked, apart)
        for item in scope.items:
            if not isinstance(item, int) and isinstance(item, For | If):
                inner = masked or diverges(item, self.varying)
                at = item.test_at if isinstance(item, For) and item.test is not None else None
                for part in scopes_of(item):
                    self._arrange(part, inner, at, isinstance(item, For) and _is_plain(item))

    def _needed(self, item: Item) -> Iterable[int]:
        """What a statement needs."""
        return () if isinstance(item, int) else self.values(item)

    def _stored_early(self, items: Sequence[Item]) -> Sequence[Item]:
        if not self.staged and not self.staying:
            return items
        stores = [s for s in items if isinstance(s, Store) and self._is_movable(s)]
        if not stores:
            return items
        early: defaultdict[int, list[Item]] = defaultdict(list)
        positions = {i: n for n, i in enumerate(items) if isinstance(i, int)}
        positions |= {
            r: n for n, s in enumerate(items) if not isinstance(s, int) for r in results_of(s)
        }
        read = self._last_reads(items) if self.staying else {}
        moved: set[Item] = set()
        for s in stores:
            if s.value in positions and s.value not in self.lazy:
                early[max(positions[s.value], read.get((s.buffer, s.index), 0))].append(s)
                moved.add(s)
        order: list[Item] = []
        for n, item in enumerate(items):
            if item not in moved:
                order.append(item)
            order += early.get(n, ())
        return order

    def _is_movable(self, s: Store) -> bool:
        return s in self.staged or s.buffer in self.staying

    def _last_reads(self, items: Sequence[Item]) -> dict[tuple[Buffer, int], int]:
        """Where the numbers that are loaded where they are needed are needed last."""
        last: dict[tuple[Buffer, int], int] = {}
        for n, item in enumerate(items):
            for a in self.needed_within(item):
                if a in self.reloaded:
                    last[self.reloaded[a].buffer, self.reloaded[a].index] = n
        return last

    def is_cut(self, item: Item) -> bool:
        """Whether an item stands in a function of its own."""
        return item in self._part

    def part_of(self, item: Item) -> int | None:
        """The number of the function of its own that an item stands in."""
        return self._part.get(item)

    def _cut_length(self, thorough: bool) -> int:
        """Operations from which a run of items is cut, or so many that none is."""
        long = LONG_OPERATIONS if self.shape.lanes == 1 else LONG_BATCH
        if self.operations <= long:
            return max(self.operations, 1)
        return FUNCTION * (FUNCTIONS_JOINED if thorough else 1)

    def _in_parts(self, items: Iterable[Item], masked: bool, apart: bool) -> list[Item | Outlined]:
        """Items without those that are written where they are needed; what is long in parts."""
        order: list[Item | Outlined] = []
        run: list[Item] = []
        elsewhere = self.elsewhere
        if self.is_straight:
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
        """What is written of a run: iterations of a loop without carries are called, if long.

        They go through memory anyhow, and values from around would take registers from them.
        """
        pieces = self._divided(run)
        called = self._apart or (apart and len(run) > FUNCTION and self._cut < self.operations)
        if len(pieces) <= 1 and not called:
            return run
        outlined: list[Item | Outlined] = []
        for piece in pieces:
            part = Outlined(len(self.parts), piece, masked, apart)
            self._part.update(dict.fromkeys(piece, part.number))
            statements = [s for s in piece if not isinstance(s, int)]
            self._part.update((r, part.number) for s in statements for r in results_of(s))
            self.parts.append(part)
            outlined.append(part)
        return outlined

    def _divided(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """Pieces of as many operations; what stores their results goes with them."""
        if len(items) <= self._cut:
            return [items] if items else []
        counted = [k for k, item in enumerate(items) if isinstance(item, int)]
        starts = [0, *counted[self._cut :: self._cut], len(items)]
        return [items[start:end] for start, end in itertools.pairwise(starts)]

    # memory --------------------------------------------------------------------------------------

    def _copies(self) -> dict[tuple[Item, int], int]:
        """Single numbers in a turn are read for each use, which spreads them to all lanes for free.

        A copy of its own keeps the compiler from having a vector of it in a register for long.
        """
        iterations = (part for part in self.parts if part.looped and self.shape.lanes > 1)
        return {
            use: k
            for k, use in enumerate(
                dict.fromkeys(
                    (item, a)
                    for part in iterations
                    for item in part.items
                    if isinstance(item, int) and item in self.varying
                    for a in self.needs(item)
                    if a not in self.varying and self._is_single(a)
                )
            )
        }

    def _is_single(self, i: int) -> bool:
        """Whether a value is a float that is computed, or read, once."""
        is_float = self.kernel.type(i) == "f" and i not in self.known
        return is_float and self.kernel.home[i] is self.kernel.main

    def _placed(self) -> dict[int, list[tuple[Rows, int]]]:
        if self.shape.lanes > 1 and not self.in_memory:
            return {}
        places: defaultdict[int, list[tuple[Rows, int]]] = defaultdict(list)
        for s, rows in self.whole.items():
            for c, i in enumerate(s.values if isinstance(s, StoreRow) else ()):
                if i not in self.lazy and i not in self.known:
                    places[i].append((rows, c))
        return dict(places)

    def _crossing(self) -> dict[int, int]:
        """The values that another function needs than makes them, and their slots."""
        if not self.parts:
            return {}
        crossing: dict[int, None] = {}
        owner, sources = self._part, self._sources()
        inside = self.elsewhere.union(*(part.items for part in self.parts))
        groups = [(part.number, part.items) for part in self.parts]
        outside = [i for i in (*self.nodes, *self.statements) if i not in inside]
        for function, items in ((None, outside), *groups):
            needed = self._asked(items)
            values = sorted(needed - self.lazy)
            values += (b for a in sorted(needed & sources.keys()) for b in sources[a])
            crossing.update(dict.fromkeys([b for b in values if owner.get(b) != function]))
        for rows in self.rows:
            needed = {a for a in self.behind(rows) if self.kernel.home[a] is not rows.scope}
            for a in sorted(needed - self.known):
                values = sources.get(a, [] if a in self.lazy else [a])
                crossing.update(dict.fromkeys(b for b in values if b in owner))
        return {i: k for k, i in enumerate(crossing)}

    def _asked(self, items: Sequence[Item]) -> set[int]:
        """What items need that needs memory, has no copy for them, and is none of them."""
        arena, nodes = self.graph.nodes, [i for i in items if isinstance(i, int)]
        if self.copies:
            needed = {a for i in nodes for a in self.needs(i) if (i, a) not in self.copies}
        else:
            needed = set(itertools.chain.from_iterable([arena[i][1:] for i in nodes]))
        for s in items if len(nodes) < len(items) else ():
            if isinstance(s, StoreRow):
                needed.update(i for i in s.values if i not in self.placed)
            elif not isinstance(s, int):
                needed.update(self.values(s))
        for product in needed & self.products:
            needed.update(arena[product][1:])
        return needed - self.known - self.products - {*items}

    def _sources(self) -> dict[int, list[int]]:
        """The values that are computed, by which those are known that are written where needed."""
        sources: dict[int, list[int]] = {}
        for i in sorted(self.lazy):
            for a in self._asked_by(i):
                if a in sources or a not in self.lazy and a not in self.known:
                    sources.setdefault(i, []).extend(sources.get(a, (a,)))
        return sources

    def _asked_by(self, i: int) -> Sequence[int]:
        """What is needed where a lazy value is written: of an index also what it is made of."""
        args = [*self.graph.args(i)]
        for a in args if isinstance(self.graph.nodes[i][0], Read) else ():  # they grow
            if a not in self.lazy and self.kernel.type(a) == "u":
                args += self.graph.args(a)
        return args

    @property
    def handed(self) -> list[str]:
        """The parameters of a function that is a part, which are its arguments too."""
        numbers = [*(["i32 %cell"] if self.shape.lanes > 1 else []), *self.counts]
        names = [*(f"%{self.names[b]}" for b in self.bound), *self.workspace.names]
        return [*(f"ptr {name}" for name in names), *numbers]

    def size(self, kind: str) -> int:
        """Bytes of one number of a kind."""
        return {"f": self.shape.itemsize, "d": 8, "b": 1}.get(kind, 4)

    def _workspace(self) -> Workspace:
        """Memory for the kernel's buffers, for rows as columns, and for what functions hand on."""
        lanes = self.shape.lanes
        memory = Workspace()
        for b in self.kernel.buffers:
            if b not in self.bound and b.size:
                many = lanes if b.space == "own" else 1
                memory.reserve(self.names[b], b.size * self.size(b.kind) * many)
        for rows, name in self.transposed.items():
            memory.reserve(name[1:], rows.stride * self.shape.itemsize * lanes)
        if self.copies:
            memory.reserve("copies", len(self.copies) * self.shape.itemsize)
        if self.parts:
            memory.reserve("frame", (len(self.slots) + 1) * self.slot)
        for b in self.kernel.buffers:
            if b.space == "own" and not b.size:
                memory.reserve(self.names[b], 0)  # the last: as long as the host says
        return memory

    def _slot(self) -> int:
        kinds = {self.kernel.type(i) for i in self.slots} | {"f"}
        return self.shape.lanes * max(self.size(kind) for kind in kinds)


def _is_plain(loop: For) -> bool:
    """Whether a loop carries nothing, and has no other statements with scopes."""
    return not loop.params and not any(isinstance(i, For | If) for i in loop.scope.items)
