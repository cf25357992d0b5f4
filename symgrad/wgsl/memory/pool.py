"""The storage buffers of a device, which are made once and used again.

Recycling matters for speed: a fresh buffer costs an allocation and, because WebGPU promises
zeros, a pass over its memory. It is safe without waiting, because a device runs its submits in
order.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from symgrad.errors import DeviceMemoryError

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
            surplus = [self._unshelved(it) for it in shelved if it.since <= before]
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

    def _unshelved(self, shelved: Shelved) -> Any:
        """A buffer that is taken from its shelf, wherever it lies there."""
        shelf = self._shelves[shelved.buffer.size]
        shelf.remove(shelved)
        heapq.heapify(shelf)
        return shelved.buffer

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
        surplus: list[Any] = []
        if least > 0:
            shelved = (it for shelf in self._shelves.values() for it in shelf)
            for it in sorted(shelved, key=lambda it: it.since):
                if least <= 0:
                    break
                surplus.append(self._unshelved(it))
                least -= it.buffer.size
        return surplus

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
