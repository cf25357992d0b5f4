"""What is shown with rich and without it."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout

import pytest

from symgrad.report.progress import PlainScreen, RichScreen, open_screen


def test_plain_tables_align(capsys: pytest.CaptureFixture[str]) -> None:
    PlainScreen().table(("", "value"), [("b1", "1.5"), ("b10", "-12.25")])
    assert capsys.readouterr().out.splitlines() == [
        "      value",
        "---  ------",
        " b1     1.5",
        "b10  -12.25",
    ]


def test_plain_progress_passes_all_and_shows_five(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(PlainScreen().progress(range(41), 41, str)) == list(range(41))
    shown = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["0", "10", "20", "30", "40"]


def test_without_rich_or_a_terminal_it_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stdout(io.StringIO()):
        assert isinstance(open_screen(), PlainScreen)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(open_screen(), PlainScreen)


def test_a_terminal_gets_a_table_and_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    output = io.StringIO()
    with redirect_stdout(output):
        monkeypatch.setenv("FORCE_COLOR", "1")
        screen = open_screen()
        assert isinstance(screen, RichScreen)
        screen.say("y = b1*(1-exp[-b2*x])")
        screen.table(("", "value"), [("b1", "1.5")])
        assert list(screen.progress(range(3), 3, lambda k: f"cost {k}")) == [0, 1, 2]
    for part in ("y = b1*(1-exp[-b2*x])", "1.5", "3/3", "cost 2"):
        assert part in output.getvalue()
