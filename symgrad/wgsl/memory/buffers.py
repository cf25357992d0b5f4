"""The storage buffers of a device, made once and used again, and those that the host sees.

Recycling matters for speed: a fresh buffer costs an allocation and, because WebGPU promises
zeros, a pass over its memory. It is safe without waiting, because a device runs its submits in
order.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from symgrad.errors import DeviceMemoryError
from symgrad.kernel.host.threads import assign

IDLE_BYTES = 1 << 28
"""Idle bytes that a pool keeps for a while, however few were in use."""

KEEP_SECONDS = 10.0
"""How long an idle buffer is kept."""

SWEEPS = 4
"""Times that a pool looks for idle buffers within these seconds."""


class Holder(Protocol):
    """Who keeps memory of a device from one call to the next."""

    def let_go(self) -> None:
        """Give it back, unless a call is under way."""
        ...


class Shelved(NamedTuple):
    """An idle buffer; no two have one ``key``, so that these alone are compared."""

    key: int
    buffer: Any
    since: float


class Pool:
    """The storage buffers of one device, in use or idle, to be used again.

    A loop that takes again what it let go finds all of it, whatever its size, and in the same order
    however it was let go, so that it finds the bind groups that it had. An idle buffer is let go
    when nobody has used it for ``keep_seconds``, by a thread that looks now and then; or, the
    longest unused first, when a new one would exceed ``limit`` bytes in all, or the idle ones would
    have more bytes than are of use: twice the most that was lately in use.

    Invariants:

    1. A buffer is in ``_taken`` or on the shelf of its size, a heap by ids; or it is in
       ``_returned`` as well, from where `_tidy` shelves it.
    2. Those in use are held here too, because the garbage collector finalizes all that it finds
       unreachable at once: a buffer found with its last user would come back released.
    3. Only the holder of ``_lock`` touches anything but ``_returned``, to which finalizers append
       at any moment, also within a method of the pool in the same thread, or in a forked child.
    """

    def __init__(
        self,
        create: Callable[[int], Any],
        forget: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        """``forget`` is called before buffers are let go, for whoever remembers them by id."""
        self.limit: int | None = None
        self.keep_seconds = keep_seconds
        self._create, self._forget, self._clock = create, forget, clock
        self._lock = threading.Lock()
        self._watched = False
        self._taken: dict[int, Any] = {}
        self._live = 0
        self._peaks = deque([0], SWEEPS)
        self._shelves: dict[int, list[Shelved]] = {}
        self._returned: deque[Any] = deque()

    @property
    def live(self) -> int:
        """The bytes of buffers in use."""
        with self._lock:
            self._tidy()
            return self._live

    @property
    def idle(self) -> int:
        """The bytes of buffers that are kept to be used again."""
        with self._lock:
            self._tidy()
            return self._kept()

    def take(self, nbytes: int) -> Any:
        """A buffer of at least ``nbytes``, with anything in it.

        Raises:
            DeviceMemoryError: the limit leaves no room for it, or the device has none.
        """
        size = rounded(nbytes)
        with self._lock:
            self._tidy()
            shelf = self._shelves.get(size)
            if shelf:
                buffer = heapq.heappop(shelf).buffer
                self._use(buffer)
                return buffer
            surplus = self._surplus(size)
        self._let_go(surplus)
        del surplus
        buffer = self._create(size)
        with self._lock:
            self._use(buffer)
            self._watch()
        return buffer

    def give(self, buffer: Any) -> None:
        """Take back a buffer; may be called by a finalizer."""
        self._returned.append(buffer)

    def clear(self) -> int:
        """Let go of all idle buffers: how many bytes these were."""
        with self._lock:
            self._tidy()
            freed = self._kept()
            surplus = [it.buffer for shelf in self._shelves.values() for it in shelf]
            self._shelves.clear()
        self._let_go(surplus)
        return freed

    def sweep(self) -> bool:
        """Let go of what has long been idle; whether the pool still has any buffer."""
        with self._lock:
            self._tidy()
            self._live = sum(buffer.size for buffer in self._taken.values())
            self._peaks.append(self._live)
            before = self._clock() - self.keep_seconds
            shelved = [it for shelf in self._shelves.values() for it in shelf]
            surplus = self._unshelved([it for it in shelved if it.since <= before])
            del shelved
            self._watched = bool(self._taken or self._kept())
            watched = self._watched
        self._let_go(surplus)
        return watched

    def _let_go(self, surplus: list[Any]) -> None:
        """Called without the lock, because wgpu has locks too; the buffers go with the list."""
        if surplus:
            self._forget()

    def _use(self, buffer: Any) -> None:
        """Note a buffer as taken."""
        self._taken[id(buffer)] = buffer
        self._live += buffer.size
        if self._live > self._peaks[-1]:
            self._peaks[-1] = self._live

    def _kept(self) -> int:
        """The bytes on all shelves."""
        return sum(size * len(shelf) for size, shelf in self._shelves.items())

    def _tidy(self) -> None:
        """Shelve what was returned."""
        if self._returned:
            now = self._clock()
            while self._returned:
                buffer = self._returned.popleft()
                shelf = self._shelves.setdefault(buffer.size, [])
                heapq.heappush(shelf, Shelved(id(buffer), buffer, now))
                del self._taken[id(buffer)]
                self._live -= buffer.size

    def _unshelved(self, some: Sequence[Shelved]) -> list[Any]:
        """Buffers that are taken from their shelves, wherever they lie there."""
        keys = {it.key for it in some}
        for size in {it.buffer.size for it in some}:
            shelf = [it for it in self._shelves[size] if it.key not in keys]
            heapq.heapify(shelf)
            self._shelves[size] = shelf
        return [it.buffer for it in some]

    def _surplus(self, size: int) -> list[Any]:
        """Buffers to drop before one of this size is made, the longest unused first."""
        limit = math.inf if self.limit is None else self.limit
        if self._live + size > limit:
            raise DeviceMemoryError(
                f"arrays in use have {self._live:,} bytes, and {size:,} more are beyond the limit "
                f"of {limit:,}: run fewer points at a time, or let go of arrays"
            )
        useful = max(IDLE_BYTES, 2 * max(*self._peaks, self._live + size))
        least = self._kept() + size - min(useful, limit - self._live)
        surplus: list[Shelved] = []
        if least > 0:
            shelved = (it for shelf in self._shelves.values() for it in shelf)
            for it in sorted(shelved, key=lambda it: it.since):
                if least <= 0:
                    break
                surplus.append(it)
                least -= it.buffer.size
        return self._unshelved(surplus)

    def _watch(self) -> None:
        """See to it that a thread sweeps."""
        if not self._watched:
            with contextlib.suppress(RuntimeError):  # where no thread starts, as at Python's end
                arguments = weakref.ref(self), self.keep_seconds / SWEEPS
                threading.Thread(target=_watch, args=arguments, daemon=True).start()
                self._watched = True


def _watch(pool: weakref.ref[Pool], seconds: float) -> None:
    """Sweep a pool as long as it has buffers, every so many seconds."""
    while True:
        time.sleep(seconds)
        live_pool = pool()
        if live_pool is None or not live_pool.sweep():
            return
        del live_pool


@functools.lru_cache(256)
def rounded(nbytes: int) -> int:
    """A size for ``nbytes``: at most an eighth more, so that few sizes serve many arrays."""
    return -(-max(nbytes, 1) // _step(nbytes)) * _step(nbytes)


def rounded_down(nbytes: int) -> int:
    """The largest size that ``rounded`` gives for at most ``nbytes``."""
    return nbytes // _step(nbytes) * _step(nbytes)


def _step(nbytes: int) -> int:
    return max(256, 1 << max(nbytes.bit_length() - 4, 0))


class Storage:
    """A storage buffer that goes back to its pool when nobody uses it any more."""

    __slots__ = ("__weakref__", "_pool", "buffer", "nbytes")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self._pool = pool
        self.nbytes = nbytes
        self.buffer = pool.take(nbytes)

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            self._pool.give(self.buffer)


# How the host sees memory of the device: mappable buffers, and two ways to map them.

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
