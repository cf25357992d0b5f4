"""Dtypes, numbers of users as arrays or an error that says what to do, and rounded digits."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError, PrecisionWarning, warn

# --- dtypes ---------------------------------------------------------------------------------------
# Dtypes that kernels compute in, by their names: what they are in memory, and on the host.

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


@functools.cache
def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in a kernel's memory."""
    return "float32x2" if dtype == PAIRS else str(dtype)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a dtype in a kernel's memory are what kernels compute with."""
    return dtype.kind == "f" or dtype == PAIRS


# --- numbers of users -----------------------------------------------------------------------------


def real_numbers(values: Any, name: str, missing: bool = False) -> np.ndarray:
    """The values as an array of real numbers, not copied if they are one.

    With ``missing``, None and pandas' NA among objects are NaN.

    Raises:
        InputError: for nested lists of different lengths, or integers beyond a float.
        InputTypeError: for masked entries, and for what are no real numbers.
    """
    if type(values) is np.ndarray and values.dtype.kind in "fiub":
        return values
    if isinstance(values, (float, np.floating)):
        return np.asarray(values)
    if np.ma.is_masked(values):
        raise InputTypeError(f"{name} has masked entries: fill them in, with .filled(...)")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not a rectangular array of numbers: {error}") from error
    return array if array.dtype.kind in "fiub" else _from_objects(array, name, missing)


def _from_objects(x: np.ndarray, name: str, missing: bool) -> np.ndarray:
    """Python numbers in an array of objects as float64; an error for other values."""
    objects = np.array([np.nan if missing and _is_missing(v) else v for v in x.flat], object)
    if x.dtype.kind == "O" and all(isinstance(v, (int, float, np.number)) for v in objects):
        try:
            return objects.reshape(x.shape).astype(np.float64)
        except OverflowError as error:
            raise InputError(f"{name} holds an integer beyond the range of a float") from error
    what = {"c": "complex numbers", "U": "strings", "S": "bytes", "O": "objects"}
    kind = what.get(x.dtype.kind, f"{x.dtype} values")
    raise InputTypeError(f"{name} holds {kind}: a kernel takes real numbers")


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType"


# --- digits that float32 keeps --------------------------------------------------------------------


SAMPLED_VALUES: Final = 2**12
"""Values of a column that are looked at, evenly spread over it."""

MOST_ROUNDING: Final = 2.0**-15
"""The part of a column's spread that its rounding may be, both as root mean squares.

Of a column that is evenly spread float32 leaves as many different values as the inverse says.
"""

LEAST_OFFSET: Final = 2.0**-24 / MOST_ROUNDING
"""The spread, relative to the mean, from which on float32 cannot round by so much."""

RELATIVE_NOISE: Final = 2.0**-44
"""A spread, relative to the values, that float64's own rounding may have made."""


@dataclass(frozen=True)
class Rounding:
    """By how much float32 changes the values of a column, and how far these are apart."""

    largest: float
    spread: float


def warn_if_rounded(values: np.ndarray, name: str, dtype: str) -> bool:
    """Warn if a kernel's dtype rounds a column, of any shape, coarsely beside its spread."""
    if dtype != "float32" or values.dtype.itemsize <= 2 or values.dtype == np.float32:
        return False
    excess = excessive_rounding(values)
    if excess is None:
        return False
    warn(
        f"{name} has values that float32, in which the kernel computes, rounds by up to "
        f"{excess.largest:.2g}, which is large beside their spread of {excess.spread:.2g}: "
        'subtract an offset from them before, or use dtype="float64" with device="cpu"',
        PrecisionWarning,
    )
    return True


def excessive_rounding(values: np.ndarray) -> Rounding | None:
    """The rounding of a column by float32; None unless it is large beside the values' spread.

    The spread is the standard deviation. Where it is no more than float64's rounding the values are
    one value, and where values overflow float32 that is no question of rounding.
    """
    if values.size < 2:
        return None
    step = -(-values.size // SAMPLED_VALUES)
    some = (values[::step] if values.ndim == 1 else values.flat[::step]).astype(np.float64)
    mean, spread = _moments(some)
    if not np.isfinite(spread):
        some = some[np.isfinite(some) & (np.abs(some) <= LARGEST["float32"])]
        mean, spread = _moments(some)
    if not abs(mean) * LEAST_OFFSET > spread > abs(mean) * RELATIVE_NOISE:
        return None
    if max(some.max(), -some.min()) > LARGEST["float32"]:
        return None
    lost = some - some.astype(np.float32)
    if lost @ lost <= (MOST_ROUNDING * spread) ** 2 * len(some):
        return None
    return Rounding(float(np.abs(lost).max()), float(spread))


def _moments(values: np.ndarray) -> tuple[float, float]:
    """The mean and the standard deviation; not finite where a value is not, or a square."""
    count = max(len(values), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(values.sum()) / count
        rest = values - mean
        return mean, float(np.sqrt(rest @ rest / count))
