"""Things of a device that are made once and used again, above all its storage buffers.

Recycling matters for speed: a fresh buffer costs an allocation and, because WebGPU promises
zeros, a pass over its memory. It is safe without waiting, because a device runs its submits in
order.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

IDLE_BYTES = 1 << 28
"""The pool keeps this many freed bytes, or twice those in use if that is more."""


class Once(Generic[Key, Value]):
    """A bounded map whose values are made once, also when several threads ask at the same time.

    The least recently used are forgotten while all together weigh more than ``limit``, but for the
    last. If making a value fails, the next who asks tries again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._lock = threading.Lock()
        self._slots: OrderedDict[Key, _Slot[Value]] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Value], weight: int = 1) -> Value:
        """The value of ``key``, made now if there is none."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = _Slot(weight)
                self._weight += weight
            self._slots.move_to_end(key)
            while self._weight > self._limit and len(self._slots) > 1:
                self._weight -= self._slots.popitem(last=False)[1].weight
        with slot.lock:
            if not slot.values:
                slot.values.append(make())
            return slot.values[0]


class _Slot(Generic[Value]):
    """A value that is there (one item) or not yet (none)."""

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.lock = threading.Lock()
        self.values: list[Value] = []


class Pool:
    """The storage buffers of one device, in use or free to be used again.

    Invariants:

    1. A buffer is in ``_taken`` (``live`` bytes in all) or on the shelf of its size (``idle``).
    2. Those in use are held here too, because the garbage collector finalizes all that it finds
       unreachable at once: a buffer found with its last user would come back released.
    3. Only the holder of ``_lock`` touches anything but ``_returned``, to which finalizers append
       at any moment, also within a method of the pool in the same thread.
    4. In a forked child nothing happens any more: the lock may be held for ever.
    """

    def __init__(self, create: Callable[[int], Any], forget: Callable[[], None]) -> None:
        """``forget`` is called before buffers are let go, for whoever remembers them by id."""
        self.live = 0
        self.idle = 0
        self._create = create
        self._forget = forget
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._tidying = False
        self._taken: dict[int, Any] = {}
        self._shelves: dict[int, list[Any]] = {}
        self._returned: deque[Any] = deque()

    def take(self, nbytes: int) -> Any:
        """A buffer of at least ``nbytes``, with anything in it."""
        size = rounded(nbytes)
        with self._lock:
            surplus = self._tidy()
            buffer = self._pick(size)
        self._let_go(surplus)
        if buffer is None:
            buffer = self._create(size)
            with self._lock:
                self._use(buffer)
        return buffer

    def give(self, buffer: Any) -> None:
        """Take back a buffer; may be called by a finalizer."""
        self._returned.append(buffer)
        if self._pid == os.getpid():
            with self._lock:
                surplus = self._tidy()
            self._let_go(surplus)

    def clear(self) -> None:
        """Let go of all idle buffers."""
        with self._lock:
            surplus = self._tidy() + list(itertools.chain(*self._shelves.values()))
            self._shelves.clear()
            self.idle = 0
        self._let_go(surplus)

    def _let_go(self, surplus: list[Any]) -> None:
        """Called without the lock, because wgpu has locks too; the buffers go with the list."""
        if surplus:
            self._forget()

    def _pick(self, size: int) -> Any:
        """A buffer from the shelf, or None."""
        try:
            buffer = self._shelves[size].pop()
        except (KeyError, IndexError):
            return None
        self.idle -= size
        self._use(buffer)
        return buffer

    def _use(self, buffer: Any) -> None:
        """Note a buffer as taken."""
        self._taken[id(buffer)] = buffer
        self.live += buffer.size

    def _tidy(self) -> list[Any]:
        """Shelve what was returned, unless that was interrupted; what is too much after that."""
        if self._tidying:
            return []
        self._tidying = True
        try:
            while self._returned:
                self._shelve(self._returned.popleft())
            return self._surplus()
        finally:
            self._tidying = False

    def _shelve(self, buffer: Any) -> None:
        """Make a buffer idle."""
        self._shelves.setdefault(buffer.size, []).append(buffer)
        del self._taken[id(buffer)]
        self.live -= buffer.size
        self.idle += buffer.size

    def _surplus(self) -> list[Any]:
        """Take idle buffers off their shelves while there are too many, the largest first."""
        surplus: list[Any] = []
        while self.idle > max(IDLE_BYTES, 2 * self.live):
            shelves = [size for size, shelf in self._shelves.items() if shelf]
            if not shelves:
                self.idle = 0  # an interrupt came between a shelf and its sum
                break
            surplus.append(self._shelves[max(shelves)].pop())
            self.idle -= max(shelves)
        return surplus


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
