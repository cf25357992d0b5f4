"""What a kernel of the language does, in NumPy: all invocations at once, the printers' reference.

What an invocation does not compute, and memory that nobody has written, is poison; two invocations
that meet at a place of memory without a barrier between them are an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from symgrad.expr.semantics.evaluate import leaf
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import (
    OVER_LANES,
    Barrier,
    Buffer,
    Call,
    Fill,
    For,
    If,
    Load,
    Read,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
    StoreRow,
)
from symgrad.kernel.vectors import in_row, vector_of

POISON: Final = {"f": np.nan, "d": np.nan, "b": True, "i": -0x21524111, "u": 0xDEADBEEF}
"""What no invocation may get to see, by kinds."""

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
        AssertionError: for an index out of bounds, or a race.
    """
    width = kernel.target.width
    with np.errstate(all="ignore"):
        run = _Run(kernel, arrays, count, groups or -(-count // width), np.dtype(dtype).type)
        words = arguments or {}
        run.values |= {i: np.uint32(words[name]) for i, name in kernel.arguments.items()}
        run.scope(kernel.main, np.ones(run.n, bool))


class _Shared:
    """An array that several invocations see, and which of them have been where."""

    def __init__(self, buffer: Buffer, array: np.ndarray) -> None:
        self.name, self.atomic, self.array = buffer.name, buffer.atomic, array
        self.forget()

    def forget(self) -> None:
        """A barrier: whoever was here is no matter any more."""
        self.writers, self.readers = (np.full(self.array.size, NOBODY) for _ in range(2))

    def load(self, at: np.ndarray, cells: np.ndarray) -> np.ndarray:
        self._require(self.writers[at], cells)
        others = self.readers[at]
        self.readers[at] = np.where((others == NOBODY) | (others == cells), cells, SEVERAL)
        self.readers[at[self.readers[at] != cells]] = SEVERAL
        return self.array[at]

    def store(self, at: np.ndarray, cells: np.ndarray, values: np.ndarray, add: bool) -> None:
        if self.atomic:
            np.add.at(self.array, at, values)
            return
        self._require(self.writers[at], cells)
        self._require(self.readers[at], cells)
        self.writers[at] = cells
        self._require(self.writers[at], cells)
        self.array[at] = self.array[at] + values if add else values
        if len(np.unique(at)) < len(at):
            same = not add and np.array_equal(self.array[at], values, equal_nan=True)
            assert same, f"lanes in step store different numbers at one place of {self.name}"

    def _require(self, others: np.ndarray, cells: np.ndarray) -> None:
        met = (others != NOBODY) & (others != cells)
        assert not met.any(), f"two invocations meet in {self.name}, with no barrier between them"


class _Run:
    def __init__(
        self,
        kernel: KernelIR,
        arrays: Mapping[str, np.ndarray],
        count: int,
        groups: int,
        dtype: Any,
    ) -> None:
        self.kernel, self.nodes, self.dtype = kernel, kernel.graph.nodes, dtype
        self.width = kernel.target.width
        self.n = groups * self.width
        self.cells = np.arange(self.n, dtype=np.uint32)
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
        self.dtypes = {"f": dtype, "d": np.float64, "b": np.bool_, "i": np.int32, "u": np.uint32}
        self.read = {
            b: arrays[b.name].reshape(-1) if b.data is None else np.array(b.data, dtype)
            for b in kernel.buffers
            if b.space == "read"
        }
        self.shared = {
            b: _Shared(b, self._memory(b, arrays))
            for b in kernel.buffers
            if b.space in ("write", "group")
        }
        self.own = {b: self._memory(b, arrays) for b in kernel.buffers if b.space == "own"}
        sizes = {b: np.uint32(arrays[b.name].size) for b in kernel.lengths}
        self.values |= {i: sizes[b] for b, i in kernel.lengths.items()}

    def _memory(self, b: Buffer, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The array of a buffer: the host's, one that outlasts the kernel, or one of poison."""
        if b.space == "write" or b.name in arrays:
            assert arrays[b.name].flags.c_contiguous, f"{b.name} is not in C order"
            return arrays[b.name].reshape(-1)
        many = self.n if b.space == "own" else self.n // self.width
        return np.full(b.size * many, POISON[b.kind], self.dtypes[b.kind])

    # values --------------------------------------------------------------------------------------

    def value(self, i: int) -> Any:
        """The value of a node: a number, or one for each invocation."""
        node = self.nodes[i]
        return leaf(node, self.dtype) if node[0].constant else self.values[i]

    def all(self, i: int) -> np.ndarray:
        """The value of a node in each invocation."""
        return np.broadcast_to(self.value(i), (self.n,))

    def _set(self, i: int, value: Any, mask: np.ndarray) -> None:
        kind = self.kernel.type(i)
        value = np.asarray(value, self.dtypes[kind])
        if value.ndim and not mask.all():
            value = np.where(mask, value, self.dtypes[kind](POISON[kind]))
        self.values[i] = value if value.ndim else value[()]

    def scope(self, scope: Scope, mask: np.ndarray) -> None:
        for item in scope.items:
            self.item(item, mask)

    def item(self, item: int | Statement, mask: np.ndarray) -> None:
        match item:
            case int():
                self._set(item, self._computed(item, mask), mask)
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
                    self._set(param, self.value(arg), mask)
                self.scope(item.routine.scope, mask)
            case Barrier():
                self._wait(mask)
            case Routine():
                pass

    def _wait(self, mask: np.ndarray) -> None:
        assert self._whole(mask), "a barrier that not all invocations of a group reach"
        for shared in self.shared.values():
            shared.forget()

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

    # memory --------------------------------------------------------------------------------------

    def _index(self, b: Buffer, index: int, mask: np.ndarray) -> np.ndarray:
        """Where invocations read or write; 0 where they do not."""
        at = np.where(mask, self.all(index), 0).astype(np.int64)
        size = b.size or self._size(b)
        assert (at < size).all(), f"index {at.max()} of {b.name}, which has {size} numbers"
        if b.row:
            self._require_row(b, index, mask)
        if b.space == "group":
            return at * (self.n // self.width) + self.cells // self.width
        return at * self.n + self.cells if b.space == "own" else at

    def _require_row(self, b: Buffer, index: int, mask: np.ndarray) -> None:
        """What is added to the beginning of a row stays within the row."""
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
        at = self._index(s.buffer, s.index, mask)
        if s.buffer.space in ("own", "read"):
            array = self.own[s.buffer] if s.buffer in self.own else self.read[s.buffer]
            self._set(s.result, array[at], mask)
            return
        loaded = np.zeros(self.n, self.dtypes[s.buffer.kind])
        if s.agreed:
            self._wait(mask)
        loaded[mask] = self.shared[s.buffer].load(at[mask], self.waiting[mask])
        if s.agreed:
            self._wait(mask)
            each = at.reshape(-1, self.width)[mask.reshape(-1, self.width).any(1)]
            assert (each == each[:, :1]).all(), "invocations of a group ask for different numbers"
        self._set(s.result, loaded, mask)

    def _store(self, s: Store, mask: np.ndarray) -> None:
        at, values = self._index(s.buffer, s.index, mask)[mask], self.all(s.value)[mask]
        if s.buffer.space == "own":
            own = self.own[s.buffer]
            own[at] = own[at] + values if s.add else values
        else:
            self.shared[s.buffer].store(at, self.waiting[mask], values, s.add)

    def _read_row(self, s: ReadRow, mask: np.ndarray) -> None:
        array, rows = self.read[s.buffer], self.all(s.row).astype(np.int64)
        for c, result in s.results.items():
            at = np.where(mask, rows * s.width + c, 0)
            assert (at < self._size(s.buffer)).all(), f"a row beyond those of {s.buffer.name}"
            self._set(result, array[at], mask)

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
            self._set(r, np.where(condition, a, b), mask)

    def _loop(self, s: For, mask: np.ndarray) -> None:
        lo, hi = (self.all(i).astype(np.int64) for i in (s.lo, s.hi))
        trips = np.where(mask, np.maximum(hi - lo, 0), 0)
        carries = [self.all(i) for i in s.inits]
        going, gone = mask.copy(), np.zeros(self.n, np.int64)
        iterations = range(trips.max(initial=0))
        assert not s.some or (trips[mask] > 0).all(), "a loop without a turn"
        for t in reversed(iterations) if s.down else iterations:
            inside = (t < trips) & going
            self._set(s.k, lo + t, inside)
            for p, c in zip(s.params, carries, strict=True):
                self._set(p, c, inside)
            inside = self._iteration(s, inside)
            if s.test is not None:
                going = inside
                if not going.any():
                    break
            gone += inside
            yields = [self.all(y) for y in s.yields]
            carries = [np.where(inside, y, c) for y, c in zip(yields, carries, strict=True)]
        for r, c in zip(s.results, carries, strict=True):
            self._set(r, c, mask)
        self._set(s.count, lo + gone, mask)

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
