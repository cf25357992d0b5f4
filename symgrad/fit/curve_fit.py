"""`curve_fit` with SciPy's signature: exact derivatives, and all the digits there are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.bridges.tables import in_blocks
from symgrad.errors import InputError, InputTypeError
from symgrad.expr.derivatives.accumulate import Mode, require_mode
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for
from symgrad.fit.data_form import Data, DataInBlocks, NanPolicy, Refused
from symgrad.fit.solve import Told, fit, near
from symgrad.optimize.arguments import (
    in_order,
    parameters_of,
    real,
    require_taken,
    sides_of,
    start_within,
    whole,
)
from symgrad.optimize.result import Box
from symgrad.pipeline import DType, dtype_name
from symgrad.report.progress import Asked, reporting
from symgrad.targets import DeviceChoice, choose, choose_any

JACOBIANS: Final = (None, "2-point", "3-point", "cs")
"""Values of ``jac`` in SciPy beside functions."""

METHODS: Final = (None, "lm", "trf", "dogbox")

IGNORED: Final = frozenset(
    {"ftol", "xtol", "gtol", "epsfcn", "factor", "diag", "col_deriv", "x_scale", "verbose",
     "diff_step", "jac_sparsity", "tr_solver", "tr_options", "f_scale"}
)  # fmt: skip
"""Options of SciPy's methods that this one does not need."""

UNBOUNDED: Final = (-np.inf, np.inf)

MOST_EVALUATIONS: Final = 2**31 - 1
"""The most evaluations that may be asked for."""


@frozen_for(EVERY_STEP)
def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool = True,
    bounds: Any = UNBOUNDED,
    method: str | None = None,
    jac: Any = None,
    *,
    full_output: bool = False,
    nan_policy: NanPolicy = None,
    mode: Mode = "auto",
    device: DeviceChoice = None,
    dtype: DType | None = None,
    progress: Asked = False,
    **kwargs: Any,
) -> Any:
    """Fit ``f(x, *parameters)`` to data by least squares, as ``scipy.optimize.curve_fit`` does.

    The model is traced and differentiated, so derivatives are exact and no steps are chosen. In
    float64 on the CPU, the default, hard problems reach about ten digits.

    Args:
        f: the model, of x and the parameters, with NumPy's functions or symgrad's. It is traced
            for one x, or, if it treats x as a whole, for all of them; anew at every call, unless it
            refers to numbers and NumPy's or symgrad's functions of numbers alone.
        xdata: (M,), or (k, M) for k predictors; or an array of any other shape that f takes, which
            is then traced for all of it. xdata, ydata and sigma may be Dask arrays, or columns
            of its data frames, of many rows: each block stays where it is, and f is traced
            for one x.
        ydata: (M,); of another length than xdata if f, which is then traced for all of xdata, gives
            as many values, such as real and imaginary parts one after the other.
        p0: the parameters to start from, in order or a dict by their names; by default 1 for each
            that f names, or within bounds.
        sigma: standard deviations of ydata, (M,), infinite for rows to leave out, which are no
            degrees of freedom then (SciPy counts them), or their covariance, (M, M), or one number.
        absolute_sigma: False scales pcov so that the residuals have the deviations they have.
        check_finite: refuse data that are not finite.
        bounds: ``(low, high)``, numbers or arrays, or SciPy's ``Bounds``; or a dict of (low, high)
            by names.
        method: "lm", "trf" or "dogbox" are taken and mean the same; "lm" refuses bounds.
        jac: taken and not needed.
        full_output: whether to return more.
        nan_policy: None or "raise", or "omit" to leave out rows with NaN.
        mode: how derivatives are made, "auto" for what takes the fewest operations: see
            `fused_jacobian`. It matters to models that need all of x at once, as simulations do.
        device: the CPU by default. A GPU evaluates the model in float32 up to the neighbourhood of
            the minimum, which the CPU reaches in float64.
        dtype: "float64" by default. "float32x2" evaluates the model and its derivatives to the end
            on the device, in pairs of float32, which have 12 digits and float32's range; so does
            "float32", whose own digits end no fit. Steps are the CPU's.
        progress: True to show how far a fit is that takes longer than a second, or a function that
            is called with a `Progress`. If it raises StopIteration, a FitError names the best end.
        kwargs: ``maxfev`` or ``max_nfev`` limits the evaluations of each attempt; SciPy's
            tolerances (ftol, xtol, gtol) and the like are taken, but the fit always goes on until
            rounding ends it; of its losses ``loss="linear"`` alone.

    Returns:
        ``popt, pcov``, and with ``full_output`` ``infodict`` (``nfev``, the residuals
        ``fvec``, and the ``mode`` of derivatives; not MINPACK's ``fjac``, ``ipvt`` and ``qtf``), a
        message and a flag. Data may be of any size that the dtype has; variances beyond its range
        are infinite or 0, with an ``OptimizeWarning``.

    Raises:
        FitError: a RuntimeError, if no minimum is found; it carries ``popt``, ``pcov``, ``nfev``
        and ``result``. InputError: a ValueError, for data that do not fit together. TraceError: if
        f cannot be traced.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> x = np.linspace(0, 4, 50)
        >>> popt, pcov = sg.curve_fit(lambda x, a, b: a * np.exp(-b * x), x, 2.5 * np.exp(-1.3 * x))
        >>> popt.round(6)
        array([2.5, 1.3])
    """
    require_mode(mode)
    refused = Refused(check_finite, nan_policy)
    cut = in_blocks(xdata) or in_blocks(ydata)
    data = (DataInBlocks if cut else Data).of(xdata, ydata, sigma, refused)
    p0, bounds = in_order(f, p0, bounds)
    start, box = _start(f, p0, bounds, method)
    target, limit = choose_any(device if device is not None else "cpu"), _limit(kwargs, jac)
    kind = "float64" if dtype is None else dtype_name(dtype)
    kind = "float32x2" if kind == "float32" else kind
    rows_on = partial(data.rows, f, len(start), mode)
    with reporting(progress, "evaluations") if progress else nullcontext() as report:
        told = Told(report).of if report else None
        if dtype is None and device is not None and backend_of(target).dtype == "float32":
            coarse = rows_on(target, "float32")
            _require_rows(coarse.count, len(start), box, method)
            start, target = near(coarse, start, box, limit, told), choose("cpu")
        rows = rows_on(target, kind)
        _require_rows(rows.count, len(start), box, method)
        fitted = fit(rows, start, box, limit, told)
    popt, pcov = fitted.end.p, fitted.covariance(absolute_sigma)
    if not full_output:
        return popt, pcov
    message = f"Least squares converged: the relative offset is {fitted.end.offset:.1e}."
    info = {"nfev": fitted.rows.calls, "fvec": fitted.residuals, "mode": rows.made}
    return popt, pcov, info, message, 1


# --- arguments ------------------------------------------------------------------------------------


def _require_rows(rows: int, n: int, box: Box, method: str | None) -> None:
    """Refuse fewer rows than parameters where SciPy would use MINPACK's lm."""
    if rows < n and (method == "lm" or (method is None and not box.bounded)):
        raise InputTypeError(
            f"The number of func parameters={n} must not exceed the number of data points={rows}: "
            "method='trf' takes that"
        )


def _start(f: Any, p0: Any, bounds: Any, method: str | None) -> tuple[np.ndarray, Box]:
    """The parameters to start from, and the box they stay in."""
    if method not in METHODS:
        raise InputError("`method` must be 'lm', 'trf' or 'dogbox'.")
    given = None if p0 is None else np.array(real(p0, "p0")).ravel()
    n = parameters_of(f) if given is None else given.size
    require_taken(f, n)
    box = _box(bounds, n)
    if method == "lm" and box.bounded:
        raise InputError("Method 'lm' only works for unconstrained problems. Use 'trf' instead.")
    p = given
    if p is None:
        p = start_within(box.low, box.high) if box.bounded else np.ones(n)
    if box.bounded and ((p < box.low).any() or (p > box.high).any()):
        raise InputError("`x0` is infeasible: p0 is outside of the bounds")
    return p, box


def _box(bounds: Any, n: int) -> Box:
    """SciPy's bounds of n parameters."""
    if bounds is UNBOUNDED:
        return _unbounded(n)
    try:
        low, high = sides_of(bounds)
        box = Box(_side(low, n), _side(high, n))
    except ValueError as error:
        raise InputError(f"bounds: numbers or arrays of {n} are needed: {error}") from error
    if not (box.low < box.high).all():
        raise InputError("bounds: each lower bound must be strictly less than each upper bound")
    return box


@lru_cache
def _unbounded(n: int) -> Box:
    return Box(np.full(n, -np.inf), np.full(n, np.inf))


def _side(values: Any, n: int) -> np.ndarray:
    """The bounds of one side, (n,)."""
    side = np.empty(n)
    side[:] = real(values, "bounds")
    return side


def _limit(options: dict[str, Any], jac: Any) -> int:
    """The most evaluations of an attempt; options that would change the fit are refused."""
    if not callable(jac) and jac not in JACOBIANS:
        raise InputError(f"jac={jac!r}: None, a function, '2-point', '3-point' or 'cs' is taken")
    if "args" in options:
        raise InputError("'args' is not a supported keyword argument.")
    loss = options.pop("loss", "linear")
    if loss != "linear":
        raise InputTypeError(
            f'curve_fit does not know loss={loss!r}: it minimises the sum of squares, "linear"'
        )
    limit = options.pop("maxfev", None) or options.pop("max_nfev", None) or 1000
    others = {*options} - IGNORED - {"max_nfev"}
    if others:
        raise InputTypeError(
            f"curve_fit does not know {', '.join(sorted(others))}: it minimises the sum of squares"
        )
    return whole(limit, "maxfev", 1, MOST_EVALUATIONS)
