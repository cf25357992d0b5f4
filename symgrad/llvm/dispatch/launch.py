"""Runs launches on the CPU: their dispatches one after the other, groups of each on all cores."""

from __future__ import annotations

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
from symgrad.kernel.memory import POOL
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

    def run(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Run it on these arrays."""
        addresses = [
            _address(b.of(arrays[b.array]) if isinstance(b, Part) else arrays[b])
            for b in self.bound
        ]
        call, workspace, words = self.function.call, self.function.own_workspace, self.words

        def some(first: int, end: int) -> None:
            call(*addresses, workspace(), first, end, False, *words)

        if self.threads == 1:
            some(0, self.cells)
        else:
            share_out(some, self.cells, self.width, self.threads)


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
        self._written = [
            (a.name, a.dtype(dtype), a.of(1)) for a in (*launch.outputs, *launch.scratch)
        ]
        self._outputs = [a.name for a in launch.outputs]
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
        for name, dtype, shape in self._written:
            arrays[name] = POOL.empty(shape, dtype)
        for planned in self._plan:
            planned.run(arrays)
        return [arrays[name] for name in self._outputs]

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
