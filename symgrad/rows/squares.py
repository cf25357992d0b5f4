"""Sums of squares over data: loss, gradient and JᵀJ in one pass, and fits of many parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of, placed
from symgrad.errors import InputError, renamed_argument, warn
from symgrad.expr.graph.node import paused_gc
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for
from symgrad.optimize.arguments import bounds_of, number, whole
from symgrad.optimize.result import ENDED_BY_USER, MESSAGES, Box, optimize_result, scipy_optimize
from symgrad.pipeline import DType, dtype_name
from symgrad.report.progress import Asked, reporting
from symgrad.rows.kernel import DataKernel, Totals
from symgrad.rows.loss import Request, Traced, require_request, traced_squares
from symgrad.rows.products import RowProducts, require_loss, row_products
from symgrad.rows.sparse_fit import Ending, Limits, descend, variances
from symgrad.rows.sparse_normal import RowSystem, Run
from symgrad.rows.table import Table, read_table
from symgrad.targets import DeviceChoice
from symgrad.values.arrays import EPSILON, host_dtype
from symgrad.values.nested import Nest, derivatives
from symgrad.web.kernels import SumOutput

MOST_STEPS: Final = 2**31 - 1
"""The most steps that may be asked for."""


@dataclass(frozen=True)
class Target:
    """Where residuals are computed, and in which dtype."""

    device: targets.Device
    dtype: str

    @classmethod
    def of(cls, device: targets.DeviceChoice, dtype: DType | None) -> Target:
        """The target as wanted: by default the CPU, and a device's most accurate dtype."""
        chosen_device = targets.choose("cpu" if device is None else device)
        backend = backend_of(chosen_device)
        name = backend.dtype if dtype is None else dtype_name(dtype)
        backend.require(name)
        return cls(chosen_device, name)

    def compiled(self, products: RowProducts) -> Run:
        """The kernel of the products of rows."""
        options, computation = products.options, products.computation
        title = f"{options.name}: products of derivatives"
        return backend_of(self.device).map(computation, options, title).run


@dataclass(frozen=True)
class Task:
    """A least-squares problem over the rows of a table, for parameters nested as the user's."""

    request: Request
    traced: Traced
    nest: Nest

    def system(
        self, table: Table, target: Target, loss: str = "linear", scale: float = 1.0
    ) -> RowSystem:
        """The normal equations of the table's rows."""
        options = replace(self.request.options, dtype=target.dtype)
        products = row_products(replace(self.request, options=options), loss, scale)
        indices = {c: table.indices[:, k] for k, c in enumerate(self.traced.columns.indices)}
        run = target.compiled(products)
        return RowSystem(products, run, self.nest.size, np.asarray(table.numbers), indices)

    def table(self, rows: Any, dtype: str) -> Table:
        """A table of one row or more, whose weights are not negative."""
        table = read_table(rows, self.traced, dtype, self.request.nan_policy, own=True)
        if not table.count:
            raise InputError("the table has no rows: there is nothing to fit")
        columns, weight = self.traced.columns, self.traced.weight
        if weight is not None:
            weights = table.numbers[:, columns.numbers.index(weight)]
            if (weights < 0.0).any():
                raise InputError(
                    f"{columns.describe(weight)} is {weights.min()} at row "
                    f"{int(np.argmin(weights))}: weights of squares cannot be negative"
                )
        return table

    def fit(
        self,
        start: Any,
        rows: Any,
        target: Target,
        bounds: Any,
        limits: Limits,
        loss: str,
        scale: float,
        errors: bool,
        progress: Asked = False,
    ) -> Any:
        """The minimum from a start: see `LeastSquaresKernel.fit`."""
        if errors and loss != "linear":
            raise InputError(f'errors=True is for loss="linear", not {loss!r}')
        within = bounds_of(bounds, self.nest.tree)
        box = Box(np.array(within.low), np.array(within.high))
        x = self.nest.flat(start)
        if not ((x >= box.low) & (x <= box.high)).all():
            raise InputError("the start is outside of the bounds")
        table = self.table(rows, target.dtype)
        system = self.system(table, target, loss, scale)
        eps = EPSILON[target.dtype]
        with reporting(progress, "steps") as report:
            end = descend(system, x, box, limits, eps, report)
        result = self._result(end, system.residuals(end.state.x), self._share(table))
        if errors:
            result["errors"] = self.nest.nested(self._errors(end, self._counted(table, system)))
        return result

    def _counted(self, table: Table, system: RowSystem) -> int:
        """The residuals of rows that do not weigh 0."""
        if self.traced.weight is None:
            return system.count
        weights = table.numbers[:, self.traced.columns.numbers.index(self.traced.weight)]
        return system.products.residuals * int(np.count_nonzero(weights))

    def _errors(self, end: Ending, count: int) -> np.ndarray:
        """Standard errors (n,): infinite where rows tell nothing, 0 where a bound holds."""
        free, normal = end.state.free, end.state.normal
        fixed = normal.fixed(free)
        diagonal = variances(fixed)
        left = count - np.count_nonzero(fixed.squares)
        if diagonal is None or left <= 0:
            warn(
                "errors of the parameters could not be estimated: some are not determined",
                scipy_optimize().OptimizeWarning,
            )
            return np.full(len(free), np.inf)
        finite = np.isfinite(diagonal)  # infinity times a loss of 0 is not
        scaled = np.multiply(
            diagonal, 2.0 * normal.cost / left, out=np.full_like(diagonal, np.inf), where=finite
        )
        return np.where(free, np.sqrt(scaled), 0.0)

    def _share(self, table: Table) -> float:
        """The factor of the sum over rows."""
        return 1.0 if self.request.reduce == "sum" else 1.0 / table.weight

    def _result(self, end: Ending, residuals: np.ndarray, share: float) -> Any:
        normal = end.state.normal
        gradient = share * normal.gradient
        free = np.where(end.state.free, gradient, 0.0)
        return optimize_result(
            x=self.nest.nested(end.state.x),
            cost=share * normal.cost,
            fun=residuals[:, 0] if residuals.shape[1] == 1 else residuals,
            grad=self.nest.nested(gradient),
            optimality=float(np.abs(free).max()),
            nit=end.steps,
            nfev=end.evaluations,
            njev=end.evaluations,
            status=end.status,
            message=MESSAGES[end.status],
            success=0 < end.status < ENDED_BY_USER,
        )


def limits_of(ftol: Any, xtol: Any, gtol: Any, steps: Any) -> Limits:
    """The limits that are asked for."""
    arguments = {"ftol": ftol, "xtol": xtol, "gtol": gtol}
    tolerances = {name: number(value, name) for name, value in arguments.items()}
    for name, value in tolerances.items():
        if value < 0.0:
            raise InputError(f"{name}={value!r}: a tolerance cannot be negative")
    return Limits(**tolerances, steps=whole(steps, "steps", 1, MOST_STEPS))


def scale_of_residuals(loss: Any, f_scale: Any) -> float:
    """The scale of a loss that exists."""
    require_loss(loss)
    scale = number(f_scale, "f_scale")
    if not 0.0 < scale < np.inf:
        raise InputError(f"f_scale={f_scale!r}: a positive number is needed")
    return scale


@dataclass(frozen=True, eq=False)
class Resident:
    """A table on the device whose rows look up parameters: its parts for the sums, and for JᵀJ."""

    sums: Any
    system: RowSystem


class LeastSquaresKernel(DataKernel):
    """The sum of squares of residuals over the rows of a table, and what fitting them needs.

    ``run(p, rows)`` gives the sum of squares, its gradient 2 Jᵀr (n,), and JᵀJ (n, n), from one
    pass; the Jacobian J itself is never stored. Of nested parameters they are nested, JᵀJ as a
    Hessian is: ``jtj["a"]["b"]``. Where rows look up parameters JᵀJ is a SciPy CSR array for all
    of them in a row, and takes a second pass. ``fit(start, rows)`` fits them.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> kernel = sg.fused_least_squares(2, lambda p, r: p[0] + p[1] * r[0] - r[1], row=2,
        ...                                 device="cpu")
        >>> loss, gradient, jtj = kernel.run([0.0, 0.0], np.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> loss, gradient.tolist(), jtj.tolist()
        (20.0, [-12.0, -28.0], [[2.0, 4.0], [4.0, 10.0]])
    """

    squares: ClassVar[bool] = True

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what ``run`` returns."""
        return "loss", "grad", "jtj"

    @renamed_argument("LeastSquaresKernel.fit", old="data", new="rows", since=(0, 2))
    @frozen_for(EVERY_STEP)
    def fit(
        self,
        start: Any,
        rows: Any,
        *,
        loss: str = "linear",
        f_scale: float = 1.0,
        bounds: Any = (-np.inf, np.inf),
        steps: int = 500,
        ftol: float = 1e-8,
        xtol: float = 1e-8,
        gtol: float = 1e-8,
        errors: bool = False,
        device: DeviceChoice = None,
        dtype: DType | None = None,
        progress: Asked = False,
    ) -> Any:
        """Fit the parameters to data, of which there may be very many that rows look up.

        Levenberg and Marquardt's method with scales of the Jacobian, on JᵀJ in blocks, as the
        columns of indices say: the largest family of parameters of which each row takes one entry,
        such as the points of a bundle adjustment or the levels of groups, is eliminated, and what
        is left is solved by Cholesky's method, or by conjugate gradients if it is more than 8000
        parameters. Directions that no row determines are left as they are, and so are entries of
        parameters that no row looks up. A prior, such as that of random effects, is more rows: a
        column says which residual is meant. The kernel's own device and dtype do not matter here.

        Args:
            start: the parameters to start from, nested as they were asked for, or in a row.
            rows: a table, as ``run`` takes it.
            loss: what squares of residuals are replaced by, as in
                ``scipy.optimize.least_squares``: "linear", "huber", "soft_l1", "cauchy" or
                "arctan", of each residual by itself.
            f_scale: the size from which a residual is an outlier.
            bounds: ``(low, high)``, each a number, or nested as the parameters; or as for
                `minimize_from`.
            steps: the most steps that are tried.
            ftol: the tolerance for the change of the loss, relative to it.
            xtol: the same for the parameters.
            gtol: for the cosine between the residuals and any column of the Jacobian.
            errors: whether to estimate standard errors too, from JᵀJ and the residuals.
            device: where residuals and derivatives are computed: the CPU by default. Steps are
                always the CPU's.
            dtype: "float64" by default; on a GPU "float32".
            progress: as for `minimize_from`; after StopIteration the status is 99.

        Returns:
            SciPy's result: ``x`` nested as the parameters; ``cost``, half of what ``run`` gives as
            the loss; ``fun``, the residuals of the rows (N,) or (N, m); ``grad``, nested, and its
            largest number as ``optimality``; ``errors``, nested, if asked for: infinite where rows
            tell nothing; ``nit``, ``nfev``, ``status``, ``message`` and ``success``, as
            `minimize_from` has them.

        Raises:
            InputError: for a start, rows or options that do not fit, and for negative weights.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> model = sg.fused_least_squares(
            ...     {"level": 3, "slope": ()}, lambda p, r: p.level[r.who] + p.slope * r.x - r.y,
            ...     columns=["who", "x", "y"])
            >>> rows = {"who": [0, 0, 1, 1, 2], "x": [0, 1, 0, 1, 3], "y": [1, 3, 2, 4, 5]}
            >>> fit = model.fit({"level": np.zeros(3), "slope": 0.0}, rows)
            >>> fit.x["level"].round(6), float(fit.x["slope"].round(6)), fit.success
            (array([ 1.,  2., -1.]), 2.0, True)
        """
        if self.request.penalty is not None:
            raise InputError("fit() takes no regularizer: give a prior as rows of data")
        limits, scale = limits_of(ftol, xtol, gtol, steps), scale_of_residuals(loss, f_scale)
        target = Target.of(device, dtype)
        return self._task("float64").fit(
            start, rows, target, bounds, limits, loss, scale, errors, progress
        )

    def _task(self, dtype: str) -> Task:
        nest = replace(self._parameters, dtype=host_dtype(dtype))
        return Task(self.request, self._traced, nest)

    def _sum_outputs(self) -> list[SumOutput]:
        n, triangle = self.n_inputs, np.triu_indices(self.n_inputs)
        half = [*range(1 + n, 1 + n + len(triangle[0]))]
        rows, columns = triangle
        places = [*(rows * n + columns), *(columns * n + rows)]
        return [*super()._sum_outputs(), SumOutput("jtj", n * n, half + half, places)]

    # numbers in, numbers out ---------------------------------------------------------------------

    def _total(self, flat: np.ndarray, table: Table, bound: Any = None) -> Totals:
        if not self._traced.gathers:
            return super()._total(flat, table, bound)
        system = bound.system if bound else self._system(table)
        total = super()._total(flat, table, bound and bound.sums)
        return Totals([*total.parts, system.jtj(flat)], total.weight)

    def _stays_there(self, rows: Any) -> bool:
        return not self._traced.gathers and super()._stays_there(rows)

    def _system(self, table: Table) -> RowSystem:
        kind = self.precision
        return self._task(kind).system(table, Target(self.device, kind))

    def _resident(self, table: Table) -> Any:
        sums = super()._resident(table)
        return Resident(sums, self._system(table)) if self._traced.gathers else sums

    def _results(self, total: Totals, scale: float) -> Any:
        if self._traced.gathers:
            return *super()._results(total, scale), (total.parts[1] * scale).astype(self.dtype)
        n = self.n_inputs
        sums = total.parts[0] * scale
        jtj = np.empty((n, n))
        rows, columns = np.triu_indices(n)
        jtj[rows, columns] = jtj[columns, rows] = sums[1 + n :]
        slopes = self._parameters.nested(sums[1 : 1 + n])
        return float(sums[0]), slopes, jtj.astype(self.dtype)

    def _finished(self, total: Any, flat: np.ndarray) -> Any:
        loss, slopes, jtj = super()._finished(total, flat)
        if isinstance(jtj, np.ndarray):
            jtj = derivatives(self.tree, second=True).of(jtj.reshape(1, -1), ())
        return loss, slopes, jtj


def least_squares_kernel(request: Request, device: Any) -> LeastSquaresKernel:
    """The kernel of a sum of squares over data."""
    require_request(request)
    request = replace(request, options=placed(request.options, device))
    with paused_gc():
        return LeastSquaresKernel(request, device, traced_squares(request))
