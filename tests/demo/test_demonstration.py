"""The demonstration: its fits against NIST's certified numbers, what it says, and its picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import symgrad as sg
from symgrad.demo import demonstration
from symgrad.report.progress import PlainScreen

FEW = 25
"""Starts: enough for every data set but those in which few of them arrive."""


@pytest.mark.parametrize("name", sorted(set(demonstration.available()) - {"Lanczos3"}))
def test_fits_agree_with_the_certified_parameters(name: str) -> None:
    fit = demonstration.run_demo(PlainScreen(), name, "cpu", FEW)
    digits = demonstration.agreeing_digits(fit.polished, fit.data.certified)
    assert digits.min() > 8
    assert demonstration.agreeing_digits(fit.end.parameters[fit.best], fit.data.certified).min() > 3


def test_the_ill_conditioned_one_needs_more_starts() -> None:
    fit = demonstration.run_demo(PlainScreen(), "Lanczos3", "cpu", 500)
    assert demonstration.agreeing_digits(fit.polished, fit.data.certified).min() > 8


def test_it_says_what_it_found_where_and_how_fast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "fit.png"
    demonstration.run_demo(PlainScreen(), "Thurber", "cpu", FEW, output=picture)
    said = capsys.readouterr().out
    for part in ("NIST", "y = (b1 + b2*x", "certified", "b7", "LLVM)", "points/s"):
        assert part in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    demonstration.run_demo(PlainScreen(), "DanWood", "cpu", FEW, output=tmp_path / "fit.png")
    assert "pip install 'symgrad[plot]'" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_an_unknown_device_is_an_error_before_any_work() -> None:
    with pytest.raises(sg.InputError, match="device='tpu'"):
        demonstration.run_demo(PlainScreen(), "DanWood", "tpu")
