"""A second look at sums of squares whose end is in doubt: some are minima, some are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from symgrad.optimize.curvature import Setting, Slopes, settle
from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.method import Bounds
from symgrad.optimize.states import Ends

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
    """What gives losses and slopes at points of the problems at these places."""
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
