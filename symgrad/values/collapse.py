"""Whether float32 tells apart the values of a column of data: dates, identities and the like."""

from __future__ import annotations

from typing import Final

import numpy as np

from symgrad.errors import PrecisionWarning, warn

SAMPLED_VALUES: Final = 2**11
"""Values of a column that are looked at: so many at its start, and so many spread over it."""

LEAST_OFFSET_IN_RANGES: Final = 4.0
"""How many times its range the values of a column are, at least, if an offset takes its digits."""

RELATIVE_NOISE: Final = 2.0**-44
"""Differences, relative to the values, up to which float64's own rounding may have made them."""

LARGEST: Final = float(np.finfo(np.float32).max)

MOST_EQUAL_SHARE: Final = 1.0 / 3.0
"""Of neighbours that differ, in order of size, the share that may be equal in float32.

It is exceeded by evenly spaced values 1.5 times as close as float32's, and by a long column in no
order, whatever its length, of whose range float32 leaves fewer than about 10,000 values.
"""


def warn_if_collapsed(values: np.ndarray, name: str, dtype: str) -> bool:
    """Warn if many different values of a column, of any shape, are equal in a kernel's dtype."""
    exact = values.dtype.itemsize <= 2 or values.dtype == np.float32
    collapsed = dtype == "float32" and not exact and is_collapsed(values)
    if collapsed:
        warn(
            f"{name} has different values that are equal in float32, in which the kernel computes: "
            'subtract an offset from them before, or use dtype="float64" with device="cpu"',
            PrecisionWarning,
        )
    return collapsed


def is_collapsed(values: np.ndarray) -> bool:
    """Whether an offset leaves too few of float32's digits to tell a column's values apart.

    So it is if the values are larger than their range, and of neighbours in order of size that
    differ by more than float64's rounding more than a third are equal once rounded to float32.
    """
    step = max(values.size // SAMPLED_VALUES, 1)
    some = np.concatenate([values.flat[:SAMPLED_VALUES], values.flat[SAMPLED_VALUES::step]]).astype(
        np.float64
    )
    some = some[np.isfinite(some)]
    if not some.size:
        return False
    low, high = float(some.min()), float(some.max())
    size = max(-low, high)
    if LEAST_OFFSET_IN_RANGES * (high - low) >= size or size > LARGEST:
        return False
    ordered = np.sort(some)
    apart = np.diff(ordered) > RELATIVE_NOISE * size
    equal = np.diff(ordered.astype(np.float32)) == 0.0
    return bool(np.sum(apart & equal) > MOST_EQUAL_SHARE * np.sum(apart))
