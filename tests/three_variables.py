"""Functions of three variables with loops and tables, and the results of kernels as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import symgrad as sg


def predators(steps: int) -> Callable[[Any], Any]:
    """The distance of Lotka and Volterra's equations from a point, after so many steps."""

    def step(v: Any, now: Any) -> Any:
        x, y = now
        return x + 0.01 * (v[0] * x - v[1] * x * y), y + 0.01 * (v[1] * x * y - y)

    def distance(v: Any) -> Any:
        x, y = sg.fori_loop(0, steps, lambda k, now: step(v, now), (v[2], 1.0))
        return (x - 1.5) ** 2 + (y - 0.5) ** 2

    return distance


def halvings(v: Any) -> Any:
    """A loop whose iterations depend on the point, and a choice by their number."""
    count, size = sg.while_loop(
        lambda now: now[1] > 1e-9,
        lambda now: (now[0] + 1, now[1] / 2),
        (0, abs(v[0]) + v[1] ** 2),
        max_steps=40,
    )
    return sg.where(count % 2 == 0, size * v[2], size + v[2])


def looked_up(v: Any) -> Any:
    """A number of a table, by an index that depends on the point."""
    table = sg.array(np.linspace(0.1, 2.3, 40))
    return table[sg.floor(20 + 5 * v[0])] * v[1] - v[2]


def leaves(result: Any) -> list[np.ndarray]:
    """The arrays of a result, however it is nested."""
    if isinstance(result, dict):
        return [leaf for value in result.values() for leaf in leaves(value)]
    if isinstance(result, tuple):
        return [leaf for value in result for leaf in leaves(value)]
    return [np.asarray(result)]


def points(count: int = 301) -> np.ndarray:
    """Points (count, 3) about 0."""
    return np.random.default_rng(3).uniform(-1.5, 1.5, (count, 3))
