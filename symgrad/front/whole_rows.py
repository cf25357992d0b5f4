"""Losses over data whose rows hold large arrays: a row is mapped to all rows, as whole arrays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.fuse import flops
from symgrad.arrays.loops import mapped
from symgrad.arrays.tape import Operation, operand_rule
from symgrad.arrays.trace import gradients
from symgrad.cache import Once
from symgrad.errors import InputError, PickleError, TraceError
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import Blocks, Tree, tree_of
from symgrad.expr.tracing.gather import TracedRow
from symgrad.front.choice import How, whole_or_elements
from symgrad.front.whole import Runner, WholeTrace, runner
from symgrad.front.whole_kernels import blanks
from symgrad.kernel.host.memory import ALIGNMENT_BYTES, ResidentArray
from symgrad.kernel.host.threads import share_out, worth
from symgrad.kernel.stats import Stats
from symgrad.rows.kernel import DataKernel, data_kernel
from symgrad.rows.loss import Request, require_request, weight_column
from symgrad.targets import Devices, choose_any
from symgrad.tensor.stages import CompiledArrays
from symgrad.values.tables import Columns

BLOCK_ELEMENTS: Final = 2**22
"""Elements of the largest array of a block of rows, which are computed together."""

HOST_BLOCK: Final = 2**16, 8
"""As `BLOCK_ELEMENTS`, on the CPU, whose cache holds so many; and at least for each parameter, of
whose sums each block has its own."""

SAMPLE_ROWS: Final = 2
"""Rows with which it is found out how large arrays of a row are."""

CACHED_BLOCKS: Final = 16
"""Numbers of rows whose programs are kept."""


def summed_over_rows(request: Request, device: Any) -> DataKernel:
    """The kernel of a loss over data: of whole arrays where rows have large ones."""

    def whole(_: How) -> DataKernel:
        if request.columns.codes or isinstance(choose_any(device), Devices):
            raise ElementsNeededError("codes of columns, or several devices")
        try:
            rows: Any = WholeRows.of(request)
            return WholeDataKernel(request, device, rows)
        except IndexError as error:
            raise ElementsNeededError("a column that is an index") from error

    return whole_or_elements(whole, lambda: data_kernel(request, device), large=False)


class Sample(NamedTuple):
    """A loss as it was traced for a few rows when its kernel was made."""

    key: tuple[Operation, ...]
    taken: tuple[Any, ...]
    """The numbers of the arrays that it takes from elsewhere."""
    elements: int
    """The elements of the largest array of a row."""


@dataclass(frozen=True)
class WholeRows:
    """A loss of rows with large arrays, to be summed over rows: see `rows.loss.Traced`."""

    request: Request
    tree: Tree
    columns: Columns
    weight: int | None
    gathers: tuple[()] = ()

    @classmethod
    def of(cls, request: Request) -> WholeRows:
        """The loss of a request, which is traced to find out whether it can be.

        Raises:
            ElementsNeededError: where it has to be traced by elements.
        """
        require_request(request)
        columns = replace(request.columns, quantities=tuple(range(request.columns.count)))
        rows = cls(request, tree_of(request.n), columns, weight_column(request))
        rows.require_unchanged()
        return rows

    @cached_property
    def sample(self) -> Sample:
        """The loss of a few rows, as it is when this is first asked for."""
        traced, _ = self.trace(SAMPLE_ROWS)
        maps = (o.attribute[0] for o in traced.tape.operations if o.rule is rules.mapped)
        return Sample(traced.tape.key, tuple(traced.taken), max(map(_largest, maps), default=1))

    @property
    def block_rows(self) -> int:
        """The rows that are computed together."""
        return max(1, BLOCK_ELEMENTS // max(self.sample.elements, self.columns.count))

    @property
    def read(self) -> tuple[int, ...]:
        """The parameters that rows read, by their places: all of them."""
        return tuple(range(self.tree.size))

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The parameters that rows read, and those with a derivative."""
        every = np.arange(self.tree.size)
        return every, every

    def without_code(self) -> WholeRows:
        """The loss as it travels: with the user's function, of which programs are made."""
        return self

    def require_unchanged(self) -> None:
        """Refuse a function that is no longer what it was when the kernel was made.

        Raises:
            TraceError: where it refers to what has changed, or draws numbers.
        """
        traced, _ = self.trace(SAMPLE_ROWS)
        if traced.tape.key != self.sample.key:
            raise TraceError(
                f"{describe(self.request.f)} is not what it was when the kernel "
                f"{self.request.options.name} was made, and is traced again for other numbers of "
                "rows: make the kernel anew, and draw random numbers outside of it or by sg.random"
            )

    def trace(self, count: int) -> tuple[WholeTrace, list[Any]]:
        """A trace of the sum over so many rows, and the sum with its gradient."""
        numbers = np.broadcast_to(0.0, (count, self.columns.count))
        traced = WholeTrace(
            self._sum, [*blanks(self.tree), numbers], self.request.options.checkpoint
        )
        loss = traced.number(traced.call(lambda arrays: iter([traced, arrays, {}])))
        return traced, [loss, *gradients(loss, traced.variables[:-1])]

    def _sum(self, traced: WholeTrace, arrays: Sequence[Any]) -> Any:
        *parameters, numbers = arrays
        point = self.tree.nest(iter(parameters), Blocks)

        def contribution(row: Any) -> Any:
            named = TracedRow(row, self.columns.blocks) if self.columns.names else row
            loss = self.request.f(point, named)
            return loss if self.weight is None else row[self.weight] * loss

        return np.sum(mapped(contribution, 0, 0, [numbers], traced.tape))

    def __getattr__(self, name: str) -> NoReturn:
        if name not in ("expressions", "reduction"):
            raise AttributeError(name)
        raise InputError(
            f"{self.request.options.name} is a kernel of rows with large arrays, which are whole: "
            "it has no expressions of single numbers, by which kernels are audited and exported; "
            "run, bind and as_scipy are there"
        )


def _largest(operations: Sequence[Operation]) -> int:
    """The elements of the largest array of a function that is mapped, of those it is mapped over.

    Within it may map others, for all places of which there are arrays at the same time.
    """
    largest, moving = 1, set[int]()
    for n, o in enumerate(operations):
        if o.rule is operand_rule:
            moves = o.attribute[1] is not None
        else:
            moves = not moving.isdisjoint(o.operands)
        if moves:
            moving.add(n)
            inner = o.attribute[2] * _largest(o.attribute[0]) if o.rule is rules.mapped else 1
            largest = max(largest, prod(o.shape), inner)
    return largest


class WholeSums:
    """Sums over rows by programs of whole arrays, as `Backend.sums` makes them of expressions."""

    def __init__(self, rows: WholeRows, run: Runner) -> None:
        self.rows, self._runner, self.seconds = rows, run, 0.0
        self._programs: Once[int, CompiledArrays] = Once(CACHED_BLOCKS)

    def program(self, count: int) -> CompiledArrays:
        """The program for so many rows."""
        return self._programs.get(count, partial(self._compiled, count))

    def _compiled(self, count: int) -> CompiledArrays:
        start = time.perf_counter()
        traced, outputs = self.rows.trace(count)
        self.rows.require_unchanged()
        compiled = self._runner.compiled(traced.tape, outputs)
        self.seconds += time.perf_counter() - start
        return compiled

    def run(self, parameters: np.ndarray, numbers: Any) -> np.ndarray:
        """The sums over rows (N, columns), in float64: the loss, and its gradient."""
        return self.over(parameters, self._blocks(numbers))

    def bind(self, numbers: Any, _: Any) -> BoundBlocks:
        """The sums over rows that stay where they are needed."""
        blocks = self._blocks(numbers)
        return BoundBlocks(self, [self.program(len(b)).resident(b) for b in blocks])

    @property
    def on_host(self) -> bool:
        """Whether the CPU computes them."""
        return not self._runner.device.is_gpu

    @cached_property
    def block_rows(self) -> int:
        """The rows that are computed together, at most."""
        most = self.rows.block_rows
        if not self.on_host:
            return most
        least, each = HOST_BLOCK
        elements = max(least, each * self.rows.tree.size)
        return max(1, min(most, most * elements // BLOCK_ELEMENTS))

    def _step(self, count: int) -> int:
        """The rows of a block of so many: on the CPU all are of one size, if that can be."""
        most = self.block_rows
        fewest = -(-count // most)
        numbers = (n for n in range(fewest, 2 * fewest) if count % n == 0)
        return count // next(numbers, fewest) if self.on_host and fewest > 1 else most

    def _blocks(self, numbers: Any) -> list[Any]:
        """Blocks of the rows that weigh something: products would take NaN from the others.

        There are a power of two of them, so that few programs serve all counts: copies of the last
        one weigh nothing.
        """
        weight = self.rows.weight
        if weight is not None:
            heavy = np.flatnonzero(np.asarray(numbers[:, weight]))
            if 0 < len(heavy) < len(numbers):
                host = numbers.numpy() if isinstance(numbers, ResidentArray) else numbers
                most = min(len(numbers), 2 ** (len(heavy) - 1).bit_length())
                numbers = host[np.pad(heavy, (0, most - len(heavy)), mode="edge")]
                numbers[len(heavy) :, weight] = 0.0
            elif not len(heavy):
                numbers = numbers[:0]
        step = self._step(len(numbers))
        return [numbers[start : start + step] for start in range(0, len(numbers), step)]

    def over(self, parameters: np.ndarray, blocks: Sequence[Any]) -> np.ndarray:
        """The sums over the rows of all blocks, which the CPU deals out to its threads."""
        arrays = [np.ascontiguousarray(b.of(parameters)) for b in self.rows.tree.blocks]
        programs = [self.program(len(numbers)) for numbers in blocks]
        sums: list[Any] = [None] * len(blocks)

        def some(first: int, end: int) -> None:
            for k in range(first, end):
                given = [*arrays, blocks[k], *self.rows.sample.taken]
                results = self._runner.run(programs[k], given, False)
                sums[k] = np.concatenate([np.ravel(np.asarray(r, np.float64)) for r in results])

        lanes = ALIGNMENT_BYTES // self._runner.options.floats.itemsize
        share_out(some, len(blocks), 1, worth(sum(p.weight for p in programs), lanes))
        return sum(sums, np.zeros(1 + self.rows.tree.size))


@dataclass(frozen=True)
class BoundBlocks:
    """Sums over blocks of rows that are where programs need them."""

    sums: WholeSums
    blocks: Sequence[Any]

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """The sums, as `WholeSums.run` gives them."""
        return self.sums.over(parameters, self.blocks)


class WholeDataKernel(DataKernel):
    """A loss over data whose rows hold large arrays: see `DataKernel`.

    Blocks of rows are computed together, by programs of whole arrays; their sums are added in
    float64. It has no expressions of single numbers.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def loss(p, r):
        ...     return np.sum(np.tanh(r.x @ p.weights)**2)
        >>> kernel = sg.fused_forward_backward({"weights": (300, 20)}, loss, columns={"x": (300,)},
        ...                                    device="cpu")
        >>> value, grad = kernel.run({"weights": np.zeros((300, 20))}, {"x": np.ones((50, 300))})
        >>> value, grad["weights"].shape
        (0.0, (300, 20))
    """

    _traced: Any

    def _compiled(self) -> WholeSums:
        return WholeSums(self._traced, runner(self.request.options, self.device))

    def __reduce__(self) -> NoReturn:
        raise PickleError(
            "a kernel of rows with large arrays stays in its process: make it again elsewhere"
        )

    @cached_property
    def _flagging(self) -> None:
        """Whole arrays have no loops that end early."""

    @property
    def _program(self) -> CompiledArrays:
        """The program of a block of rows."""
        return self._sums.program(self._sums.block_rows)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules, each complete in itself, with the entry point ``main``."""
        return self._program.modules

    @property
    def stages(self) -> Any:
        """The stages of a block of rows: what runs, one after the other."""
        return self._program.plan

    @property
    def stats(self) -> Stats:
        """The size of what is computed at a row, and the seconds that making the kernel took."""
        program, rows = self._program.program, self._sums.block_rows
        every, own = (
            flops(program.scalars, a) // rows for a in (program.outputs, program.outputs[:1])
        )
        return Stats(
            nodes=len(program.scalars.graph), operations_loss=own, operations=every,
            flops_loss=own, flops=every,
            bytes_per_point=self.request.columns.count * self.dtype.itemsize,
            registers=0, shaders=len(self._program.plan.parts),
            seconds={"compile": self._sums.seconds}, mode="reverse",
        )  # fmt: skip

    def _repr_latex_(self) -> None:
        """There is no formula."""
