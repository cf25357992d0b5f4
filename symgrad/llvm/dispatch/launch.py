"""Runs launches on the CPU: their dispatches one after the other, groups of each on all cores."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.verify import is_verified
from symgrad.kernel.host import watch
from symgrad.kernel.host.memory import POOL
from symgrad.kernel.launch import Dispatch, Launch, Program
from symgrad.kernel.shapes import RowData
from symgrad.kernel.skeletons.map import Map
from symgrad.llvm.dispatch.compiled import Calls, Compiled, Planned, Points, kernel_of
from symgrad.llvm.dispatch.until import Steps, Visit, stream
from symgrad.values.arrays import host_dtype

SMALL_BYTES: Final = 2**16
"""Bytes of outputs that stay with each thread for a launch whose inputs stay, at most."""


class Launched:
    """A launch that is compiled for the CPU. Any number of threads may run it.

    A map over points is compiled when it is first run, for single points and for batches apart.
    What is repeated is as `symgrad.llvm.dispatch.until.Steps` says.
    """

    def __init__(
        self,
        launch: Launch,
        math: str,
        dtype: str,
        kernels: Mapping[Program, Compiled] | None = None,
    ) -> None:
        """Some programs' kernels may be compiled already, of a launch that is known to be right."""
        start = time.perf_counter()
        self.launch, self.dtype = launch, host_dtype(dtype)
        self._kernels = kernels or {}
        self.inputs = {a.name: (a.dtype(self.dtype), a.size) for a in launch.inputs}
        self._outputs = [(a.name, a.dtype(self.dtype), a.of(1)) for a in launch.outputs]
        self._local = threading.local()
        self._points: Points | None = None
        self._steps: Steps | None = None
        self._chains: list[list[Planned]] = []
        if launch.until:
            self._steps = self._repeated(math, dtype)
        elif launch.has_batch:
            self._points = self._map(math, dtype)
        else:
            if kernels is None:
                launch.verify()
            self._chains = self._planned(math, dtype)
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
        (d,) = self.launch.dispatches
        with watch.stage("emit"):
            self.launch.verify()
        function = Compiled(lambda _: d.kernel, d.target, math, dtype).function
        return Steps(self.launch, function, self.dtype)

    def _planned(self, math: str, dtype: str) -> list[list[Planned]]:
        """The dispatches, in order, or in chains that run side by side.

        They do if one thread runs all of some dispatch of each.
        """
        dispatches = [d for d in self.launch.dispatches if d.number_of_groups]
        planned = [self._kernel(d, math, dtype).planned(d) for d in dispatches]
        if self.launch.scratch or not any(p.alone for p in planned):
            return [planned]
        chains: list[list[Planned]] = []
        for p in planned:
            joined = [chain for chain in chains if any(map(p.waits_for, chain))]
            chains = [chain for chain in chains if chain not in joined]
            chains.append([*itertools.chain.from_iterable(joined), p])
        return chains if all(any(p.alone for p in chain) for chain in chains) else [planned]

    def _kernel(self, d: Dispatch, math: str, dtype: str) -> Compiled:
        if d.program in self._kernels:
            return self._kernels[d.program]
        return kernel_of(d, math, dtype)

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
        arrays = dict[str, np.ndarray]()
        for (name, (dtype, size)), x in zip(self.inputs.items(), inputs, strict=True):
            assert x.size == size, f"{name} has other than {size} numbers"
            arrays[name] = np.ascontiguousarray(x, dtype)
        return self.run_on(arrays)

    def run_on(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs, as fresh arrays, of inputs by their names, as kernels take them."""
        results = self._results()
        names = [name for name, _, _ in self._outputs]
        self._calls().run({**inputs, **dict(zip(names, results, strict=True))})
        return results

    def _results(self) -> list[np.ndarray]:
        """Memory for the outputs."""
        return [POOL.empty(shape, dtype, aligned=False) for _, dtype, shape in self._outputs]

    def _calls(self) -> Calls:
        """The calls of this thread."""
        try:
            return self._local.calls
        except AttributeError:
            self._local.calls = Calls(self.launch, self._chains, self.dtype)
            return self._local.calls

    def hold(self, resident: Mapping[str, np.ndarray]) -> Held:
        """The launch with inputs that are the same in every call, by their names."""
        return Held(self, resident)

    @cached_property
    def is_small(self) -> bool:
        """Whether one thread does all of it, in little memory."""
        nbytes = sum(dtype.itemsize * prod(shape) for _, dtype, shape in self._outputs)
        one = len(self._chains) == 1 and all(p.threads == 1 for p in self._chains[0])
        return one and not self.launch.scratch and nbytes <= SMALL_BYTES

    def bound(
        self, inputs: Mapping[str, np.ndarray]
    ) -> tuple[list[Callable[[], None]], list[np.ndarray]]:
        """Calls that run the dispatches on these inputs, and the outputs, if it ``is_small``.

        They are for this thread, and one at a time.
        """
        results = self._results()
        names = [name for name, _, _ in self._outputs]
        arrays = {**inputs, **dict(zip(names, results, strict=True))}
        return [p.on(arrays) for chain in self._chains for p in chain], results

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
        """The steps that are repeated."""
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


class Held:
    """A launch some of whose inputs are the same in every call; any number of threads may call it.

    If there is little to do, each thread has what it works in at hand, from its second call on.
    """

    def __init__(self, launched: Launched, resident: Mapping[str, np.ndarray]) -> None:
        self._launched, self._resident = launched, resident
        self._sent = [name for name in launched.inputs if name not in resident]
        self._total: Any = launched.launch.total or _copied
        self._local: threading.local | None = None

    def replace(self, resident: Mapping[str, np.ndarray]) -> None:
        """Have other arrays in the place of those that stay."""
        self._resident, self._local = resident, None

    def run(self, *inputs: np.ndarray) -> Any:
        """The outputs, as fresh arrays, or their total if the launch has one.

        The inputs are those that do not stay, of the shapes and the dtype that the launch says.
        """
        if self._local is None:
            self._local = threading.local()
            return self._total(self._run_once(inputs), _unread)
        try:
            sent, calls, outputs = self._local.job
        except AttributeError:
            sent, calls, outputs = self._job(inputs, self._local)
        for memory, x in zip(sent, inputs, strict=False):
            memory[:] = x
        for call in calls:
            call()
        return self._total(outputs, _unread)

    def begin(self, *inputs: np.ndarray) -> Callable[[], Any]:
        """A call that does all of it: what a GPU begins, the CPU may as well do at the end."""
        return partial(self.run, *inputs)

    def _run_once(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, as fresh arrays."""
        sent = dict(zip(self._sent, inputs, strict=True))
        return self._launched.run_on({**self._resident, **sent})

    def _job(self, inputs: Sequence[np.ndarray], local: threading.local) -> tuple[Any, ...]:
        """The memory of a thread: inputs, calls that are to be done, and the outputs."""
        launched = self._launched
        if not launched.is_small:
            return (), (), self._run_once(inputs)
        memory = {name: x.copy() for name, x in zip(self._sent, inputs, strict=True)}
        calls, outputs = launched.bound({**self._resident, **memory})
        local.job = job = [*memory.values()], calls, outputs
        return job


def _copied(outputs: Sequence[np.ndarray], _: Any) -> list[np.ndarray]:
    """The outputs: the next call of a thread overwrites them where they are."""
    return [output.copy() for output in outputs]


def _unread(name: str) -> np.ndarray:
    raise AssertionError(f"the memory of {name} is used for other arrays too")
