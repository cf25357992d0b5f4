"""Whether sums of squares end at minima, by second derivatives: where JᵀJ alone cannot tell.

Where a column of the Jacobian vanishes at the minimum, as that of ``a**2`` at 0, the residuals lie
along it however short it becomes. Where it vanishes at a maximum there is no slope to leave by.
Second derivatives, differences of exact gradients, tell both; many problems are looked at at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.method import Bounds
from symgrad.optimize.states import Ends

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
    """Slopes at points (S, n): half the squares (S,), Jᵀr (S, n), the diagonal of JᵀJ."""

    loss: np.ndarray
    gradient: np.ndarray
    diagonal: np.ndarray

    def at(self, which: np.ndarray) -> Slopes:
        """The slopes at some of the points."""
        return Slopes(self.loss[which], self.gradient[which], self.diagonal[which])


Measure = Callable[[np.ndarray, np.ndarray], Slopes]
"""Gives the slopes at points (S, n), those of the problems of these numbers (S,)."""


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


RAN_OUT, LOST, FLAT, AT_MINIMUM = 0, -1, -3, 1

NUMBERS_AT_A_TIME: Final = 2**24
"""Numbers of data that are copied for points around the ends."""

Again = Callable[..., Any]
"""`minimize_from` of some of the problems, ``again(starts, method, steps, own, memory=False)``."""


def examined(
    ends: Ends, starts: np.ndarray, box: Bounds, steps: int, own: Any, again: Again
) -> Ends:
    """The ends after a look at second derivatives, where these are needed to tell what they are.

    Needed they are where steps led no further down or ran out, where the model seems flat, and
    where a start did not move. Of those that ran out none is moved; from maxima fits go on.
    """
    n = starts.shape[1]
    still = np.all(ends.x == starts, axis=1) & ends.success
    doubtful = np.isin(ends.status, (RAN_OUT, LOST, FLAT)) | still
    doubtful &= np.isfinite(ends.fun)
    budget = steps // (2 * n + 1)
    if not budget or not doubtful.any():
        return ends
    fields = {name: np.array(value) for name, value in vars(ends).items()}
    for chosen, moves in ((ends.status == RAN_OUT, 0), (ends.status != RAN_OUT, budget)):
        places = np.flatnonzero(doubtful & chosen)
        if len(places):
            _settle(fields, places, starts, box, moves, steps, own, again)
    return replace(ends, **fields)


def _settle(
    fields: dict[str, np.ndarray],
    places: np.ndarray,
    starts: np.ndarray,
    box: Bounds,
    moves: int,
    steps: int,
    own: Any,
    again: Again,
) -> None:
    """Replace what second derivatives say otherwise of the problems at these places."""
    x, before = fields["x"][places].astype(float), fields["fun"][places]
    sizes = np.maximum(np.abs(x), np.abs(starts[places]))
    low, high = (np.asarray(side, float) for side in (box.low, box.high))
    eps = float(np.finfo(float).eps)
    measure = _measure(places, x.shape[1], own, again)
    of = Setting(measure, low, high, np.where(sizes > 0.0, sizes, 1.0), eps)
    settled = settle(of, x, moves)
    status = fields["status"][places]
    flat, still = status == FLAT, status > 0
    is_minimum = settled.minimal & (settled.sharp | ~flat)
    lower = settled.loss < before
    _put(fields, places, lower | is_minimum, settled.x, np.minimum(settled.loss, before))
    fields["status"][places[is_minimum]] = AT_MINIMUM
    fields["success"][places[is_minimum]] = True
    on = np.flatnonzero(~is_minimum & lower & still)
    if len(on):
        _go_on(fields, places[on], steps, own, again)


def _go_on(
    fields: dict[str, np.ndarray], places: np.ndarray, steps: int, own: Any, again: Again
) -> None:
    """Minimise from where Newton's method has led, off the maximum that was the start."""
    further = again(fields["x"][places], LevenbergMarquardt(), steps, _of(own, places))
    better = further.success | (further.fun < fields["fun"][places])
    _put(fields, places, better, further.x, further.fun)
    fields["nit"][places] += further.nit
    for name in ("status", "success"):
        fields[name][places[better]] = further[name][better]


def _put(
    fields: dict[str, np.ndarray],
    places: np.ndarray,
    where: np.ndarray,
    x: np.ndarray,
    loss: np.ndarray,
) -> None:
    fields["x"][places[where]] = x[where]
    fields["fun"][places[where]] = loss[where]


def _measure(
    places: np.ndarray, n: int, own: Any, again: Again
) -> Callable[[np.ndarray, np.ndarray], Slopes]:
    """A function of losses and slopes at points of the problems at these places."""
    method = LevenbergMarquardt()
    each = 1 if own is None else max(own.shape[1] * own.shape[2], 1)
    piece = max(1, NUMBERS_AT_A_TIME // each)
    diagonal = np.cumsum(np.arange(1, n + 1)) - 1

    def measured(points: np.ndarray, which: np.ndarray) -> Slopes:
        parts = [
            _at(points[a : a + piece], which[a : a + piece]) for a in range(0, len(points), piece)
        ]
        return Slopes(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _at(points: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, ...]:
        at = again(points, method, 0, _of(own, places[which]), memory=True)
        assert method.stored is not None, "JᵀJ is a part of the memory"
        loss, gradient, half = at.memory[1], at.memory[2], at.memory[method.stored]
        slopes = np.ravel(loss), gradient, half[:, diagonal]
        return tuple(np.asarray(a, float) for a in slopes)

    return measured


def _of(own: Any, places: np.ndarray) -> Any:
    """The data of some problems."""
    return None if own is None else own[places]
