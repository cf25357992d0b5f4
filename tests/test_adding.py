"""docs/adding.md: the row that it shows, added to a file of the op table, is all that it takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.search(r"```python\n(.*?)```", (ROOT / "docs/adding.md").read_text("utf-8"), re.DOTALL)
NEEDED = """
import numpy as np

from symgrad.expr.ops import interval
from symgrad.expr.ops.trigonometric import sinh, tanh

"""
"""What the row uses, and its file does not import for others."""

USED = """
import numpy as np, symgrad as sg
from mpmath import mp
mp.dps = 40
x = np.array([-40.0, -1.5, -1.0, -1e-3, 0.0, 0.4, 0.999, 3.0, 700.0])
for dtype, least in (("float64", 1e-15), ("float32", 5e-7)):
    kernel = sg.fused_forward_backward(1, lambda v: sg.logcosh(v[0]), device="cpu", dtype=dtype)
    loss, gradient = kernel.run(x[:, None])
    given = x if dtype == "float64" else np.float64(np.float32(x))
    true = np.array([float(mp.log(mp.cosh(v))) for v in given])
    np.testing.assert_allclose(loss, true, rtol=least)
    np.testing.assert_allclose(gradient[:, 0], np.tanh(given), rtol=least)
v = sg.var("v")
assert str(sg.to_sympy(sg.logcosh(v))) == "log(cosh(v))"
assert sg.text(sg.grad(sg.logcosh(v), v)) == "tanh(v)"
assert "log(cosh(x))" in sg.logcosh.__doc__.lower() and "logcosh" in sg.__all__
"""


def python(folder: Path, *arguments: str) -> None:
    """Run Python where the copy is."""
    path = os.pathsep.join(map(str, (folder, folder / "tools")))
    mine = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, text=True, capture_output=True,
                          timeout=300, env={**mine, "PYTHONPATH": path})  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the row, and what is written from it."""
    assert ROW
    folder = tmp_path_factory.mktemp("copy")
    for part in ("symgrad", "tools", "docs", "benchmarks", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "images")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "conftest.py", folder)
    table = folder / "symgrad/expr/ops/exponential.py"
    before = table.read_text("utf-8")
    head, _, rows = before.partition("\n\n\n")
    table.write_text(f"{head}\n{NEEDED}\n\n{rows}\n\n{ROW[1]}", "utf-8")
    python(folder, "tools/generate_docs.py")
    return folder


def test_it_computes_on_the_cpu_and_derives(copy: Path) -> None:
    python(copy, "-c", USED)


def test_the_tests_of_the_table_take_it(copy: Path) -> None:
    python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
           "--assert=plain", "-o", "minversion=8.0",
           "-k", "logcosh or every",
           "tests/expr/test_ops.py", "tests/expr/test_functions.py", "tests/expr/test_evaluate.py",
           "tests/expr/test_sympy_bridge.py", "tests/mathlib/test_accuracy.py",
           "tests/mathlib/test_gpu.py", "tests/rows/test_derivatives.py")  # fmt: skip
