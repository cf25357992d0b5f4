"""Small writes to buffers of a device: through mapped memory that is kept, with the next submit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.wgsl.encoding import Copy
from symgrad.wgsl.mapping import Mapper

SLOT_BYTES: Final = 1 << 16
"""Bytes of a write, at most: more of them are worth memory of their own."""

MOST_SLOTS: Final = 16
"""Slots that are kept. Writes that nobody waits for may be under way in all of them."""

USAGE: Final = "MAP_WRITE|COPY_SRC"


class Writes:
    """What is to be written before the next steps. Whoever uses it has a lock.

    For each write of its own wgpu takes memory from the driver, and gives it back when the device
    has read it: that is 45 us of a call on an H200. Here the bytes are put in a mapped buffer, and
    the steps that need them begin with a copy.

    Invariants:

    1. Slots in ``_idle`` have been asked to be mapped, the longest ago first; those in ``_taken``
       are not mapped, and ``copies`` read them.
    2. Nothing here waits for the device.

    Args:
        create: makes a buffer of so many bytes for a usage.
        mapper: maps buffers.
    """

    def __init__(self, create: Callable[[int, str], Any], mapper: Mapper) -> None:
        self._create, self._mapper = create, mapper
        self._idle: deque[tuple[Any, Any]] = deque()
        self._taken: list[Any] = []
        self._made = 0
        self.copies: list[Copy] = []
        """What the next submit is to begin with."""

    def put(self, buffer: Any, start: int, data: np.ndarray) -> bool:
        """Have the bytes of a contiguous array copied there; False if no slot is free for them."""
        if data.nbytes > SLOT_BYTES or (start | data.nbytes) % 4 or not data.nbytes:
            return False
        slot = self._slot()
        if slot is None:
            return False
        room = self._mapper.view(slot, data.nbytes, write=True)
        room[...] = data.reshape(-1).view(np.uint8)
        self._mapper.unmap(slot)
        self._taken.append(slot)
        self.copies.append(Copy(slot, 0, buffer, start, data.nbytes))
        return True

    def sent(self) -> None:
        """Note that the copies have been submitted."""
        self._idle.extend(map(self._asked, self._taken))
        self._taken, self.copies = [], []

    def _slot(self) -> Any:
        """A mapped slot, perhaps a new one; None if the device has them all."""
        if self._idle and self._mapper.try_finish(self._idle[0][1]):
            return self._idle.popleft()[0]
        if self._made == MOST_SLOTS:
            return None
        self._made += 1
        self._idle.appendleft(self._asked(self._create(SLOT_BYTES, USAGE)))
        ready = self._mapper.try_finish(self._idle[0][1])
        return self._idle.popleft()[0] if ready else None

    def _asked(self, slot: Any) -> tuple[Any, Any]:
        """A slot that is to be mapped once the device has read it."""
        return slot, self._mapper.start(slot, SLOT_BYTES, write=True)
