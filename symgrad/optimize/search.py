"""A minimisation's request, once it has been checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from symgrad.backend import Backend, backend_of
from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode, require_mode
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.problems import RowData
from symgrad.kernel.resident import ResidentArray
from symgrad.mathlib.define import Math
from symgrad.optimize.arguments import tolerances_of, whole
from symgrad.optimize.evaluation import Accumulation
from symgrad.optimize.method import Bounds, Method, Tolerances
from symgrad.optimize.problem import Problem
from symgrad.optimize.starts import Starts
from symgrad.optimize.stepwise import Evaluated
from symgrad.pipeline import DTypeName, Options
from symgrad.targets import Device
from symgrad.values.parameters import of_row
from symgrad.values.tables import Reduce

MOST_STEPS: Final = 2**24
"""Steps that float32 can count."""


@dataclass(frozen=True)
class Search:
    """A minimisation whose arguments have been checked: what, from where, and how."""

    loss: Callable[..., Any]
    tree: Tree
    begin: Starts
    data: RowData
    box: Bounds
    method: Method
    device: Device
    options: Options
    steps: int
    stop: Tolerances
    reduce: Reduce
    mode: Mode

    @cached_property
    def backend(self) -> Backend:
        """The back end of the device."""
        return backend_of(self.device)

    @property
    def is_on_device(self) -> bool:
        """Whether starts or data are in the memory of a device."""
        arrays = self.begin.rows, self.data.shared, self.data.own
        return any(isinstance(a, ResidentArray) for a in arrays)

    @property
    def problem(self) -> Problem:
        """The problem that is minimised."""
        rows = self.data.rows
        weight = 1.0 / max(rows, 1) if self.reduce == "mean" else 1.0
        if isinstance(self.loss, Evaluated):
            return Problem(self.loss.run, self.tree.size, given=True)
        f, mode = of_row(self.loss, self.tree), Accumulation(self.mode)
        problem = Problem(f, self.tree.size, *self.data.columns, weight, mode)
        return problem.rolled(self.options.rounding)


def search_of(
    loss: Callable[..., Any],
    tree: Tree,
    begin: Starts,
    data: RowData,
    box: Bounds,
    method: Method,
    device: Device,
    dtype: DTypeName,
    *,
    steps: int,
    tol: float | Tolerances | None,
    math: Math = "accurate",
    reduce: Reduce = "sum",
    mode: Mode = "auto",
) -> Search:
    """The search from starts that are checked, over data that are; the rest is checked here."""
    require_mode(mode)
    if reduce not in ("sum", "mean"):
        raise InputError(f'reduce={reduce!r} is not a choice: use "sum" or "mean"')
    count, stop = whole(steps, "steps", 0, MOST_STEPS - 1), tolerances_of(tol, method, dtype)
    backend = backend_of(device)
    backend.require(dtype)
    name = getattr(loss, "__name__", "loss")
    options = Options(name, math, dtype, True, False, budget=backend.budget)
    return Search(loss, tree, begin, data, box, method, device, options, count, stop, reduce, mode)
