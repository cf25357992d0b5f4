"""What users give as numbers, as arrays of them; or an error that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError


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
