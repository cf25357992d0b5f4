"""Arrays for kernels of arrays, and their gradients by plain NumPy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def drawn(rng: np.random.Generator, shape: Shape, scale: float = 1.0) -> np.ndarray:
    """Normal numbers that float32 has exactly, in float64."""
    return (scale * rng.normal(size=shape)).astype(np.float32).astype(np.float64)


def summed(x: np.ndarray, shape: Shape) -> np.ndarray:
    """The sum of x over what was broadcast from a shape."""
    more = x.ndim - len(shape)
    x = x.sum(tuple(range(more)))
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and x.shape[k] != 1)
    return x.sum(axes, keepdims=True)


def error(found: Any, wanted: np.ndarray) -> float:
    """The largest error, relative to the largest number."""
    found = np.asarray(found, np.float64)
    assert found.shape == wanted.shape
    scale = np.abs(wanted).max(initial=0.0) or 1.0
    return float(np.abs(found - wanted).max(initial=0.0) / scale)


def errors(found: Sequence[Any], wanted: Sequence[np.ndarray]) -> list[float]:
    """The same for each of some arrays."""
    return [error(f, w) for f, w in zip(found, wanted, strict=True)]
