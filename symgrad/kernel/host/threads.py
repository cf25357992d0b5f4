"""Work that is shared out between threads, where it is worth that."""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

import numpy as np

from symgrad.values.arrays import PAIRS

# --- arrays that are copied in parts --------------------------------------------------------------
# Arrays that are copied, and converted, by several threads, part by part.

Result = TypeVar("Result")

THREADS: Final = 8
"""Threads that copy for a device at a time, at most."""

QUEUED_BYTES: Final = 1 << 22
"""Bytes of an array up to which a device's queue copies it as quickly as threads would."""

LEAST_PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece at least, if an array has so many: less is not worth a thread's while."""

BLOCK: Final = 1 << 13
"""Numbers converted at a time, so that what lies between stays in a core's cache."""


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def threads() -> ThreadPoolExecutor:
    """The threads that copy in this process: those of its parent do not survive a fork."""
    return _threads_of(os.getpid())


@functools.cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), f"symgrad-copy-{process}")


def by_threads(count: int, work: Callable[[slice], Result]) -> list[Result]:
    """Results of ``work`` on each part of so many numbers, several parts at a time."""
    parts = min(THREADS, cores(), count * 4 // LEAST_PIECE_BYTES) or 1
    size = -(-count // parts) or 1
    slices = [slice(k, min(k + size, count)) for k in range(0, count, size)]
    if len(slices) < 2:
        return list(map(work, slices))
    return list(threads().map(work, slices))


def divided(array: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Views of an array, in C order, each of at most so many elements."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        yield from (flat[k : k + most] for k in range(0, flat.size, most))
    elif array.size:
        step = most // (array.size // len(array))
        for k in range(0, len(array), step or 1):
            yield from [array[k : k + step]] if step else divided(array[k], most)


def assign(target: np.ndarray, source: np.ndarray) -> None:
    """Copy numbers to an array, rounded to its dtype; either may hold pairs.

    A number of float64 is the float32 nearest to it and the one nearest to the rest; beyond
    float32's largest number it is infinite.
    """
    if source.dtype == target.dtype or PAIRS not in (source.dtype, target.dtype):
        target[...] = source
    elif not target.flags.c_contiguous:
        target[...] = converted(np.broadcast_to(source, target.shape), target.dtype)
    else:
        copy = _from_pairs if source.dtype == PAIRS else _to_pairs
        numbers = np.ascontiguousarray(np.broadcast_to(source, target.shape)).reshape(-1)
        results = target.reshape(-1)
        for k in range(0, numbers.size, BLOCK):
            copy(results[k : k + BLOCK], numbers[k : k + BLOCK])


def _to_pairs(pairs: np.ndarray, numbers: np.ndarray) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        high = numbers.astype(np.float32)
        rest = np.subtract(numbers, high, dtype=np.float64)
    if not np.isfinite(high).all():
        rest[~np.isfinite(high)] = 0.0
    pairs["high"] = high
    pairs["low"] = rest


def _from_pairs(numbers: np.ndarray, pairs: np.ndarray) -> None:
    high = np.ascontiguousarray(pairs["high"])
    numbers[...] = np.add(high, pairs["low"], dtype=np.float64)
    np.copyto(numbers, high, "unsafe", high == 0.0)  # which may be -0


def converted(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The array in C order, its numbers rounded to a dtype; itself if it is so."""
    if array.dtype == dtype and array.flags.c_contiguous:
        return array
    if PAIRS in (array.dtype, dtype):
        result = np.empty(array.shape, dtype)
        assign(result, array)
        return result
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array, dtype)


# --- shares ---------------------------------------------------------------------------------------

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
