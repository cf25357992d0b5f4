"""Dtypes that kernels compute in, by their names: what they are in memory, and on the host."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

PAIRS: Final = np.dtype([("high", np.float32), ("low", np.float32)])
"""Numbers in the memory of kernels in float32x2, each the sum of two; on the host, float64."""

EPSILON: Final[dict[str, float]] = {
    "float32": 2.0**-23,
    "float64": 2.0**-52,
    "float32x2": 2.0**-44,
}
"""The relative distance of neighbours; of pairs, the rounding of the worst of their arithmetic."""

LARGEST: Final[dict[str, float]] = {
    name: float(np.finfo(np.float64 if name == "float64" else np.float32).max) for name in EPSILON
}
"""The largest finite number of each dtype."""


SMALLEST: Final[dict[str, float]] = {
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
    "float32x2": 2.0**-102,
}
"""The smallest number of each dtype that has all digits; below, low parts would be subnormal."""


def smallest_of(epsilon: float) -> float:
    """The smallest normal number of the range that goes with a rounding."""
    return SMALLEST["float64" if epsilon <= EPSILON["float64"] else "float32"]


def memory_dtype(name: str) -> np.dtype[Any]:
    """The dtype of floats in a GPU's memory, of kernels in one of this name."""
    return PAIRS if name == "float32x2" else np.dtype(name)


@functools.cache
def host_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype that numbers in a kernel's memory, or of kernels in one, have on the host."""
    kind = memory_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    return np.dtype(np.float64) if kind == PAIRS else kind


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in a kernel's memory."""
    return "float32x2" if dtype == PAIRS else str(dtype)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a dtype in a kernel's memory are what kernels compute with."""
    return dtype.kind == "f" or dtype == PAIRS
