"""Whether sums of squares end at minima, by second derivatives: where JᵀJ alone cannot tell.

Where a column of the Jacobian vanishes at the minimum, as that of ``a**2`` at 0, the residuals lie
along it however short it becomes. Where it vanishes at a maximum there is no slope to leave by.
Second derivatives, differences of exact gradients, tell both; many problems are looked at at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

TINY: Final = 1e-300

MOST_STEPS: Final = 30
"""Steps of Newton's method: where it converges it needs few."""

LEAST_PART: Final = 1e-12
"""The part of the squares that a step could remove from what is no minimum."""

LEAST_ROUNDINGS: Final = 8.0
"""How many rounding errors of the squares that part is, at least."""

NOISE_MARGIN: Final = 100.0
"""How many times its rounding error a second derivative is, at least, if it says anything."""

CURVATURE_ERRORS: Final = 10.0
"""How many errors of differences an eigenvalue of the Hessian, with a diagonal of 1, is at least.

Those of central differences are the rounding to the power of 2/3. What is nearer to 0 is unknown.
"""

SHORTER: Final = 1.0, 0.25, 0.0625, 2.0**-10
"""The parts of Newton's step that are tried."""

ESCAPES: Final = 1e-2, -1e-2, 0.3, -0.3, 1e-3, -1e-3
"""The changes of variables, relative to their sizes, by which a maximum is left."""


@dataclass(frozen=True)
class Slopes:
    """What is known at points (S, n): half the squares (S,), Jᵀr (S, n), the diagonal of JᵀJ."""

    loss: np.ndarray
    gradient: np.ndarray
    diagonal: np.ndarray

    def at(self, which: np.ndarray) -> Slopes:
        """The slopes at some of the points."""
        return Slopes(self.loss[which], self.gradient[which], self.diagonal[which])


Measure = Callable[[np.ndarray, np.ndarray], Slopes]
"""What is known at points (S, n), those of the problems of these numbers (S,)."""


@dataclass(frozen=True)
class Setting:
    """The problems: their bounds (n,), the sizes of their variables (S, n), and the rounding."""

    measure: Measure
    low: np.ndarray
    high: np.ndarray
    sizes: np.ndarray
    eps: float

    def clip(self, x: np.ndarray) -> np.ndarray:
        """The nearest points within the bounds."""
        return np.clip(x, self.low, self.high)

    def traces(self, loss: np.ndarray) -> np.ndarray:
        """Decreases of the squares (S,) that are none."""
        return max(LEAST_PART, LEAST_ROUNDINGS * self.eps) * 2.0 * loss


@dataclass(frozen=True)
class Settled:
    """Where Newton's method has led: points (S, n), and whether they are minima.

    They are ``sharp`` where the squares depend on each variable.
    """

    x: np.ndarray
    loss: np.ndarray
    minimal: np.ndarray
    sharp: np.ndarray


@dataclass(frozen=True)
class Curvature:
    """Second derivatives of half the squares in units (S, n) in which their diagonal is 1.

    ``values`` (S, n) and ``ways`` (S, n, n) are eigenvalues and eigenvectors, ``slopes`` (S, n) the
    derivatives along these; values less than ``least`` (S,) are rounding errors. ``bent`` (S, n) is
    by how much the squares change where a variable changes by its size.
    """

    units: np.ndarray
    values: np.ndarray
    ways: np.ndarray
    slopes: np.ndarray
    least: np.ndarray
    bent: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Where all of it is finite, (S,)."""
        return np.isfinite(self.least)

    def promised(self, eps: float) -> np.ndarray:
        """By how much Newton's step could lower the squares, (S,).

        Curvatures that are not known may be as small as the rounding.
        """
        sizes = np.abs(self.values)
        bends = np.where(sizes < self.least[:, None], eps, sizes)
        return np.sum(self.slopes**2 / bends, axis=1)

    @property
    def step(self) -> np.ndarray:
        """Newton's step (S, n), with the sizes of curvatures in their place."""
        bends = np.maximum(np.abs(self.values), self.least[:, None])
        return -self.units * np.einsum("sij,sj->si", self.ways, self.slopes / bends)

    def down(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The change (S, n), by the sizes at most, that lowers a maximum most; and by how much."""
        changes = self.units[:, :, None] * self.ways
        longest = np.max(np.abs(changes) / sizes[:, :, None], axis=1)
        lengths = 1.0 / np.where(longest > 0.0, longest, np.inf)
        gains = np.where(self.values < -self.least[:, None], -self.values * lengths**2, 0.0)
        best = np.argmax(gains, axis=1)
        rows = np.arange(len(best))
        return (changes * lengths[:, None, :])[rows, :, best], gains[rows, best]


def curvature(of: Setting, x: np.ndarray, at: Slopes, which: np.ndarray) -> Curvature:
    """The curvature at points (S, n) of these problems."""
    count, n = x.shape
    sizes = of.sizes[which]
    fixed = ((x <= of.low) & (at.gradient > 0.0)) | ((x >= of.high) & (at.gradient < 0.0))
    steps = of.eps ** (1 / 3) * sizes[:, None, :] * np.eye(n)
    ends = of.clip(x[:, None, None, :] + np.stack([steps, -steps], axis=2))  # (S, n, 2, n)
    seen = of.measure(ends.reshape(-1, n), np.repeat(which, 2 * n))
    slopes, lengths = (a.reshape(count, n, 2, n) for a in (seen.gradient, seen.diagonal**0.5))
    each = np.arange(n)
    width = ends[:, each, 0, each] - ends[:, each, 1, each]
    fixed |= width == 0.0
    width = np.where(fixed, 1.0, width)
    matrix = (slopes[:, :, 0] - slopes[:, :, 1]) / width[:, :, None]
    matrix = 0.5 * (matrix + matrix.transpose(0, 2, 1))
    error = of.eps * (np.sqrt(2.0 * at.loss) + np.sqrt(np.sum(at.diagonal * x * x, axis=1)))
    noise = error[:, None] * lengths.max(axis=2)[:, each, each] / width
    own = np.abs(matrix[:, each, each])
    units = np.maximum(np.maximum(own, NOISE_MARGIN * noise), TINY) ** -0.5
    units = np.where(fixed, 0.0, units)
    scaled = matrix * units[:, :, None] * units[:, None, :]
    differences = CURVATURE_ERRORS * of.eps ** (2 / 3)
    least = np.maximum(differences, 10.0 * np.max(noise * units**2, axis=1))
    finite = np.isfinite(scaled).all(axis=(1, 2)) & np.isfinite(at.loss)
    values, ways = np.linalg.eigh(np.where(finite[:, None, None], scaled, 0.0))
    along = np.einsum("si,sij->sj", np.where(fixed, 0.0, at.gradient) * units, ways)
    bent = np.where(fixed, np.inf, own * sizes**2)
    return Curvature(units, values, ways, along, np.where(finite, least, np.nan), bent)


def settle(of: Setting, x: np.ndarray, steps: int) -> Settled:
    """Where Newton's method leads to from points (S, n), in so many steps at most.

    It ends where no step promises to lower the squares by more than a trace, and no way leads down.
    """
    x = np.array(x, float)
    minimal, sharp = np.zeros(len(x), bool), np.zeros(len(x), bool)
    active = np.arange(len(x))
    slopes = of.measure(x, active)
    loss = np.array(slopes.loss, float)
    with np.errstate(all="ignore"):
        for left in range(min(MOST_STEPS, steps), -1, -1):
            if not len(active):
                break
            model = curvature(of, x[active], slopes, active)
            way, gain = model.down(of.sizes[active])
            trace = of.traces(slopes.loss)
            done = model.known & (model.promised(of.eps) <= trace) & (gain <= trace)
            minimal[active] = done
            sharp[active] = (model.bent > trace[:, None]).all(axis=1)
            go = model.known & ~done & (left > 0)
            way = np.where((gain > trace)[:, None], way, 0.0)
            moves = [part * model.step for part in SHORTER] + [part * way for part in ESCAPES]
            active, slopes = _lowered(of, x, slopes, active, go, moves)
            loss[active] = slopes.loss
    return Settled(x, loss, minimal, sharp)


def _lowered(
    of: Setting,
    x: np.ndarray,
    current: Slopes,
    active: np.ndarray,
    go: np.ndarray,
    moves: list[np.ndarray],
) -> tuple[np.ndarray, Slopes]:
    """The problems to go on with, moved to the first of their trials with a lower loss."""
    moved, slopes = list[np.ndarray](), list[Slopes]()
    for move in moves:
        trying = np.flatnonzero(go)
        if not len(trying):
            break
        points = of.clip(x[active[trying]] + move[trying])
        seen = of.measure(points, active[trying])
        lower = seen.loss < current.loss[trying]
        x[active[trying[lower]]] = points[lower]
        moved.append(active[trying[lower]])
        slopes.append(seen.at(lower))
        go[trying[lower]] = False
    if not moved:
        return active[:0], current.at(active[:0])
    parts = (np.concatenate([getattr(s, name) for s in slopes]) for name in vars(slopes[0]))
    return np.concatenate(moved), Slopes(*parts)
