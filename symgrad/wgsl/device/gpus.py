"""The door to wgpu: which GPUs there are, and one ``Gpu`` for each that is opened.

Nothing happens on import: wgpu is loaded by the first question about GPUs.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import _cffi_backend

from symgrad.errors import DeviceError
from symgrad.wgsl.device.adapters import GpuInfo, choose
from symgrad.wgsl.device.gpu import FORKED, Gpu, Range

# C types of wgpu by their names: cffi parses all its declarations for each name it has not met.


def name_types(native: Any) -> None:
    """Tell cffi the types that wgpu's C functions take by their names, which it looks up there.

    A name that it has to parse costs 20 ms, and a process that uses a GPU has 40 of them. Where
    cffi keeps names otherwise, it parses them.
    """
    with contextlib.suppress(AttributeError, TypeError):
        ffi, lib = native.ffi, native.lib
        pointers = dict[str, Any]()
        seen = set[Any]()
        functions = [getattr(lib, name) for name in dir(lib) if name.startswith("wgpu")]
        waiting = [ffi.typeof(function) for function in functions]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one.kind == "function":
                waiting += one.args
            elif one.kind == "pointer":
                waiting.append(one.item)
                pointers.setdefault(f"{one.item.cname} *", one)
            elif one.kind == "struct" and one.fields:
                waiting += [field.type for _, field in one.fields]
                pointers.setdefault(f"{one.cname} *", _cffi_backend.new_pointer_type(one))
        for name, pointer in pointers.items():
            known = {name: pointer}
            if pointer.item.kind == "struct" and pointer.item.fields:
                known[f"{pointer.item.cname}[]"] = _cffi_backend.new_array_type(pointer, None)
            for each, type_ in known.items():
                ffi._parsed_types.setdefault(each, (type_, False))


__all__ = [
    "Gpu",
    "GpuInfo",
    "Range",
    "another_gpu",
    "list_gpus",
    "open_gpu",
    "opened_gpu",
    "opened_gpus",
]

Adapters = tuple[tuple[GpuInfo, Any], ...]


@dataclass
class _Process:
    """The GPUs of this process."""

    adapters: Adapters | None = None
    trouble: str = "wgpu found no adapter"
    forked: bool = False
    opened: dict[int, Gpu] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_process = _Process()


def list_gpus() -> tuple[GpuInfo, ...]:
    """All GPUs of this machine, real ones first; empty without a driver or without wgpu.

    An adapter that two back ends show is listed once. The answer is kept for the process.
    """
    return tuple(info for info, _ in _adapters())


def open_gpu(index: int | None = None) -> Gpu:
    """The GPU at ``index`` in ``list_gpus()``, opened once per process; None is the first.

    A GPU that was lost is opened anew.

    Raises:
        DeviceError: there is no such GPU (the message says which there are, or what to install),
            or the process was forked from one that asked for its GPUs (start it with "spawn").
    """
    if _process.forked:
        raise DeviceError(FORKED)
    info, adapter = _at(0 if index is None else index)
    with _process.lock:
        gpu = _process.opened.get(info.index)
        if gpu is None or gpu.lost:
            gpu = _process.opened[info.index] = Gpu(info, adapter, native_wgpu())
        return gpu


def another_gpu(index: int | None = None, documented: bool = False) -> Gpu:
    """As `open_gpu`, but a device that no other kernel has, with queue and memory of its own.

    It is used by what wgpu documents alone, if so ``documented``, as where it has no C functions.
    """
    if _process.forked:
        raise DeviceError(FORKED)
    return Gpu(*_at(0 if index is None else index), None if documented else native_wgpu())


def opened_gpus() -> list[Gpu]:
    """The GPUs of which this process has opened any, and that are not lost."""
    return [gpu for gpu in _process.opened.values() if not gpu.lost]


def opened_gpu(index: int) -> Gpu | None:
    """The GPU at ``index``, if it has been opened."""
    if _process.forked:
        raise DeviceError(FORKED)
    return _process.opened.get(index)


def _at(index: int) -> tuple[GpuInfo, Any]:
    """The adapter at ``index``, or a DeviceError that says what there is."""
    adapters = _adapters()
    if not adapters:
        raise DeviceError(
            f'no GPU found ({_process.trouble}): use device="cpu", or install a Vulkan driver '
            "(Debian's mesa-vulkan-drivers has one in software)"
        )
    if not 0 <= index < len(adapters):
        listed = "; ".join(f"{info.index} is {info}" for info, _ in adapters)
        raise DeviceError(f"there is no GPU {index}: {listed}")
    return adapters[index]


def _adapters() -> Adapters:
    """The usable adapters, enumerated once."""
    if _process.adapters is None:
        with _process.lock:
            if _process.adapters is None:
                _process.adapters = _enumerate()
    return _process.adapters


def _enumerate() -> Adapters:
    """Ask wgpu for its adapters: none when it cannot be loaded, or finds no driver."""
    try:
        with _without_desktop():
            wgpu = importlib.import_module("wgpu")
            if native := native_wgpu():
                name_types(native)
            _leave_out_opengl()
            return choose(wgpu.gpu.enumerate_adapters_sync())
    except Exception as error:  # a missing package, library or driver fails in many ways
        _process.trouble = f"{type(error).__name__}: {error}"
        return ()


def _leave_out_opengl() -> None:
    """Tell wgpu not to load OpenGL drivers (see ``BACKENDS``), unless it already has."""
    with contextlib.suppress(Exception):
        extras = importlib.import_module("wgpu.backends.wgpu_native.extras")
        extras.set_instance_extras(backends=["Vulkan", "Metal", "DX12"])


@contextlib.contextmanager
def _without_desktop() -> Generator[None]:
    """Where no desktop runs, keep Mesa's Vulkan layer from asking one for its favourite GPU.

    It would complain on the terminal, several times, that XDG_RUNTIME_DIR is not set.
    """
    names = "MESA_VK_DEVICE_SELECT", "DRI_PRIME", "NODEVICE_SELECT"
    desktop = os.environ.get("XDG_RUNTIME_DIR", "").startswith("/")
    if desktop or any(name in os.environ for name in names):
        yield
        return
    os.environ["NODEVICE_SELECT"] = "1"
    try:
        yield
    finally:
        del os.environ["NODEVICE_SELECT"]


def native_wgpu() -> Any:
    """wgpu's back end with its C interface, or None if this wgpu has another."""
    try:
        return importlib.import_module("wgpu.backends.wgpu_native")
    except ImportError:
        return None


def _after_fork() -> None:
    """Let a forked child of a process that uses GPUs go on without them, and end.

    Wherever a driver cleans up, it waits for threads that only the parent has. So wgpu's objects
    are never freed: a reference too many on a list of them all keeps them, and costs nothing. And
    when Python has ended, the drivers' exit handlers do not run (multiprocessing runs none either).
    """
    _process.lock = threading.Lock()
    if _process.adapters is None:
        return
    _process.forked = True
    for gpu in _process.opened.values():
        gpu.forked = True
    objects = [list(gpu.kept) for gpu in _process.opened.values()]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object([objects, _process.adapters]))
    with contextlib.suppress(AttributeError):  # on_exit is glibc's
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
