"""Code that is compiled for the CPU, and kept in memory and on disk, and which CPU that is."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import _cffi_backend
import numpy as np

from symgrad.errors import DeviceError
from symgrad.kernel.host.threads import available
from symgrad.llvm import compiler
from symgrad.llvm.printing.operations import BITS, Shape
from symgrad.llvm.printing.source import ENTRY, USUAL_SIZES, CodeSizes, Source, module

# The CPU that code is compiled for: this machine's, or what SYMGRAD_CPU takes the machine for.

LEVELS: Final = {
    "x86-64": "SSE2",
    "x86-64-v2": "SSE4.2",
    "x86-64-v3": "AVX2 and FMA",
    "x86-64-v4": "AVX-512",
}
"""The levels of the x86-64 psABI, which LLVM takes for CPUs, and the vectors of each."""

FEATURES: Final = {
    "x86_64": (
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"),
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    ),
    "aarch64": ("neon", "fullfp16", "lse", "dotprod", "sve", "sve2", "sme"),
}
"""Features of a machine that is taken for another CPU: those of the psABI's levels, and
the vectors of ARM. What else it lacks is left out of the code."""

TRIPLES: Final = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
"""Where CPUs are looked for that this machine's architecture does not have."""


@dataclass(frozen=True)
class Host:
    """The CPU that code is compiled for."""

    name: str
    features: str
    vector_bits: int
    fused: bool
    threads: int
    triple: str = ""
    lacking: tuple[str, ...] = ()
    """Features of it that this machine lacks, so that nothing is run."""
    sizes: CodeSizes = USUAL_SIZES
    """The sizes at which code for it is written in another way."""

    def shape(self, dtype: str, batch: bool, fuse: bool = True) -> Shape:
        """The shape of instructions here: single numbers or whole vectors; fused, if wanted."""
        lanes = self.vector_bits // BITS[dtype] if batch else 1
        fused = self.fused and fuse and dtype != "float32x2"
        return Shape(dtype, lanes, fused, self.vector_bits == 512, self.sizes)

    def require(self) -> None:
        """Refuse to run code for a CPU that this machine is not.

        Raises:
            DeviceError: it says what is missing.
        """
        if self.lacking:
            raise DeviceError(
                f"SYMGRAD_CPU={self.name}: this machine cannot run code for that CPU, as it lacks "
                f"{', '.join(self.lacking)}; name a CPU that needs less, or leave the variable out"
            )


def llvm() -> Any:
    """LLVM.

    Raises:
        DeviceError: if it is not installed.
    """
    try:
        return compiler.llvm()
    except ImportError as error:
        raise DeviceError(
            f"kernels are compiled for the CPU by llvmlite, which is missing here ({error}): "
            "install it, use a GPU, or export the kernel"
        ) from error


def host() -> Host:
    """The CPU that code is compiled for: `this_machine`, unless it is taken for another.

    Raises:
        DeviceError: if LLVM knows no such CPU.
    """
    return _taken[-1] if _taken else this_machine()


@contextlib.contextmanager
def taken_for(other: Host) -> Generator[None]:
    """A context in which this process takes the machine for another, and compiles for that one."""
    _taken.append(other)
    try:
        yield
    finally:
        _taken.pop()


_taken: list[Host] = []


@functools.cache
def this_machine() -> Host:
    """The CPU that the environment variable SYMGRAD_CPU names, or else this machine's own.

    Without LLVM it is only the kind of this machine, for kernels that never run on it.

    Raises:
        DeviceError: if LLVM knows no such CPU.
    """
    try:
        llvm = compiler.llvm()
    except ImportError:
        return Host(platform.machine() or "CPU", "", 128, False, available())
    name, triple = os.environ.get("SYMGRAD_CPU", ""), llvm.get_process_triple()
    if name:
        return _named(name, triple)
    has, cpu = llvm.get_host_cpu_features(), llvm.get_host_cpu_name()
    return _host(cpu, has.flatten(), {f for f, on in has.items() if on}, triple)


def _host(name: str, features: str, has: Collection[str], triple: str, *lacking: str) -> Host:
    bits = 512 if "avx512f" in has else 256 if "avx" in has else 128
    fused = "fma" in has or _architecture(triple) == "aarch64"
    return Host(name, features, bits, fused, available(), triple, lacking)


def _architecture(triple: str) -> str:
    """The architecture of a triple, by its key in `FEATURES` if it has one."""
    name = triple.partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def _named(name: str, triple: str) -> Host:
    """The CPU of that name, which this machine is taken for."""
    llvm, own = compiler.llvm(), _architecture(triple)
    elsewhere = [t for t in TRIPLES if _architecture(t) != own]
    for where in (triple, *elsewhere):
        has = _features(name, where)
        if has is None:
            continue
        if where != triple:
            return _host(name, "", has, where, f"{_architecture(where)} instructions")
        flags = llvm.get_host_cpu_features()
        arguments = llvm.get_host_cpu_name(), flags.flatten(), FEATURES.get(own, ())
        native = compiler.features_of(*arguments, triple)
        without = ",".join(f"-{f}" for f, on in flags.items() if not on)
        return _host(name, without, has, triple, *[f for f in has if f not in native])
    levels = ", ".join(f"{level} ({vectors})" for level, vectors in LEVELS.items())
    raise DeviceError(
        f"SYMGRAD_CPU={name!r}: LLVM knows no such CPU; name a level of x86-64, which is one of "
        f"{levels}, or a CPU as LLVM calls it, such as haswell, znver4 or neoverse-n1"
    )


def _features(name: str, triple: str) -> list[str] | None:
    """Which of `FEATURES` a CPU has, or None if LLVM has no such CPU for this triple.

    It is asked in a process of its own, which LLVM may end; of the levels it is known.
    """
    architecture = _architecture(triple)
    request = {
        "cpu": name,
        "features": "",
        "candidates": FEATURES.get(architecture, ()),
        "triple": triple,
    }
    if architecture == "x86_64" and name in LEVELS:
        return compiler.features_of(**request)
    command = compiler.program()
    if command is None or name == "help" or not re.fullmatch(r"[\w.+-]+", name):
        return None
    order = json.dumps({"path": sys.path, **request})
    done = subprocess.run(command, input=order, capture_output=True, text=True, check=False)
    if done.returncode or "not a recognized processor" in done.stderr:
        return None
    return json.loads(done.stdout)


NAME: Final = re.compile(r"[0-9a-f]{64}(\.\w+)?\.code")
"""The names of files: a key, and a mark where the file is not finished yet."""

MOST_BYTES: Final = 256 * 2**20
"""The most that is kept, beyond what was just written; what was used longest ago goes."""

RECENT_SECONDS: Final = 60
"""How long a file is kept after it was used, whatever its size."""


class CodeFiles:
    """The code that is kept in a folder, by keys that are hashes; ``most`` bytes of it, about."""

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self.folder, self.most = folder, most

    def read(self, key: str) -> bytes | None:
        """The entry under a key, if it is whole and was written under that key."""
        path = self.folder / f"{key}.code"
        try:
            content = path.read_bytes()
        except OSError:
            return None
        compiled = compiler.unsealed(key, content)
        if compiled is not None:
            with contextlib.suppress(OSError):  # a disk that can only be read
                os.utime(path)
        return compiled

    def write(self, key: str, compiled: bytes) -> None:
        """Keep code under a key: whole or not at all, whoever else writes it at the same time."""
        content = compiler.sealed(key, compiled)
        with contextlib.suppress(OSError):
            unfinished = self._unfinished(key, content)
            try:
                os.replace(unfinished, self.folder / f"{key}.code")
            except OSError:
                os.unlink(unfinished)
            if self._is_turn(key, len(content)):
                self.prune()

    def _unfinished(self, key: str, content: bytes) -> str:
        """A file with this content under a name that nobody reads."""
        handle, path = tempfile.mkstemp(prefix=f"{key}.", suffix=".code", dir=self.folder)
        try:
            with open(handle, "wb") as file:
                file.write(content)
        except OSError:
            os.unlink(path)
            raise
        return path

    def _is_turn(self, key: str, size: int) -> bool:
        """Whether to prune after this write, which takes a look at every file.

        Once in ``most / 16`` bytes that all processes together write, on average: keys are hashes,
        so those below a number are drawn at random. A write thus looks at 16 files on average,
        however many there are.
        """
        return int(key[:8], 16) * self.most < 16 * size << 32

    def prune(self) -> None:
        """Delete what was used longest ago of the files written here, where too much is kept.

        What was used within ``RECENT_SECONDS`` stays, since another process may be about to read
        it.
        """
        with os.scandir(self.folder) as entries:
            ours = [
                e for e in entries if NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)
            ]
        files = sorted((s.st_mtime, s.st_size, e.path) for e in ours if (s := _state(e)))
        total, now = sum(size for _, size, _ in files), time.time()
        for used, size, path in files:
            if total <= self.most or used > now - RECENT_SECONDS:
                break
            with contextlib.suppress(OSError):
                if self.is_code(path) and os.stat(path).st_mtime == used:
                    os.unlink(path)
            total -= size

    def is_code(self, path: str) -> bool:
        """Whether a file begins as those that are written here do, whichever version wrote it."""
        with open(path, "rb") as file:
            return file.read(len(compiler.MARK)) == compiler.MARK


def _state(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The size and the time of a file, or None where another process has deleted it."""
    with contextlib.suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None


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
    """Machine code in memory: ``address`` is that of its function ``run``, or else of `ENTRY`.

    ``entry`` is that of its function `ENTRY`, or 0.
    """

    def __init__(self, compiled: bytes) -> None:
        binding, machine = llvm(), compiler.target_machine("", "")  # it compiles nothing
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        engine.add_object_file(binding.ObjectFileRef.from_data(compiled))
        engine.finalize_object()
        self._engine = engine
        self.entry: int = engine.get_function_address(ENTRY)
        self.address: int = engine.get_function_address("run") or self.entry
        assert self.address, "the module defines one of them"


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


def compiled(lines: Sequence[str], parameters: Sequence[str]) -> tuple[str, Code]:
    """The type in C, and the code, of the function ``run`` of a module of these lines."""
    source = module(lines, parameters, 0, 1)
    return source.kind, compile_source(source)


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
