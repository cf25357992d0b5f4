"""Losses over data: a loss of one row, summed over many in one pass, with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symgrad import targets
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr.gather import Block
from symgrad.mathlib.define import functions
from symgrad.parameters import Nest
from symgrad.pipeline import paused_gc
from symgrad.row_loss import Request, Traced, require_request, traced_loss, traced_squares
from symgrad.rows import blocks_of as tables_of
from symgrad.rows import is_table, len_of, read, screened
from symgrad.screen import open_screen
from symgrad.wgsl.emit import Style
from symgrad.wgsl.reduce import emit_reduction

BLOCK = 2**20
"""Rows of a long table that are read, converted and summed at a time."""


def _travelled(*_: Any) -> Any:
    """In the place of a traced function that was left behind."""
    raise TraceError("this kernel came from another process, without its Python function")


@dataclass(frozen=True)
class Totals:
    """What was summed up, in float64: results, lines of tables, and the weights of rows."""

    sums: np.ndarray
    lines: tuple[np.ndarray, ...]
    weight: float

    def __add__(self, other: Totals) -> Totals:
        lines = tuple(a + b for a, b in zip(self.lines, other.lines, strict=True))
        return Totals(self.sums + other.sums, lines, self.weight + other.weight)


class DataKernel:
    """A loss over the rows of a table, and its gradient, in one pass over the data.

    ``run(p, rows)`` gives the loss, a float, and its gradient, nested and shaped as the parameters;
    ``bind(rows)`` keeps the data on the device for many runs.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
        >>> kernel = sg.fused_forward_backward(2, line, row=2, reduce="mean", device="cpu")
        >>> loss, grads = kernel.run([0.0, 1.0], np.array([[0.0, 1.0], [1.0, 1.0]]))
        >>> loss, grads.tolist()
        (0.5, [-1.0, 0.0])
    """

    def __init__(self, request: Request, device: Any, traced: Traced) -> None:
        self._request, self._traced = request, traced
        self._parameters = Nest(request.n, traced.blocks, self.dtype)
        self.device = targets.choose(device)
        self._title = f"{request.options.name}: loss and gradient, summed over rows"
        self._sums = targets.sums(traced.reduction, request.options, self._title, self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        """The trace travels, but no code of the user's; it is compiled again where it arrives."""
        return type(self), (replace(self._request, f=_travelled), self.device, self._traced)

    @property
    def name(self) -> str:
        """The name it was given, or that of the traced function."""
        return self._request.options.name

    @property
    def n_inputs(self) -> int:
        """The number of parameters."""
        return self._parameters.size

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules: the results are summed up in as many passes."""
        options = self._request.options
        style = Style(options.math, options.comments, self._title)
        made = emit_reduction(self._traced.reduction, functions(options.math), style)
        return tuple(module.source for module in made)

    @property
    def wgsl(self) -> str:
        """The source as a GPU gets it; the CPU runs the same graph, compiled by LLVM."""
        return "\n".join(self.modules)

    @property
    def columns(self) -> tuple[str, ...] | int:
        """The names of a row's columns, or their number."""
        return self._request.columns.names or self._request.columns.count

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the arithmetic and of the gradient."""
        return np.dtype(self._request.options.dtype)

    def __repr__(self) -> str:
        names = self._request.columns.names
        row = ", ".join(names) if names else f"{self._request.columns.count} columns"
        return (
            f"<symgrad data kernel {self.name}: {self.n_inputs} parameters, rows of {row}; "
            f"{self._request.reduce}, {self.dtype} on {self.device}>"
        )

    def run(self, params: Any, rows: Any, *, progress: bool = False) -> tuple[float, Any]:
        """The loss over the rows, and its gradient.

        Args:
            params: the parameters, nested as they were asked for, or all of them in a row.
            rows: an array (N, columns); with named columns also a structured array, a dict of
                arrays or a data frame; or an iterator of such tables, which are streamed. A
                memory-mapped array is read block by block.
            progress: whether to show how far it has got.

        Raises:
            InputError: for a table or parameters of a wrong shape, a column that is missing, an
            index that is out of range, or, if ``nan_policy="raise"``, a NaN.
        """
        flat = self._parameters.flat(params)
        total: Totals | None = None
        for table in self._watched(tables_of(rows, BLOCK), rows, progress):
            found = self._read(table)
            part = self._total(flat, found)
            total = part if total is None else total + part
        return self._finished(total)

    def bind(self, rows: Any) -> BoundKernel:
        """The kernel with a table that stays where it is needed: ``bound.run(params)``."""
        if not is_table(rows):
            raise InputTypeError("an iterator of blocks cannot be kept: run(params, rows) reads it")
        table = self._read(rows, own=not self.device.is_gpu)
        resident = self._resident(table)
        if self.device.is_gpu:
            table = replace(table, numbers=table.numbers[:0].copy())  # the device has its own

        def run(params: Any) -> tuple[float, Any]:
            return self._finished(self._total(self._parameters.flat(params), table, resident))

        return BoundKernel(self, table.count, run)

    __call__ = run

    # what happens to a table ---------------------------------------------------------------------

    def _watched(self, tables: Any, rows: Any, progress: bool) -> Any:
        if not progress:
            return tables
        count = -(-len_of(rows) // BLOCK) if is_table(rows) else 0
        return open_screen().progress(tables, count, lambda table: f"{len_of(table):,} rows")

    def _read(self, table: Any, own: bool = False) -> _Table:
        """The table as a device takes it; ``own`` if nothing may be shared with the user."""
        columns = self._traced.columns
        numbers, indices = read(table, columns, str(self.dtype), own)
        numbers, indices = screened(numbers, indices, self._request.nan_policy, columns)
        for position, k in enumerate(columns.indices):
            blocks = [g.block for g in self._traced.gathers if g.column == k]
            indices[:, position] = _in_range(indices[:, position], blocks, columns.describe(k))
        kept = [k for k in range(columns.count) if k not in columns.indices]
        if len(kept) < columns.count:
            numbers = np.ascontiguousarray(numbers[:, kept])
        small = np.ascontiguousarray(indices, np.int32)
        return _Table(numbers, small, len(numbers), self._weight(numbers, kept))

    def _weight(self, numbers: np.ndarray, kept: Sequence[int]) -> float:
        if self._traced.weight is None:
            return float(len(numbers))
        return float(numbers[:, kept.index(self._traced.weight)].sum(dtype=np.float64))

    # numbers in, numbers out ---------------------------------------------------------------------

    def _total(self, flat: np.ndarray, table: _Table, bound: Any = None) -> Totals:
        """The sums over one table."""
        uniform, tables = self._split(flat)
        lines: list[np.ndarray] = []
        if tables and bound:
            sums, lines = bound.run_with_tables(uniform, tables)
        elif tables:
            sums, lines = self._sums.run_with_tables(uniform, table.numbers, table.indices, tables)
        else:
            sums = bound.run(uniform) if bound else self._sums.run(uniform, table.numbers)
        return Totals(sums, tuple(lines), table.weight)

    def _resident(self, table: _Table) -> Any:
        """The table where it is needed; None if it stays where it is, for there are indices."""
        if not self._traced.gathers:
            return self._sums.bind(table.numbers)
        return self._sums.bind(table.numbers, table.indices) if self.device.is_gpu else None

    def _split(self, flat: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The parameters that are the same for all rows, and the tables of the others."""
        blocks = [g.block for g in self._traced.gathers]
        tables = [flat[b.start : b.start + b.size].reshape(b.shape[0], b.width) for b in blocks]
        return np.ascontiguousarray(flat[list(self._traced.used)]), tables

    def _finished(self, total: Totals | None) -> Any:
        """What ``run`` returns of sums over all tables."""
        if total is None:
            raise InputError("rows is an iterator without a table")
        scale = 1.0
        if self._request.reduce == "mean":
            if not total.weight:
                raise InputError("the mean over no rows, or over weights of 0, is not defined")
            scale = 1.0 / total.weight
        return self._results(total, scale)

    def _results(self, total: Totals, scale: float) -> Any:
        gradient = np.zeros(self.n_inputs)
        gradient[list(self._traced.graded)] = total.sums[1:]
        for gather, lines in zip(self._traced.gathers, total.lines, strict=True):
            b = gather.block
            gradient[b.start : b.start + b.size] += lines.ravel()
        return float(total.sums[0] * scale), self._parameters.nested(gradient * scale)


class LeastSquaresKernel(DataKernel):
    """The sum of squares of residuals over the rows of a table, and what fitting them needs.

    ``run(p, rows)`` gives the sum of squares, its gradient 2 Jᵀr (n,), and JᵀJ (n, n), from one
    pass; the Jacobian J itself is never stored.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> kernel = sg.fused_least_squares(2, lambda p, r: p[0] + p[1] * r[0] - r[1], row=2,
        ...                                 device="cpu")
        >>> loss, gradient, jtj = kernel.run([0.0, 0.0], np.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> loss, gradient.tolist(), jtj.tolist()
        (20.0, [-12.0, -28.0], [[2.0, 4.0], [4.0, 10.0]])
    """

    def _results(self, total: Totals, scale: float) -> Any:
        n = self.n_inputs
        sums = total.sums * scale
        jtj = np.empty((n, n))
        rows, columns = np.triu_indices(n)
        jtj[rows, columns] = jtj[columns, rows] = sums[1 + n :]
        slopes = self._parameters.nested(sums[1 : 1 + n])
        return float(sums[0]), slopes, jtj.astype(self.dtype)


@dataclass(frozen=True)
class _Table:
    """A table as a device takes it: numbers (N, columns) and indices (N, count)."""

    numbers: np.ndarray
    indices: np.ndarray
    count: int
    weight: float


class BoundKernel:
    """A kernel with its data: only parameters go in, and only the loss and gradient come out."""

    def __init__(
        self, kernel: DataKernel, rows: int, run: Callable[[Any], tuple[float, Any]]
    ) -> None:
        self.kernel, self._rows, self._run = kernel, rows, run

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"{self.kernel!r} with {len(self):,} rows"

    def run(self, params: Any) -> tuple[float, Any]:
        """The loss over the data, and its gradient, for parameters as in `DataKernel.run`."""
        return self._run(params)

    __call__ = run


# making one ---------------------------------------------------------------------------------------


def data_kernel(request: Request, device: Any) -> DataKernel:
    """The kernel of a loss over data."""
    require_request(request)
    with paused_gc():
        return DataKernel(request, device, traced_loss(request))


def least_squares_kernel(request: Request, device: Any) -> LeastSquaresKernel:
    """The kernel of a sum of squares over data."""
    require_request(request)
    with paused_gc():
        return LeastSquaresKernel(request, device, traced_squares(request))


def _in_range(indices: np.ndarray, blocks: Sequence[Block], column: str) -> np.ndarray:
    """The indices, negative ones counted from the end as in NumPy; an error beyond a block."""
    smallest = min(blocks, key=lambda b: b.shape[0])
    lines = smallest.shape[0]
    wrong = (indices < -lines) | (indices >= lines)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{column} is {indices[row]} at row {row}: {smallest.name} has {lines} lines"
        )
    negative = indices < 0
    if negative.any() and len({b.shape[0] for b in blocks}) > 1:
        names = ", ".join(b.name for b in blocks)
        raise InputError(
            f"{column} is {indices[negative][0]} at row {int(np.argmax(negative))}, and {names} "
            "have different numbers of lines: count from the start"
        )
    return np.where(negative, indices + lines, indices)
