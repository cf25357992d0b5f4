"""The CPU as LLVM sees it: vectors, compiler, and compiled code kept in memory and on disk."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
import tempfile
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symgrad.llvm.body import Source
from symgrad.llvm.instruction import BITS, Shape

FORMAT: Final = "1"
"""Changes when what is kept on disk does."""

CACHE_BYTES: Final = 256 * 2**20
"""The most that is kept on disk; the files used longest ago go first."""


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
    parts = (FORMAT, *where, str(source.effort), source.text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def cache_folder() -> Path | None:
    """Where compiled code is kept: SYMGRAD_CACHE, or the system's folder for such; None for "".

    Nothing is kept where the folder cannot be made.
    """
    chosen = os.environ.get("SYMGRAD_CACHE")
    if chosen == "":
        return None
    folder = Path(chosen) if chosen else _system_cache() / "symgrad"
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
    path = folder / key
    try:
        content = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    digest, compiled = content[:32], content[32:]
    return compiled if hashlib.sha256(compiled).digest() == digest else None


def _write(key: str, compiled: bytes) -> None:
    folder = cache_folder()
    if folder is None:
        return
    try:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(hashlib.sha256(compiled).digest() + compiled)
        os.replace(file.name, folder / key)
        _prune(folder)
    except OSError:
        return


def _prune(folder: Path) -> None:
    """Delete what was used longest ago, where too much is kept."""
    files = [(p.stat(), p) for p in folder.iterdir() if p.is_file()]
    total = sum(s.st_size for s, _ in files)
    for s, path in sorted(files, key=lambda entry: entry[0].st_mtime):
        if total <= CACHE_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= s.st_size
