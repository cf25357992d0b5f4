"""Many curves at once: one Levenberg-Marquardt iteration, a state for every curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.optimize.arguments import real, real_matrix
from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.method import Method, Tolerances
from symgrad.optimize.minimize import minimize_from, target_of
from symgrad.wgsl.dispatch import DeviceArray


def fit_many(
    f: Callable[..., Any], x: Any, Y: Any, p0: Any, *, sigma: Any = None, bounds: Any = None,
    method: Method | None = None, steps: int = 200, tol: float | Tolerances | None = None,
    covariance: bool = False, absolute_sigma: bool = False, device: Any = None,
    dtype: str | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Fit ``f(x, *parameters)`` to many curves, each with parameters of its own.

    Args:
        f: the model of one x, as for `curve_fit`.
        x: (M,) or (k, M), the same for all curves, or (S, k, M).
        Y: the curves, (S, M); a `DeviceArray` is fitted where it is.
        p0: where to start, (n,) for all or (S, n). With a `DeviceArray`, the results are such
            arrays too.
        sigma: standard deviations: a number, (M,), or (S, M).
        bounds: ``(low, high)``, numbers or (n,).
        method: `LevenbergMarquardt` by default, or `GaussNewton`.
        steps: the most steps for a curve.
        tol: as for `minimize_from`.
        covariance: whether to add ``cov``, (S, n, n), as `curve_fit` has pcov.
        absolute_sigma: as for `curve_fit`.
        device: as everywhere; None is the first real GPU, or else the CPU.
        dtype: float32 on a GPU, float64 on the CPU by default.
        options: more of `minimize_from`: ``callback``, ``history``, ``math``, ``progress``.

    Returns:
        SciPy's ``OptimizeResult`` as `minimize_from` returns it: x (S, n), fun (S,), half the sum
        of squares, nit, success, status, message, and ``cov`` if it is wanted.

    Raises:
        InputError: for shapes that do not go together. TraceError: if f cannot be traced.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> x = np.linspace(0, 3, 20)
        >>> Y = np.exp(-np.outer([0.5, 1.0, 2.0], x))
        >>> found = sg.fit_many(lambda x, a, b: a * np.exp(-b * x), x, Y, [1.0, 1.5], device="cpu")
        >>> found.x[:, 1].round(6)
        array([0.5, 1. , 2. ])
    """
    target = target_of(device, Y, p0)
    kind = dtype or ("float32" if target.is_gpu else "float64")
    curves = Y if isinstance(Y, DeviceArray) else real(Y, "Y", kind)
    if curves.ndim != 2:
        raise InputError(f"Y has shape {curves.shape}: (curves, rows) is needed")
    shared, own, k, flat = _columns(x, curves, sigma, kind)
    starts = _starts(p0, len(curves), kind)

    def residual(p: Any, row: Any) -> Any:
        r = f(row[0] if flat else row[:k], *p) - row[-1]
        return r / row[k] if len(row) == k + 2 else r

    memory = options.pop("memory", False)
    result = minimize_from(
        residual, starts.shape[1], starts, method or LevenbergMarquardt(), steps, tol, bounds,
        shared=shared, own=own, device=target, dtype=kind, memory=memory or covariance, **options,
    )  # fmt: skip
    if covariance:
        result.cov = _covariances(result, curves.shape[1], absolute_sigma)
        if not memory:
            del result["memory"]
    return result


def _starts(p0: Any, count: int, dtype: str) -> Any:
    """A start for each of the curves."""
    if isinstance(p0, DeviceArray):
        return p0
    starts = real_matrix(p0, "p0", np.shape(p0)[-1] if np.ndim(p0) else 1, dtype)
    if len(starts) not in (1, count):
        raise InputError(f"p0 has shape {np.shape(p0)}: (n,) or ({count}, n) is needed")
    return np.broadcast_to(starts, (count, starts.shape[1]))


def _columns(
    x: Any, curves: Any, sigma: Any, dtype: str
) -> tuple[np.ndarray | None, Any, int, bool]:
    """Shared (M, .) and own (S, M, .) columns, k, and whether f takes a plain x.

    Together they are x, a deviation if there is one, and y.
    """
    count, rows = curves.shape
    x = real(x, "x", dtype)
    if x.ndim not in (1, 2, 3) or x.shape[-1] != rows or (x.ndim == 3 and len(x) != count):
        raise InputError(f"x has shape {x.shape}: (M,), (k, M) or (S, k, M) for Y {curves.shape}")
    flat = x.ndim == 1
    x = np.atleast_2d(x)
    parts = [np.swapaxes(x, -2, -1), *_deviations(sigma, curves, dtype), _column(curves)]
    shared = [p for p in parts if p.ndim == 2]
    if len(shared) == 2 or (shared and x.ndim == 2):  # in a row, shared columns come first
        own = [p for p in parts if p.ndim == 3]
    elif isinstance(curves, DeviceArray):
        raise InputError("x or sigma of each curve, with Y on a device: use Y.numpy()")
    else:
        shared, own = [], [np.broadcast_to(p, (count, *p.shape[-2:])) for p in parts]
    both = np.concatenate(shared, axis=1) if shared else None
    alone = own[0] if len(own) == 1 else np.concatenate(own, axis=2)
    return both, alone, x.shape[-2], flat


def _column(curves: Any) -> Any:
    """The curves (S, M, 1)."""
    return curves.reshape(*curves.shape, 1)


def _deviations(sigma: Any, curves: Any, dtype: str) -> list[np.ndarray]:
    """sigma as a column (M, 1), or (S, M, 1) where every curve has its own; none if not given."""
    if sigma is None:
        return []
    found = real(sigma, "sigma", dtype)
    if found.shape not in ((), curves.shape[1:], curves.shape):
        raise InputError(f"sigma has shape {found.shape}: a number, (M,) or (S, M) is needed")
    return [np.broadcast_to(found, curves.shape[-max(found.ndim, 1) :])[..., None]]


def _covariances(result: Any, rows: int, absolute: bool) -> np.ndarray:
    """(JᵀJ)⁻¹ of each fit, from what the method kept; infinite where it is singular."""
    n = result.x.shape[1]
    half = next(m for m in result.memory if m.shape[1:] == (n * (n + 1) // 2,))
    matrices = np.zeros((len(half), n, n))
    lower = np.tril_indices(n)
    matrices[:, lower[0], lower[1]] = matrices[:, lower[1], lower[0]] = half
    units = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    units = np.where(units > 0, units, 1.0)
    scaled = matrices / (units[:, :, None] * units[:, None, :])
    good = np.linalg.cond(scaled) < 1.0 / (n * np.finfo(half.dtype).eps)
    cov = np.full(matrices.shape, np.inf)
    inverse = np.linalg.inv(scaled[good]) / (units[good][:, :, None] * units[good][:, None, :])
    factor = (
        np.ones(len(inverse)) if absolute else 2.0 * np.asarray(result.fun)[good] / max(rows - n, 1)
    )
    cov[good] = inverse * factor[:, None, None]
    return cov
