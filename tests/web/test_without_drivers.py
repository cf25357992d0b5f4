"""Modules and pages are written without a driver, a compiler, threads and SymPy, as in Pyodide."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, subprocess, sys, threading
sys.modules.update(dict.fromkeys(["wgpu", "llvmlite", "sympy", "mpmath", "scipy", "matplotlib"]))

def refuse(*arguments, **options):
    raise RuntimeError("there are no threads and no processes")

threading.Thread.start = subprocess.Popen.__init__ = os.fork = refuse
import symgrad as sg

kernel = sg.fused_forward_backward(2, lambda v: sg.exp(v[0]) * v[1], device="cpu")
kernel.export_js("kernel.mjs", sg.LBFGS())
sg.export_html(lambda x, a, b: a * sg.exp(-b * x), "model.html")
sg.export_js(lambda x, a, b: a * sg.exp(-b * x), "model.mjs")
loaded = {name.partition(".")[0] for name in sys.modules if sys.modules[name]}
print(sorted(loaded & {"numpy", "_cffi_backend", "symgrad", "IPython", "rich", "sklearn"}))
try:
    kernel.run([1.0, 2.0])
except sg.DeviceError as error:
    print(error)
"""


def test_kernels_are_written_without_drivers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['_cffi_backend', 'numpy', 'symgrad']")
    assert "llvmlite, which is missing here" in done.stdout
    names = ["kernel.d.mts", "kernel.mjs", "model.d.mts", "model.html", "model.mjs"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_what_pyodide_lacks_is_not_required_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    elsewhere = [d for d in project["dependencies"] if d.endswith("; sys_platform != 'emscripten'")]
    assert [d.partition(">")[0] for d in elsewhere] == ["llvmlite", "wgpu"]
