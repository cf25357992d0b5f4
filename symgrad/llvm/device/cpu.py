"""Code that is compiled for the CPU, and kept in memory and on disk."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import _cffi_backend
import numpy as np

from symgrad.llvm import compiler
from symgrad.llvm.device.files import CodeFiles
from symgrad.llvm.device.host import host, llvm
from symgrad.llvm.printing.source import ENTRY, Source

# --- pointers -------------------------------------------------------------------------------------
# Pointers for compiled code, by cffi's compiled half: the other, which reads C, loads slowly.

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


# --- compiled code --------------------------------------------------------------------------------


class Code:
    """Machine code in memory: ``address`` is that of its function ``run``.

    ``entry`` is that of its function `ENTRY`, or 0.
    """

    def __init__(self, compiled: bytes) -> None:
        binding, cpu = llvm(), host()
        machine = compiler.target_machine(cpu.name, cpu.features)
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        engine.add_object_file(binding.ObjectFileRef.from_data(compiled))
        engine.finalize_object()
        self._engine = engine
        self.address: int = engine.get_function_address("run")
        self.entry: int = engine.get_function_address(ENTRY)
        assert self.address, "the module defines run"


_lock = threading.RLock()
_codes: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()


def compile_source(source: Source) -> Code:
    """The code of a module: from memory, from disk, or from the compiler.

    It is compiled with no more effort than SYMGRAD_EFFORT says, if that is a number: with 0 in half
    the time or a third of it, to code that takes about twice as long and gives the same bits.

    Raises:
        DeviceError: if LLVM is missing, or this machine cannot run what SYMGRAD_CPU names.
    """
    host().require()
    most = os.environ.get("SYMGRAD_EFFORT", "")
    if most.isdecimal() and int(most) < source.effort:
        source = replace(source, effort=int(most))
    with _lock:  # so that no two threads compile the same
        return find_code(source) or keep_code(source, _compiled(source))


def find_code(source: Source) -> Code | None:
    """The code of a module that is in memory or on disk."""
    key = key_of(source)
    with _lock:
        code = _codes.get(key)
        files = code_files()
        compiled = files.read(key) if files and code is None else None
        if compiled is not None:
            code = _codes[key] = Code(compiled)
        return code


def keep_code(source: Source, compiled: bytes) -> Code:
    """The code of a module that has been compiled, from now on in memory and on disk."""
    key = key_of(source)
    with _lock:
        code = _codes.get(key)
        if code is None:
            if files := code_files():
                files.write(key, compiled)
            code = _codes[key] = Code(compiled)
        return code


def _compiled(source: Source) -> bytes:
    cpu = host()
    return compiler.compiled(source.text, source.effort, cpu.name, cpu.features)


# the disk -----------------------------------------------------------------------------------------


def key_of(source: Source) -> str:
    """The key that code is kept under: all that its bytes depend on."""
    binding, cpu = llvm(), host()
    version = ".".join(map(str, binding.llvm_version_info))
    where = (version, cpu.triple, cpu.name, cpu.features)
    parts = (*where, str(source.effort), source.digest)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def code_files() -> CodeFiles | None:
    """Where compiled code is kept: in symgrad's own folder within that of SYMGRAD_CACHE.

    By default that is the system's folder for such; with "" nothing is kept, and nothing where the
    folder cannot be made. What else lies in these folders is left alone.
    """
    return _files_in(os.environ.get("SYMGRAD_CACHE"))


@functools.cache
def _files_in(chosen: str | None) -> CodeFiles | None:
    if chosen == "":
        return None
    folder = (Path(chosen) if chosen else _system_cache()) / "symgrad" / "code"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return CodeFiles(folder)


def _system_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
