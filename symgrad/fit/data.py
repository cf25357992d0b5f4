"""Data as `curve_fit` takes them: what is checked, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.fit.model import Rows, Shape
from symgrad.optimize.arguments import real
from symgrad.pipeline import DTypeName
from symgrad.targets import DeviceChoice

NanPolicy = Literal["raise", "omit"] | None


@dataclass(frozen=True)
class Refused:
    """The things that data may not hold."""

    check_finite: bool = True
    nan_policy: NanPolicy = None

    def __post_init__(self) -> None:
        if self.nan_policy not in (None, "raise", "omit"):
            raise InputError(f'nan_policy={self.nan_policy!r}: use None, "raise" or "omit"')


@dataclass(frozen=True, eq=False)
class Data:
    """x (k, M), or of another shape, y (M,), what residuals are divided by, and how f takes x."""

    x: np.ndarray
    y: np.ndarray
    scale: np.ndarray | None
    shape: Shape

    @classmethod
    def of(cls, xdata: Any, ydata: Any, sigma: Any, refused: Refused) -> Data:
        """The data, checked, without the rows that are to be left out.

        Raises:
            InputError: for data that do not fit together, or that are not finite.
        """
        x, y, shape = _taken(xdata, ydata, refused.check_finite, refused.nan_policy)
        x, y, scale = _omitted(x, y, _scale(sigma, len(y)), refused.nan_policy, shape)
        return cls(x, y, scale, shape)

    def rows(
        self,
        f: Callable[..., Any],
        n: int,
        mode: Mode,
        device: DeviceChoice,
        dtype: DTypeName,
    ) -> Rows:
        """The model of n parameters at these rows."""
        return Rows(f, self.x, self.y, self.scale, n, self.shape, device, dtype, mode=mode)


def _taken(
    xdata: Any, ydata: Any, check_finite: bool, nan_policy: str | None
) -> tuple[np.ndarray, np.ndarray, Shape]:
    """x as (k, M) if it is that, y as (M,), and how f takes x."""
    x, y = real(xdata, "xdata"), real(ydata, "ydata")
    if y.size == 0:
        raise InputError("`ydata` must not be empty!")
    if y.ndim != 1:
        raise InputError(
            f"xdata has shape {x.shape} and ydata {y.shape}: (M,) or (k, M), and (M,), are needed"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        _require_finite(x, y, check_finite, nan_policy)
    if x.ndim in (1, 2) and x.shape[-1] == len(y):
        return np.atleast_2d(x), y, "flat" if x.ndim == 1 else "columns"
    return x, y, "other"


def _require_finite(
    x: np.ndarray, y: np.ndarray, check_finite: bool, nan_policy: str | None
) -> None:
    """Refuse NaN and infinities, as far as that is asked for; in y they leave nothing to fit."""
    if nan_policy == "raise" and (np.isnan(x).any() or np.isnan(y).any()):
        raise InputError("The input contains nan values: nan_policy='omit' leaves those rows out")
    if (
        nan_policy != "omit"
        and check_finite
        and not (np.isfinite(x).all() and np.isfinite(y).all())
    ):
        raise InputError("array must not contain infs or NaNs; nan_policy='omit' leaves NaN out")
    if not (np.isfinite(y) | (np.isnan(y) & (nan_policy == "omit"))).all():
        raise InputError("ydata holds NaN or infinities; nan_policy='omit' leaves NaN out")


def _scale(sigma: Any, count: int) -> np.ndarray | None:
    """Deviations (M,), or the Cholesky factor (M, M) of a covariance."""
    if sigma is None:
        return None
    deviations = real(sigma, "sigma")
    if np.isnan(deviations).any() or (deviations.ndim < 2 and np.any(deviations == 0.0)):
        raise InputError("sigma holds NaN or 0: deviations are numbers other than 0")
    if deviations.size == 1:
        return np.full(count, deviations.item())
    if deviations.shape == (count,):
        return deviations
    if deviations.shape != (count, count):
        raise InputError("`sigma` has incorrect shape.")
    try:
        return np.linalg.cholesky(deviations)
    except np.linalg.LinAlgError as error:
        raise InputError("`sigma` must be positive definite.") from error


def _omitted(
    x: np.ndarray, y: np.ndarray, scale: np.ndarray | None, nan_policy: str | None, shape: Shape
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The data without rows that hold NaN, if these are to be left out."""
    if nan_policy != "omit":
        return x, y, scale
    rows = 0 if shape == "other" else -1
    if x.ndim == 0 or x.shape[rows] != len(y):
        raise InputError(f"nan_policy='omit' needs rows of xdata, and its shape is {x.shape}")
    keep = ~(np.isnan(np.moveaxis(x, rows, 0).reshape(len(y), -1)).any(axis=1) | np.isnan(y))
    if scale is not None and scale.ndim == 2:
        scale = np.linalg.cholesky((scale @ scale.T)[np.ix_(keep, keep)])
    elif scale is not None:
        scale = scale[keep]
    return np.compress(keep, x, axis=rows), y[keep], scale
