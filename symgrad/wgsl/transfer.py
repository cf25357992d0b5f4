"""Copies between arrays on the host and buffers of a GPU: in pieces, by several threads.

A piece goes through a slot, a mappable buffer that is kept. Threads copy pieces between arrays and
slots, and convert their numbers on the way, while the device copies others between slots and its
own memory.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, Self

import numpy as np

from symgrad.wgsl.encoding import Copy, Encoder
from symgrad.wgsl.mapping import Mapper

PIECE: Final = 1 << 22
"""Bytes of a slot: the most that goes through it at a time."""

SMALLEST: Final = 1 << 20
"""Bytes of a piece at least, if an array has so many: less is not worth a thread's while."""

WRITTEN: Final = 1 << 22
"""Bytes of an array up to which the queue's own copy is quicker than a slot."""

SLOTS: Final = 16
"""Slots of a transfer, and slots that are kept for the next one, in each direction, at most."""

AHEAD: Final = SLOTS // 2
"""Pieces of a transfer that threads have, at most; the device has the others."""

THREADS: Final = 8
"""Threads that copy, at most: as many as use all of the memory's bandwidth."""

UPLOAD: Final = "MAP_WRITE|COPY_SRC"
DOWNLOAD: Final = "MAP_READ|COPY_DST"


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads that copy in a process: those of its parent do not survive a fork."""
    return ThreadPoolExecutor(min(THREADS, cores()), f"symgrad-copy-{process}")


def divided(array: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Views of an array, in C order, each of at most so many elements."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        yield from (flat[k : k + most] for k in range(0, flat.size, most))
    elif array.size:
        step = most // (array.size // len(array))
        for k in range(0, len(array), step or 1):
            yield from [array[k : k + step]] if step else divided(array[k], most)


def converted(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The array in C order, its numbers rounded to a dtype; itself if it is so."""
    if array.dtype == dtype and array.flags.c_contiguous:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array, dtype)


class Slot:
    """A mappable buffer, and the map that was asked for last."""

    def __init__(self, buffer: Any, started: Any = None) -> None:
        self.buffer, self.started = buffer, started


class Shelf:
    """Slots of one kind that no transfer has, of which the longest unused is taken first.

    Several transfers at a time may have more slots than are kept.
    """

    def __init__(self, create: Callable[[], Slot]) -> None:
        self._create = create
        self._slots: deque[Slot] = deque(maxlen=SLOTS)

    def take(self) -> Slot:
        """A slot, perhaps a new one."""
        try:
            return self._slots.popleft()
        except IndexError:
            return self._create()

    def give(self, slot: Slot) -> None:
        """Keep a slot for the next transfer."""
        self._slots.append(slot)

    def clear(self) -> None:
        """Let go of all."""
        self._slots.clear()

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        return len(self._slots) * PIECE


class Transfers:
    """The ways between the host and a GPU. Any number of threads may use them.

    Args:
        create: makes a buffer of so many bytes for a usage.
        encoder: has copies made, in the order of the calls.
        mapper: maps buffers.
    """

    def __init__(self, create: Callable[[int, str], Any], encoder: Encoder, mapper: Mapper) -> None:
        self.encoder, self.mapper = encoder, mapper
        self._create = create
        self._up = Shelf(self._slot_to_write)
        self._down = Shelf(lambda: Slot(create(PIECE, DOWNLOAD)))

    def _slot_to_write(self) -> Slot:
        buffer = self._create(PIECE, UPLOAD)
        return Slot(buffer, self.mapper.start(buffer, PIECE, write=True))

    def upload(self) -> Upload:
        """A transfer to the device."""
        return Upload(self, self._up)

    def download(self) -> Download:
        """A transfer from the device."""
        return Download(self, self._down)

    @property
    def nbytes(self) -> int:
        """The bytes of mappable memory that are kept for the next transfers."""
        return self._up.nbytes + self._down.nbytes

    def let_go(self) -> None:
        """Keep none."""
        self._up.clear()
        self._down.clear()


class _Transfer:
    """Pieces on one of both ways; a context that ends when all numbers are where they belong.

    Invariants:

    1. ``_copying`` are the slots that threads have, and what these do, the oldest first.
    2. A slot goes back to the shelf when it is known what is in it: not after an exception or an
       interrupt. A thread's work refers to its slot, whose memory must not go before.
    3. No thread reads or writes an array of the user's when the context has ended, however it did.
    """

    def __init__(self, transfers: Transfers, shelf: Shelf) -> None:
        self._encoder, self._mapper, self._shelf = transfers.encoder, transfers.mapper, shelf
        self._copying: deque[tuple[Slot, Copy, Future[None]]] = deque()
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._end()
        finally:
            left = [future for *_, future in self._copying]
            for future in left:
                future.cancel()
            wait(left)

    def _end(self) -> None:
        raise NotImplementedError

    def _taken_from_shelf(self) -> Slot:
        self._taken += 1
        return self._shelf.take()

    def _copy(self, slot: Slot, move: Copy, target: Any, source: Any, alone: bool) -> None:
        """Have a thread copy a piece, or do it now if there is no other piece to copy."""
        future: Future[None] = Future()
        if alone:
            _copied(slot, target, source)
            future.set_result(None)
        else:
            future = _threads(os.getpid()).submit(_copied, slot, target, source)
        self._copying.append((slot, move, future))


def _copied(slot: Slot, target: np.ndarray, source: np.ndarray) -> None:
    """Copy numbers, rounded to the target's dtype, from or to the memory of a slot."""
    assert slot.buffer is not None, "the slot has no memory"
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(target, source, casting="unsafe")


def _moves(
    array: np.ndarray, dtype: np.dtype[Any], start: int
) -> Iterator[tuple[np.ndarray, int, int]]:
    """The pieces of an array; where their numbers start in a buffer, and how many bytes those are.

    There are enough pieces for all threads, if these are not too small.
    """
    share = -(-array.size * dtype.itemsize // min(THREADS, cores()))
    for part in divided(array, min(PIECE, max(SMALLEST, share)) // dtype.itemsize):
        nbytes = part.size * dtype.itemsize
        yield part, start, nbytes
        start += nbytes


class Upload(_Transfer):
    """From arrays to buffers. ``_flying`` are the slots that the device has, the oldest first."""

    def __init__(self, transfers: Transfers, shelf: Shelf) -> None:
        super().__init__(transfers, shelf)
        self._flying: deque[Slot] = deque()

    def put(
        self, array: np.ndarray, buffer: Any, start: int = 0, dtype: np.dtype[Any] | None = None
    ) -> None:
        """Copy an array to a buffer, as numbers of a dtype, its own if there is none.

        Pieces may still be read from the array when this returns, and are not yet on their way.
        """
        dtype = dtype or array.dtype
        if array.size * dtype.itemsize <= WRITTEN:
            self._encoder.write(buffer, start, converted(array, dtype))
            self._encoder.submit([], [])
            return
        for part, place, nbytes in _moves(array, dtype, start):
            slot = self._slot()
            self._mapper.finish(slot.started)
            room = self._mapper.view(slot.buffer, nbytes, write=True).view(dtype)
            move = Copy(slot.buffer, 0, buffer, place, nbytes)
            self._copy(slot, move, room.reshape(part.shape), part, part.size == array.size)

    def _slot(self) -> Slot:
        if len(self._copying) == AHEAD:
            self._send()
        return self._taken_from_shelf() if self._taken < SLOTS else self._flying.popleft()

    def _send(self) -> None:
        """Have the device copy the oldest piece, once it is in its slot, and those after it."""
        moves: list[Copy] = []
        sent: list[Slot] = []
        while self._copying and (not sent or self._copying[0][-1].done()):
            slot, move, future = self._copying[0]
            future.result()
            self._mapper.unmap(slot.buffer)
            self._copying.popleft()
            moves.append(move)
            sent.append(slot)
        self._encoder.submit([], moves)
        for slot in sent:
            slot.started = self._mapper.start(slot.buffer, PIECE, write=True)
        self._flying.extend(sent)

    def flush(self) -> None:
        """Send all pieces: nothing more is read from arrays, and what comes after finds them."""
        while self._copying:
            self._send()

    def _end(self) -> None:
        self.flush()
        while self._flying:
            self._shelf.give(self._flying.popleft())


class Download(_Transfer):
    """From buffers to arrays. ``_coming`` are the pieces that the device has, the oldest first."""

    def __init__(self, transfers: Transfers, shelf: Shelf) -> None:
        super().__init__(transfers, shelf)
        self._coming: deque[tuple[Slot, Copy, np.ndarray, np.dtype[Any], bool]] = deque()

    def get(
        self, array: np.ndarray, buffer: Any, start: int = 0, dtype: np.dtype[Any] | None = None
    ) -> None:
        """Fill an array with the numbers of a dtype, its own if there is none, from a buffer.

        What was submitted before is done then, and all numbers are there when the context has
        ended.
        """
        dtype = dtype or array.dtype
        for part, place, nbytes in _moves(array, dtype, start):
            slot = self._slot()
            move = Copy(buffer, place, slot.buffer, 0, nbytes)
            self._encoder.submit([], [move])
            slot.started = self._mapper.start(slot.buffer, nbytes)
            self._coming.append((slot, move, part, dtype, part.size == array.size))

    def _slot(self) -> Slot:
        if self._taken < SLOTS:
            return self._taken_from_shelf()
        while self._coming and len(self._copying) < AHEAD:
            self._land()
        return self._landed()

    def _land(self) -> None:
        """Have the oldest piece copied to its array, once it is in its slot."""
        slot, move, part, dtype, alone = self._coming.popleft()
        self._mapper.finish(slot.started)
        numbers = self._mapper.view(slot.buffer, move.nbytes).view(dtype)
        self._copy(slot, move, part, numbers.reshape(part.shape), alone)

    def _landed(self) -> Slot:
        """The slot of the oldest piece that is being copied, once it is in its array."""
        slot, _, future = self._copying[0]
        future.result()
        self._mapper.unmap(slot.buffer)
        self._copying.popleft()
        return slot

    def _end(self) -> None:
        while self._coming:
            self._land()
        while self._copying:
            self._shelf.give(self._landed())
