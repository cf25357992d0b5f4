"""How far a long call has got, for those who ask: on the screen, or to a function of theirs."""

from __future__ import annotations

import contextlib
import html as escape
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from symgrad.errors import InputTypeError, SymgradError
from symgrad.kernel.host import watch
from symgrad.kernel.host.watch import stage_of

# --- screens --------------------------------------------------------------------------------------
# Text, tables, progress, figures and kernels, shown with rich and matplotlib if installed.

T = TypeVar("T")


class Screen(Protocol):
    """Somewhere to show things."""

    def say(self, text: str = "") -> None:
        """Show a line."""
        ...

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table, its columns aligned on the right."""
        ...

    def progress(self, items: Iterable[T], total: int, note: Callable[[T], str]) -> Iterator[T]:
        """The items, showing how far one has got and what ``note`` says of the latest."""
        ...


class PlainScreen:
    """A screen that writes lines to the standard output."""

    def say(self, text: str = "") -> None:
        """Show a line."""
        sys.stdout.write(text + "\n")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table, its columns aligned on the right."""
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, ["-" * w for w in widths], *rows):
            self.say("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)))

    def progress(self, items: Iterable[T], total: int, note: Callable[[T], str]) -> Iterator[T]:
        """The items, with a line at the first, at every quarter and at the last."""
        marks = {0, total - 1, *(total * q // 4 for q in (1, 2, 3))}
        for k, item in enumerate(items):
            if k in marks:
                self.say(f"  step {k:3d}: {note(item)}")
            yield item


class RichScreen:
    """A screen with colours and a moving bar."""

    def __init__(self, console: Any, table: Any, progress: Any) -> None:
        self._console, self._table, self._progress = console, table, progress

    def say(self, text: str = "") -> None:
        """Show a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table, its columns aligned on the right."""
        table = self._table.Table(box=None, pad_edge=False, header_style="bold")
        for name in header:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def progress(self, items: Iterable[T], total: int, note: Callable[[T], str]) -> Iterator[T]:
        """The items, with a bar beside which stands what ``note`` says of the latest."""
        columns = (
            self._progress.BarColumn(bar_width=24),
            self._progress.MofNCompleteColumn(),
            self._progress.TextColumn("{task.description}"),
        )
        with self._progress.Progress(*columns, console=self._console) as bars:
            bar = bars.add_task("", total=total)
            for item in items:
                bars.update(bar, advance=1, description=note(item))
                yield item


class Meter(Protocol):
    """Somewhere to show how far one long call has got, beside what else is shown."""

    def show(self, text: str, done: int, total: int | None) -> None:
        """Show a text in the place of the last one, and which part is done if that is known."""
        ...

    def close(self) -> None:
        """Leave what was shown last."""
        ...


class PlainMeter:
    """A line on the standard error, written over and over."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, text: str, done: int, total: int | None) -> None:
        """See ``Meter``."""
        sys.stderr.write(f"\r{text.ljust(self._width)}")
        sys.stderr.flush()
        self._width = len(text)

    def close(self) -> None:
        """See ``Meter``."""
        sys.stderr.write("\n")


class RichMeter:
    """A moving bar, on a terminal's standard error or in a notebook."""

    def __init__(self, console: Any, progress: Any) -> None:
        columns = progress.BarColumn(bar_width=24), progress.TextColumn("{task.description}")
        self._bars = progress.Progress(*columns, console=console, auto_refresh=False)
        self._bar: Any = None

    def show(self, text: str, done: int, total: int | None) -> None:
        """See ``Meter``."""
        if self._bar is None:
            self._bars.start()
            self._bar = self._bars.add_task("", total=total)
        self._bars.update(self._bar, completed=done, description=text, refresh=True)

    def close(self) -> None:
        """See ``Meter``."""
        self._bars.stop()


def open_screen() -> Screen:
    """A screen with colours on a terminal if rich is installed, or else a plain one."""
    try:
        import rich.console
        import rich.progress
        import rich.table
    except ImportError:
        return PlainScreen()
    console = rich.console.Console()
    if not console.is_terminal:
        return PlainScreen()
    return RichScreen(console, rich.table, rich.progress)


def open_meter() -> Meter:
    """A moving bar on a terminal or in a notebook if rich is installed, or else a plain line."""
    try:
        import rich.console
        import rich.progress
    except ImportError:
        return PlainMeter()
    console = rich.console.Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        return PlainMeter()
    return RichMeter(console, rich.progress)


def new_figure(width: float, height: float) -> Any:
    """An empty figure of a size in inches.

    Raises:
        SymgradError: where matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SymgradError("matplotlib is not installed: pip install 'symgrad[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


# --- kernels in notebooks -------------------------------------------------------------------------


_TOKENS: Final = re.compile(
    r"(?P<comment>//[^\n]*)|(?P<keyword>\b(?:fn|let|var|for|if|return|struct)\b)"
    r"|(?P<type>\b(?:f32|u32|i32|bool|array|vec3|vec4|bitcast)\b)|(?P<attribute>@\w+)"
    r"|(?P<number>\b\d[\w.]*(?:e-?\d+)?f?\b)"
)
_COLOURS: Final = {
    "comment": "#6a737d",
    "keyword": "#a626a4",
    "type": "#0184bc",
    "attribute": "#986801",
    "number": "#b35900",
}


LONGEST_SOURCE: Final = 1000
"""The lines of the longest source that a notebook shows whole."""


def html(title: str, stats: str, source: str) -> str:
    """The kernel as HTML; the source folded away, with its syntax in colour.

    Of a long source the first and last lines are shown.
    """
    return (
        f"<details><summary><b>{escape.escape(title)}</b><br>{escape.escape(stats)}</summary>"
        f'<pre style="line-height:1.25">{highlight(shortened(source))}</pre></details>'
    )


def shortened(source: str) -> str:
    """A source of at most `LONGEST_SOURCE` lines; a longer one without its middle."""
    lines = source.splitlines()
    left = len(lines) - LONGEST_SOURCE
    if left <= 0:
        return source
    half = LONGEST_SOURCE // 2
    note = f"// ... {left:,} more lines: print(kernel.wgsl) shows all ..."
    return "\n".join([*lines[:half], note, *lines[-half:]])


def highlight(source: str) -> str:
    """WGSL as HTML spans."""
    parts: list[str] = []
    end = 0
    for token in _TOKENS.finditer(source):
        parts.append(escape.escape(source[end : token.start()]))
        colour = _COLOURS[token.lastgroup or "comment"]
        parts.append(f'<span style="color:{colour}">{escape.escape(token[0])}</span>')
        end = token.end()
    return "".join([*parts, escape.escape(source[end:])])


# --- progress -------------------------------------------------------------------------------------

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
        >>> result = sg.minimize_from(
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
