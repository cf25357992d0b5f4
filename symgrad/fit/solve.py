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
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, warn
from symgrad.fit.data_form import RowsInBlocks
from symgrad.fit.dense import Descent, Strategy, at_end, gauss_newton
from symgrad.fit.model import RANGES, Rows
from symgrad.kernel.skeletons.descent import CONVERGED_PART
from symgrad.optimize.curvature import Setting, Slopes, settle
from symgrad.optimize.result import (
    ENDED_BY_USER,
    MESSAGES,
    Box,
    FitError,
    Point,
    optimize_result,
    scipy_optimize,
)
from symgrad.report.progress import Report
from symgrad.values.arrays import EPSILON

Measure = Callable[[np.ndarray], Point]


STRATEGIES: Final = (
    Strategy(1e-3, local=False),
    Strategy(1e-3, local=True, projected=True),
    Strategy(1e-10, local=True),
    Strategy(1e2, local=False),
    Strategy(1e2, local=True, projected=True),
)


def solved(point: Point) -> bool:
    """Whether an end is a minimum, and no degenerate one: parameters matter there."""
    return point.offset <= CONVERGED_PART and point.condition < 1e13


Way = Callable[[Point, Box, Strategy, int], Point]
"""How a descent goes from a point to the best one, with its offset, in so many evaluations."""


def descended(measure: Measure, start: Point, box: Box, strategy: Strategy, limit: int) -> Point:
    """The `Way` that evaluates a model time and again: see `descent_program`."""
    descent = Descent(len(start.p))
    going = descent.begin(start, box, strategy, limit)
    while going:
        going = descent.advance(measure(descent.p.copy()))
    return descent.end


def minimum(
    measure: Measure,
    way: Way,
    start: Point,
    box: Box,
    limit: int,
    linear: Callable[[], Sequence[int]],
) -> Point:
    """The best point that the strategies lead to; the first that is a clear minimum ends them.

    ``linear`` tells, where the first strategy fails, which parameters the model is linear in, all
    together.
    """
    ends = list[Point]()
    for strategy in STRATEGIES:
        chosen = linear() if strategy.projected else ()
        if strategy.projected and not chosen:
            continue
        if strategy.projected:
            seen = projecting(measure, box, chosen)
            end = descended(seen, seen(start.p), box, strategy, limit)
        else:
            end = way(start, box, strategy, limit)
        if solved(end):
            return end
        ends.append(end)
    return min(ends, key=lambda end: end.cost)


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


def averaged(measure: Measure, at: Point, box: Box, limit: int) -> Point:
    """The mean of Gauss-Newton steps around a minimum, where evaluations are rounded to float32.

    Each step lands where the rounding errors of its evaluation have it; they nearly cancel. A
    minimum that is as clear as float64's needs none.
    """
    current, seen = at, list[np.ndarray]()
    if at.condition > 1e7 or at.offset <= CONVERGED_PART:
        return at
    for _ in range(min(18, limit)):
        current = measure(gauss_newton(current, box))
        if not current.cost <= 1.01 * at.cost:
            return at
        seen.append(current.p)
    return at_end(measure(np.mean(seen[2:], axis=0)), box) if len(seen) > 2 else at


Measured = Rows | RowsInBlocks
"""A model at the rows it is fitted to."""

Telling = Callable[[Measure, float], Measure] | None
"""Turns evaluations, whose residuals have a unit, into those that are reported, if they are."""

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
            if solved(end) and not np.array_equal(end.p, p):
                return Fitted(rows, end)
            at, way = _evaluations(rows, told)
            lower, is_minimum = _settled(rows, at, end, p, box, limit)
            if is_minimum or lower.cost > (1.0 - LEAST_GAIN) * end.cost:
                end = lower
                break
            end = minimum(at, way, lower, box, limit, rows.linear)
        if not (is_minimum or _is_minimum(end, rows, box)):
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
    settled_end = at_end(at(box.clip(settled.x[0] * units)), box) if moved else end
    return settled_end, bool(settled.minimal[0])


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
        clear = end.offset <= TOLERANCE["float32"] and end.condition < 1e7
    return end.p if clear else p


def _evaluations(rows: Measured, told: Telling) -> tuple[Measure, Way]:
    """The model at parameters, and the way that a descent takes: in machine code if it can."""
    at = told(rows.at, rows.unit) if told else rows.at
    if isinstance(rows, Rows) and rows.bound and not told:
        return at, rows.descended
    return at, partial(descended, at)


def _descended(rows: Measured, p: np.ndarray, box: Box, limit: int, told: Telling) -> Point:
    """Where first derivatives lead to."""
    at, way = _evaluations(rows, told)
    if rows.many:
        quick = told(rows.quick, rows.unit) if told else rows.quick
        p = minimum(quick, partial(descended, quick), quick(p), box, limit, rows.linear).p
    start = at(p)
    if not math.isfinite(start.cost):
        start = at(_approached(rows, start, box, limit))
    end = minimum(at, way, start, box, limit, rows.linear)
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
        way = partial(descended, coarse.at)
        p = minimum(coarse.at, way, at, box, limit, coarse.linear).p
        if math.isfinite(rows.at(p).cost):
            return p
    raise FitError(
        f"the model or a derivative of it is not finite at the start, {start.p.tolist()}: give "
        "another p0",
        _result(start, rows.unit, rows.calls, -2),
    )


def _is_minimum(end: Point, rows: Measured, box: Box) -> bool:
    """Whether a step would remove next to nothing of the residuals, or no more than rounding.

    Columns of the Jacobian that are rounding themselves, as that of a parameter which cancels, do
    not count: changes of 1, or of all of it, are none of the model.
    """
    model = 100.0 * EPSILON[rows.dtype] * rows.length()
    idle = end.lengths * np.maximum(np.abs(end.p), 1.0) <= model
    if idle.any():
        used = np.where(idle, 0.0, end.T)
        end = at_end(Point.of(end.p, end.cost, used, end.z), box)
    if end.offset <= TOLERANCE[rows.dtype]:
        return True
    # residuals as small as the rounding of the model have no direction, nor have those that the
    # rounding of the parameters makes, as of b in x - b: they are float64's, or pairs
    parameters = 100.0 * np.finfo(float).eps * float(np.linalg.norm(end.lengths * end.p))
    return end.offset * np.sqrt(end.cost) <= model + parameters


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
