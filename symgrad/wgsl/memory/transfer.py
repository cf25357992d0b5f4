"""Copies between arrays on the host and buffers of a GPU: in pieces, by several threads.

A piece goes through a slot, a mappable buffer that is kept. Threads copy pieces between arrays and
slots, and convert their numbers on the way, while the device copies others between slots and its
own memory.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np

from symgrad.kernel.host.threads import (
    LEAST_PIECE_BYTES,
    QUEUED_BYTES,
    THREADS,
    assign,
    converted,
    cores,
    divided,
    threads,
)
from symgrad.wgsl.memory.buffers import Mapper
from symgrad.wgsl.memory.queue import Copy, Queue

SPARE_BYTES: Final = 256
"""Bytes of a buffer that is made after each slot to write to, and kept as long.

wgpu takes memory of this kind in blocks, each a multiple of a slot. Where slots filled one and the
next one was empty, every small write of a call took that from the driver and gave it back: on an
H200 a call took 3 ms, not 0.09. A small buffer behind the last slot keeps the next block.
"""

UPLOAD: Final = "MAP_WRITE|COPY_SRC"
DOWNLOAD: Final = "MAP_READ|COPY_DST"


@dataclass(frozen=True)
class Pieces:
    """The pieces in which transfers go, and the slots that they go through.

    ``nbytes`` of a slot are the most that goes through it at a time, and ``least_nbytes`` worth a
    piece of their own. Up to ``queued_nbytes`` are written to the queue instead. A transfer has up
    to ``slots``, and as many are kept for the next one, in each direction; threads have up to
    ``ahead`` of them, and the device the others, of which it is given some ``per_submit``: few, so
    that it begins soon, but not one by one.
    """

    nbytes: int = 1 << 22
    least_nbytes: int = LEAST_PIECE_BYTES
    queued_nbytes: int = QUEUED_BYTES
    slots: int = 16
    ahead: int = 8
    per_submit: int = 2

    def size(self, nbytes: int) -> int:
        """Bytes of the pieces of so many: enough pieces for all threads, but not small ones."""
        each = -(-nbytes // min(THREADS, cores())) // 4 * 4
        return min(self.nbytes, max(self.least_nbytes, each))


class Slot:
    """A mappable buffer, the map that was asked for last, and a small buffer that comes with it."""

    def __init__(self, buffer: Any, started: Any = None, spare: Any = None) -> None:
        self.buffer, self.started, self.spare = buffer, started, spare


class Shelf:
    """Slots of one kind that no transfer has, of which the longest unused is taken first.

    Several transfers at a time may have more slots than are kept.
    """

    def __init__(self, create: Callable[[], Slot], pieces: Pieces) -> None:
        self._create, self.pieces = create, pieces
        self._slots: deque[Slot] = deque(maxlen=pieces.slots)

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
        return len(self._slots) * self.pieces.nbytes


class Transfers:
    """The ways between the host and a GPU. Any number of threads may use them.

    Args:
        create: makes a buffer of so many bytes for a usage.
        queue: has copies made, in the order of the calls.
        mapper: maps buffers.
        pieces: the sizes and numbers of pieces and slots.
    """

    def __init__(
        self,
        create: Callable[[int, str], Any],
        queue: Queue,
        mapper: Mapper,
        pieces: Pieces = Pieces(),
    ) -> None:
        self.queue, self.mapper = queue, mapper
        self._create, self._pieces = create, pieces
        self.up = Shelf(self._slot_to_write, pieces)
        self.down = Shelf(lambda: Slot(create(pieces.nbytes, DOWNLOAD)), pieces)

    def _slot_to_write(self) -> Slot:
        nbytes = self._pieces.nbytes
        buffer, spare = self._create(nbytes, UPLOAD), self._create(SPARE_BYTES, UPLOAD)
        return Slot(buffer, self.mapper.start(buffer, nbytes, write=True), spare)

    def upload(self) -> Upload:
        """A transfer to the device."""
        return Upload(self, self.up)

    def download(self) -> Download:
        """A transfer from the device."""
        return Download(self, self.down)

    @property
    def nbytes(self) -> int:
        """The bytes of mappable memory that are kept for the next transfers."""
        return self.up.nbytes + self.down.nbytes

    def let_go(self) -> None:
        """Keep none."""
        self.up.clear()
        self.down.clear()


class Segment(NamedTuple):
    """An array, and where numbers of this dtype stand in a buffer, from byte ``start`` on."""

    array: np.ndarray
    buffer: Any
    start: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """The bytes in the buffer."""
        return self.array.size * self.dtype.itemsize

    def divided(self, nbytes: int) -> Iterator[Segment]:
        """Pieces of so many bytes at most."""
        start = self.start
        for array in divided(self.array, nbytes // self.dtype.itemsize):
            yield self._replace(array=array, start=start)
            start += array.size * self.dtype.itemsize


def _loads(parts: Sequence[Segment], pieces: Pieces) -> Iterator[list[Segment]]:
    """Loads of a slot: pieces that follow one another."""
    size = pieces.size(sum(part.nbytes for part in parts))
    load: list[Segment] = []
    free = size
    for part in itertools.chain.from_iterable(part.divided(size) for part in parts):
        if part.nbytes > free:
            yield load
            load, free = [], size
        load.append(part)
        free -= part.nbytes
    if load:
        yield load


def _copied(slot: Slot, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    """Copy to targets from sources, which one of both are in a slot, rounding the numbers."""
    assert slot.buffer is not None, "the slot has no memory"
    with np.errstate(over="ignore", invalid="ignore"):
        for target, source in pairs:
            assign(target, source.reshape(target.shape))


class _Transfer:
    """Loads of slots on one of both ways; a context that ends when all numbers are in their place.

    Invariants:

    1. ``_copying`` are the slots that threads have, and what these do, the oldest first.
    2. A slot goes back to the shelf when it is known what is in it: not after an exception or an
       interrupt. A thread's work refers to its slot, whose memory must not go before.
    3. No thread reads or writes an array of the user's when the context has ended, however it did.
    """

    def __init__(self, transfers: Transfers, shelf: Shelf) -> None:
        self._queue, self._mapper, self._shelf = transfers.queue, transfers.mapper, shelf
        self._pieces = shelf.pieces
        self._copying: deque[tuple[Slot, Future[None]]] = deque()
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._end()
        finally:
            left = [future for _, future in self._copying]
            for future in left:
                future.cancel()
            wait(left)

    def _end(self) -> None:
        raise NotImplementedError

    def _another(self) -> Slot | None:
        """A slot more, if the transfer may have one."""
        if self._taken == self._pieces.slots:
            return None
        self._taken += 1
        return self._shelf.take()

    def _copy(
        self, slot: Slot, pairs: Sequence[tuple[np.ndarray, np.ndarray]], alone: bool
    ) -> None:
        """Have a thread copy a load, or do it now if there is no other to copy."""
        future: Future[None] = Future()
        if alone:
            _copied(slot, pairs)
            future.set_result(None)
        else:
            future = threads().submit(_copied, slot, pairs)
        self._copying.append((slot, future))

    def _back(self) -> Slot:
        """The slot that threads have had for longest, unmapped once they have done with it."""
        slot, future = self._copying[0]
        future.result()
        self._mapper.unmap(slot.buffer)
        self._copying.popleft()
        return slot


class Upload(_Transfer):
    """From arrays to buffers.

    ``_flying`` are the slots that the device has, the oldest first, and ``_moves`` what it is to
    copy from those that threads have.
    """

    def __init__(self, transfers: Transfers, shelf: Shelf) -> None:
        super().__init__(transfers, shelf)
        self._flying: deque[Slot] = deque()
        self._moves: deque[Copy] = deque()
        self._written = False

    def put(
        self, array: np.ndarray, buffer: Any, start: int = 0, dtype: np.dtype[Any] | None = None
    ) -> None:
        """Copy an array to a buffer, as numbers of a dtype, its own if there is none.

        Pieces may still be read from the array when this returns, and are not yet on their way.
        """
        whole = Segment(array, buffer, start, dtype or array.dtype)
        if whole.nbytes <= self._pieces.queued_nbytes:
            self._queue.write(buffer, start, converted(array, whole.dtype))
            self._written = True
            return
        size = self._pieces.size(whole.nbytes)
        for part in whole.divided(size):
            slot = self._slot()
            self._mapper.finish(slot.started)
            mapped = self._mapper.view(slot.buffer, part.nbytes, write=True).view(part.dtype)
            self._copy(slot, [(mapped.reshape(part.array.shape), part.array)], whole.nbytes <= size)
            self._moves.append(Copy(slot.buffer, 0, buffer, part.start, part.nbytes))
        for _ in self._copying:
            time.sleep(0)  # threads need Python's lock to begin, which the caller may keep

    def _slot(self) -> Slot:
        if len(self._copying) == self._pieces.ahead:
            self._send()
        return self._another() or self._flying.popleft()

    def _send(self) -> None:
        """Have the device copy some loads, once they are in their slots."""
        sent: list[Slot] = []
        few = self._pieces.per_submit
        while self._copying and (len(sent) < few or self._copying[0][1].done()):
            sent.append(self._back())
        self._queue.submit([self._moves.popleft() for _ in sent])
        self._written = False
        for slot in sent:
            slot.started = self._mapper.start(slot.buffer, self._pieces.nbytes, write=True)
        self._flying.extend(sent)

    def flush(self) -> None:
        """Send all loads: nothing more is read from arrays, and what is submitted finds them."""
        while self._copying:
            self._send()

    def _end(self) -> None:
        self.flush()
        if self._written:
            self._queue.submit([])
        while self._flying:
            self._shelf.give(self._flying.popleft())


class Download(_Transfer):
    """From buffers to arrays.

    ``_requested`` are loads that the device is to be asked for, ``_coming`` those that it has, the
    oldest first, and whether they are alone.
    """

    def __init__(self, transfers: Transfers, shelf: Shelf) -> None:
        super().__init__(transfers, shelf)
        self._requested: list[tuple[Slot, list[Segment], bool]] = []
        self._coming: deque[tuple[Slot, list[Segment], bool]] = deque()

    def get(self, *parts: Segment) -> None:
        """Fill arrays with numbers from buffers, as they are when this is called.

        They are there when the context has ended.
        """
        loads = list(_loads(parts, self._pieces))
        for load in loads:
            self._requested.append((self._slot(), load, len(loads) == 1))
            if len(self._requested) == self._pieces.per_submit:
                self._ask()
        self._ask()

    def _ask(self) -> None:
        """Have the device copy the loads that are asked for to their slots."""
        moves: list[Copy] = []
        for slot, load, _ in self._requested:
            ends = itertools.accumulate(part.nbytes for part in load)
            moves += [
                Copy(p.buffer, p.start, slot.buffer, end - p.nbytes, p.nbytes)
                for p, end in zip(load, ends, strict=True)
            ]
        if moves:
            self._queue.submit(moves)
        for slot, load, alone in self._requested:
            slot.started = self._mapper.start(slot.buffer, sum(part.nbytes for part in load))
            self._coming.append((slot, load, alone))
        self._requested.clear()

    def _slot(self) -> Slot:
        slot = self._another()
        if slot is None:
            self._ask()
            while self._coming and len(self._copying) < self._pieces.ahead:
                self._land()
            slot = self._back()
        return slot

    def _land(self) -> None:
        """Have the oldest load copied to its arrays, once it is in its slot."""
        slot, load, alone = self._coming.popleft()
        self._mapper.finish(slot.started)
        data = self._mapper.view(slot.buffer, sum(part.nbytes for part in load))
        ends = itertools.accumulate(part.nbytes for part in load)
        pairs = [
            (part.array, data[end - part.nbytes : end].view(part.dtype))
            for part, end in zip(load, ends, strict=True)
        ]
        self._copy(slot, pairs, alone)

    def _end(self) -> None:
        while self._coming:
            self._land()
        while self._copying:
            self._shelf.give(self._back())
