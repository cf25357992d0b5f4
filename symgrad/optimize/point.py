"""A least-squares problem at some parameters, and the bounds on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from symgrad.kernel.skeletons.descent import CLEAR


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters with what is known there, in a row (n (n + 2) + 2,).

    That is ``T`` (n, n) with TᵀT = JᵀJ, and ``z`` (n,) with Tᵀz = Jᵀr; the lengths (n,) of the
    columns of J, 1 for those that vanish; ``cost``, the sum of squared residuals r, which is not
    finite where it, or a derivative, is not; and ``inverse``, the Frobenius norm of the inverse of
    T with columns of length 1, which is not finite where there is none.

    ``offset`` is the length of the residuals' part that the free parameters span, relative to them,
    where it is known.
    """

    p: np.ndarray
    row: np.ndarray
    offset: float = np.nan

    @classmethod
    def of(cls, p: np.ndarray, cost: float, T: np.ndarray, z: np.ndarray) -> Point:
        """The point of a triangle."""
        most = np.maximum.reduce(np.abs(T))
        units = np.where(most > 0.0, most, 1.0)  # squares may be beyond the range
        parts = T / units
        lengths = units * np.sqrt(np.add.reduce(parts * parts))
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        try:
            inverse = float(np.linalg.norm(np.linalg.inv(T / lengths)))
        except np.linalg.LinAlgError:
            inverse = np.inf
        return cls(p, np.concatenate([T.ravel(), z, lengths, [cost, inverse]]))

    @classmethod
    def nowhere(cls, p: np.ndarray) -> Point:
        """A point at which something is not finite."""
        row = np.zeros(len(p) * (len(p) + 2) + 2)
        row[-2:] = np.inf
        return cls(p, row)

    @property
    def T(self) -> np.ndarray:
        """The triangle (n, n)."""
        n = len(self.p)
        return self.row[: n * n].reshape(n, n)

    @property
    def z(self) -> np.ndarray:
        """The residuals (n,) as the triangle's columns see them."""
        n = len(self.p)
        return self.row[n * n : n * (n + 1)]

    @property
    def lengths(self) -> np.ndarray:
        """The lengths (n,) of the Jacobian's columns, 1 for those that vanish."""
        n = len(self.p)
        return self.row[n * (n + 1) : n * (n + 2)]

    @property
    def cost(self) -> float:
        """The sum of squared residuals."""
        return self.row.item(-2)

    @cached_property
    def condition(self) -> float:
        """The condition of the Jacobian with columns of length 1, or a bound if that is small."""
        bound = self.row.item(-1) * len(self.p) ** 0.5
        if bound < CLEAR:
            return bound
        if not self.T.any(axis=0).all():
            return np.inf
        return float(np.linalg.cond(self.T / self.lengths))


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds on the parameters."""

    low: np.ndarray
    high: np.ndarray

    @cached_property
    def bounded(self) -> bool:
        """Whether there is any bound."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def free(self, point: Point) -> np.ndarray:
        """Which parameters have no active bound."""
        gradient = np.dot(point.z, point.T)
        down, up = (point.p <= self.low) & (gradient > 0), (point.p >= self.high) & (gradient < 0)
        return ~(down | up)

    def clip(self, p: np.ndarray) -> np.ndarray:
        """The nearest parameters within."""
        return np.minimum(np.maximum(p, self.low), self.high) if self.bounded else p
