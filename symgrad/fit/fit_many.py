"""Many curves at once: one Levenberg-Marquardt iteration, a state for every curve."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.bridges.tables import PARAM, Labelled, in_blocks, is_labelled
from symgrad.errors import InputError, InputTypeError, PrecisionWarning
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import tree_of
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for, trace
from symgrad.fit.curves import Curves, CurvesAtOnce, curves_of, fit_blocks
from symgrad.fit.data_form import DataForm
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.shapes import RowData
from symgrad.optimize.arguments import (
    MISTAKES,
    as_given,
    bounds_of,
    in_order,
    is_of_one_x,
    names_of,
    parameters_of,
    real_columns,
    real_matrix,
    require_method,
    require_taken,
    start_within,
    whole,
)
from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.method import Method, Tolerances, Weighted
from symgrad.optimize.minimize import minimized
from symgrad.optimize.result import Messages, scipy_optimize
from symgrad.optimize.starts import MOST_STEPS, Starts, on_host, search_of, starts_of, target_of
from symgrad.pipeline import DType, dtype_name
from symgrad.targets import Device, DeviceChoice, choose
from symgrad.values.arrays import EPSILON, LARGEST, SMALLEST, host_dtype
from symgrad.values.tables import NanPolicy

# --- curves in their own units --------------------------------------------------------------------
# Curves whose squares are beyond the range, or small beside 1: fitted again in their own units.

WIDTH: Final = 8
"""Powers of two from one unit to the next."""

AT_MINIMUM, NOT_FINITE, FLAT = 1, -2, -3


@dataclass(frozen=True, eq=False)
class Given:
    """Arguments of a fit: curves (S, M), starts (S, n), and x and sigma as the user gave them."""

    f: Callable[..., Any]
    x: Any
    Y: np.ndarray
    starts: np.ndarray
    sigma: np.ndarray | None
    bounds: Any
    own_x: bool
    """Whether each curve has x of its own."""

    def at(self, places: np.ndarray, starts: np.ndarray) -> Given:
        """Some of the curves, with other starts."""
        sigma = self.sigma
        sigma = sigma[places] if sigma is not None and sigma.ndim == 2 else sigma
        x = self.x[places] if self.own_x else self.x
        return Given(self.f, x, self.Y[places], starts, sigma, self.bounds, self.own_x)

    def divided(self, unit: float, ratio: float, powers: np.ndarray) -> dict[str, Any]:
        """The arguments of the fit of y / unit and parameters / powers, with residuals / ratio."""
        f, inverse = self.f, 1.0 / unit

        @functools.wraps(f)
        def model(x: Any, *parameters: Any) -> Any:
            natural = [p * power for p, power in zip(parameters, powers.tolist(), strict=True)]
            return f(x, *natural) * inverse

        box = bounds_of(self.bounds, tree_of(len(powers)))
        return {
            "f": model,
            "x": self.x,
            "Y": self.Y * inverse,
            "p0": self.starts / powers,
            "sigma": None if self.sigma is None else self.sigma / unit * ratio,
            "bounds": scipy_optimize().Bounds(np.array(box.low) / powers, box.high / powers),
        }


def refit(result: Any, given: Given, dtype: str, absolute: bool, fit: Callable[..., Any]) -> None:
    """Replace fits, in a result of `fit_many`, of curves that are not of the size of 1.

    Squares may have vanished or overflowed; or the residuals were 0 beside those at the start,
    though not beside y. The model, y and the parameters are divided by powers of two, so that
    rounding is the same. Curves that the dtype does not have are no successes. ``fit`` is
    `fit_many` with the other options of the call, ``absolute`` its absolute_sigma.
    """
    fun = np.asarray(result.fun)
    places = _doubtful(fun, given.sigma, dtype)
    if not len(places):
        return
    for name in ("x", "fun", "nit", "status", "success"):
        result[name] = np.array(result[name])
    units, ratios, status = _units(given.at(places, given.starts[places]), fun[places], dtype)
    known = (status < 0) | ((status > 0) & ~result.success[places])
    result.status[places[known]] = status[known]
    result.success[places[known]] = status[known] > 0
    again = (status == 0) & ((units != 1.0) | (ratios != 1.0))
    for unit, ratio in np.unique(np.stack([units, ratios], axis=1)[again], axis=0):
        chosen = places[again & (units == unit) & (ratios == ratio)]
        # scales of what are outliers in these units would slow a fit down from the first start
        near = result.fun[chosen] <= EPSILON[dtype] ** 1.5
        starts = np.where(near[:, None], result.x[chosen], given.starts[chosen])
        powers = _powers(starts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrecisionWarning)  # said of the whole Y already
            fits = fit(**given.at(chosen, starts).divided(unit, ratio, powers), covariance=True)
        unknown = np.isinf(fits.cov[:, 0, 0]) & np.all(fits.x * powers == starts, axis=1)
        fits.status[unknown], fits.success[unknown] = FLAT, False
        result.x[chosen] = fits.x * powers
        _put(result, chosen, fits, ratio, powers / ratio if absolute else powers)
    result.message = Messages(result.status)


def _doubtful(fun: np.ndarray, sigma: np.ndarray | None, dtype: str) -> np.ndarray:
    """The curves whose sums of squares are next to 0 or to infinity, or whose weights are.

    Of most curves none is, and their data are not looked at.
    """
    most, eps = LARGEST[dtype], EPSILON[dtype]
    plain = (fun > eps**1.5) & (fun < most * eps)
    if sigma is not None:
        usual = (sigma > SMALLEST[dtype] ** 0.25) & ((sigma < most**0.25) | np.isinf(sigma))
        plain &= np.atleast_1d(usual).all(axis=-1)
    return np.flatnonzero(~plain)


def _units(given: Given, fun: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each curve, its unit, that of y in deviations, and its status if that is known, or 0.

    It is where y is out of range, and where the residuals are 0 beside y.
    """
    least, most, eps = SMALLEST[dtype], LARGEST[dtype], EPSILON[dtype]
    y = np.asarray(given.Y, float)
    sizes = deviations = _largest(y)
    if given.sigma is not None:
        with np.errstate(over="ignore", under="ignore"):
            deviations = _largest(y / given.sigma)
    status = np.where(sizes > most, NOT_FINITE, np.where(sizes < least, FLAT, 0))
    status[(sizes == 0.0) | np.isinf(sizes)] = 0
    with np.errstate(over="ignore", under="ignore"):
        gone = (fun > least / eps**2) & (fun <= _nothing(deviations**2, dtype))
    status[gone & (fun < most * eps)] = AT_MINIMUM
    return _unit(sizes), _unit(deviations), status


def _nothing(squares: Any, dtype: str) -> Any:
    """The sum of squares that is rounding beside these."""
    return EPSILON[dtype] ** 1.5 * squares


def _largest(y: np.ndarray) -> np.ndarray:
    """The largest number of each curve; NaN is left out."""
    return np.where(np.isnan(y), 0.0, np.abs(y)).max(axis=1, initial=0.0)


def _unit(sizes: np.ndarray) -> np.ndarray:
    """The power of two nearest to each size, of those that are a width apart."""
    usable = np.isfinite(sizes) & (sizes > 0.0)
    steps = np.rint(np.log2(np.where(usable, sizes, 1.0)) / WIDTH).astype(int)
    return np.ldexp(1.0, np.clip(steps * WIDTH, -1016, 1016))


def _powers(starts: np.ndarray) -> np.ndarray:
    """A power of two for each parameter, of the size of its starts (S, n)."""
    usable = np.isfinite(starts) & (starts != 0.0)
    exponents = np.where(usable, np.frexp(np.where(usable, starts, 0.5))[1], 0)
    return np.ldexp(1.0, np.median(exponents, axis=0).astype(int))


def _put(result: Any, places: np.ndarray, fits: Any, ratio: float, errors: np.ndarray) -> None:
    """Put how fits ended into the result: residuals were divided by the ratio, errors by these."""
    with np.errstate(over="ignore", under="ignore"):
        result.fun[places] = fits.fun * ratio * ratio
        if "cov" in result:
            result.cov[places] = fits.cov * errors * errors[:, None]
    result.nit[places] += fits.nit
    result.status[places], result.success[places] = fits.status, fits.success


# --- many curves ----------------------------------------------------------------------------------

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
        >>> fit = sg.fit_many(lambda x, a, b: a * np.exp(-b * x), x, Y, [1.0, 1.5], device="cpu")
        >>> fit.x[:, 1].round(6)
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
