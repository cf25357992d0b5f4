"""A GPU that has been opened: its queue, clock, compiled pipelines, and memory.

Errors of wgpu leave here as ``DeviceError``, ``DeviceMemoryError`` or ``DeviceLostError``. An
invalid submit would abort the process, so sizes and states are checked before, and no buffer is
ever destroyed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError, DeviceLostError, DeviceMemoryError, SymgradError
from symgrad.kernel.host import watch
from symgrad.kernel.host.threads import QUEUED_BYTES, converted
from symgrad.values.arrays import PAIRS
from symgrad.wgsl.device.adapters import FLOAT64_FEATURES, GpuInfo, limits
from symgrad.wgsl.memory.buffers import (
    STAGING,
    Holder,
    Mapper,
    Pool,
    Staging,
    Storage,
    choose_mapper,
    rounded_down,
)
from symgrad.wgsl.memory.queue import (
    MOST_OFFSETS,
    Clear,
    Copy,
    Encoder,
    NativeEncoder,
    Queue,
    Work,
    choose_encoder,
)
from symgrad.wgsl.memory.transfer import Segment, Transfers

# When compute passes began and ended, by the device's own clock.

FEATURE: Final = "timestamp-query"
"""The feature that an adapter needs for it."""

PASSES: Final = 512
"""Compute passes of which the times are kept: those of later ones are not known."""

TIME_BYTES: Final = 8
"""Bytes of a time."""


class Timestamps:
    """The times of the compute passes that an encoder encodes between `start` and `stop`.

    Args:
        device: wgpu's, with the feature.
        native: wgpu's back end.
        encoder: what encodes the passes.
        create: makes a buffer of so many bytes for a usage.
        mapper: maps buffers.
    """

    def __init__(
        self,
        device: Any,
        native: Any,
        encoder: NativeEncoder,
        create: Callable[[int, str], Any],
        mapper: Mapper,
    ) -> None:
        self._device, self._encoder, self._mapper = device, encoder, mapper
        self._ffi = native.ffi
        self._set = device.create_query_set(type="timestamp", count=2 * PASSES)
        self._resolved = create(2 * PASSES * TIME_BYTES, "QUERY_RESOLVE|COPY_SRC")
        self._read = create(2 * PASSES * TIME_BYTES, STAGING)
        self._period = 1e-9 * native.lib.wgpuQueueGetTimestampPeriod(device.queue._internal)
        self._writes = self._ffi.new("WGPUPassTimestampWrites *")
        self._writes.querySet = self._set._internal
        self._pass = self._ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": self._writes})
        self._count = 0

    def start(self) -> None:
        """Forget all times."""
        self._count = 0

    def next(self) -> bool:
        """Have the next pass write its times; whether there is room for them."""
        if self._count == PASSES:
            self.stop()
            return False
        self._writes.beginningOfPassWriteIndex = 2 * self._count
        self._writes.endOfPassWriteIndex = 2 * self._count + 1
        self._encoder.passes = self._pass
        self._count += 1
        return True

    def stop(self) -> None:
        """Have passes write no times."""
        self._encoder.passes = self._ffi.NULL

    def seconds(self) -> np.ndarray:
        """How long each pass took, once all are done."""
        count = self._count
        if not count:
            return np.zeros(0)
        encoder = self._device.create_command_encoder()
        encoder.resolve_query_set(self._set, 0, 2 * count, self._resolved, 0)
        self._device.queue.submit([encoder.finish()])
        nbytes = 2 * count * TIME_BYTES
        self._encoder.submit([Copy(self._resolved, 0, self._read, 0, nbytes)])
        ticks = self._mapper.map(self._read, nbytes).view(np.uint64).reshape(-1, 2).copy()
        self._mapper.unmap(self._read)
        begun, ended = ticks.T
        return self._period * np.where(ended > begun, ended - begun, 0)


USERS: Final = "_is_the_users"
"""The attribute of exceptions that a guard lets pass."""


class Guard:
    """A context in which wgpu's errors become ours; without state, so threads may share it."""

    def __init__(self, translated: Callable[[Exception], Exception]) -> None:
        self._translated = translated

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SymgradError) or not isinstance(error, Exception):
            return
        if USERS in vars(error):
            return
        if isinstance(error, RuntimeError) or type(error).__name__.startswith("GPU"):
            raise self._translated(error) from error


@contextlib.contextmanager
def lifted() -> Generator[None]:
    """A context within a guard's, whose errors are the user's."""
    try:
        yield
    except Exception as error:
        vars(error)[USERS] = True
        raise


# --- shader modules -------------------------------------------------------------------------------
# How WGSL becomes a shader module: trusted with its loops, where this wgpu can do so.
#
# wgpu counts the iterations of every loop, so that drivers may not take one for endless, which
# costs short loops most of their time and keeps drivers from unrolling them. All loops of symgrad's
# kernels count to a bound. Bounds of arrays are checked all the same.

CHECKED_BOUNDS: Final = 1
"""wgpu's flag for the checks of arrays' bounds, without that for those of loops."""

TRIED: Final = "@compute @workgroup_size(1) fn main() {}"
"""A module that says whether this wgpu has the function."""

MakeModule = Callable[[str], Any]


def choose_modules(device: Any, native: Any) -> MakeModule:
    """Makes modules from WGSL: trusted if this wgpu has that, else by its documented function."""
    try:
        modules = TrustedModules(device, native)
        modules(TRIED)
    except Exception:  # whatever another version of wgpu raises
        return lambda source: device.create_shader_module(code=source)
    return modules


class TrustedModules:
    """Makes modules by the C function that ``native``, wgpu's back end, exports."""

    def __init__(self, device: Any, native: Any) -> None:
        self._device, self._ffi, self._lib = device, native.ffi, native.lib
        self._errors, self._module = native._api.error_handler, native._api.GPUShaderModule

    def __call__(self, source: str) -> Any:
        """The module; a RuntimeError has naga's message if it refuses the source."""
        ffi, text = self._ffi, source.encode()
        held = ffi.new("char[]", text)
        wgsl = ffi.new("WGPUShaderSourceWGSL *")
        wgsl.chain.sType = self._lib.WGPUSType_ShaderSourceWGSL
        wgsl.code.data, wgsl.code.length = held, len(text)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", wgsl)
        self._errors.capture("symgrad")
        try:
            module = self._lib.wgpuDeviceCreateShaderModuleTrusted(
                self._device._internal, descriptor, CHECKED_BOUNDS
            )
        finally:
            error = self._errors.release("symgrad")
        if error is not None:
            raise RuntimeError(error[1])
        return self._module("", module, self._device)


# --- the GPU --------------------------------------------------------------------------------------

Range = tuple[Any, int, int]
"""A bound part of a buffer: the buffer, the first byte, and how many."""

Bindings = tuple[int, int, tuple[int, ...]]
"""How many arrays a kernel reads, how many it may write, and the numbers of those that move."""

STORAGE = "STORAGE|COPY_SRC|COPY_DST"

FLOAT = np.dtype(np.float32)
"""The dtype that kernels compute in, unless they say something else."""

MAX_IN_FLIGHT = 128
"""Calls that wait for nothing, before waiting anyway, which bounds what is in flight."""

STREAMED_BYTES = 1 << 24
"""Device memory that points on the host and their results may take, which go through in turn."""

SCRATCH_BYTES = 1 << 31
"""Scratch memory that runs may take; larger batches go through it in turn."""

SOFTWARE_BYTES = 1 << 28
"""As `SCRATCH_BYTES`, for a driver in software, which is no faster with more."""

KEPT_BINDINGS = 8192
"""Bind groups that are kept; when there are more, it starts anew."""

IDLE_PIPELINES = 32
"""Pipelines that are kept though no kernel may have them: in llvmpipe one takes half a MiB."""

FORKED = (
    "this process was forked from one that used a GPU, which does not survive a fork: start it "
    'with multiprocessing.get_context("spawn")'
)


def _memory_of_machine() -> int | None:
    """The bytes of the host's memory, where the system tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


class Gpu:
    """An opened device with its queue, compiled pipelines and freed buffers.

    Invariants:

    1. It works only in the process that opened it (``pid``), and until it is ``lost``.
    2. A pipeline is compiled once per source and number of writable bindings, and lives as long as
       a kernel has it, or as it is among the last ``IDLE_PIPELINES``.
    3. Every wgpu object that outlives a call is in ``kept``: see ``_after_fork``.
    4. One binding has at most ``max_binding`` bytes, one buffer at most ``max_buffer``, and one
       kernel at most ``max_arrays`` of them beside the uniform block, of which ``max_moving`` move.

    Calls on arrays of the host go in one submit up to ``queued_bytes``, and in pieces of
    ``streamed_bytes`` beyond; ``scratch_bytes`` is the scratch memory that runs may take.
    """

    def __init__(self, info: GpuInfo, adapter: Any, native: Any) -> None:
        self.info = info
        about = (adapter.info.get(key, "") for key in ("vendor", "description"))
        self.driver = ", ".join(filter(None, about)) or "unknown"
        """The driver's name for itself, with its version where it says it."""
        self._native = native
        self.forked = False
        self.lost = False
        self.guard = Guard(self.translated)
        wanted = limits(adapter)
        self.max_binding = wanted["max-storage-buffer-binding-size"]
        self.max_buffer = rounded_down(wanted["max-buffer-size"])
        self.max_arrays = wanted["max-storage-buffers-per-shader-stage"]
        moving = wanted["max-dynamic-storage-buffers-per-pipeline-layout"]
        self.max_moving = min(moving, MOST_OFFSETS)
        self.queued_bytes, self.streamed_bytes = QUEUED_BYTES, STREAMED_BYTES
        self.scratch_bytes = SOFTWARE_BYTES if info.kind == "software" else SCRATCH_BYTES
        self.max_shared = wanted["max-compute-workgroup-storage-size"]
        features = [FEATURE] if FEATURE in adapter.features else []
        features += FLOAT64_FEATURES if info.float64 else ()
        with self.guard:
            self.device = adapter.request_device_sync(
                required_features=features, required_limits=wanted
            )
        self.kept: weakref.WeakSet[Any] = weakref.WeakSet([self.device, self.device.queue])
        self._cleared: weakref.WeakSet[Any] = weakref.WeakSet()
        self._layouts: Once[Bindings, tuple[Any, Any]] = Once(16)
        self._pipelines: Once[tuple[bytes, Bindings], Any] = Once(IDLE_PIPELINES)
        self._live: weakref.WeakValueDictionary[tuple[bytes, Bindings], Any] = (
            weakref.WeakValueDictionary()
        )
        self._tools: Once[Callable[[Gpu], Any], Any] = Once(16)
        self._params: Once[tuple[Any, ...], Any] = Once(256)
        self._holders: weakref.WeakValueDictionary[int, Holder] = weakref.WeakValueDictionary()
        self._forget_bindings()
        self.pool = Pool(lambda nbytes: self._create_buffer(nbytes, STORAGE), self._forget_bindings)
        if info.kind == "software":
            self.pool.limit = _memory_of_machine()
        self._module = choose_modules(self.device, native)
        self.mapper = choose_mapper(self.device, native)
        self.queue = Queue(choose_encoder(self.device, native))
        self._in_flight = 0
        self.transfers = Transfers(self.buffer, self.queue, self.mapper)

    def __repr__(self) -> str:
        return f"<Gpu {self.info.index}: {self.info}{', lost' * self.lost}>"

    def check(self) -> None:
        """Raise if this Gpu cannot be used: in a forked child, or when the device is lost."""
        if self.forked:
            raise DeviceError(FORKED)
        if self.lost:
            raise DeviceLostError(f"{self.info.name} was lost: compile the kernel again")

    def translated(self, error: Exception) -> DeviceError:
        """Our exception for one of wgpu's, which are told apart by their messages."""
        text = str(error).strip()
        message = text.lower()
        if "device is lost" in message or "device lost" in message:
            self.lost = True
            return DeviceLostError(f"{self.info.name} was lost: compile the kernel again\n{text}")
        if "enough memory" in message or "out of memory" in message or "outofmemory" in message:
            return DeviceMemoryError(f"{self.info.name} is full: run fewer points\n{text}")
        if "createshadermodule" in message or "createcomputepipeline" in message:
            text = (
                f"a kernel that symgrad wrote: this is a bug of symgrad, please report it\n{text}"
            )
        return DeviceError(f"{self.info.name} refused {text}")

    # Compiling

    def pipeline(
        self, source: str, writable: int, readable: int = 1, moving: tuple[int, ...] = ()
    ) -> Any:
        """The compiled WGSL module, whose bindings from 1 on are storage buffers.

        The first ``readable`` are only read, the other ``writable`` may be written. Those of the
        numbers ``moving``, from 0 on, begin where each step says (WebGPU's dynamic offsets).
        """
        self.check()
        key = hashlib.sha256(source.encode()).digest(), (readable, writable, moving)
        return self._pipelines.get(key, lambda: self._live_or_compiled(key, source))

    def _live_or_compiled(self, key: tuple[bytes, Bindings], source: str) -> Any:
        """The pipeline that some kernel still has, or a new one."""
        pipeline = self._live.get(key)
        if pipeline is None:
            pipeline = self._live[key] = self._compile(source, key[1])
        return pipeline

    def _compile(self, source: str, bindings: Bindings) -> Any:
        """A compute pipeline with entry point "main"; naga's message if it refuses the source."""
        layout = self._layout(bindings)[1]
        with self.guard, watch.stage("compile"):
            stage = {"module": self._module(source), "entry_point": "main"}
            return self._keep(self.device.create_compute_pipeline(layout=layout, compute=stage))

    def _layout(self, bindings: Bindings) -> tuple[Any, Any]:
        """Bind group layout and pipeline layout of a kernel that binds these."""
        return self._layouts.get(bindings, lambda: self._make_layout(*bindings))

    def _make_layout(self, readable: int, writable: int, moving: Sequence[int]) -> tuple[Any, Any]:
        kinds = ["uniform"] + ["read-only-storage"] * readable + ["storage"] * writable
        buffers = (
            {"type": kind, "has_dynamic_offset": n - 1 in moving} for n, kind in enumerate(kinds)
        )
        entries = [
            {"binding": binding, "visibility": "COMPUTE", "buffer": buffer}
            for binding, buffer in enumerate(buffers)
        ]
        with self.guard:
            group = self._keep(self.device.create_bind_group_layout(entries=entries))
            pipeline = self.device.create_pipeline_layout(bind_group_layouts=[group])
            return group, self._keep(pipeline)

    def tool(self, make: Callable[[Gpu], Any]) -> Any:
        """The tool that ``make`` makes of this GPU, made once and kept as long as the GPU."""
        return self._tools.get(make, lambda: make(self))

    @property
    def encoder(self) -> Encoder:
        """The encoder of all that is submitted."""
        return self.queue.encoder

    def timestamps(self) -> Timestamps | None:
        """The device's clock for what it computes, or None where it or this wgpu has none."""
        encoder = self.encoder
        if FEATURE not in self.device.features or not isinstance(encoder, NativeEncoder):
            return None
        with self.guard:
            return Timestamps(self.device, self._native, encoder, self.buffer, self.mapper)

    # Memory

    def buffer(self, nbytes: int, usage: str) -> Any:
        """A new buffer; if the device is full, all that is idle is let go first."""
        try:
            return self._create_buffer(nbytes, usage)
        except DeviceMemoryError:
            self._require_size(nbytes)
        self.free()
        return self._create_buffer(nbytes, usage)

    def _create_buffer(self, nbytes: int, usage: str) -> Any:
        self._require_size(nbytes)
        with self.guard:
            return self._keep(self.device.create_buffer(size=nbytes, usage=usage))

    def _require_size(self, nbytes: int) -> None:
        """Refuse what no buffer holds."""
        if nbytes > self.max_buffer:
            raise DeviceMemoryError(
                f"{self.info.name} has no array of {nbytes:,} bytes (at most {self.max_buffer:,}): "
                "run fewer points at a time"
            )

    def storage(self, nbytes: int) -> Storage:
        """A storage buffer of at least ``nbytes`` with anything in it, recycled where possible.

        If the device is full, all that is idle is let go first.
        """
        try:
            return Storage(self.pool, nbytes)
        except DeviceMemoryError:
            self._require_size(nbytes)
        self.free()
        return Storage(self.pool, nbytes)

    def clear(self, storages: Iterable[Storage]) -> None:
        """Clear storage buffers that kernels are to write to where steps say, each once for all.

        wgpu clears what it takes for unwritten before that is read, and sees no such writes.
        """
        new = [s.buffer for s in storages if s.buffer not in self._cleared]
        if new:
            self.submit_unwaited([*map(Clear, new)])
            self._cleared.update(new)

    def constants(self, numbers: Sequence[float], dtype: np.dtype[Any] = FLOAT) -> Storage:
        """Floats of a dtype in a storage buffer, which nobody changes."""
        data = converted(np.array(numbers, np.float64), dtype)
        storage = self.storage(data.nbytes)
        self.write(storage.buffer, 0, data)
        return storage

    def hold(self, holder: Holder) -> None:
        """Note who keeps memory between calls, to ask for it when the device is full."""
        self._holders[id(holder)] = holder

    def free(self) -> int:
        """Let go of memory that no call uses and no array is in: how many bytes these were."""
        for reference in self._holders.valuerefs():
            holder = reference()
            if holder is not None:
                holder.let_go()
        freed = self.transfers.nbytes + self.pool.clear()
        self.transfers.let_go()
        self.wait()
        return freed

    def staging(self) -> Staging:
        """A way back to the host, of its own."""
        return Staging(lambda nbytes: self.buffer(nbytes, STAGING), self.mapper)

    def upload(
        self, storage: Storage, array: np.ndarray, dtype: np.dtype[Any] | None = None
    ) -> None:
        """Copy an array, as numbers of a dtype, to the start of a storage buffer.

        They are under way when this returns, and the array may be changed.
        """
        self.check()
        with self.guard, self.transfers.upload() as up:
            up.put(array, storage.buffer, dtype=dtype)

    def download(
        self,
        storage: Storage,
        array: np.ndarray,
        first: int = 0,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        """Fill an array with the numbers of a dtype in a storage buffer, from byte ``first`` on."""
        self.check()
        with self.guard, self.transfers.download() as down:
            down.get(Segment(array, storage.buffer, first, dtype or array.dtype))

    # Work

    def bind(
        self,
        count: int,
        arrays: Sequence[Range],
        readable: int = 1,
        arguments: Sequence[int] = (),
        dtype: np.dtype[Any] = FLOAT,
        moving: tuple[int, ...] = (),
    ) -> Any:
        """The bind group of a dispatch: the block for ``count`` points, then the arrays in order.

        The first ``readable`` arrays are only read, and some are ``moving``: see `pipeline`. The
        block ends with the kernel's ``arguments``, and has floats of the ``dtype`` that it computes
        in. It is kept, since the pool hands out the same buffers again and again.
        """
        block, form = (dtype, count, *arguments), (readable, len(arrays) - readable, moving)
        key = block, form, *[(id(buffer), start, nbytes) for buffer, start, nbytes in arrays]
        return self.bound(key, lambda: self._make_bindings(block, arrays, form))

    def bound(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Bind groups by a ``key`` that has the ids of all their buffers, kept as by ``bind``."""
        bindings = self._bindings
        groups = bindings.get(key)
        if groups is None:
            groups = make()
            if len(bindings) >= KEPT_BINDINGS:
                self._forget_bindings()
            self._bindings[key] = groups
        return groups

    def _make_bindings(
        self, block: tuple[Any, ...], arrays: Sequence[Range], form: Bindings
    ) -> Any:
        params = self._params.get(block, lambda: self._make_params(*block))
        ranges = [(params, 0, params.size), *arrays]
        entries = [
            {"binding": binding, "resource": {"buffer": buffer, "offset": start, "size": nbytes}}
            for binding, (buffer, start, nbytes) in enumerate(ranges)
        ]
        layout = self._layout(form)[0]
        return self._keep(self.device.create_bind_group(layout=layout, entries=entries))

    def _forget_bindings(self) -> None:
        """Start anew, because a bind group keeps its buffers, and their ids may come again."""
        self._bindings: dict[tuple[Any, ...], Any] = {}

    def _make_params(self, dtype: np.dtype[Any], count: int, *arguments: int) -> Any:
        """The uniform block (count, zero, infinity, nan), and a kernel's arguments.

        Zero is a word as wide as the floats, of which the block is a whole multiple.
        """
        scalar = FLOAT if dtype == PAIRS else dtype
        wide = scalar.itemsize // 4
        floats = np.array([0.0, np.inf, np.nan], scalar).view(np.uint32)
        rest = [*arguments, *[0] * (len(arguments) % wide)]
        block = np.array([count, *[0] * (wide - 1), *floats, *rest], np.uint32)
        buffer = self.buffer(block.nbytes, "UNIFORM|COPY_DST")
        self.write(buffer, 0, block)
        return buffer

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        """Write bytes to a buffer, ahead of the next submit."""
        self.queue.write(buffer, start, data)

    def submit(self, work: Sequence[Work]) -> None:
        """Start steps and copies."""
        self.queue.submit(work)

    def submit_unwaited(self, work: Sequence[Work]) -> None:
        """``submit``, soon, for a caller that waits for nothing: now and then it is waited."""
        self.queue.add(work)
        self._in_flight += 1
        if self._in_flight >= MAX_IN_FLIGHT:
            self.wait()

    def wait(self) -> None:
        """Wait until the device has done everything."""
        self._in_flight = 0
        self.queue.flush()
        self.mapper.wait()

    def _keep(self, item: Any) -> Any:
        """Note a wgpu object that outlives the call (invariant 3)."""
        self.kept.add(item)
        return item
