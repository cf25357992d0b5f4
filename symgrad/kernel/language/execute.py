"""Runs a kernel of the language in NumPy: all invocations at once, the printers' reference.

What an invocation does not compute, and memory that nobody has written, is poison; two invocations
that meet at a place of memory without a barrier between them are an error. Kernels that float run
too: what a statement needs is computed when it asks, and kept until a leaf of it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr.graph.node import reachable
from symgrad.expr.semantics.evaluate import leaf
from symgrad.kernel.language.index import in_row, vector_of
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import (
    BOUND,
    OPERATIONS,
    OVER_LANES,
    Barrier,
    Buffer,
    Call,
    Fill,
    For,
    GroupReduce,
    If,
    Let,
    Load,
    Read,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
    StoreRow,
    within,
)

POISON: Final = {"f": np.nan, "d": np.nan, "b": True, "i": -0x21524111, "u": 0xDEADBEEF}
"""The values that no invocation may get to see, by kinds."""

NOBODY: Final = -1
SEVERAL: Final = -2
"""Who has touched a place of a shared array since the last barrier, if not one invocation."""


def execute(
    kernel: KernelIR,
    arrays: Mapping[str, np.ndarray],
    count: int,
    groups: int = 0,
    dtype: Any = np.float64,
    arguments: Mapping[str, int] | None = None,
) -> None:
    """Run a kernel on arrays, C-contiguous ones by the names of its buffers, in place.

    ``groups`` is how many there are; as many as ``count`` takes by default. An own array of unknown
    size is given too, (size, invocations).

    Raises:
        Fault: for an index out of bounds, or a race.
    """
    width = kernel.target.width
    with np.errstate(all="ignore"):
        run = Run(kernel, count, groups or -(-count // width), np.dtype(dtype).type)
        run.bind(arrays)
        words = arguments or {}
        run.values |= {i: np.uint32(words[name]) for i, name in kernel.arguments.items()}
        run.main()


class Fault(AssertionError):
    """An error of a kernel, and the statement that makes it."""

    def __init__(self, statement: Statement | None, what: str) -> None:
        super().__init__(what)
        self.statement = statement


class Visitors:
    """Which invocations have been where in an array of so many numbers, since the last barrier."""

    def __init__(self, size: int) -> None:
        self.writers, self.all = (np.full(size, NOBODY, np.int32) for _ in range(2))

    def forget(self) -> None:
        """A barrier: whoever was here is no matter any more."""
        self.writers.fill(NOBODY)
        self.all.fill(NOBODY)

    def visit(self, at: np.ndarray, cells: np.ndarray, writes: bool, sure: bool = True) -> Meetings:
        """Note that some invocations are at places, each at one; whom they meet there.

        Unless it is ``sure`` that they are there, nobody is refused later for what they write.
        """
        before, writers = self.all[at], self.writers[at]
        self.all[at] = cells
        together = self.all[at] != cells
        others = (before != NOBODY) & (before != cells)
        apart = others | together
        if apart.any():
            self.all[at[apart]] = SEVERAL
        if writes:
            self.writers[at] = cells if sure else writers
            return Meetings(together, others, apart)
        return Meetings(together, others, (writers != NOBODY) & (writers != cells))


class Meetings(NamedTuple):
    """Which of some invocations are at one place with others, of those with them or before them.

    In a ``race`` one of the two writes.
    """

    together: np.ndarray
    others: np.ndarray
    race: np.ndarray


class _Shared:
    """An array that several invocations see, and which of them have been where."""

    def __init__(self, buffer: Buffer, array: np.ndarray) -> None:
        self.name, self.atomic, self.array = buffer.name, buffer.atomic, array
        self.visitors = Visitors(0 if buffer.atomic else array.size)

    def load(self, at: np.ndarray, cells: np.ndarray) -> np.ndarray:
        self._visit(at, cells, False)
        return self.array[at]

    def store(self, at: np.ndarray, cells: np.ndarray, values: np.ndarray, add: bool) -> None:
        if self.atomic:
            np.add.at(self.array, at, values)
            return
        self._visit(at, cells, True)
        self.array[at] = self.array[at] + values if add else values
        if len(np.unique(at)) < len(at):
            same = not add and np.array_equal(self.array[at], values, equal_nan=True)
            assert same, f"lanes in step store different numbers at one place of {self.name}"

    def _visit(self, at: np.ndarray, cells: np.ndarray, writes: bool) -> None:
        met = self.visitors.visit(at, cells, writes).race.any()
        assert not met, f"two invocations meet in {self.name}, with no barrier between them"


class Run:
    """A run of a kernel: all its invocations, and what they have computed so far."""

    def __init__(self, kernel: KernelIR, count: int, groups: int, dtype: Any) -> None:
        self.kernel, self.nodes, self.dtype = kernel, kernel.graph.nodes, dtype
        self.width = kernel.target.width
        self.n = groups * self.width
        self.cells, self.everyone = np.arange(self.n, dtype=np.uint32), np.ones(self.n, bool)
        in_step = self.width if kernel.target.in_step else 1
        self.waiting = self.cells.astype(np.int64) // in_step
        """Who has to wait for others before it sees what they have stored: each, or each group."""
        self.values: dict[int, Any] = {
            kernel.cell: self.cells,
            kernel.local: self.cells % np.uint32(self.width),
            kernel.group: self.cells // np.uint32(self.width),
            kernel.count: np.uint32(count),
            kernel.groups: np.uint32(groups),
        }
        self._derived: list[int] = []
        """Nodes that were computed from the leaves as they are now."""
        self.statement: Statement | None = None
        """The one that is done."""
        self.dtypes = {"f": dtype, "d": np.float64, "b": np.bool_, "i": np.int32, "u": np.uint32}
        self.read: dict[Buffer, np.ndarray] = {}
        self.shared: dict[Buffer, _Shared] = {}
        self.own: dict[Buffer, np.ndarray] = {}

    def bind(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Allocate all memory but the host's arrays."""
        stores = (s for s in within(self.kernel.main) if isinstance(s, Store))
        variables = dict.fromkeys(s.buffer for s in stores if s.buffer.space == "variable")
        for b in (*self.kernel.buffers, *variables):
            if b.space == "read":
                data = arrays[b.name] if b.data is None else np.array(b.data, self.dtype)
                self.read[b] = data.reshape(-1)
            elif b.space in ("write", "group"):
                self.shared[b] = _Shared(b, self._memory(b, arrays))
            else:
                self.own[b] = self._memory(b, arrays)
        sizes = {b: np.uint32(arrays[b.name].size) for b in self.kernel.lengths}
        self.values |= {i: sizes[b] for b, i in self.kernel.lengths.items()}

    def _memory(self, b: Buffer, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The array of a buffer: the host's, one that outlasts the kernel, or one of poison."""
        if b.space == "write" or b.name in arrays:
            assert arrays[b.name].flags.c_contiguous, f"{b.name} is not in C order"
            return arrays[b.name].reshape(-1)
        many = self.n // self.width if b.space == "group" else self.n
        return np.full(b.size * many, POISON[b.kind], self.dtypes[b.kind])

    def main(self) -> None:
        """Do all that there is to do; of a kernel that floats, by those that are counted."""
        mask = self.everyone
        if self.kernel.floating:
            mask = self.values[self.kernel.cell] < self.values[self.kernel.count]
            mask = mask if not mask.all() else self.everyone
        try:
            self.scope(self.kernel.main, mask)
        except AssertionError as error:
            raise Fault(self.statement, str(error)) from error

    # values --------------------------------------------------------------------------------------

    def value(self, i: int) -> Any:
        """The value of a node: a number, or one for each invocation."""
        node = self.nodes[i]
        if node[0].constant:
            return leaf(node, self.dtype)
        if i not in self.values:
            self._derive(i)
        return self.values[i]

    def _derive(self, i: int) -> None:
        """Compute a node of a kernel that floats."""
        assert self.kernel.floating, f"{i} is needed before it is computed"
        for n in reachable(self.kernel.graph, [i]):
            if self.nodes[n][0].arity and n not in self.values:
                self.assign(n, self._computed(n, self.everyone), self.everyone)
                self._derived.append(n)

    def know(self, leaf: int, value: Any, mask: np.ndarray) -> None:
        """Set what a leaf is now, of which something may have been computed."""
        if leaf in self.values:
            for i in self._derived:
                del self.values[i]
            self._derived.clear()
        self.assign(leaf, value, mask)

    def all(self, i: int) -> np.ndarray:
        """The value of a node in each invocation."""
        return np.broadcast_to(self.value(i), (self.n,))

    def assign(self, i: int, value: Any, mask: np.ndarray) -> None:
        """Set what a node is; poison, where that is not computed."""
        kind = self.kernel.type(i)
        value = np.asarray(value, self.dtypes[kind])
        if value.ndim and mask is not self.everyone and not mask.all():
            value = np.where(mask, value, self.dtypes[kind](POISON[kind]))
        self.values[i] = value if value.ndim else value[()]

    def scope(self, scope: Scope, mask: np.ndarray) -> None:
        """Do all items of a scope, by those in the mask."""
        for item in scope.items:
            self.item(item, mask)

    def item(self, item: int | Statement, mask: np.ndarray) -> None:
        """Do one."""
        if not isinstance(item, int):
            self.statement = item
        match item:
            case int():
                self.assign(item, self._computed(item, mask), mask)
            case If():
                self._choose(item, mask)
            case For():
                self._loop(item, mask)
            case Load():
                self._load(item, mask)
            case Store():
                self._store(item, mask)
            case ReadRow():
                self._read_row(item, mask)
            case StoreRow():
                self._store_row(item, mask)
            case Fill():
                self.own[item.buffer].reshape(-1, self.n)[:, mask] = 0
            case Call():
                for param, arg in zip(item.routine.params, item.args, strict=True):
                    self.know(param, self.value(arg), mask)
                self.scope(item.routine.scope, mask)
            case Barrier():
                self._wait(mask)
            case GroupReduce():
                self._reduce(item, mask)
            case Let() | Routine():
                pass

    def _wait(self, mask: np.ndarray) -> None:
        assert self._whole(mask), "a barrier that not all invocations of a group reach"
        for shared in self.shared.values():
            shared.visitors.forget()

    def _whole(self, mask: np.ndarray) -> bool:
        """Whether all invocations of each group are there, or none."""
        groups = mask.reshape(-1, self.width)
        return bool((groups.all(1) == groups.any(1)).all())

    def _computed(self, i: int, mask: np.ndarray) -> Any:
        op, *args = self.nodes[i]
        if isinstance(op, Read):
            array, at = self.read[op.buffer], self._index(op.buffer, args[0], mask)
            return array[at]
        values = [self.value(a) for a in args]
        if op in OVER_LANES:
            assert self._whole(mask), f"{op.name} of a group that not all of its invocations reach"
            reduced = OVER_LANES[op].reduce(self.all(args[0]).reshape(-1, self.width), axis=1)
            return np.repeat(reduced, self.width)
        return op.reference(*values)

    def _reduce(self, s: GroupReduce, mask: np.ndarray) -> None:
        """A tree of halves, as it is written for groups."""
        self._wait(mask)
        values, op = self.all(s.value).reshape(-1, s.among), OPERATIONS[s.operation]
        while (half := values.shape[1] // 2) > 0:
            values = op.reference(values[:, :half], values[:, half:])
        self.know(s.result, np.repeat(values[:, 0], s.among), mask)

    # memory --------------------------------------------------------------------------------------

    def _index(self, b: Buffer, index: int, mask: np.ndarray) -> np.ndarray:
        """Where invocations read or write; 0 where they do not."""
        at = np.where(mask, self.all(index), 0).astype(np.int64)
        size = b.size or self._size(b)
        assert (at < size).all(), f"index {at.max()} of {b.name}, which has {size} numbers"
        if b.row:
            self._require_row(b, index, mask)
        return self.place(b, at, self.cells)

    def place(self, b: Buffer, at: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Where elements stand, of a buffer that there may be several of."""
        if b.space == "group":
            return at * (self.n // self.width) + cells // self.width
        return at if b.space in BOUND else at * self.n + cells

    def _require_axes(self, s: Load | Store, mask: np.ndarray) -> None:
        """Checks that each of several parts of an index is within its axis."""
        for axis, i in enumerate(s.axes if len(s.axes) > 1 else ()):
            at, size = self.all(i)[mask], s.buffer.shape[axis]
            what = f"axis {axis} of {s.buffer.name} is out of bounds, it has {size}"
            assert (at < size).all(), f"index {at[at >= size][0]} of {what}"

    def _require_row(self, b: Buffer, index: int, mask: np.ndarray) -> None:
        """Checks that an index that is added to the beginning of a row stays within the row."""
        vector = vector_of(self.kernel.graph, index, b.vector)
        node = index if b.vector == 1 else vector and vector[0].node
        offset = None if node is None else in_row(self.kernel.graph, node, b.row)
        if offset is not None:
            last = np.where(mask, self.all(offset.node), 0).max(initial=0) + offset.first
            assert last < b.row, f"column {last} of {b.name}, whose rows have {b.row}"

    def _size(self, b: Buffer) -> int:
        """The numbers of a buffer of the host's, or of each invocation in one of its own."""
        if b in self.own:
            return self.own[b].size // self.n
        return (self.read[b] if b in self.read else self.shared[b].array).size

    def _load(self, s: Load, mask: np.ndarray) -> None:
        self._require_axes(s, mask)
        at = self._index(s.buffer, s.index, mask)
        if s.buffer not in self.shared:
            array = self.own[s.buffer] if s.buffer in self.own else self.read[s.buffer]
            self.know(s.result, array[at], mask)
            return
        loaded = np.zeros(self.n, self.dtypes[s.buffer.kind])
        if s.agreed:
            self._wait(mask)
        loaded[mask] = self.shared[s.buffer].load(at[mask], self.waiting[mask])
        if s.agreed:
            self._wait(mask)
            each = at.reshape(-1, self.width)[mask.reshape(-1, self.width).any(1)]
            assert (each == each[:, :1]).all(), "invocations of a group ask for different numbers"
        self.know(s.result, loaded, mask)

    def _store(self, s: Store, mask: np.ndarray) -> None:
        self._require_axes(s, mask)
        at, values = self._index(s.buffer, s.index, mask)[mask], self.all(s.value)[mask]
        if s.buffer in self.own:
            own = self.own[s.buffer]
            own[at] = own[at] + values if s.add else values
        else:
            self.shared[s.buffer].store(at, self.waiting[mask], values, s.add)

    def _read_row(self, s: ReadRow, mask: np.ndarray) -> None:
        array, rows = self.read[s.buffer], self.all(s.row).astype(np.int64)
        for c, result in s.results.items():
            at = np.where(mask, rows * s.width + c, 0)
            assert (at < self._size(s.buffer)).all(), f"a row beyond those of {s.buffer.name}"
            self.know(result, array[at], mask)

    def _store_row(self, s: StoreRow, mask: np.ndarray) -> None:
        assert self._whole(mask), "rows of results that not all invocations of a group reach"
        active = mask & (self.cells < self.value(self.kernel.count))
        for c, value in enumerate(s.values):
            at = self.cells[active].astype(np.int64) * len(s.values) + c
            assert (at < self._size(s.buffer)).all(), f"a row beyond those of {s.buffer.name}"
            self.shared[s.buffer].store(at, self.waiting[active], self.all(value)[active], False)

    # control flow --------------------------------------------------------------------------------

    def _choose(self, s: If, mask: np.ndarray) -> None:
        condition = self.all(s.condition)
        branches: list[Sequence[Any]] = []
        for side, yields, active in zip(
            s.sides, s.yields, (mask & condition, mask & ~condition), strict=True
        ):
            if active.any():
                self.scope(side, active)
            branches.append([self.value(y) if active.any() else None for y in yields])
        for r, a, b in zip(s.results, *branches, strict=True):
            a, b = (b, b) if a is None else (a, a) if b is None else (a, b)
            self.know(r, np.where(condition, a, b), mask)

    def _loop(self, s: For, mask: np.ndarray) -> None:
        lo, hi = (self.all(i).astype(np.int64) for i in (s.lo, s.hi))
        trips = np.where(mask, np.clip(hi - lo, 0, s.most), 0)
        carries = [self.all(i) for i in s.inits]
        going, gone = mask.copy(), np.zeros(self.n, np.int64)
        iterations = range(trips.max(initial=0))
        assert not s.some or (trips[mask] > 0).all(), "a loop without a turn"
        for t in reversed(iterations) if s.down else iterations:
            inside = (t < trips) & going
            self.know(s.k, lo + t, inside)
            for p, c in zip(s.params, carries, strict=True):
                self.know(p, c, inside)
            inside = self._iteration(s, inside)
            if s.test is not None:
                going = inside
                if not going.any():
                    break
            gone += inside
            yields = [self.all(y) for y in s.yields]
            carries = [np.where(inside, y, c) for y, c in zip(yields, carries, strict=True)]
        for r, c in zip(s.results, carries, strict=True):
            self.know(r, c, mask)
        if not self.kernel.floating:
            self.know(s.count, lo + gone, mask)

    def _iteration(self, s: For, inside: np.ndarray) -> np.ndarray:
        """One turn; who took it, as the test may end it."""
        before, after = s.scope.items[: s.test_at], s.scope.items[s.test_at :]
        for item in before:
            self.item(item, inside)
        if s.test is not None:
            inside = inside & self.all(s.test)
        if inside.any():
            for item in after:
                self.item(item, inside)
        return inside
