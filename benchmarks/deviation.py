"""How far results in float32 are from the true values: what is looked at closely, and the worst.

Most results are seen at once to be better than the worst so far; only the others are compared in
ULP. Errors are in ULP of the true result where that is above 2**-120. ``wrong`` counts results that
are NaN where they must not be or not NaN where they must be, or off by more than 2**-16. Devices
may flush subnormals: a result below 2**-120 may be 0, and where an argument is subnormal, the
result need not be better than with 0 in its place.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

SLICE: Final = 1 << 17
"""What is compared at a time: few enough to stay in the cache."""

TINY: Final = float(np.finfo(np.float32).tiny)
SMALL: Final = 2.0**-120
EXTREME: Final = 2.0**-16

Array = np.ndarray
Unit = Callable[[Array], Array]
"""What errors are measured by, at least, at arguments (B, n)."""


def none(points: Array) -> Array:
    """No least unit: errors are measured by the results."""
    return np.zeros(len(points))


def suspects(got: Array, want: Array, share: float) -> Array:
    """Where |got - want| <= share * |want| does not hold."""
    found = []
    for start in range(0, len(want), SLICE):
        part = slice(start, start + SLICE)
        error = np.subtract(got[part], want[part], dtype=np.float64)
        np.abs(error, out=error)
        allowed = np.abs(want[part])
        allowed *= share
        found.append(start + np.flatnonzero(~(error <= allowed)))
    return np.concatenate(found)


def ulps(got: Array, want: Array, unit: Array) -> Array:
    """The errors where the true results are above 2**-120 and finite, elsewhere 0."""
    nearest = np.abs(want.astype(np.float32))
    size = np.maximum(nearest, np.maximum(unit, TINY).astype(np.float32))
    large = (nearest > SMALL) & np.isfinite(nearest) & np.isfinite(got)
    return np.where(large, np.abs(got - want) / np.spacing(size), 0.0)


def right(got: Array, want: Array, unit: Array) -> Array:
    """Which results are within 2**-16, NaN where the true ones are, or 0 where these are small."""
    nearest, error = want.astype(np.float32), np.abs(got - want)
    passes = error <= EXTREME * np.maximum(np.abs(want), unit)
    passes |= (got == nearest) | (got == (want * (1.0 + EXTREME)).astype(np.float32))
    passes |= np.isnan(got) & np.isnan(want)
    passes |= (got == 0.0) & (np.abs(nearest) <= SMALL)
    return passes | ((np.abs(nearest) < TINY) & (error <= TINY * EXTREME))


def flushed(points: Array) -> list[Array]:
    """The arguments with one, another or all of their subnormals replaced by zeros."""
    ways = itertools.product((False, True), repeat=points.shape[1])
    tiny = np.abs(points) < TINY
    zero = np.copysign(np.float32(0.0), points)
    return [np.where(tiny & np.array(way), zero, points) for way in ways if any(way)]


@dataclass
class Worst:
    """The largest error so far, where it was, and what is wrong altogether; for any threads.

    ``truth`` gives the true results at arguments, ``excused`` says of arguments and results what
    passes besides.
    """

    truth: Callable[[Array], Array]
    unit: Unit = none
    excused: Callable[[Array, Array], Array] | None = None
    ulps: float = 0.5
    at: tuple[float, ...] = ()
    wrong: int = 0
    first: tuple[float, ...] = ()
    _lock: Any = field(default_factory=threading.Lock)

    def add(self, points: Array, got: Array, want: Array) -> None:
        """Take results at points (B, n) into account."""
        near = suspects(got, want, min(self.ulps * 2.0**-24, EXTREME))
        got, want = got[near], want[near]
        other = (got != want.astype(np.float32)) & ~(np.isnan(got) & np.isnan(want))
        if other.any():
            self._look(points[near[other]], got[other], want[other])

    def _look(self, points: Array, got: Array, want: Array) -> None:
        unit = self.unit(points)
        errors, wrong = ulps(got, want, unit), ~right(got, want, unit)
        if self.excused is not None:
            wrong &= ~self.excused(points, got)
        odd = np.flatnonzero((np.abs(points) < TINY).any(axis=1))
        if len(odd):
            passes = self._as_if_flushed(points[odd], got[odd], want[odd])
            errors[odd] = np.where(passes, 0.0, errors[odd])
            wrong[odd] &= ~passes
        self._keep(points, errors, wrong)

    def _as_if_flushed(self, points: Array, got: Array, want: Array) -> Array:
        """Whether results are no worse than if subnormal arguments were 0."""
        passes = np.zeros(len(points), bool)
        for way in flushed(points):
            other = self.truth(way)
            passes |= right(got, other, self.unit(way))
            passes |= np.abs(got - want) <= np.abs(other - want)
        return passes

    def _keep(self, points: Array, errors: Array, wrong: Array) -> None:
        with self._lock:
            k = int(np.argmax(errors))
            if errors[k] > self.ulps:
                self.ulps, self.at = float(errors[k]), _numbers(points[k])
            if wrong.any():
                self.wrong += int(wrong.sum())
                self.first = self.first or _numbers(points[np.argmax(wrong)])

    def row(self, label: str) -> dict[str, Any]:
        """What was found, for a table; errors below half an ULP are not told apart."""
        return {
            f"{label} ULP": round(self.ulps, 3), f"{label} at": _text(self.at),
            f"{label} wrong": self.wrong, f"first {label} wrong": _text(self.first),
        }  # fmt: skip


def _numbers(point: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(v) for v in point)


def _text(point: tuple[float, ...]) -> str:
    """Digits that give the float32 back."""
    return ", ".join(str(np.float32(v)) for v in point)
