"""Runs an iteration on the CPU: all problems, on all cores, in one call of compiled code."""

from __future__ import annotations

import time
from typing import Any, Final

import cffi
import numpy as np

from symgrad.kernel.plan import Iteration
from symgrad.kernel.problems import contiguous, problems_of
from symgrad.llvm.device import Code, compile_source, host
from symgrad.llvm.dispatch import PARALLEL, definitions_for, share_out
from symgrad.llvm.iterate import emit_iteration
from symgrad.llvm.memory import POOL

_ffi: Any = cffi.FFI()

MOST: Final = 2**62
"""More steps than anything can do."""


class Loop:
    """Does the steps of an iteration, the same bits every time, whatever the number of cores.

    Any number of threads may use it.
    """

    def __init__(self, iteration: Iteration, math: str, dtype: str) -> None:
        start = time.perf_counter()
        self.iteration, self.dtype = iteration, np.dtype(dtype)
        shape = host().shape(dtype, True, math != "strict")
        source = emit_iteration(iteration, definitions_for(math, dtype), shape)
        self._lanes, self._bytes = shape.lanes, source.workspace
        self._code: Code = compile_source(source)
        kind = f"void (*)({', '.join(['void *'] * 4 + ['int64_t'] * 4)})"
        self._pointer: Any = _ffi.cast(kind, self._code.address)
        self.seconds = time.perf_counter() - start
        """How long it took to compile."""

    def run(
        self, state: np.ndarray, steps: int, shared: np.ndarray | None = None,
        own: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """state (S, state), shared (R, shared), own (S, R, own) -> the state after these steps.

        Raises:
            InputError: for arrays of other shapes.
        """
        sizes = problems_of(self.iteration, state, shared, own)
        result = POOL.empty(state.shape, self.dtype)
        result[...] = state
        shared, own = contiguous(shared, self.dtype), contiguous(own, self.dtype)
        whole = sizes.count // self._lanes * self._lanes
        self._run_blocks(result[:whole], steps, sizes.rows, shared, own)
        if whole < sizes.count:
            block = self._padded(result[whole:])
            rest = None if own is None else self._padded(own[whole:])
            self._run_blocks(block, steps, sizes.rows, shared, rest)
            result[whole:] = block[: sizes.count - whole]
        return result

    def _padded(self, array: np.ndarray) -> np.ndarray:
        """The last problems with others, whose flags are 0, to fill a block."""
        block = np.zeros((self._lanes, *array.shape[1:]), self.dtype)
        block[: len(array)] = array
        return block

    def _run_blocks(
        self, state: np.ndarray, steps: int, rows: int, shared: np.ndarray | None,
        own: np.ndarray | None,
    ) -> None:  # fmt: skip
        """Change the states of whole blocks of problems."""
        count = len(state)
        arrays = [_ffi.NULL if a is None else _ffi.from_buffer(a) for a in (state, shared, own)]
        nbytes = self._bytes + self._lanes * rows * self.iteration.own * self.dtype.itemsize
        steps = min(steps, MOST)

        def work(first: int, end: int) -> None:
            room = _ffi.from_buffer(POOL.empty((nbytes,), np.dtype(np.uint8)))
            self._pointer(*arrays, room, first, end, steps, rows)

        threads = host().threads
        if threads == 1 or count == self._lanes or count * self._weight(rows) * steps < PARALLEL:
            work(0, count)
        else:
            share_out(work, count, self._lanes, threads)

    def _weight(self, rows: int) -> int:
        """About the operations of a step of one problem."""
        each = len(self.iteration.rows.graph) if self.iteration.rows else 0
        return len(self.iteration.update.graph) + rows * each
