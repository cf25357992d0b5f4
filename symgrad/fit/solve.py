"""Fits of models at rows of data: the minimum, whether it is one, and its covariance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, warn
from symgrad.fit.data_in_blocks import RowsInBlocks
from symgrad.fit.levenberg import Measure, averaged, minimum, solved
from symgrad.fit.model import RANGES, Rows
from symgrad.optimize.curvature import Setting, Slopes, settle
from symgrad.optimize.point import Box, Point, offset
from symgrad.optimize.result import (
    ENDED_BY_USER,
    MESSAGES,
    FitError,
    optimize_result,
    scipy_optimize,
)
from symgrad.report.progress import Report

Measured = Rows | RowsInBlocks
"""A model at the rows it is fitted to."""

Telling = Callable[[Measure, float], Measure]
"""What makes of evaluations, whose residuals have a unit, those that are reported."""

TOLERANCE: Final = {"float64": 1e-6, "float32": 3e-2}
"""The relative offset from which an end is no minimum; pairs of float32 have float64's."""

MOST_DESCENTS: Final = 4
"""How often Levenberg and Marquardt's method goes on from where Newton's has led."""

LEAST_GAIN: Final = 1e-6
"""The part of the cost that Newton's method has removed, at least, where it is worth going on."""

UNDETERMINED: Final = "Covariance of the parameters could not be estimated"

BEYOND_RANGE: Final = (
    "variances of the parameters are beyond the range of float64, and 0 or infinite here: fit "
    "ydata, and the parameters that go with it, in larger or smaller units"
)

PLAIN: Final = 2.0**-300, 2.0**300
"""Sizes of residuals whose squares, and those of their rounding errors, are within the range."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A minimum: its triangle and its cost are those of rows in their unit."""

    rows: Measured
    end: Point

    @property
    def residuals(self) -> np.ndarray:
        """The residuals (M,), divided by their deviations."""
        return self.rows.residuals(self.end.p) * self.rows.unit

    def covariance(self, absolute: bool) -> np.ndarray:
        """The covariance of the parameters, (JᵀJ)⁻¹, scaled by the residuals unless ``absolute``.

        It is infinite, which warns, where parameters are not determined, and where there are no
        more rows than parameters, unless it is absolute. Where it is beyond the range, it is
        infinite or 0, and that warns too.
        """
        pcov, errors = _covariance(self.rows, self.end, absolute)
        if np.isfinite(pcov).all() and pcov.diagonal().all():
            return pcov
        if not np.isfinite(errors()).all():
            warn(UNDETERMINED, scipy_optimize().OptimizeWarning)
        elif not np.isfinite(pcov).all() or (errors()[pcov.diagonal() == 0.0] > 0.0).any():
            warn(BEYOND_RANGE, scipy_optimize().OptimizeWarning)
        return pcov


def fit(rows: Measured, p: np.ndarray, box: Box, limit: int, told: Telling) -> Fitted:
    """The minimum that Levenberg and Marquardt's method leads to from p, within the box.

    Raises:
        FitError: if there is none, or the model is not finite at p. InputError: for data that are
        beyond the range of the dtype.
    """
    if not rows.in_range():
        least, most = RANGES[rows.dtype]
        raise InputError(
            f"the largest of ydata is not between {least:.1e} and {most:.1e}, which is what "
            f'{rows.dtype} has: use dtype="float64", or fit ydata in other units'
        )
    rows.prepare(p)
    with np.errstate(all="ignore"):
        rows = rows.in_unit(_unit(rows.largest()))
        end, is_minimum = _descended(rows, p, box, limit, told), False
        for _ in range(MOST_DESCENTS):
            if solved(end, box) and not np.array_equal(end.p, p):
                return Fitted(rows, end)
            at = told(rows.at, rows.unit)
            lower, is_minimum = _settled(rows, at, end, p, box, limit)
            if is_minimum or lower.cost > (1.0 - LEAST_GAIN) * end.cost:
                end = lower
                break
            end = minimum(at, lower, box, limit, rows.linear)
        if not (is_minimum or _is_minimum(end, box, rows)):
            raise _not_found(end, box, rows, limit)
    return Fitted(rows, end)


def _unit(size: float) -> float:
    """The power of two to divide residuals of a size by: 1 where their squares are plain."""
    least, most = PLAIN
    if least < size < most or size == 0.0 or not math.isfinite(size):
        return 1.0
    return math.ldexp(1.0, math.frexp(size)[1] - 1)


def _settled(
    rows: Measured, at: Measure, end: Point, start: np.ndarray, box: Box, limit: int
) -> tuple[Point, bool]:
    """What Newton's method makes of an end, and whether that is a minimum."""
    sizes = np.maximum(np.abs(end.p), np.abs(start))
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    units = np.ldexp(1.0, np.frexp(sizes)[1])  # in which slopes have squares within the range

    def measured(points: np.ndarray, _: np.ndarray) -> Slopes:
        seen = [at(p * units) for p in points]
        slopes = [one.T * units for one in seen]
        diagonal = np.array([np.sum(T * T, axis=0) for T in slopes])
        gradient = np.array([np.dot(one.z, T) for one, T in zip(seen, slopes, strict=True)])
        return Slopes(0.5 * np.array([one.cost for one in seen]), gradient, diagonal)

    eps = float(np.finfo(rows.dtype).eps)
    setting = Setting(measured, box.low / units, box.high / units, (sizes / units)[None], eps)
    settled = settle(setting, (end.p / units)[None], limit // (2 * len(sizes) + 1))
    moved = settled.loss[0] < 0.5 * end.cost
    return at(box.clip(settled.x[0] * units)) if moved else end, bool(settled.minimal[0])


def near(rows: Measured, p: np.ndarray, box: Box, limit: int, told: Telling) -> np.ndarray:
    """The minimum in float32; where float32 leads to no clear one, the start as it was."""
    if not rows.in_range():
        return p
    rows.prepare(p)
    with np.errstate(all="ignore"):
        try:
            end = _descended(rows, p, box, limit, told)
        except FitError as error:
            if isinstance(error.__cause__, StopIteration):
                raise
            return p
        clear = offset(end, box) <= TOLERANCE["float32"] and end.condition < 1e7
    return end.p if clear else p


def _descended(rows: Measured, p: np.ndarray, box: Box, limit: int, told: Telling) -> Point:
    """Where first derivatives lead to."""
    at, quick = told(rows.at, rows.unit), told(rows.quick, rows.unit)
    if rows.many:
        p = minimum(quick, quick(p), box, limit, rows.linear).p
    start = at(p)
    if not math.isfinite(start.cost):
        start = at(_approached(rows, start, box, limit))
    end = minimum(at, start, box, limit, rows.linear)
    return averaged(at, end, box, limit) if rows.dtype == "float32" else end


def _approached(rows: Measured, start: Point, box: Box, limit: int) -> np.ndarray:
    """Parameters at which squares are within the range: those of the residuals at p are beyond.

    Raises:
        FitError: if it is the model, or a derivative of it, that is not finite.
    """
    p = start.p
    for _ in range(MOST_DESCENTS):
        coarse = rows.in_unit(rows.unit * _unit(rows.largest(p)))
        at = coarse.at(p)
        if coarse is rows or not math.isfinite(at.cost):
            break
        p = minimum(coarse.at, at, box, limit, coarse.linear).p
        if math.isfinite(rows.at(p).cost):
            return p
    raise FitError(
        f"the model or a derivative of it is not finite at the start, {start.p.tolist()}: give "
        "another p0",
        _result(start, rows.unit, rows.calls, -2),
    )


def _is_minimum(end: Point, box: Box, rows: Measured) -> bool:
    """Whether a step would remove next to nothing of the residuals, or no more than rounding."""
    left = offset(end, box)
    if left <= TOLERANCE["float64" if rows.paired else rows.dtype]:
        return True
    # residuals as small as the rounding of the model have no direction, nor have those that the
    # rounding of the parameters makes, as of b in x - b: they are float64's, or pairs
    noise = np.finfo(rows.dtype).eps * rows.length()
    noise += np.finfo(float).eps * float(np.linalg.norm(end.lengths * end.p))
    return left * np.sqrt(end.cost) <= 100.0 * noise


def _not_found(end: Point, box: Box, rows: Measured, limit: int) -> FitError:
    ran_out = rows.calls >= limit
    more = f", or raise maxfev, which is {limit}" if ran_out else ""
    message = (
        f"Optimal parameters not found: the fit did not converge in {rows.calls} evaluations of "
        f"the model. The best parameters so far are {end.p.tolist()}: start from a p0 nearer to "
        f"the solution, set bounds{more}"
    )
    result = _result(end, rows.unit, rows.calls, 0 if ran_out else -1, message)
    result.update(
        fun=Fitted(rows, end).residuals,
        pcov=_covariance(rows, end, absolute=False)[0],
        optimality=float(np.abs(result.grad[box.free(end)]).max(initial=0.0)),
    )
    return FitError(message, result)


def _result(end: Point, unit: float, calls: int, status: int, message: str = "") -> Any:
    """What is known of an end that is no minimum."""
    n = len(end.p)
    return optimize_result(
        x=end.p, cost=0.5 * end.cost * unit * unit, grad=(end.z * unit) @ (end.T * unit),
        nfev=calls, status=status, success=False, message=message or MESSAGES[status],
        pcov=np.full((n, n), np.inf),
    )  # fmt: skip


def _covariance(
    rows: Measured, end: Point, absolute: bool
) -> tuple[np.ndarray, Callable[[], np.ndarray]]:
    """The covariance of the parameters (n, n), and their standard errors (n,); see `Fitted`."""
    n, left = len(end.p), rows.counted - len(end.p)
    noise = max(rows.counted, n) * np.finfo(float).eps
    if end.condition * noise >= 1.0 or (not absolute and left <= 0):
        return np.full((n, n), np.inf), lambda: np.full(n, np.inf)
    deviation = 1.0 / rows.unit if absolute else (end.cost / left) ** 0.5
    inverse = np.linalg.inv(end.T / end.lengths)
    each = deviation / end.lengths
    with np.errstate(over="ignore", under="ignore"):
        parts = inverse * each[:, None]
        return parts @ parts.T, lambda: np.linalg.norm(inverse, axis=1) * each


class Told:
    """Evaluations that are reported, with the least sum of squares."""

    def __init__(self, report: Report) -> None:
        self._report, self._count = report, 0
        self._best: Point | None = None

    def of(self, measure: Measure, unit: float) -> Measure:
        """The same evaluations, which are reported."""

        def told(p: np.ndarray) -> Point:
            at = measure(p)
            self._count += 1
            if self._best is None or at.cost < self._best.cost:
                self._best = at
            best = self._best
            try:
                self._report(self._count, lambda: best.cost * unit * unit)
            except StopIteration as error:
                raise FitError(
                    f"the fit was ended by progress= after {self._count} evaluations; the best so "
                    f"far is {best.p.tolist()}",
                    _result(best, unit, self._count, ENDED_BY_USER),
                ) from error
            return at

        return told


def untold(measure: Measure, _: float) -> Measure:
    """The same evaluations, of which nobody asked."""
    return measure
