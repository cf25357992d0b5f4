"""Least squares in double precision on the host, careful where problems are hard.

Levenberg and Marquardt's method on the triangle of a QR decomposition, which keeps all digits that
the normal equations lose; other dampings and scalings if the first end is no minimum; Gauss-Newton
steps at the end, until rounding is all that is left of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from symgrad.llvm.dispatch import dense
from symgrad.optimize.point import TINY, Box, Frame, Point, offset

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
