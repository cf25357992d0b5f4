"""Numbers of users as arrays, or an error that says what to do; the digits that float32 keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError, PrecisionWarning, warn


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

LARGEST: Final = float(np.finfo(np.float32).max)


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
        some = some[np.isfinite(some) & (np.abs(some) <= LARGEST)]
        mean, spread = _moments(some)
    if not abs(mean) * LEAST_OFFSET > spread > abs(mean) * RELATIVE_NOISE:
        return None
    if max(some.max(), -some.min()) > LARGEST:
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
