"""Repeats a launch on the CPU until its points are done, on all cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import reachable
from symgrad.kernel.host import watch
from symgrad.kernel.host.memory import POOL
from symgrad.kernel.host.threads import share_out, worth
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.launch import Launch
from symgrad.kernel.shapes import Iteration, RowData
from symgrad.llvm.device.cpu import NULL, address, host
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.printing.operations import lone_products, uses_of

ALL_STEPS: Final = 2**62
"""More steps than anything can do."""

MOST_PER_CALL: Final = 2**31 - 1
"""Steps, and numbers of an array, of one call of compiled code, at most: it counts in words."""

ROWS_PER_FLOAT_SUM: Final = 32
"""Rows after which sums are added to float64."""

SECONDS_PER_CALL: Final = 0.1
"""Seconds of compiled code without a look at whether the run has been interrupted, as by Ctrl-C."""

FIRST_OPERATIONS: Final = 2**23
"""Operations of the first piece of a run, which is timed: some milliseconds."""

Visit = Callable[[slice, np.ndarray], None]
"""Works on the states (P, state) of some of the problems."""


def steps_target(iteration: Iteration, math: str, dtype: str) -> SimdTarget:
    """The lanes that do steps of an iteration, a problem each."""
    shape = host().shape(dtype, True, math != "strict")
    sizes, quick = shape.sizes, iteration.matrix is None
    carried = sizes.carried_numbers if _operations(iteration) <= sizes.long_batch else 0
    return SimdTarget(shape.lanes, block=ROWS_PER_FLOAT_SUM, carried=carried, quick=quick)


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


class Steps:
    """A launch that is repeated, in machine code. Any number of threads may use it.

    It gives the same bits every time, whatever the number of cores.
    """

    def __init__(self, launch: Launch, function: Function, dtype: np.dtype[Any]) -> None:
        assert launch.until, f"{launch.name} is run once"
        self.launch, self.dtype, self._function = launch, dtype, function
        self._cost, self.lanes = launch.until.cost, launch.dispatches[0].target.width
        states, own = launch.outputs[0], launch.inputs[-1]
        self.width, self._own_width = states.size, own.size

    def run(self, start: np.ndarray, data: RowData, steps: int) -> np.ndarray:
        """The states (S, width) after so many steps from the first ones."""
        assert steps >= 0, f"{steps} steps"
        count = len(start)
        self.require(count, data)
        result = POOL.empty((count, self.width), self.dtype)
        result[...] = start
        data = data.contiguous(self.dtype)
        whole = count // self.lanes * self.lanes
        self._run_blocks(result[:whole], steps, data.of(slice(whole)))
        if whole < count:
            block = padded(result[whole:], self.lanes)
            rest = padded(data.own[whole:], self.lanes)
            self._run_blocks(block, steps, RowData(data.shared, rest))
            result[whole:] = block[: count - whole]
        return result

    def require(self, count: int, data: RowData) -> None:
        """Checks what compiled code relies on, of the data of so many points."""
        shapes = data.shared.shape, data.own.shape
        rows, widths = data.rows, [a.size for a in self.launch.inputs[1:]]
        assert shapes == ((rows, widths[0]), (count, rows, widths[1])), f"data of shapes {shapes}"

    def _run_blocks(self, states: np.ndarray, steps: int, data: RowData) -> None:
        """Change the states of whole blocks of points."""
        nbytes, count = self.workspace(data.rows), len(states)

        def work(first: int, end: int, ended: threading.Event) -> None:
            workspace = POOL.empty((nbytes,), np.dtype(np.uint8))
            part = slice(first, end)
            self.call(states[part], data.of(part), workspace, steps, ended)

        share_blocks(work, count, count * self.operations(data.rows, steps), self.lanes)

    def call(
        self,
        states: np.ndarray,
        data: RowData,
        workspace: np.ndarray,
        steps: int,
        ended: threading.Event,
    ) -> None:
        """Change the states of whole blocks of points, in this thread, until it is ended."""
        self._require_blocks(states, data.shared, data.own)
        rows = data.rows
        assert workspace.nbytes >= self.workspace(rows), "the workspace is too small"
        run, most = watch.code(self._function.call), self._most(rows)
        shared, scratch = _address(data.shared), address(workspace)
        for first in range(0, len(states), most):
            part = slice(first, first + most)
            block = states[part]
            count, arrays = len(block), (_address(data.own[part]), shared, address(block), scratch)
            for piece in self._pieces(block, steps, rows, ended):
                run(*arrays, 0, count, False, count, 0, piece, rows)

    def _most(self, rows: int) -> int:
        """The most points of a call: whole blocks of them."""
        widest = max(self.width, rows * self._own_width)
        return max(1, MOST_PER_CALL // (widest * self.lanes)) * self.lanes

    def _require_blocks(self, states: np.ndarray, *data: np.ndarray) -> None:
        """Checks what compiled code relies on: it gets addresses alone."""
        assert len(states) % self.lanes == 0, "points are worked on in whole vectors"
        for a in (states, *data):
            assert a.dtype == self.dtype and a.flags.c_contiguous, (
                f"an array of {a.dtype} with strides {a.strides}, not of {self.dtype} in C order"
            )

    def _pieces(
        self, states: np.ndarray, steps: int, rows: int, ended: threading.Event
    ) -> Iterator[int]:
        """The steps in pieces that take about `SECONDS_PER_CALL`, by the time that the last took.

        They end where no point goes on.
        """
        operations = max(len(states) * self._cost.operations_at(rows), 1)
        piece, left = max(1, FIRST_OPERATIONS // operations), min(steps, ALL_STEPS)
        while left and not ended.is_set():
            piece = min(piece, left, MOST_PER_CALL)
            start = time.perf_counter()
            yield piece
            took = time.perf_counter() - start
            left -= piece
            if left and not states[:, -1].any():
                return
            piece = max(1, int(piece * min(16.0, SECONDS_PER_CALL / max(took, 1e-9))))

    def workspace(self, rows: int) -> int:
        """Bytes of scratch memory of a call: its own, and the data that a block has of its own."""
        own = self.lanes * rows * self._own_width * self.dtype.itemsize
        return self._function.workspace + own

    def operations(self, rows: int, steps: int) -> int:
        """The cost of so many steps of a point, in additions."""
        return self._cost.operations_at(rows) * min(steps, ALL_STEPS)

    @property
    def near(self) -> int:
        """The most points that are worked on at a time where no states are kept."""
        nbytes = self.width * self.dtype.itemsize * self.lanes
        return max(1, host().sizes.near_bytes // nbytes) * self.lanes


def stream(
    stages: Sequence[tuple[Steps, int]], count: int, fill: Visit, read: Visit, data: RowData
) -> None:
    """Do the steps of several launches, one after the other, and keep no states.

    Some points at a time, ``fill`` writes their first states and ``read`` reads their last ones;
    several threads call them. All launches have the same states and data.
    """
    lead = stages[0][0]
    arrays, dtype, lanes = lead.launch.inputs, lead.dtype, lead.lanes
    for one, steps in stages:
        assert steps >= 0, f"{steps} steps"
        assert (one.launch.inputs, one.dtype) == (arrays, dtype), (
            f"a launch of other states and data: {one.launch.name}"
        )
    lead.require(count, data)
    data = data.contiguous(dtype)
    rows, size = data.rows, lead.near
    nbytes = max(one.workspace(rows) for one, _ in stages)

    def work(first: int, end: int, ended: threading.Event) -> None:
        workspace = POOL.empty((nbytes,), np.dtype(np.uint8))
        states = POOL.empty((min(size, end - first), lead.width), dtype)
        for start in range(first, min(end, count), size):
            if ended.is_set():
                return
            part = slice(start, min(start + size, end, count))
            some = states[: part.stop - start]
            fill(part, some)
            whole = states[: -(-len(some) // lanes) * lanes]
            whole[len(some) :] = 0
            mine = RowData(data.shared, padded(data.own[part], len(whole)))
            for one, steps in stages:
                one.call(whole, mine, workspace, steps, ended)
            read(part, some)

    operations = count * sum(one.operations(rows, steps) for one, steps in stages)
    share_blocks(work, -(-count // lanes) * lanes, operations + count * lead.width, lanes)


def share_blocks(
    work: Callable[[int, int, threading.Event], None], count: int, operations: int, lanes: int
) -> None:
    """Have whole blocks of points worked on by all cores, if that is worth while.

    The event tells the threads when one of them has failed or been interrupted.
    """
    ended = threading.Event()
    try:
        threads = worth(operations, lanes)
        share_out(lambda a, b: work(a, b, ended), count, lanes, threads)
    except BaseException:
        ended.set()
        raise


def padded(array: np.ndarray, count: int) -> np.ndarray:
    """An array of ``count`` points, of which those that are missing are 0: their flags too."""
    if len(array) == count:
        return array
    block = np.zeros((count, *array.shape[1:]), array.dtype)
    block[: len(array)] = array
    return block


def _address(array: np.ndarray) -> Any:
    """Where an array stands, if it has numbers."""
    return address(array) if array.size else NULL
