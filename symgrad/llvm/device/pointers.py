"""Pointers for compiled code, by cffi's compiled half: the other, which reads C, loads slowly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import _cffi_backend
import numpy as np

_ffi: Any = _cffi_backend.FFI()

NULL: Final[Any] = _ffi.NULL

address: Callable[[Any], Any] = _ffi.from_buffer
"""An array as C code takes it, which keeps it alive."""

function: Callable[[str, int], Any] = _ffi.cast
"""The function of a C type at an address: Python calls it without the interpreter's lock."""


def pointers(words: np.ndarray) -> Any:
    """Words of 64 bits as pointers, which may be assigned."""
    return _ffi.cast("void **", address(words))


def at(place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """The array at an address, which has to outlive it."""
    if 0 in shape:
        return np.empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = _ffi.buffer(_ffi.cast("char *", place), size)
    return np.frombuffer(memory, dtype).reshape(shape)


def parameters(call: Any) -> tuple[str, ...] | None:
    """The types in C of what a function at an address takes; None of what is no such function."""
    if not isinstance(call, _ffi.CData):
        return None
    return tuple(argument.cname for argument in _ffi.typeof(call).args)


def pointer(call: Any) -> Any:
    """A function at an address, as an argument of another one."""
    return _ffi.cast("void *", call)
