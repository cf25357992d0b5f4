"""Losses over data as ES modules for WebGPU."""

from __future__ import annotations

from symgrad.errors import InputError
from symgrad.expr.tracers.tree import Tree
from symgrad.optimize.over_data import RowLoss, require_squares
from symgrad.pipeline import Options
from symgrad.rows.loss import Request, Traced
from symgrad.values.parameters import of_row
from symgrad.web.kernels import Minimization, Steps, require_exported


def require_exportable(name: str, request: Request, traced: Traced) -> None:
    """Refuse what modules do not compute."""
    require_exported(request.options.dtype)
    missing = {
        "parameters that rows look up by an index": bool(traced.gathers),
        f'nan_policy="{request.nan_policy}"': request.nan_policy != "propagate",
        "a regularizer": request.penalty is not None,
        "results for each row, reduce=None,": request.reduce is None,
    }
    for what in (words for words, present in missing.items() if present):
        raise InputError(f"{name}: {what} cannot be exported yet; run it from Python")


def minimization_of(
    loss: RowLoss, tree: Tree, by: Steps, each: bool, options: Options
) -> Minimization:
    """A minimisation of a loss over data that come later, the same for all starts or ``each``."""
    require_squares(by.method, loss.squares, options.name)
    if loss.reduce == "mean":
        raise InputError('a mean over rows is not minimised by modules: use reduce="sum"')
    f = loss.residuals if by.method.needs == "squares" else loss.loss
    columns = {"own" if each else "shared": loss.columns.count}
    return Minimization(of_row(f, tree), tree, by, options, **columns)
