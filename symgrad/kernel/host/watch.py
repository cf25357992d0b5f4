"""A watch on one call: how long it is in each of its stages. Calls that nobody watches pay nothing.

The stages that a call is seldom in (tracing, compiling) begin and end with `stage`. What every call
does is not asked: a back end puts its own watch there while there is one.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import Any, Final, TypeVar

T = TypeVar("T")

WORKERS: Final = "symgrad"
"""With this begin the names of threads that do a share of the work of the call's own thread."""


class Watch:
    """The seconds of a call by stage. A stage within another is not counted to both.

    Invariant: `seconds` is written by the thread that made the watch alone; ``_runs``, when code
    for the CPU began and ended, by any thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._thread = threading.get_ident()
        self._within: list[float] = []
        self._runs: list[tuple[float, float]] = []

    @property
    def is_mine(self) -> bool:
        """Whether this is the thread whose call is watched, or one that works for it."""
        name = threading.current_thread().name
        return threading.get_ident() == self._thread or name.startswith(WORKERS)

    @property
    def is_in_stage(self) -> bool:
        """Whether the call is in a stage now."""
        return bool(self._within)

    @contextlib.contextmanager
    def stage(self, name: str) -> Generator[None]:
        """A context that is a stage of the call."""
        start = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.add(name, spent - self._within.pop())
            if self._within:
                self._within[-1] += spent

    def add(self, name: str, seconds: float) -> None:
        """Count seconds to a stage."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def restart(self) -> None:
        """Forget all seconds."""
        self.seconds.clear()
        self._runs.clear()

    def timed(self, run: Callable[..., T]) -> Callable[..., T]:
        """Code for the CPU, which notes when it began and ended."""

        @functools.wraps(run)
        def noted(*arguments: Any) -> T:
            start = time.perf_counter()
            result = run(*arguments)
            self._runs.append((start, time.perf_counter()))
            return result

        return noted

    def running(self) -> float:
        """The seconds in which any thread ran code for the CPU."""
        total, until = 0.0, 0.0
        for start, end in sorted(self._runs):
            total += max(0.0, end - max(start, until))
            until = max(until, end)
        return total


_lock = threading.Lock()
_watches: list[Watch] = []
"""The watch that is on, if there is one."""


@contextlib.contextmanager
def watching() -> Generator[Watch]:
    """A context in which what this thread does is watched. Others that ask for one wait."""
    with _lock:
        watch = Watch()
        _watches.append(watch)
        try:
            yield watch
        finally:
            _watches.clear()


def current() -> Watch | None:
    """The watch on what this thread does."""
    watch = next(iter(_watches), None)
    return watch if watch is not None and watch.is_mine else None


_stages: dict[int, str] = {}
"""The stages that threads are in."""

_hearing: dict[int, Callable[[], None]] = {}
"""Functions that threads call as stages begin."""


@contextlib.contextmanager
def stage(name: str) -> Generator[None]:
    """A context that is a stage of the call, for the watch if there is one."""
    watch, thread = current(), threading.get_ident()
    before = _stages.get(thread, "")
    _stages[thread] = name
    hear = _hearing.get(thread)
    try:
        if hear is not None:
            hear()
        with nullcontext() if watch is None else watch.stage(name):
            yield
    finally:
        if before:
            _stages[thread] = before
        else:
            del _stages[thread]


@contextlib.contextmanager
def hearing(hear: Callable[[], None]) -> Generator[None]:
    """A context in which a function is called at the beginning of each stage of this thread."""
    thread = threading.get_ident()
    before = _hearing.get(thread)
    _hearing[thread] = hear
    try:
        yield
    finally:
        if before is None:
            del _hearing[thread]
        else:
            _hearing[thread] = before


def stage_of(thread: int) -> str:
    """The stage that a thread is in, or an empty text."""
    return _stages.get(thread, "")


def code(run: Callable[..., T]) -> Callable[..., T]:
    """Code for the CPU; if the call is watched, such that notes when it runs."""
    watch = current()
    return run if watch is None else watch.timed(run)
