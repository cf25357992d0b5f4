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

from symgrad.optimize.rows import Point

Measure = Callable[[np.ndarray], Point]

CONVERGED: Final = 1e-7
"""The part of the residuals' length that a step could still remove, at a minimum."""


@dataclass(frozen=True)
class Box:
    """Bounds on the parameters."""

    low: np.ndarray
    high: np.ndarray

    def free(self, point: Point) -> np.ndarray:
        """Which parameters are not held at a bound by the gradient."""
        gradient = point.T.T @ point.z
        down, up = (point.p <= self.low) & (gradient > 0), (point.p >= self.high) & (gradient < 0)
        return ~(down | up)

    def clip(self, p: np.ndarray) -> np.ndarray:
        """The nearest parameters within."""
        return np.clip(p, self.low, self.high)


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


def offset(point: Point, box: Box) -> float:
    """The length of the residuals' part that the free parameters span, relative to them.

    Bates and Watts, 1981, "A relative offset orthogonality convergence criterion for nonlinear
    least squares".
    """
    if point.cost == 0.0:
        return 0.0
    free = box.free(point)
    units = lengths(point.T)
    left, values, _ = np.linalg.svd((point.T / units)[:, free], full_matrices=False)
    known = values > 1e-14 * values.max(initial=1e-300)
    return float(np.linalg.norm(left[:, known].T @ point.z) / np.sqrt(point.cost))


def lengths(T: np.ndarray) -> np.ndarray:
    """The lengths of the Jacobian's columns, 1 for those that vanish."""
    found = np.linalg.norm(T, axis=0)
    return np.where(found > 0, found, 1.0)


def condition(point: Point) -> float:
    """The condition number of the Jacobian with columns of length 1."""
    if not np.linalg.norm(point.T, axis=0).all():
        return np.inf
    values = np.linalg.svd(point.T / lengths(point.T), compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else np.inf


def solved(point: Point, box: Box) -> bool:
    """Whether a point is a minimum, and no degenerate one: parameters matter there."""
    return offset(point, box) <= CONVERGED and condition(point) < 1e13


def minimum(
    measure: Measure, start: Point, box: Box, limit: int, linear: Sequence[int] = ()
) -> Point:
    """The best point that the strategies lead to; the first that is a clear minimum ends them.

    ``linear`` are parameters that the model is linear in, all together.
    """
    best = start
    for strategy in STRATEGIES:
        if strategy.projected and not linear:
            continue
        seen = projecting(measure, box, linear) if strategy.projected else measure
        first = seen(start.p) if strategy.projected else start
        found = polish(measure, descend(seen, first, box, strategy, limit), box, limit)
        if solved(found, box):
            return found
        best = min(best, found, key=lambda q: q.cost)
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
        units = lengths(at.T)[chosen]
        change, *_ = np.linalg.lstsq(at.T[:, chosen] / units, -at.z)
        moved = at.p.copy()
        moved[chosen] += change / units
        better = measure(box.clip(moved))
        return better if better.cost < at.cost else at

    return measured


def descend(measure: Measure, at: Point, box: Box, strategy: Strategy, limit: int) -> Point:
    """Levenberg and Marquardt's method with Nielsen's damping; see `LevenbergMarquardt`."""
    damping, growth = strategy.damping, 2.0
    scales = lengths(at.T)
    for _ in range(limit):
        trial_p = box.clip(at.p + step(at, box, scales, damping))
        h = trial_p - at.p
        if np.all(np.abs(h) <= 1e-15 * np.abs(at.p)):
            break
        promised = at.cost - float(np.sum((at.T @ h + at.z) ** 2)) - (at.cost - at.z @ at.z)
        trial = measure(trial_p)
        quality = (at.cost - trial.cost) / promised if promised > 0 else -1.0
        if trial.cost < at.cost:
            gain, at = (at.cost - trial.cost) / at.cost, trial
            damping = max(damping * max(1 / 3, 1 - (2 * min(float(quality), 1.0) - 1) ** 3), 1e-20)
            growth = 2.0
            scales = lengths(at.T) if strategy.local else np.maximum(scales, lengths(at.T))
            if gain < 1e-14 or (gain < 1e-8 and offset(at, box) < CONVERGED):
                break
        else:
            damping, growth = damping * growth, 2.0 * growth
            if damping > 1e30:
                break
    return at


def step(at: Point, box: Box, scales: np.ndarray, damping: float) -> np.ndarray:
    """The damped step of the free parameters, by a QR decomposition with the damping below T.

    Parameters that it would take out of the box go to the bound, and the others are solved again.
    """
    free, h = box.free(at), np.zeros(len(at.p))
    while free.any():
        n = int(free.sum())
        matrix = np.concatenate([(at.T / scales)[:, free], np.sqrt(damping) * np.eye(n)])
        rest = at.z + at.T[:, ~free] @ h[~free]
        q, r = np.linalg.qr(matrix)
        h[free] = _back(r, q.T @ np.concatenate([-rest, np.zeros(n)])) / scales[free]
        over = free & (box.clip(at.p + h) != at.p + h)
        if not over.any():
            break
        h[over] = box.clip(at.p + h)[over] - at.p[over]
        free &= ~over
    return h


def _back(r: np.ndarray, right: np.ndarray) -> np.ndarray:
    x = np.zeros(len(right))
    for k in reversed(range(len(right))):
        rest = right[k] - r[k, k + 1 :] @ x[k + 1 :]
        x[k] = rest / r[k, k] if r[k, k] != 0 else 0.0
    return x


def polish(measure: Measure, at: Point, box: Box, limit: int) -> Point:
    """Gauss-Newton steps while they shrink the offset; the loss itself has too few digits left."""
    now = offset(at, box)
    for _ in range(min(30, limit)):
        if now == 0.0 or condition(at) > 1e15:
            break
        trial = measure(box.clip(at.p + step(at, box, lengths(at.T), 0.0)))
        after = offset(trial, box) if np.isfinite(trial.cost) else np.inf
        if not (after < now and trial.cost <= at.cost * (1 + 1e-9)):
            break
        at, now = trial, after
    return at


def averaged(measure: Measure, at: Point, box: Box, limit: int) -> Point:
    """The mean of Gauss-Newton steps around a minimum, where evaluations are rounded to float32.

    Each step lands where the rounding errors of its evaluation have it; they nearly cancel.
    """
    here, seen = at, list[np.ndarray]()
    if condition(at) > 1e7:
        return at
    for _ in range(min(18, limit)):
        here = measure(box.clip(here.p + step(here, box, lengths(here.T), 0.0)))
        if not here.cost <= 1.01 * at.cost:
            return at
        seen.append(here.p)
    return measure(np.mean(seen[2:], axis=0)) if len(seen) > 2 else at
