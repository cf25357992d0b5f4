"""Runs launches on the CPU: their dispatches one after the other, groups of each on all cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.expr.graph.verify import is_verified
from symgrad.kernel import watch
from symgrad.kernel.language import KernelIR
from symgrad.kernel.launch import Dispatch, Launch, Part
from symgrad.kernel.memory import ALIGNMENT_BYTES, POOL
from symgrad.kernel.problems import RowData
from symgrad.kernel.skeletons.map import Map
from symgrad.kernel.skeletons.steps import Iterate
from symgrad.kernel.statements import BOUND
from symgrad.llvm.device.host import host
from symgrad.llvm.device.pointers import NULL, address
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.device.threads import share_out, worth
from symgrad.llvm.dispatch.points import Points, definitions_for
from symgrad.llvm.dispatch.until import Steps, Visit, stream
from symgrad.llvm.printing.printer import print_kernel

CACHED_FUNCTIONS: Final = 256
"""Most compiled kernels that are cached."""


class Compiled:
    """A kernel of the language, for whole groups of invocations, in machine code."""

    def __init__(self, kernel: KernelIR, math: str, dtype: str, quick: bool = False) -> None:
        """What is to be ``quick`` to compile is so even if it has loops."""
        vector = host().shape(dtype, True, math != "strict")
        width = kernel.target.width
        vector = replace(vector, lanes=min(vector.lanes, width))
        assert width % vector.lanes == 0, f"groups of {width} are no whole vectors"
        shape = replace(vector, lanes=width)
        self.kernel, self.width = kernel, width
        bound = [b for b in kernel.buffers if b.space in BOUND and b.data is None]
        self._names = [b.name for b in bound]
        write = partial(
            print_kernel, kernel, definitions_for(math, dtype), shape, vector, quick=quick
        )
        self.function = Function(write)
        self._shared = any(b.atomic for b in bound)

    def planned(self, dispatch: Dispatch) -> Planned:
        """What runs a dispatch, on arrays by their names."""
        groups, arrays = dispatch.number_of_groups, dict(dispatch.arrays)
        words = dispatch.invocations, groups, *dispatch.words
        weight = groups * self.width * dispatch.operations
        threads = 1 if self._shared else worth(weight, self.width)
        bound = [arrays[b] for b in self._names]
        return Planned(self.function, bound, words, groups * self.width, self.width, threads)


@dataclass(frozen=True)
class Planned:
    """A dispatch with all that does not change from call to call."""

    function: Function
    bound: Sequence[str | Part]
    """The names of arrays, or parts of arrays."""
    words: tuple[int, ...]
    cells: int
    width: int
    threads: int

    @property
    def arguments(self) -> list[Any]:
        """The arguments of a call for all invocations; the addresses of arrays are not known."""
        return [NULL] * len(self.bound) + [NULL, 0, self.cells, False, *self.words]

    def call(self, arguments: list[Any]) -> None:
        """Run it with these arguments, which are complete but for the workspace."""
        function, many = self.function, len(self.bound)
        if self.threads == 1:
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

    def __init__(self, launch: Launch, plan: Sequence[Planned], dtype: str) -> None:
        self._steps = [(p, p.arguments) for p in plan]
        self._places: dict[str, list[tuple[list[Any], int, Part | None]]] = {}
        for planned, arguments in self._steps:
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
        for planned, arguments in self._steps:
            planned.call(arguments)
        for name in arrays if self._stays else self._places:
            for arguments, n, _ in self._places.get(name, ()):
                arguments[n] = NULL


STAYING_BYTES: Final = 2**20
"""Bytes of scratch arrays that stay with a thread, at most."""


def arena(launch: Launch, dtype: str) -> tuple[dict[str, int], int]:
    """Where each scratch array begins in memory that all of them share, and how large that is.

    Each gets the first gap that is large enough, of what no other one needs while it is needed.
    """
    first, last = dict[str, int](), dict[str, int]()
    for n, d in enumerate(launch.dispatches):
        for name in d.names.values():
            first.setdefault(name, n)
            last[name] = n
    placed: list[tuple[int, int, str]] = []
    for a in launch.scratch:
        size = -(-a.size * a.dtype(dtype).itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        start = 0
        for begin, end, other in sorted(placed):
            apart = last[other] < first[a.name] or last[a.name] < first[other]
            if not apart and begin < start + size and start < end:
                start = end
        placed.append((start, start + size, a.name))
    return {name: start for start, _, name in placed}, max((end for _, end, _ in placed), default=0)


_compiled: Once[Any, Compiled] = Once(CACHED_FUNCTIONS)


class Launched:
    """A launch that is compiled for the CPU. Any number of threads may run it.

    A map over points is compiled when it is first run, for single points and for batches apart.
    What is repeated is as `symgrad.llvm.dispatch.until.Steps` says.
    """

    def __init__(self, launch: Launch, math: str, dtype: str) -> None:
        start = time.perf_counter()
        self.launch, self.dtype = launch, np.dtype(dtype)
        self._inputs = [(a.name, a.dtype(dtype), a.size) for a in launch.inputs]
        self._outputs = [(a.name, a.dtype(dtype), a.of(1)) for a in launch.outputs]
        self._local = threading.local()
        self._points: Points | None = None
        self._steps: Steps | None = None
        self._plan: list[Planned] = []
        if launch.until:
            self._steps = self._repeated(math, dtype)
        elif launch.has_batch:
            self._points = self._map(math, dtype)
        else:
            launch.verify()
            self._plan = [
                self._kernel(d, math, dtype).planned(d)
                for d in launch.dispatches
                if d.number_of_groups
            ]
        self._seconds = time.perf_counter() - start

    @property
    def seconds(self) -> float:
        """How long it took to compile what has been run so far."""
        return self._seconds + (self._points.seconds if self._points else 0.0)

    def _map(self, math: str, dtype: str) -> Points:
        """The only dispatch of a launch with a batch."""
        (dispatch,) = self.launch.dispatches
        program = dispatch.program
        assert isinstance(program, Map), f"{self.launch.name}: a batch that is no map"
        if is_verified(len(program.computation.graph)):
            self.launch.verify()
        return Points(program.computation, math, dtype)

    def _repeated(self, math: str, dtype: str) -> Steps:
        """The only dispatch of a launch that is repeated."""
        (dispatch,) = self.launch.dispatches
        with watch.stage("emit"):
            self.launch.verify()
        program = dispatch.program
        quick = isinstance(program, Iterate) and program.iteration.matrix is None
        function = Compiled(dispatch.kernel, math, dtype, quick).function
        return Steps(self.launch, function, self.dtype)

    @staticmethod
    def _kernel(dispatch: Dispatch, math: str, dtype: str) -> Compiled:
        key = dispatch.program, dispatch.target, math, dtype
        return _compiled.get(key, lambda: Compiled(dispatch.kernel, math, dtype))

    def run(self, *inputs: np.ndarray, steps: int = 0) -> list[np.ndarray]:
        """The outputs, as fresh arrays; inputs have the shapes that the launch says.

        Those of a batch are C-contiguous, and of the launch's dtype. So many ``steps`` are done of
        what is repeated.
        """
        if self._steps is not None:
            start, shared, own = inputs
            return [self._steps.run(start, RowData(shared, own), steps)]
        if self._points is not None:
            (points,) = inputs
            results = self._points.results(len(points))
            self._points.bind(points, results)()
            return results
        arrays: dict[str, np.ndarray] = {}
        for (name, dtype, size), x in zip(self._inputs, inputs, strict=True):
            assert x.size == size, f"{name} has other than {size} numbers"
            arrays[name] = np.ascontiguousarray(x, dtype)
        results = [POOL.empty(shape, dtype, aligned=False) for _, dtype, shape in self._outputs]
        arrays |= zip([name for name, _, _ in self._outputs], results, strict=True)
        self._calls().run(arrays)
        return results

    def _calls(self) -> Calls:
        """The calls of this thread."""
        try:
            return self._local.calls
        except AttributeError:
            self._local.calls = Calls(self.launch, self._plan, self.dtype.name)
            return self._local.calls

    def bind(
        self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> Callable[[], None]:
        """A call that computes these inputs of a batch into these arrays, every time.

        All are C-contiguous, of the launch's dtype, and share no memory.
        """
        assert self._points is not None, f"{self.launch.name} has no batch"
        (points,) = inputs
        return self._points.bind(points, results)

    @staticmethod
    def stream(
        stages: Sequence[tuple[Launched, int]], count: int, fill: Visit, read: Visit, data: RowData
    ) -> None:
        """Do the steps of several that are repeated, and keep no states.

        See `symgrad.llvm.dispatch.until.stream`.
        """
        stream([(one.steps, n) for one, n in stages], count, fill, read, data)

    @property
    def steps(self) -> Steps:
        """What is repeated."""
        assert self._steps is not None, f"{self.launch.name} is run once"
        return self._steps

    def run_filled(
        self, fill: Callable[[slice], np.ndarray], step: int, results: Sequence[np.ndarray]
    ) -> None:
        """Write to arrays (B, columns) what is computed of points that each thread makes itself.

        ``fill`` gives those of some results, ``step`` at a time.
        """
        assert self._points is not None, f"{self.launch.name} has no batch"
        self._points.run_filled(fill, step, results)


def _address(array: np.ndarray) -> Any:
    """Where an array stands, if it has numbers."""
    return address(array) if array.size else NULL
