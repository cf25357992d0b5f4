"""Arrays for results, aligned to vectors and used again later, and arrays in a device's memory.

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
from typing import Any, Final, Self

import numpy as np

from symgrad.errors import DeviceMemoryError, InputTypeError
from symgrad.values.arrays import name_of

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


# Arrays in the memory of a device, as rooms know them that are not of its back end.


class ResidentArray:
    """An array that lives in the memory of a device: its shape, its dtype, and whose memory it is.

    Kernels of that device take it as it is. A back end's own arrays are a subclass, which has what
    is not implemented here.
    """

    __slots__ = ("_dtype", "_shape", "gpu")

    def __init__(self, gpu: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.gpu, self._shape, self._dtype = gpu, shape, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes; `reshape` gives others."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    def __len__(self) -> int:
        if not self._shape:
            raise InputTypeError("an array without axes has no length")
        return self._shape[0]

    @property
    def device(self) -> Any:
        """The device that holds the array."""
        return self.gpu.info

    def require(self, dtype: np.dtype[Any]) -> None:
        """Refuse elements of another dtype than a kernel takes."""
        if self._dtype != dtype:
            mine, needed = name_of(self._dtype), name_of(dtype)
            raise InputTypeError(f"kernels compute with {needed}, and this array is {mine}")

    @property
    def is_shared(self) -> bool:
        """Whether other arrays have elements in the same memory."""
        raise NotImplementedError

    def shares_memory(self, other: ResidentArray) -> bool:
        """Whether another array has elements in the same buffer."""
        raise NotImplementedError

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The elements in an array of another shape, a view."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Self:
        raise NotImplementedError

    def beside(self, values: np.ndarray) -> Self:
        """A copy of an array of the host's in the same memory, in this array's dtype."""
        raise NotImplementedError

    def empty_beside(self, shape: tuple[int, ...]) -> Self:
        """An array in the same memory with anything in it, for a kernel to fill."""
        raise NotImplementedError

    def joined(self, others: Sequence[Any]) -> Self:
        """Rows of numbers, one behind the other: this one, and others of its dtype."""
        raise NotImplementedError

    def numpy(self) -> np.ndarray:
        """The elements on the host, in a new array."""
        raise NotImplementedError


class ResidentRows:
    """Rows of an array that loops go through, each of which stands by itself."""

    def joined(self, count: int, axis: int) -> ResidentArray:
        """The first rows as an array, one behind the other along an axis."""
        raise NotImplementedError
