"""What the command line shows: text, tables and progress, with rich where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

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
