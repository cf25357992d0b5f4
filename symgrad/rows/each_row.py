"""Kernels of what a function of rows is at each of them: predictions, residuals, their Jacobian.

Every row is a point of a map kernel: the parameters that all rows read, its numbers, and the
entries that its indices name, put side by side block by block. Second derivatives for parameters
that rows look up are made so too, and added up in a sparse matrix.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of, placed
from symgrad.errors import InputError
from symgrad.expr.graph.node import INPUT, paused_gc
from symgrad.expr.tracers.tree import tree_of
from symgrad.expr.tracing.gather import RowTrace
from symgrad.kernel.host.memory import POOL, ResidentArray
from symgrad.kernel.shapes import Computation, Output, Reduction
from symgrad.kernel.skeletons.map import Entry, Pattern
from symgrad.kernel.stage import Staged, arranged, staged
from symgrad.pipeline import Clock, Options, simplified
from symgrad.report.kernel import Shaders
from symgrad.rows.kernel import DataKernel, Totals
from symgrad.rows.loss import Request, Traced, inputs_of, ready, require_request
from symgrad.rows.sums import (
    LEAST_ORDER_PER_ROW,
    Part,
    PartsKernel,
    Variables,
    Wants,
    finished,
    sums_kernel_of,
    wants_of,
)
from symgrad.rows.table import RowPoints, Table
from symgrad.values.nested import scipy_sparse

ROWS_AT_A_TIME: Final = 2**14
"""Rows that a CPU puts side by side and computes at a time: they stay in the cache."""

LEAST_ONCE: Final = 4
"""The cost of what rows have in common from which a CPU computes it once, by a call before."""

LEAST_ONCE_ON_GPU: Final = 1000
"""As `LEAST_ONCE`, for a GPU, where a call takes longer than most operations at all rows."""

HESSIAN_ROWS: Final = 2**16
"""Rows whose second derivatives are kept before they are added up."""

MOST_DENSE_BYTES: Final = 2**30
"""Bytes up to which a Hessian of parameters that rows look up is made dense."""


@dataclass(frozen=True)
class Mapped:
    """The computation at every row: the parts' numbers, one output each, and the variables."""

    traced: Traced
    parts: tuple[Part, ...]
    variables: Variables


class RowsKernel(PartsKernel):
    """A kernel of a function of rows, and its derivatives, at each row: ``reduce=None``.

    ``run(p, rows)``, of a product with a vector ``run(p, vector, rows)``, gives what the same verb
    gives for points, with the rows as first axis. Derivatives for parameters that rows look up are
    a SciPy CSR array (rows * values, n), as ``scipy.optimize.least_squares`` takes Jacobians: a row
    has what it reads, and nothing for all else.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> model = lambda p, r: p.height[r.who] * sg.exp(-p.rate * r.t)
        >>> kernel = sg.fused_forward({"height": 2, "rate": ()}, model, columns=["who", "t"],
        ...                           reduce=None, device="cpu")
        >>> rows = {"who": [0, 1, 1], "t": [0.0, 0.0, 1.0]}
        >>> kernel.run({"height": [1.0, 2.0], "rate": 0.5}, rows).round(3)
        array([1.   , 2.   , 1.213], dtype=float32)
    """

    def __init__(self, request: Request, device: Any, mapped: Mapped, sparse: bool) -> None:
        self.mapped = mapped
        super().__init__(request, device, mapped.traced, mapped.parts, sparse)

    def _made_of(self, code: bool = True) -> tuple[Any, ...]:
        traced = self._traced if code else self._traced.without_code()
        return replace(self.mapped, traced=traced), self.sparse

    def _compiled(self) -> Any:
        backend, options = backend_of(self.device), self.request.options
        *once, each = (backend.map(c, options, self._title) for c in self._computations)
        self._once = once[0] if once else None
        return each

    @cached_property
    def _staged(self) -> Staged | None:
        """The part that is computed once of the parameters, if it is worth a call of its own."""
        on_host = backend_of(self.device).on_host
        return staged(self._traced.reduction, LEAST_ONCE if on_host else LEAST_ONCE_ON_GPU)

    @property
    def _computations(self) -> list[Computation]:
        """The computations: that at each row, and before it the one that is done once, if any."""
        reduction, parts = self._traced.reduction, self._staged
        if parts is None:
            return [Computation(reduction.name, reduction.graph, reduction.outputs)]
        return [
            Computation(f"{reduction.name}_once", parts.once, (Output("once", parts.values),)),
            Computation(reduction.name, parts.each, parts.outputs),
        ]

    @property
    def modules(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The WGSL modules, in the order in which they run."""
        shaders = (Shaders(c, self.request.options, self._title) for c in self._computations)
        return tuple(module for each in shaders for module in each.modules)

    def _uniform(self, flat: np.ndarray) -> np.ndarray:
        """The values that are the same at all rows, for some parameters."""
        read = flat[list(self._traced.read)]
        return read if self._once is None else self._once.run(read[None])[0][0]

    def _stays(self, table: Table) -> bool:
        """Whether points are put together on a GPU: a few are quicker to send."""
        gpu = backend_of(self.device).owner
        if gpu is None or isinstance(table.numbers, ResidentArray):
            return gpu is not None
        return self.dtype.itemsize * self._pattern.width * table.count > gpu.queued_bytes

    def _resident(self, table: Table) -> Any:
        """The rows where their points are put together on a GPU, None elsewhere."""
        if not self._stays(table):
            return None
        return backend_of(self.device).joined(self._pattern, table.numbers, table.indices)

    # numbers in, numbers out ---------------------------------------------------------------------

    def _total(self, flat: np.ndarray, table: Table, bound: Any = None) -> Totals:
        """The sums of each part, or the numbers (rows, keys) of each, and then the table."""
        resident = bound or self._resident(table)
        stays = isinstance(table.numbers, ResidentArray)
        columns = np.empty((0, 0), self.dtype) if stays else table.numbers
        same = self._uniform(flat)
        points = RowPoints(self._traced, flat, np.asarray(columns), table.indices, 1.0, same)
        if self.request.reduce is not None:
            return Totals(self._added(points, resident), table.weight)
        whole = slice(0, table.count)
        numbers = [[values] for values in self._computed(points, whole, resident, stays)]
        return Totals([*numbers, [table]], table.weight)

    def _computed(
        self, points: RowPoints, rows: slice, resident: Any, stays: bool = False
    ) -> list[Any]:
        """The numbers (N, keys) of each part at some rows, on the GPU if they stay there."""
        shapes = [(rows.stop - rows.start, len(p.keys)) for p in self.parts]
        results: list[Any] = (
            [resident.empty(shape) for shape in shapes]
            if resident and stays
            else [POOL.empty(shape, self.dtype, False) for shape in shapes]
        )
        computed = [r for r in results if r.shape[1]]
        if resident is not None:
            same, entries = points.same, self._pattern.entries
            parameters = np.concatenate([same, points.flat]) if entries else same
            resident.compute(self._sums, parameters, computed, rows.start)
            return results
        own = threading.local()

        def filled(some: slice) -> np.ndarray:
            buffer = getattr(own, "points", None)
            if buffer is None:
                buffer = own.points = points.points(min(ROWS_AT_A_TIME, rows.stop - rows.start))
            return points.filled(buffer, slice(rows.start + some.start, rows.start + some.stop))

        self._sums.run_filled(filled, ROWS_AT_A_TIME, computed)
        return results

    @cached_property
    def _pattern(self) -> Pattern:
        """The pattern by which a point is put together on a GPU."""
        traced, columns = self._traced, self._traced.columns
        start = len(traced.read) if self._staged is None else len(self._staged.values)
        entries = tuple(
            Entry(columns.indices.index(g.column), start + g.block.start, g.block.width)
            for g in traced.gathers
        )
        sizes = start, len(columns.numbers), len(columns.indices)
        return Pattern(*sizes, entries, self.request.options.dtype)

    def _where(self, indices: np.ndarray) -> np.ndarray:
        """The places of the variables at each row."""
        return self.mapped.variables.places_at(indices, self._traced.columns.indices)

    def _pattern_of(self, part: Part, tables: Sequence[Table]) -> SparseRows:
        """Where the first derivatives of a part stand: of a single table, found once."""
        if len(tables) > 1:
            indices = np.concatenate([table.indices for table in tables])
            return SparseRows.of(part, self._where(indices), self.n_inputs)
        (table,) = tables
        if part.name not in table.derived:
            where = self._where(table.indices)
            table.derived[part.name] = SparseRows.of(part, where, self.n_inputs)
        return table.derived[part.name]

    def _added(self, points: RowPoints, resident: Any) -> list[Any]:
        """The sums of the parts over all rows."""
        total: list[Any] = []
        count = len(points.indices)
        for first in range(0, max(count, 1), HESSIAN_ROWS):
            rows = slice(first, min(first + HESSIAN_ROWS, count))
            where = self._where(points.indices[rows])
            pairs = zip(self.parts, self._computed(points, rows, resident), strict=True)
            sums = [_sum(part, values, where, self.n_inputs) for part, values in pairs]
            total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
        return total

    def _results(self, total: Any, scale: float) -> Any:
        n, dtype, parts = self.n_inputs, self.dtype, self.parts
        if self.request.reduce is not None:
            sums = zip(parts, total.parts, strict=True)
            return tuple(finished(p, whole * scale, n, dtype, self.sparse) for p, whole in sums)
        *stacked, tables = total.parts
        numbers = [_joined(mine) for mine in stacked]
        results = [self._at_rows(p, v, tables) for p, v in zip(parts, numbers, strict=True)]
        return results[0] if self.outputs == ("values",) else tuple(results)

    def _at_rows(self, part: Part, values: Any, tables: Sequence[Table]) -> Any:
        """A part's numbers (N, keys) as what ``run`` returns: a CSR array, or arrays of a kind."""
        n, count = self.n_inputs, len(values)
        if part.order == 1 and (self.sparse or self.mapped.variables.gathers):
            return self._pattern_of(part, tables).filled(np.asarray(values))
        constant = np.array(self.mapped.variables.places, np.int64)
        places, whole = _places(part, constant, n), values
        size = math.prod(part.shape(n))
        if not np.array_equal(places, np.arange(size)):
            whole = _among_zeros(values, places, size)
        return part.result.of(whole, (count,))


def _among_zeros(values: Any, places: np.ndarray, size: int) -> Any:
    """Columns at these places of as many, the others 0; on a GPU if they are there."""
    if isinstance(values, np.ndarray):
        whole = np.zeros((len(values), size), values.dtype)
        whole[:, places] = values
        return whole
    zeros = values.beside(np.zeros((len(values), 1)))
    columns = {place: values[:, k : k + 1] for k, place in enumerate(places.tolist())}
    return np.concatenate([columns.get(place, zeros) for place in range(size)], axis=1)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _places(part: Part, variables: np.ndarray, n: int) -> np.ndarray:
    """Where the numbers of a part stand in its array, if the variables stand at these places."""
    keys = np.array(part.keys, np.intp).reshape(-1, 1 if part.order == 0 else 2)
    if part.order == 0:
        return keys[:, 0]
    first = variables[keys[:, 0]] if part.order == LEAST_ORDER_PER_ROW else keys[:, 0]
    return first * n + variables[keys[:, 1]]


def _sum(part: Part, values: np.ndarray, where: np.ndarray, n: int) -> Any:
    """The sum over rows of a part, all its numbers."""
    if not part.order:
        return values.sum(axis=0, dtype=np.float64)
    keys = np.array(part.keys, np.intp).reshape(-1, 2)
    columns = where[:, keys[:, 1]]
    if part.order == LEAST_ORDER_PER_ROW:
        data = values.astype(np.float64).ravel(), (where[:, keys[:, 0]].ravel(), columns.ravel())
        return scipy_sparse().csr_array(data, shape=(n, n))
    return np.bincount((keys[:, 0] * n + columns).ravel(), values.ravel(), part.values * n)


@dataclass(frozen=True)
class SparseRows:
    """Where first derivatives (N, keys) stand in a CSR array (N * values, n).

    Its numbers are those at ``order``; where a row looks up an entry twice, or one that it reads
    besides, those at ``more`` are added to the numbers ``to``.
    """

    order: np.ndarray
    more: np.ndarray
    to: np.ndarray
    columns: np.ndarray
    ends: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, part: Part, where: np.ndarray, n: int) -> SparseRows:
        """The rows of a part; ``where`` (N, variables) are the places of the variables of rows."""
        keys = np.array(part.keys, np.intp).reshape(-1, 2)
        by_value = np.argsort(keys[:, 0], kind="stable")
        each = np.tile(np.bincount(keys[:, 0], minlength=part.values), len(where))
        ends = np.concatenate([[0], np.cumsum(each)])
        kind = np.int32 if len(where) * len(keys) < 2**31 else np.int64
        numbers = by_value.astype(kind) + len(keys) * np.arange(len(where), dtype=kind)[:, None]
        columns = where[:, keys[by_value, 1]]
        shape = len(where) * part.values, n
        matrix = scipy_sparse().csr_array((numbers.ravel(), columns.ravel(), ends), shape=shape)
        matrix.sort_indices()
        again = np.zeros(len(matrix.data), bool)  # at the place of the one before
        np.equal(matrix.indices[1:], matrix.indices[:-1], out=again[1:])
        again[matrix.indptr[:-1][each > 0]] = False
        (places,) = np.nonzero(again)
        order, more = np.delete(matrix.data, places), matrix.data[places]
        to = places - np.arange(1, len(places) + 1)
        ends = matrix.indptr - np.searchsorted(places, matrix.indptr).astype(matrix.indptr.dtype)
        return cls(order, more, to, np.delete(matrix.indices, places), ends, shape)

    def filled(self, values: np.ndarray) -> Any:
        """The CSR array of the numbers (N, keys)."""
        row = values.ravel()
        numbers = row[self.order]
        np.add.at(numbers, self.to, row[self.more])
        parts = numbers, self.columns.copy(), self.ends.copy()
        matrix = scipy_sparse().csr_array(parts, shape=self.shape)
        matrix.has_canonical_format = True
        return matrix


# making one ---------------------------------------------------------------------------------------


def rows_kernel(request: Request, verb: str, device: Any, sparse: bool = False) -> DataKernel:
    """The kernel of what a verb wants of rows, at each of them or summed."""
    require_request(request)
    request = replace(request, options=placed(request.options, device))
    with paused_gc():
        clock = Clock()
        wants = clock.time("differentiate", lambda: wants_of(request, verb))
        second = any(part.order == LEAST_ORDER_PER_ROW for part in wants.parts)
        looked = bool(wants.variables.gathers)
        if request.reduce is not None and not (second and looked):
            return sums_kernel_of(request, wants, clock, sparse, device)
        if second and request.reduce is None and (looked or sparse):
            raise InputError(
                'a sparse Hessian for each row is not made: sum them, with reduce="sum", or '
                "take sg.fused_hvp"
            )
        if second and not sparse and 8 * tree_of(request.n).size ** 2 > MOST_DENSE_BYTES:
            raise InputError("the Hessian is too large: use sparse=True")
        return RowsKernel(request, device, _mapped(request, wants, clock), sparse)


def _mapped(request: Request, wants: Wants, clock: Clock) -> Mapped:
    """The computation at each row, its inputs in the order of `RowPoints`."""
    make = partial(_computed_at_rows, wants)
    traced = ready(request, wants.trace, make, (), wants.nodes, clock, wants.mode)
    return Mapped(traced, wants.parts, wants.variables)


def _computed_at_rows(
    wants: Wants, options: Options, trace: RowTrace, indices: tuple[int, ...]
) -> tuple[tuple[int, ...], Reduction]:
    """A reduction that sums nothing, of all parameters: what is wanted are its outputs."""
    read, inputs = tuple(trace.parameters), inputs_of(trace, trace.parameters, indices)
    roots = [i for ids in wants.nodes for i in ids]
    graph, ends = simplified(trace.graph, roots, options)
    read_by = {n[1]: i for i, n in enumerate(graph.nodes) if n[0] is INPUT}
    graph, ends = arranged(graph, ends, [read_by[trace.graph.nodes[i][1]] for i in inputs])
    rest = iter(ends)
    outputs = [
        Output(part.name, tuple(islice(rest, len(ids))))
        for part, ids in zip(wants.parts, wants.nodes, strict=True)
        if ids
    ]
    return read, Reduction(options.name, graph, tuple(outputs), len(read), ())
