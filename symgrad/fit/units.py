"""Curves whose squares are beyond the range, or small beside 1: fitted again in their own units."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import PrecisionWarning
from symgrad.expr.tracers.tree import tree_of
from symgrad.optimize.arguments import bounds_of
from symgrad.optimize.result import Messages, scipy_optimize
from symgrad.values.dtypes import EPSILON, LARGEST, SMALLEST

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
