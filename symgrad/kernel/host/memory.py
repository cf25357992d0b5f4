"""Arrays for results: aligned to vectors, and used again once the user has let go of them.

Fresh pages of memory cost more than the arithmetic of most kernels: the system clears each when it
is first touched. So the memory of large results is kept, and handed out again when no array refers
to it any more; CPython's reference count of the owner tells.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import DeviceMemoryError

ALIGNMENT_BYTES: Final = 64
"""Aligned arrays begin at multiples of these: a cache line, and the widest vector."""

LARGE_BYTES: Final = 2**17
"""Bytes from which memory is kept: from here on the C library asks the system for pages."""

MOST_KEPT: Final = 8
"""Arrays that are kept, at most, if they have more than `IDLE_BYTES` bytes."""

IDLE_BYTES: Final = 2**24
"""Idle bytes that the pool keeps, however many arrays they are."""


MOST_BYTES: Final = 2**31
"""See `Pool`."""


class Pool:
    """Memory that is handed out as arrays. Any number of threads may ask.

    What was handed out longest ago is the first to be let go.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """``most_bytes`` of all arrays that are kept: what is larger is never kept."""
        self.most_bytes = most_bytes
        self._owners: list[np.ndarray] = []
        self._lock = threading.Lock()

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], aligned: bool = True
    ) -> np.ndarray:
        """An array of this shape that shares its memory with no other that is alive."""
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE_BYTES and not aligned:
            return np.empty(shape, dtype)
        owner = (
            self._owner(size) if size >= LARGE_BYTES else np.empty(size + ALIGNMENT_BYTES, np.uint8)
        )
        start = -owner.__array_interface__["data"][0] % ALIGNMENT_BYTES
        return owner[start : start + size].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """The bytes that are kept, those in use among them."""
        with self._lock:
            return sum(owner.nbytes for owner in self._owners)

    @property
    def idle(self) -> int:
        """The bytes that are kept and in use by no array."""
        with self._lock:
            owners = self._owners
            unused = [k for k in range(len(owners)) if sys.getrefcount(owners[k]) == 2]
            return sum(owners[k].nbytes for k in unused)

    def clear(self) -> None:
        """Keep nothing; what is in use lives on with the user's arrays."""
        with self._lock:
            self._owners.clear()

    def _owner(self, size: int) -> np.ndarray:
        with self._lock:
            owners = self._owners
            for k in range(len(owners)):
                fits = size + ALIGNMENT_BYTES <= owners[k].nbytes <= 2 * size
                if fits and sys.getrefcount(owners[k]) == 2:  # the list's, and the call's own
                    owners.append(owners.pop(k))
                    return owners[-1]
            owners.append(owner := np.empty(size + ALIGNMENT_BYTES, np.uint8))
            while owners and self._is_too_much():
                del owners[0]  # lives on for as long as the user's arrays do
            return owner

    def _is_too_much(self) -> bool:
        nbytes = sum(owner.nbytes for owner in self._owners)
        return nbytes > self.most_bytes or nbytes > IDLE_BYTES and len(self._owners) > MOST_KEPT


POOL: Final = Pool()
"""The memory of all results of this process."""


def is_aligned(array: np.ndarray) -> bool:
    """Whether whole vectors may be streamed to it."""
    return array.__array_interface__["data"][0] % ALIGNMENT_BYTES == 0


@dataclass(frozen=True)
class Blocks:
    """Work on arrays of the host, block by block.

    ``run(block, *parts)`` is called for each block with the parts of the arrays, None for one that
    is None; it gives pairs of an array and what it fills, of the same shapes. ``prepare`` is called
    once, while the first block is on its way; its errors are the user's.
    """

    blocks: Sequence[slice]
    arrays: Sequence[np.ndarray | None]
    run: Callable[..., Iterable[tuple[Any, np.ndarray]]]
    prepare: Callable[[], Any]

    def parts(self, block: slice) -> list[np.ndarray | None]:
        """The parts of the arrays of a block."""
        return [a if a is None else a[block] for a in self.arrays]


def in_pieces(count: int, step: int, least: int, work: Callable[[int, int], None]) -> None:
    """Have ``work(start, end)`` done for all of ``count`` things, at most ``step`` at a time.

    Where the device has no memory for so many, half of them are tried, a multiple of ``least``.

    Raises:
        DeviceMemoryError: it has none for ``least`` of them.
    """
    start = 0
    while start < count:
        end = min(start + step, count)
        try:
            work(start, end)
        except DeviceMemoryError:
            if end - start <= least:
                raise
            step = max((end - start) // 2 // least, 1) * least
        else:
            start = end
