"""Fits of residuals of rows by sparse normal equations: SciPy's words in, SciPy's result out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.errors import InputError, warn
from symgrad.optimize.arguments import bounds_of, number, whole
from symgrad.optimize.point import Box
from symgrad.optimize.result import ENDED_BY_USER, MESSAGES, optimize_result, scipy_optimize
from symgrad.optimize.robust import require_loss
from symgrad.pipeline import DType, dtype_name
from symgrad.report.progress import Asked, reporting
from symgrad.rows.loss import Request, Traced
from symgrad.rows.products import RowProducts, row_products
from symgrad.rows.sparse_fit import Ending, Limits, descend, variances
from symgrad.rows.sparse_rows import RowSystem, Run
from symgrad.rows.table import Table, read_table
from symgrad.values.dtypes import EPSILON
from symgrad.values.parameters import Nest

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
