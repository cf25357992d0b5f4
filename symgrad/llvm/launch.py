"""Runs launches on the CPU: their dispatches one after the other, groups of each on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.kernel.language import Kernel
from symgrad.kernel.launch import Dispatch, Launch
from symgrad.kernel.memory import POOL
from symgrad.kernel.statements import BOUND
from symgrad.kernel.uses import Uses
from symgrad.llvm.device import host
from symgrad.llvm.dispatch import definitions_for
from symgrad.llvm.pointers import NULL, address
from symgrad.llvm.printer import print_kernel
from symgrad.llvm.recompile import Function
from symgrad.llvm.threads import share_out, worth

CACHED_FUNCTIONS: Final = 256
"""Most compiled kernels that are cached."""


class Compiled:
    """A kernel of the language, for whole groups of invocations, in machine code."""

    def __init__(self, kernel: Kernel, math: str, dtype: str) -> None:
        vector = host().shape(dtype, True, math != "strict")
        width = kernel.target.width
        assert width % vector.lanes == 0, f"groups of {width} are no whole vectors"
        shape = replace(vector, lanes=width)
        self.kernel, self.width = kernel, width
        bound = [b for b in kernel.buffers if b.space in BOUND]
        self._tables = {b.name: np.array(b.data, dtype) for b in bound if b.data is not None}
        self._names = [b.name for b in bound]
        uses = Uses(kernel).counts
        self._asks = kernel.count in uses or kernel.groups in uses
        """Whether it is told how many invocations and groups there are."""
        words = ["uint32_t"] * (2 * self._asks + len(kernel.arguments))
        taken = ", ".join(["void *"] * (len(bound) + 1) + ["int64_t", "int64_t", "bool", *words])
        write = partial(print_kernel, kernel, definitions_for(math, dtype), shape, vector)
        self.function = Function(lambda thorough: write(thorough=thorough), f"void (*)({taken})")
        self._shared = any(b.atomic for b in bound)

    def caller(self, dispatch: Dispatch, arrays: Sequence[np.ndarray]) -> Callable[[], None]:
        """A call that runs a dispatch, whose ``arrays`` are those of its buffers."""
        given = dict(zip((b.name for b, _ in dispatch.bound), arrays, strict=True)) | self._tables
        addresses = [_address(given[name]) for name in self._names]
        groups = dispatch.number_of_groups
        words = [dispatch.count, groups] * self._asks + dispatch.words
        call, scratch, cells = self.function.call, self.function.scratch, groups * self.width

        def some(first: int, end: int) -> None:
            call(*addresses, scratch(), first, end, False, *words)

        threads = 1 if self._shared else worth(cells * dispatch.operations, self.width)
        if threads == 1:
            return partial(some, 0, cells)
        return partial(share_out, some, cells, self.width, threads)


_compiled: Once[Any, Compiled] = Once(CACHED_FUNCTIONS)


class Launched:
    """A launch that is compiled for the CPU. Any number of threads may run it."""

    def __init__(self, launch: Launch, math: str, dtype: str) -> None:
        start = time.perf_counter()
        launch.verify()
        self.launch, self.dtype = launch, np.dtype(dtype)
        self._dispatches = [
            (d, self._kernel(d, math, dtype)) for d in launch.dispatches if d.number_of_groups
        ]
        self.seconds = time.perf_counter() - start
        """How long it took to compile."""

    @staticmethod
    def _kernel(dispatch: Dispatch, math: str, dtype: str) -> Compiled:
        key = dispatch.program, dispatch.target, math, dtype
        return _compiled.get(key, lambda: Compiled(dispatch.kernel, math, dtype))

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The outputs, as fresh arrays; inputs have the shapes that the launch says."""
        launch = self.launch
        arrays = {
            a.name: np.ascontiguousarray(x, a.dtype(self.dtype))
            for a, x in zip(launch.inputs, inputs, strict=True)
        }
        for a in launch.inputs:
            assert arrays[a.name].size == a.size, f"{a.name} has other than {a.size} numbers"
        for a in (*launch.outputs, *launch.scratch):
            arrays[a.name] = POOL.empty(a.shape, a.dtype(self.dtype))
        for dispatch, compiled in self._dispatches:
            compiled.caller(dispatch, [arrays[name] for _, name in dispatch.bound])()
        return [arrays[a.name] for a in launch.outputs]


def _address(array: np.ndarray) -> Any:
    """Where an array stands, if it has numbers."""
    return address(array) if array.size else NULL
