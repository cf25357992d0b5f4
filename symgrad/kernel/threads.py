"""Work that is shared out between threads, where it is worth that."""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from symgrad.kernel.copying import cores

OPERATION: Final = 4e-10
"""Seconds that an operation on a vector takes, or a byte of each of its lanes, on average."""

LEAST_SECONDS: Final = 4e-5
"""Seconds of work from which it is asked whether other threads are to help."""

CHUNKS: Final = 8
"""Pieces of work for each thread: enough that a slow core does not keep the others waiting."""

_executor: ThreadPoolExecutor | None = None


@functools.cache
def available() -> int:
    """The threads that SYMGRAD_THREADS names, or the cores that this process may use."""
    named = os.environ.get("SYMGRAD_THREADS", "")
    return int(named) if named.isdecimal() and int(named) else cores()


def worth(operations: int, lanes: int, most: int | None = None, waking: float | None = None) -> int:
    """How many threads so many operations are worth, which are done on vectors of numbers.

    With n threads they take an n-th of the time, and n times the seconds for ``waking`` one, which
    are measured. There are at ``most`` as many as `available`.
    """
    seconds, most = operations / lanes * OPERATION, most or available()
    if seconds < LEAST_SECONDS or most == 1:
        return 1
    return max(1, min(most, int(math.sqrt(seconds / (waking or _waking())))))


@functools.cache
def _waking() -> float:
    """Seconds in which another thread does nothing: 10 us on most systems, 200 in some sandboxes.

    It is measured once in a process.
    """
    times: list[float] = []
    for _ in range(9):
        start = time.perf_counter()
        _pool().submit(int).result()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def _pool() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(max(2, available()), "symgrad")
    return _executor


def share_out(work: Callable[[int, int], None], count: int, lanes: int, threads: int) -> None:
    """Call ``work(first, end)`` for all of ``count`` points, whole blocks of them, on all cores."""
    blocks = count // lanes
    pieces = min(blocks, CHUNKS * threads)
    if pieces == 1 or threads == 1:
        work(0, count)
        return
    ends = [lanes * (blocks * k // pieces) for k in range(pieces + 1)]
    pending = itertools.pairwise(ends)
    lock = threading.Lock()

    def worker() -> None:
        while True:
            with lock:
                piece = next(pending, None)
            if piece is None:
                return
            work(*piece)

    pool = _pool()
    others = [pool.submit(worker) for _ in range(min(threads, pieces) - 1)]
    worker()
    started = [other for other in others if not other.cancel()]  # nothing is left to begin with
    wait(started)
    for other in started:
        other.result()


def _forget_threads() -> None:
    """A child process has none of its parent's threads."""
    global _executor
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
