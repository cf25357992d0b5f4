"""The command line, as a user of a shell meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from symgrad.demo.cli import main

ROOT = Path(__file__).parents[2]
LOSSES = """
def rosenbrock(v):
    return sum(100 * (v[1:] - v[:-1]**2)**2 + (1 - v[:-1])**2)

def branches(v):
    if v[0] > 0:
        return v[0]

def far(v):
    return v[5]

def pair(v):
    return [v[0], v[0] * v[1]]

def line(x, a, b):
    return a + b * x

answer = 42
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user, with modules that nothing else has imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for name in ("losses", "divides", "needs", "unfinished"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    tmp_path.joinpath("losses.py").write_text(LOSSES)
    tmp_path.joinpath("divides.py").write_text("1 / 0\n")
    tmp_path.joinpath("needs.py").write_text("import no_such_package\n")
    tmp_path.joinpath("unfinished.py").write_text("def f(:\n")
    return tmp_path


def shell(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "symgrad", *arguments], cwd=folder, text=True, timeout=120,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_show_prints_the_kernel_of_a_function_in_this_folder(folder: Path) -> None:
    done = shell("show", "losses:rosenbrock", "2", folder=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("// rosenbrock: loss and gradient\n")
    assert "@compute @workgroup_size(256)" in done.stdout
    assert done.stdout.endswith("}\n")


def test_export_writes_modules_and_pages(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "losses:rosenbrock", "2", "--js", "out/js"]) == 0
    assert main(["export", "losses:line", "2", "--html", "out"]) == 0
    told = capsys.readouterr().out.split()
    assert told == [str(Path("out/js/rosenbrock.mjs")), str(Path("out/line.html"))]
    assert "rosenbrock: loss and gradient" in Path(told[0]).read_text()
    assert Path("out/js/rosenbrock.d.mts").exists()
    assert "<title>line</title>" in Path(told[1]).read_text()
    Path(told[1]).write_text("mine")
    assert main(["export", "losses:line", "2", "--html", "out"]) == 1
    assert "not written by symgrad" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "title"),
    [("values", "pair: values"), ("jacobian", "pair: values and Jacobian")],
)
def test_show_of_other_kinds(
    kind: str, title: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "losses:pair", "2", "--kind", kind]) == 0
    assert capsys.readouterr().out.startswith(f"// {title}\n")


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        ("losses", ["does not name a function: write module:function"]),
        ("losses:", ["does not name a function"]),
        ("nowhere:f", ["there is no module 'nowhere'"]),
        ("nowhere.at.all:f", ["there is no module 'nowhere.at.all'"]),
        ("losses:rosenbrok", ["no function 'rosenbrok'", "it has rosenbrock, branches, far, pair"]),
        ("losses:answer", ["no function 'answer'"]),
        ("losses:branches", ["sg.where", 'losses.py:6: "if v[0] > 0:"']),
        ("losses:far", ["with n = 2 raised IndexError", 'losses.py:10: "return v[5]"']),
        ("losses:pair", ["returned a list; a loss is one scalar"]),
        ("divides:f", ["module divides raised ZeroDivisionError", "divides.py:1"]),
        ("needs:f", ["module needs raised ModuleNotFoundError", "no_such_package"]),
        ("unfinished:f", ["module unfinished raised SyntaxError"]),
    ],
)
def test_errors_of_show(
    function: str, parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", function, "2"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("symgrad: error: ")
    assert "Traceback" not in said.err
    for part in parts:
        assert part in said.err


@pytest.mark.parametrize(
    "arguments",
    [[], ["fit"], ["show"], ["show", "losses:f"], ["show", "a:f", "0"], ["show", "a:f", "two"],
     ["demo", "--starts", "-3"]],
)  # fmt: skip
def test_wrong_command_lines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: symgrad" in capsys.readouterr().err


def test_devices_lists_the_cpu_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cpu, LLVM" in lines[-1]
    assert sum("<- device=None" in line for line in lines) == 1


def test_demo_in_a_shell(tmp_path: Path) -> None:
    done = shell("demo", "--device", "cpu", "--starts", "50", "--output", "a.svg", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of 50 starts reached the certified minimum" in done.stdout
    assert tmp_path.joinpath("a.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "Iris"], "there is no data set 'Iris': choose one of Chwirut2"),
        (["--device", "tpu"], "device='tpu': use"),
        (["--device", "99"], "there is no device 99"),
        (["--output", "no/such/folder/a.png"], "there is no folder no/such/folder"),
        (["--output", "."], "is a folder: name a file in it"),
        (["--output", "a.docx"], "must end in .png, .svg or .pdf"),
    ],
)
def test_errors_of_demo(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    show = f"{sys.executable} -m symgrad show losses:rosenbrock 500"  # more than a pipe holds
    command = f"{show} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, text=True, timeout=120, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "// rosenbrock: loss and gradient\n"
