"""Losses over data: a loss of one row, summed over many in one pass, with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of, placed
from symgrad.bridges.cluster import BlocksOfRows
from symgrad.bridges.tables import in_blocks
from symgrad.errors import DeviceMemoryError, InputError, InputTypeError, renamed_argument
from symgrad.expr.graph.node import paused_gc
from symgrad.expr.semantics.show import formula
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.host.memory import POOL, ResidentArray
from symgrad.kernel.stats import Stats, measured
from symgrad.optimize.over_data import RowLoss, minimize_over_data
from symgrad.pipeline import DTypeName
from symgrad.report.audit import Audit
from symgrad.report.exhausted import WhenExhausted, is_asked, report_rows
from symgrad.report.kernel import KernelBase, summations_of
from symgrad.report.profiling import Profile, profile_kernel
from symgrad.report.progress import Asked, reporting
from symgrad.rows.bound import BoundKernel, KeptRows, Totals, minimization_of, require_exportable
from symgrad.rows.loss import Request, Traced, flagged, require_request, traced_loss
from symgrad.rows.table import RowPoints, Table, is_there, read_table, weight_of
from symgrad.values.nested import Nest
from symgrad.values.tables import Codes, is_table, len_of
from symgrad.values.tables import blocks_of as tables_of
from symgrad.web.kernels import RowSums, Steps, SumOutput, rows_exported

ROWS_AT_A_TIME = 2**20
"""Rows of a long table that are read, converted and summed at a time."""


class DataKernel(KernelBase):
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

    squares: ClassVar[bool] = False
    """Whether rows give residuals, whose squares are the loss."""

    def __init__(self, request: Request, device: Any, traced: Traced) -> None:
        self.request, self._options, self._traced = request, request.options, traced
        self._parameters = Nest(traced.tree, self.dtype)
        self.device = targets.choose_any(device)
        self._title = f"{request.options.name}: loss and gradient, summed over rows"
        self._sums = self._compiled()

    def _compiled(self) -> Any:
        """The compiled code."""
        reduction, options = self._traced.reduction, self.request.options
        return backend_of(self.device).sums(reduction, options, self._title)

    def __reduce__(self) -> tuple[Any, ...]:
        """The trace travels, but no code of the user's; it is compiled again where it arrives."""
        return type(self), (self.request.without_code(), self.device, *self._made_of(False))

    def _made_of(self, code: bool = True) -> tuple[Any, ...]:
        """Its parts, besides the request and the device, with the user's code or not."""
        return (self._traced if code else self._traced.without_code(),)

    # running -------------------------------------------------------------------------------------

    def _flat(self, *params: Any) -> np.ndarray:
        """The arguments of ``run`` before the rows, in a row."""
        (only,) = params
        return self._parameters.flat(only)

    def run(
        self,
        params: Any,
        rows: Any,
        *,
        progress: Asked = False,
        exhausted: WhenExhausted | None = None,
    ) -> Any:
        """The loss over the rows, and its gradient.

        Args:
            params: the parameters, nested as they were asked for, or all of them in a row.
            rows: an array (N, numbers of a row); with named columns also a structured array, a dict
                of arrays, (N, *shape) of columns with a shape, or a data frame; or an iterator of
                such tables, which are streamed. A memory-mapped array is read block by block. A
                `DeviceArray`, or a dict with such columns, is read where it is; columns of indices
                come to the host once.
            progress: True to show how many rows are done, or a function that is called with a
                `Progress` at times, once a second is over.
            exhausted: "warn" or "raise" to say how many rows have loops that need more iterations
                than ``max_steps``, which another kernel counts; they contribute NaN in any case.

        Raises:
            InputError: for a table or parameters of a wrong shape, a column that is missing, an
            index that is out of range, or, if ``nan_policy="raise"``, a NaN. ExhaustedError: if a
            loop did not end, and that is asked for.
        """
        return self._over(self._flat(params), rows, progress, exhausted)

    def _over(
        self, flat: np.ndarray, rows: Any, progress: Asked, exhausted: WhenExhausted | None
    ) -> Any:
        """The results over the rows, table by table."""
        flagging = is_asked(exhausted) and self._flagging
        total, done, unended = None, 0, 0
        with reporting(progress, "rows", len_of(rows) if is_table(rows) else None) as report:
            for table in [rows] if self._stays_there(rows) else tables_of(rows, ROWS_AT_A_TIME):
                read = self._read(table, on_gpu=True)
                part = self._total(flat, read)
                total = part if total is None else total + part
                unended += flagging.counted(flat, read) if flagging else 0
                done += len_of(table)
                report(done)
        if exhausted:
            report_rows(unended, done, exhausted)
        return self._finished(total, flat)

    def bind(self, rows: Any, *, exhausted: WhenExhausted | None = None) -> BoundKernel:
        """The kernel with a copy of a table where it is needed: ``bound.run(params)``.

        A Dask table, an array, a data frame or a dict of arrays, is bound block by block, each
        on the worker that has it; then sums are added in float64 in the order of the blocks.

        It gives the bits of ``run(params, rows)`` for up to 2**20 rows. More of them ``run`` reads
        in blocks of so many, whose sums it adds in float64: then last bits may differ. Rows that a
        GPU has no memory for are copied here, and go through its memory in every run.
        ``exhausted`` is that of `run`, for all runs.
        """
        keep = partial(BlocksOfRows, kernel=self) if in_blocks(rows) else self.keep
        bound = keep(rows, counting=is_asked(exhausted))

        def run(*params: Any) -> Any:
            flat = self._flat(*params)
            total = bound.totals(flat)
            if exhausted:
                report_rows(bound.unended(flat), bound.count, exhausted)
            return self._finished(total, flat)

        return BoundKernel(self, bound.count, run)

    def keep(self, rows: Any, counting: bool) -> KeptRows:
        """A copy of a table where it is needed, also for ``counting`` loops without an end."""
        table = self._read(_whole(rows), own=backend_of(self.device).owner is None, on_gpu=True)
        flagging, counted = self._flagging if counting else None, None
        try:
            resident = self._resident(table)
            counted = flagging and flagging._resident(table)
        except DeviceMemoryError:
            if self._traced.gathers or not isinstance(table.numbers, np.ndarray):
                raise
            resident, table = None, replace(table, numbers=table.numbers.copy())
        if resident is not None:  # it has the numbers
            table = replace(table, numbers=table.numbers[:0].copy())
        return KeptRows(
            table.count,
            dict(self.request.columns.codes),
            lambda flat: self._total(flat, table, resident),
            lambda flat: flagging.counted(flat, table, counted) if flagging else 0,
        )

    __call__ = run

    @renamed_argument("DataKernel.minimize", old="data", new="rows", since=(0, 2))
    def minimize(
        self,
        starts: Any,
        method: Any = None,
        steps: int = 1000,
        tol: Any = None,
        *,
        rows: Any = None,
        **options: Any,
    ) -> Any:
        """Minimise the loss over data, from every start at once.

        All steps are inside one kernel, in which each start has a lane. Where few starts share
        many rows, or rows look parameters up, each step is a pass over the rows by the whole
        device instead.

        Args:
            starts: (S, n), or (n,) for one; all parameters in a row, or nested as they are: then
                ``x`` is so too, and a single start gives a result that is not batched.
            method: as for `minimize_from`; `LevenbergMarquardt` and `GaussNewton` are for kernels
                of `fused_least_squares`.
            steps: the most steps.
            tol: as for `minimize_from`.
            rows: a table that all fits share, or (S, rows, columns), a data set for each of them;
                with named columns also a dict of arrays, (rows,) or (S, rows), and behind these
                axes the shape of the column, if it has one.
            options: more of `minimize_from`, as ``bounds``.

        Returns:
            SciPy's result, batched, as `minimize_from` has it; ``fun`` is what ``run`` gives.

        Raises:
            InputError: for rows or a method that do not fit. Where rows that all fits share look
                parameters up, `Newton` is for kernels of `fused_hessian`, squares are for ``fit``.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> kernel = sg.fused_least_squares(2, lambda p, r: p[0] + p[1] * r[0] - r[1], row=2,
            ...                                 device="cpu")
            >>> tables = [[[0.0, 1.0], [1.0, 2.0]], [[0.0, 3.0], [2.0, 7.0]]]
            >>> result = kernel.minimize(np.zeros((2, 2)), sg.LevenbergMarquardt(), rows=tables)
            >>> result.x.round(3) + 0.0
            array([[1., 1.],
                   [3., 2.]], dtype=float32)
        """
        if method is None or rows is None:
            raise InputError(
                "minimize takes starts, a method and a table: "
                "kernel.minimize(starts, sg.LBFGS(), rows=table)"
            )
        if in_blocks(rows):
            raise InputError(
                "rows in blocks: all steps of minimize are in one kernel of one machine; give "
                "kernel.bind(rows).as_scipy() to scipy.optimize.minimize, or bring the rows here "
                "with rows.compute()"
            )
        options |= {"steps": steps, "tol": tol}
        return minimize_over_data(self, self._row_loss(), starts, method, rows, options)

    def in_a_row(self, params: Any) -> np.ndarray:
        """Nested parameters, or a gradient, as one array (n_inputs,) of the kernel's dtype."""
        return self._parameters.flat(params)

    def as_scipy(self, rows: Any) -> Callable[[Any], tuple[float, np.ndarray]]:
        """``fun(x) -> (loss, gradient)`` over these rows: see `BoundKernel.as_scipy`."""
        return self.bind(rows).as_scipy()

    def profile(self, *arrays: Any) -> Profile:
        """Where the time of ``run(*arrays)`` goes, beside the limits of the device: see `Profile`.

        Raises:
            InputError: as ``run`` does. InputTypeError: for an iterator of tables, which can be
            read only once.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
            >>> kernel = sg.fused_forward_backward(2, line, row=2, device="cpu")
            >>> profile = kernel.profile([0.0, 1.0], np.ones((1000, 2)))
            >>> profile.points, profile.operations == 1000 * kernel.stats.flops
            (1000, True)
        """
        rows = len_of(_whole(arrays[-1])) if arrays else 0
        return profile_kernel(lambda: self.run(*arrays), self, rows)

    def audit(
        self, params: Any, rows: Any, *, least: float = 64.0, progress: Asked = False
    ) -> Audit:
        """Which operations on a row lose precision in float32, with your lines: see `Audit`.

        What is looked at is the loss of each row and its derivatives, each by itself, as
        `Kernel.audit` looks at points: a suspect's ``point`` is the row, counted without those
        that ``nan_policy`` omits, and its ``x`` holds parameters and columns. Sums over rows lose
        next to nothing, as they are made in float64 from blocks. ``progress`` is as for `run`.

        Raises:
            InputError, InputTypeError: as ``bind`` does.

        Example:
            >>> import symgrad as sg
            >>> gap = lambda p, r: sg.sqrt(r.x**2 + p[0]) - r.x
            >>> kernel = sg.fused_forward_backward(1, gap, columns=["x"], device="cpu")
            >>> audit = kernel.audit([1.0], {"x": [1.0, 5000.0]})
            >>> [(s.kind, s.operation, s.point) for s in audit.suspects]
            [('cancellation', 'sqrt(x**2 + p0) - x', 1)]
        """
        points = self.at_rows(params, rows, np.dtype("float32"))
        expressions, options = self._traced.expressions, self.request.options
        names = self._labels()[: len(expressions.nodes)]
        level = options.simplify
        return expressions.audit(self.name, names, points, level, least, progress)

    def _labels(self) -> list[str]:
        """Names of what is computed at a row, as `audit` uses them."""
        products = [f"jtj[{j}, {k}]" for j, k in np.transpose(np.triu_indices(self.n_inputs))]
        return ["loss", *(f"d/d{name}" for name in self._traced.wrt), *products]

    def at_rows(self, params: Any, rows: Any, dtype: np.dtype[Any]) -> RowPoints:
        """Values for the expressions of a row at each of them, rounded to a dtype."""
        table = self._read(_whole(rows))
        flat = self._flat(params)
        with np.errstate(over="ignore"):
            numbers = table.numbers.astype(dtype)
        divisor = self._divisor(weight_of(numbers, self._traced))
        return RowPoints(self._traced, flat.astype(dtype), numbers, table.indices, divisor)

    def _row_loss(self) -> RowLoss:
        """The loss that is minimised."""
        asked, traced = self.request, self._traced
        if asked.reduce is None or self.outputs[0] != "loss":
            raise InputError(
                "only a loss that is summed over rows is minimised: f returns one "
                "number, with reduce='sum'"
            )
        return RowLoss(
            asked.f,
            traced.columns,
            traced.weight,
            asked.reduce,
            asked.nan_policy,
            self.squares,
            None if asked.penalty is None else asked.penalty.f,
        )

    def export_js(
        self,
        path: str | Path,
        method: Any = None,
        *,
        each: bool = False,
        steps: int = 1000,
        tol: Any = None,
        bounds: Any = None,
    ) -> None:
        """Write the kernel as an ES module for WebGPU, and the types of that beside it.

        The module is one file without dependencies; see the page on browsers in the documentation.
        There ``run(parameters, rows)`` and ``bind(rows)`` take arrays in a row, and give the
        results of `run` here. With a method ``minimize(starts, {data})`` is there too.

        Args:
            path: where it goes, ending in .mjs or .js; what symgrad wrote there is replaced.
            method: as for `minimize`.
            each: whether each start has rows of its own, rather than all of them the same.
            steps: the most steps.
            tol: as for `minimize_from`.
            bounds: as for `minimize_from`.

        Raises:
            InputError: for a file there that symgrad did not write; and for kernels that look
                parameters up by an index, leave out rows that hold NaN, or have a regularizer.

        Example:
            >>> import tempfile, symgrad as sg
            >>> line = lambda p, r: p[0] + p[1] * r[0] - r[1]
            >>> kernel = sg.fused_least_squares(2, line, row=2, device="cpu")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     kernel.export_js(f"{folder}/fit.mjs", sg.LevenbergMarquardt(), each=True)
        """
        require_exportable(self._options.name, self.request, self._traced)
        by = None
        if method is not None:
            wanted = Steps(method, steps, tol, bounds)
            by = minimization_of(self._row_loss(), self.tree, wanted, each, self._options)
        sums = RowSums(
            self._summations,
            self._traced.columns.count,
            self.n_inputs,
            self._traced.used,
            self._sum_outputs(),
            self.request.reduce or "sum",
            self._traced.weight,
        )
        rows_exported(self.name, self.parameters, sums, by, self.precision).write(path)

    def _sum_outputs(self) -> list[SumOutput]:
        """Which sums are which numbers of the results."""
        graded = self._traced.graded
        places = range(1, 1 + len(graded))
        return [SumOutput("loss", None, [0], [0]), SumOutput("grad", self.n_inputs, places, graded)]

    # what it is ----------------------------------------------------------------------------------

    @property
    def tree(self) -> Tree:
        """How the parameters are nested and shaped."""
        return self._traced.tree

    @property
    def n_inputs(self) -> int:
        """The number of parameters."""
        return self.tree.size

    @cached_property
    def _summations(self) -> tuple[Any, ...]:
        """The WGSL modules, and where they write which sums."""
        return summations_of(self._traced.reduction, self.request.options, self._title)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules: the results are summed up in as many passes."""
        return tuple(module.source for module in self._summations)

    @property
    def expr(self) -> tuple[Any, ...]:
        """The loss of one row, times its weight, and its derivatives by the parameters' names."""
        loss, slopes, *_ = self._traced.expressions.in_groups()
        return loss[0], dict(zip(self._traced.wrt, slopes, strict=True))

    @property
    def stats(self) -> Stats:
        """The size of what is computed at a row, and the seconds that making the kernel took."""
        reduction = self._traced.reduction
        looked = sum(lookup.width for lookup in reduction.lookups)
        words = reduction.columns + 2 * looked  # which are read, and whose slopes are written
        nbytes = words * self.dtype.itemsize + 4 * len(self._traced.columns.indices)
        seconds = self._traced.seconds | {"compile": self._sums.seconds}
        on_host, derived = backend_of(self.device).on_host, self._traced.derived
        shaders = 1 if on_host else len(self.modules)
        return measured(reduction.graph, reduction.outputs, nbytes, shaders, seconds, derived, 4)

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters, in a row."""
        blocks = self._traced.tree.blocks
        return [b.name_of(k) for b in blocks for k in range(b.start, b.start + b.size)]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what ``run`` returns."""
        return "loss", "grad"

    @property
    def columns(self) -> tuple[str, ...] | int:
        """The names of a row's columns, or their number."""
        return self.request.columns.names or self.request.columns.count

    @property
    def codes(self) -> Codes:
        """The labels or dates that the numbers of columns stand for.

        Of labels, strings or categories, an array: label k is number k, as an index too. Of dates
        the one from which days are counted. The first table that the kernel reads says what they
        are, or ``columns=`` beforehand, as ``columns={"school": ["A", "B"], "score": None}``.
        Another kernel, as one of predictions, takes them as its ``codes=``.

        Example:
            >>> import symgrad as sg
            >>> kernel = sg.fused_forward(2, lambda p, r: p[r.city] * r.x, columns=["city", "x"],
            ...                           reduce=None, device="cpu")
            >>> kernel.run([1, 2], {"city": ["Rome", "Bern", "Rome"], "x": [1, 1, 2]}).tolist()
            [2.0, 1.0, 4.0]
            >>> kernel.codes["city"].tolist()
            ['Bern', 'Rome']
        """
        return self.request.columns.codes

    def __repr__(self) -> str:
        names = self.request.columns.names
        row = (
            ", ".join(map(self._shown, names)) if names else f"{self.request.columns.count} columns"
        )
        return (
            f"<symgrad data kernel {self.name}: {self.n_inputs} parameters, rows of {row}; "
            f"{self.request.reduce}, {self.precision} on {self.device}>"
        )

    def _shown(self, name: str) -> str:
        """A column, the shape of its arrays, and how many labels it has if it has any."""
        shape, known = self.request.columns.column(name).shape, self.codes.get(name)
        labels = f" ({len(known)} labels)" if isinstance(known, np.ndarray) else ""
        return name + (f" {shape}" if shape else "") + labels

    def _repr_latex_(self) -> str | None:
        return formula(self.expr[0])

    def to(self, device: targets.DeviceChoice) -> Self:
        """This kernel on another device: "gpu", "cpu", an index, or a `Device`."""
        return type(self)(self.request, device, *self._made_of())

    # what happens to a table ---------------------------------------------------------------------

    def _stays_there(self, rows: Any) -> bool:
        """Whether a table is on a GPU, where the kernel takes it as it is."""
        named = self.request.columns.names or not isinstance(rows, Mapping)
        return bool(named) and is_there(rows) and backend_of(self.device).owner is not None

    def _read(self, rows: Any, own: bool = False, on_gpu: bool = False) -> Table:
        """The table as a device takes it; ``own`` if nothing may be shared with the user.

        ``on_gpu`` if numbers may stay on a GPU.
        """
        backend = backend_of(self.device) if on_gpu and self._stays_there(rows) else None
        policy = self.request.nan_policy
        return read_table(rows, self._traced, self.request.options.dtype, policy, own, backend)

    # numbers in, numbers out ---------------------------------------------------------------------

    def _total(self, flat: np.ndarray, table: Table, bound: Any = None) -> Totals:
        """The results and then the entries of tables, summed over the rows of one table."""
        numbers = self._packed(flat)
        if bound is None and (self._traced.gathers or isinstance(table.numbers, ResidentArray)):
            bound = self._bound(table)
        sums = bound.run(numbers) if bound else self._sums.run(numbers, table.numbers)
        return Totals([sums], table.weight)

    @cached_property
    def _flagging(self) -> DataKernel | None:
        """The kernel that counts rows whose loops have not ended, if there are such loops."""
        traced = flagged(self.request, self._traced)
        return None if traced is None else DataKernel(self.request, self.device, traced)

    def counted(self, flat: np.ndarray, table: Table, bound: Any = None) -> int:
        """The first sum as a number of rows."""
        return round(float(self._total(flat, table, bound).parts[0][0]))

    def _resident(self, table: Table) -> Any:
        """The table where it is needed; None if it stays where it is."""
        return self._bound(table)

    def _bound(self, table: Table) -> Any:
        """The sums over the rows of a table."""
        return self._sums.bind(table.numbers, table.indices if self._traced.gathers else None)

    def _packed(self, flat: np.ndarray) -> np.ndarray:
        """The parameters that are the same for all rows, and the tables of the others."""
        if self._is_plain and len(flat) == self.n_inputs:
            return flat
        traced, uniform = self._traced, np.ascontiguousarray(flat[self._traced.places[0]])
        if not traced.gathers:
            return uniform
        blocks = [g.block for g in traced.gathers]
        return traced.reduction.packed(uniform, (flat[b.start : b.start + b.size] for b in blocks))

    def _finished(self, total: Any, flat: np.ndarray) -> Any:
        """The result of ``run``, of sums over all tables."""
        if total is None:
            raise InputError("rows is an iterator that yields no table")
        results = self._results(total, 1.0 / self._divisor(total.weight))
        penalty = self.request.penalty
        return results if penalty is None else penalty.added_to(results, flat)

    def _divisor(self, weight: float) -> float:
        """The divisor of sums over rows that weigh so much."""
        if self.request.reduce != "mean":
            return 1.0
        if not weight:
            raise InputError("the mean over no rows, or over weights of 0, is not defined")
        return weight

    @cached_property
    def _is_plain(self) -> bool:
        """Whether all rows read the same parameters: all of them, in their order."""
        order = np.arange(self.n_inputs)
        plain = all(np.array_equal(places, order) for places in self._traced.places)
        return plain and not self._traced.gathers

    def _results(self, total: Totals, scale: float) -> Any:
        sums = total.parts[0]
        gradient = sums[1:] if self._is_plain else self._scattered(sums)
        if scale != 1.0:
            gradient = gradient * scale
        return float(sums[0] * scale), self._parameters.nested(gradient)

    def _scattered(self, sums: np.ndarray) -> np.ndarray:
        """The gradient for all parameters, of the sums for those that rows read."""
        gradient = POOL.empty((self.n_inputs,), np.dtype(np.float64), aligned=False)
        gradient.fill(0.0)
        places, tables = self._traced.places[1], self._traced.reduction.entries(sums)
        gradient[places] = sums[1 : 1 + len(places)]
        for gather, entries in zip(self._traced.gathers, tables, strict=True):
            start = gather.block.start
            gradient[start : start + entries.size] += entries.ravel()
        return gradient


def _whole(rows: Any) -> Any:
    """One table, rather than an iterator of blocks."""
    if not is_table(rows):
        raise InputTypeError("an iterator of blocks cannot be kept: run(params, rows) reads it")
    return rows


# making one ---------------------------------------------------------------------------------------


def data_kernel(request: Request, device: Any) -> DataKernel:
    """The kernel of a loss over data."""
    require_request(request)
    request = replace(request, options=placed(request.options, device))
    with paused_gc():
        return DataKernel(request, device, traced_loss(request))


def retraced(kernel: DataKernel, device: Any, dtype: DTypeName) -> DataKernel:
    """This kernel in another dtype."""
    request = kernel.request
    return data_kernel(replace(request, options=replace(request.options, dtype=dtype)), device)
