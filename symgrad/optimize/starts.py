"""Arguments of minimisations: where they start, with which data, and on which device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.backend import Backend, backend_of
from symgrad.errors import InputError, InputTypeError, counted
from symgrad.expr.derivatives.accumulate import Mode, require_mode
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.shapes import RowData
from symgrad.mathlib.define import Math
from symgrad.optimize.arguments import real_columns, real_matrix, tolerances_of, whole
from symgrad.optimize.method import Accumulation, Bounds, Method, Tolerances
from symgrad.optimize.problem import Problem
from symgrad.optimize.stepwise import Evaluated
from symgrad.pipeline import DTypeName, Options
from symgrad.targets import Device, choose_any, devices
from symgrad.values.nested import of_row, rows_of
from symgrad.values.tables import Reduce

# --- the request ----------------------------------------------------------------------------------
# A minimisation's request, once it has been checked.

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


# --- arguments ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Starts:
    """Where problems start, ``rows`` (S, n), here or on a device.

    ``tree`` is how the user nested them, None for rows; ``single`` if there was one, not batched.
    """

    rows: Any
    tree: Tree | None
    single: bool

    def nested(self, x: Any) -> Any:
        """Points (..., n) as the starts were nested."""
        return x if self.tree is None else self.tree.arrays(x)


def starts_of(
    starts: Any, tree: Tree, data: RowData, bounds: Bounds, dtype: str, convert: bool = True
) -> Starts:
    """The starts, within the bounds unless they are on a device.

    They need not be converted where there are no bounds, for a device to do it on their way.

    Raises:
        InputError: for starts of other shapes or names, or of another number than there is data.
    """
    if isinstance(starts, ResidentArray):
        if starts.ndim != 2 or starts.shape[1] != tree.size:
            raise InputError(f"starts has shape {starts.shape}: (S, {tree.size}) is needed")
        points = Starts(starts, None, False)
    else:
        points = _on_host(starts, tree, bounds, dtype, convert or bounds.finite)
    if data.own is not None and len(points.rows) != len(data.own):
        raise InputError(
            f"{counted(len(points.rows), 'start')} for "
            f"{counted(len(data.own), 'problem')}: give one for each"
        )
    return points


def _on_host(starts: Any, tree: Tree, bounds: Bounds, dtype: str, convert: bool) -> Starts:
    nested = _is_nested(tree, starts)
    given = rows_of(tree, starts, "starts") if nested else starts
    if nested and given.ndim > 2:
        raise InputError(f"starts have a batch of {given.shape[:-1]}: one axis, or none, is needed")
    rows = real_matrix(given, "starts", tree.size, dtype, convert)
    if bounds.finite:
        rows = np.clip(rows, np.asarray(bounds.low), np.asarray(bounds.high)).astype(dtype)
    return Starts(rows, tree if nested else None, np.ndim(given) < 2)


def _is_nested(tree: Tree, starts: Any) -> bool:
    """Whether starts are nested or shaped as variables that are no array (n,)."""
    if not tree.is_leaf:
        return tree.is_nest(starts)
    shape, count = np.shape(starts), len(tree.keys)
    if count == 0:
        return len(shape) < 2
    flat = len(shape) in (1, 2) and shape[-1] == tree.size
    return count > 1 and not flat and shape[len(shape) - count :] == tree.keys


def data_of(shared: Any, own: Any, dtype: str, convert: bool = True) -> RowData:
    """Columns of data that problems share, and those of each, as they are on a device or here.

    They need not be converted, for a device to do it on their way.
    """
    sides: list[Any] = []
    for name, value, ndim in (("shared", shared, 2), ("own", own, 3)):
        if value is not None:
            if not isinstance(value, ResidentArray):
                value = real_columns(value, name, dtype, convert=convert)
            if value.ndim != ndim:
                wanted = "(rows, columns)" if ndim == 2 else "(problems, rows, columns)"
                raise InputError(f"{name} has shape {value.shape}: {wanted} is needed")
        sides.append(value)
    a, b = sides
    if a is not None and b is not None and a.shape[0] != b.shape[1]:
        raise InputError(
            f"shared has {a.shape[0]} rows and own {b.shape[1]}: they must have the same number"
        )
    return RowData(a, b)


def target_of(device: Any, *arrays: Any) -> Device:
    """The device that is chosen, or that the arrays are on."""
    owners = {id(a.gpu): a.gpu for a in arrays if isinstance(a, ResidentArray)}
    if not owners:
        return choose_any(device)
    if device is None and len(owners) == 1:
        (owner,) = owners.values()
        candidates = [d for d in devices() if backend_of(d).owner is owner]
        target = candidates[0] if candidates else choose_any(device)
    else:
        target = choose_any(device)
    if {id(backend_of(target).owner)} != {*owners}:
        raise InputTypeError(f"arrays on another device cannot be read by {target}: use .numpy()")
    return target


def on_host(array: Any) -> Any:
    """An array of NumPy's, wherever it was."""
    return array.numpy() if isinstance(array, ResidentArray) else array
