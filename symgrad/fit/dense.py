"""Small dense least squares, compiled: loops of run-time sizes, once for a machine."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.backend import bound_on_host, repeated_on_host
from symgrad.kernel.skeletons.descent import COUNT, START, descent_program
from symgrad.kernel.skeletons.solve import triangle_program
from symgrad.optimize.result import Box, Point

KEPT_SIZES: Final = 16
"""Sizes for which a thread keeps memory to work in."""

LEAST_POINTS: Final = 16
"""Points at which a model is evaluated at least: as many as a register has numbers."""


@dataclass(frozen=True)
class Strategy:
    """How steps are damped at first, and whether scales are those of the present point alone."""

    damping: float
    local: bool
    projected: bool = False
    """Whether parameters that the model is linear in are set to the best for all others."""


class Triangle:
    """The triangle of weighted derivatives and residuals of m rows: see `triangle_program`.

    Before a call, ``values`` (m or more,) and ``slopes`` (m or more, n) are filled, data ``y`` (m,)
    and ``weights`` (m,), which residuals are multiplied by. It writes what `Point` has to ``row``.
    """

    def __init__(self, m: int, n: int) -> None:
        self.values, self.y, self.weights = np.empty(max(m, LEAST_POINTS)), np.empty(m), np.ones(m)
        self.slopes, self.row = np.empty((len(self.values), n)), np.empty(n * (n + 2) + 2)
        inputs = np.array([m, n], np.uint32), self.values, self.slopes, self.y, self.weights
        memory = np.empty((n + 1) * m), np.empty(n)
        self.call: Callable[[], Any] = bound_on_host(triangle_program, [*inputs, *memory, self.row])


class Descent:
    """The way from one point of n parameters to the best one: see `descent_program`.

    ``p`` (n,) are the parameters at which the model is to be evaluated next.
    """

    def __init__(
        self, n: int, row: np.ndarray | None = None, points: np.ndarray | None = None
    ) -> None:
        self._n, self.p = n, np.empty(n)
        self._row = np.empty(n * (n + 2) + 2) if row is None else row
        self._best, self._state, self._rule = map(np.empty, (n * (n + 3) + 3, len(START), 3))
        self._low, self._high, self._going = np.empty(n), np.empty(n), np.empty(1, np.uint32)
        lines = np.empty((0, 0)) if points is None else points
        given = np.array([n, *lines.shape], np.uint32), self._row, self._rule, self._low, self._high
        memory = map(np.empty, (n, (n + 2) * (n + 1), n * n, n, n))
        arrays = *given, self.p, lines, self._best, self._state, *memory, self._going
        self.call: Callable[[], Any] = bound_on_host(descent_program, arrays)

    def begin(self, at: Point, box: Box, strategy: Strategy, limit: int) -> bool:
        """Begin at a point; whether to go on."""
        self._low[:], self._high[:], self._state[:] = box.low, box.high, START
        self._rule[:] = strategy.damping, strategy.local, limit
        return self.advance(at)

    def advance(self, at: Point) -> bool:
        """Take what is known at a point, which is ``p`` or instead of it; whether to go on."""
        self.p[:], self._row[:] = at.p, at.row
        self.call()
        return self.is_going

    @property
    def is_going(self) -> bool:
        """Whether to go on."""
        return self._going.item() != 0

    @property
    def count(self) -> int:
        """How many evaluations there were after the first point."""
        return int(self._state[COUNT])

    def repeated(self, *before: Callable[[], Any]) -> Callable[[], None]:
        """A call that does others before each advance, until there is nowhere to go on to."""
        return repeated_on_host([*before, self.call], self._going)

    @property
    def end(self) -> Point:
        """The best point, with its relative offset."""
        best, n = self._best.copy(), self._n
        first = n * (n + 2) + 2
        return Point(best[first : first + n], best[:first], float(best[-1]))


def at_end(at: Point, box: Box) -> Point:
    """The point, with its relative offset: see `Descent.end`."""
    descent = _kept.descent(len(at.p))
    descent.begin(at, box, Strategy(1.0, local=True), 0)
    return descent.end


def gauss_newton(at: Point, box: Box) -> np.ndarray:
    """The parameters after a step without damping."""
    descent = _kept.descent(len(at.p))
    descent.begin(at, box, Strategy(0.0, local=True), 1)
    return descent.p.copy()


class _Kept(threading.local):
    """This thread's memory to work in, of the latest sizes."""

    def __init__(self) -> None:
        self.descent = functools.lru_cache(KEPT_SIZES)(Descent)


_kept: Final = _Kept()
