"""The CPU as LLVM sees it: vectors, compiler, and compiled code kept in memory and on disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import re
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symgrad.llvm.body import Source
from symgrad.llvm.instruction import BITS, Shape

HEADER: Final = b"symgrad's compiled code, format 2\n"
"""How every file on disk begins; changes when what follows does: a SHA-256 and what it is of."""

NAME: Final = re.compile(r"[0-9a-f]{64}(\.\w+)?\.code")
"""The names of files on disk: a key, and a mark where the file is not finished yet."""

CACHE_BYTES: Final = 256 * 2**20
"""The most that is kept on disk, beyond what was just written; what was used longest ago goes."""

RECENT_SECONDS: Final = 60
"""How long a file is kept after it was used, whatever its size."""


@dataclass(frozen=True)
class Host:
    """The CPU of this machine."""

    name: str
    features: str
    vector_bits: int
    fused: bool
    threads: int

    def shape(self, dtype: str, batch: bool, fuse: bool = True) -> Shape:
        """What instructions work on here: single numbers or whole vectors; fused, if wanted."""
        lanes = self.vector_bits // BITS[dtype] if batch else 1
        return Shape(dtype, lanes, self.fused and fuse)


@functools.cache
def _llvm() -> Any:
    """LLVM, ready to compile for this machine; loaded when it is first needed."""
    llvm = importlib.import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def host() -> Host:
    """This machine's CPU."""
    llvm = _llvm()
    features = llvm.get_host_cpu_features()
    on = {name for name, has in features.items() if has}
    bits = 512 if "avx512f" in on else 256 if "avx" in on else 128
    arm = llvm.get_process_triple().startswith(("aarch64", "arm64"))
    return Host(llvm.get_host_cpu_name(), features.flatten(), bits, "fma" in on or arm, _threads())


def _threads() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Code:
    """Machine code in memory: ``address`` is that of its function ``run``."""

    def __init__(self, compiled: bytes) -> None:
        llvm = _llvm()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(compiled))
        engine.finalize_object()
        self._engine = engine
        self.address: int = engine.get_function_address("run")
        assert self.address, "the module defines run"


_lock = threading.Lock()
_kept: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()


def compile_source(source: Source) -> Code:
    """The code of a module: from memory, from disk, or from the compiler."""
    key = _key(source)
    with _lock:
        code = _kept.get(key)
        if code is None:
            compiled = _read(key)
            if compiled is None:
                compiled = _compiled(source)
                _write(key, compiled)
            code = _kept[key] = Code(compiled)
        return code


def _machine(effort: int = 0) -> Any:
    """The target, made anew for each use: an engine takes possession of it."""
    llvm, cpu = _llvm(), host()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=cpu.name, features=cpu.features, opt=effort, jit=True)


def _compiled(source: Source) -> bytes:
    llvm = _llvm()
    module = llvm.parse_assembly(source.text)
    machine = _machine(source.effort)
    if "alwaysinline" in source.text:
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(0))
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, builder)
    return bytes(machine.emit_object(module))


# the disk -----------------------------------------------------------------------------------------


def _key(source: Source) -> str:
    llvm, cpu = _llvm(), host()
    version = ".".join(map(str, llvm.llvm_version_info))
    where = (version, llvm.get_process_triple(), cpu.name, cpu.features)
    parts = (*where, str(source.effort), source.text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def cache_folder() -> Path | None:
    """Where compiled code is kept: symgrad's own folder within that of SYMGRAD_CACHE.

    By default that is the system's folder for such; with "" nothing is kept, and nothing where the
    folder cannot be made. What else lies in these folders is left alone.
    """
    chosen = os.environ.get("SYMGRAD_CACHE")
    if chosen == "":
        return None
    folder = (Path(chosen) if chosen else _system_cache()) / "symgrad" / "code"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def _system_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _read(key: str) -> bytes | None:
    """What is kept under a key, if it is whole: a broken object file would end the process."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / f"{key}.code"
    try:
        content = path.read_bytes()
    except OSError:
        return None
    compiled = content[len(HEADER) + 32 :]
    if content != HEADER + hashlib.sha256(compiled).digest() + compiled:
        return None
    with contextlib.suppress(OSError):  # a disk that can only be read
        os.utime(path)
    return compiled


def _write(key: str, compiled: bytes) -> None:
    """Keep code under a key: whole or not at all, whoever else writes it at the same time."""
    folder = cache_folder()
    if folder is None:
        return
    content = HEADER + hashlib.sha256(compiled).digest() + compiled
    with contextlib.suppress(OSError):
        unfinished = _unfinished(folder, key, content)
        try:
            os.replace(unfinished, folder / f"{key}.code")
        except OSError:
            os.unlink(unfinished)
        if _is_turn(key, len(content)):
            _prune(folder)


def _unfinished(folder: Path, key: str, content: bytes) -> str:
    """A file with this content under a name that nobody reads."""
    handle, path = tempfile.mkstemp(prefix=f"{key}.", suffix=".code", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(content)
    except OSError:
        os.unlink(path)
        raise
    return path


def _is_turn(key: str, size: int) -> bool:
    """Whether to prune after this write, which takes a look at every file.

    Once in ``CACHE_BYTES / 16`` bytes that all processes together write, on average: keys are
    hashes, so those below a number are drawn at random. A write thus looks at 16 files on average,
    however many there are.
    """
    return int(key[:8], 16) * CACHE_BYTES < 16 * size << 32


def _prune(folder: Path) -> None:
    """Delete what was used longest ago of the files written here, where too much is kept.

    What was used within ``RECENT_SECONDS`` stays, since another process may be about to read it.
    """
    with os.scandir(folder) as entries:
        ours = [e for e in entries if NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
    files = sorted((s.st_mtime, s.st_size, e.path) for e in ours if (s := _state(e)))
    total, now = sum(size for _, size, _ in files), time.time()
    for used, size, path in files:
        if total <= CACHE_BYTES or used > now - RECENT_SECONDS:
            break
        with contextlib.suppress(OSError):
            if _is_written_here(path) and os.stat(path).st_mtime == used:
                os.unlink(path)
        total -= size


def _state(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The size and the time of a file, or None where another process has deleted it."""
    with contextlib.suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None


def _is_written_here(path: str) -> bool:
    """Whether a file begins as those of this cache do."""
    with open(path, "rb") as file:
        return file.read(len(HEADER)) == HEADER
