"""Whether float32 keeps the digits in which values of a column differ: dates, identities, ..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from symgrad.errors import PrecisionWarning, warn

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
    """What float32 does to a column, if that is large beside the spread of its values; else None.

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
