"""What users pass to optimisers, as arrays of real numbers, or a clear error."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError


def real(values: Any, name: str, dtype: str = "float64") -> np.ndarray:
    """The values as a C-contiguous array of real numbers."""
    try:
        found = np.asarray(values)
        if found.dtype.kind == "O":
            found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"{name} is no array of real numbers: {error}") from error
    if found.dtype.kind not in "fiub":
        raise InputTypeError(f"{name} holds {found.dtype} values: real numbers are needed")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(found, dtype) if found.ndim else found.astype(dtype)


def real_matrix(values: Any, name: str, n: int, dtype: str = "float64") -> np.ndarray:
    """The values as an array (S, n); a single row may stand alone."""
    found = np.atleast_2d(real(values, name, dtype))
    if found.ndim != 2 or found.shape[1] != n:
        raise InputError(f"{name} has shape {np.shape(values)}: (S, {n}) or ({n},) is needed")
    return found
