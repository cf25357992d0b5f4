"""The door to wgpu: which GPUs there are, and one ``Gpu`` for each that is opened.

Nothing happens on import: wgpu is loaded by the first question about GPUs. wgpu's errors leave here
as ``DeviceError``, ``DeviceMemoryError`` or ``DeviceLostError``, and none aborts the process: wgpu
does that for an invalid submit, so sizes and states are checked before, and no buffer is destroyed.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import itertools
import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from symgrad.errors import DeviceError, DeviceLostError, DeviceMemoryError, SymgradError

Value = TypeVar("Value")

BACKENDS = ("Vulkan", "Metal", "D3D12", "OpenGL", "OpenGLES")
"""Back ends of wgpu, best first."""

KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "software"}
"""wgpu's adapter types as ``GpuInfo.kind``; whatever else there may be is "unknown"."""

LIMITS = {
    "max-bind-groups": 4,
    "max-storage-buffers-per-shader-stage": 8,
    "max-uniform-buffers-per-shader-stage": 12,
    "max-uniform-buffer-binding-size": 65_536,
    "max-compute-workgroup-storage-size": 16_384,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroups-per-dimension": 65_535,
    "min-storage-buffer-offset-alignment": 256,
    "min-uniform-buffer-offset-alignment": 256,
}
"""WebGPU's default limits, which every kernel is written for; wgpu would give the adapter's own."""

MAX_BINDING = 1 << 31
"""Bytes in one binding at most: byte offsets in a kernel stay below 2**31."""

MAX_BUFFER = 1 << 40
"""Bytes in one buffer at most, for drivers that claim 2**63."""

ALIGNMENT = 256
"""Bytes: where a binding may start in a buffer."""

STORAGE = "STORAGE|COPY_SRC|COPY_DST"
IDLE_BYTES = 1 << 28
DOWNLOAD_FLOATS = 1 << 24
UPLOAD_BYTES = 1 << 28
SPIN_SECONDS = 2e-4
UNWAITED_SUBMITS = 256
FORKED = (
    "this process was forked from one that uses the GPU, and a GPU does not survive a fork; "
    'start it with multiprocessing.get_context("spawn") instead'
)


@dataclass(frozen=True)
class GpuInfo:
    """One adapter as users see it.

    ``kind`` is "discrete", "integrated", "software" or "unknown"; ``backend`` is wgpu's name of
    the interface to the driver, such as "Vulkan"; ``index`` is the place in ``list_gpus()``.
    """

    index: int
    name: str
    kind: str
    backend: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.backend})"


@dataclass
class _Process:
    """What this process knows of its GPUs."""

    adapters: tuple[tuple[GpuInfo, Any], ...] | None = None
    trouble: str = "wgpu found no adapter"
    opened: dict[int, Gpu] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


def list_gpus() -> tuple[GpuInfo, ...]:
    """All GPUs of this machine, real ones first; empty when there is no driver or no wgpu.

    An adapter that two back ends show is listed once. The answer is kept for the process.
    """
    return tuple(info for info, _ in _adapters())


def open_gpu(index: int | None = None) -> Gpu:
    """The GPU at ``index`` in ``list_gpus()``, opened once per process; None is the first.

    A GPU that was lost is opened anew. Raises DeviceError when there is no such GPU, and in a
    process that was forked from one with an open GPU: start that one with "spawn".
    """
    if any(gpu.pid != os.getpid() for gpu in _process.opened.values()):
        raise DeviceError(FORKED)
    info, adapter = _choose(0 if index is None else index)
    with _process.lock:
        gpu = _process.opened.get(info.index)
        if gpu is None or gpu.lost:
            gpu = _process.opened[info.index] = Gpu(info, adapter)
        return gpu


def _choose(index: int) -> tuple[GpuInfo, Any]:
    """The adapter at ``index``, or a DeviceError that says what there is."""
    adapters = _adapters()
    if not adapters:
        raise DeviceError(
            f'no GPU found: {_process.trouble}. Use device="cpu", or install a Vulkan driver '
            "(Debian's mesa-vulkan-drivers has one in software)"
        )
    if not 0 <= index < len(adapters):
        listed = "; ".join(f"{info.index}: {info}" for info, _ in adapters)
        raise DeviceError(f"no GPU {index}; this machine has {listed}")
    return adapters[index]


def _adapters() -> tuple[tuple[GpuInfo, Any], ...]:
    """The usable adapters, enumerated once."""
    if _process.adapters is None:
        with _process.lock:
            if _process.adapters is None:
                _process.adapters = _enumerate()
    return _process.adapters


def _enumerate() -> tuple[tuple[GpuInfo, Any], ...]:
    """Ask wgpu for its adapters; none when it cannot be loaded or finds no driver."""
    try:
        wgpu = importlib.import_module("wgpu")
        adapters = wgpu.gpu.enumerate_adapters_sync()
    except Exception as error:  # a missing package, library or driver fails in many ways
        _process.trouble = f"{type(error).__name__}: {error}"
        return ()
    best = _distinct(sorted(filter(_usable, adapters), key=_preference))
    return tuple((_info(index, adapter), adapter) for index, adapter in enumerate(best))


def _usable(adapter: Any) -> bool:
    """Whether the adapter is of a known back end and has WebGPU's default limits."""
    own = adapter.limits
    return adapter.info["backend_type"] in BACKENDS and all(
        own[name] <= limit if name.startswith("min-") else own[name] >= limit
        for name, limit in LIMITS.items()
    )


def _preference(adapter: Any) -> tuple[int, int]:
    """Sort key: real GPUs before software, better back ends before worse."""
    order = ("discrete", "integrated", "unknown", "software")
    kind = KINDS.get(adapter.info["adapter_type"], "unknown")
    return order.index(kind), BACKENDS.index(adapter.info["backend_type"])


def _distinct(adapters: Iterable[Any]) -> list[Any]:
    """Without those that a better back end shows too, under the same or a longer name."""
    chosen: list[Any] = []
    for adapter in sorted(adapters, key=lambda a: BACKENDS.index(a.info["backend_type"])):
        if not any(_same(adapter.info, other.info) for other in chosen):
            chosen.append(adapter)
    return sorted(chosen, key=_preference)


def _same(a: Any, b: Any) -> bool:
    """Whether two back ends mean one GPU; equal names in one back end are two GPUs."""
    one, other = a["device"].lower(), b["device"].lower()
    return a["backend_type"] != b["backend_type"] and (one in other or other in one)


def _info(index: int, adapter: Any) -> GpuInfo:
    """What users see of a wgpu adapter."""
    kind = KINDS.get(adapter.info["adapter_type"], "unknown")
    return GpuInfo(index, adapter.info["device"], kind, adapter.info["backend_type"])


class Gpu:
    """An opened device with its queue, limits, compiled pipelines and freed buffers.

    Invariants:

    1. It works only in the process that opened it (``pid``), and until ``lost``.
    2. A pipeline is compiled once per source and number of writable bindings.
    3. Every wgpu object that outlives a call is in ``_kept``: see ``_after_fork``.
    4. ``max_binding`` and ``max_buffer`` are what one binding and one buffer may have, in bytes.
    """

    def __init__(self, info: GpuInfo, adapter: Any) -> None:
        self.info = info
        self.pid = os.getpid()
        self.lost = False
        self.guard = _Guard(self)
        self.max_binding = min(adapter.limits["max-storage-buffer-binding-size"], MAX_BINDING)
        self.max_buffer = min(adapter.limits["max-buffer-size"], MAX_BUFFER)
        with self.guard:
            self._device = adapter.request_device_sync(required_limits=self._limits())
        self.queue = self._device.queue
        self._kept: weakref.WeakSet[Any] = weakref.WeakSet([self._device, self.queue])
        self._layouts: Once[int, tuple[Any, Any]] = Once(8)
        self._pipelines: Once[tuple[bytes, int], Any] = Once(512)
        self._params: Once[int, Any] = Once(256)
        self._unwaited = 0
        self.pool = BufferPool(self)
        self.mapper = _choose_mapper(self._device)
        self._download_lock = threading.Lock()
        self._readback = Staging(self)

    def __repr__(self) -> str:
        return f"<Gpu {self.info.index}: {self.info}{', lost' * self.lost}>"

    def _limits(self) -> dict[str, int]:
        """The limits to ask for: WebGPU's defaults, but the adapter's own sizes."""
        sizes = {
            "max-storage-buffer-binding-size": self.max_binding,
            "max-buffer-size": self.max_buffer,
        }
        return LIMITS | sizes

    def check(self) -> None:
        """Raise if this Gpu cannot be used: in a forked child, or when the device is lost."""
        if self.pid != os.getpid():
            raise DeviceError(FORKED)
        if self.lost:
            raise DeviceLostError(f"{self.info.name} was lost; compile the kernel again")

    def translated(self, error: Exception) -> SymgradError:
        """Our exception for one of wgpu's, told apart by its message."""
        text = str(error)
        if "lost" in text.lower():
            self.lost = True
            return DeviceLostError(f"{self.info.name} was lost; compile the kernel again ({text})")
        if "memory" in text.lower():
            return DeviceMemoryError(f"{self.info.name} is out of memory ({text})")
        return DeviceError(f"{self.info.name} reports: {text}")

    # Compiling

    def pipeline(self, source: str, writable: int) -> Any:
        """The compiled WGSL module, whose bindings 2, 3, .. are ``writable`` storage buffers."""
        self.check()
        key = hashlib.sha256(source.encode()).digest(), writable
        return self._pipelines.get(key, lambda: self._compile(source, writable))

    def _compile(self, source: str, writable: int) -> Any:
        """A compute pipeline with entry point "main", or a DeviceError with naga's message."""
        layout = self.layouts(writable)[1]
        try:
            with self.guard:
                module = self._device.create_shader_module(code=source)
                stage = {"module": module, "entry_point": "main"}
                return self._keep(self._device.create_compute_pipeline(layout=layout, compute=stage))
        except (DeviceLostError, DeviceMemoryError):
            raise
        except DeviceError as error:
            text = f"a kernel that symgrad wrote was refused, which is symgrad's fault; {error}"
            raise DeviceError(text) from error

    def layouts(self, writable: int) -> tuple[Any, Any]:
        """Bind group layout and pipeline layout of a kernel with that many writable buffers."""
        return self._layouts.get(writable, lambda: self._make_layouts(writable))

    def _make_layouts(self, writable: int) -> tuple[Any, Any]:
        kinds = ["uniform", "read-only-storage"] + ["storage"] * writable
        entries = [
            {"binding": binding, "visibility": "COMPUTE", "buffer": {"type": kind}}
            for binding, kind in enumerate(kinds)
        ]
        with self.guard:
            group = self._keep(self._device.create_bind_group_layout(entries=entries))
            pipeline = self._device.create_pipeline_layout(bind_group_layouts=[group])
        return group, self._keep(pipeline)

    # Buffers

    def buffer(self, nbytes: int, usage: str) -> Any:
        """A new buffer, after freeing idle ones if memory is short."""
        if nbytes > self.max_buffer:
            raise DeviceMemoryError(
                f"{self.info.name} has no buffers of {nbytes:,} bytes (at most "
                f"{self.max_buffer:,}); run fewer points at a time"
            )
        try:
            return self._create_buffer(nbytes, usage)
        except DeviceMemoryError:
            self.pool.clear()
            self.mapper.wait()
            return self._create_buffer(nbytes, usage)

    def _create_buffer(self, nbytes: int, usage: str) -> Any:
        with self.guard:
            return self._keep(self._device.create_buffer(size=nbytes, usage=usage))

    def storage(self, nbytes: int) -> Storage:
        """A storage buffer of at least ``nbytes``, recycled where possible."""
        self.check()
        return Storage(self.pool, nbytes)

    def params(self, count: int) -> Any:
        """The uniform block (count, zero, infinity, nan) of a dispatch for ``count`` points."""
        return self._params.get(count, lambda: self._make_params(count))

    def _make_params(self, count: int) -> Any:
        buffer = self.buffer(16, "UNIFORM|COPY_DST")
        block = np.array([count, 0, 0x7F800000, 0x7FC00000], np.uint32)
        self.queue.write_buffer(buffer, 0, block)
        return buffer

    def bind(self, count: int, ranges: Iterable[tuple[Any, int, int]]) -> Any:
        """The bind group of a dispatch: its block, then (buffer, offset, bytes) for each array."""
        resources = [(self.params(count), 0, 16), *ranges]
        entries = [
            {"binding": binding, "resource": {"buffer": buffer, "offset": start, "size": nbytes}}
            for binding, (buffer, start, nbytes) in enumerate(resources)
        ]
        layout = self.layouts(len(entries) - 2)[0]
        return self._keep(self._device.create_bind_group(layout=layout, entries=entries))

    # Work

    def encoder(self) -> Any:
        """A new command encoder."""
        return self._device.create_command_encoder()

    def submit(self, encoder: Any) -> None:
        """Start what was encoded; ``finish`` is where a lost device shows before it could abort."""
        self.queue.submit([encoder.finish()])

    def submit_unwaited(self, encoder: Any) -> None:
        """``submit`` for a caller that waits for nothing: now and then the queue runs empty."""
        self.submit(encoder)
        self._unwaited += 1
        if self._unwaited >= UNWAITED_SUBMITS:
            self._unwaited = 0
            self.mapper.wait()

    def upload(self, storage: Storage, array: np.ndarray) -> None:
        """Copy an array into a storage buffer; the copy is under way when this returns."""
        data = array.reshape(-1).view(np.uint8)
        with self.guard:
            for start in range(0, data.size, UPLOAD_BYTES):
                if start:
                    self.mapper.wait()
                self.queue.write_buffer(storage.buffer, start, data[start : start + UPLOAD_BYTES])
                self.submit(self.encoder())

    def download(self, storage: Storage, array: np.ndarray) -> None:
        """Fill a flat float32 array from the start of a storage buffer."""
        self.check()
        with self._download_lock, self.guard:
            for start in range(0, array.size, DOWNLOAD_FLOATS):
                part = array[start : start + DOWNLOAD_FLOATS]
                target = self._readback.claim(part.nbytes)
                encoder = self.encoder()
                encoder.copy_buffer_to_buffer(storage.buffer, 4 * start, target, 0, part.nbytes)
                self.submit(encoder)
                self._readback.read(part.nbytes, [(0, part)])

    def _keep(self, item: Any) -> Any:
        """Note a wgpu object that outlives the call (invariant 3)."""
        self._kept.add(item)
        return item


class _Guard:
    """A context in which errors of wgpu become errors of ours; it has no state of its own."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, SymgradError) or not isinstance(error, Exception):
            return
        if isinstance(error, RuntimeError) or type(error).__name__.startswith("GPU"):
            raise self._gpu.translated(error) from error


class Once[Key: Hashable, Value]:
    """placeholder"""
