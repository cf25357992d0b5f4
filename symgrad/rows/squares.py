"""Sums of squares over data: loss, gradient and JᵀJ in one pass, and fits of many parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from symgrad.backend import placed
from symgrad.deprecated import renamed_argument
from symgrad.errors import InputError
from symgrad.expr.graph.node import paused_gc
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for
from symgrad.pipeline import DType
from symgrad.report.progress import Asked
from symgrad.rows.fit import Target, Task, limits_of, scale_of_residuals
from symgrad.rows.kernel import DataKernel, Totals
from symgrad.rows.loss import Request, require_request, traced_squares
from symgrad.rows.sparse_rows import RowSystem
from symgrad.rows.table import Table
from symgrad.targets import DeviceChoice
from symgrad.values.dtypes import host_dtype
from symgrad.values.results import derivatives
from symgrad.web.kernels import SumOutput


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
            >>> found = model.fit({"level": np.zeros(3), "slope": 0.0}, rows)
            >>> found.x["level"].round(6), float(found.x["slope"].round(6)), found.success
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
        return replace(total, jtj=system.jtj(flat))

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
            return *super()._results(total, scale), (total.jtj * scale).astype(self.dtype)
        n = self.n_inputs
        sums = total.sums * scale
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
