"""What is known of a least-squares problem at some parameters, by singular values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

LEAST_SINGULAR_VALUE: Final = 1e-14
"""Singular values below this part of the largest are rounding errors."""

TINY: Final = 1e-300


@dataclass(frozen=True, eq=False)
class Frame:
    """The singular values of a triangle whose columns have been divided by ``scales``."""

    scales: np.ndarray
    left: np.ndarray
    values: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, T: np.ndarray, scales: np.ndarray) -> Frame:
        """The frame of the columns of T (n, k)."""
        return cls(scales, *np.linalg.svd(T / scales, full_matrices=False))

    def step(self, z: np.ndarray, damping: float) -> np.ndarray:
        """The h (k,) for which |T h + z|² + damping |scales h|² is least."""
        squares = self.values * self.values
        gains = self.values / np.maximum(squares + damping, TINY)
        return np.dot(np.dot(z, self.left) * -gains, self.right) / self.scales

    def spanned(self, z: np.ndarray) -> float:
        """The length of the part of z that the columns span."""
        known = self.values > LEAST_SINGULAR_VALUE * self.values[0]
        part = np.dot(z, self.left)[known]
        return float(np.sqrt(np.dot(part, part)))


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters with what is known there: ``T`` (n, n) with TᵀT = JᵀJ, and Tᵀz = Jᵀr.

    ``cost`` is the sum of squared residuals r; infinite where it, or a derivative, is not finite.
    """

    p: np.ndarray
    cost: float
    T: np.ndarray
    z: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of the Jacobian's columns, 1 for those that vanish."""
        found = np.sqrt(np.add.reduce(self.T * self.T))
        return found if found.all() else np.where(found > 0.0, found, 1.0)

    @cached_property
    def frame(self) -> Frame:
        """The frame of the Jacobian with columns of length 1."""
        return Frame.of(self.T, self.lengths)

    def widened(self, scales: np.ndarray) -> Frame:
        """The frame of the Jacobian with columns of length 1, or less where scales are larger."""
        return Frame.of(self.T, np.maximum(scales, self.lengths))

    @cached_property
    def condition(self) -> float:
        """The condition number of the Jacobian with columns of length 1."""
        if not self.T.any(axis=0).all():
            return np.inf
        values = self.frame.values
        return float(values[0] / values[-1]) if values[-1] > 0.0 else np.inf


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds on the parameters."""

    low: np.ndarray
    high: np.ndarray

    @cached_property
    def bounded(self) -> bool:
        """Whether there is any bound."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def around(self, p: np.ndarray) -> bool:
        """Whether no parameter is at a bound, or beyond."""
        return not self.bounded or bool(((p > self.low) & (p < self.high)).all())

    def free(self, point: Point) -> np.ndarray:
        """Which parameters have no active bound."""
        gradient = np.dot(point.z, point.T)
        down, up = (point.p <= self.low) & (gradient > 0), (point.p >= self.high) & (gradient < 0)
        return ~(down | up)

    def clip(self, p: np.ndarray) -> np.ndarray:
        """The nearest parameters within."""
        return np.minimum(np.maximum(p, self.low), self.high) if self.bounded else p


def offset(point: Point, box: Box) -> float:
    """The length of the residuals' part that the free parameters span, relative to them.

    Bates and Watts, 1981, "A relative offset orthogonality convergence criterion for nonlinear
    least squares".
    """
    if point.cost == 0.0:
        return 0.0
    if box.around(point.p):
        return point.frame.spanned(point.z) / point.cost**0.5
    free = box.free(point)
    if not free.any():
        return 0.0
    part = Frame.of(point.T[:, free], point.lengths[free])
    return part.spanned(point.z) / point.cost**0.5
