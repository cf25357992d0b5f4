"""Kernels of the language in machine code, and the calls of launches of them, for one thread."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.expr.graph.node import Op
from symgrad.kernel.host.memory import ALIGNMENT_BYTES, LARGE_BYTES, POOL, is_aligned
from symgrad.kernel.host.threads import share_out, worth
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import BOUND
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.launch import Dispatch, Launch, Part, Program
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.map import map_program
from symgrad.kernel.stats import weight_of
from symgrad.llvm.device.cpu import NULL, address, host, parameters, pointer
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import block_of, print_kernel
from symgrad.llvm.printing.source import TYPES, Source, module
from symgrad.mathlib.define import Function as Definition
from symgrad.mathlib.define import double, rounding_functions
from symgrad.values.arrays import host_dtype

# --- maps over points -----------------------------------------------------------------------------
# A map over points on the CPU: compiled for a point or a batch when first needed, and run.

STREAMED_BYTES: Final = 2**23
"""Bytes of results from which they go past the cache."""


def definitions_for(math: str, dtype: str) -> Mapping[Op, Definition]:
    """The library's functions for a dtype.

    The CPU has none of its own that work on vectors: "fast" is the same as "accurate" here.
    """
    if dtype == "float64":
        return double()
    return rounding_functions("accurate" if math == "fast" else math, dtype)


class Points:
    """A dispatch over a batch, each point by itself, on all cores. Any number of threads may."""

    def __init__(self, computation: Computation, math: str, dtype: str) -> None:
        self.computation, self._name, self.dtype = computation, dtype, host_dtype(dtype)
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
    def _looped(self) -> KernelIR | None:
        """The program of a computation with loops or branches: of others it is made anew."""
        return self._made() if self.computation.is_structured else None

    def _made(self) -> KernelIR:
        return map_program(self.computation, SimdTarget(self._vector(True).lanes))

    def _vector(self, batch: bool) -> Shape:
        return host().shape(self._name, batch, self._math != "strict")

    @cached_property
    def _block(self) -> Shape:
        """The shape of the blocks that a batch is done in."""
        vector = self._vector(True)
        return vector if self._looped is None else block_of(self._looped, vector)

    @property
    def _lanes(self) -> int:
        return self._block.lanes

    def _writer(self, batch: bool) -> Callable[[bool], Source]:
        vector = self._vector(True)
        functions = definitions_for(self._math, self._name)
        shape = self._block if batch else self._vector(False)

        def write(thorough: bool) -> Source:
            kernel = self._looped or self._made()
            return print_kernel(kernel, functions, shape, vector, thorough)

        return write

    def function(self, batch: bool) -> Function:
        """The compiled function for batches, or for single points."""
        function = self._compiled.get(batch)
        if function is None:
            with self._lock:
                start = time.perf_counter()
                function = self._compiled[batch] = Function(self._writer(batch))
                self.seconds += time.perf_counter() - start
        return function

    def bind(self, points: np.ndarray, results: Sequence[np.ndarray]) -> Callable[[], None]:
        """A call that computes these points (B, n) into these arrays (B, columns), every time.

        All are C-contiguous, of the program's dtype, and share no memory.
        """
        if len(points) != 1:
            return self._bind_batch(points, results)
        function = self.function(False)
        addresses = [address(a) for a in (points, *results)]
        return partial(function.call, *addresses, function.new_workspace())

    def results(self, count: int) -> list[np.ndarray]:
        """Fresh arrays (B, columns) for the outputs of so many points."""
        dtype, nbytes = self.dtype, count * self._nbytes
        if nbytes < LARGE_BYTES:
            return [np.empty((count, c), dtype) for c in self._columns]
        return [POOL.empty((count, c), dtype, nbytes >= STREAMED_BYTES) for c in self._columns]

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
        stream = count * self._nbytes >= STREAMED_BYTES and all(map(is_aligned, results))
        threads = 1 if alone else worth(whole * self._weight, lanes)
        if threads == 1 and not function.workspace:
            first = partial(call, NULL, 0, whole, stream, count, 0)
            rest = partial(call, NULL, count - lanes, count, False, count, 0)
            return first if whole == count else partial(_both, first, rest)
        return partial(self._run_batch, call, function.own_workspace, count, threads, stream)

    def _run_batch(
        self,
        call: Callable[..., None],
        workspace: Callable[[], Any],
        count: int,
        threads: int,
        stream: bool,
    ) -> None:
        """Compute whole vectors of points, some of them a second time at the end."""
        lanes = self._lanes
        whole = count - count % lanes

        def work(first: int, end: int) -> None:
            call(workspace(), first, end, stream, count, 0)

        if threads == 1:
            work(0, whole)
        else:
            share_out(work, whole, lanes, threads)
        if whole < count:
            call(workspace(), count - lanes, count, False, count, 0)

    def _run_few(self, points: np.ndarray, results: Sequence[np.ndarray]) -> None:
        """Fewer points than a vector has lanes, as a block of their own: the last one fills it."""
        if not len(points):
            return
        block = np.empty((self._lanes, points.shape[1]), self.dtype)
        block[: len(points)], block[len(points) :] = points, points[-1]
        padded = [np.empty((self._lanes, c), self.dtype) for c in self._columns]
        self._bind_batch(block, padded)()
        for result, whole in zip(results, padded, strict=True):
            result[...] = whole[: len(points)]


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


def singles(call: Callable[[], None]) -> Sequence[Callable[[], None]]:
    """The calls that a call of `Points.bind` is made of."""
    return call.args if isinstance(call, partial) and call.func is _both else (call,)


# --- compiled kernels -----------------------------------------------------------------------------


class Compiled:
    """A kernel of the language, for whole groups of invocations, in machine code.

    ``program`` writes it, again for code that is compiled thoroughly. A ``packed`` one is called
    by the instructions of plans alone.
    """

    def __init__(
        self, program: Program, target: Target, math: str, dtype: str, packed: bool = False
    ) -> None:
        vector = host().shape(dtype, True, math != "strict")
        self._program, self._target, self._packed = program, target, packed
        self.width = target.width
        self._vector = replace(vector, lanes=min(vector.lanes, target.width))
        assert target.width % self._vector.lanes == 0, f"groups of {self.width}: no whole vectors"
        self._definitions = definitions_for(math, dtype)
        self.function = Function(self._write)

    def _write(self, thorough: bool) -> Source:
        target, shape = self._target, replace(self._vector, lanes=self.width)
        if thorough and isinstance(target, SimdTarget):
            target = target.thorough
        kernel = self._program(target)
        self._bound = [b for b in kernel.buffers if b.space in BOUND and b.data is None]
        quick = isinstance(target, SimdTarget) and target.quick
        vector, packed = self._vector, self._packed
        return print_kernel(kernel, self._definitions, shape, vector, thorough, quick, packed)

    def planned(self, dispatch: Dispatch) -> Planned:
        """A dispatch with its kernel in machine code."""
        groups, arrays = dispatch.number_of_groups, dict(dispatch.arrays)
        words = dispatch.invocations, groups, *dispatch.words
        cells = groups * self.width
        weight = cells * dispatch.operations
        bound = [arrays[b.name] for b in self._bound]
        written = [arrays[b.name] for b in self._bound if b.space == "write"]
        shared = any(b.atomic for b in self._bound)
        return Planned(self.function, bound, written, words, cells, self.width, weight, shared)


CACHED_FUNCTIONS: Final = 256
"""Most compiled kernels that are cached."""

_compiled: Once[Any, Compiled] = Once(CACHED_FUNCTIONS)


def kernel_of(d: Dispatch, math: str, dtype: str, packed: bool = False) -> Compiled:
    """The kernel of a dispatch, compiled once."""
    key = d.program, d.target, math, dtype, packed, host()
    return _compiled.get(key, lambda: Compiled(lambda _: d.kernel, d.target, math, dtype, packed))


@dataclass(frozen=True, eq=False)
class Planned:
    """A dispatch with all that does not change from call to call."""

    function: Function
    bound: Sequence[str | Part]
    """The names of arrays, or parts of arrays."""
    written: Sequence[str | Part]
    """The arrays, or parts of arrays, that it writes."""
    words: tuple[int, ...]
    cells: int
    width: int
    weight: int
    """About what it costs, in additions."""
    alone: bool
    """Whether one thread does all of it: its groups add to the same numbers."""

    @cached_property
    def threads(self) -> int:
        """How many threads it is worth."""
        return 1 if self.alone else worth(self.weight, self.width)

    def waits_for(self, other: Planned) -> bool:
        """Whether it touches what the other one writes, or writes what that touches."""
        pairs = itertools.chain(
            itertools.product(self.bound, other.written),
            itertools.product(self.written, other.bound),
        )
        return any(_part(a).meets(_part(b)) for a, b in pairs)

    def on(self, arrays: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """A call by this thread that runs all of it on these arrays, every time."""
        addresses = [
            _address(b.of(arrays[b.array]) if isinstance(b, Part) else arrays[b])
            for b in self.bound
        ]
        call, workspace = self.function.call, self.function.own_workspace()
        return partial(call, *addresses, workspace, 0, self.cells, False, *self.words)

    @property
    def arguments(self) -> list[Any]:
        """The arguments of a call for all invocations; the addresses of arrays are not known."""
        return [NULL] * len(self.bound) + [NULL, 0, self.cells, False, *self.words]

    def call(self, arguments: list[Any], alone: bool = False) -> None:
        """Run it with these arguments, which are complete but for the workspace.

        This thread does all of it if it is ``alone``.
        """
        function, many = self.function, len(self.bound)
        if alone or self.threads == 1:
            if function.workspace:
                arguments[many] = function.own_workspace()
            function.call(*arguments)
            return
        call, addresses, workspace = function.call, arguments[:many], function.own_workspace

        def some(first: int, end: int) -> None:
            call(*addresses, workspace(), first, end, False, *self.words)

        share_out(some, self.cells, self.width, self.threads)


class Calls:
    """The calls of a launch, for one thread: its scratch arrays, and arguments that are complete.

    Scratch arrays stand in one arena, where those that are never needed at the same time share
    memory. What is small stays with the thread.
    """

    def __init__(
        self, launch: Launch, chains: Sequence[Sequence[Planned]], dtype: np.dtype[Any]
    ) -> None:
        self._chains = [[(p, p.arguments) for p in chain] for chain in chains]
        self._places: dict[str, list[tuple[list[Any], int, Part | None]]] = {}
        for planned, arguments in itertools.chain.from_iterable(self._chains):
            for n, b in enumerate(planned.bound):
                part = b if isinstance(b, Part) else None
                name = part.array if part else str(b)
                self._places.setdefault(name, []).append((arguments, n, part))
        starts, self._nbytes = arena(launch, dtype)
        self._scratch = [(a.name, starts[a.name], a.size, a.dtype(dtype)) for a in launch.scratch]
        self._stays = self._nbytes <= STAYING_BYTES
        if self._stays:
            self._allot()

    def _allot(self) -> None:
        memory = POOL.empty((self._nbytes,), np.dtype(np.uint8))
        for name, start, size, kind in self._scratch:
            self._set(name, memory[start : start + size * kind.itemsize].view(kind))

    def _set(self, name: str, array: np.ndarray) -> None:
        """Note where an array stands."""
        whole = address(array) if array.size else NULL
        for arguments, n, part in self._places.get(name, ()):
            arguments[n] = whole if part is None else _address(part.of(array))

    def run(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Run all of them on these inputs and outputs, which are let go of after that."""
        if not self._stays:
            self._allot()
        for name, array in arrays.items():
            self._set(name, array)
        self._run_chains()
        for name in arrays if self._stays else self._places:
            for arguments, n, _ in self._places.get(name, ()):
                arguments[n] = NULL

    def _run_chains(self) -> None:
        """Run the dispatches in order, or each chain of them by a thread."""
        chains, alone = self._chains, len(self._chains) > 1

        def some(first: int, end: int) -> None:
            for planned, arguments in itertools.chain.from_iterable(chains[first:end]):
                planned.call(arguments, alone)

        if alone:
            share_out(some, len(chains), 1, self._worth)
        else:
            some(0, 1)

    @cached_property
    def _worth(self) -> int:
        """How many threads all of it is worth."""
        planned = [p for p, _ in itertools.chain.from_iterable(self._chains)]
        return worth(sum(p.weight for p in planned), max(p.width for p in planned))


STAYING_BYTES: Final = 2**20
"""Bytes of scratch arrays that stay with a thread, at most."""


def bound(program: Program, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A call of a kernel of one invocation in float64 with these arrays, which it keeps alive.

    They are those of its buffers; it is compiled once, and takes sizes from words among them.
    """
    function = _alone(program)
    return partial(function.call, *map(address, arrays), function.new_workspace())


@functools.cache
def _alone(program: Program) -> Function:
    kernel, shape = program(SimdTarget(1)), host().shape("float64", False, False)
    functions = definitions_for("accurate", shape.dtype)
    return Function(lambda _: print_kernel(kernel, functions, shape))


def repeated(calls: Sequence[Callable[[], Any]], going: np.ndarray) -> Callable[[], None]:
    """A call that does others in turn, time and again, for as long as a word is 1 after that.

    It does all of it in machine code where they are `bound` to it. Where their code is watched, or
    may be replaced by better code, it does not.
    """
    single = [c for call in calls for c in singles(call)]
    bound = [c for c in single if isinstance(c, partial)]
    signatures = tuple(parameters(c.func) for c in bound)
    if len(bound) == len(single) and None not in signatures:
        handed = (a for c in bound for a in (pointer(c.func), *c.args))
        return partial(_repetition(signatures).call, address(going), *handed)

    def in_turn() -> None:
        going[0] = 1
        while going[0] == 1:
            for call in calls:
                call()

    return in_turn


@functools.cache
def _repetition(signatures: Sequence[Sequence[str]]) -> Function:
    """Calls of functions of these signatures, for as long as the word that comes first is 1."""
    kinds = {kind: name for name, kind in TYPES.items()} | {"_Bool": "i1"}
    head, calls = ["ptr %going"], list[str]()
    for n, signature in enumerate(signatures):
        own = [f"{kinds[kind]} %x{n}.{m}" for m, kind in enumerate(signature)]
        head += [f"ptr %f{n}", *own]
        calls.append(f"  call void %f{n}({', '.join(own)})")
    lines = [
        f"define void @run({', '.join(head)}) #0 {{",
        "entry:",
        "  br label %again",
        "again:",
        *calls,
        "  %word = load i32, ptr %going",
        "  %more = icmp eq i32 %word, 1",
        "  br i1 %more, label %again, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return Function(lambda _: module(lines, head, 0, 1))


def arena(launch: Launch, dtype: np.dtype[Any]) -> tuple[dict[str, int], int]:
    """Where each scratch array begins in memory that all of them share, and how large that is."""
    first, last = dict[str, int](), dict[str, int]()
    for n, d in enumerate(launch.dispatches):
        for name in d.names.values():
            first.setdefault(name, n)
            last[name] = n
    sizes = {a.name: a.size * a.dtype(dtype).itemsize for a in launch.scratch}
    starts, nbytes = placed([(size, first[name], last[name]) for name, size in sizes.items()])
    return dict(zip(sizes, starts, strict=True)), nbytes


def placed(spans: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Where arrays (bytes, first use, last use) begin in memory that they share, and its size.

    Each gets the first gap that is large enough, of what no other one needs while it is needed.
    """
    taken: list[tuple[int, int, int, int]] = []
    starts: list[int] = []
    for nbytes, first, last in spans:
        size, start = -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, 0
        for begin, end, since, until in sorted(taken):
            apart = until < first or last < since
            if not apart and begin < start + size and start < end:
                start = end
        taken.append((start, start + size, first, last))
        starts.append(start)
    return starts, max((end for _, end, _, _ in taken), default=0)


def _part(a: str | Part) -> Part:
    """An array as a part of itself."""
    return a if isinstance(a, Part) else Part(a, 0, sys.maxsize)


def _address(array: np.ndarray) -> Any:
    """Where an array stands, if it has numbers."""
    return address(array) if array.size else NULL
