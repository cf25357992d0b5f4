"""Text, tables, progress, figures and kernels, shown with rich and matplotlib if installed."""

from __future__ import annotations

import html as escape
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from symgrad.errors import SymgradError

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
