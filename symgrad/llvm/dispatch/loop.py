"""Runs an iteration on the CPU: all problems, on all cores, in one call of compiled code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Op, reachable
from symgrad.kernel import watch
from symgrad.kernel.memory import POOL
from symgrad.kernel.problems import NO_DATA, RowData, problems_of
from symgrad.kernel.shapes import Iteration
from symgrad.kernel.skeletons.iterate import iterate_program
from symgrad.kernel.skeletons.normal import normal_program
from symgrad.kernel.target import SimdTarget
from symgrad.llvm.device.host import host
from symgrad.llvm.device.pointers import NULL, address
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.device.threads import share_out, weight_of, worth
from symgrad.llvm.dispatch.points import definitions_for
from symgrad.llvm.printing.operations import Shape, lone_products, uses_of
from symgrad.llvm.printing.printer import print_kernel
from symgrad.llvm.printing.source import LONG_BATCH
from symgrad.mathlib.define import Function as Definition

ALL_STEPS: Final = 2**62
"""More steps than anything can do."""

MOST_PER_CALL: Final = 2**31 - 1
"""Steps, and numbers of an array, of one call of compiled code, at most: it counts in words."""

ROWS_PER_FLOAT_SUM: Final = 32
"""Rows after which sums are added to float64."""

CARRIED_NUMBERS: Final = 160
"""Numbers of a state that the compiler is left to find registers or memory for, at most."""

SECONDS_PER_CALL: Final = 0.1
"""Seconds of compiled code without a look at whether the run has been interrupted, as by Ctrl-C."""

FIRST_OPERATIONS: Final = 2**23
"""Operations of the first piece of a run, which is timed: some milliseconds."""

NEAR_BYTES: Final = 2**19
"""Bytes of the states that are worked on at a time where none are kept: they stay in the cache."""


class Loop:
    """Does the steps of an iteration, the same bits every time, whatever the number of cores.

    Any number of threads may use it.
    """

    def __init__(self, iteration: Iteration, math: str, dtype: str) -> None:
        start = time.perf_counter()
        self.iteration, self.dtype = iteration, np.dtype(dtype)
        shape = host().shape(dtype, True, math != "strict")
        self.lanes, functions = shape.lanes, definitions_for(math, dtype)
        self._run = _Steps(iteration, functions, shape)
        self.workspace = self._run.workspace
        self.seconds = time.perf_counter() - start
        """How long it took to compile."""

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, state) after these steps.

        Raises:
            InputError: for arrays of other shapes.
        """
        assert steps >= 0, f"{steps} steps"
        sizes = problems_of(self.iteration, state.shape, data)
        result = POOL.empty(state.shape, self.dtype)
        result[...] = state
        data = data.contiguous(self.dtype)
        whole = sizes.count // self.lanes * self.lanes
        self._run_blocks(result[:whole], steps, data)
        if whole < sizes.count:
            block = self._padded(result[whole:])
            rest = None if data.own is None else self._padded(data.own[whole:])
            self._run_blocks(block, steps, RowData(data.shared, rest))
            result[whole:] = block[: sizes.count - whole]
        return result

    def _padded(self, array: np.ndarray) -> np.ndarray:
        """The last problems with others, whose flags are 0, to fill a block."""
        block = np.zeros((self.lanes, *array.shape[1:]), self.dtype)
        block[: len(array)] = array
        return block

    def _run_blocks(self, state: np.ndarray, steps: int, data: RowData) -> None:
        """Change the states of whole blocks of problems."""
        rows = data.rows
        nbytes, count = self.workspace + self.own_bytes(rows), len(state)

        def work(first: int, end: int, ended: threading.Event) -> None:
            workspace = POOL.empty((nbytes,), np.dtype(np.uint8))
            part = slice(first, end)
            self.call(state[part], data.of(part), workspace, steps, ended)

        self.share(work, count, count * self.weight(rows) * min(steps, ALL_STEPS))

    def call(
        self,
        state: np.ndarray,
        data: RowData,
        workspace: np.ndarray,
        steps: int,
        ended: threading.Event,
    ) -> None:
        """Change the states of whole blocks of problems, in this thread, until it is ended."""
        self._require_blocks(state, data.shared, data.own)
        rows = data.rows
        needed = self.workspace + self.own_bytes(rows)
        assert workspace.nbytes >= needed, "the workspace is too small"
        run, most = watch.code(self._run), self._most(rows)
        table, scratch = _address(data.shared), address(workspace)
        for first in range(0, len(state), most):
            part = slice(first, first + most)
            block = state[part]
            arrays = _address(data.of(part).own), table, address(block)
            for piece in self._pieces(block, steps, rows, ended):
                run(*arrays, scratch, len(block), piece, rows)

    def _most(self, rows: int) -> int:
        """The most problems of a call: whole blocks of them."""
        widest = max(self.iteration.state, rows * self.iteration.own)
        return max(1, MOST_PER_CALL // (widest * self.lanes)) * self.lanes

    def _require_blocks(self, state: np.ndarray, *data: np.ndarray | None) -> None:
        """What compiled code relies on: it gets addresses alone."""
        assert len(state) % self.lanes == 0, "problems are worked on in whole vectors"
        for a in (state, *data):
            assert a is None or (a.dtype == self.dtype and a.flags.c_contiguous), (
                f"an array of {a.dtype} with strides {a.strides}, not of {self.dtype} in C order"
            )

    def _pieces(
        self, state: np.ndarray, steps: int, rows: int, ended: threading.Event
    ) -> Iterator[int]:
        """The steps in pieces that take about `SECONDS_PER_CALL`, by the time that the last took.

        They end where no problem goes on.
        """
        weight = max(len(state) * self.weight(rows), 1)
        piece, left = max(1, FIRST_OPERATIONS // weight), min(steps, ALL_STEPS)
        while left and not ended.is_set():
            piece = min(piece, left, MOST_PER_CALL)
            start = time.perf_counter()
            yield piece
            took = time.perf_counter() - start
            left -= piece
            if left and not state[:, -1].any():
                return
            piece = max(1, int(piece * min(16.0, SECONDS_PER_CALL / max(took, 1e-9))))

    def own_bytes(self, rows: int) -> int:
        """Bytes of the data that a block of problems has of its own."""
        return self.lanes * rows * self.iteration.own * self.dtype.itemsize

    def share(
        self, work: Callable[[int, int, threading.Event], None], count: int, weight: int
    ) -> None:
        """Have whole blocks of problems worked on by all cores, if that is worth while.

        The event tells the threads when one of them has failed or been interrupted.
        """
        ended = threading.Event()
        try:
            threads = worth(weight, self.lanes)
            share_out(lambda a, b: work(a, b, ended), count, self.lanes, threads)
        except BaseException:
            ended.set()
            raise

    def weight(self, rows: int) -> int:
        """What a step of one problem costs, in additions."""
        each = weight_of(self.iteration.rows.graph) if self.iteration.rows else 0
        step = weight_of(self.iteration.update.graph)
        if self.iteration.matrix:
            n = self.iteration.matrix.n
            step, each = step + n**3 // 3, each + n * n
        return step + rows * each


class _Steps:
    """Does steps of whole blocks of problems."""

    def __init__(
        self, iteration: Iteration, functions: Mapping[Op, Definition], shape: Shape
    ) -> None:
        carried = CARRIED_NUMBERS if _operations(iteration) <= LONG_BATCH else 0
        with watch.stage("emit"):
            program = normal_program if iteration.matrix else iterate_program
            kernel = program(
                iteration, SimdTarget(shape.lanes, block=ROWS_PER_FLOAT_SUM, carried=carried)
            )
        quick = iteration.matrix is None
        write = partial(print_kernel, kernel, functions, shape, None, quick=quick)
        self._function = Function(write)
        self.workspace = self._function.workspace
        """How many bytes of scratch memory a call needs."""

    def __call__(
        self, own: Any, shared: Any, states: Any, workspace: Any, count: int, steps: int, rows: int
    ) -> None:
        """Change the states of so many problems; arrays are addresses."""
        self._function.call(own, shared, states, workspace, 0, count, False, count, 0, steps, rows)


def _operations(iteration: Iteration) -> int:
    """The operations of a step, of which those at a row count once, and fused products not."""
    total = 0
    for part in (iteration.update, *([iteration.rows] if iteration.rows else ())):
        roots = [i for o in part.outputs for i in o.nodes]
        order = [i for i in reachable(part.graph, roots) if part.graph.nodes[i][0].arity]
        total += len(order) - len(
            lone_products(part.graph, order, uses_of(part.graph, order, roots))
        )
    return total


def _address(array: np.ndarray | None) -> Any:
    """Where an array stands, if there is one."""
    return NULL if array is None or not array.size else address(array)


Visit = Callable[[slice, np.ndarray], None]
"""What is done to the states (P, state) of some of the problems."""


def run_from(
    loops: Sequence[tuple[Loop, int]],
    count: int,
    fill: Visit,
    read: Visit,
    data: RowData = NO_DATA,
) -> None:
    """Do the steps of some loops, one loop after the other, and keep no states.

    Some problems at a time, ``fill`` writes their first states and ``read`` reads their last ones;
    several threads call them. All loops have the same states and data.
    """
    lead = loops[0][0]
    wanted = lead.iteration
    for loop, steps in loops:
        assert steps >= 0, f"{steps} steps"
        alike = (loop.iteration.state, loop.iteration.shared, loop.iteration.own, loop.dtype)
        assert alike == (wanted.state, wanted.shared, wanted.own, lead.dtype), (
            f"loops of other states and data: {loop.iteration.update.name}"
        )
    rows = problems_of(wanted, (count, wanted.state), data).rows
    data = data.contiguous(lead.dtype)
    lanes, width = lead.lanes, lead.iteration.state
    size = near(width, lead.dtype)
    nbytes = max(loop.workspace + loop.own_bytes(rows) for loop, _ in loops)

    def work(first: int, end: int, ended: threading.Event) -> None:
        workspace = POOL.empty((nbytes,), np.dtype(np.uint8))
        states = POOL.empty((min(size, end - first), width), lead.dtype)
        for start in range(first, min(end, count), size):
            if ended.is_set():
                return
            part = slice(start, min(start + size, end, count))
            chunk = states[: part.stop - start]
            fill(part, chunk)
            whole = states[: -(-len(chunk) // lanes) * lanes]
            whole[len(chunk) :] = 0
            mine = None if data.own is None else _filled(data.own[part], len(whole))
            for loop, steps in loops:
                loop.call(whole, RowData(data.shared, mine), workspace, steps, ended)
            read(part, chunk)

    weight = count * sum(loop.weight(rows) * min(steps, ALL_STEPS) for loop, steps in loops)
    lead.share(work, -(-count // lanes) * lanes, weight + count * width)


def near(width: int, dtype: Any) -> int:
    """The most problems, of so many numbers in a state, that ``run_from`` works on at a time."""
    nbytes = np.dtype(dtype).itemsize
    lanes = host().vector_bits // (8 * nbytes)
    return max(1, NEAR_BYTES // (width * nbytes * lanes)) * lanes


def _filled(array: np.ndarray, count: int) -> np.ndarray:
    """The data of so many problems, those that are missing 0."""
    if len(array) == count:
        return array
    result = np.zeros((count, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result
