"""Functions that symgrad, PyTorch and JAX all compute, and points to compute them at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

POINTS = np.random.default_rng(7).normal(size=(5, 3))


def bent(xp: Any) -> Callable[[Any], Any]:
    """A loss of three numbers with all second and third derivatives, by a module's functions."""
    return lambda v: xp.sin(v[0]) * v[1] ** 2 + xp.exp(v[0] * v[2]) * v[1]


def bent_of(v: Any, xp: Any) -> Any:
    """Two values of a nest of an array of two numbers and of a number."""
    a, b = v["a"], v["b"]
    return [a[0] * xp.sin(a[1]) * b, xp.exp(a[0]) + b**2]


def line(p: Any, r: Any) -> Any:
    """The squared residual of a line at a row of x and y."""
    return (p[0] + p[1] * r[0] - r[1]) ** 2


NESTED = {"a": (2,), "b": ()}
"""The variables of `bent_of`."""

ROWS = np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 4.0]])
"""Rows of `line`."""
