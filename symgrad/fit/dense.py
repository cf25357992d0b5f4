"""Small dense least squares, compiled: loops of run-time sizes, once for a machine."""

from __future__ import annotations

import functools
import threading
from typing import Final

import numpy as np

from symgrad.backend import bound_on_host
from symgrad.kernel.skeletons.dense import step_program, triangle_program

KEPT_SIZES: Final = 16
"""Sizes for which a thread keeps memory to work in."""


class Triangle:
    """The triangle of weighted derivatives and residuals: see `triangle_program`.

    Args:
        y: data, (m,).
        weights: what residuals are multiplied by, (m,).
        n: parameters.

    ``values`` (m,) and ``slopes`` (m, n) are filled before a call.
    """

    def __init__(self, y: np.ndarray, weights: np.ndarray, n: int) -> None:
        m = len(y)
        self.n = n
        self.values, self.slopes = np.empty(m), np.empty((m, n))
        self._results = np.empty(n * (n + 2) + 2)
        memory = np.empty((n + 1) * m), np.empty(n)
        inputs = np.array([m, n], np.uint32), self.values, self.slopes, *map(_double, (y, weights))
        self._call = bound_on_host(triangle_program, [*inputs, *memory, self._results])

    def __call__(self) -> np.ndarray:
        """T (n, n), z (n,), the lengths (n,), the cost and the norm of the inverse, in a row."""
        self._call()
        return self._results.copy()


class _Step:
    """Memory for steps of so many parameters: see `step_program`."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.point, self.scales, self.damping = np.empty(n * (n + 1)), np.empty(n), np.empty(1)
        self.p, self.results = np.empty(n), np.empty(n + 2)
        inputs = np.array([n], np.uint32), self.point, self.scales, self.damping, self.p
        self.call = bound_on_host(
            step_program, [*inputs, np.empty((n + 2) * (n + 1)), self.results]
        )


def step(
    point: np.ndarray, scales: np.ndarray, damping: float, p: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """The parameters after a damped step, what it promises, and how large it is, relative to them.

    ``point`` has T (n, n) and z (n,) in a row. See `step_program`.
    """
    work = _step_of(len(p))
    work.point[:], work.scales[:], work.damping[0], work.p[:] = point, scales, damping, p
    work.call()
    *moved, promised, size = work.results.tolist()
    return np.array(moved), promised, size


_local = threading.local()


def _step_of(n: int) -> _Step:
    """This thread's memory for steps of so many parameters."""
    try:
        return _local.steps(n)
    except AttributeError:
        _local.steps = functools.lru_cache(KEPT_SIZES)(_Step)
        return _local.steps(n)


def _double(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.float64)
