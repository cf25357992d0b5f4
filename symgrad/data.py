"""Losses over data: a loss of one row, summed over many in one pass, with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from symgrad import targets
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr import differentiate, ops
from symgrad.expr.expression import Expr
from symgrad.expr.gather import Block, Gather, RowTrace, blocks_of, trace_row
from symgrad.expr.node import INPUT, paused_gc, reachable
from symgrad.expr.simplify import simplify
from symgrad.expr.trace import describe
from symgrad.kernel.plan import Lookup, Output, Reduction
from symgrad.kernel.stage import arranged, hoisted
from symgrad.mathlib.define import functions, inlined, lower
from symgrad.pipeline import Options, require_options
from symgrad.rows import NAN_POLICIES, Columns, is_table, len_of, read, screened
from symgrad.rows import blocks_of as tables_of
from symgrad.screen import open_screen
from symgrad.wgsl.emit import Style
from symgrad.wgsl.reduce import emit_reduction

BLOCK = 2**20
"""Rows of a long table that are read, converted and summed at a time."""

Function = Callable[..., Any]


@dataclass(frozen=True)
class Request:
    """What a kernel over data was asked for."""

    f: Function
    n: Any
    columns: Columns
    reduce: str
    weights: str | int | None
    nan_policy: str
    options: Options


def _travelled(*_: Any) -> Any:
    """In the place of a traced function that was left behind."""
    raise TraceError("this kernel came from another process, without its Python function")


@dataclass(frozen=True)
class Totals:
    """What was summed up, in float64: results, lines of tables, rows, and their weights."""

    sums: np.ndarray
    lines: tuple[np.ndarray, ...]
    rows: int
    weight: float

    def __add__(self, other: Totals) -> Totals:
        lines = tuple(a + b for a, b in zip(self.lines, other.lines, strict=True))
        weight, rows = self.weight + other.weight, self.rows + other.rows
        return Totals(self.sums + other.sums, lines, rows, weight)


@dataclass(frozen=True)
class Traced:
    """A loss of one row and its derivatives, ready to be summed."""

    reduction: Reduction
    used: tuple[int, ...]
    """The parameters that rows read, the same for all of them, by their places among all."""
    graded: tuple[int, ...]
    """Those with a derivative that is not structurally 0."""
    gathers: tuple[Gather, ...]
    blocks: tuple[Block, ...]
    columns: Columns
    weight: int | None

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """``used`` and ``graded`` as NumPy indexes with them."""
        return np.array(self.used, np.intp), np.array(self.graded, np.intp)


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
        return sum(b.size for b in self._traced.blocks)

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
        flat = self._flat(params)
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
        table = self._read(rows)
        resident = self._resident(table)

        def run(params: Any) -> tuple[float, Any]:
            return self._finished(self._total(self._flat(params), table, resident))

        return BoundKernel(self, len(table.numbers), run)

    __call__ = run

    # what happens to a table ---------------------------------------------------------------------

    def _watched(self, tables: Any, rows: Any, progress: bool) -> Any:
        if not progress:
            return tables
        count = -(-len_of(rows) // BLOCK) if is_table(rows) else 0
        return open_screen().progress(tables, count, lambda table: f"{len_of(table):,} rows")

    def _read(self, table: Any) -> _Table:
        columns = self._traced.columns
        numbers, indices = read(table, columns, str(self.dtype))
        numbers, indices = screened(numbers, indices, self._request.nan_policy, columns)
        for position, k in enumerate(columns.indices):
            blocks = [g.block for g in self._traced.gathers if g.column == k]
            indices[:, position] = _in_range(indices[:, position], blocks, columns.describe(k))
        kept = [k for k in range(columns.count) if k not in columns.indices]
        if len(kept) < columns.count:
            numbers = np.ascontiguousarray(numbers[:, kept])
        small = np.ascontiguousarray(indices, np.int32)
        return _Table(numbers, small, self._weight(numbers, kept))

    def _weight(self, numbers: np.ndarray, kept: Sequence[int]) -> float:
        if self._traced.weight is None:
            return float(len(numbers))
        return float(numbers[:, kept.index(self._traced.weight)].sum(dtype=np.float64))

    # numbers in, numbers out ---------------------------------------------------------------------

    def _flat(self, params: Any) -> np.ndarray:
        """All parameters in a row, in the kernel's dtype."""
        blocks = self._traced.blocks
        if isinstance(params, Mapping):
            missing = [b.name for b in blocks if b.name not in params]
            if missing or len(params) != len(blocks):
                raise InputError(f"params needs {', '.join(b.name for b in blocks)}")
            parts = [_numbers(params[b.name], b.name, b.shape) for b in blocks]
        else:
            whole = np.asarray(params)
            shape = blocks[0].shape if len(blocks) == 1 and whole.ndim > 1 else (self.n_inputs,)
            parts = [_numbers(whole, "params", shape)]
        with np.errstate(over="ignore"):
            return np.concatenate([p.ravel() for p in parts]).astype(self.dtype)

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
        return Totals(sums, tuple(lines), len(table.numbers), table.weight)

    def _resident(self, table: _Table) -> Any:
        """The table where it is needed; None if it stays where it is, for there are indices."""
        if not self._traced.gathers:
            return self._sums.bind(table.numbers)
        return self._sums.bind(table.numbers, table.indices) if self.device.is_gpu else None

    def _split(self, flat: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The parameters that are the same for all rows, and the tables of the others."""
        blocks = [g.block for g in self._traced.gathers]
        tables = [flat[b.start : b.start + b.size].reshape(b.shape[0], b.width) for b in blocks]
        return np.ascontiguousarray(flat[self._traced.places[0]]), tables

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
        gradient[self._traced.places[1]] = total.sums[1:]
        for gather, lines in zip(self._traced.gathers, total.lines, strict=True):
            b = gather.block
            gradient[b.start : b.start + b.size] += lines.ravel()
        return float(total.sums[0] * scale), self._nested(gradient * scale)

    def _nested(self, flat: np.ndarray) -> Any:
        with np.errstate(over="ignore"):
            flat = flat.astype(self.dtype)
        blocks = self._traced.blocks
        parts = {b.name: flat[b.start : b.start + b.size].reshape(b.shape).copy() for b in blocks}
        return parts if isinstance(self._request.n, Mapping) else parts["p"]


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
        return float(sums[0]), self._nested(sums[1 : 1 + n]), jtj.astype(self.dtype)


@dataclass(frozen=True)
class _Table:
    """A table as a device takes it: numbers (N, columns) and indices (N, count)."""

    numbers: np.ndarray
    indices: np.ndarray
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
        return DataKernel(request, device, _traced(request))


def require_request(request: Request) -> None:
    """Refuse what is none of the choices."""
    require_options(request.options)
    if request.reduce not in ("sum", "mean"):
        raise InputError(f'reduce={request.reduce!r}: use "sum" or "mean"')
    if request.nan_policy not in NAN_POLICIES:
        choices = ", ".join(f'"{p}"' for p in NAN_POLICIES)
        raise InputError(f"nan_policy={request.nan_policy!r}: use one of {choices}")


def _traced(request: Request) -> Traced:
    made, blocks = _trace(request)
    graph, loss = made.graph, _loss(request, made)
    gathered = [i for g in made.gathers for i in g.inputs]
    slopes = differentiate.vjp(graph, {loss: graph.constant(1.0)}, [*made.parameters, *gathered])
    uniform, ends = slopes[: len(made.parameters)], slopes[len(made.parameters) :]
    graded = tuple(k for k, i in enumerate(uniform) if i is not None)
    zero = graph.constant(0.0)
    summed = {"loss": [loss], "grad": [i for i in uniform if i is not None]}
    return _ready(request, made, blocks, graded, summed, [zero if i is None else i for i in ends])


def least_squares_kernel(request: Request, device: Any) -> LeastSquaresKernel:
    """The kernel of a sum of squares over data."""
    require_request(request)
    with paused_gc():
        return LeastSquaresKernel(request, device, _traced_squares(request))


def _traced_squares(request: Request) -> Traced:
    """Residuals r of a row: their squares, 2 Jᵀr, and the upper triangle of JᵀJ."""
    made, blocks = _trace(request)
    if made.gathers:
        raise InputError("JᵀJ of parameters that rows look up is not computed: it is too large")
    graph = made.graph
    rows = [
        differentiate.vjp(graph, {r: graph.constant(1.0)}, made.parameters) for r in made.outputs
    ]
    n = len(made.parameters)
    slopes: list[list[Any]] = [
        [Expr(graph, i) if i is not None else None for i in row] for row in rows
    ]
    values = [Expr(graph, r) for r in made.outputs]
    weight = weight_column(request)
    scale: Any = 1.0 if weight is None else Expr(graph, made.columns[weight])
    squares = [r * r for r in values]
    sums = [
        squares,
        *[[2.0 * row[k] * r for row, r in zip(slopes, values, strict=True) if row[k] is not None]
          for k in range(n)],
        *[[row[j] * row[k] for row in slopes if row[j] is not None and row[k] is not None]
          for j in range(n) for k in range(j, n)],
    ]  # fmt: skip
    zero = graph.constant(0.0)
    ends = [(scale * sum(terms)).id if terms else zero for terms in sums]
    summed = {"loss": ends[:1], "grad": ends[1 : 1 + n], "jtj": ends[1 + n :]}
    return _ready(request, made, blocks, tuple(range(n)), summed, [])


def _trace(request: Request) -> tuple[RowTrace, tuple[Block, ...]]:
    columns, blocks = request.columns, blocks_of(request.n)
    return trace_row(request.f, request.n, blocks, columns.count, columns.names), blocks


def _loss(request: Request, made: RowTrace) -> int:
    """The loss of a row, times its weight."""
    if made.structure.size != 1:
        raise TraceError(
            f"{describe(request.f)} returned {made.structure.size} numbers: a loss is one scalar"
        )
    weight = weight_column(request)
    (loss,) = made.outputs
    return loss if weight is None else made.graph.add(ops.mul, made.columns[weight], loss)


def weight_column(request: Request) -> int | None:
    """The column that holds weights, if one does."""
    weights, columns = request.weights, request.columns
    if weights is None:
        return None
    if columns.names and weights in columns.names:
        return columns.names.index(str(weights))
    if isinstance(weights, int) and 0 <= weights < columns.count:
        return weights
    raise InputError(f"weights={weights!r} is no column of a row")


def _ready(
    request: Request, made: RowTrace, blocks: tuple[Block, ...], graded: tuple[int, ...],
    summed: Mapping[str, Sequence[int]], added: Sequence[int],
) -> Traced:  # fmt: skip
    """Simplified, and its inputs in the order that reductions have."""
    options, columns = request.options, request.columns
    roots = [*(i for ids in summed.values() for i in ids), *added]
    definitions = inlined(options.math, options.dtype)
    graph, roots = simplify(made.graph, roots, options.simplify, definitions)
    graph, roots = lower(graph, roots, options.math, options.dtype)
    ids = {n[1]: i for i, n in enumerate(graph.nodes) if n[0] is INPUT}
    every = _inputs(made, range(len(made.parameters)), ())
    new = {old: ids[made.graph.nodes[old][1]] for old in every}
    needed = set(reachable(graph, roots))
    used = tuple(k for k, i in enumerate(made.parameters) if new[i] in needed)
    indices = tuple(sorted({g.column for g in made.gathers}))
    order = _inputs(made, used, indices)
    graph, roots = arranged(graph, roots, [new[i] for i in order])
    outputs = _outputs(summed, made.gathers, roots)
    lookups = tuple(Lookup(indices.index(g.column), g.block.width) for g in made.gathers)
    ones = (graph.constant(1.0),) * sum(len(i) for i in summed.values())
    reduction = Reduction(options.name, graph, outputs, len(used), ones, lookups)
    if options.math != "strict":
        reduction = hoisted(reduction)
    kinds = Columns(columns.count, columns.names, indices)
    return Traced(reduction, used, graded, made.gathers, blocks, kinds, weight_column(request))


def _outputs(
    summed: Mapping[str, Sequence[int]], gathers: Sequence[Gather], roots: Sequence[int]
) -> tuple[Output, ...]:
    """The roots, in order, as outputs: the sums by name, then one for each lookup."""
    ends = iter(roots)
    sizes = {name: len(i) for name, i in summed.items()}
    sizes |= {f"grad_{k}": len(g.inputs) for k, g in enumerate(gathers)}
    return tuple(Output(name, tuple(next(ends) for _ in range(n))) for name, n in sizes.items())


def _inputs(made: RowTrace, used: Sequence[int], indices: Sequence[int]) -> list[int]:
    """The inputs in the order that reductions have, without those that no row reads."""
    return [
        *[made.parameters[k] for k in used],
        *[i for k, i in enumerate(made.columns) if k not in indices],
        *[i for g in made.gathers for i in g.inputs],
    ]


def _numbers(values: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is no array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputTypeError(f"{name} holds {array.dtype} values: real numbers are needed")
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}: {shape} is needed")
    return array


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
