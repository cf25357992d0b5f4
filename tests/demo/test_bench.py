"""``python -m symgrad bench``: figures of this machine, as JSON and as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import symgrad as sg
from symgrad.demo import bench
from symgrad.demo.cli import main


def test_a_report_has_a_figure_of_each_work_beside_the_known_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "--device", "cpu", "--seconds", "0.01", "--scale", "0.001"]
    assert main([*command, "--report", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "symgrad-report.json").read_text("utf-8"))
    page = (tmp_path / "symgrad-report.md").read_text("utf-8")
    assert page.rstrip("\n") in capsys.readouterr().out
    about = report["machine"]
    assert about["device"] == str(sg.devices()[-1]) and about["driver"].startswith("LLVM, ")
    assert about["versions"]["symgrad"] == sg.__version__
    assert [row["work"] for row in report["rows"]] == [w.name for w in bench.WORKLOADS]
    for row in report["rows"]:
        ratio = row["figure"] / row["reference"]
        assert row["times as fast"] == pytest.approx(1 / ratio if row["unit"] == "µs" else ratio)
        assert re.search(rf"^\| {row['work']} \| [\d.e+]+ .*{re.escape(row['of'])}", page, re.M)


def test_every_work_has_references_of_a_gpu_and_of_a_cpu() -> None:
    names = [w.name for w in bench.WORKLOADS]
    assert {kind: list(of) for kind, of in bench.reference().items()} == {
        "gpu": names,
        "cpu": names,
    }


def test_a_gpu_is_measured_with_its_driver() -> None:
    gpus = [d for d in sg.devices() if d.is_gpu]
    if not gpus:
        pytest.skip("no GPU and no software driver here")
    about = bench.machine(gpus[0])
    assert about["device"] == str(gpus[0]) and about["driver"] not in ("", "unknown")
    small = [w.make(gpus[0], 2000) for w in bench.WORKLOADS[:2]]
    assert all(call() is not None for call in small)


def test_a_report_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--report", "/nowhere"]) == 1
    assert "there is no such folder" in capsys.readouterr().err
