"""How the host sees memory of the device: mappable buffers, and two ways to map them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from symgrad.kernel.host.threads import assign
from symgrad.wgsl.memory.pool import rounded

STAGING = "MAP_READ|COPY_DST"

SPIN_SECONDS = 2e-4
"""How long to ask whether a result is there before sleeping until it is: saves 40 us a call."""

MAX_POLLS = 10_000
"""Waits for an idle device after which the end of a map is given up; one is enough."""

NAP_SECONDS = 2e-5
"""How long to sleep between two looks at the maps of transfers."""

MAX_NAPS = 20_000
"""Looks after which it is no longer looked for one map, but waited for all that was submitted."""


class Mapper(Protocol):
    """A way to see the contents of mappable buffers, and to wait for the device."""

    def map(self, buffer: Any, nbytes: int) -> np.ndarray:
        """The first ``nbytes``, once everything submitted has run; until ``unmap``."""
        ...

    def start(self, buffer: Any, nbytes: int, write: bool = False) -> Any:
        """Ask for a map, to read or to write; what to ``finish``."""
        ...

    def finish(self, started: Any) -> None:
        """Wait until the device has done with the buffer of a map that was asked for."""
        ...

    def view(self, buffer: Any, nbytes: int, write: bool = False) -> np.ndarray:
        """The first ``nbytes`` of a mapped buffer, until ``unmap``."""
        ...

    def unmap(self, buffer: Any) -> None:
        """Give the buffer back to the device; what was seen of it is gone."""
        ...

    def wait(self) -> None:
        """Wait until everything submitted has run."""
        ...


class Staging:
    """One mappable buffer through which results come to the host; it grows when it must.

    Invariant: between ``claim`` and the end of ``read`` the buffer is busy, and one that was left
    busy by an exception or an interrupt is replaced: submitting a copy into a mapped buffer would
    abort the process.
    """

    def __init__(self, create: Callable[[int], Any], mapper: Mapper) -> None:
        self._create = create
        self._mapper = mapper
        self._buffer: Any = None
        self._busy = False

    def claim(self, nbytes: int) -> Any:
        """The buffer, of at least ``nbytes``, to encode a copy into."""
        if self._busy or self._buffer is None or self._buffer.size < nbytes:
            self._buffer = self._create(rounded(nbytes))
        self._busy = True
        return self._buffer

    def read(self, nbytes: int, parts: Iterable[tuple[int, np.ndarray, np.dtype[Any]]]) -> None:
        """Wait for the copy; fill each array from its first byte on, with numbers of a dtype."""
        data = self._mapper.map(self._buffer, nbytes)
        for first, array, dtype in parts:
            numbers = data[first : first + array.size * dtype.itemsize].view(dtype)
            assign(array, numbers.reshape(array.shape))
        self._mapper.unmap(self._buffer)
        self._busy = False


def choose_mapper(device: Any, native: Any) -> Mapper:
    """The fast way to map buffers if this wgpu has it, else the documented one."""
    try:
        mapper = PollingMapper(device, native)
        buffer = device.create_buffer(size=256, usage=STAGING)
        mapper.map(buffer, 256)
        mapper.unmap(buffer)
    except Exception:  # whatever another version of wgpu raises
        return WaitingMapper(device)
    return mapper


class WaitingMapper:
    """Maps through wgpu's documented interface, which waits for a polling thread of its own."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._drafts: dict[int, np.ndarray] = {}
        """Drafts of what is written to a buffer, by its id, as only copies can be."""

    def map(self, buffer: Any, nbytes: int) -> np.ndarray:
        """See ``Mapper``."""
        self.finish(self.start(buffer, nbytes))
        return self.view(buffer, nbytes)

    def start(self, buffer: Any, nbytes: int, write: bool = False) -> Any:
        """See ``Mapper``."""
        return buffer.map_async("WRITE" if write else "READ", 0, nbytes)

    def finish(self, started: Any) -> None:
        """See ``Mapper``."""
        started.sync_wait()

    def view(self, buffer: Any, nbytes: int, write: bool = False) -> np.ndarray:
        """See ``Mapper``."""
        if write:
            return self._drafts.setdefault(id(buffer), np.empty(nbytes, np.uint8))
        return np.frombuffer(buffer.read_mapped(0, nbytes, copy=False), np.uint8)

    def unmap(self, buffer: Any) -> None:
        """See ``Mapper``."""
        draft = self._drafts.pop(id(buffer), None)
        if draft is not None:
            buffer.write_mapped(draft, 0)
        buffer.unmap()

    def wait(self) -> None:
        """See ``Mapper``; to map a buffer is to wait for all that was submitted before."""
        buffer = self._device.create_buffer(size=256, usage=STAGING)
        self.map(buffer, 256)
        self.unmap(buffer)


_callbacks: list[object] = []
"""Functions that wgpu may call as long as the process lives."""


_waiting: set[int] = set()
"""The threads that wait for devices. To ask again and again takes Python's lock from the others, so
only a thread that waits alone does that."""


class PollingMapper:
    """Maps by polling the device in the calling thread, in 0.6 of the documented way's time.

    It uses the C functions that ``native``, wgpu's back end, exports. One callback serves all
    maps, told apart by a number, so an interrupted call leaves nothing dangling. A map ends in
    ``finished`` with None, what went wrong, or the exception that interrupted the callback.
    """

    def __init__(
        self, device: Any, native: Any, finished: dict[int, BaseException | None] | None = None
    ) -> None:
        self._ffi, self._lib = native.ffi, native.lib
        self._device = device
        self._numbers = itertools.count(1)
        self._finished = {} if finished is None else finished
        self._callback = _map_callback(self._ffi, self._lib, self._finished)
        _callbacks.append(self._callback)

    def map(self, buffer: Any, nbytes: int) -> np.ndarray:
        """See ``Mapper``."""
        number = self.start(buffer, nbytes)
        self._await(number)
        return self.view(buffer, nbytes)

    def finish(self, started: int) -> None:
        """See ``Mapper``; meanwhile other threads may submit, which a blocking poll prevents."""
        for nap in range(MAX_NAPS):
            if not nap:
                self._spin(started)
            if started in self._finished:
                break
            time.sleep(NAP_SECONDS)
            self._poll(False)
        self._await(started)

    def view(self, buffer: Any, nbytes: int, write: bool = False) -> np.ndarray:
        """See ``Mapper``."""
        address = self._lib.wgpuBufferGetMappedRange(buffer._internal, 0, nbytes)
        return np.frombuffer(self._ffi.buffer(address, nbytes), np.uint8)

    def _await(self, number: int) -> None:
        """Poll until the callback was called; in vain only if an interrupt kept it from noting."""
        for poll in range(MAX_POLLS):
            if not poll:
                self._spin(number)
            if number in self._finished:
                if error := self._finished.pop(number):
                    raise error
                return
            self._poll(True)
        raise RuntimeError("an interrupt hid the end of a call: repeat it")

    def _spin(self, number: int) -> None:
        """Poll for a while, until the callback was called."""
        me = threading.get_ident()
        deadline = time.perf_counter() + SPIN_SECONDS
        _waiting.add(me)
        try:
            while number not in self._finished and len(_waiting) == 1:
                if time.perf_counter() >= deadline:
                    break
                self._poll(False)
        finally:
            _waiting.discard(me)

    def start(self, buffer: Any, nbytes: int, write: bool = False) -> int:
        """See ``Mapper``: the number under which the end of the map will be in ``_finished``."""
        number = next(self._numbers)
        info = self._ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = self._lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = self._callback
        info.userdata1 = self._ffi.cast("void *", number)
        mode = self._lib.WGPUMapMode_Write if write else self._lib.WGPUMapMode_Read
        self._lib.wgpuBufferMapAsync(buffer._internal, mode, 0, nbytes, info[0])
        return number

    def unmap(self, buffer: Any) -> None:
        """See ``Mapper``."""
        self._lib.wgpuBufferUnmap(buffer._internal)

    def wait(self) -> None:
        """See ``Mapper``. A poll that does not block says nothing of what still runs on a GPU."""
        self._poll(True)

    def _poll(self, block: bool) -> None:
        """Let the device call back."""
        self._lib.wgpuDevicePoll(self._device._internal, block, self._ffi.NULL)


def _map_callback(ffi: Any, lib: Any, finished: dict[int, BaseException | None]) -> object:
    """A C callback that notes under its number how a map ended."""

    def interrupted(kind: object, error: BaseException, trace: Any) -> None:
        number = trace.tb_frame.f_locals["number"]
        finished[int(ffi.cast("uintptr_t", number))] = error

    @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", onerror=interrupted)
    def note(status: int, message: Any, number: Any, _: Any) -> None:
        failed = status != lib.WGPUMapAsyncStatus_Success
        error = RuntimeError(_text(ffi, message)) if failed else None
        finished[int(ffi.cast("uintptr_t", number))] = error

    return note


def _text(ffi: Any, message: Any) -> str:
    """A WGPUStringView, which has no length when it ends with a zero."""
    if message.data == ffi.NULL or not message.length:
        return "a buffer could not be mapped"
    has_length = message.length < 1 << 20
    text = ffi.string(message.data, message.length) if has_length else ffi.string(message.data)
    return text.decode(errors="replace")
