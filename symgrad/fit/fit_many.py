"""Many curves at once: one Levenberg-Marquardt iteration, a state for every curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.bridges.tables import PARAM, Labelled, in_blocks, is_labelled
from symgrad.errors import InputError, InputTypeError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import tree_of
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for, trace
from symgrad.fit.blocks import fit_blocks
from symgrad.fit.curves import Curves, CurvesAtOnce, curves_of
from symgrad.fit.data_form import DataForm
from symgrad.fit.model import MISTAKES
from symgrad.fit.units import Given, refit
from symgrad.kernel.problems import RowData
from symgrad.kernel.resident import ResidentArray
from symgrad.optimize.arguments import (
    as_given,
    bounds_of,
    parameters_of,
    real_columns,
    real_matrix,
    require_method,
    require_taken,
    start_within,
    whole,
)
from symgrad.optimize.evaluation import Weighted
from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.method import Method, Tolerances
from symgrad.optimize.minimize import minimized
from symgrad.optimize.models import in_order, is_of_one_x, names_of
from symgrad.optimize.search import MOST_STEPS, search_of
from symgrad.optimize.starts import Starts, on_host, starts_of, target_of
from symgrad.pipeline import DType, dtype_name
from symgrad.targets import Device, DeviceChoice, choose
from symgrad.values.dtypes import host_dtype
from symgrad.values.tables import NanPolicy

WATCHING: Final = "callback", "history", "memory"
"""Options that show how steps went, of the fits in the data's own units."""

OPTIONS: Final = (*WATCHING, "math", "progress", "runner")
"""Further options of `minimize_from`."""


@frozen_for(EVERY_STEP)
def fit_many(
    f: Callable[..., Any],
    x: Any,
    Y: Any,
    p0: Any = None,
    *,
    sigma: Any = None,
    bounds: Any = None,
    method: Method | None = None,
    steps: int = 200,
    tol: float | Tolerances | None = None,
    covariance: bool = False,
    absolute_sigma: bool = False,
    nan_policy: NanPolicy = "propagate",
    mode: Mode = "auto",
    device: DeviceChoice = None,
    dtype: DType | None = None,
    dim: str | Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Fit ``f(x, *parameters)`` to many curves, each with parameters of its own.

    Args:
        f: the model, as for `curve_fit`: of one x, or, if it treats x as a whole, as an ODE does,
            of all of a curve's, M values at once; x that all curves share are constants then.
        x: (M,) or (k, M), the same for all curves; or for each its own, (S, k, M), or (S, M) if
            f takes one number as x; or a table of columns with names, as for `fit_model`: those
            that have an axis of curves more, (S, M, ...), are each curve's own. If Y is a
            ``DataArray``: the name of the coordinate to fit along, or a list of k names.
        Y: the curves, (S, M), or vectors at each x, (S, M, ...), each number of which is a row of
            the fit; a `DeviceArray` is fitted where it is, in its own unit, for which
            `LevenbergMarquardt` has limits; or a ``DataArray`` of xarray, or a Dask array, each
            block of which is a task: then results are such arrays too.
        p0: where to start, (n,) for all or (S, n), within the bounds, or a dict by the names of
            parameters of numbers or arrays (S,); None is as for `curve_fit`.
            If Y or p0 is a `DeviceArray`, the results are such arrays too.
        sigma: standard deviations: a number, (M,), or (S, M); infinite for rows to leave out, which
            are no degrees of freedom then.
        bounds: as for `minimize_from`, or a dict of (low, high) by names.
        method: `LevenbergMarquardt` by default, `GaussNewton`, or any other `Method`: those are
            given half the sum of squares as their loss.
        steps: the most steps for a curve.
        tol: as for `minimize_from`.
        covariance: whether to add ``cov``, (S, n, n), as `curve_fit` has pcov.
        absolute_sigma: as for `curve_fit`.
        nan_policy: for NaN in x, Y or sigma: "propagate" ends the fit of that curve, "raise"
            refuses it, and "omit" leaves the row out; so curves of different lengths are given
            with NaN behind them. A curve of which no row is left has no fit: its status is -2.
        mode: how the Jacobian of the residuals of a row is made: see `fused_jacobian`.
        device: as everywhere; None is the first real GPU, or else the CPU.
        dtype: float32 on a GPU, float64 on the CPU by default. "float64" with a GPU that has none
            has it fit in float32, and the CPU go on from there in float64, or from p0 where that
            was no success; ``nit`` counts the steps of both, each of which may do ``steps``.
            Float32 leaves five or six digits of well-conditioned fits, and few where the columns
            of the Jacobian are nearly dependent (a condition of 1e3 or more).
        dim: the dimensions of a ``DataArray`` to fit along, where they are not those of x.
        options: more of `minimize_from`: ``callback``, ``history``, ``math``, ``memory``,
            ``progress``, ``runner``.

    Returns:
        SciPy's ``OptimizeResult`` as `minimize_from` returns it: x (S, n), fun (S,), half the sum
        of squares, nit, success, status, message, mode, and ``cov`` if it is wanted: infinite where
        it is singular, the fit has no value, or a curve has no more rows than parameters, unless
        with ``absolute_sigma``. Curves of 1e-30 or 1e30 are fitted as those of 1 are; those that
        the dtype does not have are no success. If Y is a ``DataArray``, a ``Dataset`` with its
        other dimensions and their coordinates: ``parameters`` and ``errors`` along ``param``,
        ``fun``, ``nit``, ``success`` and ``status``, and ``covariance`` if it is wanted.

    Raises:
        InputError: for shapes that do not go together, and a p0 beyond the bounds.
        TraceError: if f cannot be traced.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> x = np.linspace(0, 3, 20)
        >>> Y = np.exp(-np.outer([0.5, 1.0, 2.0], x))
        >>> found = sg.fit_many(lambda x, a, b: a * np.exp(-b * x), x, Y, [1.0, 1.5], device="cpu")
        >>> found.x[:, 1].round(6)
        array([0.5, 1. , 2. ])
    """
    chosen = LevenbergMarquardt() if method is None else method
    require_method(chosen)
    _require_options(options)
    given = {"sigma": sigma, "bounds": bounds, "method": chosen, "steps": steps, "tol": tol}
    given |= {"covariance": covariance, "absolute_sigma": absolute_sigma, "mode": mode, **options}
    given |= {"nan_policy": nan_policy, "device": device, "dtype": dtype}
    if is_labelled(Y):
        return _labelled(f, Labelled.of(Y, x, dim), x, p0, given)
    p0, given["bounds"] = in_order(f, p0, bounds)
    form = DataForm.of(x, np.shape(Y), curves=True)
    if form is not None:
        given["sigma"] = form.sigma(sigma, np.shape(Y))
        return fit_many(form.model(f), form.x(x, len(Y)), form.y(Y), p0, **given)
    if in_blocks(Y):
        given["dtype"] = dtype_name(dtype or backend_of(choose(device)).dtype)
        start = _start(f, given["bounds"]) if p0 is None else p0
        return fit_blocks(fit_many, f, x, Y, start, given)
    target = target_of(device, Y, p0)
    given["dtype"] = dtype_name(dtype or backend_of(target).dtype)
    fit = _fitted if given["dtype"] in target.dtypes else _in_both
    return fit(f, x, Y, p0, target, given)


def _fitted(
    f: Callable[..., Any], x: Any, Y: Any, p0: Any, target: Device, given: dict[str, Any]
) -> Any:
    """The fits of arrays on one device, with all options of `fit_many` as they are given."""
    kind, method, sigma, bounds = (given[n] for n in ("dtype", "method", "sigma", "bounds"))
    options = {name: given[name] for name in OPTIONS if name in given}
    convert = backend_of(target).on_host or options.get("runner") is not None
    seen = _observed(Y, kind, convert)
    starts = _starts(f, p0, len(seen), bounds, kind, convert)
    n = starts.shape[1]
    all_x = as_given(x, "x")
    x, plain = _places(f, all_x, seen, n)
    x = real_columns(x, "x", kind, -2 if x.ndim > 1 else None)
    curves = curves_of(x, seen, sigma, given["nan_policy"], kind, plain=plain)
    curves = _of_one_x_or_all(f, x, curves, starts)
    residual = curves.residual(f)
    loss = residual if method.needs == "squares" else _half_square(residual)
    tree, data = tree_of(n), RowData(curves.shared, curves.own)
    where: dict[str, Any] = {"device": target, "dtype": kind, "mode": given["mode"]}
    box = bounds_of(bounds, tree)
    resident = isinstance(starts, ResidentArray)
    begin = starts_of(starts, tree, data, box, kind) if resident else Starts(starts, None, False)
    how: dict[str, Any] = {
        "steps": given["steps"],
        "tol": given["tol"],
        "math": given.get("math", "accurate"),
    }
    search = search_of(loss, tree, begin, data, box, method, **how, **where)
    result = minimized(search, **_watching(options))
    absolute = given["absolute_sigma"]
    if given["covariance"]:
        half, fun = _normal_matrices(residual, result.x, data, where), on_host(result.fun)
        result.cov = _covariances(half, np.asarray(fun), n, curves.kept, absolute)
    if isinstance(result.x, np.ndarray) and isinstance(starts, np.ndarray):
        deviations = None if sigma is None else as_given(sigma, "sigma")
        taken = Given(f, all_x, as_given(Y, "Y"), starts, deviations, bounds, x.ndim == 3)
        again = {name: given[name] for name in given.keys() - {"sigma", "bounds", *WATCHING}}
        refit(result, taken, kind, absolute, partial(fit_many, **again))
    return result


def _of_one_x_or_all(
    f: Callable[..., Any], x: Any, curves: Curves, starts: Any
) -> Curves | CurvesAtOnce:
    """The curves as f takes their x: one at a time, or all of a curve's."""
    n = starts.shape[1]
    first = np.ones(n) if isinstance(starts, ResidentArray) else starts[0] if len(starts) else None
    if first is None or _is_of_one_x(f, curves, first):
        return curves
    if np.isnan(x).any():
        raise InputError(
            f"{describe(f)} needs all x at once, and x holds NaN: leave rows out by NaN in Y, "
            "or by an infinite sigma"
        )
    return curves.at_once()


def _labelled(
    f: Callable[..., Any], curves: Labelled, x: Any, p0: Any, given: dict[str, Any]
) -> Any:
    """The fits of a ``DataArray`` as a ``Dataset``."""
    starts = curves.starts(p0, names_of(f, p0.sizes.get(PARAM, 0)) if is_labelled(p0) else ())
    arrays = given | {"sigma": curves.sigma(given["sigma"]), "covariance": True}
    fits = fit_many(f, curves.x(x), curves.curves, starts, **arrays)
    return curves.dataset(fits, names_of(f, fits.x.shape[1]), given["covariance"])


def _in_both(
    f: Callable[..., Any], x: Any, Y: Any, p0: Any, gpu: Device, given: dict[str, Any]
) -> Any:
    """The fits in float64 on the CPU, from where those in float32 on a GPU have led."""
    if isinstance(Y, ResidentArray) or isinstance(p0, ResidentArray):
        raise InputError(f"{gpu} has no float64, which is the CPU's: use Y.numpy() and p0.numpy()")
    on_gpu = given | {"device": gpu, "dtype": "float32", "covariance": False}
    coarse = fit_many(f, x, Y, p0, **on_gpu)
    starts = _starts(f, p0, len(coarse.x), given["bounds"], "float64")
    near = np.where(coarse.success[:, None], coarse.x.astype(float), starts)
    box = bounds_of(given["bounds"], tree_of(near.shape[1]))
    near = np.clip(near, box.low, box.high)
    on_cpu: dict[str, Any] = given | {"device": "cpu", "dtype": "float64"}
    fine = fit_many(f, x, Y, near, **on_cpu)
    fine.nit = fine.nit + coarse.nit
    return fine


def _half_square(residual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The loss of a row for methods that minimise any loss."""

    def loss(p: Any, row: Any) -> Any:
        r = residual(p, row)
        if isinstance(r, Weighted):
            return Weighted(0.5 * r.value * r.value, r.weight)
        return 0.5 * np.sum(r * r)

    return loss


# --- arguments ------------------------------------------------------------------------------------


def _require_options(options: dict[str, Any]) -> None:
    """Refuse what neither a fit of curves nor `minimize_from` knows."""
    unknown = sorted({*options} - {*OPTIONS})
    if unknown:
        raise InputTypeError(
            f"fit_many does not know {', '.join(unknown)}: x and Y are arrays; residuals of rows "
            "with named columns, which may be arrays, are fitted by "
            "sg.fused_least_squares(...).minimize(starts, sg.LevenbergMarquardt(), rows=table)"
        )


def _watching(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `minimized` among those of `minimize_from`."""
    watching = {name: value for name, value in options.items() if name not in ("math", "history")}
    return watching | {"every": whole(options.get("history", False), "history", 0, MOST_STEPS)}


def _observed(Y: Any, dtype: str, convert: bool) -> Any:
    """The curves, (S, M), on the device if they are there; see `real_columns`."""
    seen = Y if isinstance(Y, ResidentArray) else real_columns(Y, "Y", dtype, None, convert)
    if seen.ndim != 2:
        raise InputError(f"Y has shape {seen.shape}: (curves, rows) is needed")
    return seen


def _places(f: Callable[..., Any], x: np.ndarray, seen: Any, n: int) -> tuple[np.ndarray, bool]:
    """x as `curves_of` takes it, and whether the model is given it as one number."""
    if x.ndim == 2 and x.shape == seen.shape:
        k, rows = x.shape
        if _takes_a_number(f, n) or (not _takes(f, k, n) and _takes(f, rows, n, rows)):
            return x[:, None, :], True
    return x, x.ndim == 1


def _starts(
    f: Callable[..., Any], p0: Any, count: int, bounds: Any, dtype: str, convert: bool = True
) -> Any:
    """A start for each of the curves, within the bounds; see `real_matrix`."""
    if isinstance(p0, ResidentArray):
        return p0
    p0 = _start(f, bounds) if p0 is None else p0
    n = np.shape(p0)[-1] if np.ndim(p0) else 1
    require_taken(f, n)
    box = bounds_of(bounds, tree_of(n))
    starts = real_matrix(p0, "p0", n, dtype, convert or box.finite)
    if len(starts) not in (1, count):
        raise InputError(f"p0 has shape {np.shape(p0)}: (n,) or ({count}, n) is needed")
    low, high = (np.asarray(end, host_dtype(dtype)) for end in (box.low, box.high))
    if box.finite and (np.any(starts < low) or np.any(starts > high)):
        raise InputError("`x0` is infeasible: p0 is outside of the bounds")
    return np.broadcast_to(starts, (count, starts.shape[1]))


def _start(f: Callable[..., Any], bounds: Any) -> np.ndarray:
    """Where fits start if nobody says: as `curve_fit` does."""
    box = bounds_of(bounds, tree_of(parameters_of(f)))
    return start_within(np.asarray(box.low), np.asarray(box.high))


def _takes_a_number(f: Callable[..., Any], n: int) -> bool:
    """Whether the model can be traced for an x that is one number."""
    return _outputs(lambda v: f(v[0], *v[1:]), n + 1) == 1


def _takes(f: Callable[..., Any], k: int, n: int, values: int = 1) -> bool:
    """Whether the model can be traced for an x of k numbers, and has so many values there."""
    return _outputs(lambda v: f(v[:k], *v[k:]), k + n) == values


def _is_of_one_x(f: Callable[..., Any], curves: Curves, p: np.ndarray) -> bool:
    """Whether the model is to be traced for one x, as it does not need all of them at once."""
    x, k, n = curves.x_of_first, curves.k, len(p)
    told = is_of_one_x(f, x, p)
    if told is not None:
        return told
    one = _takes_a_number(f, n) if curves.plain else _takes(f, k, n)
    return one or _outputs(lambda v: f(x, *v), n) != x.shape[-1]


def _outputs(f: Callable[[Any], Any], n: int) -> int:
    """How many values a function of n variables has; 0 if it cannot be traced."""
    try:
        return len(trace(f, n).outputs)
    except MISTAKES:
        return 0


# --- covariances ----------------------------------------------------------------------------------


def _normal_matrices(
    residual: Callable[[Any, Any], Any], x: Any, data: RowData, where: dict[str, Any]
) -> Any:
    """The lower halves of JᵀJ at these parameters: a first evaluation keeps them."""
    method, tree = LevenbergMarquardt(), tree_of(x.shape[1])
    begin, box = Starts(x, None, single=False), bounds_of(None, tree)
    search = search_of(residual, tree, begin, data, box, method, steps=0, tol=None, **where)
    at = minimized(search, memory=True)
    assert method.stored is not None, "JᵀJ is a part of the memory"
    return at.memory[method.stored]


def _covariances(
    half: np.ndarray, fun: np.ndarray, n: int, rows: Any, absolute: bool
) -> np.ndarray:
    """(JᵀJ)⁻¹ of each fit; infinite where it is singular or not finite.

    So it is too where there are no more ``rows`` than parameters, unless it is ``absolute``.
    """
    matrices = np.zeros((len(half), n, n))
    lower = np.tril_indices(n)
    matrices[:, lower[0], lower[1]] = matrices[:, lower[1], lower[0]] = half
    cov = np.full(matrices.shape, np.inf)
    left = np.broadcast_to(rows, len(half)) - n
    good = np.isfinite(half).all(axis=1) & np.isfinite(fun) & (absolute | (left > 0))
    units = np.sqrt(np.diagonal(matrices[good], axis1=1, axis2=2))
    units = np.where(units > 0, units, 1.0)
    outer = units[:, :, None] * units[:, None, :]
    clear = np.linalg.cond(matrices[good] / outer) < 1.0 / (n * np.finfo(half.dtype).eps)
    good[good] = clear
    inverse = np.linalg.inv(matrices[good] / outer[clear]) / outer[clear]
    factor = 1.0 if absolute else (2.0 * fun[good] / left[good])[:, None, None]
    cov[good] = inverse * factor
    return cov
