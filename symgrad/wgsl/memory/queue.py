"""The order of work on a device: steps that nobody waits for start several at a time."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from typing import Any, Final

import numpy as np

from symgrad.wgsl.memory.encoding import SUBMITTED_STEPS, Encoder, Work

SOON: Final = 1e-4
"""Seconds after a submit in which steps are gathered: what it started keeps the device busy."""

STEPS_GATHERED: Final = 8
"""Steps that are gathered, at most: a submit costs as much of the host's time as these."""

GATHER_SECONDS: Final = 2e-3
"""Seconds that gathered steps wait for more of them, or for whoever needs their results."""


class Queue:
    """The queue of a device, in the order of the calls; any number of threads may use it.

    A submit takes the host as long as several steps take to encode, and the device pauses between
    two of them. So a step that nobody waits for starts at once only if there was no submit just
    before, else together with those after it: by the next call that submits, writes or waits, or
    by a thread that looks after what nobody asks for.

    Invariants:

    1. Whatever is written, submitted or waited for comes after all steps that were queued before.
    2. Gathered steps that an interrupt kept from the device are still gathered; those that were to
       start with others, which the device refuses, start without them.
    3. That gathered steps were refused, the next who writes, submits or waits is told.

    A submit was just before if it was not ``soon`` seconds ago, and gathered steps wait for about
    ``patience`` seconds.
    """

    def __init__(
        self, encoder: Encoder, soon: float = SOON, patience: float = GATHER_SECONDS
    ) -> None:
        self.encoder, self.soon, self.patience = encoder, soon, patience
        self.eager = False
        """Whether steps start at once, each by itself, as where they are timed."""
        self._lock = threading.RLock()
        self._gathered: list[Work] = []
        self._refused: Exception | None = None
        self._submitted = 0.0
        self._gathering = 0
        self._tended = False
        self._wanted = threading.Event()
        _queues.add(self)

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        """Write the bytes of a contiguous array to a buffer, ahead of what is submitted next."""
        with self._lock:
            self.flush()
            self.encoder.write(buffer, start, data)

    def submit(self, work: Sequence[Work]) -> None:
        """Start steps and copies; on a lost device this raises."""
        with self._lock:
            self._tell()
            gathered, self._gathered = self._gathered, []
            try:
                if gathered and len(gathered) + len(work) > SUBMITTED_STEPS:
                    self._start_alone(gathered)  # or a later part's refusal would start them again
                    gathered = []
                self.encoder.submit([*gathered, *work])
            except Exception:
                if gathered and work:
                    self._start_alone(gathered)
                raise
            except BaseException:
                self._gathered = gathered
                raise
            self._submitted = time.perf_counter()

    def add(self, work: Sequence[Work]) -> None:
        """Start steps and copies soon."""
        with self._lock:
            now = time.perf_counter()
            late = not self._gathering and now - self._submitted > self.soon
            if late or self.eager or len(self._gathered) + len(work) >= STEPS_GATHERED:
                self.submit(work)
                return
            self._gathered += work
            self._tend()

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        """A context whose steps start several at a time, the last of them at its end."""
        with self._lock:
            self._gathering += 1
        try:
            yield
        finally:
            with self._lock:
                self._gathering -= 1
        with self._lock:
            self.flush()

    def flush(self) -> None:
        """Start what was gathered."""
        self._tell()
        if self._gathered:
            self.submit(())

    def _start_alone(self, gathered: list[Work]) -> None:
        """Start gathered steps; that they are refused is told to the next who asks."""
        try:
            self.encoder.submit(gathered)
        except Exception as error:
            self._refused = error

    def _tell(self) -> None:
        """Raise what gathered steps were refused with, once."""
        refused, self._refused = self._refused, None
        if refused:
            raise refused

    def look_after(self) -> None:
        """Start what was gathered some time ago; whoever needs it is told if that fails."""
        with self._lock:
            age = time.perf_counter() - self._submitted
            if self._gathered and age > self.patience:
                gathered, self._gathered = self._gathered, []
                self._start_alone(gathered)
                self._submitted = time.perf_counter()
            elif age > 10 * self.patience:
                self._wanted.clear()

    def forget(self) -> None:
        """Never start what was gathered."""
        with self._lock:
            self._gathered = []

    def _tend(self) -> None:
        """See to it that a thread looks after what was gathered."""
        if not self._tended:
            with contextlib.suppress(RuntimeError):  # where no thread starts, as at Python's end
                arguments = weakref.ref(self), self._wanted, self.patience
                threading.Thread(target=_look_after, args=arguments, daemon=True).start()
                weakref.finalize(self, self._wanted.set).atexit = False
                self._tended = True
        if not self._wanted.is_set():
            self._wanted.set()


def _look_after(queue: weakref.ref[Queue], wanted: threading.Event, patience: float) -> None:
    """Look after a queue, whenever it has lately gathered steps, as long as there is one."""
    while True:
        wanted.wait()
        time.sleep(patience)
        live_queue = queue()
        if live_queue is None:
            return
        live_queue.look_after()
        del live_queue


_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
"""All queues."""


def _end() -> None:
    """Start no work when Python has ended, for drivers end then too."""
    for queue in tuple(_queues):
        queue.forget()


atexit.register(_end)
