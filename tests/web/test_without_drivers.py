"""Modules and pages are written without a driver, a compiler and SymPy, as in Pyodide."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(["wgpu", "llvmlite", "sympy", "mpmath", "scipy", "matplotlib"]))
import symgrad as sg

kernel = sg.fused_forward_backward(2, lambda v: sg.exp(v[0]) * v[1], device="cpu")
kernel.export_js("kernel.mjs", sg.LBFGS())
sg.export_html(lambda x, a, b: a * sg.exp(-b * x), "model.html")
sg.export_js(lambda x, a, b: a * sg.exp(-b * x), "model.mjs")
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
    assert "llvmlite, which is missing here" in done.stdout
    names = ["kernel.d.mts", "kernel.mjs", "model.d.mts", "model.html", "model.mjs"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
