"""A map over points on the CPU: compiled for a point or a batch when first needed, and run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.kernel.language import KernelIR
from symgrad.kernel.memory import LARGE_BYTES, POOL, is_aligned
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.map import map_program
from symgrad.kernel.stats import weight_of
from symgrad.kernel.target import SimdTarget
from symgrad.kernel.threads import share_out, worth
from symgrad.llvm.device.host import host
from symgrad.llvm.device.pointers import NULL, address
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import block_of, print_kernel
from symgrad.llvm.printing.source import Source
from symgrad.mathlib.define import Function as Definition
from symgrad.mathlib.define import double, rounding_functions
from symgrad.values.dtypes import host_dtype

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
