"""How far a long call has got, for those who ask: on the screen, or to a function of theirs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from symgrad.errors import InputTypeError
from symgrad.kernel import watch
from symgrad.kernel.watch import stage_of
from symgrad.report.screen import Meter, open_meter

SILENT_SECONDS: Final = 1.0
"""Seconds within which a call says nothing."""

LEAST_SECONDS_APART: Final = 0.1
"""Seconds from one report to the next, at least."""

LEAST_REPORT_TIMES_APART: Final = 20.0
"""So many times as long as a report took there is no other: they cost a call a twentieth."""

IDLE_SECONDS: Final = 0.5
"""Seconds without news after which the screen shows that time goes by."""

MOST_IDLE_LOOKS: Final = 50
"""Times that the thread that looks after screens looks in vain before it ends."""


@dataclass(frozen=True)
class Progress:
    """How far a call has got.

    ``what`` is counted, such as "steps" or "rows"; ``done`` of ``total`` are done, which is None
    where it is not known. ``seconds`` have gone by, and about ``left`` are left, as far as is
    known. ``best`` is the lowest loss so far, where there is one. ``stage`` says what else it is at
    now, if it is: "trace", "simplify", "emit" or "compile".

    Example:
        >>> import symgrad as sg
        >>> def show(now):
        ...     print(f"{now.done / now.total:.0%}, {now}")
        >>> show(sg.Progress("steps", done=500, total=2000, seconds=1.5, left=4.5, best=0.25))
        25%, 500 of 2,000 steps, 1.5 s, about 4.5 s left; best 0.25
        >>> found = sg.minimize_from(
        ...     lambda v: v[0]**2, 1, [[1.0]], sg.Adam(0.1), 50, device="cpu", progress=show)
    """

    what: str
    done: int
    total: int | None
    seconds: float
    left: float | None = None
    best: float | None = None
    stage: str = ""

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        left = "" if self.left is None else f", about {_time(self.left)} left"
        best = "" if self.best is None else f"; best {self.best:.6g}"
        stage = self.stage and f"{self.stage}: "
        return f"{stage}{self.done:,}{of} {self.what}, {_time(self.seconds)}{left}{best}"


Asked = bool | Callable[[Progress], Any]
"""The values of ``progress=``: whether to show it, or a function that is called with it."""


class Report(Protocol):
    """The function by which a call that takes long reports how far it has got."""

    def __call__(self, done: int, best: Callable[[], float | None] | None = None) -> None:
        """Note how much is done; ``best`` finds the lowest loss so far, if it is reported."""
        ...


class Reporter:
    """Tells how far a call has got: not in its first second, and at most ten times a second."""

    def __init__(
        self,
        show: Callable[[Progress], Any],
        what: str,
        total: int | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._show, self._clock, self._start = show, clock, clock()
        self._thread = threading.get_ident()
        self._next = self._start + SILENT_SECONDS
        self._now = Progress(what, 0, total, 0.0)
        self.has_shown = False
        """Whether anything was."""

    def __call__(self, done: int, best: Callable[[], float | None] | None = None) -> None:
        """See `Report`."""
        now = self._clock()
        if now < self._next:
            self._now = replace(self._now, done=done)
            return
        self._now = replace(self._at(now, done), best=best() if best else None)
        self.has_shown = False  # if it raises, that was the last one
        self._show(self._now)
        self.has_shown = True
        end = self._clock()
        self._next = end + max(LEAST_SECONDS_APART, LEAST_REPORT_TIMES_APART * (end - now))

    def finish(self) -> None:
        """Report the end, if there has been a report before."""
        if self.has_shown:
            with contextlib.suppress(StopIteration):  # there is nothing left to stop
                self._show(replace(self._at(self._clock(), self._now.done), left=0.0))

    def now(self) -> Progress:
        """How far it has got, and in which stage it is, as far as another thread knows."""
        return self._at(self._clock(), self._now.done)

    def _at(self, now: float, done: int) -> Progress:
        spent, total = now - self._start, self._now.total
        left = spent * max(0, total - done) / done if total is not None and done else None
        stage = stage_of(self._thread)
        return replace(self._now, done=done, seconds=spent, left=left, stage=stage)


def _silent(done: int, best: Callable[[], float | None] | None = None) -> None:
    """The report of a call without ``progress``: it shows nothing."""


@contextlib.contextmanager
def reporting(progress: Asked, what: str, total: int | None = None) -> Generator[Report]:
    """A context in which a call does so much, of which it is to report.

    Exceptions of the user's function go through the call and end it.

    Raises:
        InputTypeError: for a ``progress=`` that is none.
    """
    if callable(progress):
        reporter = Reporter(progress, what, total)
        yield reporter
        reporter.finish()
    elif progress in (True, False):
        with _on_screen(what, total) if progress else contextlib.nullcontext(_silent) as report:
            yield report
    else:
        raise InputTypeError(
            f"progress={progress!r}: True, or a function of the progress is needed"
        )


@contextlib.contextmanager
def staged(progress: Asked, what: str) -> Generator[None]:
    """A context in which one thing is made, or one call runs, of which only the stages are known.

    A function given as ``progress`` is called as they begin.
    """
    with reporting(progress, what, 1) as report, watch.hearing(lambda: report(0)):
        yield
        report(1)


class Ticker:
    """A thread that calls functions every ``LEAST_SECONDS_APART`` seconds while there are any.

    To start a thread costs as much as a short call: it stays for a while when there are none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ticks: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def calling(self, tick: Callable[[], None]) -> Generator[None]:
        """A context in which a function is called; once more, at most, when it has ended."""
        with self._lock:
            self._ticks.append(tick)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._ticks.remove(tick)

    def _run(self) -> None:
        """Call all ticks again and again, until there have been none for a while."""
        idle, pause = 0, threading.Event()
        while True:
            pause.wait(LEAST_SECONDS_APART)
            with self._lock:
                ticks = [*self._ticks]
                idle = 0 if ticks else idle + 1
                if idle >= MOST_IDLE_LOOKS:
                    self._thread = None
                    return
            for tick in ticks:
                tick()


_ticker = Ticker()


def _forget_ticker() -> None:
    """A child process has none of its parent's threads, of which one may have held the lock."""
    global _ticker
    _ticker = Ticker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_ticker)


class _Screen:
    """Where the reports of a call are shown; the time, too, while there are none."""

    def __init__(self, what: str, total: int | None) -> None:
        self._lock, self._ended = threading.Lock(), False
        self._meter: Meter | None = None
        self._due = time.perf_counter() + SILENT_SECONDS
        self.reporter = Reporter(self._show, what, total)

    def tick(self) -> None:
        """Show that time goes by."""
        if time.perf_counter() >= self._due:
            self.reporter.has_shown = True
            self._show(self.reporter.now())

    def end(self) -> None:
        """Show the end, if anything was shown before."""
        self.reporter.finish()
        with self._lock:
            self._ended = True
            if self._meter is not None:
                self._meter.close()

    def _show(self, progress: Progress) -> None:
        with self._lock:
            if not self._ended:
                self._meter = self._meter or open_meter()
                self._meter.show(str(progress), progress.done, progress.total)
                self._due = time.perf_counter() + IDLE_SECONDS


@contextlib.contextmanager
def _on_screen(what: str, total: int | None) -> Generator[Report]:
    """Reports that the screen shows."""
    screen = _Screen(what, total)
    try:
        with _ticker.calling(screen.tick):
            yield screen.reporter
    finally:
        screen.end()


def _time(seconds: float) -> str:
    """Seconds as one reads them: 3.2 s, 2:05, 1:00:07."""
    if seconds < 60.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
