"""A computation on the CPU: compiled for a point or for a batch when first needed, and run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.expr.node import Op
from symgrad.kernel.language import Kernel
from symgrad.kernel.memory import LARGE, POOL, is_aligned
from symgrad.kernel.plan import Computation, Reduction
from symgrad.kernel.programs.map import map_program
from symgrad.kernel.target import InStep
from symgrad.llvm.body import Source
from symgrad.llvm.device import host
from symgrad.llvm.emit import emit
from symgrad.llvm.instruction import Shape
from symgrad.llvm.pointers import NULL, address
from symgrad.llvm.printer import block_of, print_kernel
from symgrad.llvm.recompile import Function
from symgrad.llvm.reduce import emit_reduction
from symgrad.llvm.threads import share_out, weight_of, worth
from symgrad.mathlib.define import Function as Definition
from symgrad.mathlib.define import double, rounding_functions

STREAMED: Final = 2**23
"""Bytes of results from which they go past the cache."""

ROWS: Final = 2**15
"""Rows that are summed in one piece: what the sums are does not depend on who computes them."""

PIECE: Final = 2**23
"""Operations in such a piece, at most: fewer rows, where each takes many, but some at least."""

FEWEST_ROWS: Final = 2**9

SLOTS: Final = 8
"""Tables that results are added to side by side, if they go to the lines of tables."""


def definitions_for(math: str, dtype: str) -> Mapping[Op, Definition]:
    """The library's functions for a dtype.

    The CPU has none of its own that work on vectors: "fast" is the same as "accurate" here.
    """
    if dtype == "float64":
        return double()
    return rounding_functions("accurate" if math == "fast" else math)


class Program:
    """Runs a computation on all cores. Any number of threads may use it."""

    def __init__(self, computation: Computation, math: str, dtype: str) -> None:
        self.computation, self.dtype = computation, np.dtype(dtype)
        self.seconds = 0.0
        """How long it took to compile what has been run so far."""
        self._math = math
        self._columns = [len(o.nodes) for o in computation.outputs]
        self._nbytes = self.dtype.itemsize * sum(self._columns)
        inputs = self.dtype.itemsize * len(computation.graph.names)
        self._weight = weight_of(computation.graph) + inputs + self._nbytes
        self._lock = threading.Lock()
        self._compiled: dict[bool, Function] = {}

    @cached_property
    def _kernel(self) -> Kernel | None:
        """The program of a computation with loops or branches."""
        c = self.computation
        return map_program(c, InStep(self._vector(True).lanes)) if c.is_structured else None

    def _vector(self, batch: bool) -> Shape:
        return host().shape(str(self.dtype), batch, self._math != "strict")

    @cached_property
    def _block(self) -> Shape:
        """The shape of the blocks that a batch is done in."""
        vector = self._vector(True)
        return vector if self._kernel is None else block_of(self._kernel, vector)

    @property
    def _lanes(self) -> int:
        return self._block.lanes

    def _writer(self, batch: bool) -> Callable[[bool], Source]:
        vector = self._vector(batch)
        functions = definitions_for(self._math, str(self.dtype))
        if self._kernel is None:
            return partial(emit, self.computation, functions, vector)
        shape = self._block if batch else vector
        return partial(print_kernel, self._kernel, functions, shape, vector)

    def function(self, batch: bool) -> Function:
        """The compiled function for batches, or for single points."""
        found = self._compiled.get(batch)
        if found is None:
            with self._lock:
                start = time.perf_counter()
                arrays = ", ".join(["void *"] * (len(self._columns) + 2))
                loop = ", int64_t, int64_t, bool" if batch else ""
                found = Function(self._writer(batch), f"void (*)({arrays}{loop})")
                self._compiled[batch] = found
                self.seconds += time.perf_counter() - start
        return found

    # one point -----------------------------------------------------------------------------------

    def room(self) -> Room:
        """A room for points, one after the other."""
        x = np.empty(len(self.computation.graph.names), self.dtype)
        outputs = [np.empty(columns, self.dtype) for columns in self._columns]
        return Room(x, outputs, self.bind(x[None], outputs))

    def bind(self, points: np.ndarray, results: Sequence[np.ndarray]) -> Callable[[], None]:
        """A call that computes these points (B, n) into these arrays (B, columns), every time.

        All are C-contiguous, of the program's dtype, and share no memory.
        """
        if len(points) != 1:
            return self._bind_batch(points, results)
        function = self.function(False)
        addresses = [address(a) for a in (points, *results)]
        return partial(function.call, *addresses, function.room())

    # a batch -------------------------------------------------------------------------------------

    def run(self, points: np.ndarray) -> list[np.ndarray]:
        """points (B, n), C-contiguous -> a fresh array (B, columns) for each output."""
        count, dtype = len(points), self.dtype
        nbytes = count * self._nbytes
        if nbytes < LARGE:
            results = [np.empty((count, c), dtype) for c in self._columns]
        else:
            results = [POOL.empty((count, c), dtype, nbytes >= STREAMED) for c in self._columns]
        self.bind(points, results)()
        return results

    def run_into(self, points: np.ndarray, results: Sequence[np.ndarray]) -> None:
        """points (B, n) -> written to C-contiguous arrays (B, columns)."""
        self._bind_batch(points, results)()

    def run_filled(
        self, fill: Callable[[slice], np.ndarray], step: int, results: Sequence[np.ndarray]
    ) -> None:
        """Write to arrays (B, columns) what is computed of points that each thread makes itself.

        ``fill`` gives those of some results, ``step`` at a time.
        """
        count = len(results[0])

        def work(first: int, end: int) -> None:
            for start in range(first * step, min(end * step, count), step):
                some = slice(start, min(start + step, count))
                self._bind_batch(fill(some), [r[some] for r in results], alone=True)()

        threads = worth(count * self._weight, self._lanes)
        share_out(work, -(-count // step), 1, threads)

    def _bind_batch(
        self, points: np.ndarray, results: Sequence[np.ndarray], alone: bool = False
    ) -> Callable[[], None]:
        count, lanes = len(points), self._lanes
        if count < lanes:
            return partial(self._run_few, points, results)
        function = self.function(True)
        addresses = [address(a) for a in (points, *results)]
        call, whole = partial(function.call, *addresses), count - count % lanes
        stream = count * self._nbytes >= STREAMED and all(map(is_aligned, results))
        threads = 1 if alone else worth(whole * self._weight, lanes)
        if threads == 1 and whole == count and not function.workspace:
            return partial(call, NULL, 0, count, stream)
        return partial(self._run_batch, call, function.scratch, count, threads, stream)

    def _run_batch(
        self, call: Callable[..., None], scratch: Callable[[], Any], count: int, threads: int,
        stream: bool,
    ) -> None:  # fmt: skip
        """Compute whole vectors of points, some of them a second time at the end."""
        lanes = self._lanes
        whole = count - count % lanes

        def work(first: int, end: int) -> None:
            call(scratch(), first, end, stream)

        if threads == 1:
            call(scratch(), 0, whole, stream)
        else:
            share_out(work, whole, lanes, threads)
        if whole < count:
            call(scratch(), count - lanes, count, False)

    def _run_few(self, points: np.ndarray, results: Sequence[np.ndarray]) -> None:
        """Fewer points than a vector has lanes, as a block of their own: the last one fills it."""
        if not len(points):
            return
        block = np.empty((self._lanes, points.shape[1]), self.dtype)
        block[: len(points)], block[len(points) :] = points, points[-1]
        rooms = [np.empty((self._lanes, c), self.dtype) for c in self._columns]
        self.run_into(block, rooms)
        for result, room in zip(results, rooms, strict=True):
            result[...] = room[: len(points)]


class Sums:
    """Runs a reduction on all cores: the same bits every time, whatever the number of cores."""

    def __init__(self, reduction: Reduction, math: str, dtype: str) -> None:
        start = time.perf_counter()
        self.reduction, self.dtype = reduction, np.dtype(dtype)
        shape = host().shape(dtype, True, math != "strict")
        write = partial(emit_reduction, reduction, definitions_for(math, dtype), shape)
        self.lanes = shape.lanes
        self.count = sum(len(o.nodes) for o in reduction.summed)
        """How many results are summed over all rows."""
        rows = PIECE // len(reduction.graph) // FEWEST_ROWS * FEWEST_ROWS
        self.rows = max(FEWEST_ROWS, min(ROWS, rows))
        """How many rows a piece has."""
        inputs = self.dtype.itemsize * reduction.columns
        self._weight = weight_of(reduction.graph) + inputs
        more = ", void *, void *" if reduction.lookups else ""
        kind = f"void (*)(void *, void *, void *, void *, int64_t, int64_t{more})"
        self._function = Function(write, kind)
        self.seconds = time.perf_counter() - start

    def run(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """parameters (n,), rows (N, columns), C-contiguous -> the sums (results,) in float64."""
        return self.run_with_tables(parameters, rows)[0]

    def bind(self, rows: np.ndarray) -> BoundSums:
        """The sums over these rows, for any parameters."""
        return BoundSums(self, rows)

    def run_with_tables(
        self, parameters: np.ndarray, rows: np.ndarray, indices: np.ndarray | None = None,
        tables: Sequence[np.ndarray] = (),
    ) -> tuple[np.ndarray, list[np.ndarray]]:  # fmt: skip
        """The sums (results,) in float64, and for each lookup what was added to its table's lines.

        parameters (n,), rows (N, columns), indices (N, count) int32 and tables (lines, width) are
        C-contiguous, all but the indices of the kernel's dtype.
        """
        job = _Pass(self, parameters, rows, indices, tables)
        threads = self.threads(len(rows))
        if job.pieces and tables:
            share_out(job.fill, job.slots, 1, threads)
        elif job.pieces:
            share_out(job.sum_up, job.pieces, 1, threads)
        job.sum_rest()
        lines = [
            a.sum(axis=0)[: t.size].reshape(t.shape) for a, t in zip(job.added, tables, strict=True)
        ]
        return job.total(), lines

    def threads(self, rows: int) -> int:
        """How many threads so many rows are worth."""
        return worth(rows * self._weight, self.lanes)

    def caller(
        self, parameters: np.ndarray, rows: np.ndarray, indices: np.ndarray | None,
        tables: Sequence[np.ndarray], added: Sequence[np.ndarray], sums: np.ndarray,
    ) -> Callable[[int, int, int], Callable[[], None]]:  # fmt: skip
        """What makes a call that sums up some of the rows, in a line of ``sums``."""
        room, run = self._function.scratch(), self._function.call
        p, x, to = address(parameters), address(rows), address(sums)
        size = sums.itemsize * self.count
        more: list[Any] = []
        if tables:
            pairs = [a for pair in zip(tables, added, strict=True) for a in pair]
            places = np.array([a.__array_interface__["data"][0] for a in pairs], np.uintp)
            more = [address(indices), address(places)]

        def call(line: int, first: int, end: int) -> Callable[[], None]:
            return partial(run, p, x, to + line * size, room, first, end, *more)

        return call


class _Pass:
    """One pass over the rows: pieces of them, whose sums are lines of ``partial``.

    With tables, each of the ``slots`` has arrays of its own to which the results are ``added`` that
    go to lines of tables: for a share of the pieces, the same whoever does it.
    """

    def __init__(
        self, sums: Sums, parameters: np.ndarray, rows: np.ndarray,
        indices: np.ndarray | None = None, tables: Sequence[np.ndarray] = (),
    ) -> None:  # fmt: skip
        self.sums, self.parameters, self.rows, self.indices = sums, parameters, rows, indices
        self.tables = [np.concatenate([t.ravel(), np.zeros(sums.lanes, t.dtype)]) for t in tables]
        self._whole = len(rows) // sums.lanes * sums.lanes
        self._ends = [*range(0, self._whole, sums.rows), self._whole]
        self.pieces = len(self._ends) - 1
        self.partial = np.zeros((self.pieces + 1, sums.count))
        self.slots = min(SLOTS, self.pieces)
        shapes = [(max(1, self.slots), t.size) for t in self.tables]
        self.added = [POOL.empty(shape, self.partial.dtype) for shape in shapes]

    def calls(self) -> Iterator[Callable[[], None]]:
        """What sums up all rows of a pass without tables."""
        yield from self._pieces(0, self.pieces, 0)
        yield from self._rest()

    def total(self) -> np.ndarray:
        """The sums over all rows."""
        if len(self.partial) == 2:
            return self.partial[0] + self.partial[1]
        pieces = self.partial.T.copy()  # NumPy adds whole lines in turn, within a line in halves
        return pieces.sum(axis=1)

    def sum_up(self, first: int, end: int, slot: int = 0) -> None:
        """Sum up some pieces."""
        for call in self._pieces(first, end, slot):
            call()

    def _pieces(self, first: int, end: int, slot: int) -> Iterator[Callable[[], None]]:
        mine = [a[slot] for a in self.added]
        caller = self.sums.caller(
            self.parameters, self.rows, self.indices, self.tables, mine, self.partial
        )
        return (caller(k, self._ends[k], self._ends[k + 1]) for k in range(first, end))

    def fill(self, first: int, end: int) -> None:
        """Sum up the pieces of some slots."""
        for slot in range(first, end):
            for a in self.added:
                a[slot] = 0.0
            begin, stop = (self.pieces * k // self.slots for k in (slot, slot + 1))
            self.sum_up(begin, stop, slot)

    def sum_rest(self) -> None:
        """Sum up the last rows, fewer than a vector has lanes."""
        if not self.pieces:
            for a in self.added:
                a[0] = 0.0
        for call in self._rest():
            call()

    def _rest(self) -> Iterator[Callable[[], None]]:
        rest = len(self.rows) - self._whole
        if rest:
            count = self.sums.lanes
            rows, *indices = (
                _padded(a[self._whole :], count) for a in (self.rows, self.indices) if a is not None
            )
            mine = [a[0] for a in self.added]
            last = indices[0] if indices else None
            caller = self.sums.caller(self.parameters, rows, last, self.tables, mine, self.partial)
            yield caller(self.pieces, 0, rest)


class BoundSums:
    """A reduction and its rows. If they are few, each thread has what it works in at hand."""

    def __init__(self, sums: Sums, rows: np.ndarray) -> None:
        self.sums, self.rows = sums, rows
        self._alone = sums.threads(len(rows)) == 1
        self._local = threading.local()

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """parameters (n,) -> the sums (results,) in float64."""
        if not self._alone:
            return self.sums.run(parameters, self.rows)
        try:
            job, calls = self._local.job
        except AttributeError:
            mine = np.empty_like(parameters)
            job = _Pass(self.sums, mine, self.rows)
            calls = list(job.calls())
            self._local.job = job, calls
        job.parameters[:] = parameters
        for call in calls:
            call()
        return job.total()


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    """The rows, and as many of zeros as make up this count."""
    found = np.zeros((count, rows.shape[1]), rows.dtype)
    found[: len(rows)] = rows
    return found


@dataclass(frozen=True)
class Room:
    """Where a thread puts a point ``x`` (n,), and finds its results (columns,) after a ``call``.

    Their addresses are known once.
    """

    x: np.ndarray
    outputs: list[np.ndarray]
    call: Callable[[], None]
