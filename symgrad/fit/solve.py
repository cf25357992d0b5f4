"""Fits of models at rows of data: the minimum, whether it is one, and its covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.errors import warn
from symgrad.fit.data_in_blocks import RowsInBlocks
from symgrad.fit.levenberg import Measure, averaged, minimum, solved
from symgrad.fit.model import Rows
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

Telling = Callable[[Measure], Measure]
"""What makes of evaluations those that are reported."""

TOLERANCE: Final = {"float64": 1e-6, "float32": 3e-2}
"""The relative offset from which an end is no minimum; pairs of float32 have float64's."""

MOST_DESCENTS: Final = 4
"""How often Levenberg and Marquardt's method goes on from where Newton's has led."""

LEAST_GAIN: Final = 1e-6
"""The part of the cost that Newton's method has removed, at least, where it is worth going on."""


def fit(rows: Measured, p: np.ndarray, box: Box, limit: int, told: Telling) -> Point:
    """The minimum that Levenberg and Marquardt's method leads to from p, within the box.

    Raises:
        FitError: if there is none, or the model is not finite at p.
    """
    rows.prepare(p)
    at, is_minimum = told(rows.at), False
    with np.errstate(all="ignore"):
        end = _descended(rows, p, box, limit, told)
        for _ in range(MOST_DESCENTS):
            if solved(end, box) and not np.array_equal(end.p, p):
                return end
            lower, is_minimum = _settled(rows, at, end, p, box, limit)
            if is_minimum or lower.cost > (1.0 - LEAST_GAIN) * end.cost:
                end = lower
                break
            end = minimum(at, lower, box, limit, rows.linear)
        if not (is_minimum or _is_minimum(end, box, rows)):
            raise _not_found(end, box, rows, limit)
    return end


def _settled(
    rows: Measured, at: Measure, end: Point, start: np.ndarray, box: Box, limit: int
) -> tuple[Point, bool]:
    """What Newton's method makes of an end, and whether that is a minimum."""
    sizes = np.maximum(np.abs(end.p), np.abs(start))
    sizes = np.where(sizes > 0.0, sizes, 1.0)

    def measured(points: np.ndarray, _: np.ndarray) -> Slopes:
        seen = [at(p) for p in points]
        diagonal = np.array([np.sum(one.T * one.T, axis=0) for one in seen])
        gradient = np.array([np.dot(one.z, one.T) for one in seen])
        return Slopes(0.5 * np.array([one.cost for one in seen]), gradient, diagonal)

    eps = float(np.finfo(rows.dtype).eps)
    setting = Setting(measured, box.low, box.high, sizes[None], eps)
    found = settle(setting, end.p[None], limit // (2 * len(sizes) + 1))
    moved = found.loss[0] < 0.5 * end.cost
    return at(found.x[0]) if moved else end, bool(found.minimal[0])


def near(rows: Measured, p: np.ndarray, box: Box, limit: int, told: Telling) -> np.ndarray:
    """The minimum in float32; where float32 leads to no clear one, the start as it was."""
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
    at, quick = told(rows.at), told(rows.quick)
    if rows.many:
        p = minimum(quick, quick(p), box, limit, rows.linear).p
    start = at(p)
    if not np.isfinite(start.cost):
        raise FitError(
            f"the model or a derivative of it is not finite at the start, {p.tolist()}: give "
            "another p0",
            _result(start, rows.calls, -2),
        )
    end = minimum(at, start, box, limit, rows.linear)
    return averaged(at, end, box, limit) if rows.dtype == "float32" else end


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
    result = _result(end, rows.calls, 0 if ran_out else -1, message)
    result.update(
        fun=rows.residuals(end.p),
        pcov=_covariance(end, rows.counted, absolute=False),
        optimality=float(np.abs(result.grad[box.free(end)]).max(initial=0.0)),
    )
    return FitError(message, result)


def _result(end: Point, calls: int, status: int, message: str = "") -> Any:
    """What is known of an end that is no minimum."""
    n = len(end.p)
    return optimize_result(
        x=end.p, cost=0.5 * end.cost, grad=end.z @ end.T, nfev=calls, status=status, success=False,
        message=message or MESSAGES[status], pcov=np.full((n, n), np.inf),
    )  # fmt: skip


def covariance(end: Point, rows: int, absolute: bool) -> np.ndarray:
    """The covariance of the parameters, (JᵀJ)⁻¹, scaled by the residuals unless ``absolute``.

    It is infinite, which warns, where parameters are not determined, and where there are no more
    ``rows`` than parameters, unless it is absolute.
    """
    found = _covariance(end, rows, absolute)
    if not np.isfinite(found).all():
        warn(
            "Covariance of the parameters could not be estimated",
            scipy_optimize().OptimizeWarning,
        )
    return found


def _covariance(end: Point, rows: int, absolute: bool) -> np.ndarray:
    n = len(end.p)
    if end.condition * max(rows, n) * np.finfo(float).eps >= 1.0 or (not absolute and rows <= n):
        return np.full((n, n), np.inf)
    inverse = np.linalg.inv(end.T / end.lengths) / end.lengths[:, None]
    pcov = inverse @ inverse.T
    return pcov if absolute else pcov * (end.cost / (rows - n))


class Told:
    """Evaluations that are reported, with the least sum of squares."""

    def __init__(self, report: Report) -> None:
        self._report, self._count = report, 0
        self._best: Point | None = None

    def of(self, measure: Measure) -> Measure:
        """The same evaluations, which are reported."""

        def told(p: np.ndarray) -> Point:
            at = measure(p)
            self._count += 1
            if self._best is None or at.cost < self._best.cost:
                self._best = at
            best = self._best
            try:
                self._report(self._count, lambda: best.cost)
            except StopIteration as error:
                raise FitError(
                    f"the fit was ended by progress= after {self._count} evaluations; the best so "
                    f"far is {best.p.tolist()}",
                    _result(best, self._count, ENDED_BY_USER),
                ) from error
            return at

        return told


def untold(measure: Measure) -> Measure:
    """The same evaluations, of which nobody asked."""
    return measure
