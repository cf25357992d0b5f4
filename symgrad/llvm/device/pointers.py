"""Pointers for compiled code, by cffi's compiled half: the other, which reads C, loads slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import _cffi_backend

_ffi: Any = _cffi_backend.FFI()

NULL: Final[Any] = _ffi.NULL

address: Callable[[Any], Any] = _ffi.from_buffer
"""An array as C code takes it, which keeps it alive."""

function: Callable[[str, int], Any] = _ffi.cast
"""The function of a C type at an address: Python calls it without the interpreter's lock."""
