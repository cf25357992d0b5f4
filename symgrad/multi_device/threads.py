"""A thread for each device, which stays: what drives it while the others' threads drive theirs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from symgrad.targets import Device

Job = tuple[Callable[[], Any], "Future[Any]"]


class Thread:
    """Does what it is given, one thing after another. Nobody waits for it at exit."""

    def __init__(self, device: Device) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._hanging: Future[Any] | None = None
        threading.Thread(target=self._work, name=f"symgrad: {device}", daemon=True).start()

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """The future of what a call returns or raises."""
        future: Future[Any] = Future()
        self._jobs.put((call, future))
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Note that nobody waits any more for what it does: it hangs until it has done that."""
        self._hanging = future

    @property
    def hangs(self) -> bool:
        """Whether it still does what nobody waits for."""
        return self._hanging is not None and not self._hanging.done()

    def _work(self) -> None:
        while True:
            call, future = self._jobs.get()
            try:
                future.set_result(call())
            except BaseException as error:  # whoever waits for it raises it
                future.set_exception(error)
            del call, future  # the arrays of a call are not kept until the next


_threads: dict[Device, Thread] = {}
_lock = threading.Lock()


def thread_of(device: Device) -> Thread:
    """The thread of a device, of which there is one in a process."""
    with _lock:
        if device not in _threads:
            _threads[device] = Thread(device)
        return _threads[device]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.clear)  # threads do not survive a fork
