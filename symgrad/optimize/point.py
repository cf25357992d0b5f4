"""A least-squares problem at some parameters, by singular values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

LEAST_SINGULAR_VALUE: Final = 1e-14
"""Singular values below this part of the largest are rounding errors."""

TINY: Final = 1e-300

CLEAR: Final = 1e6
"""The condition up to which a bound on it, which is at most n times too large, is enough."""


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

    @classmethod
    def of_row(cls, p: np.ndarray, row: np.ndarray) -> Point:
        """The point of what `symgrad.fit.dense.Triangle` computes."""
        n = len(p)
        square, end = n * n, n * (n + 1)
        *_, cost, inverse = row[end:].tolist()
        point, lengths = cls.__new__(cls), row[end : end + n]
        vars(point).update(
            p=p, cost=cost, T=row[:square].reshape(n, n), z=row[square:end], row=row[:end],
            lengths=lengths, inverse=inverse,
        )  # fmt: skip
        return point

    @cached_property
    def row(self) -> np.ndarray:
        """T and z in a row."""
        return np.concatenate([self.T.ravel(), self.z])

    @cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of the Jacobian's columns, 1 for those that vanish."""
        most = np.maximum.reduce(np.abs(self.T))
        units = np.where(most > 0.0, most, 1.0)  # squares may be beyond the range
        parts = self.T / units
        lengths = units * np.sqrt(np.add.reduce(parts * parts))
        return lengths if lengths.all() else np.where(lengths > 0.0, lengths, 1.0)

    @cached_property
    def inverse(self) -> float:
        """The Frobenius norm of the inverse of T with columns of length 1; infinite without one."""
        try:
            return float(np.linalg.norm(np.linalg.inv(self.T / self.lengths)))
        except np.linalg.LinAlgError:
            return np.inf

    @property
    def is_clear(self) -> bool:
        """Whether the Jacobian with columns of length 1 is well conditioned."""
        return self.inverse * len(self.p) ** 0.5 < CLEAR

    @cached_property
    def frame(self) -> Frame:
        """The frame of the Jacobian with columns of length 1."""
        return Frame.of(self.T, self.lengths)

    @cached_property
    def condition(self) -> float:
        """The condition of the Jacobian with columns of length 1, or a bound if that is small."""
        if self.is_clear:
            return self.inverse * len(self.p) ** 0.5
        if not self.T.any(axis=0).all():
            return np.inf
        values = self.frame.values
        return float(values[0] / values[-1]) if values[-1] > 0.0 else np.inf

    @property
    def spanned(self) -> float:
        """The length of the residuals' part that the Jacobian's columns span."""
        return float(np.dot(self.z, self.z)) ** 0.5 if self.is_clear else self.frame.spanned(self.z)


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
        return point.spanned / point.cost**0.5
    free = box.free(point)
    if not free.any():
        return 0.0
    part = Frame.of(point.T[:, free], point.lengths[free])
    return part.spanned(point.z) / point.cost**0.5
