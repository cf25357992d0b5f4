"""Activations: traced functions of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.errors import InputTypeError, TraceError

Activation = Callable[[Any], Any]
"""A function of one number, of symgrad's or NumPy's operations."""


def of_one_number(f: Activation | None) -> Activation:
    """An activation as a function, to be traced.

    Raises:
        InputTypeError: if f is no function. TraceError: when it is called, and gives several.
    """
    if f is None:
        return lambda z: z
    if not callable(f):
        raise InputTypeError(f"activation={f!r}: use a function such as sg.gelu, or None")

    def traced(z: Any) -> Any:
        result = f(z)
        if isinstance(result, tuple | list | dict | np.ndarray):
            raise TraceError(f"the activation returned {result!r}: one number is needed")
        return result

    return traced
