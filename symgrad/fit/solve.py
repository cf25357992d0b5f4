"""Fits of models at rows of data: the minimum, whether it is one, and its covariance.

Least squares in double precision on the host, careful where problems are hard: Levenberg and
Marquardt's method on the triangle of a QR decomposition, which keeps all digits that the normal
equations lose; other dampings and scalings if the first end is no minimum; Gauss-Newton steps at
the end, until rounding is all that is left of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, warn
from symgrad.fit import dense
from symgrad.fit.data_in_blocks import RowsInBlocks
from symgrad.fit.model import RANGES, Rows
from symgrad.optimize.curvature import Setting, Slopes, settle
from symgrad.optimize.point import TINY, Box, Frame, Point, offset
from symgrad.optimize.result import (
    ENDED_BY_USER,
    MESSAGES,
    FitError,
    optimize_result,
    scipy_optimize,
)
from symgrad.report.progress import Report
from symgrad.values.dtypes import EPSILON

Measure = Callable[[np.ndarray], Point]

CONVERGED_PART: Final = 1e-7
"""The part of the residuals' length that a step could still remove, at a minimum."""

LEAST_RELATIVE_STEP: Final = 1e-15
"""A change of parameters, relative to them, that is none."""


@dataclass(frozen=True)
class Strategy:
    """How steps are damped at first, and whether scales are those of the present point alone."""

    damping: float
    local: bool
    projected: bool = False
    """Whether parameters that the model is linear in are set to the best for all others."""


STRATEGIES: Final = (
    Strategy(1e-3, local=False),
    Strategy(1e-3, local=True, projected=True),
    Strategy(1e-10, local=True),
    Strategy(1e2, local=False),
    Strategy(1e2, local=True, projected=True),
)


def solved(point: Point, box: Box) -> bool:
    """Whether a point is a minimum, and no degenerate one: parameters matter there."""
    return offset(point, box) <= CONVERGED_PART and point.condition < 1e13


def minimum(
    measure: Measure, start: Point, box: Box, limit: int, linear: Callable[[], Sequence[int]]
) -> Point:
    """The best point that the strategies lead to; the first that is a clear minimum ends them.

    ``linear`` tells, where the first strategy fails, which parameters the model is linear in, all
    together.
    """
    best = start
    for strategy in STRATEGIES:
        chosen = linear() if strategy.projected else ()
        if strategy.projected and not chosen:
            continue
        seen = projecting(measure, box, chosen) if strategy.projected else measure
        first = seen(start.p) if strategy.projected else start
        end = polish(measure, descend(seen, first, box, strategy, limit), box, limit)
        if solved(end, box):
            return end
        best = min(best, end, key=lambda q: q.cost)
    return best


def projecting(measure: Measure, box: Box, linear: Sequence[int]) -> Measure:
    """A measure that moves to the best of the linear parameters for the others.

    Golub and Pereyra, 1973, "The differentiation of pseudo-inverses and nonlinear least squares
    problems whose variables separate": what is left is far less nonlinear.
    """
    chosen = list(linear)

    def measured(p: np.ndarray) -> Point:
        at = measure(p)
        if not np.isfinite(at.cost):
            return at
        units = at.lengths[chosen]
        change, *_ = np.linalg.lstsq(at.T[:, chosen] / units, -at.z)
        moved = at.p.copy()
        moved[chosen] += change / units
        better = measure(box.clip(moved))
        return better if better.cost < at.cost else at

    return measured


def descend(measure: Measure, at: Point, box: Box, strategy: Strategy, limit: int) -> Point:
    """Levenberg and Marquardt's method with Nielsen's damping; see `LevenbergMarquardt`."""
    damping, growth = strategy.damping, 2.0
    scales = at.lengths
    for _ in range(limit):
        p, promised, size = step(at, box, scales, damping)
        if size <= LEAST_RELATIVE_STEP:
            break
        trial = measure(p)
        quality = (at.cost - trial.cost) / promised if promised > 0 else -1.0
        if trial.cost < at.cost:
            gain, at = (at.cost - trial.cost) / at.cost, trial
            damping = max(damping * max(1 / 3, 1 - (2 * min(quality, 1.0) - 1) ** 3), 1e-20)
            growth = 2.0
            if gain < 1e-14 or (gain < 1e-8 and offset(at, box) < CONVERGED_PART):
                break
            scales = at.lengths if strategy.local else np.maximum(scales, at.lengths)
        else:
            damping, growth = damping * growth, 2.0 * growth
            if damping > 1e30:
                break
    return at


def step(
    at: Point, box: Box, scales: np.ndarray, damping: float
) -> tuple[np.ndarray, float, float]:
    """The parameters after the damped step of the free ones, what it promises, and its size.

    That is the largest change of a parameter, relative to it. Parameters that the step would take
    out of the box go to the bound, and the others are solved again.
    """
    if not box.bounded:
        return dense.step(at.row, scales, damping, at.p)
    if box.around(at.p):
        result = dense.step(at.row, scales, damping, at.p)
        if box.around(result[0]):
            return result
    p = box.clip(at.p + _step_to_bounds(at, box, scales, damping))
    h = p - at.p
    left = np.dot(at.T, h) + at.z
    promised = float(np.dot(at.z, at.z) - np.dot(left, left))
    return p, promised, float(np.max(np.abs(h) / np.maximum(np.abs(at.p), TINY), initial=0.0))


def _step_to_bounds(at: Point, box: Box, scales: np.ndarray, damping: float) -> np.ndarray:
    free, h = box.free(at), np.zeros(len(at.p))
    while free.any():
        part = Frame.of(at.T[:, free], scales[free])
        h[free] = part.step(at.z + np.dot(at.T[:, ~free], h[~free]), damping)
        moved = box.clip(at.p + h)
        over = free & (moved != at.p + h)
        if not over.any():
            break
        h[over] = moved[over] - at.p[over]
        free &= ~over
    return h


def polish(measure: Measure, at: Point, box: Box, limit: int) -> Point:
    """Gauss-Newton steps while they shrink the offset; the loss itself has too few digits left."""
    now = offset(at, box)
    for _ in range(min(30, limit)):
        if now == 0.0 or at.condition > 1e15:
            break
        p, _, size = step(at, box, at.lengths, 0.0)
        if size <= LEAST_RELATIVE_STEP:
            break
        trial = measure(p)
        after = offset(trial, box) if np.isfinite(trial.cost) else np.inf
        if not (after < now and trial.cost <= at.cost * (1 + 1e-9)):
            break
        at, now = trial, after
    return at


def averaged(measure: Measure, at: Point, box: Box, limit: int) -> Point:
    """The mean of Gauss-Newton steps around a minimum, where evaluations are rounded to float32.

    Each step lands where the rounding errors of its evaluation have it; they nearly cancel. A
    minimum that is as clear as float64's needs none.
    """
    current, seen = at, list[np.ndarray]()
    if at.condition > 1e7 or offset(at, box) <= CONVERGED_PART:
        return at
    for _ in range(min(18, limit)):
        current = measure(step(current, box, current.lengths, 0.0)[0])
        if not current.cost <= 1.01 * at.cost:
            return at
        seen.append(current.p)
    return measure(np.mean(seen[2:], axis=0)) if len(seen) > 2 else at


Measured = Rows | RowsInBlocks
"""A model at the rows it is fitted to."""

Telling = Callable[[Measure, float], Measure]
"""Turns evaluations, whose residuals have a unit, into those that are reported."""

TOLERANCE: Final = {"float64": 1e-6, "float32x2": 1e-6, "float32": 3e-2}
"""The relative offset from which an end is no minimum."""

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
            f"the largest of ydata is not between {least:.1e} and {most:.1e}, the range of "
            f'{rows.dtype}: use dtype="float64", or fit ydata in other units'
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
    """The end after Newton's method, and whether that is a minimum."""
    sizes = np.maximum(np.abs(end.p), np.abs(start))
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    units = np.ldexp(1.0, np.frexp(sizes)[1])  # in which slopes have squares within the range

    def measured(points: np.ndarray, _: np.ndarray) -> Slopes:
        seen = [at(p * units) for p in points]
        slopes = [one.T * units for one in seen]
        diagonal = np.array([np.sum(T * T, axis=0) for T in slopes])
        gradient = np.array([np.dot(one.z, T) for one, T in zip(seen, slopes, strict=True)])
        return Slopes(0.5 * np.array([one.cost for one in seen]), gradient, diagonal)

    eps = EPSILON[rows.dtype]
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
    if left <= TOLERANCE[rows.dtype]:
        return True
    # residuals as small as the rounding of the model have no direction, nor have those that the
    # rounding of the parameters makes, as of b in x - b: they are float64's, or pairs
    noise = EPSILON[rows.dtype] * rows.length()
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
    """The result of an end that is no minimum."""
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
        """Evaluations that are reported."""

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
    """Evaluations that are not reported."""
    return measure
