"""Minimisations over points, and over rows of data: a fit for each data set, or for each start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.tree import Tree
from symgrad.expr.tracing.gather import TracedRow
from symgrad.expr.tracing.trace import replay
from symgrad.kernel.host.memory import ResidentArray
from symgrad.optimize.arguments import real_columns, require_method
from symgrad.optimize.method import Method, Weighted, array_of
from symgrad.optimize.minimize import minimize_from
from symgrad.optimize.starts import on_host
from symgrad.optimize.stepwise import Evaluated
from symgrad.values.nested import rows_of
from symgrad.values.tables import Columns, read, require_columns


def minimize_kernel(
    kernel: Any, starts: Any, method: Method, steps: int = 1000, tol: Any = None, **options: Any
) -> Any:
    """Minimise a kernel's loss from every start; for "squares", its values are the residuals.

    The device and the dtype are the kernel's; ``options`` are more of `minimize_from`.

    Example:
        >>> import symgrad as sg
        >>> from symgrad.optimize.over_data import minimize_kernel
        >>> kernel = sg.fused_forward_backward(1, lambda v: (v[0] - 2)**2, device="cpu")
        >>> minimize_kernel(kernel, [[0.0]], sg.Newton(), 5).x
        array([[2.]], dtype=float32)
    """
    f, where = minimized(kernel, method), {"device": kernel.device, "dtype": kernel.precision}
    return minimize_from(f, kernel.tree, starts, method, steps, tol, **(where | options))


def minimized(kernel: Any, method: Method) -> Callable[[Any], Any]:
    """The function of a kernel that a method minimises, as one that can be traced.

    Raises:
        InputError: for a loss, of a method that minimises squares.
    """
    require_method(method)
    if method.needs == "squares" and kernel.outputs[0] == "loss":
        raise InputError(
            f"{type(method).__name__} minimises squares, and {kernel.name} is a loss: give it "
            "residuals, by sg.fused_jacobian, sg.fused_least_squares (of rows of data), "
            "sg.fit_many or sg.minimize_from; or use sg.LBFGS() or sg.Newton()"
        )
    return retraced(kernel)


def retraced(kernel: Any) -> Callable[[Any], Any]:
    """The first result of a kernel as a function, of its variables, that can be traced again."""
    expr = kernel.expr
    first = expr if len(kernel.outputs) == 1 else expr[0]
    roots = [first] if isinstance(first, Expr) else [*first]
    ids = [r.id for r in roots]

    def again(x: Any, *rows: Any) -> Any:
        v = [e for part in (*kernel.tree.parts(x, "x"), *rows) for e in np.ravel(array(part))]
        values = replay(roots[0].graph, ids, v)
        return values[0] if isinstance(first, Expr) else values

    again.__name__ = kernel.name
    return again


@dataclass(frozen=True)
class RowLoss:
    """The summand of a kernel over data: a row's loss, or its residuals if it is ``squares``."""

    f: Callable[..., Any]
    columns: Columns
    weight: int | None
    reduce: str
    nan_policy: str
    squares: bool
    penalty: Callable[..., Any] | None = None
    """An addition to the sum over rows: a loss of the parameters, or residuals."""
    share: float = 1.0
    """How much of it is added at each row."""

    def values(self, p: Any, row: Any) -> np.ndarray:
        """The values of f at a row, as an array (m,)."""
        named = self.columns.blocks
        result = self.f(p, TracedRow(row, named) if named else row)
        return np.ravel(array_of(result))

    def loss(self, p: Any, row: Any) -> Any:
        """The loss of a row, times its weight."""
        values = self.values(p, row)
        loss = np.sum(values * values) if self.squares else values[0]
        also = None
        if self.penalty is not None:
            more = np.ravel(array_of(self.penalty(p)))
            also = self.share * (np.sum(more * more) if self.squares else more[0])
        if self.weight is None:
            return Weighted(loss, None, also)
        return Weighted(row[self.weight] * loss, row[self.weight], also)

    def residuals(self, p: Any, row: Any) -> Any:
        """The residuals of which half the squares are the loss."""
        also = None
        if self.penalty is not None:
            more = np.ravel(array_of(self.penalty(p)))
            also = np.sqrt(2.0 * self.share) * more
        if self.weight is None:
            return Weighted(self.values(p, row) * np.sqrt(2.0), None, also)
        weight = row[self.weight]
        return Weighted(self.values(p, row) * np.sqrt(2.0 * weight), weight, also)


def minimize_over_data(
    kernel: Any, of: RowLoss, starts: Any, method: Method, data: Any, options: dict[str, Any]
) -> Any:
    """Minimise a kernel's loss over data, from every start at once; see `DataKernel.minimize`."""
    require_squares(method, of.squares, kernel.name)
    each, looked_up = _is_of_each(data, of.columns), bool(of.columns.indices)
    if looked_up and not each and method.needs != "squares":
        return kernel.bind(data).minimize(starts, method, **options)
    if looked_up and not each:
        raise InputError(
            "parameters that rows look up by an index are fitted by sparse normal equations: use "
            "kernel.fit(start, rows), or sg.LBFGS()"
        )
    if of.reduce == "mean" and of.weight is not None:
        raise InputError('weights with reduce="mean" are not minimised: use reduce="sum"')
    table = _table(data, of, kernel.precision)
    if looked_up:
        kernel.bind(np.reshape(on_host(table), (-1, of.columns.count)))  # refuses indices beyond
    if of.reduce == "sum":
        of = replace(of, share=1.0 / max(table.shape[-2], 1))
    given = {"shared" if table.ndim == 2 else "own": table, "reduce": of.reduce}
    given |= {"device": kernel.device, "dtype": kernel.precision} | options
    f = of.residuals if method.needs == "squares" else of.loss
    return minimize_from(f, kernel.tree, starts, method, **given)


def minimize_bound(
    bound: Any,
    with_hessian: Callable[[], Callable[..., Any]],
    starts: Any,
    method: Method,
    options: dict[str, Any],
) -> Any:
    """Minimise the loss of a kernel with its rows; see `BoundKernel.minimize`."""
    require_method(method)
    kernel = bound.kernel
    run, second = bound.as_scipy(), "hessian" in kernel.outputs and method.needs == "hessian"
    loss: Any = Evaluated(with_hessian() if second else run, kernel.tree.size, second)
    given = {"device": kernel.device, "dtype": kernel.precision} | options
    return minimize_from(loss, kernel.tree, starts, method, **given)


def require_squares(method: Method, squares: bool, name: str) -> None:
    """Refuse what is no method, and one that minimises squares where there are none."""
    require_method(method)
    if method.needs == "squares" and not squares:
        raise InputError(
            f"{type(method).__name__} minimises squares, and {name} is a loss: make its "
            "kernel of residuals, by sg.fused_least_squares; or use sg.LBFGS() or sg.Newton()"
        )


def _table(data: Any, of: RowLoss, dtype: str) -> Any:
    """The data as (R, k), or (S, R, k) for a data set of each fit."""
    if isinstance(data, ResidentArray):
        return data
    tree = of.columns.tree
    if tree and isinstance(data, Mapping) and _is_of_each(data, of.columns):
        data = _stacked(data, of.columns, tree)
    if isinstance(data, Mapping) or np.ndim(data) != 3:
        return read(data, of.columns, dtype, of.nan_policy)[0]
    table = real_columns(data, "data", dtype)
    if table.shape[2] != of.columns.count:
        raise InputError(
            f"data has shape {table.shape}: (rows, {of.columns.count}) or (fits, rows, "
            f"{of.columns.count}) is needed"
        )
    if of.nan_policy != "propagate" and np.isnan(table).any():
        raise InputError("data holds NaN: leave those rows out, or give them a weight of 0")
    return table


def _is_of_each(data: Any, columns: Columns) -> bool:
    """Whether each fit has rows of its own: (S, R, k), or a column (S, R) of numbers or arrays."""
    if not isinstance(data, Mapping):
        return np.ndim(data) == 3
    present = [column for column in columns.blocks if column.name in data]
    return any(np.ndim(data[c.name]) == 2 + len(c.shape) for c in present)


def _stacked(data: Mapping[str, Any], columns: Columns, tree: Tree) -> np.ndarray:
    """Columns by name, (S, R, *shape) or (R, *shape) for all data sets, as (S, R, k)."""
    require_columns(columns, data)
    return rows_of(tree, {name: data[name] for name in tree.keys}, "rows")
